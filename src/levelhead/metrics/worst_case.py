"""How large could the gap be? Sharp bounds where only shares, or P(group | stratum), are known.

Nothing is assumed of how predictions depend on the group: the bounds are what the known figures leave open (Frechet).
With r = P(yhat=1) and shares p: f_a - f_b <= min(1, r/p_a) - max(0, (r + p_b - 1)/p_b), stratum by stratum where there
are strata (Kallus, Mao, Zhou 2022, doi:10.1287/mnsc.2020.3850); both extremes hold at once: nothing need be solved.

The bounds have kinks where r meets p_a or 1 - p_b, and the percentile bootstrap covers 0% there. Of a few strata each
rate runs over its Wilson interval, at a level shared among the strata, and the bound is the extreme over all of them.
How many rows each stratum has is chance, too: a normal interval of the strata's weights has one more part of the level.
Of many, and of probabilities, :func:`by_probabilities` has intervals that do not grow with the number of strata.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from levelhead.metrics.between import Ends, normal_quantile, shared, wilson
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import resampled
from levelhead.metrics.signed import GAPS, ByPair, pairs_of
from levelhead.types import DataError, Estimate

TINY = 1e-12
DEALS = 5
Parts = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Two rates that a bound is the difference of, (strata,) each: hits and misses of one group, and of the other."""
SAME_RATIO = "the probabilities of the two groups have the same ratio in every row"
FEW_STRATA = 10
"""Up to this many strata their rates' intervals are projected, which holds exactly at kinks."""


@dataclass(frozen=True)
class GapBounds:
    """The largest and the smallest f_a - f_b that is possible: for these rows, and with their sampling error.

    ``low`` and ``high`` are those of the rows as they are; [``reach_low``, ``reach_high``] holds the bounds of the
    population with 95% confidence. ``assumes`` says what the shares are based on.
    """

    low: float
    high: float
    reach_low: float
    reach_high: float
    n: int
    assumes: str = ""

    @property
    def largest(self) -> float:
        """The largest absolute gap."""
        return max(abs(self.low), abs(self.high))

    @property
    def largest_reach(self) -> float:
        """The largest absolute gap with its sampling error."""
        return max(abs(self.reach_low), abs(self.reach_high))


def parity_bounds(rate: ArrayLike, shares: ArrayLike, weight: ArrayLike = 1.0) -> FloatArray:
    """Bound f_a - f_b, sharply.

    Args:
        rate: (strata,) or a number: P(yhat=1 | stratum).
        shares: (strata, groups) or (groups,): P(group | stratum).
        weight: (strata,) P(stratum); 1 for one.

    Returns:
        (groups, groups, 2): least and largest f_a - f_b.
    """
    r, w = np.atleast_1d(np.asarray(rate, np.float64)), np.atleast_1d(np.asarray(weight, np.float64))
    p = np.atleast_2d(np.asarray(shares, np.float64))
    total = w @ p
    with np.errstate(invalid="ignore", divide="ignore"):
        most = w @ np.minimum(r[:, None], p) / total
        least = w @ np.maximum(0.0, r[:, None] + p - 1) / total
    return np.stack([least[:, None] - most[None], most[:, None] - least[None]], -1)


def _parity_parts(rate: FloatArray, a: FloatArray, b: FloatArray) -> tuple[Parts, Parts]:
    """What the least and the largest f_a - f_b are made of, where ``a`` and ``b`` (strata,) are the groups' shares."""

    def ends(share: FloatArray) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        least, most = np.maximum(0, rate + share - 1), np.minimum(rate, share)
        return (least, share - least), (most, share - most)

    (least_a, most_a), (least_b, most_b) = ends(a), ends(b)
    return (*least_a, *most_b), (*most_a, *least_b)


def _parity_reach(low: FloatArray, high: FloatArray, p: FloatArray, w: FloatArray, a: int, b: int) -> tuple[float, ...]:
    """The extremes of the bounds where each stratum's rate may lie anywhere between ``low`` and ``high``."""
    total = w @ p

    def at(rate: FloatArray) -> tuple[FloatArray, FloatArray]:
        up = np.minimum(rate, p[:, a]) / total[a] - np.maximum(0, rate + p[:, b] - 1) / total[b]
        down = np.maximum(0, rate + p[:, a] - 1) / total[a] - np.minimum(rate, p[:, b]) / total[b]
        return up, down

    # Piecewise linear in the rate: the extreme is at an end or at a kink.
    kinks = [low, high, *(np.clip(kink, low, high) for kink in (p[:, a], 1 - p[:, b], p[:, b], 1 - p[:, a]))]
    ups, downs = zip(*map(at, kinks), strict=True)
    return float(w @ np.min(downs, 0)), float(w @ np.max(ups, 0))


def _parts(table: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(strata, 2, 2) -> hits and misses among the rows with the label, and the rows without it, (strata,) each."""
    return table[:, 1, 1], table[:, 1, 0], table[:, 0].sum(-1)


def _opportunity_parts(hits: Ends, misses: Ends, negative: FloatArray, p: FloatArray) -> tuple[Parts, Parts]:
    """What the least and the largest TPR_1 - TPR_0 are made of.

    Hits and misses lie between their ends, and ``negative`` is the upper one.
    """
    (hit, hit_up), (miss, miss_up) = hits, misses
    # TPR_1 - TPR_0 rises in mine and other_missed, and falls in missed and other: take each at its extreme.
    mine = np.minimum(hit_up, p)
    missed = np.clip(p - negative - mine, 0, miss_up)
    up = mine, missed, np.maximum(0, hit - p), miss_up - missed
    missed = np.minimum(miss_up, p)
    mine = np.clip(p - negative - missed, 0, hit_up)
    return (mine, missed, hit_up - mine, np.maximum(0, miss - p)), up


def _opportunity(parts: tuple[Parts, Parts], w: FloatArray) -> tuple[float, float]:
    """The least and the largest TPR_1 - TPR_0."""
    low, up = parts
    return _ratio_gap(low, w, False), _ratio_gap(up, w, True)


def _of_sizes(parts: Parts, w: FloatArray, n: float) -> float:
    """The standard error of a bound where ``n`` rows fall into strata with the chances ``w``."""

    def slope(hits: FloatArray, misses: FloatArray) -> FloatArray:
        total = w @ (hits + misses)
        rate = w @ hits / total if total > TINY else 0.0
        return (hits * (1 - rate) - misses * rate) / total if total > TINY else 0 * hits

    mine, missed, other, other_missed = parts
    return math.sqrt(w @ (slope(mine, missed) - slope(other, other_missed)) ** 2 / n)


def _ratio_gap(parts: Parts, w: FloatArray, up: bool) -> float:
    """TPR of one group less that of the other; a group that may have no positives gets the extreme rate."""
    mine, missed, other, other_missed = (float(w @ one) for one in parts)
    first = mine / (mine + missed) if mine + missed > 1e-15 else (1.0 if up and other > 1e-15 else 0.0)
    rest = other + other_missed
    second = other / rest if rest > 1e-15 else (0.0 if up else 1.0)
    return first - second


def by_shares(
    counts: ArrayLike, shares: ArrayLike, *, level: float = 0.95, seed: int = 0, assumes: str = ""
) -> ByPair[GapBounds]:
    """Bound every gap of every pair of groups.

    Args:
        counts: (strata, label 2, prediction 2) or (2, 2) rows.
        shares: (strata, groups) or (groups,): P(group | stratum), over all labels.
        level: confidence level.
        seed: deals the rows of more than :data:`FEW_STRATA` strata to halves.
        assumes: what the shares are based on.

    Returns:
        by gap and pair (a, b), bounds of f_a - f_b. For true and false positive rates of more than two groups they are
        valid but not sharp.

    Raises:
        DataError: shares that are no probabilities.
    """
    table = np.asarray(counts, np.float64).reshape(-1, 2, 2)
    p = np.atleast_2d(np.asarray(shares, np.float64))
    if not np.isfinite(p).all() or (p < 0).any() or (p > 1).any() or (np.abs(p.sum(-1) - 1) > 1e-6).any():
        raise DataError("The shares of the groups must lie between 0 and 1 and add to 1, in every stratum.")
    size = table.sum((1, 2))
    table, p = table[size > 0], p[size > 0]
    size = size[size > 0]
    w = size / size.sum()
    if (w @ p <= 0).any():
        raise DataError("A group has a share of 0 in every stratum: leave it out, and the others must add to 1.")
    pairs = pairs_of(p.shape[1])
    if len(p) > FEW_STRATA:
        each = np.concatenate([np.ones((len(p), 1)), p], 1)
        outer = (each[:, :, None] * each[:, None, :])[:, None, None]
        return by_probabilities(table[..., None, None] * outer, level=level, seed=seed, assumes=assumes)[0]
    out: ByPair[GapBounds] = {}
    n, more = size.sum(), int(len(p) > 1)  # one stratum has all rows, which is not chance
    hits = table[:, :, 1].sum(1)
    part = shared(level, len(p) + more)
    sharp, ends = parity_bounds(hits / size, p, w), wilson(hits, size, part)
    out["demographic_parity"] = {}
    for a, b in pairs:
        parts = _parity_parts(hits / size, p[:, a], p[:, b])
        reach = _widened(_parity_reach(*ends, p, w, a, b), parts, w, n, part)
        out["demographic_parity"][a, b] = _bounds(sharp[a, b], reach, n, assumes)
    for gap, own in (("equal_opportunity", table), ("false_positive_rate", table[:, ::-1])):
        hit, miss, negative = _parts(own / size[:, None, None])
        part = shared(level, 3 * len(own) + more)
        hit_ends, miss_ends, negative_ends = (wilson(rows, size, part) for rows in _parts(own))
        out[gap] = {}
        for a, b in pairs:
            if p.shape[1] == 2:
                parts = _opportunity_parts((hit, hit), (miss, miss), negative, p[:, a])
                found = _opportunity(parts, w)
                reach = _opportunity(_opportunity_parts(hit_ends, miss_ends, negative_ends[1], p[:, a]), w)
            else:
                parts = _outer_parts(hit, miss, negative, p[:, a], p[:, b])
                found = _outer(parts, w)
                reach = _outer(_outer_parts(hit_ends[1], miss_ends[1], negative_ends[1], p[:, a], p[:, b]), w)
            out[gap][a, b] = _bounds(found, _widened(reach, parts, w, n, part), own[:, 1].sum(), assumes)
    return out


def _widened(
    reach: tuple[float, ...], parts: tuple[Parts, Parts], w: FloatArray, n: float, level: float
) -> tuple[float, float]:
    """Add to what the rates of strata leave open how far the strata's weights may be off."""
    low, up = (normal_quantile(level) * _of_sizes(one, w, n) for one in parts)
    return reach[0] - low, reach[1] + up


def _bounds(found: ArrayLike, reach: tuple[float, ...], n: float, assumes: str) -> GapBounds:
    low, high = np.sort(np.clip(np.asarray(found, np.float64), -1, 1)).tolist()  # equal ends may be off by a digit
    return GapBounds(low, high, max(-1.0, min(low, reach[0])), min(1.0, max(high, reach[1])), int(n), assumes)


def _outer_parts(
    hit: FloatArray, miss: FloatArray, negative: FloatArray, a: FloatArray, b: FloatArray
) -> tuple[Parts, Parts]:
    """What the least and the largest TPR_a - TPR_b are made of, each group's rate for itself."""

    def most(first: FloatArray, second: FloatArray, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The most of ``first`` that a group can have, and the least of ``second`` beside it."""
        one = np.minimum(first, p)
        return one, np.clip(p - negative - one, 0, second)

    return (*most(miss, hit, a)[::-1], *most(hit, miss, b)), (*most(hit, miss, a), *most(miss, hit, b)[::-1])


def _outer(parts: tuple[Parts, Parts], w: FloatArray) -> tuple[float, float]:
    """The least and the largest TPR_a - TPR_b; a group that may have no row with the label has any rate."""

    def rate(hits: FloatArray, misses: FloatArray, otherwise: float) -> float:
        one, other = w @ hits, w @ misses
        return float(one / (one + other)) if one + other > 1e-15 else otherwise

    (mine, missed, other, other_missed), up = parts
    low = rate(mine, missed, 0.0) - rate(other, other_missed, 1.0)
    return low, rate(up[0], up[1], 1.0) - rate(up[2], up[3], 0.0)


def by_probabilities(
    sums: ArrayLike, *, level: float = 0.95, seed: int = 0, assumes: str = ""
) -> tuple[ByPair[GapBounds], ByPair[Estimate]]:
    """Bound every gap of every pair of groups by each row's probabilities, and estimate it by weights.

    Bounds of rates of strata are sums of terms such as min(r, p), which are at most c r + (1 - c) p for any c of 0 and
    1. Half of the rows say for each cell of probabilities which c is best, and the mean over the other half is then
    unbiased for a bound of the truth, whose variance is that of a mean of rows: dual bounds (Ji, Lei and Spector 2023,
    arXiv:2310.08115). The halves change places. Intervals of the rates of many strata, each projected, add up instead
    of averaging out. Where halves could disagree, the variance is the larger of both choices.

    Args:
        sums: (cells, label 2, prediction 2, 1 + groups, 1 + groups): sums over rows of v v', with v = (1, p_1, ...).
        level: confidence level, shared among the pairs.
        seed: deals the rows to halves.
        assumes: what the bounds are based on.

    Returns:
        bounds of f_a - f_b by gap and pair (a, b), and the weighted estimates sum p_a yhat / sum p_a less the same of
        b, with Student's intervals for the sampling of rows alone. They are the gap where predictions do not depend on
        the group among rows of equal probabilities (Chen, Kallus, Mao, Svacha and Udell, FAT* 2019, arXiv:1811.11154).

    Raises:
        DataError: a group has a probability of 0 in every row.
    """
    table = np.asarray(sums, np.float64)
    table = table[table[..., 0, 0].sum((1, 2)) > 0]
    rows, mass = table[..., 0, 0], table[..., 0, 1:]
    if (mass.sum((0, 1, 2)) <= 0).any():
        raise DataError("A group has a probability of 0 in every row: leave it out.")
    n, pairs = rows.sum(), pairs_of(mass.shape[-1])
    part = shared(level, len(pairs))
    z = NormalDist().inv_cdf((1 + part) / 2)
    dealt = np.random.default_rng(seed).binomial(rows.astype(np.int64), 0.5, (DEALS, *rows.shape))
    # Two rows of each kind are added to variances, so that a kind without rows has some (Agresti and Coull 1998).
    spread = table + 2 * table.sum((1, 2))[:, None, None] / n
    bounds: ByPair[GapBounds] = {}
    weighted: ByPair[Estimate] = {}
    for gap, label in GAPS.items():
        counted = np.ones((2, 1)) if label is None else (np.arange(2) == label)[:, None].astype(float)
        hit, miss = counted * [0.0, 1.0], counted * [1.0, 0.0]
        extremes = [
            tuple(_Extreme.of(table, np.stack([one, rows - one]), *of) for of in ((hit, miss), (miss, hit)))
            for one in dealt
        ]
        most, least = extremes[0]
        own = (mass.sum(0) * (hit + miss)[..., None]).sum((0, 1))
        rate = (mass.sum(0) * hit[..., None]).sum((0, 1)) / np.where(own > TINY, own, np.nan)
        slope = (hit[..., None] - rate * (hit + miss)[..., None]) * n / own
        on = int((rows * (hit + miss)).sum())
        bounds[gap], weighted[gap] = {}, {}
        for a, b in pairs:
            plain = 1 - least.plain[a] - most.plain[b], most.plain[a] - 1 + least.plain[b]
            # Over several deals, which leave less to chance: each gives an end that holds.
            down = [
                1 - low.estimate[a] - up.estimate[b] - z * _error(low, up, spread, a, b) / n for up, low in extremes
            ]
            above = [
                up.estimate[a] - 1 + low.estimate[b] + z * _error(up, low, spread, a, b) / n for up, low in extremes
            ]
            bounds[gap][a, b] = _bounds(plain, (float(np.mean(down)), float(np.mean(above))), on, assumes)
            value = float(rate[a] - rate[b])
            if math.isnan(value):
                weighted[gap][a, b] = Estimate.undefined("no row has this label", on)
                continue
            parts = 0.0 * slope[..., a], slope[..., a], -slope[..., b]
            of_rows, variance = _squares(*parts, table, a, b), _squares(*parts, spread, a, b).sum()
            if variance <= TINY * _squares(parts[0], parts[1], parts[0], spread, a, b).sum():
                weighted[gap][a, b] = Estimate.undefined(SAME_RATIO, on)
                continue
            # Where few rows have most of the influence, the variance is known no better than from so few.
            few = of_rows.sum() ** 2 / max(TINY, np.divide(of_rows**2, rows, where=rows > 0, out=0 * of_rows).sum())
            error = float(special.stdtrit(max(1.0, few), (1 + part) / 2)) / n
            error *= math.sqrt(variance)
            weighted[gap][a, b] = Estimate(value, max(-1.0, value - error), min(1.0, value + error), on)
    return bounds, weighted


def _squares(constant: Any, of_a: Any, of_b: Any, sums: FloatArray, a: int, b: int) -> FloatArray:
    """Sums of (constant + of_a p_a + of_b p_b)^2 over the rows of each cell, label and prediction."""
    vector = {0: constant, a + 1: of_a, b + 1: of_b}
    found = sum(vector[i] * vector[j] * sums[..., i, j] for i in vector for j in vector)
    return np.maximum(0.0, found)  # rounding can take a sum of squares below 0


def _error(first: _Extreme, second: _Extreme, sums: FloatArray, a: int, b: int) -> float:
    """The standard error of first.estimate[a] + second.estimate[b], times the number of rows."""
    constant = first.constant[..., a] + second.constant[..., b]
    return math.sqrt(_squares(constant, first.slope[..., a], second.slope[..., b], sums, a, b).max(0).sum())


@dataclass(frozen=True)
class _Extreme:
    """The largest rate that each group can have: for these rows, (groups,), and as an estimate with its influence.

    ``constant`` and ``slope`` (choices, cells, 2, 2, groups) make the influence of a row on ``estimate``: constant +
    slope p. Of the choices, two are those of the halves, and one is that of cells whose choice is doubtful.
    """

    plain: FloatArray
    estimate: FloatArray
    constant: FloatArray
    slope: FloatArray

    @classmethod
    def of(cls, sums: FloatArray, halves: FloatArray, hit: FloatArray, miss: FloatArray) -> _Extreme:
        """Find them; ``halves`` (2, cells, 2, 2) are rows, and ``hit`` and ``miss`` (2, 2) what a rate counts."""
        rows, mass = sums[..., 0, 0], sums[..., 0, 1:]
        size, n = rows.sum((1, 2)), rows.sum()
        p = mass.sum((1, 2)) / size[:, None]

        def shares(table: FloatArray, of: FloatArray) -> FloatArray:
            """Share of rows in each cell, drawn to that of all by two rows: (..., cells, 1)."""
            counted = (table * of).sum((-2, -1)) + 2 * (rows * of).sum() / n
            return np.asarray(counted / (table.sum((-2, -1)) + 2))[..., None]

        hits, misses = ((rows * one).sum((1, 2))[:, None] / size[:, None] for one in (hit, miss))
        most, least = size @ np.minimum(hits, p), size @ np.maximum(0, p - 1 + misses)
        # A half is judged by what the other one says: then its mean bounds the truth, whatever was chosen.
        reach = 2 * np.sqrt(p * (1 - p) / size[:, None])
        other = halves[::-1]
        taken = np.stack([*(shares(other, hit) < p), hits < p + reach]).astype(float)[:, :, None, None]
        forced = np.stack([*(p - 1 + shares(other, miss) > 0), p - 1 + misses + reach > 0])
        forced = forced.astype(float)[:, :, None, None]
        h, m = hit[..., None], miss[..., None]
        parts = np.divide(halves, rows, out=np.full_like(halves, 0.5), where=rows > 0)[..., None]

        def mean(constant: FloatArray, slope: FloatArray) -> FloatArray:
            return np.asarray((parts * (rows[..., None] * constant[:2] + mass * slope[:2])).sum((0, 1, 2, 3)) / n)

        up, down = mean(taken * h, 1 - taken + 0 * h), np.maximum(0, mean(forced * (m - 1), forced + 0 * m))
        whole = up + down
        found = np.divide(up, whole, out=np.ones_like(up), where=whole > TINY)
        scale = np.where(whole > TINY, whole, np.inf)
        return cls(
            np.divide(most, most + least, out=np.ones_like(most), where=most + least > TINY),
            found,
            ((1 - found) * taken * h - found * forced * (m - 1)) / scale,
            ((1 - found) * (1 - taken) - found * forced + 0 * h) / scale,
        )


def bracket(
    sums: ArrayLike, bins: ArrayLike, *, level: float = 0.95, replicates: int = 1000, seed: int = 0
) -> tuple[Estimate, Estimate]:
    """Return the weighted and the linear estimate of f_1 - f_0 in selection rates from calibrated probabilities.

    D - weighted = E cov(A, yhat | b) / (p (1-p)) and linear - D = E cov(b, yhat | A) / var(b): where both covariances
    have one sign, the gap D lies between the two (Elzayn et al. 2023, arXiv:2310.01679).

    Args:
        sums: (prediction 2, j 3): sums of b^j over all rows.
        bins: (bins, prediction 2, j 2 or more): the same by ranges of b, for the bootstrap.
        level: confidence level.
        replicates: bootstrap replicates.
        seed: of the bootstrap.

    Returns:
        the two estimates; undefined where b does not vary.
    """
    s, by_bin = np.asarray(sums, np.float64), np.asarray(bins, np.float64)
    n = int(s[:, 0].sum())
    ends = _bracket_ends(s)
    if np.isnan(ends).any():
        none = Estimate.refuse("the proxy is the same in every row", n)
        return none, none
    rows = by_bin[..., 0]
    mean = np.divide(by_bin[..., 1], rows, out=np.zeros_like(rows), where=rows > 0)
    drawn = resampled(rows, replicates, seed)
    found = _bracket_ends(np.stack([(drawn * mean**j).sum(1) for j in range(3)], -1))
    tail = (1 - level) / 2
    figures = []
    for value, own in zip(ends, found, strict=True):
        shift = value - float(np.nanmedian(own))  # a bin's mean represents its rows
        low, high = np.nanquantile(own, [tail, 1 - tail])
        figures.append(Estimate(float(value), float(low + shift), float(high + shift), n))
    return figures[0], figures[1]


def _bracket_ends(s: FloatArray) -> FloatArray:
    """(..., prediction, j) -> (2, ...): cov(b, yhat) / (p(1-p)) and cov(b, yhat) / var(b)."""
    n = s[..., 0].sum(-1)
    mean, square = s[..., 1].sum(-1) / n, s[..., 2].sum(-1) / n
    covariance = s[..., 1, 1] / n - mean * s[..., 1, 0] / n
    spread = square - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.where(spread > 1e-12, spread, np.nan)
        return np.stack([np.where(np.isnan(spread), np.nan, covariance / (mean * (1 - mean))), covariance / spread])


def sign_conditions(labelled: ArrayLike) -> tuple[int, int]:
    """Check the two conditions of a bracket on labelled rows.

    Args:
        labelled: (group 2, prediction 2, j 3) sums of b^j.

    Returns:
        the signs (within_probability, within_group), each 1, -1 or, where it is unknown, 0, at one-sided 95%.
    """
    s = np.asarray(labelled, np.float64)
    n = s[..., 0].sum()
    if n < 2 or (s[..., 0].sum(1) < 2).any():
        return 0, 0
    # If b is calibrated, E cov(A, yhat | b) = E (A - b) yhat.
    first = s[1, 1, 0] - s[:, 1, 1].sum()
    second = (s[1, 1, 0] - 2 * s[1, 1, 1] + s[1, 1, 2]) + s[0, 1, 2]
    sizes = s[..., 0].sum(1)
    rate, mean = s[:, 1, 0] / sizes, s[..., 1].sum(1) / sizes
    away = np.array([0.0, 1.0])[None] - rate[:, None]
    e_first = s[..., 1] - mean[:, None] * s[..., 0]
    e_second = s[..., 2] - 2 * mean[:, None] * s[..., 1] + mean[:, None] ** 2 * s[..., 0]
    return _sign(first, second, n), _sign(float((away * e_first).sum()), float((away**2 * e_second).sum()), n)


def _sign(total: float, squares: float, n: float) -> int:
    mean = total / n
    error = math.sqrt(max(0.0, squares / n - mean**2) / n)
    return int(np.sign(mean)) if abs(mean) > 1.645 * error > 0 else 0
