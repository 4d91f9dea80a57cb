"""How large could the gap be? Sharp bounds where only shares, or P(group | stratum), are known.

Nothing is assumed of how predictions depend on the group: the bounds are what the known figures leave open (Frechet).
With r = P(yhat=1) and shares p: f_a - f_b <= min(1, r/p_a) - max(0, (r + p_b - 1)/p_b), stratum by stratum where there
are strata (Kallus, Mao, Zhou 2022, doi:10.1287/mnsc.2020.3850); both extremes hold at once: nothing need be solved.

The bounds have kinks where r meets p_a or 1 - p_b, and the percentile bootstrap covers 0% there. Instead each stratum's
rate runs over its Wilson interval, at a level shared among the strata, and the bound is the extreme over all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from levelhead.auditing.missing.gaps import GAPS, FloatArray, pairs_of, rows_of
from levelhead.metrics.between import shared, wilson
from levelhead.types import DataError, Estimate

ASSUMES_SHARES = "nothing but the shares that were given"
ASSUMES_STRATA = "nothing but the shares that were given for each stratum"
ASSUMES_PROBABILITIES = "the proxy is calibrated: of the rows with probability 0.3, three in ten are in the group"


@dataclass(frozen=True)
class GapBounds:
    """The largest and the smallest f_a - f_b that is possible: for these rows, and with their sampling error.

    ``low`` and ``high`` are those of the rows as they are; [``reach_low``, ``reach_high``] holds the bounds of the
    population with 95% confidence.
    """

    low: float
    high: float
    reach_low: float
    reach_high: float
    n: int
    assumes: str

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


def opportunity_bounds(cells: ArrayLike, share: ArrayLike, weight: ArrayLike = 1.0) -> tuple[float, float]:
    """Bound the gap in true positive rates of two groups where the shares are over all labels.

    Args:
        cells: (strata, label 2, prediction 2) or (2, 2): P(label, prediction | stratum).
        share: (strata,) or a number: P(group 1 | stratum).
        weight: (strata,) P(stratum).

    Returns:
        the least and the largest TPR of group 1 minus that of the other. Swap the labels for false positive rates.
    """
    q = np.asarray(cells, np.float64).reshape(-1, 2, 2)
    p, w = np.atleast_1d(np.asarray(share, np.float64)), np.atleast_1d(np.asarray(weight, np.float64))
    return (
        _opportunity(q[:, 1, 1], q[:, 1, 0], q[:, 0].sum(-1), p, w, up=False),
        _opportunity(q[:, 1, 1], q[:, 1, 0], q[:, 0].sum(-1), p, w, up=True),
    )


def _opportunity(
    hit: FloatArray, miss: FloatArray, negative: FloatArray, p: FloatArray, w: FloatArray, *, up: bool
) -> float:
    if up:
        mine = np.minimum(hit, p)
        missed = np.clip(p - negative - mine, 0, miss)
    else:
        missed = np.minimum(miss, p)
        mine = np.clip(p - negative - missed, 0, hit)
    return _ratio_gap(w @ mine, w @ missed, w @ (hit - mine), w @ (miss - missed), up)


def _ratio_gap(mine: Any, missed: Any, other: Any, other_missed: Any, up: bool) -> float:
    """TPR of one group less that of the other; a group that may have no positives gets the extreme rate."""
    first = mine / (mine + missed) if mine + missed > 1e-15 else (1.0 if up and other > 1e-15 else 0.0)
    rest = other + other_missed
    second = other / rest if rest > 1e-15 else (0.0 if up else 1.0)
    return float(first - second)


def _opportunity_reach(own: FloatArray, p: FloatArray, w: FloatArray, level: float) -> tuple[float, float]:
    """The extremes of the two bounds, each cell anywhere in its Wilson interval: own (strata, 2, 2) rows."""
    n = own.sum((1, 2))
    part = shared(level, 3 * len(own))
    (hit, hit_up), (miss, miss_up), (_, negative_up) = (
        wilson(k, n, part) for k in (own[:, 1, 1], own[:, 1, 0], own[:, 0].sum(-1))
    )
    # TPR_1 - TPR_0 rises in mine and other_missed, and falls in missed and other: take each at its extreme.
    mine = np.minimum(hit_up, p)
    missed = np.maximum(0, p - negative_up - mine)
    up = _ratio_gap(w @ mine, w @ missed, w @ np.maximum(0, hit - p), w @ (miss_up - np.minimum(miss_up, missed)), True)
    missed = np.minimum(miss_up, p)
    mine = np.maximum(0, p - negative_up - missed)
    other = hit_up - np.minimum(hit_up, mine)
    low = _ratio_gap(w @ mine, w @ missed, w @ other, w @ np.maximum(0, miss - p), False)
    return low, up


def by_shares(
    counts: ArrayLike, shares: ArrayLike, *, level: float = 0.95, assumes: str = ASSUMES_SHARES
) -> dict[str, dict[tuple[int, int], GapBounds]]:
    """Bound every gap of every pair of groups.

    Args:
        counts: (strata, label 2, prediction 2) or (2, 2) rows.
        shares: (strata, groups) or (groups,): P(group | stratum), over all labels.
        level: confidence level.
        assumes: what the shares rest on.

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
    n, w = float(size.sum()), size / size.sum()
    if (w @ p <= 0).any():
        raise DataError("A group has a share of 0 in every stratum: leave it out, and the others must add to 1.")
    out: dict[str, dict[tuple[int, int], GapBounds]] = {gap: {} for gap in GAPS}
    pairs = pairs_of(p.shape[1])
    hits = table[:, :, 1].sum(1)
    sharp = parity_bounds(hits / size, p, w)
    ends = wilson(hits, size, shared(level, len(size)))
    for a, b in pairs:
        low, high = _parity_reach(*ends, p, w, a, b)
        out["demographic_parity"][a, b] = _bounds(sharp[a, b, 0], sharp[a, b, 1], low, high, n, assumes)
    for gap, own in (("equal_opportunity", table), ("false_positive_rate", table[:, ::-1])):
        rows = float(own[:, 1].sum())
        cells = own / size[:, None, None]
        for a, b in pairs:
            if p.shape[1] == 2:
                found = opportunity_bounds(cells, p[:, a], w)
                reach = _opportunity_reach(own, p[:, a], w, level)
            else:
                found = _outer(cells, p[:, a], p[:, b], w)
                reach = _outer_reach(own, p[:, a], p[:, b], w, level)
            out[gap][a, b] = _bounds(*found, *reach, rows, assumes)
    return out


def _bounds(low: float, high: float, reach_low: float, reach_high: float, n: float, assumes: str) -> GapBounds:
    low, high = max(-1.0, float(low)), min(1.0, float(high))
    return GapBounds(low, high, max(-1.0, min(low, reach_low)), min(1.0, max(high, reach_high)), int(n), assumes)


def _rate_ends(hit: FloatArray, miss: FloatArray, negative: FloatArray, p: FloatArray, w: FloatArray) -> list[float]:
    """Least and largest TPR of one group, whatever the others are."""
    ends = []
    for first, second in ((miss, hit), (hit, miss)):
        one = w @ np.minimum(first, p)
        other = w @ np.clip(p - negative - np.minimum(first, p), 0, second)
        ends.append(float(one / (one + other)) if one + other > 1e-15 else 1.0)
    return [1 - ends[0], ends[1]]


def _outer(cells: FloatArray, a: FloatArray, b: FloatArray, w: FloatArray) -> tuple[float, float]:
    parts = cells[:, 1, 1], cells[:, 1, 0], cells[:, 0].sum(-1)
    low_a, high_a = _rate_ends(*parts, a, w)
    low_b, high_b = _rate_ends(*parts, b, w)
    return low_a - high_b, high_a - low_b


def _outer_reach(own: FloatArray, a: FloatArray, b: FloatArray, w: FloatArray, level: float) -> tuple[float, float]:
    n = own.sum((1, 2))
    part = shared(level, 3 * len(own))
    hit, miss = (wilson(k, n, part)[1] for k in (own[:, 1, 1], own[:, 1, 0]))
    negative = wilson(own[:, 0].sum(-1), n, part)[1]
    low_a, high_a = _rate_ends(hit, miss, negative, a, w)
    low_b, high_b = _rate_ends(hit, miss, negative, b, w)
    return low_a - high_b, high_a - low_b


def largest_gap(rate: float, least_share: float) -> float:
    """Return how large a gap in selection rates could be if each of two groups has at least a share of the rows.

    With a least share of 0 it is 1, whatever the rate: a group could hold those who were selected, and no one else.
    """
    few = min(rate, 1 - rate)
    return 1.0 if few >= least_share or least_share <= 0 else few / least_share


@dataclass(frozen=True)
class Bracket:
    """The weighted and the linear estimate of f_1 - f_0 in selection rates from calibrated probabilities.

    D - weighted = E cov(A, yhat | b) / (p (1-p)) and linear - D = E cov(b, yhat | A) / var(b): where both covariances
    have one sign, the gap D lies between the two (Elzayn et al. 2023, arXiv:2310.01679).
    """

    weighted: Estimate
    linear: Estimate


def bracket(sums: ArrayLike, bins: ArrayLike, *, level: float = 0.95, replicates: int = 1000, seed: int = 0) -> Bracket:
    """Estimate both ends.

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
    ends = _bracket_ends(s[None])[:, 0]
    if np.isnan(ends).any():
        none = Estimate.refuse("the proxy is the same in every row", n, ASSUMES_PROBABILITIES)
        return Bracket(none, none)
    rows = by_bin[..., 0].ravel()
    filled = np.flatnonzero(rows)
    power = by_bin.reshape(len(rows), -1)[filled]
    mean = power[:, 1] / power[:, 0]
    drawn = np.random.default_rng(seed).multinomial(n, rows[filled] / rows.sum(), size=replicates).astype(float)
    hits = filled % 2 == 1
    values = np.stack(
        [np.stack([(drawn * mean**j)[:, hits == bool(k)].sum(-1) for j in range(3)], -1) for k in (0, 1)], 1
    )
    found = _bracket_ends(values)
    tail = (1 - level) / 2
    figures = []
    for value, own in zip(ends, found, strict=True):
        shift = value - float(np.nanmedian(own))  # a bin's mean stands for its rows
        low, high = np.nanquantile(own, [tail, 1 - tail])
        figures.append(
            Estimate(float(value), float(low + shift), float(high + shift), n, assumes=ASSUMES_PROBABILITIES)
        )
    return Bracket(figures[0], figures[1])


def _bracket_ends(s: FloatArray) -> FloatArray:
    """(..., prediction, j) -> (2, ...): cov(b, yhat) / (p(1-p)) and cov(b, yhat) / var(b)."""
    n = s[..., 0].sum(-1)
    mean, square = s[..., 1].sum(-1) / n, s[..., 2].sum(-1) / n
    covariance = s[..., 1, 1] / n - mean * s[..., 1, 0] / n
    spread = square - mean**2
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.where(spread > 1e-12, spread, np.nan)
        return np.stack([np.where(np.isnan(spread), np.nan, covariance / (mean * (1 - mean))), covariance / spread])


def sign_conditions(labelled: ArrayLike) -> tuple[str, str]:
    """Check the two conditions of a bracket on labelled rows.

    Args:
        labelled: (group 2, prediction 2, j 3) sums of b^j.

    Returns:
        (within_probability, within_group), each ``positive``, ``negative`` or ``unknown``, at one-sided 95%.
    """
    s = np.asarray(labelled, np.float64)
    n = s[..., 0].sum()
    if n < 2 or (s[..., 0].sum(1) < 2).any():
        return "unknown", "unknown"
    # If b is calibrated, E cov(A, yhat | b) = E (A - b) yhat.
    first = s[1, 1, 0] - s[:, 1, 1].sum()
    second = (s[1, 1, 0] - 2 * s[1, 1, 1] + s[1, 1, 2]) + s[0, 1, 2]
    sizes = s[..., 0].sum(1)
    rate, mean = s[:, 1, 0] / sizes, s[..., 1].sum(1) / sizes
    away = np.array([0.0, 1.0])[None] - rate[:, None]
    e_first = s[..., 1] - mean[:, None] * s[..., 0]
    e_second = s[..., 2] - 2 * mean[:, None] * s[..., 1] + mean[:, None] ** 2 * s[..., 0]
    return _sign(first, second, n), _sign(float((away * e_first).sum()), float((away**2 * e_second).sum()), n)


def _sign(total: float, squares: float, n: float) -> str:
    mean = total / n
    error = math.sqrt(max(0.0, squares / n - mean**2) / n)
    if error == 0:
        return "unknown"
    return "positive" if mean > 1.645 * error else "negative" if mean < -1.645 * error else "unknown"


def naive_gap(counts: ArrayLike, gap: str) -> float:
    """Return f_1 - f_0 with a proxy taken for the group: counts (proxy 2, label 2, prediction 2)."""
    own = rows_of(counts, gap)
    sizes = own.sum(-1)
    return float(own[1, 1] / sizes[1] - own[0, 1] / sizes[0]) if (sizes > 0).all() else math.nan
