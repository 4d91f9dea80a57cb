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


def pareto_rows(comparison: Comparison) -> set[str]:
    """Return the rows that no other one beats in both the gap and accuracy.

    No marked row is part of the Pareto set, and none keeps another out. Beside rows that see groups no method without
    demographics might be in it, though they answer to another question; rows at chance, or not yet distinguished from
    it, may have small gaps for a bad reason.
    """
    rows = comparison.table.rows
    plain = [name for name in rows if not comparison.marks(name)]
    values = (np.array([rows[name][metric].estimate.value for name in plain]) for metric in (MAIN, "accuracy"))
    return {name for name, kept in zip(plain, pareto_set(*values), strict=True) if kept}


def not_drawn(comparison: Comparison) -> dict[str, str]:
    """Return the rows that a picture leaves out, each with a sentence.

    Constant and random answers have small gaps, far from all others: a row at chance is named and not drawn.
    """
    found = {}
    for name, row in comparison.table.rows.items():
        ends = (row[MAIN].estimate, row["accuracy"].estimate)
        why = [one.reason or "undefined" for one in ends if not one.defined]
        why += ["its answers are no better than chance"] * (marks.AT_CHANCE in comparison.marks(name))
        if why:
            found[name] = f"Not drawn: {comparison.label(name)} ({why[0]})."
    return found
