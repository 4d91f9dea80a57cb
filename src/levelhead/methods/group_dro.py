"""GroupDRO (Sagawa et al., ICLR 2020): the reference that sees groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from levelhead.methods.base import Method
from levelhead.objectives.group import WorstGroup
from levelhead.training.stage import Stage
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class GroupDRO(Method):
    """Minimise the loss of the worst group, a group being a label together with a demographic group.

    It is shown to tell the price of blindness, and marked ORACLE. ``step`` moves the groups' weights, ``adjustment``
    is C in L_g + C / sqrt(n_g); ``balanced`` draws each group equally often, as the authors' code does.

    Source: Sagawa, Koh, Hashimoto, Liang, "Distributionally robust neural networks for group shifts", ICLR 2020,
    arXiv:1911.08731.
    """

    summary: ClassVar[str] = "worst group loss; the reference that sees groups (ICLR 2020)"
    uses_groups: ClassVar[bool] = True
    step: float = 0.01
    adjustment: float = 0.0
    balanced: bool = True

    def __post_init__(self) -> None:
        if not self.step > 0 or not self.adjustment >= 0:
            raise ConfigError("method group-dro needs step > 0 and adjustment >= 0")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train one model once."""
        groups = lab.labels * (int(lab.groups.max()) + 1) + lab.groups
        yield worst_group_stage(lab, groups, self.step, self.adjustment, self.balanced)


def worst_group_stage(
    lab: Lab,
    groups: torch.Tensor,
    step: float,
    adjustment: float,
    balanced: bool,
    validation_parts: torch.Tensor | None = None,
) -> Stage:
    """Return the stage that trains a fresh model on the worst of ``groups`` (train,) int64.

    ``validation_parts`` (validation,) are those that a method has inferred as it inferred ``groups``.
    """
    sizes = torch.bincount(groups)
    objective = WorstGroup(lab.new_model(), sizes, step=step, adjustment=adjustment)
    sampling = 1 / sizes[groups].double() if balanced else None
    return Stage(objective, groups=groups, sampling=sampling, validation_parts=validation_parts)


def group_count(lab: Lab, method: str) -> int:
    """Return the number of demographic groups, the highest code and one; ``method`` is named in the error.

    Errors: :class:`~levelhead.ConfigError` where all training rows are of one group, or the codes are not one for each
    row, from 0.
    """
    if lab.groups.shape != lab.labels.shape or int(lab.groups.min()) < 0:
        raise ConfigError(
            f"Groups must be one code for each of the {len(lab.labels)} training rows, 0 or more; got "
            f"{len(lab.groups)}, the smallest {int(lab.groups.min())}."
        )
    if len(lab.groups.unique()) < 2:
        raise ConfigError(
            f"All {len(lab.groups)} training rows are of one group, and method {method} compares groups: choose "
            "another sensitive attribute (data.sensitive)."
        )
    return int(lab.groups.max()) + 1
