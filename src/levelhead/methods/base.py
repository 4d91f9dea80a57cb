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

    ``epochs`` overrides the recipe's number; ``weights`` (train,) float and ``groups`` (train,) int64 reach the
    objective through the batch. Groups given here are either inferred by the method itself or, where the method
    declares ``uses_groups``, read from ``lab.groups``.
    """

    objective: Objective
    epochs: int | None = None
    weights: Tensor | None = None
    groups: Tensor | None = None


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
