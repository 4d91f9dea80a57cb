"""Weighted rows in an audit: which weights can be used, and the figures of groups from them.

The figures themselves are in :mod:`levelhead.metrics.weighted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelhead.metrics import Counts
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.weighted import WeightedCounts
from levelhead.report.text import counted, number
from levelhead.tables.repeated import kept
from levelhead.types import DataError, printable

OF_WEIGHTS = "A weight is how many rows a row represents, 0 or more."
LARGEST, SMALLEST = 1e100, 1e-100
"""Beyond these, squares of weights can no longer be distinguished from 0 or from infinity."""


@dataclass
class Weights:
    """Checks weights batch by batch, and leaves out the rows that have a weight of 0.

    Attributes:
        title: what errors call them.
        name: what sentences call them: the column's name.
        rows: rows seen.
        without: rows with a weight of 0.
    """

    title: str
    name: str
    rows: int = 0
    without: int = 0

    def use(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the rows of a batch that count, by role, with their weights (rows,).

        Raises:
            DataError: a weight is missing, infinite, negative, or too large or small to be squared.
        """
        weight: FloatArray = columns["weight"]
        for wrong, what in (
            (~np.isfinite(weight), "missing or infinite"),
            (weight < 0, "negative"),
            ((weight > LARGEST) | ((weight > 0) & (weight < SMALLEST)), f"beyond {SMALLEST:g} to {LARGEST:g}"),
        ):
            at = np.flatnonzero(wrong)
            if len(at):
                raise DataError(
                    f"{self.title}: {len(at):,} weight{' is' if len(at) == 1 else 's are'} {what}, first in row "
                    f"{self.rows + at[0] + 1:,} (counted from 1): {float(weight[at[0]]):g}. {OF_WEIGHTS}"
                )
        self.rows += len(weight)
        there = weight > 0
        self.without += int((~there).sum())
        return columns if there.all() else kept(columns, there)

    def check(self) -> None:
        """Raise an error, after the last row, if all weights are 0."""
        if self.without == self.rows:
            raise DataError(f"{self.title}: all {self.rows:,} weights are 0.")

    def sentences(self) -> list[str]:
        """Return warnings."""
        left_out = f"Left out: {counted(self.without, 'row')} with the weight 0 in {printable(self.name)}."
        return [left_out] if self.without else []


def weighted_counts(counts: Counts, codes: Sequence[IntArray], sums: FloatArray | None) -> WeightedCounts:
    """Add weights to counts.

    Args:
        counts: the count table.
        codes: group, label and prediction of each pattern, (patterns,) each.
        sums: of the weights and of the squared weights of each pattern, (patterns, 2); None: all rows weigh 1.
    """
    if sums is None:
        return WeightedCounts.equal(counts)
    tables = np.zeros((2, *counts.table.shape))
    for table, part in zip(tables, sums.T, strict=True):
        np.add.at(table, tuple(codes), part)
    return WeightedCounts(counts, *tables)


def weights_found(weights: Weights, weighted: WeightedCounts) -> dict[str, Any]:
    """Return what an audit's JSON says of the weights: ``column``, ``rows``, ``worth`` and ``sentence``.

    ``worth`` is the number of rows of equal weight (Kish).
    """
    pooled = weighted.pooled()
    rows, worth = pooled.counts.n, float(pooled.worth[0])
    said = (
        f"All figures are weighted by {printable(weights.name)}: the effective sample size of {rows:,} rows is "
        f"{rows_worth(worth)}. Bias amplification and permutation ranges are not available with weights."
    )
    return {"column": weights.name, "rows": rows, "worth": worth, "sentence": said}


def rows_worth(worth: float) -> str:
    """Say how many rows, with a decimal where there are few."""
    return number(worth) if worth < 10 else f"{worth:,.0f}"
