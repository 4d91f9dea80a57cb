"""What every method without the attribute speaks of: three signed gaps, each over the rows that it rests on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.types import Estimate

FloatArray = NDArray[np.float64]

GAPS: dict[str, int | None] = {"demographic_parity": None, "equal_opportunity": 1, "false_positive_rate": 0}
"""The gaps by name, and the true class (1: positive) of the rows that each rests on; None: all rows."""

TITLES = {
    "demographic_parity": "Selection rate",
    "equal_opportunity": "True positive rate",
    "false_positive_rate": "False positive rate",
}
FEWEST_SHOWN = 10
"""Cells of fewer rows are never published: where a group is known for a few people only, a count is about persons."""


def rows_of(table: ArrayLike, gap: str) -> FloatArray:
    """Sum a table (..., label, prediction) over the labels that a gap rests on: (..., prediction)."""
    counts, label = np.asarray(table, np.float64), GAPS[gap]
    return counts.sum(-2) if label is None else counts[..., label, :]


def folded(figure: Estimate) -> Estimate:
    """Return the absolute gap of a signed one; its interval starts at 0 where the signed one holds 0."""
    if not figure.defined:
        return figure
    ends = sorted((abs(figure.low), abs(figure.high)))
    low = 0.0 if figure.low <= 0 <= figure.high else ends[0]
    return Estimate(abs(figure.value), low, ends[1], figure.n, assumes=figure.assumes)


def rate_gap(table: ArrayLike) -> float:
    """Return f_1 - f_0 of a table (groups 2, predictions 2); NaN where a group has no row."""
    counts = np.asarray(table, np.float64)
    sizes = counts.sum(-1)
    if (sizes <= 0).any():
        return float("nan")
    rates = counts[:, 1] / sizes
    return float(rates[1] - rates[0])


def pairs_of(groups: int) -> list[tuple[int, int]]:
    """Return the pairs (a, b) whose gap is f_a - f_b: each two groups once, the later one first."""
    return [(a, b) for b in range(groups) for a in range(b + 1, groups)]


def shown_count(rows: int) -> int | None:
    """Return a count as it may be published; None stands for fewer than ten."""
    return int(rows) if rows >= FEWEST_SHOWN else None


def refused_all(reason: str, n: int, assumes: str, gaps: Sequence[str] = tuple(GAPS)) -> dict[str, Estimate]:
    """Return every gap as refused, with one reason."""
    return {gap: Estimate.refuse(reason, n, assumes) for gap in gaps}
