"""A method is a paper's training algorithm: stages that follow each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from levelhead.objectives.base import Objective

if TYPE_CHECKING:
    from levelhead.engine import Lab


@dataclass(frozen=True)
class Stage:
    """One pass of the training loop.

    ``epochs`` and ``select`` override the recipe's; ``weights`` (train,) float and ``groups`` (train,) int64 reach the
    objective through the batch. Groups given here are either inferred by the method itself or, where the method
    declares ``uses_groups``, read from ``lab.groups``. ``rows`` (any length) int64 are the training rows of an epoch,
    with repetitions where a row counts several times; ``sampling`` (train,) float instead draws as many rows as there
    are, with replacement, with chances in these proportions.
    """

    objective: Objective
    epochs: int | None = None
    weights: Tensor | None = None
    groups: Tensor | None = None
    rows: Tensor | None = None
    sampling: Tensor | None = None
    select: str | None = None

    def __post_init__(self) -> None:
        if self.weights is not None:
            self.objective.check_weights(self.weights)


@dataclass(frozen=True)
class Method(ABC):
    """Base of every method: a frozen dataclass of the paper's hyperparameters.

    ``summary`` is one line for ``levelhead list methods``. ``uses_groups`` declares that the method looks at
    demographic labels in training; every table then marks it ORACLE.
    """

    summary: ClassVar[str]
    uses_groups: ClassVar[bool] = False

    @abstractmethod
    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Yield the stages; after each yield the stage's objective is trained.

        Ordinary Python may stand between two yields. It is run again when a stopped run resumes, so it must depend
        on the lab alone (its seeded models, labels and generator), not on the clock or on global state.
        """
