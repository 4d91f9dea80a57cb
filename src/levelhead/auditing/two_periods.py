"""Two periods: how each group's rates change from the first to the second, with sentences and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from levelhead.metrics import trend as trends
from levelhead.metrics.between import clearest
from levelhead.metrics.counts import IntArray
from levelhead.metrics.names import Key, group_name
from levelhead.report.record import Finding
from levelhead.report.text import counted
from levelhead.types import Estimate, in_quotes, listed, printable

Cells = Mapping[str, tuple[IntArray, IntArray]]
"""By rate, hits and rows, (periods, groups) each."""


@dataclass(frozen=True)
class RateChange(Finding):
    """One rate of one group in the ``first`` and the ``last`` of two periods, and its ``change``."""

    group: str
    rate: str
    first: float
    last: float
    change: Estimate


def rate_changes(
    cells: Cells, groups: Sequence[Key], least: int, level: float, comparisons: int
) -> tuple[RateChange, ...]:
    """Return how the rates of groups with enough rows in both of two periods change, those that are decided first."""
    found = []
    for rate, (hits, rows) in cells.items():
        change, share = trends.changes(hits, rows, level=level, comparisons=comparisons), hits / np.maximum(rows, 1)
        for at in np.flatnonzero((rows >= least).all(0)).tolist():
            name, (first, last) = group_name(groups[at]), share[:, at].tolist()
            found.append(RateChange(name, rate, first, last, change.at(at, int(rows[:, at].sum()))))
    return tuple(sorted(found, key=lambda one: clearest(one.change)))


def few_sentences(
    found: Mapping[Key, Sequence[RateChange]],
    names: Mapping[Key, str],
    compared: Mapping[Key, Sequence[Key]],
    min_count: int,
) -> list[str]:
    """Name the groups without a change, which have too few rows in one of two periods."""
    said = []
    for key, changes in found.items():
        known = {one.group for one in changes}
        if few := [in_quotes(name) for name in map(group_name, compared[key]) if name not in known]:
            rows = counted(max(1, min_count), "row")
            said.append(
                f"{printable(names[key])}: groups without {rows} in both periods are not compared: {listed(few)}."
            )
    return said
