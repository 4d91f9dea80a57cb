"""Class-balanced empirical risk minimisation: the cheap thing to try first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from levelhead.methods.base import Method, Stage
from levelhead.objectives.cross_entropy import WeightedCrossEntropy

if TYPE_CHECKING:
    from levelhead.engine import Lab


@dataclass(frozen=True)
class Balanced(Method):
    """Weight each example by n / (K n_y), so that every class counts the same; looks at labels only.

    n examples, K classes, n_y examples of the example's class. It moves the operating point: compare it at the
    threshold that gives the baseline's positive rate as well.

    Source: Idrissi, Arjovsky, Pezeshki, Lopez-Paz, CLeaR 2022 (simple data balancing): reweighting by class.
    """

    summary: ClassVar[str] = "empirical risk minimisation with class weights; labels only"

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train one model once."""
        counts = torch.bincount(lab.labels).double()
        weights = len(lab.labels) / ((counts > 0).sum() * counts[lab.labels])
        yield Stage(WeightedCrossEntropy(lab.new_model()), weights=weights.float())
