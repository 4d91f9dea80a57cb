"""How large could the gap be? Sharp bounds where only the groups' shares, or each row's probabilities, are known.

Nothing is assumed of how predictions depend on the group: the bounds are what the known figures leave open (Frechet).
With r = P(yhat=1) and shares p: f_a - f_b <= min(1, r/p_a) - max(0, (r + p_b - 1)/p_b), by kinds of rows where their
probabilities are known (Kallus, Mao, Zhou 2022, doi:10.1287/mnsc.2020.3850); both extremes hold at once: nothing need
be solved.

The bounds have kinks where r meets p_a or 1 - p_b, and the percentile bootstrap covers 0% there. Of shares, the rate
runs over its Wilson interval, and the bound is the extreme over all of it. :func:`by_probabilities` has intervals that
do not grow with the number of kinds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from levelhead.metrics.between import shared, wilson
from levelhead.metrics.group import FloatArray
from levelhead.metrics.signed import GAPS, ByPair, pairs_of
from levelhead.types import Estimate

TINY = 1e-12
DEALS = 5
SAME_RATIO = "the probabilities of the two groups have the same ratio in every row"


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
    def largest_reach(self) -> float:
        """The largest absolute gap with its sampling error."""
        return max(abs(self.reach_low), abs(self.reach_high))


def parity_bounds(rates: ArrayLike, shares: ArrayLike) -> FloatArray:
    """Bound f_a - f_b, sharply, if P(yhat=1) is any of ``rates`` (rates,) and the groups have ``shares`` (groups,).

    Returns:
        (groups, groups, 2): least and largest f_a - f_b.
    """
    r, p = np.atleast_1d(np.asarray(rates, np.float64))[:, None], np.asarray(shares, np.float64)
    most, least = np.minimum(r, p) / p, np.maximum(0.0, r + p - 1) / p
    low, high = least[:, :, None] - most[:, None], most[:, :, None] - least[:, None]
    return np.stack([low.min(0), high.max(0)], -1)


def opportunity_bounds(
    hits: Sequence[float], misses: Sequence[float], negative: float, a: float, b: float
) -> tuple[float, float]:
    """Return the least and the largest TPR_a - TPR_b of groups with the shares ``a`` and ``b``.

    Hits and misses lie between their ends, and ``negative``, the rows without the label, is at its upper one. Of two
    groups, what one has the other has not; of more, the rate of each is bounded for itself.
    """
    (hit, hit_up), (miss, miss_up) = hits, misses

    def most(first: float, second: float, share: float) -> tuple[float, float]:
        """The most of ``first`` that a group can have, and the least of ``second`` beside it."""
        mine = min(first, share)
        return mine, min(max(0.0, share - negative - mine), second)

    mine, missed = most(hit_up, miss_up, a)
    low_missed, low_mine = most(miss_up, hit_up, a)
    if a + b > 1 - TINY:
        other, other_missed = max(0.0, hit - a), miss_up - missed
        low_other, low_other_missed = hit_up - low_mine, max(0.0, miss - a)
    else:
        other_missed, other = most(miss_up, hit_up, b)
        low_other, low_other_missed = most(hit_up, miss_up, b)
    low = _rate(low_mine, low_missed, 0.0) - _rate(low_other, low_other_missed, 1.0)
    return low, _rate(mine, missed, 0.0) - _rate(other, other_missed, 0.0)


def _rate(hits: float, misses: float, otherwise: float) -> float:
    """Return the share of hits; ``otherwise`` where a group may have no row with the label."""
    return hits / (hits + misses) if hits + misses > 1e-15 else otherwise


def by_shares(counts: ArrayLike, shares: ArrayLike, *, level: float = 0.95, assumes: str = "") -> ByPair[GapBounds]:
    """Bound every gap of every pair of groups.

    Args:
        counts: (label 2, prediction 2) rows.
        shares: (groups,) of all rows, above 0; they add to 1.
        level: confidence level.
        assumes: what the shares are based on.

    Returns:
        by gap and pair (a, b), bounds of f_a - f_b. For true and false positive rates of more than two groups they are
        valid but not sharp.
    """
    table, p = np.asarray(counts, np.float64), np.asarray(shares, np.float64)
    n, pairs, out = table.sum(), pairs_of(len(p)), ByPair[GapBounds]()
    rate, hits = table[:, 1].sum() / n, table[:, 1].sum()
    low, high = wilson(hits, n, level)
    # Piecewise linear in the rate: the extreme is at an end or at a kink.
    rates = np.clip([low, high, *p, *(1 - p)], low, high)
    sharp, reach = parity_bounds(rate, p), parity_bounds(rates, p)
    out["demographic_parity"] = {at: _bounds(sharp[at], reach[at], n, assumes) for at in pairs}
    for gap, own in (("equal_opportunity", table), ("false_positive_rate", table[::-1])):
        rows = own[1, 1], own[1, 0], own[0].sum()
        hit, miss, negative = (float(one / n) for one in rows)
        hit_ends, miss_ends, negative_ends = ([*map(float, wilson(one, n, shared(level, 3)))] for one in rows)
        out[gap] = {}
        for a, b in pairs:
            found = opportunity_bounds((hit, hit), (miss, miss), negative, p[a], p[b])
            reached = opportunity_bounds(hit_ends, miss_ends, negative_ends[1], p[a], p[b])
            out[gap][a, b] = _bounds(found, reached, own[1].sum(), assumes)
    return out


def _bounds(found: ArrayLike, reach: Sequence[float] | FloatArray, n: float, assumes: str) -> GapBounds:
    low, high = np.sort(np.clip(np.asarray(found, np.float64), -1, 1)).tolist()  # equal ends may be off by a digit
    return GapBounds(
        low, high, max(-1.0, min(low, float(reach[0]))), min(1.0, max(high, float(reach[1]))), int(n), assumes
    )


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
        sums: (cells, label 2, prediction 2, 1 + groups, 1 + groups): sums over rows of v v', with v = (1, p_1, ...);
            no group has a probability of 0 in every row.
        level: confidence level, shared among the pairs.
        seed: deals the rows to halves.
        assumes: what the bounds are based on.

    Returns:
        bounds of f_a - f_b by gap and pair (a, b), and the weighted estimates sum p_a yhat / sum p_a less the same of
        b, with Student's intervals for the sampling of rows alone. They are the gap where predictions do not depend on
        the group among rows of equal probabilities (Chen, Kallus, Mao, Svacha and Udell, FAT* 2019, arXiv:1811.11154).
    """
    table = np.asarray(sums, np.float64)
    table = table[table[..., 0, 0].sum((1, 2)) > 0]
    rows, mass = table[..., 0, 0], table[..., 0, 1:]
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
