"""What a data set gives to a trainer, and what it gives to an evaluator alone.

The two sides never meet: :meth:`DataSet.examples` opens only the input and the target column, and
:meth:`DataSet.groups` opens only the sensitive columns. The training path calls the first; the second is called
by the evaluator, and by methods that declare ``uses_groups``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Card:
    """Who made a data set, for what task, with which groups, under which terms, and how to cite it."""

    title: str
    task: str
    groups: str
    licence: str
    citation: str
    url: str
    caution: str


class Inputs(ABC):
    """The model inputs of one split, in memory or on disk, addressed by position."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of examples."""

    @abstractmethod
    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """Return the model inputs at ``index`` (batch,) int64, e.g. ``{"pixel_values": (batch, 3, H, W)}``."""


@dataclass(frozen=True)
class Examples:
    """One split as the trainer sees it: no sensitive column, no file name, no identifier.

    ``labels`` is (n,) int64; ``class_names`` names the classes by position; ``fingerprint`` is a hash of inputs
    and labels alone, so that it does not change when file names or sensitive columns do.
    """

    inputs: Inputs
    labels: Tensor
    class_names: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class Groups:
    """One sensitive attribute of one split: ``values`` (n,) int64, ``names`` by value, ``attribute`` its name."""

    attribute: str
    values: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True)
class DataSet(ABC):
    """Base of every data set: a frozen dataclass of its options.

    ``root`` is the folder that holds the data sets (None: ``$LEVELHEAD_DATA``, then ``data``);
    an embedded data set ignores it.
    """

    card: ClassVar[Card]
    root: Path | None = None

    @abstractmethod
    def check(self) -> None:
        """Raise :class:`~levelhead.types.DataError` early and cheaply if the data is absent or cannot be used."""

    @abstractmethod
    def examples(self, split: Split) -> Examples:
        """Return inputs and labels of ``split``; opens no sensitive column."""

    @abstractmethod
    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive attributes of ``split`` in row order, the first being the task's main one."""
