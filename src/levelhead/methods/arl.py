"""Adversarially reweighted learning (Lahoti et al., NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelhead.methods.base import Method
from levelhead.objectives.adversarial import AdversarialReweighting
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class ARL(Method):
    """Train against an adversary that may weight the examples.

    ``adversary_layers`` is the depth of the adversary, a smaller network of the learner's kind (Lu, Wang, Wang, ICLR
    2024, try 2, 4 and 6; the original on tables is linear). ``pretrain_steps`` train the learner alone first.
    ``adversary_rate`` None takes the recipe's learning rate. Without ``sees_label`` the adversary sees the input alone,
    as in Lu, Wang, Wang's notebook; the original sees the label.

    Source: Lahoti et al., "Fairness without demographics through adversarially reweighted learning", NeurIPS 2020,
    arXiv:2006.13114.
    """

    summary: ClassVar[str] = "adversarially reweighted learning: a second network weights the examples (NeurIPS 2020)"
    adversary_layers: int = 2
    pretrain_steps: int = 0
    adversary_rate: float | None = None
    sees_label: bool = True

    def __post_init__(self) -> None:
        if self.adversary_layers < 1 or self.pretrain_steps < 0:
            raise ConfigError("method arl needs adversary_layers >= 1 and pretrain_steps >= 0")
        check_numbers("method", self, positive=("adversary_rate",))

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train learner and adversary together once."""
        learner = lab.new_model()
        adversary = lab.new_auxiliary(classes=None if self.sees_label else 1, layers=self.adversary_layers)
        yield Stage(AdversarialReweighting(learner, adversary, self.pretrain_steps, self.adversary_rate))
