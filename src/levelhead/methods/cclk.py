"""CCL-K: conditional contrastive learning with a kernel (Tsai et al., ICLR 2022), in DAM's alignment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from levelhead.methods.dam import DAM
from levelhead.methods.erm import ERM
from levelhead.report.marks import IDENTITIES
from levelhead.types import Batch, ConfigError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

GROUP, PEOPLE = "group", "people"


@dataclass(frozen=True)
class CCLK(DAM):
    """DAM whose alignment contrasts a row with rows of other classes that are alike in another variable Z.

    Z is the demographic ``group`` (as in the paper's fair variant: the method is then marked ORACLE), ``people``, whom
    a training row is of (marked IDENTITIES), or another label, by its column. ``bandwidth`` is that of the kernel
    of Z, a large one being plain alignment, and ``ridge`` is lambda.

    Source: Tsai, Li, Ma, Zhao, Zhang, Morency, Salakhutdinov, "Conditional contrastive learning with kernel", ICLR
    2022, arXiv:2202.05458; the alignment is that of Lu, Wang, Wang, ICLR 2024.
    """

    summary: ClassVar[str] = "DAM whose contrast is among rows alike in a variable, by default the group (ICLR 2022)"
    uses_groups: ClassVar[bool] = True  # of the default; an instance says its own
    condition: str = GROUP
    bandwidth: float = 0.1
    ridge: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("method", self, positive=("bandwidth", "ridge"))
        if type(self.base) is not ERM:
            raise ConfigError("method ccl-k trains by cross-entropy and alignment alone: leave base out.")
        if self.debias.alpha == 0 or self.debias.notebook.queue:
            raise ConfigError("method ccl-k weights the alignment of a batch: it needs alpha above 0, and no queue.")
        people = self.condition == PEOPLE
        said = {"uses_groups": self.condition == GROUP, "uses_people": people, "knowledge": IDENTITIES * people or None}
        for flag, value in said.items():
            object.__setattr__(self, flag, value)

    @property
    def told(self) -> str | None:
        """The mark of ids of people, if it gets them."""
        return self.knowledge

    @property
    def other_label(self) -> str | None:
        """The column of Z, if it is another label."""
        return None if self.condition in (GROUP, PEOPLE) else self.condition

    @property
    def group_splits(self) -> tuple[str, ...]:
        """The training split, if Z is the group."""
        return ("train",) * self.uses_groups

    def pairs(self, lab: Lab) -> Callable[[Batch], Tensor]:
        """Return what gives the weights of a batch."""
        given = {GROUP: lambda: lab.groups, PEOPLE: lambda: lab.people}
        codes = given.get(self.condition, lambda: lab.other_labels)()
        return lambda batch: conditioned(
            codes.to(batch.index.device)[batch.index], batch.labels, self.bandwidth, self.ridge
        )


def conditioned(codes: Tensor, labels: Tensor, bandwidth: float, ridge: float) -> Tensor:
    """Return the weights of a batch's rows in each row's contrast, (batch, batch) float64.

    Rows of other classes weigh (K + ridge I)^-1 K, without negative entries, and 1 on average; rows of the own class
    weigh 1. K is the Gaussian kernel of one-hot codes: 1 for equal codes, exp(-2 / bandwidth) for others.

    Args:
        codes: (batch,) int64, of Z.
        labels: (batch,) int64 classes.
        bandwidth: above 0.
        ridge: lambda, above 0.

    Source: Tsai et al., ICLR 2022, arXiv:2202.05458.

    Examples:
        >>> import torch
        >>> conditioned(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), 0.1, 0.01)[0].round(decimals=6)
        tensor([1., 2., 0.], dtype=torch.float64)
    """
    kernel = torch.where(codes[:, None] == codes, 1.0, torch.exp(torch.tensor(-2 / bandwidth))).double()
    weights = torch.linalg.solve(kernel + ridge * torch.eye(len(codes)).to(kernel), kernel).clamp(min=0)
    other = labels[:, None] != labels
    total = (weights * other).sum(1, keepdim=True)
    scale = other.sum(1, keepdim=True) / torch.where(total > 0, total, 1)
    return torch.where(other, weights * scale, 1.0)
