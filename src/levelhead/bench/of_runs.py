"""What the page of a comparison takes from its runs: the sizes of groups, and the FACT line of the baseline."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from levelhead.bench.comparison import Comparison
from levelhead.bench.frontier import GroupRates, fact_frontier
from levelhead.bench.page import Compared
from levelhead.bench.pareto import Frontier
from levelhead.bench.tables import RunSet
from levelhead.metrics import Counts
from levelhead.metrics.names import MISSING_GROUP
from levelhead.report.text import Record
from levelhead.types import DataError, quoted


def compared(
    group: RunSet,
    comparison: Comparison,
    published: Sequence[Record] = (),
    *,
    title: str = "",
    plane_first: bool = False,
) -> Compared:
    """Return a comparison of a group of runs with the sizes of its groups, and the FACT line where there is one."""
    frontier = None
    if len(group.classes) == 2 and comparison.selection is None and comparison.positive_rate is None:
        # Without two groups that have both classes there is no line, and the page does without it.
        with contextlib.suppress(DataError):
            frontier = baseline_frontier(group, comparison)
    sizes = group_sizes(group.runs[0].predictions, group.attribute)
    return Compared(comparison, sizes, frontier, published, title, plane_first)


def group_sizes(predictions: pd.DataFrame, attribute: str) -> dict[str, dict[str, int]]:
    """Return the number of rows by group and label."""
    filled = predictions.assign(**{attribute: predictions[attribute].fillna(MISSING_GROUP)})
    counts = filled.groupby([attribute, "label"], sort=True, observed=True).size()
    sizes: dict[str, dict[str, int]] = {}
    for key, count in counts.items():
        group, label = map(str, tuple(key))  # type: ignore[arg-type]  # a pair, since there are two columns
        sizes.setdefault(group, {})[label] = int(count)
    return sizes


def baseline_rates(group: RunSet, baseline: str) -> list[tuple[GroupRates, int, int]]:
    """Return (FPR, TPR) by group of each run of a row, from its own predictions on the split.

    Beside the rates stand the rows of no such group, and how many of them are answered rightly.

    Returns:
        one record a seed.

    Raises:
        DataError: fewer than two groups have this many rows of each class.
    """
    classes, least = group.classes, max(1, group.min_count)
    found = []
    for run in group.rows()[baseline]:
        frame, (named, left_out) = run.predictions, group.members(run)
        labels, predicted = frame["label"].to_numpy(), frame["prediction"].to_numpy()
        counts = Counts.from_rows(labels, predicted, named)
        if len(counts.classes) != 2:
            raise DataError(
                f"Every row of the {group.split} split is {quoted(counts.classes[0])}: no rate can be compared."
            )
        kept = [
            name
            for name, rows_of in zip(counts.groups, counts.cell_sizes, strict=True)
            if rows_of.min() >= least and name not in left_out
        ]
        if len(kept) < 2:
            raise DataError(f"fewer than two groups of {quoted(group.attribute)} have {least} rows of each class.")
        # Counts order classes by name; the positive one is the data set's second.
        rates = GroupRates.from_counts(counts.keep(kept), counts.classes.index(classes[1]))
        others = ~np.isin(named.astype(str), list(map(str, kept)))
        found.append((rates, int(others.sum()), int((labels == predicted)[others].sum())))
    return found


def baseline_frontier(group: RunSet, comparison: Comparison) -> Frontier:
    """Compute the FACT line of the comparison's baseline, from a gap of 0 to the largest end of a row's interval.

    Each run's programme is solved with its own counts on the split; the line is the mean over the runs.
    Accuracy is that of all rows: those that no gap compares keep their predictions.

    Raises:
        DataError: as :func:`baseline_rates`.
    """
    name = comparison.table.baseline
    rates = baseline_rates(group, name)
    ends = [row["equalized_odds"].estimate.high for row in comparison.table.rows.values()]
    gaps = np.linspace(0, np.nanmax(ends), 61)
    lines = [(one.rows * fact_frontier(one, gaps) + right) / (one.rows + others) for one, others, right in rates]
    return Frontier(name, gaps, np.stack(lines))
