"""The figures of groups side by side: a wide frame, the largest difference and the smallest ratio of each figure.

As fairlearn's MetricFrame has them, with intervals. A difference is the highest figure less the lowest, a ratio the
lowest over the highest. Their intervals combine those of both groups (MOVER), at a level that holds for all pairs of
groups (Bonferroni), because the two are picked after the fact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from levelhead.metrics.between import difference_of, normal_quantile, proportion_ends, ratio_of, shared, wilson
from levelhead.metrics.names import group_name
from levelhead.types import Estimate

if TYPE_CHECKING:
    from levelhead.report.result import Report

COLUMNS = ("attribute", "figure", "value", "low", "high", "highest", "lowest", "n", "reason")
PAIRS = ("attribute", "first", "second", "figure", "value", "low", "high", "n", "reason")


class Pair(str):
    """Two groups that a figure is about, ``first`` and ``second``: where a frame has a group, it has both names."""

    first: str
    second: str
    joint: str

    def __new__(cls, first: str, second: str, joint: str = " minus ") -> Pair:
        """Join the names of two groups."""
        made = super().__new__(cls, f"{first}{joint}{second}")
        made.first, made.second, made.joint = first, second, joint
        return made

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]
        """Return what a copy or a pickle is made from."""
        return self.first, self.second, self.joint


RATIO_OF_RATES = "ratio_of_rates"
"""The ratio of the positive class's selection rates, where no favourable outcome is named."""


class Fraction(str):
    """The name of a figure that is a fraction, or a difference of two: its value is at most 1 in size."""


class GapSlope(Fraction):
    """The name of the change per period of two groups' difference.

    ``line`` is that difference at the first and the last period, as fitted.
    """

    line: tuple[float, float]

    def __new__(cls, name: str, line: tuple[float, float]) -> GapSlope:
        """Name a slope, and say what it is of."""
        made = super().__new__(cls, name)
        made.line = line
        return made

    def __getnewargs__(self) -> tuple[str, tuple[float, float]]:  # type: ignore[override]
        """Return what a copy or a pickle is made from."""
        return str(self), self.line

    def of_gap(self, both: Pair, slope: Estimate) -> tuple[Pair, Estimate]:
        """Return the change of the gap, above 0 where it grows, and the two groups in that order.

        The group that is ahead where the line is farther from 0 is the first.
        """
        first, last = self.line
        if (last if abs(last) > abs(first) else first) < 0:
            return Pair(both.second, both.first), replace(slope, value=-slope.value, low=-slope.high, high=-slope.low)
        return both, slope


def by_group(report: Report) -> pd.DataFrame:
    """Return a row for each attribute and group, and a column for each figure."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for attribute, group, figure, one in report.figures():
        if group is not None and not isinstance(group, Pair):
            found.setdefault((attribute, group_name(group)), {})[figure] = one.value
    rows = pd.MultiIndex.from_tuples(found, names=["attribute", "group"])
    return pd.DataFrame(list(found.values()), index=rows)


def pairs(report: Report) -> pd.DataFrame:
    """Return a row for each figure of two groups."""
    rows = [
        (attribute, group.first, group.second, figure, one.value, one.low, one.high, one.n, one.reason)
        for attribute, group, figure, one in report.figures()
        if isinstance(group, Pair)
    ]
    return pd.DataFrame(rows, columns=list(PAIRS))


def compared(report: Report, *, ratio: bool) -> pd.DataFrame:
    """Return the largest difference of each figure, or the smallest ratio, by attribute and figure."""
    groups: dict[tuple[str, str], dict[str, Estimate]] = {}
    left_out = set()
    for attribute, group, figure, one in report.figures():
        # What is relative to a reference group already is not compared again.
        if (
            group is not None
            and not isinstance(group, Pair)
            and not figure.endswith(("_ratio", "difference", "_change"))
        ):
            groups.setdefault((attribute, figure), {})[group_name(group)] = one
            if not report.compares(attribute, group, figure):
                left_out.add((attribute, figure, group_name(group)))
    rows = []
    for (attribute, figure), every in groups.items():
        kept = {name: one for name, one in every.items() if one.defined and (attribute, figure, name) not in left_out}
        known = None if ratio else report.gap_of(attribute, figure)
        found, high, low = _between(kept, every, report.level, ratio=ratio)
        if known is not None and found.defined:  # one interval for one gap
            found = replace(found, low=known.low, high=known.high)
        rows.append((attribute, figure, found.value, found.low, found.high, high, low, found.n, found.reason))
    return pd.DataFrame(rows, columns=list(COLUMNS)).set_index(["attribute", "figure"])


def _between(
    kept: Mapping[str, Estimate], every: Mapping[str, Estimate], level: float, *, ratio: bool
) -> tuple[Estimate, str | None, str | None]:
    if len(kept) < 2:
        rows = sum(one.n for one in every.values())
        return Estimate.undefined("fewer than two groups are compared", rows), None, None
    names = sorted(kept, key=lambda name: kept[name].value)
    wanted = shared(level, math.comb(len(kept), 2))
    high, low = (_at(kept[name], level, wanted) for name in (names[-1], names[0]))
    if ratio:
        if min(one.low for one in kept.values()) < 0:
            why = "it can lie below 0, where a ratio says nothing"
            return Estimate.undefined(why, high.n + low.n), None, None
        found = ratio_of(low, high)
        return found.within(0.0, 1.0), names[-1], names[0]
    found = difference_of(high, low)
    return found.within(0.0, math.inf), names[-1], names[0]


def _is_proportion(one: Estimate, level: float) -> bool:
    """Whether a figure is a share of independent rows: its interval is one of those that such a share gets."""
    if not 0 <= one.value <= 1 or one.n < 1:
        return False
    hits, rows = np.array([round(one.value * one.n)]), np.array([one.n])
    known = (wilson(hits, rows, level), proportion_ends(hits, rows, 1 - level))
    return any(np.allclose((one.low, one.high), (low[0], high[0]), rtol=0, atol=1e-9) for low, high in known)


def _ends(hits: float, rows: int, level: float) -> tuple[float, float]:
    low, high = proportion_ends(np.array([hits]), np.array([float(rows)]), 1 - level)
    return float(low[0]), float(high[0])


def _at(one: Estimate, level: float, wanted: float) -> Estimate:
    """Return a figure with an interval at another level: that of a proportion, or arms as long as a normal law has."""
    if _is_proportion(one, level):
        low, high = _ends(round(one.value * one.n), one.n, wanted)
        return replace(one, low=low, high=high)
    longer = normal_quantile(wanted) / normal_quantile(level)
    return replace(
        one, low=one.value - longer * (one.value - one.low), high=one.value + longer * (one.high - one.value)
    )
