"""Train a network by a method, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from levelhead.methods.base import Method
from levelhead.training.lab import Lab
from levelhead.training.stage import Stage
from levelhead.types import LevelheadError


def fit(method: Method, lab: Lab) -> nn.Module:
    """Run every stage of ``method`` and return the trained network, in evaluation mode on the lab's device."""
    stage: Stage | None = None
    with lab.tracked():
        torch.manual_seed(lab.seed)
        stages: Iterator[Stage] = method.stages(lab)
        for stage in stages:
            lab.train(stage)  # the generator resumes with trained weights
    if stage is None:
        raise LevelheadError(f"{type(method).__name__}.stages yielded no stage: there is nothing to train.")
    return stage.objective.model.eval()
