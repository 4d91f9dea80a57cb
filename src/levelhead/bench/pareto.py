"""Accuracy against gaps: which rows of a comparison none beats, and the FACT line of its baseline.

After figure 2 of Lu, Wang, Wang, ICLR 2024, which has two lines: the empirical Pareto set of the runs, and the
model-specific frontier of Kim, Chen, Talwalkar (FACT, ICML 2020). Added: intervals in both directions, because most
corners of an empirical Pareto set are within the noise of rows and seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelhead.bench.comparison import MAIN, Comparison
from levelhead.bench.frontier import pareto_set
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

    @property
    def not_drawn(self) -> str:
        """A sentence on a row that a picture leaves out; empty for one that is drawn.

        Constant and random answers have small gaps, far from all others: a row at chance is named and not drawn.
        """
        undefined = [one.reason or "undefined" for one in (self.x, self.y) if not one.defined]
        why = [*undefined, *["its answers are no better than chance"] * (marks.AT_CHANCE in self.marks)]
        return f"Not drawn: {self.label} ({why[0]})." if why else ""


def points_of(comparison: Comparison) -> list[Point]:
    """Return every row in the plane of the gap (x) and accuracy (y), in the table's order.

    No marked row is part of the Pareto set, and none keeps another out. Beside rows that see groups no method without
    demographics might be in it, though they answer to another question; rows at chance, or not yet distinguished from
    it, may have small gaps for a bad reason.
    """
    rows = comparison.table.rows
    plain = [name for name in rows if not comparison.marks(name)]
    values = (np.array([rows[name][metric].estimate.value for name in plain]) for metric in (MAIN, "accuracy"))
    kept = dict(zip(plain, pareto_set(*values), strict=True))
    return [
        Point(
            name,
            comparison.label(name),
            comparison.marks(name),
            comparison.oracle[name],
            figures[MAIN].estimate,
            figures["accuracy"].estimate,
            bool(kept.get(name, False)),
        )
        for name, figures in rows.items()
    ]
