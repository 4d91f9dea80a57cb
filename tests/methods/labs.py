"""What the tests of methods share: a small lab, a recipe on drawn pictures, and a first training that is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import Tensor, nn

from levelhead.data.base import Examples
from levelhead.methods import Method, Stage
from levelhead.runs.recipe import build_experiment
from levelhead.training.config import TrainConfig
from levelhead.training.lab import Lab
from tiny import make_examples, tiny_vit

SIZE = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}


def lab_of(
    train: Examples,
    validation: Examples | None = None,
    network: Any = tiny_vit,
    *,
    told: dict[str, Tensor | None] | None = None,
    **options: Any,
) -> Lab:
    """Make a lab; ``told`` are the groups and people that a method gets, ``options`` are those of training."""
    config = TrainConfig(**{"epochs": 2, "batch_size": 16, "learning_rate": 3e-3, "device": "cpu", **options})
    kept = validation or make_examples(20, seed=1)
    return Lab(new_model=network, train=train, validation=kept, config=config, seed=3, **(told or {}))


def missing(lab: Lab, missed: Any) -> Lab:
    """Let the first training of a lab answer these rows wrongly, and all others right."""
    answers = lab.labels.clone()
    answers[missed] = 1 - answers[missed]
    lab.logits = lambda model: nn.functional.one_hot(answers, 2).float()  # type: ignore[method-assign, assignment]
    return lab


def second_stage(method: Method, lab: Lab) -> Stage:
    """Train the first stage of a method, and return the second."""
    stages = method.stages(lab)
    lab.train(next(stages))
    return next(stages)


class Small(nn.Module):
    """Numbers in, logits of two classes out; with ``hidden`` units, none for a linear network."""

    def __init__(self, width: int, hidden: int = 0) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_labels=2)
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU()) if hidden else nn.Identity()
        self.head = nn.Linear(hidden or width, 2)

    def forward(self, x: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.head(self.body(x)))


def recipe(method: str, options: dict[str, Any] | None = None, **sections: Any) -> Any:
    """Build an experiment of a tiny network on 32 drawn pictures."""
    return build_experiment(
        {
            "data": {"name": "portraits", "train_size": 32, "validation_size": 32, "test_size": 32},
            "method": {"name": method, **(options or {})},
            "model": {"hidden_size": 16, "layers": 1, "heads": 2},
            "train": {"epochs": 1, "batch_size": 16, "device": "cpu"},
            **sections,
        }
    )


def drawn(
    count: int, agree: float, seed: int, spread: float = 0.7, size: float = 1.5, noise: int = 0
) -> tuple[np.ndarray, ...]:
    """Two numbers a row, one that tells the class weakly, and a strong one in a share ``agree``; labels; which agree.

    ``spread`` and ``size`` are those of the strong number; ``noise`` numbers more tell nothing.
    """
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    follows = generator.random(count) < agree
    told = 2 * np.where(follows, labels, 1 - labels) - 1
    core = 2 * labels - 1 + generator.normal(size=count)
    shortcut = size * told + spread * generator.normal(size=count)
    return np.column_stack([core, shortcut, generator.normal(size=(count, noise))]), labels, follows
