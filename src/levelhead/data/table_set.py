"""The one reader of data sets that are tables: columns by their roles, which split a row is of, classes and groups.

A set says where its tables are and which columns have which role; how a table is read is its :class:`Table`'s matter.
Cells are texts here, whatever wrote them, and a column is opened only for a role.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from levelhead.data.base import (
    GROUP,
    SPLITS,
    DataSet,
    Examples,
    Groups,
    Inputs,
    Split,
    as_names,
    codes_of,
    people_of,
    refuse_one_class,
)
from levelhead.data.splits import deal, named_splits
from levelhead.data.text_files import read_columns, say_once, table_header
from levelhead.data.texts import Texts
from levelhead.spelling import is_value
from levelhead.types import DataError, listed, quoted, require_own_columns

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Table(ABC):
    """One table of a set: a file, or a split of a set on the hub.

    ``name`` names it in errors; ``split`` is the split of all its rows, and None where each row has its own.
    """

    name: str
    split: Split | None = None

    first: ClassVar[int] = 1
    """The number of the first row, in errors and ids."""

    @abstractmethod
    def header(self) -> Sequence[str]:
        """Return the names of the columns; opens none of them."""

    @abstractmethod
    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return columns as texts, a missing cell as an empty one, and the number of rows; opens no other column."""

    def nobody(self, row: int, among_all: int) -> str:
        """Return where a row without a person stands: its number here, or among the rows of all tables, from 0."""
        return f"row {among_all + 1}"


@dataclass(frozen=True)
class FileTable(Table):
    """A csv, tsv, JSON lines or parquet file."""

    path: Path = Path()

    def header(self) -> list[str]:
        """Return the names of the columns."""
        return table_header(self.path)

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return columns as texts, and the number of rows."""
        cells = read_columns(self.path, columns, part=True)
        return cells, len(cells[columns[0]])


@dataclass
class Rows:
    """Rows of tables, one after another: how many of each, their columns and splits; ``numbers`` are those wanted.

    A row of no split is left out. The tables are of the set's own kind of :class:`Table`.
    """

    tables: list[tuple[Any, int]]
    cells: dict[str, list[str]]
    splits: list[Split | None]
    numbers: list[int]

    def place(self, row: int) -> tuple[Any, int]:
        """Return the table of a row, and its number there, from 0."""
        for table, count in self.tables:
            if row < count:
                return table, row
            row -= count
        raise IndexError(row)

    def first(self, split: Split | None) -> tuple[Any, int]:
        """Return the first table that rows of a split may stand in, and the number of its first row among all."""
        named = [table.split for table, _ in self.tables]
        place = named.index(split if split in named else None)
        return self.tables[place][0], sum(count for _, count in self.tables[:place])

    def where(self, position: int) -> str:
        """Return the table and the number of one of the rows wanted."""
        table, row = self.place(self.numbers[position])
        return f"{table.name}, row {row + table.first}"

    def chosen(self, column: str) -> list[str]:
        """Return a column (n,) of the rows wanted."""
        cells = self.cells[column]
        return [cells[row] for row in self.numbers]

    def refuse_empty(self, column: str, numbers: Sequence[int] | None = None) -> None:
        """Raise :class:`~levelhead.types.DataError` if a column is blank in some of the rows ``numbers``.

        None: in some of those wanted. The error names the first.
        """
        rows = self.numbers if numbers is None else numbers
        blank = [row for row in rows if not self.cells[column][row].strip()]
        if blank:
            table, row = self.place(blank[0])
            raise DataError(
                f"{table.name}: {column!r} is empty in {len(blank)} of {len(rows)} rows, first row "
                f"{row + table.first}. Fill these fields, or drop the rows."
            )

    def texts(self, columns: Sequence[str], where: str) -> Texts:
        """Return one column of texts, or two as pairs, of the rows wanted; an empty text is an error."""
        for column in columns:
            self.refuse_empty(column)
        return Texts(*map(self.chosen, columns), where=where)


@dataclass(frozen=True)
class Roles:
    """Which column of the tables has which role, and how rows that no column names a split of are dealt.

    ``needed`` are further columns without which nothing is trained. ``split`` names the split of each row, by ``words``
    where they are not the usual ones. Rows are else dealt by a hash of whom they are of (``person``), of the texts in
    the columns ``deals_by``, or of their number; a split that has a table of its own gets none of them. Rows whose
    target is ``ignored`` are of no split.
    """

    target: str
    inputs: tuple[str, ...] = ()
    needed: tuple[str | None, ...] = ()
    person: str | None = None
    split: str | None = None
    words: Mapping[Split, Sequence[str | int]] | None = None
    deals_by: tuple[str, ...] = ()
    shares: tuple[float, float] = (0.1, 0.2)
    seed: int = 0
    ignored: str | int | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that a row is dealt by."""
        return self.deals_by if self.person is None else (self.person,)


@dataclass(frozen=True)
class TableSet(DataSet):
    """Base of the sets that are tables: a set says which, what roles their columns have, and what cells mean."""

    everywhere: ClassVar[bool] = True
    """Whether the names of classes and groups are those of the rows of all splits; else the set knows them."""

    @abstractmethod
    def _tables(self) -> Sequence[Table]:
        """Return the tables: one for all splits, or one or more a split."""

    @property
    @abstractmethod
    def _roles(self) -> Roles:
        """Which column has which role."""

    @abstractmethod
    def _load(self, rows: Rows, split: Split) -> Inputs:
        """Return the inputs of the rows wanted."""

    @abstractmethod
    def _labels(self, rows: Rows) -> tuple[Tensor, tuple[str, ...]]:
        """Return the classes (n,) int64 of the rows wanted, and their names."""

    @abstractmethod
    def _group(self, attribute: str, rows: Rows) -> Groups:
        """Return a sensitive attribute of the rows wanted."""

    def _column_of(self, attribute: str) -> str:
        """Return the column that a sensitive attribute is read from."""
        return attribute

    def check(self) -> None:
        """Raise an error if a file or a column that training needs is absent; warn of an absent sensitive column.

        That is no error: data that never held the attribute can be trained on, and so can data that it was deleted
        from.
        """
        tables, roles, headers = self._tables(), self._roles, []
        for table in tables:
            headers.append(table.header())
            required = [*roles.inputs, roles.target, roles.split, *roles.needed]
            require_own_columns(headers[-1], required, table.name)
        if self._unnamed and not any(GROUP in header for header in headers):
            return
        for name in map(self._column_of, self._sensitive):
            if any(name not in header for header in headers):
                said = "%s has no column %r (data.sensitive): training does not need it, evaluation does."
                logger.warning(said, tables[0].name, name)

    def examples(self, split: Split) -> Examples:
        """Return inputs and labels of ``split``; opens no sensitive column."""
        target = self._roles.target
        rows = self._read(split, [target], self._roles.inputs)
        labels, names = self._labels(rows)
        where = f"{rows.place(rows.numbers[0])[0].name}, {split}"
        refuse_one_class(labels, names, target, where)
        return self._load(rows, split).with_labels(labels, names)

    def inputs(self, split: Split) -> Inputs:
        """Return the inputs of ``split``; opens the columns of inputs, and those that decide the split."""
        return self._load(self._read(split, [], self._roles.inputs), split)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive columns of ``split``; an empty cell is no group, a column without any is an error.

        Opens the texts as well where they decide the split, and never the target.
        """
        unnamed = self._unnamed and not any(GROUP in table.header() for table in self._tables())
        if unnamed or not self._sensitive:
            return ()
        rows = self._read(split, list(map(self._column_of, self._sensitive)))
        return tuple(self._group(one, rows) for one in self._sensitive)

    @property
    def _unnamed(self) -> bool:
        """Whether nobody named a sensitive column: the one that is a set's default counts only where a table has it."""
        return self._sensitive == (GROUP,) == as_names(getattr(type(self), "sensitive", ()))

    def people(self, split: Split) -> Sequence[str] | None:
        """Return the column of people of ``split``; None without one. An empty cell is somebody of its own.

        Opens this column, and those that decide the split; people in two splits are a logged warning.
        """
        column = self._roles.person
        if column is None:
            return None
        rows = self._read(split, [column])
        places = (rows.place(row) for row in range(len(rows.splits)))
        nobody = (table.nobody(there, row) for row, (table, there) in enumerate(places))
        people = people_of(rows.cells[column], nobody)
        times = Counter(one for one, of in set(zip(people, rows.splits, strict=True)) if of is not None)
        if shared := sum(count > 1 for count in times.values()):
            say_once(
                "%s: %d of the people in %r have rows in several splits, so the test rows are not all of new people. "
                "levelhead compare --folds splits by person.",
                rows.tables[0][0].name,
                shared,
                column,
            )
        return [people[row] for row in rows.numbers]

    def _read(self, split: Split | None, columns: Sequence[str], here: Sequence[str] = ()) -> Rows:
        """Return some columns of the rows; those ``here`` only of tables that may hold rows of ``split``.

        None: of all splits alike, without asking which row is of which.
        """
        tables, ignored = self._tables(), self._roles.ignored
        rows = Rows([], {name: [] for name in (*columns, *here)}, [], [])
        own = {table.split for table in tables}
        for table in tables:
            mine = split is None or table.split == (split if split in own else None)
            if not mine and not (columns and self.everywhere):
                continue
            named = [*columns, *(here if mine else ())]
            decides = [] if split is None else self._decides(table)
            cells, count = table.read(list(dict.fromkeys([*named, *decides])))
            for name, kept in rows.cells.items():
                kept += [""] * count if name not in named else cells[name] if name in here else map(_value, cells[name])
            splits = [None] * count if split is None else self._dealt(table, cells, count, own)
            if split is not None and ignored is not None:
                labels = cells[self._roles.target]
                splits = [None if is_value(cell, ignored) else one for cell, one in zip(labels, splits, strict=True)]
            rows.tables.append((table, count))
            rows.splits += splits
        rows.numbers = [row for row, one in enumerate(rows.splits) if split in (None, one)]
        if not rows.numbers:
            place, _ = rows.first(split)
            raise DataError(f"{place.name}: the {split} split is empty; there are {len(rows.splits)} rows in all.")
        return rows

    def _decides(self, table: Table) -> list[str]:
        """Return the columns that decide which split, if any, a row of a table is of."""
        roles = self._roles
        label = [] if roles.ignored is None else [roles.target]
        if table.split is not None:
            return label
        return [*label, *(roles.keys if roles.split is None else (roles.split,))]

    def _dealt(
        self, table: Table, cells: Mapping[str, Sequence[str]], count: int, own: Collection[Split | None]
    ) -> Sequence[Split | None]:
        """Return the split of each row of a table: the table's, else that of its word, else by a hash."""
        roles = self._roles
        if table.split is not None:
            return [table.split] * count
        named: list[Split] = []
        if roles.split is not None:
            named = named_splits([cell.strip() for cell in cells[roles.split]], roles.words, roles.split, table.name)
        there = {*(named or own)}
        absent = [one for one in SPLITS[1:] if one not in there]
        if named and ("train" not in there or len(absent) != 1):
            return named
        shares = [share if one in absent else 0.0 for one, share in zip(SPLITS[1:], roles.shares, strict=True)]
        dealt = deal(self._keys(table, cells, count), roles.seed, *shares)
        if not named:
            return dealt
        said = "%s: %r names no %s rows; they are drawn from the training rows, by data.%s_share."
        say_once(said, table.name, roles.split, absent[0], absent[0])
        return [new if old == "train" else old for old, new in zip(named, dealt, strict=True)]

    def _keys(self, table: Table, cells: Mapping[str, Sequence[str]], count: int) -> list[str]:
        """Return what deals each row of a table."""
        names = self._roles.keys
        if not names:
            return list(map(str, range(count)))
        unread = [name for name in names if name not in cells]
        columns = {**cells, **(table.read(unread)[0] if unread else {})}
        if self._roles.person is not None:
            return people_of(columns[self._roles.person], (table.nobody(row, row) for row in range(count)))
        return ["\n".join(row) for row in zip(*(columns[name] for name in names), strict=True)]


@dataclass(frozen=True)
class KnownSet(TableSet):
    """Base of the sets whose columns are known: each cell of a class or a group is a code, which the set names."""

    everywhere: ClassVar[bool] = False

    @abstractmethod
    def _codes(self, attribute: str) -> tuple[tuple[str, ...], Mapping[str, int]]:
        """Return the names of an attribute's values, and the position there of what each cell represents."""

    def _labels(self, rows: Rows) -> tuple[Tensor, tuple[str, ...]]:
        found = self._known(getattr(self, "target", self._roles.target), rows, self._roles.target)
        return found.values, found.names

    def _group(self, attribute: str, rows: Rows) -> Groups:
        return self._known(attribute, rows, self._column_of(attribute))

    def _known(self, attribute: str, rows: Rows, column: str) -> Groups:
        names, codes = self._codes(attribute)
        cells = rows.chosen(column)
        wrong = [position for position, cell in enumerate(cells) if cell not in codes]
        if wrong:
            raise DataError(
                f"{rows.where(wrong[0])}: {column!r} is {quoted(cells[wrong[0]])}; in {len(wrong)} of {len(cells)} "
                f"rows it is none of {listed(codes)}. Fetch the data again."
            )
        return Groups(attribute, codes_of([names[codes[cell]] for cell in cells], names), names)


def _value(cell: str) -> str:
    """Return a cell to the letter; a blank one, and what pandas writes for a missing number, is empty."""
    return "" if cell.strip().lower() in ("", "nan") else cell
