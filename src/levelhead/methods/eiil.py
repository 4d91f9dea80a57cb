"""Environment inference for invariant learning (Creager, Jacobsen, Zemel, ICML 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from levelhead.methods.base import Method
from levelhead.methods.group_dro import worst_group_stage
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.objectives.group import InvariantRisk, scale_slopes
from levelhead.training.stage import Stage
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


def infer_environments(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the two environments (train,) int64 on which a reference model violates invariance most.

    The original climbs a soft assignment q by gradient. Its objective, (mean q g)^2 + (mean (1-q) g)^2 with the slopes
    g of :func:`~levelhead.objectives.group.scale_slopes`, is convex in q and so largest at a corner: q = 1[g > 0] or
    its complement, which is the same division. No iteration is needed.

    Source: Creager, Jacobsen, Zemel, "Environment inference for invariant learning", ICML 2021, arXiv:2010.07249.
    """
    return (scale_slopes(logits, labels) > 0).long()


@dataclass(frozen=True)
class EIIL(Method):
    """Train a reference, divide the rows where it errs in opposite ways, train again to serve both parts.

    ``second`` is what serves them: ``group-dro`` (as in Lu, Wang, Wang, ICLR 2024) or ``irm`` (as in the original).
    ``reference_epochs`` None takes the recipe's number.

    Source: Creager, Jacobsen, Zemel, "Environment inference for invariant learning", ICML 2021, arXiv:2010.07249.
    """

    summary: ClassVar[str] = "environment inference, then GroupDRO on the inferred groups (ICML 2021)"
    reference_epochs: int | None = 1
    second: Literal["group-dro", "irm"] = "group-dro"
    step: float = 0.01
    penalty: float = 1e4
    anneal_steps: int = 100

    def __post_init__(self) -> None:
        if not self.step > 0 or not self.penalty >= 0 or self.anneal_steps < 0:
            raise ConfigError("method eiil needs step > 0, penalty >= 0 and anneal_steps >= 0")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the reference, infer environments, train the kept model on them."""
        reference = lab.new_auxiliary()
        yield Stage(WeightedCrossEntropy(reference), epochs=self.reference_epochs, select="last")
        environments = infer_environments(lab.logits(reference), lab.labels)
        if self.second == "irm":
            objective = InvariantRisk(lab.new_model(), 2, penalty=self.penalty, anneal_steps=self.anneal_steps)
            yield Stage(objective, groups=environments)
        else:
            yield worst_group_stage(lab, environments, self.step, 0.0, balanced=True)
