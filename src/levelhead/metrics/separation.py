"""How far scores separate the classes (Kolmogorov-Smirnov), how far they are off (Brier), and what errors cost.

*Kolmogorov-Smirnov.* The largest difference of the two classes' distribution functions. The largest of noisy
differences is too large on average, so that each end has a reason of its own: the upper one is that of the difference
at the threshold where it was found (Newcombe's), because the true largest difference is no smaller than the true one
at any threshold; the lower one is Smirnov's critical value below, which holds at all thresholds at once.

*Brier.* The mean of (label - score)^2, with the interval of a skewed mean (:mod:`levelhead.metrics.moments`).

*Cost.* False positives and false negatives times their costs, a row. The two rates are of the same rows and fall
together: their intervals (outer ends of Wilson and Jeffreys) are added by variance recovery with the correlation of
two cells of a multinomial draw (Zou and Donner, Statistics in Medicine 2008).
"""

from __future__ import annotations

import numpy as np
from scipy import special

from levelhead.metrics.between import Differences, differences, normal_quantile, proportion_ends
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.moments import Moments
from levelhead.metrics.scores import FEWEST, ScoreCounts


def kolmogorov_smirnov(counts: ScoreCounts, level: float = 0.95) -> Differences:
    """Return the largest difference between the shares of both classes below a score; NaN with fewer than 5 of one.

    Values and ends are (groups,).
    """
    below, sizes = counts.rows.cumsum(-1), counts.sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = below[:, 0] / sizes[:, :1] - below[:, 1] / sizes[:, 1:]
    at = np.argmax(np.abs(np.nan_to_num(apart)), -1)
    groups = np.arange(len(sizes))
    hits, rows = below[groups, :, at].ravel(), sizes.ravel()
    found = differences(hits, np.maximum(rows, 1), 2 * groups, 2 * groups + 1, level=level)
    value, high = np.abs(found.value), np.maximum(np.abs(found.low), np.abs(found.high))
    with np.errstate(divide="ignore"):
        reach = special.kolmogi((1 - level) / 2) * np.sqrt((1 / sizes).sum(-1))
    few = sizes.min(-1) < FEWEST
    low = np.where(few, np.nan, np.maximum(0.0, value - reach))
    return Differences(np.where(few, np.nan, value), low, np.where(few, np.nan, np.minimum(1.0, high)))


def brier(counts: ScoreCounts) -> Moments:
    """Return the moments of (label - score)^2 in each group; rows of one bin count with their mean score."""
    rows = counts.rows.astype(np.float64)
    score = np.divide(counts.sums, rows, out=np.zeros_like(counts.sums), where=rows > 0)
    off, n = (score - np.array([[0.0], [1.0]])) ** 2, np.maximum(1, rows.sum((1, 2)))
    mean = (rows * off).sum((1, 2)) / n
    apart = off - mean[:, None, None]
    powers = [(rows * apart**power).sum((1, 2))[None] for power in (2, 3)]
    return Moments(counts.sizes.sum(-1), mean[None], *powers)


def cost(errors: IntArray, rows: IntArray, costs: tuple[float, float], level: float) -> Differences:
    """Return the cost a row of each group, with the ends of its interval, (groups,) each.

    Args:
        errors: (groups, 2) false positives and false negatives.
        rows: (groups,) their rows; NaN without.
        costs: of one false positive, and of one false negative; 0 or more.
        level: of one interval.
    """
    error, there, rows = 1 - level, rows > 0, np.maximum(rows, 1)
    share, price = errors / rows[:, None], np.array(costs, np.float64)
    low, high = (price * end for end in proportion_ends(errors, rows[:, None], error))
    value = share * price
    odds = share / np.maximum(1 - share, 1e-12)
    together = -np.sqrt(np.minimum(1.0, odds.prod(-1)))

    def arm(parts: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(0.0, (parts**2).sum(-1) + 2 * together * parts.prod(-1)))

    total = value.sum(-1)
    # Beside that, the interval of the mean with a row added to each cell: where both errors are frequent, MOVER's is
    # as short as Wald's.
    smooth = (errors + 1) / (rows[:, None] + 3)
    mean = smooth @ price
    reach = normal_quantile(level) * np.sqrt((smooth @ price**2 - mean**2) / (rows + 3))
    low_end, high_end = total - arm(value - low), total + arm(high - value)
    ends = total, np.maximum(0.0, np.minimum(low_end, mean - reach)), np.maximum(high_end, mean + reach)
    return Differences(*(np.where(there, end, np.nan) for end in ends))
