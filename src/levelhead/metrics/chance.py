"""How far apart chance alone spreads the rates of many groups, and how far apart they truly lie.

The largest of many rates is above the smallest even where all groups are alike. What the range would be by chance is
found by dealing the hits out anew over the rows of all groups; its rank among such deals is an exact p-value. The
variance of the true rates is the variance of the measured ones less what the binomial draws add (Lum, Zhang and Bower
2022, "De-biasing 'bias' measurement", FAccT).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from levelhead.metrics.counts import IntArray

DEALS = 2000
"""Deals of the hits behind a range by chance: the 95% quantile has a standard error of half a percent of the deals."""


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
