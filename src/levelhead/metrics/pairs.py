"""Pairs of groups: how far apart two rates are, how far chance alone spreads many, and which gap rows could show.

*Intervals of pairs.* Newcombe's hybrid of two single intervals (Newcombe 1998, "Interval estimation for the difference
between independent proportions", method 10): it has no zero width at 0 of n, and stays within -1 and 1. Of several
pairs each gets its part of the error probability (Bonferroni), so that all of them hold together, and the largest may
be picked after the fact. Each single end is the outer one of Wilson's and Jeffreys': at such strict levels Wilson's
inner end errs where few hits are expected, by a factor of ten and more, and Jeffreys' outer end is too near at 0 of n.

*The exact test must agree.* An interval leaves out 0 only if Fisher's exact test (twice the smaller tail) rejects "the
two rates are equal" with the same part of the error probability. Where groups are all alike, a pair is then named in
at most 1 - level of all audits, whatever the sizes and rates are.

*Chance.* The largest of many rates is above the smallest even where all groups are alike. What the range would be by
chance is found by dealing the hits out anew over the rows of all groups; its rank among such deals is an exact p-value.
The variance of the true rates is the variance of the measured ones less what the binomial draws add (Lum, Zhang and
Bower 2022, "De-biasing 'bias' measurement", FAccT).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from levelhead.arrays import checked, floats_of
from levelhead.metrics.contrasts import FEW
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import EXTREME, check_level, normal_quantile
from levelhead.types import ConfigError

DEALS = 2000
"""Deals of the hits behind a range by chance: the 95% quantile has a standard error of half a percent of the deals."""


FEWEST_DRAWS, MOST_DRAWS, DRAWN = 20_000, 200_000, 2_000_000
"""Draws of the largest |t|: as many as make so many |t| of the largest rate, between these ends."""


class Differences(NamedTuple):
    """Differences of rates, fractions: ``value``, ``low`` and ``high``, arrays of one shape."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


def differences(
    hits: IntArray | FloatArray,
    rows: IntArray | FloatArray,
    first: IntArray,
    second: IntArray,
    *,
    level: float = 0.95,
    comparisons: float = 1,
    correlation: FloatArray | None = None,
) -> Differences:
    """Return how much larger the rates of the ``first`` groups are than those of the ``second``.

    Args:
        hits: (groups,) successes; of weighted rows, a fraction of what they are worth.
        rows: (groups,) trials, at least 1 where a group is compared.
        first: (pairs,) positions of groups.
        second: (pairs,) positions of groups.
        level: how often all intervals together hold their true differences.
        comparisons: how many intervals that is; each has the error probability divided by it. For
            max-|t| see :func:`comparisons_by_max_t`.
        correlation: (pairs,) of the two rates, where rows of both come from the same people. None: independent rates.

    Returns:
        (pairs,) each.
    """
    error = (1 - level) / comparisons
    n = np.maximum(rows, 1e-9)  # rows of one cluster are worth next to nothing
    share = hits / n
    least, most = proportion_ends(hits, n, error)
    below, above = np.maximum(0.0, share - least), np.maximum(0.0, most - share)
    value = share[first] - share[second]
    arms = (below[first], above[second]), (above[first], below[second])
    shared = 0.0 if correlation is None else 2 * correlation  # Zou, Statistics in Medicine 2008
    down, up = (np.sqrt(np.maximum(0, one**2 + other**2 - shared * one * other)) for one, other in arms)
    low, high = np.maximum(value - down, -1.0), np.minimum(value + up, 1.0)
    apart = np.flatnonzero((low > 0) | (high < 0))
    # Rates that rise and fall together differ by less than independent ones, as if they had more rows.
    times = 1.0 if correlation is None else 1 / np.maximum(0.01, 1 - correlation[apart])
    x, of = (np.concatenate([one[first[apart]] * times, one[second[apart]] * times]) for one in (hits, n))
    chance = apart[~unlike(x, of, np.arange(len(apart)), np.arange(len(apart)) + len(apart), error)]
    low[chance], high[chance] = np.minimum(low[chance], 0.0), np.maximum(high[chance], 0.0)
    return Differences(value, low, high)


def proportion_ends(
    hits: IntArray | FloatArray, rows: IntArray | FloatArray, error: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of intervals of single proportions, which miss the truth with a probability of about ``error``.

    Args:
        hits: (groups,) successes; may be a fraction of what weighted rows are worth.
        rows: (groups,) trials, at least 1.
        error: probability, both sides together.

    Returns:
        (groups,) lower and upper ends: the outer one of Wilson's and Jeffreys', each.
    """
    z = normal_quantile(1 - error)
    share, scale = hits / rows, 1 + z * z / rows
    middle = (share + z * z / (2 * rows)) / scale
    half = z / scale * np.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    least, most = (special.betaincinv(hits + 0.5, rows - hits + 0.5, tail) for tail in (error / 2, 1 - error / 2))
    return np.minimum(np.maximum(0.0, middle - half), least), np.maximum(np.minimum(1.0, middle + half), most)


def unlike(
    hits: IntArray | FloatArray, rows: IntArray | FloatArray, first: IntArray, second: IntArray, error: float
) -> NDArray[np.bool_]:
    """Say which pairs of groups Fisher's exact test tells apart: twice the smaller tail is at most ``error``.

    Arguments are those of :func:`differences`; fractions of weighted rows are rounded to whole ones.

    Returns:
        (pairs,)
    """
    hits, rows = np.rint(hits), np.rint(rows)
    # The tail of the group with the higher rate: hits that are dealt out anew give it at least as many.
    higher = hits[first] * rows[second] > hits[second] * rows[first]
    own, other = np.where(higher, first, second), np.where(higher, second, first)
    x, n, all_hits, all_rows = hits[own], rows[own], hits[own] + hits[other], rows[own] + rows[other]
    # Probabilities of x and of more fall at least as fast as from x to x + 1, so that a geometric series is no smaller
    # than the tail. That settles nearly all pairs at once; SciPy's sums of the others take microseconds each.
    missed = all_rows - all_hits - n + x
    ratio = (all_hits - x) * (n - x) / ((x + 1) * (missed + 1))
    chosen = special.gammaln(np.stack([all_hits, all_rows - all_hits, n, all_rows - n]) + 1).sum(0)
    chosen -= special.gammaln(np.stack([all_rows, x, all_hits - x, n - x, missed]) + 1).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (ratio < 1) & (np.log(2) + chosen - np.log1p(-ratio) <= np.log(error))
    rest = ~found
    found[rest] = 2 * stats.hypergeom.sf(x[rest] - 1, all_rows[rest], all_hits[rest], n[rest]) <= error
    return found


class PairBlock(NamedTuple):
    """Pairs of groups that are compared in one rate, as :func:`differences` takes them."""

    hits: IntArray | FloatArray
    rows: IntArray | FloatArray
    first: IntArray
    second: IntArray


def comparisons_by_max_t(blocks: Sequence[PairBlock], *, level: float = 0.95, seed: int = 0) -> float:
    """Return how many independent allowances (Bonferroni) pairs that share groups need, by the law of their max-|t|.

    The pairs of one rate share groups, so that their largest |t| is smaller than that of as many pairs without
    anything in common. Its law is drawn with normal deviates of the groups (Hothorn, Bretz and Westfall, Biometrical
    Journal 2008), whose variances have half a hit and half a miss added. Blocks count as independent: normal deviates
    that are not are together inside a box at least as often (Royen 2014).

    Args:
        blocks: the rates, with their pairs.
        level: how often all intervals together are to hold their true differences.
        seed: of the draws.

    Returns:
        what :func:`differences` takes as ``comparisons``: at least 1, and never more than there are pairs. It is
        their number where one rate compares more than 32 groups, because their pairs are too many to be drawn.
    """
    pairs = sum(len(block.first) for block in blocks)
    if max((len(block.rows) for block in blocks), default=0) > FEW:
        return float(max(1, pairs))
    rng = np.random.default_rng([seed, 5])
    widest = max((len(block.first) for block in blocks), default=1)
    draws = min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN // max(1, widest)))
    largest = np.zeros(draws)
    for block in blocks:
        share = (block.hits + 0.5) / (block.rows + 1)
        spread = np.sqrt(share * (1 - share) / (block.rows + 1))
        reach = np.hypot(spread[block.first], spread[block.second])
        for start in range(0, draws, 2000):
            noise = np.ascontiguousarray((rng.standard_normal((min(2000, draws - start), len(spread))) * spread).T)
            most = largest[start : start + noise.shape[1]]
            # Pair by pair in one small buffer: all pairs at once leave the processor's cache, eight times slower.
            t = np.empty_like(most)
            for i, j, scale in zip(block.first.tolist(), block.second.tolist(), reach.tolist(), strict=True):
                np.subtract(noise[i], noise[j], out=t)
                np.abs(t, out=t)
                np.divide(t, scale, out=t)
                np.maximum(most, t, out=most)
    # Three standard errors of the draws further out than the quantile itself: chance in them never narrows intervals.
    rank = math.ceil(draws * level + 3 * math.sqrt(draws * level * (1 - level)))
    critical = float(np.sort(largest)[min(rank, draws) - 1])
    return min(float(max(1, pairs)), max(1.0, (1 - level) / (2 * NormalDist().cdf(-critical))))


class ChanceRange(NamedTuple):
    """The range of rates over groups, as measured and as chance alone would make it; fractions.

    ``value`` is the highest rate less the lowest; ``expected`` the mean of that over deals in which all groups are
    alike, ``high`` its 95% quantile, and ``p`` the share of such deals with a range at least as large. ``spread`` is
    the standard deviation of the true rates, estimated without bias before the root; 0 if chance explains it all.
    """

    value: float
    expected: float
    high: float
    p: float
    spread: float


def chance_range(hits: IntArray, rows: IntArray, *, deals: int = DEALS, seed: int = 0) -> ChanceRange:
    """Compare the range of rates over groups with that of groups which are all alike.

    Args:
        hits: (groups,) successes.
        rows: (groups,) trials, at least 1 each; two groups or more.
        deals: how often the hits are dealt out anew.
        seed: of the deals.

    Returns:
        the range and what chance makes of it.
    """
    share = hits / rows
    value = float(np.ptp(share))
    rng = np.random.default_rng([seed, 3])
    if rows.sum() < 10**9:  # NumPy's limit
        dealt = rng.multivariate_hypergeometric(rows, int(hits.sum()), size=deals) / rows
    else:
        dealt = rng.binomial(rows, hits.sum() / rows.sum(), size=(deals, len(rows))) / rows
    ranges = np.ptp(dealt, axis=-1)
    p = float((1 + (ranges >= value - 1e-12).sum()) / (deals + 1))
    expected, high = float(ranges.mean()), float(np.quantile(ranges, 0.95))
    return ChanceRange(value, expected, high, p, math.sqrt(max(0.0, variance_between(hits, rows))))


def variance_between(hits: IntArray, rows: IntArray) -> float:
    """Estimate the variance of the true rates, without bias; negative where chance explains more than there is.

    The variance of the measured rates less the mean of their binomial variances p (1 - p) / (n - 1). Groups with fewer
    than two rows tell nothing of their own variance and are left out.
    """
    kept = rows > 1
    if kept.sum() < 2:
        return 0.0
    share, n = hits[kept] / rows[kept], rows[kept]
    return float(share.var(ddof=1) - (share * (1 - share) / (n - 1)).mean())


@checked
def detectable_gap(
    rate: float, first: float, second: float, *, level: float = 0.95, comparisons: float = 1, power: float = 0.8
) -> float:
    """Return the smallest difference of two rates that such rows show with probability ``power``, a fraction.

    Args:
        rate: of one group; the other's lies above or below it.
        first: rows of one group that the rate is about.
        second: rows of the other.
        level: of the intervals.
        comparisons: how many pairs share the error probability.
        power: how often the interval is to leave out 0, which the exact test must agree to.

    Returns:
        the larger of the answers above and below; NaN where no gap, however large, would be shown.
    """
    check_plan(rate, level, power, comparisons)
    if not (0 < first < math.inf and 0 < second < math.inf):
        raise ConfigError(f"There are {first} and {second} rows: each must be above 0, and finite.")
    found = []
    for sign, room in ((1, 1 - rate), (-1, rate)):
        for sizes in ((first, second), (second, first)):

            def lacking(gap: float, sign: int = sign, sizes: tuple[float, float] = sizes) -> float:
                reach, step = _reach((rate, rate + sign * gap), sizes, (1 - level) / comparisons, power)
                return reach + step - gap

            if room > 0 and lacking(room) <= 0:
                found.append(float(optimize.brentq(lacking, 1e-12, room)))
    return max(found, default=math.nan)


@checked
def rows_needed(
    gap: float,
    rate: float,
    shares: FloatArray,
    *,
    level: float = 0.95,
    comparisons: float | None = None,
    power: float = 0.8,
) -> float:
    """Return how many rows in all show a gap between any two groups with probability ``power``.

    Args:
        gap: difference of two groups' rates, a fraction.
        rate: of one of the two; the other's lies above or below, whichever needs more rows.
        shares: (groups,) of the rows; they sum to 1. The two smallest groups decide.
        level: of the intervals, which hold for all ``comparisons`` together.
        comparisons: how many pairs share the error probability. None: all pairs of these groups in one rate.
        power: how often the interval of a pair with such a gap is to leave out 0, which the exact test must agree to.

    Returns:
        rows that the rate is about, of all groups together: a whole number, or infinity.
    """
    shares = floats_of(shares, "shares", dimensions=1)
    check_plan(rate, level, power, comparisons or 1)
    if len(shares) < 2 or not ((shares > 0) & (shares <= 1)).all():
        raise ConfigError("shares must be two or more, each above 0 and at most 1.")
    if not 0 < gap <= 1:
        raise ConfigError(f"gap={gap} is not between 0 and 1. Pass 0.05 for 5 points.")
    error = (1 - level) / (comparisons or len(shares) * (len(shares) - 1) // 2)
    smallest = np.sort(shares)[:2].tolist()
    most = 0.0
    for other in (rate + gap, rate - gap):
        for sizes in (smallest, smallest[::-1]) if 0 <= other <= 1 else ():
            reach, step = _reach((rate, other), sizes, error, power)
            # N rows need reach / sqrt(N) + step / N = gap.
            with np.errstate(over="ignore"):
                most = max(most, float(((reach + np.sqrt(reach**2 + 4 * step * gap)) / (2 * np.float64(gap))) ** 2))
    return most if math.isinf(most) else math.ceil(most)


def check_plan(rate: float, level: float, power: float, comparisons: float) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for what no plan can be made for."""
    check_level(level)
    if not 0 <= rate <= 1:
        raise ConfigError(f"rate={rate} is not between 0 and 1.")
    if not EXTREME <= power <= 1 - EXTREME:
        raise ConfigError(f"power={power} is not between 0 and 1. Pass 0.8 for 80%.")
    if not 1 <= comparisons <= 1e6:
        raise ConfigError(f"comparisons={comparisons} is not between 1 and 1,000,000.")


def _reach(rates: tuple[float, float], sizes: Sequence[float], error: float, power: float) -> tuple[float, float]:
    """Return how far apart two measured rates must lie, and the step of Fisher's exact test that is added to it.

    The test allows for the variance of equal rates; its counts are whole numbers, which costs half a hit on either side
    (Fleiss, Tytun and Ury, Biometrics 1980).
    """
    each = [1 / size for size in sizes]
    pooled = (rates[0] * sizes[0] + rates[1] * sizes[1]) / sum(sizes)
    alike = max(0.0, pooled * (1 - pooled)) * sum(each)
    apart = sum(max(0.0, rate * (1 - rate)) * one for rate, one in zip(rates, each, strict=True))
    quantile = NormalDist().inv_cdf
    return quantile(1 - error / 2) * math.sqrt(alike) + quantile(power) * math.sqrt(apart), sum(each) / 2
