"""Class-balanced empirical risk minimisation: the cheap thing to try first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from levelhead.methods.base import Method
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class Balanced(Method):
    """Let every class count the same, by ``weights`` or by ``sampling``; looks at labels only.

    Weights are n / (K n_y): n examples, K classes, n_y examples of the example's class. Sampling draws with
    replacement, each class equally often, as many rows an epoch as there are. It moves the operating point: compare
    it at the threshold that gives the baseline's positive rate as well.

    Source: Idrissi, Arjovsky, Pezeshki, Lopez-Paz, CLeaR 2022 (simple data balancing), arXiv:2110.14503: by
    class.
    """

    summary: ClassVar[str] = "class-balanced empirical risk minimisation; labels only (CLeaR 2022)"
    by: Literal["weights", "sampling"] = "weights"

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train one model once."""
        counts = torch.bincount(lab.labels).double()
        weights = (len(lab.labels) / ((counts > 0).sum() * counts[lab.labels])).float()
        objective = WeightedCrossEntropy(lab.new_model())
        yield Stage(objective, sampling=weights) if self.by == "sampling" else Stage(objective, weights=weights)
