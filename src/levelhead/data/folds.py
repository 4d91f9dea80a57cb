"""Cross-fitting: every row of a data set is a test row once, so that all of them say how large a gap is.

The rows of all splits are put together and split again. A row's fold depends on whom it is of, where the data set knows
people, else on what the row holds: people, and equal rows, are never on both sides. So a fold needs no list of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelhead.data.base import SPLITS, DataSet, Examples, Groups, Inputs, Split, hash_of, refuse_one_class
from levelhead.data.splits import position_of
from levelhead.types import ConfigError, DataError, quoted

FEWEST, MOST = 2, 100


def check_whole(name: str, value: Any, least: int, most: int) -> None:
    """Raise :class:`~levelhead.types.ConfigError` unless the option is a whole number between these, both allowed."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} is {quoted(value)}; it must be a whole number from {least} to {most}.")


@dataclass(frozen=True)
class Pool:
    """All rows of a data set, those of its train, validation and test split one after another.

    ``sizes`` are the rows of each split; rows with the same of ``keys`` (rows,) must stay together, and ``people`` says
    whether they are of one person.
    """

    sizes: tuple[int, ...]
    keys: tuple[str, ...]
    people: bool

    @property
    def validation_share(self) -> float:
        """The validation split's share of the rows that are not of the test split."""
        return self.sizes[1] / (self.sizes[0] + self.sizes[1])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the keys in their order: runs of other rows, or of the same ones in another order, differ in it."""
        digest = hashlib.blake2b(digest_size=16)
        for key in self.keys:
            digest.update(f"{len(key)} {key}".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Fold(DataSet):
    """One fold of the rows of ``data``: the test split is fold ``fold`` of ``folds``, from 0.

    Of the other rows as large a share is the validation split as in ``data``, and the rest is trained on. ``data`` is
    any data set; its inputs must have :meth:`~levelhead.data.base.Inputs.keys`, as texts and pictures have.
    """

    data: DataSet = field(kw_only=True)
    folds: int = 5
    fold: int = 0

    def __post_init__(self) -> None:
        check_whole("data.folds", self.folds, FEWEST, MOST)
        check_whole("data.fold", self.fold, 0, self.folds - 1)

    def __getattr__(self, name: str) -> Any:
        """Return what the data set has beyond a :class:`DataSet`, its target for instance."""
        if name.startswith("_") or "data" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["data"], name)

    def check(self) -> None:
        """Raise early if the data cannot be used; see :meth:`DataSet.check`."""
        self.data.check()

    def new_rows(self, table: Path) -> Inputs:
        """Return the inputs of a table of new rows, as the data set reads them."""
        return self.data.new_rows(table)

    def examples(self, split: Split) -> Examples:
        """Return inputs and labels of ``split`` of this fold; opens no sensitive column."""
        every = [self.data.examples(one) for one in SPLITS]
        names = every[0].class_names
        if any(examples.class_names != names for examples in every):
            raise DataError("The splits have different classes, so they cannot be pooled into folds.")
        rows = self.rows(split)
        labels = torch.cat([examples.labels for examples in every])[rows]
        refuse_one_class(labels, names, "the target", f"fold {self.fold}, the {split} split")
        inputs = _joined([examples.inputs for examples in every], rows)
        return Examples(inputs, labels, names, hash_of(inputs, labels))

    def with_target(self, column: str) -> DataSet:
        """Return the same rows with another target; see :meth:`DataSet.with_target`."""
        return replace(self, data=self.data.with_target(column))

    def inputs(self, split: Split) -> Inputs:
        """Return the inputs of ``split`` of this fold alone."""
        return _joined([self.data.inputs(one) for one in SPLITS], self.rows(split))

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive attributes of ``split`` of this fold, in row order."""
        rows = self.rows(split)
        found = []
        for parts in zip(*(self.data.groups(one) for one in SPLITS), strict=True):
            if len({(part.attribute, part.names) for part in parts}) > 1:
                raise DataError(f"The splits name the groups of {parts[0].attribute!r} differently.")
            values = torch.cat([part.values for part in parts])
            found.append(Groups(parts[0].attribute, values[rows], parts[0].names))
        return tuple(found)

    @property
    def id_name(self) -> str:
        """What the data set calls its ids."""
        return self.data.id_name

    @property
    def numbered_by_split(self) -> bool:
        """Whether the data set's ids are row numbers that begin again; a fold then has no ids."""
        return self.data.numbered_by_split

    def ids(self, split: Split) -> Sequence[str] | None:
        """Return the ids of ``split`` of this fold, in row order; None where the data set has none.

        Row numbers of several tables are none: a fold has rows of all of them.
        """
        return None if self.data.numbered_by_split else self._chosen(self.data.ids, split)

    def _chosen(self, read: Callable[[Split], Sequence[Any] | None], split: Split) -> list[Any] | None:
        """Return what the whole set says of each row of ``split`` of this fold; None where it says nothing."""
        every: list[Any] = []
        for one in SPLITS:
            values = read(one)
            if values is None:
                return None
            every += values
        return [every[row] for row in self.rows(split).tolist()]

    def people(self, split: Split) -> Sequence[str] | None:
        """Return whom each row of ``split`` of this fold is of, (n,); None where the data set does not know."""
        if not self.pool.people:
            return None
        return [self.pool.keys[row] for row in self.rows(split).tolist()]

    def rows(self, split: Split) -> Tensor:
        """Return which rows of all, (n,) int64 in rising order, are ``split`` of this fold."""
        places = np.array([position_of(key, 0) for key in self.pool.keys])
        test = (places * self.folds).astype(np.int64) == self.fold
        held = np.array([position_of(key, 1 + self.fold) for key in self.pool.keys]) < self.pool.validation_share
        chosen = {"train": ~test & ~held, "validation": ~test & held, "test": test}[split]
        if not chosen.any():
            raise ConfigError(
                f"Fold {self.fold} of {self.folds} has no row in its {split} split: there are only "
                f"{len(set(self.pool.keys))} {'people' if self.pool.people else 'different rows'}. Use fewer folds."
            )
        return torch.from_numpy(np.flatnonzero(chosen))

    def clusters(self, split: Split) -> NDArray[np.int64]:
        """Return for each row of ``split`` a number, the same for rows that must stay together, (n,) int64."""
        codes = np.unique(self.pool.keys, return_inverse=True)[1]
        return np.asarray(codes[self.rows(split).numpy()], np.int64)

    @cached_property
    def pool(self) -> Pool:
        """All rows: opens the inputs, or whom they are of, and no label and no sensitive column."""
        known = [self.data.people(split) for split in SPLITS]
        people = all(one is not None for one in known)
        parts: list[Sequence[str]]
        parts = [one or [] for one in known] if people else [self.data.inputs(one).keys() for one in SPLITS]
        return Pool(tuple(map(len, parts)), tuple(key for part in parts for key in part), people)


def _joined(parts: Sequence[Inputs], rows: Tensor) -> Inputs:
    """Return the inputs at ``rows`` (n,) int64, in rising order, of ``parts`` that follow one another."""
    ends = np.cumsum([0, *map(len, parts)])
    chosen = [
        part.chosen(rows[(rows >= start) & (rows < stop)] - start)
        for part, start, stop in zip(parts, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
    return chosen[0].joined(chosen[1:])
