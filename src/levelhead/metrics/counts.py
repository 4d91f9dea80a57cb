"""The (group, label, prediction) count table: all that accuracy and group gaps need to know about the rows.

Everything in :mod:`levelhead.metrics` works on these counts and not on rows, so that resampling the rows of a
test set is one multinomial draw on a handful of cells, however many rows there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from levelhead.types import DataError

IntArray = NDArray[np.int64]


def encode(values: ArrayLike) -> tuple[IntArray, list[Hashable]]:
    """Turn any hashable values into codes.

    Args:
        values: (rows,) numbers, booleans, strings or other hashables; none of them missing.

    Returns:
        codes (rows,) int64 and the distinct values in sorted order (by type name, then by text, where the
        values cannot be compared with each other), so that the codes do not depend on the order of the rows.

    Raises:
        DataError: the values are not one-dimensional, or some are missing.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"Expected one value a row, got an array of shape {array.shape}. Pass a 1-D array.")
    if array.dtype.kind in "US":
        array = array.astype(object)
    codes, uniques = pd.factorize(array)
    if len(codes) and codes.min() < 0:
        rows = np.flatnonzero(codes < 0)
        raise DataError(
            f"{len(rows)} values are missing, first in rows {_first(rows)} (counted from 1). "
            "Fill them in or leave those rows out."
        )
    names = [value.item() if isinstance(value, np.generic) else value for value in uniques]
    try:
        order = sorted(range(len(names)), key=lambda position: names[position])
    except TypeError:
        order = sorted(range(len(names)), key=lambda position: (type(names[position]).__name__, str(names[position])))
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes], [names[position] for position in order]


def encode_together(*columns: ArrayLike) -> tuple[list[IntArray], list[Hashable]]:
    """Turn several columns that share one vocabulary (labels and predictions) into codes of that vocabulary.

    Args:
        columns: arrays of shape (rows,).

    Returns:
        one (rows,) int64 array a column, and the distinct values of all of them.

    Raises:
        DataError: the columns differ in length, are not one-dimensional, or hold missing values.
    """
    arrays = [np.asarray(column) for column in columns]
    lengths = sorted({array.shape[0] if array.ndim else 0 for array in arrays})
    if len(lengths) > 1:
        raise DataError(f"Labels and predictions differ in length ({lengths}). Pass one of each for every row.")
    # NumPy would turn 1 into "1" when numbers and text are joined, and so hide a mistake.
    if any(array.dtype.kind not in "biuf" for array in arrays):
        arrays = [array.astype(object) for array in arrays]
    codes, names = encode(np.concatenate(arrays))
    return np.split(codes, len(arrays)), names


@dataclass(frozen=True)
class Counts:
    """How many rows each (group, label, prediction) has.

    ``table`` is int64 of shape (groups, classes, classes), indexed by group, true class, predicted class.

    Raises:
        DataError: shape and names disagree, or a count is negative.
    """

    table: IntArray
    groups: tuple[Hashable, ...]
    classes: tuple[Hashable, ...]

    def __post_init__(self) -> None:
        table = np.asarray(self.table)
        if not np.issubdtype(table.dtype, np.integer):
            raise DataError(f"Counts must be whole numbers, got {table.dtype}. Count rows, do not average them.")
        object.__setattr__(self, "table", table.astype(np.int64))
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "classes", tuple(self.classes))
        expected = (len(self.groups), len(self.classes), len(self.classes))
        if table.shape != expected:
            raise DataError(
                f"The count table has shape {table.shape}, but {len(self.groups)} groups and "
                f"{len(self.classes)} classes need {expected}."
            )
        if (table < 0).any():
            raise DataError("A count is negative. Counts are numbers of rows.")

    @classmethod
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
        (labels, predictions), classes = encode_together(y_true, y_pred)
        members, groups = encode(group)
        if len(members) != len(labels):
            raise DataError(f"{len(members)} group values for {len(labels)} labels. Pass one group for every row.")
        if not len(labels):
            raise DataError("There are no rows to count. Pass at least one labelled prediction.")
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

        ``rows`` (patterns,) says how many rows each pattern stands for; None: one.
        """
        size = len(classes)
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
    ``multiplicity`` (patterns,) int64 is the number of rows of each.
    """

    patterns: IntArray
    multiplicity: IntArray
    groups: tuple[Hashable, ...]
    classes: tuple[Hashable, ...]

    @classmethod
    def from_rows(cls, y_true: ArrayLike, group: ArrayLike, predictions: Sequence[ArrayLike]) -> JointCounts:
        """Find the distinct patterns.

        Args:
            y_true: (rows,) true classes.
            group: (rows,) groups.
            predictions: P arrays of shape (rows,), all made on the same rows in the same order.

        Returns:
            the joint table.

        Raises:
            DataError: lengths differ, there are no rows or no predictions, or values are missing.
        """
        if not len(predictions):
            raise DataError("There are no predictions to compare. Pass at least one array of them.")
        codes, classes = encode_together(y_true, *predictions)
        members, groups = encode(group)
        if len(members) != len(codes[0]):
            raise DataError(f"{len(members)} group values for {len(codes[0])} labels. Pass one group for every row.")
        if not len(members):
            raise DataError("There are no rows to count. Pass at least one labelled prediction.")
        rows = np.stack([members, *codes], axis=1)
        patterns, multiplicity = np.unique(rows, axis=0, return_counts=True)
        return cls(patterns, multiplicity.astype(np.int64), tuple(groups), tuple(classes))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.multiplicity.sum())

    def marginal(self, prediction: int) -> Counts:
        """Return the count table of one of the predictions."""
        members, labels = self.patterns[:, 0], self.patterns[:, 1]
        predictions = self.patterns[:, 2 + prediction]
        return Counts.from_codes(members, labels, predictions, self.groups, self.classes, self.multiplicity)


def _first(rows: IntArray, shown: int = 5) -> str:
    text = ", ".join(str(row + 1) for row in rows[:shown])
    return text + (", ..." if len(rows) > shown else "")
