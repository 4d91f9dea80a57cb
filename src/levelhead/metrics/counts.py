"""The (group, label, prediction) count table: all that accuracy and group gaps need to know about the rows.

Everything in :mod:`levelhead.metrics` works on these counts and not on rows, so that resampling the rows of a
test set is one multinomial draw on a handful of cells, of any number rows there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import any_array, array_of, as_decimals, checked, option
from levelhead.types import DataError, listed, quoted

IntArray = NDArray[np.int64]

ONE_KIND = {"string", "bytes", "integer", "floating", "decimal", "boolean", "datetime64", "datetime", "date", "empty"}
"""What pandas calls the content of an object array that holds values of one kind, beside missing ones."""
OF_CLASSES = "Of scores or one-hot rows, pass the class of each: .argmax(axis=1)."
MOST_CELLS = 1 << 27  # a table of one gigabyte
MOST_ROWS = 10**9 - 1
"""Most rows that NumPy's hypergeometric law takes."""


def distinct(
    values: ArrayLike, title: str = "A column", *, names: bool = True, hint: str = OF_CLASSES
) -> tuple[IntArray, list[Hashable]]:
    """Distinguish the values of a column exactly.

    Numbers are the same where they are equal, texts where every character is; a number is never a text.

    Args:
        values: (rows,) numbers, booleans, strings or other hashables; None, NaN and the like are missing.
        title: what errors call the column.
        names: whether class labels of datasets are distinguished by the names of their classes.
        hint: what errors say of several values a row.

    Returns:
        codes (rows,) int64, -1 where the value is missing, and the distinct values in the order of their first rows.

    Raises:
        DataError: the values are not one-dimensional or not hashable, or some are equal or print alike although they
            are of different kinds, such as 1 and "1", or 1 and True.
    """
    array = array_of(values, title, hint=hint, names=names)
    try:
        if array.dtype == object and pd.api.types.infer_dtype(array, skipna=True) not in ONE_KIND:
            return _distinct_objects(array, title)
        codes, uniques = pd.factorize(array)
    except DataError:
        raise
    except Exception:  # values of somebody else's types may raise anything where they are compared
        raise DataError(
            f"{title} holds values that cannot be distinguished, such as lists. Pass numbers, truth values or texts."
        ) from None
    if array.dtype.kind in "mM":
        uniques = pd.Series(uniques).astype(object).to_numpy()
    if array.dtype.kind == "f":
        uniques = as_decimals(np.asarray(uniques)) + 0.0  # -0.0 is 0.0
    return codes.astype(np.int64), [value.item() if isinstance(value, np.generic) else value for value in uniques]


def _distinct_objects(array: NDArray[Any], title: str) -> tuple[IntArray, list[Hashable]]:
    """Distinguish values of several kinds, row by row."""
    missing = pd.isna(array)
    places: dict[tuple[str, Hashable], int] = {}
    codes = np.full(len(array), -1, np.int64)
    for row in np.flatnonzero(~missing):
        value = array[row]
        codes[row] = places.setdefault((_kind(value), value), len(places))
    names = [value.item() if isinstance(value, np.generic) else value for _, value in places]
    _refuse_alike(names, title)
    return codes, names


def _refuse_alike(names: Sequence[Hashable], title: str) -> None:
    """Raise :class:`DataError` where two values of different kinds are equal or print alike."""
    for alike in (str, lambda value: value):
        met: dict[Hashable, Hashable] = {}
        for name in names:
            other = met.setdefault(alike(name), name)
            if other is not name:
                raise DataError(
                    f"{title} holds both {quoted(other)} and {quoted(name)}, of the types {type(other).__name__} and "
                    f"{type(name).__name__}. Write all of its values as one type."
                )


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, np.bool_)):
        return "truth value"
    return "number" if isinstance(value, Number) else type(value).__name__


def encode(values: ArrayLike) -> tuple[IntArray, list[Hashable]]:
    """Turn any hashable values into codes.

    Args:
        values: (rows,) numbers, booleans, strings or other hashables; none of them missing.

    Returns:
        codes (rows,) int64 and the distinct values in sorted order (by type name, then by text, where the
        values cannot be compared with each other), so that the codes do not depend on the order of the rows.

    Raises:
        DataError: as :func:`distinct`, and if values are missing.
    """
    codes, found = distinct(values)
    if len(codes) and codes.min() < 0:
        rows = np.flatnonzero(codes < 0)
        raise DataError(
            f"{len(rows)} values are missing, first in row {rows[0] + 1} (counted from 1). Fill them in or leave those "
            "rows out."
        )
    names = _sorted(found)
    return _places(found, names)[codes], names


def _coded(
    y_true: ArrayLike, predictions: Sequence[ArrayLike], group: ArrayLike
) -> tuple[list[IntArray], list[Hashable], IntArray, list[Hashable]]:
    """Return codes of labels and predictions and their vocabulary, and codes of the rows' groups and their names."""
    *outcomes, (members, groups) = (encode(column) for column in (y_true, *predictions, group))
    lengths = sorted({len(codes) for codes, _ in outcomes} | {len(members)})
    if len(lengths) > 1:
        raise DataError(f"Labels, predictions and groups differ in length ({listed(lengths)}). Pass one for every row.")
    if not len(members):
        raise DataError("There are no rows to count. Pass at least one labelled prediction.")
    classes = _sorted(list(dict.fromkeys(name for _, found in outcomes for name in found)))
    _refuse_alike(classes, "The set of labels and predictions")
    return [_places(found, classes)[codes] for codes, found in outcomes], classes, members, groups


def _sorted(names: list[Hashable]) -> list[Hashable]:
    try:
        return sorted(names)  # type: ignore[type-var]  # what cannot be compared is caught
    except (TypeError, ArithmeticError):
        return sorted(names, key=lambda name: (type(name).__name__, str(name)))


def _places(found: list[Hashable], names: list[Hashable]) -> IntArray:
    """Return where each value stands among ``names``."""
    place = {name: position for position, name in enumerate(names)}
    return np.array([place[name] for name in found], np.int64)


@dataclass(frozen=True)
class Counts:
    """How many rows each (group, label, prediction) has.

    ``table`` is int64 of shape (groups, classes, classes), indexed by group, true class, predicted class.

    Raises:
        DataError: shape and names disagree, a count is negative, or there are a billion rows.
    """

    table: IntArray
    groups: tuple[Hashable, ...]
    classes: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        for name in ("groups", "classes"):
            option(name, getattr(self, name), Sequence[Hashable])
        table = any_array(self.table, "The count table", False)
        if not np.issubdtype(table.dtype, np.integer) or (table < 0).any():
            raise DataError("Counts must be whole numbers of 0 or more. Do not pass averages.")
        if table.sum() > MOST_ROWS:
            raise DataError(f"There are more than {MOST_ROWS:,} rows. Divide all counts by a number, or draw a sample.")
        object.__setattr__(self, "table", table.astype(np.int64))
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "classes", tuple(self.classes))
        expected = (len(self.groups), len(self.classes), len(self.classes))
        if table.shape != expected:
            raise DataError(
                f"The count table has shape {table.shape}, but {len(self.groups)} groups and "
                f"{len(self.classes)} classes need {expected}."
            )

    @classmethod
    @checked
    def from_rows(cls, y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike) -> Counts:
        """Count rows.

        Args:
            y_true: (rows,) true classes, any hashables.
            y_pred: (rows,) predicted classes out of the same vocabulary.
            group: (rows,) group of each row, any hashables.

        Returns:
            the count table over all groups and over all classes that occur in labels or predictions.

        Raises:
            DataError: lengths differ, there are no rows, or values are missing.
        """
        (labels, predictions), classes, members, groups = _coded(y_true, [y_pred], group)
        return cls.from_codes(members, labels, predictions, groups, classes)

    @classmethod
    def from_codes(
        cls,
        members: IntArray,
        labels: IntArray,
        predictions: IntArray,
        groups: Sequence[Hashable],
        classes: Sequence[Hashable],
        rows: IntArray | None = None,
    ) -> Counts:
        """Count patterns: ``members``, ``labels`` and ``predictions`` (patterns,) are positions in the names.

        ``rows`` (patterns,) says how many rows each pattern represents; None: one.

        Raises:
            DataError: the table would need more than a gigabyte.
        """
        size = len(classes)
        if len(groups) * size**2 > MOST_CELLS:
            raise DataError(
                f"A table of {len(groups):,} groups and {size:,} classes is too large to count rows in. Are these ids "
                "or scores?"
            )
        flat = (members * size + labels) * size + predictions
        # Weights are floats to bincount, which holds whole numbers exactly up to 2^53.
        table = np.bincount(flat, weights=rows, minlength=len(groups) * size**2).astype(np.int64)
        return cls(table.reshape(len(groups), size, size), tuple(groups), tuple(classes))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.table.sum())

    @property
    def cell_sizes(self) -> IntArray:
        """Rows of each (group, label), shape (groups, classes)."""
        return self.table.sum(-1)

    @property
    def group_sizes(self) -> IntArray:
        """Rows of each group, shape (groups,)."""
        return self.table.sum((-2, -1))

    def keep(self, groups: Sequence[Hashable]) -> Counts:
        """Return the table of these groups alone; the classes stay as they are."""
        positions = [self.groups.index(name) for name in groups]
        return Counts(self.table[positions], tuple(groups), self.classes)


@dataclass(frozen=True)
class JointCounts:
    """How many rows share each pattern of (group, label, prediction 1, ..., prediction P).

    ``patterns`` is int64 of shape (patterns, 2 + P): codes of the group, the true class and each prediction.
    ``multiplicity`` (patterns,) int64 is the number of rows of each. ``places`` (rows,) is the pattern of each row,
    None where the rows were counted and forgotten.
    """

    patterns: IntArray
    multiplicity: IntArray
    groups: tuple[Hashable, ...]
    classes: tuple[Hashable, ...]
    places: IntArray | None = None

    @classmethod
    @checked
    def from_rows(
        cls,
        y_true: ArrayLike,
        group: ArrayLike,
        predictions: Sequence[ArrayLike],
        classes: Sequence[Hashable] = (),
    ) -> JointCounts:
        """Find the distinct patterns.

        Args:
            y_true: (rows,) true classes.
            group: (rows,) groups.
            predictions: P arrays of shape (rows,), all made on the same rows in the same order.
            classes: classes that exist, beside those that occur.

        Returns:
            the joint table.

        Raises:
            DataError: lengths differ, there are no rows or no predictions, or values are missing.
        """
        if not len(predictions):
            raise DataError("There are no predictions to compare. Pass at least one array of them.")
        codes, found, members, groups = _coded(y_true, predictions, group)
        names = _sorted(list(dict.fromkeys([*found, *classes])))
        codes = [_places(found, names)[one] for one in codes]
        rows = np.stack([members, *codes], axis=1)
        patterns, places, multiplicity = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        places = places.reshape(-1)  # NumPy 2.0.0 returns a column
        return cls(patterns, multiplicity.astype(np.int64), tuple(groups), tuple(names), places.astype(np.int64))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.multiplicity.sum())

    def marginal(self, prediction: int) -> Counts:
        """Return the count table of one of the predictions."""
        members, labels = self.patterns[:, 0], self.patterns[:, 1]
        predictions = self.patterns[:, 2 + prediction]
        return Counts.from_codes(members, labels, predictions, self.groups, self.classes, self.multiplicity)
