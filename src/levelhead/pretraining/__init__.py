"""Self-supervised pretraining of a small vision transformer: no label and no group is read."""

from levelhead.pretraining.config import MaskedViT, PretrainConfig, PretrainTrain, load_pretraining
from levelhead.pretraining.train import pretrain

__all__ = ["MaskedViT", "PretrainConfig", "PretrainTrain", "load_pretraining", "pretrain"]
