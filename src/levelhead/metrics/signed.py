"""Signed gaps between two groups of a binary table: their rows, and the order in which groups are paired."""

from __future__ import annotations

import itertools
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from levelhead.metrics.group import FloatArray

GAPS: dict[str, int | None] = {"demographic_parity": None, "equal_opportunity": 1, "false_positive_rate": 0}
"""The gaps by name, and the true class (1: positive) of the rows that each is based on; None: all rows."""

Found = TypeVar("Found")
ByPair = dict[str, dict[tuple[int, int], Found]]
"""By gap and pair of groups (a, b), what is known of f_a - f_b."""


def rows_of(table: ArrayLike, gap: str, axis: int = -2) -> FloatArray:
    """Sum a table (..., label, prediction) over the labels that a gap is based on: (..., prediction).

    ``axis`` is that of the labels.
    """
    counts, label = np.asarray(table, np.float64), GAPS[gap]
    return np.asarray(counts.sum(axis) if label is None else counts.take(label, axis))


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
    return [(a, b) for b, a in itertools.combinations(range(groups), 2)]
