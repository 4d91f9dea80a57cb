"""What data sets of a user's own table share: columns for the target, for groups and for the split."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from levelhead.data.base import (
    GROUP,
    DataSet,
    Groups,
    Split,
    check_roles,
    codes_of,
    dataset_folder,
    id_name_of,
    named_or_default,
    people_of,
    refuse_empty,
    refuse_one_class,
    say_shared_people,
    warn_of_absent,
)
from levelhead.data.splits import (
    absent_splits,
    check_shares,
    check_splits,
    deal,
    fill_splits,
    named_splits,
    rows_of,
    say_filled,
)
from levelhead.data.targets import check_target_options, classes_of, ordered
from levelhead.data.text_files import read_columns, table_header
from levelhead.spelling import is_value
from levelhead.types import ConfigError, require_own_columns

logger = logging.getLogger(__name__)


@dataclass
class Rows:
    """All rows of the tables: ``files`` with their numbers of rows, one column's ``values``, splits, and the inputs."""

    files: list[tuple[Path, int]]
    values: list[str]
    splits: list[Split | None]
    inputs: list[list[str]]

    def place(self, row: int) -> tuple[Path, int]:
        """Return the file of a row, and its number there, 1 being the first below the header."""
        for path, count in self.files:
            if row < count:
                return path, row + 1
            row -= count
        raise IndexError(row)

    def refuse_empty(self, values: Sequence[str], column: str, numbers: Sequence[int]) -> None:
        """Raise :class:`~levelhead.types.DataError` where one of the ``values``, of the rows ``numbers``, is blank."""
        refuse_empty([not value.strip() for value in values], column, lambda at: self.place(numbers[at]), file=True)


@dataclass(frozen=True)
class Labelled:
    """A split's labels (n,) int64 with their names; ``numbers`` (n,) of its rows among all, and ``where`` they are."""

    rows: Rows
    numbers: list[int]
    labels: Tensor
    names: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class OwnTable(DataSet):
    """Base of data sets of a user's own table. Its options are explained by its subclasses."""

    folder: str = ""
    target: str = "label"
    sensitive: str | tuple[str, ...] = GROUP
    split_column: str | None = None
    person_column: str | None = None
    validation_share: float = 0.1
    test_share: float = 0.2
    split_seed: int = 0
    splits: Mapping[Split, Sequence[str | int]] | None = None
    label_map: Mapping[str, str] | None = None
    threshold: float | None = None
    ignore_label: str | int | None = None

    holds: ClassVar[str] = "tables"

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share)
        check_splits(self.splits, self.split_column)
        check_target_options(self.label_map, self.threshold)
        check_roles(self._sensitive, self.target, split_column=self.split_column, **self._roles)

    @property
    @abstractmethod
    def _roles(self) -> dict[str, str | None]:
        """The other columns by the names of their options."""

    @property
    @abstractmethod
    def _inputs(self) -> tuple[str, ...]:
        """The columns that inputs are read from."""

    @property
    @abstractmethod
    def _deals_by(self) -> tuple[str, ...]:
        """The columns whose texts deal a row to a split, where people do not; none: the number of the row does."""

    @property
    @abstractmethod
    def _identifier(self) -> str | None:
        """The column of ids."""

    @property
    def _dealt(self) -> bool:
        """Whether rows are dealt to splits by a hash."""
        return self.split_column is None

    @abstractmethod
    def _files(self) -> list[tuple[Path, Split | None]]:
        """Return the one table, or those of train, validation and test, each with its split."""

    def _ordered(self, names: Collection[str]) -> tuple[str, ...]:
        """Return classes, or groups, in the order of their codes."""
        return ordered(names)

    def check(self) -> None:
        """Raise an error if the folder, a file or a column that training needs is absent."""
        tables = []
        for path, _ in self._files():
            tables.append(table_header(path))
            required = [*self._inputs, self.target, self.split_column, self._identifier, self.person_column]
            require_own_columns(tables[-1], required, str(path))
        sensitive = named_or_default(self._sensitive, *tables)
        warn_of_absent(sensitive, ", ".join(str(path) for path, _ in self._files()), *tables)

    def labelled(self, split: Split) -> Labelled:
        """Return the labels of ``split``; reads the columns of inputs with them."""
        rows = self._read(self.target, split)
        classes, names = self._classes(rows)
        numbers = self._numbers(rows, split)
        if without := rows.splits.count(None):
            logger.warning("%s: %d rows without a label left out (data.ignore_label).", rows.files[0][0], without)
        where = f"{rows.place(numbers[0])[0]}, {split}"
        labels = codes_of([classes[row] for row in numbers], names)
        refuse_one_class(labels, names, self.target, where)
        lacking = [name for code, name in enumerate(names) if not bool((labels == code).any())]
        if lacking:
            logger.warning(
                "%s: no row is %s in %r, but other splits hold it. A spelling?", where, ", ".join(lacking), self.target
            )
        return Labelled(rows, numbers, labels, names, where)

    def class_names(self) -> tuple[str, ...]:
        """Return the classes of the target, of all rows; errors are those of :meth:`examples`."""
        return self._classes(self._read(self.target, None))[1]

    def _classes(self, rows: Rows) -> tuple[list[str], tuple[str, ...]]:
        where = rows.files[0][0]
        classes, names = classes_of(
            rows.values, self.target, where, label_map=self.label_map, threshold=self.threshold,
            ignore_label=self.ignore_label,
        )  # fmt: skip
        return classes, names if self.threshold is not None else self._ordered(names)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive columns of ``split``; an empty cell is no group, a column without any is an error.

        Opens the texts as well where they decide the split, and never the target.
        """
        result = []
        for name in named_or_default(self._sensitive, *(table_header(path) for path, _ in self._files())):
            rows = self._read(name, split)
            numbers = self._numbers(rows, split)
            values = [rows.values[row] for row in numbers]
            if not any(values):
                rows.refuse_empty(values, name, numbers)
            names = self._ordered(set(rows.values) - {""})
            result.append(Groups(name, codes_of(values, names), names))
        return tuple(result)

    @property
    def id_name(self) -> str:
        """The name of the column of ids."""
        return id_name_of(self._identifier)

    def places(self, split: Split) -> Sequence[int]:
        """Return which of all rows, from 0, are of ``split``; opens the inputs, and the columns that decide it."""
        return self._numbers(self._read(self._inputs[0], split), split)

    def people(self, split: Split) -> Sequence[str] | None:
        """Return the ``person_column`` of ``split``; None without one. An empty cell is somebody of its own.

        Opens this column, and those that decide the split; people in two splits are a logged warning.
        """
        if self.person_column is None:
            return None
        rows = self._read(self.person_column, split)
        people = people_of(rows.values)
        named = ((one, split) for one, split in zip(people, rows.splits, strict=True) if split is not None)
        say_shared_people(named, str(rows.files[0][0]), self.person_column)
        return [people[row] for row in self._numbers(rows, split)]

    def _folder(self) -> Path:
        if not self.folder:
            raise ConfigError(f"data.folder is empty; name the folder of the {self.holds}, below the data root.")
        return dataset_folder(self.root, self.folder)

    def _read(self, column: str, wanted: Split | None) -> Rows:
        """Read one column of all rows, beside the inputs of those that may be of the split ``wanted``; None: no inputs.

        The target is checked wherever it is read.
        """
        rows = Rows([], [], [], [[] for _ in self._inputs])
        dealt = wanted is not None and self._dealt
        by_text = dealt and self.person_column is None and bool(self._deals_by)
        opened = self._inputs if wanted is not None and (column == self.target or by_text) else ()
        person = [self.person_column] if dealt and self.person_column is not None else []
        split_column = [] if self.split_column is None else [self.split_column]
        files = self._files()
        of_splits = [split for _, split in files]
        for path, split in files:
            here = opened if split in (None, wanted) else ()
            target = [] if wanted is None or self.ignore_label is None else [self.target]
            named = list(dict.fromkeys([column, *here, *person, *split_column, *target]))
            table = read_columns(path, named, part=of_splits.count(split) > 1)
            values = [_value(cell) for cell in table[column]]
            rows.files.append((path, len(values)))
            for kept, name in zip(rows.inputs, opened, strict=False):
                kept += table[name] if here else [""] * len(values)
            if self.split_column is not None:
                rows.splits += self._named(path, self.split_column, table, wanted)
            elif dealt:
                keys = self._keys(path, table)
                rows.splits += deal(keys, self.split_seed, self.validation_share, self.test_share)
            elif split is not None:
                rows.splits += [split] * len(values)
            rows.values += values
            for name in target:
                ignored = [is_value(cell, self.ignore_label) for cell in table[name]]
                begin = len(rows.splits) - len(values)
                own = zip(rows.splits[begin:], ignored, strict=True)
                rows.splits[begin:] = [None if without else one for one, without in own]
        if column == self.target:
            rows.refuse_empty(rows.values, column, range(len(rows.values)))
        return rows

    def _named(self, path: Path, column: str, table: Mapping[str, Sequence[str]], wanted: Split | None) -> list[Split]:
        """Return the split that each row's word names; one that none names takes its share of the training rows."""
        named = named_splits([cell.strip() for cell in table[column]], self.splits, column, path)
        absent = absent_splits(named)
        if wanted is None or not absent:
            return named
        say_filled(path, column, absent)
        return fill_splits(named, self._keys(path, table), self.split_seed, self.validation_share, self.test_share)

    def _keys(self, path: Path, table: Mapping[str, Sequence[str]]) -> list[str]:
        """Return what decides the split of each row: whom it is of, else its texts, else its number."""
        names = self._deals_by if self.person_column is None else (self.person_column,)
        if not names:
            return list(map(str, range(len(next(iter(table.values()))))))
        unread = [name for name in names if name not in table]
        table = {**table, **(read_columns(path, unread) if unread else {})}
        if self.person_column is not None:
            return people_of(table[self.person_column])
        return ["\n".join(row) for row in zip(*(table[name] for name in names), strict=True)]

    def _numbers(self, rows: Rows, split: Split) -> list[int]:
        """Return which of all rows are of ``split``, in their order."""
        return rows_of(rows.splits, split, rows.files[0][0], self.test_share if self._dealt else 0)


def _value(cell: str) -> str:
    """Return a cell to the letter; a blank one, and what pandas writes for a missing number, is empty."""
    return "" if cell.strip().lower() in ("", "nan") else cell
