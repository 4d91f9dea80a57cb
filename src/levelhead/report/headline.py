"""What a result says first: a sentence, and the figure and the groups that it is about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from levelhead.report.record import Finding
from levelhead.report.text import Record, visible
from levelhead.types import Estimate

NOT_COMPARED = Estimate.undefined("nothing is compared")


@dataclass(frozen=True)
class Lead(Finding):
    """A sentence that may be the headline, and what it says as data.

    Attributes:
        pieces: its words without size and uncertainty; every second piece names a group, in the order of ``groups``.
        rest: size and uncertainty, and further sentences; empty: the pieces are the whole sentence.
        column: the sensitive column.
        quantity: the name of the figure; empty where nothing was measured.
        of_class: the class that a rate is of; None where there is only one.
        groups: the groups that it names.
        values: their figures, or the figures before and after a change; fractions where they are shares.
        difference: of the values, or their ratio.
        neutral: the difference where there is no gap; 1 for a ratio.
        outside: whether it is beyond limits of its own, whatever the interval.
        comparisons: how many the interval allows for.
    """

    pieces: tuple[str, ...]
    rest: str = ""
    column: str = ""
    quantity: str = ""
    of_class: str | None = None
    groups: tuple[str, ...] = ()
    values: tuple[float, ...] = ()
    difference: Estimate = NOT_COMPARED
    neutral: float = 0.0
    comparisons: int = 1
    outside: bool = False

    @property
    def head(self) -> str:
        """The words without size and uncertainty, on one line."""
        return "".join(self.pieces).removesuffix(".")

    @property
    def decided(self) -> bool:
        """Whether the difference is measurably another one than the neutral one."""
        return bool(self.outside or self.difference.low > self.neutral or self.difference.high < self.neutral)

    @property
    def sentence(self) -> str:
        """The whole sentence."""
        return visible(f"{self.head}: {self.rest}" if self.rest else "".join(self.pieces))

    def is_about(self, column: str, quantity: str, of_class: str | None) -> bool:
        """Whether it is of this figure; a lead without a class is of all classes."""
        return (column, quantity) == (self.column, self.quantity) and self.of_class in (None, of_class)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        found = {"head": self.head, **super().to_dict()}
        del found["outside"]
        return found | {"class": found.pop("of_class"), "decided": self.decided}


class Leading(ABC):
    """What says all of its sentences as leads."""

    @property
    @abstractmethod
    def leads(self) -> list[Lead]:
        """What was found, the most important first."""

    def sentences(self) -> list[str]:
        """Return what was found in full sentences, the most important first."""
        return [one.sentence for one in self.leads]


def leads_in_json(leads: Sequence[Lead]) -> Record:
    """Return what a JSON keeps: all sentences, the first as data, and for each the column and groups that it names."""
    named = [[one.column, *one.groups] if one.groups else [] for one in leads]
    found = {"sentences": [one.sentence for one in leads], "named": named}
    return found | {"lead": leads[0].to_dict()} if leads else found


def plainly(sentences: Iterable[str]) -> list[Lead]:
    """Return sentences that are of no groups."""
    return [Lead((one,)) for one in sentences]
