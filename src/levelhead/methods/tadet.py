"""TADeT: targeted alignment for debiasing transformers (Sudhakar et al., arXiv 2023); a reference that sees groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch

from levelhead.methods.base import Method
from levelhead.methods.group_dro import group_count
from levelhead.objectives.queries import TargetedAlignment
from levelhead.training.stage import Stage
from levelhead.types import check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class TADeT(Method):
    """Take the group out of the last layer's query: an adversary behind a reversed gradient, and equal group means.

    It sees demographic labels in training, and is marked ORACLE. ``adversary`` and ``alignment`` weigh the two terms.
    ``means`` is ``by_class`` (mean queries of the groups are compared within each class) or ``scalar`` (as in the copy
    among DSA's baselines). ``balanced`` draws each pair of class and group equally often, as that copy does. What is
    public of the paper leaves the weights and the exact form open; its page says what was decided.

    Source: Sudhakar, Prabhu, Krishnakumar, Hoffman, "Mitigating bias in visual transformers via targeted alignment",
    2023, arXiv:2302.04358.
    """

    summary: ClassVar[str] = "targeted alignment: no group in the last query; sees groups (arXiv 2023)"
    uses_groups: ClassVar[bool] = True
    adversary: float = 1.0
    alignment: float = 1.0
    means: Literal["by_class", "scalar"] = "by_class"
    balanced: bool = False

    def __post_init__(self) -> None:
        check_numbers("method", self, at_least_zero=("adversary", "alignment"))

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train one model once."""
        groups = group_count(lab, "tadet")
        objective = TargetedAlignment(
            lab.new_model(),
            groups,
            lab.config.epochs * (len(lab.labels) // lab.config.batch_size),
            adversary=self.adversary,
            alignment=self.alignment,
            means=self.means,
        )
        cells = lab.labels * groups + lab.groups
        sampling = 1 / torch.bincount(cells)[cells].double() if self.balanced else None
        yield Stage(objective, groups=lab.groups, sampling=sampling)
