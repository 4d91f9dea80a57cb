"""Empirical risk minimisation: the baseline that every comparison needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelhead.methods.base import Method
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class ERM(Method):
    """Minimise the mean cross-entropy."""

    summary: ClassVar[str] = "plain training: empirical risk minimisation (mean cross-entropy)"

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train one model once."""
        yield Stage(WeightedCrossEntropy(lab.new_model()))
