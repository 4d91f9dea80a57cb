"""A method is a paper's training algorithm: stages that follow each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

    from levelhead.data.views import View
    from levelhead.training.lab import Lab
    from levelhead.training.stage import Stage
from levelhead.types import DataError


@dataclass(frozen=True)
class Method(ABC):
    """Base of every method: a frozen dataclass of the paper's hyperparameters.

    ``summary`` is one line for ``levelhead list methods``. ``uses_groups`` declares that the method looks at
    demographic labels of training rows, ``uses_validation_groups`` at those of all validation rows; every table then
    marks it ORACLE. ``knowledge`` is the mark (of levelhead.report.marks) of a method that gets something else
    beside inputs and labels. ``uses_people`` declares that it gets which training rows are of one person.
    ``changes_pixels`` declares that it changes pictures by the gradient of a network: texts,
    and a frozen backbone, are then refused before the first run.
    ``infers_parts`` declares that its last stage divides the validation split into parts of its own, by which an epoch
    can be chosen (``train.select: val_worst_inferred``).
    ``trains_twice`` declares that a second network is trained after a first one: ``compare`` says so before it starts.
    ``changes_at_end`` declares that the network is changed after its last epoch, so that no epoch can be chosen again.
    """

    summary: ClassVar[str]
    uses_groups: ClassVar[bool] = False
    uses_validation_groups: ClassVar[bool] = False
    knowledge: ClassVar[str | None] = None
    uses_people: ClassVar[bool] = False
    changes_pixels: ClassVar[bool] = False
    infers_parts: ClassVar[bool] = False
    changes_at_end: ClassVar[bool] = False
    trains_twice: ClassVar[bool] = False

    @property
    def told(self) -> str | None:
        """The mark ``knowledge`` and its exact knowledge, e.g. "FEW GROUPS 200"; None for nothing."""
        return self.knowledge

    @property
    def refits(self) -> Method | None:
        """The method whose finished run this one only has to refit, in seconds; None for one that trains."""
        return None

    @property
    def declared_view(self) -> View | None:
        """The part of the input that the method is given as undecisive; None for none."""
        return None

    @property
    def other_label(self) -> str | None:
        """The column of another label that the method gets of training rows; None for none."""
        return None

    @property
    def group_splits(self) -> tuple[str, ...]:
        """The splits whose sensitive column is opened for the method."""
        return ("train",) * self.uses_groups + ("validation",) * self.uses_validation_groups

    def validation_groups(self, read: Callable[[], Tensor], rows: int, seed: int) -> Tensor | None:
        """Return the groups of validation rows that the method gets, (validation,) int64, or None for none.

        ``read()`` opens the sensitive column and returns the group of each of the ``rows``, -1 for one without; -1 in
        the answer hides a row's. ``seed`` is the run's.
        """
        if not self.uses_validation_groups:
            return None
        groups = read()
        if without := int((groups < 0).sum()):
            raise DataError(
                f"{without} of {rows} validation rows have no group, and {type(self).__name__} needs all groups. "
                "Fill these fields, or drop the rows."
            )
        return groups

    @abstractmethod
    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Yield the stages; after each yield the stage's objective is trained.

        Ordinary Python may stand between two yields. It is run again when a stopped run resumes, so it must depend
        on the lab alone (its seeded models, labels and generator), not on the clock or on global state.
        """
