"""Numbers of single methods, worked by hand."""

import torch

from levelhead.engine import Lab, TrainConfig
from levelhead.methods import Balanced
from tiny import make_examples, tiny_vit


def test_balanced_weights_make_every_class_count_the_same():
    examples = make_examples(48)
    examples.labels[:] = torch.tensor([0] * 36 + [1] * 12)
    lab = Lab(new_model=tiny_vit, train=examples, validation=examples, config=TrainConfig(batch_size=16, device="cpu"))
    (stage,) = Balanced().stages(lab)
    assert torch.allclose(stage.weights.unique(), torch.tensor([2 / 3, 2.0]))
    assert torch.isclose(stage.weights[:36].sum(), stage.weights[36:].sum())
