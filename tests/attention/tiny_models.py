"""Classifiers small enough to train in milliseconds, and batches for them."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from levelhead.attention import DebiasConfig, append_encoder, attach
from levelhead.data.base import Inputs

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LABELS = torch.tensor([0, 1, 0, 1, 2, 0])


def vit_config(**options):
    return ViTConfig(**{**SMALL, **NO_DROPOUT, "image_size": 8, "patch_size": 4, "num_labels": 3, **options})


def bert_config(**options):
    return BertConfig(
        **{**SMALL, **NO_DROPOUT, "vocab_size": 50, "max_position_embeddings": 16, "num_labels": 3, **options}
    )


def build(family, **options):
    torch.manual_seed(0)
    if family == "vit":
        return ViTForImageClassification(vit_config(**options))
    return BertForSequenceClassification(bert_config(**options))


def backbone(family, **options):
    torch.manual_seed(0)
    return ViTModel(vit_config(**options)) if family == "vit" else BertModel(bert_config(**options))


def make(kind, family, debias=None, **options):
    """Attach to a classifier of that family, or append to its backbone; ``options`` are those of its configuration."""
    debias = debias or DebiasConfig()
    if kind == "attach":
        return attach(build(family, **options), debias)
    return append_encoder(backbone(family, **options), 3, debias=debias)


def batch(family, seed=1):
    generator = torch.Generator().manual_seed(seed)
    if family == "vit":
        return {"pixel_values": torch.randn(6, 3, 8, 8, generator=generator)}
    mask = torch.ones(6, 7, dtype=torch.int64)
    mask[0, 4:] = mask[3, 2:] = 0
    return {"input_ids": torch.randint(1, 50, (6, 7), generator=generator) * mask, "attention_mask": mask}


class Rows(Inputs):
    """A batch of model inputs, addressed by row."""

    def __init__(self, tensors):
        self.tensors = tensors

    def __len__(self):
        return len(next(iter(self.tensors.values())))

    def batch(self, index):
        return {name: tensor[index] for name, tensor in self.tensors.items()}


def step(model, inputs, labels=LABELS):
    """One training pass with its gradient; the loss."""
    loss = model.train()(**inputs, labels=labels).loss
    loss.backward()
    return loss
