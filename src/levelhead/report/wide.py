"""The figures of groups side by side: a wide frame, the largest difference and the smallest ratio of each figure.

As fairlearn's MetricFrame has them. A difference is the highest figure less the lowest, a ratio the lowest over the
highest. Their interval is that of the gap where the result measures it; :func:`pairs` has those of two groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from levelhead.metrics.names import group_name
from levelhead.types import Estimate

if TYPE_CHECKING:
    from levelhead.report.result import Report

NO_INTERVAL = "no interval; each of the two figures has one"
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
    for attribute, group, figure, one in report.figures():
        # What is relative to a reference group already is not compared again.
        relative = isinstance(group, Pair) or figure.endswith(("_ratio", "ratio_of_rates", "difference", "_change"))
        if group is not None and not relative:
            every = groups.setdefault((attribute, figure), {})
            if one.defined and report.compares(attribute, group, figure):
                every[group_name(group)] = one
    rows = [(*key, *_between(report, *key, kept, ratio=ratio)) for key, kept in groups.items()]
    return pd.DataFrame(rows, columns=list(COLUMNS)).set_index(["attribute", "figure"])


def _between(
    report: Report, attribute: str, figure: str, kept: Mapping[str, Estimate], *, ratio: bool
) -> Sequence[Any]:
    """Return what :data:`COLUMNS` name of the highest and the lowest group, after attribute and figure."""
    if len(kept) < 2:
        return math.nan, math.nan, math.nan, None, None, 0, "fewer than two groups are compared"
    low, *_, high = sorted(kept, key=lambda name: kept[name].value)
    least, most, rows = kept[low].value, kept[high].value, kept[low].n + kept[high].n
    known = None if ratio else report.gap_of(attribute, figure)
    ends = (math.nan, math.nan) if known is None else (known.low, known.high)
    if not ratio:
        return most - least, *ends, high, low, rows, None if known else NO_INTERVAL
    if most == 0 or min(one.low for one in kept.values()) < 0:
        return math.nan, *ends, None, None, rows, "a ratio says nothing of figures that can lie below 0, or are 0"
    return least / most, *ends, high, low, rows, NO_INTERVAL
