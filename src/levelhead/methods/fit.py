"""Train a network by a method, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from levelhead.arrays import checked
from levelhead.methods.base import Method
from levelhead.training.lab import Lab
from levelhead.training.stage import Stage
from levelhead.types import LevelheadError


@checked
def fit(method: Method, lab: Lab) -> nn.Module:
    """Run every stage of ``method`` and return the trained network, in evaluation mode on the lab's device.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import levelhead as lh
        >>> from levelhead.data import DATASETS
        >>> from levelhead.methods.dam import DAM
        >>> size = ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=64, patch_size=32)
        >>> data = DATASETS["portraits"](train_size=64, validation_size=32, test_size=32)
        >>> lab = lh.Lab(
        ...     new_model=lambda: ViTForImageClassification(size),
        ...     train=data.examples("train"),
        ...     validation=data.examples("validation"),
        ...     config=lh.TrainConfig(epochs=1, batch_size=32, device="cpu"),
        ... )
        >>> model = lh.fit(DAM(), lab)
        >>> lh.describe(model).batches
        2
    """
    stage: Stage | None = None
    with lab.tracked():
        torch.manual_seed(lab.seed)
        stages: Iterator[Stage] = method.stages(lab)
        for stage in stages:
            lab.train(stage)  # the generator resumes with trained weights
    if stage is None:
        raise LevelheadError(f"{type(method).__name__}.stages yielded no stage: there is nothing to train.")
    return stage.objective.model.eval()
