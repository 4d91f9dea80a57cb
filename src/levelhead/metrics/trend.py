"""Whether the difference of two groups' rates changes over periods: a trend, and periods that stand out.

*Trend.* The line through the differences by weighted least squares. The weight of a period is the precision that it
has if rates do not change (from the rates of all periods), so that chance in a period's own rate does not weigh it;
with one group's rate known, the test is Cochran and Armitage's (Biometrics 1954, 1955). The variance of the slope is
the larger one of this model's and of the periods' own smoothed rates. Where periods scatter around the line by more
than the binomial draws of the rows explain, the variance is scaled up and Student's t is used.

*Periods.* A control chart: each difference against the weighted mean of all earlier periods, so that the first one
outside says since when. Its limits combine the period's interval (Newcombe's, with the outer ends of Wilson and
Jeffreys) with that of the mean by variance recovery (Zou and Donner 2008). They hold together over all periods and
comparisons (Bonferroni).

*Two periods.* Each rate's change has Newcombe's interval, and that of a difference of rates combines the two (MOVER).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.metrics.between import (
    Differences,
    difference_of,
    differences,
    mover,
    normal_quantile,
    proportion_ends,
    shared,
)
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.types import Estimate

FEWEST = 3
"""Periods that a trend needs."""


class Trend(NamedTuple):
    """Differences of a first group's rate less a second's, one a period.

    Attributes:
        gaps: (3, periods) value and ends of each, each alone.
        slope: change a period.
        line: the fitted differences in the first and the last period.
        p_value: of "no trend"; adjusted.
        scatter: p-value of "no more scatter around the line than the rows make"; not adjusted.
        limits: (2, periods) between which a difference lies that is like the earlier ones; NaN of the first.
    """

    gaps: FloatArray
    slope: Estimate
    line: tuple[float, float]
    p_value: float
    scatter: float
    limits: FloatArray

    @property
    def outside(self) -> NDArray[np.bool_]:
        """Whether each period is outside its limits, (periods,)."""
        return (self.gaps[0] < self.limits[0]) | (self.gaps[0] > self.limits[1])


def trend(
    hits: IntArray, rows: IntArray, *, at: FloatArray | None = None, level: float = 0.95, comparisons: int = 1
) -> Trend:
    """Fit a trend and find periods that stand out.

    Args:
        hits: (periods, 2) of both groups, in the order of time.
        rows: (periods, 2), at least 1.
        at: (periods,) where they lie in time, in periods; None: one after the other.
        level: of the intervals.
        comparisons: how many trends are looked at; the slope's interval, the p-value and the limits allow for them.

    Returns:
        the figures; with fewer than three periods there is no slope, and with fewer than two there are no limits.
    """
    periods, n = len(hits), int(rows.sum())
    places = np.arange(periods)
    each = differences(hits.T.ravel(), rows.T.ravel(), places, places + periods, level=level)
    gap, at = each.value, places.astype(np.float64) if at is None else at
    steady = _variance((hits.sum(0) + 0.5) / (rows.sum(0) + 1), rows)
    own = np.maximum(_variance((hits + 0.5) / (rows + 1), rows), 1e-300)
    weight = 1 / steady
    off = at - weight @ at / weight.sum()
    spread = weight @ off**2
    slope, line, p_value, scatter = Estimate.undefined(f"fewer than {FEWEST} periods", n), (np.nan,) * 2, np.nan, np.nan
    if periods >= FEWEST:
        value = float((weight * off) @ gap / spread)
        fitted = weight @ gap / weight.sum() + value * off
        variance = max(1 / spread, float((weight * off) ** 2 @ own) / spread**2)
        excess = float(weight @ (gap - fitted) ** 2)
        scatter, free = float(special.chdtrc(periods - 2, excess)), np.inf
        if scatter < 1 - level:
            variance, free = variance * max(1.0, excess / (periods - 2)), periods - 2.0
        error = variance**0.5
        arm = float(special.stdtrit(free, (1 + shared(level, comparisons)) / 2)) * error
        slope = Estimate(value, value - arm, value + arm, n)
        p_value = float(min(1.0, comparisons * 2 * special.stdtr(free, -abs(value) / error)))
        line = (float(fitted[0]), float(fitted[-1]))
    limits = np.full((2, periods), np.nan)
    if periods > 1:
        before = np.cumsum(weight)[:-1]
        mean = np.cumsum(weight * gap)[:-1] / before
        error_of_mean = np.sqrt(np.cumsum(weight**2 * own)[:-1]) / before
        strict = shared(level, comparisons * (periods - 1))
        share, ends = hits[1:] / rows[1:], proportion_ends(hits[1:], rows[1:], 1 - strict)
        first, second = ((ends[0][:, side], ends[1][:, side]) for side in (0, 1))
        of_gap = mover(share[:, 0], first, share[:, 1], second)
        reach = normal_quantile(strict) * error_of_mean
        low, high = mover(gap[1:], of_gap, mean, (mean - reach, mean + reach))
        limits[:, 1:] = gap[1:] - high, gap[1:] - low
    return Trend(np.stack(each), slope, line, p_value, scatter, limits)


def changes(hits: IntArray, rows: IntArray, *, level: float = 0.95, comparisons: int = 1) -> Differences:
    """Return how much each group's rate changes from a first period to a second, (groups,).

    Args:
        hits: (2, groups) of both periods.
        rows: (2, groups); of groups without rows in one of the periods nothing is known.
        level: how often all ``comparisons`` intervals together hold the true changes.
        comparisons: how many rates are compared.
    """
    groups = np.arange(hits.shape[1])
    strict = shared(level, comparisons)
    return differences(hits.ravel(), np.maximum(rows, 1).ravel(), groups + len(groups), groups, level=strict)


def change(hits: IntArray, rows: IntArray, *, level: float = 0.95, comparisons: int = 1) -> Trend:
    """Compare two periods, (2, 2) hits and rows as :func:`trend` takes them: the slope is the change of the difference.

    There are no p-values and no limits: the interval of the change is all that two periods say.
    """
    places, of = np.arange(2), changes(hits, rows, level=level, comparisons=comparisons)
    each = differences(hits.T.ravel(), rows.T.ravel(), places, places + 2, level=level)
    slope = difference_of(*(of.at(at, rows[:, at].sum()) for at in (0, 1)))
    first, last = each.value
    return Trend(np.stack(each), slope, (float(first), float(last)), np.nan, np.nan, np.full((2, 2), np.nan))


def _variance(share: FloatArray, rows: IntArray) -> FloatArray:
    """Variance of each period's difference, (periods,), from rates (2,) or (periods, 2)."""
    return np.asarray((share * (1 - share) / rows).sum(1))
