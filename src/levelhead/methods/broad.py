"""BROAD: adversarial debiasing that looks for regions (Grari et al., ICLR 2024); a reference that sees groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from levelhead.methods.base import Method
from levelhead.methods.group_dro import group_count
from levelhead.objectives.regions import RegionalDebiasing
from levelhead.training.processes import refuse_several
from levelhead.training.stage import Stage
from levelhead.types import check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class BROAD(Method):
    """Hide the group from an adversary that gets the score and the class, most where the adversary succeeds.

    It sees demographic labels in training, and is marked ORACLE. ``strength`` is lambda, the weight of the adversary's
    loss, and ``tau`` the temperature of the weights: a small one looks at the rows whose group the adversary guesses
    best, a large one at all alike, which is plain adversarial debiasing. The adversary takes ``adversary_steps`` steps
    on each batch (50 in the authors' code, whose batches are larger) at ``adversary_rate``.

    Source: Grari, Laugel, Hashimoto, Lamprier, Detyniecki, "On the fairness ROAD: robust optimization for adversarial
    debiasing", ICLR 2024, arXiv:2310.18413.
    """

    summary: ClassVar[str] = "adversarial debiasing, most where groups differ most; sees groups (ICLR 2024)"
    uses_groups: ClassVar[bool] = True
    strength: float = 1.0
    tau: float = 0.5
    adversary_steps: int = 10
    adversary_rate: float = 1e-3

    def __post_init__(self) -> None:
        check_numbers(
            "method",
            self,
            at_least_one=("adversary_steps",),
            positive=("tau", "adversary_rate"),
            at_least_zero=("strength",),
        )

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train classifier and adversary together once."""
        refuse_several(lab.accelerator, "method broad")  # each would train an adversary of its own
        objective = RegionalDebiasing(
            lab.new_model(),
            len(lab.validation.class_names),
            group_count(lab, "broad"),
            strength=self.strength,
            tau=self.tau,
            adversary_steps=self.adversary_steps,
            adversary_rate=self.adversary_rate,
        )
        yield Stage(objective, groups=lab.groups)
