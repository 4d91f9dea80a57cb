"""Rows of a table, wherever they come from, batch by batch as codes and numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import shown
from levelhead.spelling import is_value
from levelhead.tables.columns import (
    OF_NUMBERS,
    Column,
    FloatArray,
    by_name,
    column_title,
    columns_of,
    finite,
    numbers_of_array,
)
from levelhead.tables.repeated import OF_COUNTS, kept
from levelhead.tables.vocabulary import NO_LABELS
from levelhead.types import ConfigError, DataError, in_quotes, quoted

COUNT = "The count"


class Batch(NamedTuple):
    """Some rows: columns of outcomes and of words as codes, and columns of numbers, by name."""

    outcomes: dict[str, Column]
    words: dict[str, Column]
    numbers: dict[str, FloatArray]


class Wanted(NamedTuple):
    """Columns of a table, by name.

    Attributes:
        outcomes: labels, predictions, clusters or ids, of which no value may be missing.
        words: groups.
        numbers: numbers, such as scores, of which none may be missing or infinite.
        along: numbers which may be columns of words as well.
        cut: the columns of words that are cut into ranges.
    """

    outcomes: Sequence[str] = ()
    words: Sequence[str] = ()
    numbers: Sequence[str] = ()
    along: Sequence[str] = ()
    cut: Collection[str] = ()


class Source(ABC):
    """Rows of a table."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What a page calls the table."""

    @abstractmethod
    def title(self, column: str) -> str:
        """Return what errors call a column."""

    def called(self, column: str) -> str:
        """Return what sentences call a column."""
        return column

    @abstractmethod
    def batches(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield batches of rows, and nothing but the columns requested.

        Raises:
            DataError: the table cannot be read or has no rows; or, after the last batch, a value is missing.
        """

    def taken(self, columns: Sequence[str]) -> list[str]:
        """Say in full sentences what was taken for granted in reading the columns; of plain tables nothing."""
        return []


class Ignored:
    """The label of rows that have none, such as -1, or None where each row has one; it counts the rows that it saw."""

    def __init__(self, label: Hashable) -> None:
        if np.ndim(label):  # type: ignore[arg-type]
            raise ConfigError(f"ignore_label is {shown(label)}. Pass one label.")
        self.label, self.rows, self.left_out = label, 0, 0

    def mask(self, column: Column) -> NDArray[np.bool_]:
        """Return which rows of a column of labels have one, (rows,)."""
        codes, values = column
        there = np.array([self.label is None or not is_value(value, self.label) for value in values])[codes]
        self.rows, self.left_out = self.rows + len(there), self.left_out + int((~there).sum())
        return there

    def check(self, title: str) -> None:
        """Raise :class:`DataError` where no row is left."""
        if self.rows == self.left_out > 0:
            raise DataError(f"{title}: every label is {quoted(self.label)}. {NO_LABELS}")

    def said(self) -> list[str]:
        """Say how many rows were left out."""
        plural = "" if self.left_out == 1 else "s"
        said = f"{self.left_out:,} row{plural} with the label {in_quotes(self.label)} left out (--ignore-label)."
        return [] if self.label is None else [said]


class Labelled(Source):
    """The rows of a table that have a label; ``label`` is the name of its column, ``ignored`` that of the others."""

    def __init__(self, source: Source, label: str | None, ignored: Hashable) -> None:
        self.source, self.label, self.ignored = source, str(label), Ignored(ignored)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.source.name

    def title(self, column: str) -> str:
        """Return what errors call a column."""
        return self.source.title(column)

    def called(self, column: str) -> str:
        """Return what sentences call a column."""
        return self.source.called(column)

    def batches(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield the batches of the table without the other rows; raise :class:`DataError` where no row is left."""
        self.ignored = Ignored(self.ignored.label)
        if self.ignored.label is not None and self.label not in wanted.outcomes:
            wanted = wanted._replace(outcomes=[*wanted.outcomes, self.label])
        for batch in self.source.batches(wanted):
            if self.ignored.label is None:
                yield batch
            elif (there := self.ignored.mask(batch.outcomes[self.label])).any():
                yield Batch(*(kept(columns, there) for columns in batch))
        self.ignored.check(self.title(self.label))


class Arrays(Source):
    """Columns in memory, all as long as the first that is added, the labels: one batch.

    Args:
        called: what sentences call a column, where that is not its name.
        what: what a row is called where there are none.
    """

    name = "this model"

    def __init__(self, called: Mapping[str, str] | None = None, what: str = "labelled prediction") -> None:
        self._columns, self._called, self._what, self.rows = Batch({}, {}, {}), called or {}, what, 0
        self._kinds: dict[str, str] = {}  # of columns of words, as errors call several of them

    def add_outcomes(self, columns: Mapping[str, Column]) -> None:
        """Add labels, predictions and the like, by what errors call them: "label" goes by the name "The label"."""
        for what, column in columns.items():
            noun, of, rest = what.partition(" of ")
            self._columns.outcomes[f"The {what}"] = column
            self._check(len(column[0]), f"{noun}s{of}{rest}")

    def add_words(self, features: Any, otherwise: str = "group", what: str = "sensitive columns") -> tuple[str, ...]:
        """Add columns of groups in any form that :func:`by_name` takes, and return their names."""
        columns = columns_of(by_name(features, otherwise, what), self.rows, what)
        self._columns.words.update(columns)
        self._kinds |= dict.fromkeys(columns, what)
        return tuple(columns)

    def add_numbers(self, name: str, values: ArrayLike, title: str, what: str, advice: str = OF_NUMBERS) -> FloatArray:
        """Add and return a column of numbers; errors name it by ``title``, and its values ``what``.

        Raises:
            DataError: the values are no numbers, not as many as there are rows, or a second column of this name.
        """
        if name in self._columns.numbers:
            raise DataError(f"Two columns of numbers are named {quoted(name)}. Rename one of them.")
        found = self._columns.numbers[name] = numbers_of_array(values, title, advice)
        self._check(len(found), what)
        return found

    def add_counts(self, values: ArrayLike | None) -> str | None:
        """Add the column of a frequency table that says how many rows each row is; return its name."""
        if values is None:
            return None
        finite(self.add_numbers(COUNT, values, COUNT, "counts", OF_COUNTS), COUNT, OF_COUNTS)
        return COUNT

    def title(self, column: str) -> str:
        """Return the name of an outcome; a column of groups, or of another kind, is called one."""
        named = column in self._columns.outcomes or column in self._columns.numbers
        if named and column not in self._columns.words:
            return column
        return column_title(column, self._kinds.get(column, "sensitive columns"))

    def called(self, column: str) -> str:
        """Return the column's own name."""
        return self._called.get(column, column)

    def batches(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield all rows at once; outcomes, groups and numbers of one name are three columns."""
        names = (wanted.outcomes, wanted.words, [*wanted.numbers, *wanted.along])
        held: Any = self._columns
        yield Batch(*({name: one[name] for name in each} for one, each in zip(held, names, strict=True)))

    def _check(self, rows: int, what: str) -> None:
        self.rows = self.rows or rows
        if not self.rows:
            raise DataError(f"There are no rows to audit. Pass at least one {self._what}.")
        if rows != self.rows:
            raise DataError(f"{self.rows} labels and {rows} {what}. Pass one of each for every row.")
