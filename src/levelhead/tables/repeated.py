"""Rows of a frequency table, each of which represents this many rows: their counts, and the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics.counts import IntArray
from levelhead.types import DataError

OF_COUNTS = "A count is the number of people per row: a whole number, 0 or more."
LARGEST = 1 << 53
"""Up to here floats hold whole numbers exactly."""
MOST_REPEATED = 100_000_000
"""Rows that are kept one by one where counts do not suffice, as with scores."""


def whole_counts(values: NDArray[np.float64], title: str, before: int = 0) -> IntArray:
    """Return counts (rows,) as whole numbers.

    Args:
        values: as they were read; missing ones are left to the reader, which names them.
        title: what errors call the column.
        before: rows that stand before these.

    Raises:
        DataError: a number is negative, infinite, too large or not whole.
    """
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(there & ~((values >= 0) & (values < LARGEST) & (values == np.floor(values))))
    if len(wrong):
        value, more = float(values[wrong[0]]), f" (and {len(wrong) - 1:,} more)" if len(wrong) > 1 else ""
        what = "negative" if value < 0 else "not a whole number" if value < LARGEST else "too large"
        raise DataError(f"{title}: the count in row {before + wrong[0] + 1:,}{more} is {what}: {value:g}. {OF_COUNTS}")
    return np.where(there, values, 0).astype(np.int64)


def kept(columns: Mapping[str, Any], rows: NDArray[Any]) -> dict[str, Any]:
    """Return these rows of a batch, by a mask or by their places."""
    return {role: (one[0][rows], one[1]) if isinstance(one, tuple) else one[rows] for role, one in columns.items()}


def repeated(columns: Mapping[str, Any], before: int = 0) -> dict[str, Any]:
    """Return a batch whose rows occur as often as its ``count`` says; of rows with an id, each gets one of its own.

    Raises:
        DataError: with the rows ``before``, there are more than :data:`MOST_REPEATED`.
    """
    count: IntArray = columns["count"]
    if (total := before + int(count.sum())) > MOST_REPEATED:
        raise DataError(
            f"The counts add up to {total:,} rows or more, and this audit keeps each in memory: at most "
            f"{MOST_REPEATED:,}. Leave out scores, other models, numbers and parts of your own."
        )
    found = kept(
        {role: one for role, one in columns.items() if role != "count"}, np.repeat(np.arange(len(count)), count)
    )
    if "id" in found:
        ends = np.cumsum(count)
        copies = np.arange(count.sum()) - np.repeat(ends - count, count)
        found["id"] = np.array([f"{one} ({copy})" for one, copy in zip(found["id"], copies, strict=True)], object)
    return found
