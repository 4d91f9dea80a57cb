"""A method is a paper's training algorithm: stages that follow each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from levelhead.training.lab import Lab
from levelhead.training.stage import Stage


@dataclass(frozen=True)
class Method(ABC):
    """Base of every method: a frozen dataclass of the paper's hyperparameters.

    ``summary`` is one line for ``levelhead list methods``. ``uses_groups`` declares that the method looks at
    demographic labels in training; every table then marks it ORACLE. ``changes_pixels`` declares that it changes
    pictures by the gradient of a network: texts, and a frozen backbone, are then refused before the first run.
    ``changes_at_end`` declares that the network is changed after its last epoch, so that no epoch can be chosen anew.
    """

    summary: ClassVar[str]
    uses_groups: ClassVar[bool] = False
    changes_pixels: ClassVar[bool] = False
    changes_at_end: ClassVar[bool] = False

    @abstractmethod
    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Yield the stages; after each yield the stage's objective is trained.

        Ordinary Python may stand between two yields. It is run again when a stopped run resumes, so it must depend
        on the lab alone (its seeded models, labels and generator), not on the clock or on global state.
        """
