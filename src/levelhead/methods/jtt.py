"""Just train twice (Liu et al., ICML 2021)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from levelhead.methods.base import Method
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class JTT(Method):
    """Train briefly, then train again with more weight on what was missed.

    ``repeat="append"`` adds ``upweight`` copies of each missed example to the data, as the authors' code does (its
    weight is then upweight + 1, and an epoch is longer); ``repeat="weights"`` keeps the epoch and gives it the weight
    ``upweight``, as their formula says. When nothing was missed the second training is plain. The original chooses
    by worst-group accuracy on validation, which needs groups; here the recipe's label-only rule does.

    Source: Liu et al., "Just train twice: improving group robustness without training group information", ICML 2021,
    arXiv:2107.09044.
    """

    summary: ClassVar[str] = "just train twice: upweights a first model's errors (ICML 2021)"
    trains_twice: ClassVar[bool] = True
    identification_epochs: int = 1
    upweight: int = 50
    repeat: Literal["append", "weights"] = "append"

    def __post_init__(self) -> None:
        if self.identification_epochs < 1 or self.upweight < 1:
            raise ConfigError("method jtt needs identification_epochs >= 1 and upweight >= 1")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train a scout for a few epochs, find what it misses, train again."""
        scout = lab.new_auxiliary()
        yield Stage(WeightedCrossEntropy(scout), epochs=self.identification_epochs, select="last")
        missed = lab.logits(scout).argmax(-1) != lab.labels
        if not missed.any():
            logger.warning("JTT: the first model made no errors, so the second training is plain ERM")
        weight = self.upweight + (self.repeat == "append")
        if missed.sum() * weight > (~missed).sum():
            logger.warning(
                "JTT: the first model missed %.0f%% of the rows, which now outweigh all others. If they are hard or "
                "mislabelled, the second model learns errors: compare a smaller upweight (now %d) or more "
                "identification_epochs (now %d)",
                100 * missed.float().mean(),
                self.upweight,
                self.identification_epochs,
            )
        second = WeightedCrossEntropy(lab.new_model())
        if self.repeat == "weights":
            yield Stage(second, weights=torch.where(missed, float(self.upweight), 1.0))
        else:
            copies = missed.nonzero()[:, 0].repeat(self.upweight)
            yield Stage(second, rows=torch.cat([torch.arange(len(lab.labels)), copies]))
