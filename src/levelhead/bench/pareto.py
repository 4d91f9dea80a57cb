"""Accuracy against gaps: which rows of a comparison none beats, and the FACT line of its baseline.

After figure 2 of Lu, Wang, Wang, ICLR 2024, which has two lines: the empirical Pareto set of the runs, and the
model-specific frontier of Kim, Chen, Talwalkar (FACT, ICML 2020). Added: intervals in both directions, because most
corners of an empirical Pareto set are within the noise of rows and seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from levelhead.bench.comparison import Comparison
from levelhead.bench.frontier import pareto_set
from levelhead.metrics import METRICS
from levelhead.report import marks
from levelhead.types import Estimate

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Frontier:
    """The FACT line of a row: what post-processing of its runs' predictions could reach on these rows.

    ``gaps`` (points,) are EOd gaps allowed, ``by_seed`` (seeds, points) the highest accuracy within each, as
    fractions. The line is the mean over seeds at equal gaps. It sees groups: ORACLE.
    """

    row: str
    gaps: FloatArray
    by_seed: FloatArray

    @property
    def accuracy(self) -> FloatArray:
        """Mean over the seeds, shape (points,)."""
        return self.by_seed.mean(0)

    @property
    def label(self) -> str:
        """How a legend names the line."""
        return f"ORACLE: best post-processing of {self.row} (FACT)"


@dataclass(frozen=True)
class Point:
    """A row of the comparison, in the plane; ``kept`` in the empirical Pareto set."""

    row: str
    label: str
    marks: list[str]
    oracle: str | None
    x: Estimate
    y: Estimate
    kept: bool
    far: bool = False  # from the others, and at chance: to show it would make them hard to distinguish

    @property
    def missing(self) -> str | None:
        """Why it cannot be drawn, or None."""
        for estimate in (self.x, self.y):
            if not estimate.defined:
                return estimate.reason or "undefined"
        return None

    @property
    def not_drawn(self) -> str:
        """A sentence on a row that a picture leaves out; empty for one that is drawn."""
        if self.missing is not None:
            return f"Not drawn: {self.label} ({self.missing})."
        place = f"{100 * self.x.value:.1f}, {100 * self.y.value:.1f}"
        return f"Outside the picture: {self.label}, at {place}." if self.far else ""


def points_of(comparison: Comparison, x: str, y: str) -> list[Point]:
    """Return every row, in the table's order.

    No marked row is part of the Pareto set, and none keeps another out. Beside rows that see groups no method without
    demographics might be in it, though they answer to another question; rows at chance, or not yet distinguished from
    it,
    may have small gaps for a bad reason.
    """
    rows = comparison.table.rows
    plain = [name for name in rows if not comparison.marks(name)]
    pairs = np.array([[rows[name][x].estimate.value, rows[name][y].estimate.value] for name in plain]).reshape(-1, 2)
    kept = dict(zip(plain, pareto_set(pairs, (METRICS[x].larger_is_better, METRICS[y].larger_is_better)), strict=True))
    points = [
        Point(
            name,
            comparison.label(name),
            comparison.marks(name),
            comparison.oracle[name],
            figures[x].estimate,
            figures[y].estimate,
            bool(kept.get(name, False)),
        )
        for name, figures in rows.items()
    ]
    near = [point for point in points if point.missing is None and marks.AT_CHANCE not in point.marks]
    return [replace(point, far=_doubles(point, near)) for point in points]


def _doubles(point: Point, near: Sequence[Point]) -> bool:
    """Return whether a row at chance would double what is shown of those ``near``."""
    if not near or marks.AT_CHANCE not in point.marks or point.missing is not None:
        return False

    def doubles(value: Estimate, others: Sequence[Estimate]) -> bool:
        low, high = min(each.low for each in others), max(each.high for each in others)
        return max(high, value.value) - min(low, value.value) > 2 * (high - low)

    return doubles(point.x, [each.x for each in near]) or doubles(point.y, [each.y for each in near])
