"""Between groups: intervals of single rates, of two figures and of many pairs, and the range that chance makes.

*Single rates.* Wilson's score interval (Wilson 1927), or, for pairs, at each end the outer one of Wilson's and
Jeffreys': at such strict levels Wilson's inner end errs where few hits are expected, by a factor of ten and more, and
Jeffreys' outer end is too near at 0 of n.

*Two figures.* Their intervals are combined by variance recovery, MOVER (Zou and Donner, Statistics in Medicine 2008).
Of two rates with Wilson's intervals that is Newcombe's hybrid (Newcombe 1998, "Interval estimation for the difference
between independent proportions", method 10): it has no zero width at 0 of n, and stays within -1 and 1.

*Several pairs.* Each gets its part of the error probability (Bonferroni), so that all intervals hold together, and the
largest may be picked after the fact. Pairs whose interval leaves out 0 come first, then the largest: of many tiny
groups the largest difference alone is noise.

*The exact test must agree.* An interval leaves out 0 only if Fisher's exact test (twice the smaller tail) rejects "the
two rates are equal" with the same part of the error probability. Where groups are all alike, a pair is then named in
at most 1 - level of all audits, whatever the sizes and rates are.

*Chance.* The largest of many rates is above the smallest even where all groups are alike. What the range would be by
chance is found by dealing the hits out again over the rows of all groups; its rank among such deals is an exact
p-value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from levelhead.arrays import checked, floats_of, option
from levelhead.metrics.contrasts import BoolArray
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.types import ConfigError, DataError, Estimate

Ends = tuple[FloatArray, FloatArray]
"""Lower and upper ends of intervals."""

EXTREME = 1e-9
"""Closest level to 0 and 1 with a finite quantile."""
LARGE = 1000
"""Standard deviation of hits, in rows, from which on they are taken as normal."""
DEALS = 2000
"""Deals of the hits behind a range by chance: the 95% quantile has a standard error of half a percent of the deals."""


def normal_quantile(level: float) -> float:
    """Return the standard errors of a two-sided normal interval at ``level``."""
    return NormalDist().inv_cdf((1 + level) / 2)


def shared(level: float, comparisons: int) -> float:
    """Return the level of each of this many intervals that all hold together at ``level`` (Bonferroni)."""
    return 1 - (1 - level) / max(1, comparisons)


def check_level(level: float) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for a level that cannot be used."""
    if not 0 < level < 1:
        raise ConfigError(f"level={level} is not between 0 and 1. Pass 0.95 for 95% intervals.")
    if not EXTREME <= level <= 1 - EXTREME:
        raise ConfigError(f"level={level} is too near to 0 or 1 for an interval. Pass 0.95 for 95% intervals.")


def wilson(hits: ArrayLike, rows: ArrayLike, level: float) -> Ends:
    """Return the ends of Wilson's intervals, for arrays of one shape; 0 and 1 where there are no rows."""
    k, n, z = np.asarray(hits, np.float64), np.asarray(rows, np.float64), normal_quantile(level)
    with np.errstate(invalid="ignore", divide="ignore"):
        share, scale = k / n, 1 + z * z / n
        middle = (share + z * z / (2 * n)) / scale
        half = z / scale * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At 0 and at 1 the end is exact; rounding must not push it past the value.
    low = np.where(n > 0, np.minimum(share, np.maximum(0.0, middle - half)), 0.0)
    return low, np.where(n > 0, np.maximum(share, np.minimum(1.0, middle + half)), 1.0)


def proportion(hits: int, rows: int, *, level: float = 0.95) -> Estimate:
    """Estimate one proportion with Wilson's score interval (Wilson 1927).

    Args:
        hits: successes.
        rows: trials.
        level: confidence level.

    Returns:
        hits / rows; undefined if there are no rows.
    """
    # Weighted rows make fractions of hits and rows.
    hits, rows, level = option("hits", hits, float), option("rows", rows, float), option("level", level, float)
    if not 0 <= hits <= rows:
        raise DataError(f"{hits} hits in {rows} rows: there must be 0 or more, and no more hits than rows.")
    check_level(level)
    if rows == 0:
        return Estimate.undefined("no rows")
    low, high = wilson(hits, rows, level)
    return Estimate(hits / rows, float(low), float(high), rows)


def proportion_ends(hits: IntArray | FloatArray, rows: IntArray | FloatArray, error: float) -> Ends:
    """Return the ends of intervals of single proportions, which miss the truth with a probability of about ``error``.

    Args:
        hits: (groups,) successes; may be fractional for weighted rows.
        rows: (groups,) trials, at least 1.
        error: probability, both sides together.

    Returns:
        (groups,) lower and upper ends: the outer one of Wilson's and Jeffreys', each.
    """
    low, high = wilson(hits, rows, 1 - error)
    least, most = (special.betaincinv(hits + 0.5, rows - hits + 0.5, tail) for tail in (error / 2, 1 - error / 2))
    return np.minimum(low, least), np.maximum(high, most)


def mover(
    first: FloatArray,
    first_ends: Ends,
    second: FloatArray,
    second_ends: Ends,
    correlation: FloatArray | float = 0.0,
) -> Ends:
    """Ends of first - second from the intervals of two figures (Zou and Donner 2008, equation 3).

    ``correlation`` of the two figures: 0 if they are independent.
    """
    difference = first - second

    def arm(one: FloatArray, other: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(0, one**2 + other**2 - 2 * correlation * one * other))

    low = difference - arm(first - first_ends[0], second_ends[1] - second)
    high = difference + arm(first_ends[1] - first, second - second_ends[0])
    return low, high


def difference_of(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two independent figures, with MOVER's interval from theirs."""
    value, lows, highs = np.array([[figure.value, figure.low, figure.high] for figure in (first, second)]).T
    low, high = mover(value[0], (lows[0], highs[0]), value[1], (lows[1], highs[1]))
    return Estimate(first.value - second.value, float(low), float(high), first.n + second.n)


def ratio_of(first: Estimate, second: Estimate, *, alike: bool = False) -> Estimate:
    """Return first / second of independent rates, with MOVER's interval from theirs; the upper end may be infinite.

    Donner and Zou, Statistical Methods in Medical Research 2012, equation 9.

    ``alike``: an exact test cannot distinguish the two rates, so the interval holds 1.
    """
    n = first.n + second.n
    for one, whose in ((first, ""), (second, "the reference group: ")):
        if not one.defined:
            return Estimate.undefined(f"{whose}{one.reason}", n)
    if second.value == 0:
        return Estimate.undefined("the reference group's rate is 0", n)
    p, q = first.value, second.value

    def root(own: float, other: float) -> float:
        return p * q + math.sqrt(max(0.0, (p * q) ** 2 - own * other * (2 * p - own) * (2 * q - other)))

    # The lower end in a form that has no 0 / 0 where the other rate's upper end is twice the rate.
    low = 0.0 if p == 0 else first.low * (2 * p - first.low) / root(first.low, second.high)
    below = second.low * (2 * q - second.low)
    high = root(first.high, second.low) / below if below > 0 else math.inf
    if alike:
        low, high = min(low, 1.0), max(high, 1.0)
    return Estimate(p / q, max(0.0, low), high, n)


def mean_of(first: Estimate, second: Estimate, *, together: bool = False) -> Estimate:
    """Return the mean of two independent rates, with MOVER's interval from theirs.

    ``together``: the rates are of the same people, and their errors may be of one sign.
    """
    for one in (first, second):
        if not one.defined:
            return one
    value = (first.value + second.value) / 2
    arms = [(one.value - one.low, one.high - one.value) for one in (first, second)]
    down, up = (sum(arm) / 2 if together else math.hypot(*arm) / 2 for arm in zip(*arms, strict=True))
    return Estimate(value, max(0.0, value - down), min(1.0, value + up), first.n + second.n)


class Differences(NamedTuple):
    """Differences of two groups' figures: ``value``, ``low`` and ``high``, arrays of one shape."""

    value: FloatArray
    low: FloatArray
    high: FloatArray

    def at(self, place: int, rows: int, reason: str = "") -> Estimate:
        """Return one of them as a figure based on this many ``rows``; ``reason``: why there may be none."""
        if reason and np.isnan(self.value[place]):
            return Estimate.undefined(reason, int(rows))
        return Estimate(float(self.value[place]), float(self.low[place]), float(self.high[place]), int(rows))

    @property
    def decided(self) -> BoolArray:
        """Whether each interval leaves out 0; False where there is none."""
        return (self.low > 0) | (self.high < 0)

    @property
    def order(self) -> IntArray:
        """Places of the pairs (pairs,): decided ones first, then the largest."""
        return np.lexsort((-np.abs(self.value), ~self.decided))


def clearest(figure: Estimate) -> tuple[bool, float]:
    """Return what sorts differences as :attr:`Differences.order` does: decided ones, the largest, undefined ones."""
    return not figure.excludes_zero, -abs(figure.value) if figure.defined else math.inf


def lowest(ratio: Estimate) -> tuple[bool, float]:
    """Return what sorts ratios: those that are measured below 1 first, then the lowest."""
    return not ratio.high < 1, math.inf if math.isnan(ratio.value) else ratio.value


def differences(
    hits: IntArray | FloatArray,
    rows: IntArray | FloatArray,
    first: IntArray,
    second: IntArray,
    *,
    level: float = 0.95,
    comparisons: int = 1,
    correlation: FloatArray | None = None,
) -> Differences:
    """Return how much larger the rates of the ``first`` groups are than those of the ``second``.

    Args:
        hits: (groups,) successes; of weighted rows, a fraction of their effective sample size.
        rows: (groups,) trials, at least 1 where a group is compared.
        first: (pairs,) positions of groups.
        second: (pairs,) positions of groups.
        level: how often all intervals together hold their true differences.
        comparisons: how many intervals that is; each has the error probability divided by it.
        correlation: (pairs,) of the two rates, where rows of both come from the same people. None: independent rates.

    Returns:
        (pairs,) each.
    """
    error = (1 - level) / comparisons
    n = np.maximum(rows, 1e-9)  # rows of one cluster are worth next to nothing
    share, (least, most) = hits / n, proportion_ends(hits, n, error)
    ends = [(least[one], most[one]) for one in (first, second)]
    low, high = mover(share[first], ends[0], share[second], ends[1], 0.0 if correlation is None else correlation)
    low, high = np.maximum(low, -1.0), np.minimum(high, 1.0)
    apart = np.flatnonzero((low > 0) | (high < 0))
    # Rates that rise and fall together differ by less than independent ones, as if they had more rows.
    times = 1.0 if correlation is None else 1 / np.maximum(0.01, 1 - correlation[apart])
    x, of = (np.concatenate([one[first[apart]] * times, one[second[apart]] * times]) for one in (hits, n))
    chance = apart[~unlike(x, of, np.arange(len(apart)), np.arange(len(apart)) + len(apart), error)]
    low[chance], high[chance] = np.minimum(low[chance], 0.0), np.maximum(high[chance], 0.0)
    return Differences(share[first] - share[second], low, high)


def unlike(
    hits: IntArray | FloatArray, rows: IntArray | FloatArray, first: IntArray, second: IntArray, error: float
) -> BoolArray:
    """Say which pairs of groups Fisher's exact test distinguishes: twice the smaller tail is at most ``error``.

    Arguments are those of :func:`differences`; fractions of weighted rows are rounded to whole ones.

    Returns:
        (pairs,)
    """
    hits, rows = np.rint(hits), np.rint(rows)
    # The tail of the group with the higher rate: hits that are drawn again give it at least as many.
    higher = hits[first] * rows[second] > hits[second] * rows[first]
    own, other = np.where(higher, first, second), np.where(higher, second, first)
    x, n, all_hits, all_rows = hits[own], rows[own], hits[own] + hits[other], rows[own] + rows[other]
    # Probabilities of x and of more fall at least as fast as from x to x + 1, so that a geometric series is no smaller
    # than the tail; one that falls as fast as after as many more hits as it has terms is no larger. That settles nearly
    # all pairs at once; SciPy's sums of the others take microseconds each.
    missed = all_rows - all_hits - n + x
    ratio = (all_hits - x) * (n - x) / ((x + 1) * (missed + 1))
    terms = np.floor(np.minimum(np.sqrt(n), np.minimum(all_hits - x, n - x)))
    slowest = (all_hits - x - terms) * (n - x - terms) / ((x + terms + 1) * (missed + terms + 1))
    chosen = special.gammaln(np.stack([all_hits, all_rows - all_hits, n, all_rows - n]) + 1).sum(0)
    chosen -= special.gammaln(np.stack([all_rows, x, all_hits - x, n - x, missed]) + 1).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (ratio < 1) & (np.log(2) + chosen - np.log1p(-ratio) <= np.log(error))
        alike = np.log(2) + chosen + np.log1p(-(slowest ** (terms + 1))) - np.log1p(-slowest) > np.log(error)
    rest = ~(found | alike)
    if rest.any():
        found[rest] = fisher_p(hits, rows, own[rest], other[rest]) <= error
    return found


def fisher_p(hits: IntArray | FloatArray, rows: IntArray | FloatArray, first: IntArray, second: IntArray) -> FloatArray:
    """Return p-values of Fisher's exact test, twice the smaller tail and at most 1: (pairs,), as :func:`unlike`."""
    from scipy import stats  # half a second, which few audits wait for

    hits, rows = np.rint(hits), np.rint(rows)
    both, all_rows = hits[first] + hits[second], rows[first] + rows[second]
    x, n = hits[first], rows[first]
    share = both / np.maximum(all_rows, 1)
    spread = np.sqrt(n * share * (1 - share) * (all_rows - n) / np.maximum(all_rows - 1, 1))
    # SciPy sums over the hits: so many that their law is normal to a thousandth would take seconds, and then minutes.
    exact = spread < LARGE
    safe, off = np.where(exact, 1.0, spread), x - n * share
    below, above = special.ndtr((off + 0.5) / safe), special.ndtr((0.5 - off) / safe)
    few = (all_rows[exact], both[exact], n[exact])
    below[exact], above[exact] = stats.hypergeom.cdf(x[exact], *few), stats.hypergeom.sf(x[exact] - 1, *few)
    return np.minimum(1.0, 2 * np.minimum(below, above))


@checked
def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for testing several hypotheses (Holm 1979); NaN stays NaN and does not count."""
    values = floats_of(p_values, "p_values", dimensions=1)
    order = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))]  # NaN comes last
    times = len(order) - np.arange(len(order))
    adjusted = np.full(len(values), np.nan)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, times * values[order]))
    return adjusted.tolist()


class ChanceRange(NamedTuple):
    """The range of rates over groups, as measured and as chance alone would make it; fractions.

    ``value`` is the highest rate less the lowest; ``expected`` the mean of that over deals in which all groups are
    alike, ``high`` its 95% quantile, and ``p`` the share of such deals with a range at least as large.
    """

    value: float
    expected: float
    high: float
    p: float


def chance_range(hits: IntArray, rows: IntArray, *, deals: int = DEALS, seed: int = 0) -> ChanceRange:
    """Compare the range of rates over groups with that of groups which are all alike.

    Args:
        hits: (groups,) successes.
        rows: (groups,) trials, at least 1 each; two groups or more.
        deals: how often the hits are drawn again.
        seed: of the deals.

    Returns:
        the range and what chance makes of it.
    """
    share = hits / rows
    value = float(np.ptp(share))
    rng = np.random.default_rng([seed, 3])
    ranges = np.ptp(rng.multivariate_hypergeometric(rows, int(hits.sum()), size=deals) / rows, axis=-1)
    p = float((1 + (ranges >= value - 1e-12).sum()) / (deals + 1))
    expected, high = float(ranges.mean()), float(np.quantile(ranges, 0.95))
    return ChanceRange(value, expected, high, p)
