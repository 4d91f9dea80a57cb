"""Distributionally robust optimisation without groups (Hashimoto et al., ICML 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from levelhead.methods.base import Method
from levelhead.objectives.robust import DistributionallyRobust
from levelhead.training.stage import Stage
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class DRO(Method):
    """Minimise the mean of max(loss - eta, 0)^power, so that examples with a small loss stop counting.

    ``eta`` is in units of the loss (nats). Lu, Wang, Wang (ICLR 2024) use .1 for UTKFace, .15 for CelebA, .25 for
    text; their notebook's ``power`` is 1.5. When every loss of a batch is below eta nothing is trained; the log's
    ``above_eta`` says how many are left. ``variant``: ``dual`` finds the best eta of each batch for a chi-square ball
    that protects a group of share ``alpha``; ``cvar`` is the mean of the worst ``alpha``.

    Source: Hashimoto, Srivastava, Namkoong, Liang, "Fairness without demographics in repeated loss minimization", ICML
    2018, arXiv:1806.08010.
    """

    summary: ClassVar[str] = "distributionally robust optimisation: only the large losses (ICML 2018)"
    eta: float = 0.1
    power: float = 2.0
    variant: Literal["fixed", "dual", "cvar"] = "fixed"
    alpha: float = 0.5

    def __post_init__(self) -> None:
        if not self.eta >= 0 or not self.power >= 1 or not 0 < self.alpha <= 1:
            raise ConfigError(
                f"method dro needs eta >= 0, power >= 1 and 0 < alpha <= 1; got {self.eta}, {self.power}, {self.alpha}"
            )

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train one model once."""
        yield Stage(
            DistributionallyRobust(lab.new_model(), self.variant, eta=self.eta, power=self.power, alpha=self.alpha)
        )
