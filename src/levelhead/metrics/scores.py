"""What scores say by group, from counts over bins of the score: areas under ROC curves, calibration, every threshold.

Rows are sorted once. After that a file of ten million scores is a table (groups, labels, bins): all figures are sums
over bins, and their cost does not depend on the number of rows. Up to :data:`MOST_BINS` distinct scores have a bin
each, and figures are exact. Beyond, bins hold equal shares of the rows, and an area can be off by at most half of the
share of pairs that fall into one bin, about 1 / (2 x bins).

*Areas.* The variance is that of DeLong, DeLong and Clarke-Pearson (Biometrics 1988), from the placement of each
positive among the negatives and the reverse. A Wald interval covers 83% in small groups with large areas, so intervals
are symmetric in the logit of the area (Pepe 2003, section 5.2.2), with Student's t and a smoothed variance; a perfect
order gets the lower end that a proportion without failures has (Clopper and Pearson 1934). Differences of independent
areas combine the two intervals by MOVER (Zou and Donner, Statistics in Medicine 2008).

*Calibration.* The expected calibration error cannot be compared between groups, because that of a perfectly calibrated
score grows as groups shrink: 0.147 of 50 rows in ten bins, 0.015 of 5,000. Here stand the mean residual, with
Student's t, and slope and intercept of the logistic regression of the label on the score's log odds (Cox, Biometrika
1958).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.implied import Regression, regress
from levelhead.metrics.roots import root
from levelhead.types import Estimate

MOST_BINS = 1 << 16
MOST_CELLS = 1 << 23
"""Groups x labels x bins: with many groups there are fewer bins."""
FEWEST = 5
"""Positives, and negatives, below which an area has no interval: NaN with the reason."""
LINE_BINS = 4096
SMOOTHING = 0.1
SMALLEST = 1e-6
"""Probabilities nearer to 0 or 1 count as this near in the regression: the log odds of 0 and 1 are infinite."""


@dataclass(frozen=True)
class ScoreCounts:
    """Rows of each (group, label, bin of the score).

    Attributes:
        edges: (bins,) lowest score of each bin, ascending. A bin reaches to the next edge, which it leaves out.
        rows: (groups, 2, bins) int64, of negatives and positives.
        sums: (groups, 2, bins) sum of the scores.
        squares: (groups, 2) sum of the squared scores.
        exact: whether each distinct score has its own bin.
    """

    edges: FloatArray
    rows: IntArray
    sums: FloatArray
    squares: FloatArray
    exact: bool

    @classmethod
    def from_rows(
        cls,
        label: NDArray[np.bool_],
        score: FloatArray,
        group: IntArray,
        groups: int,
        thresholds: Sequence[float] = (),
        most_bins: int = MOST_BINS,
    ) -> ScoreCounts:
        """Sort and count rows: ``label`` (rows,) is True for positives, ``group`` (rows,) lies in [0, groups).

        Every one of ``thresholds`` begins a bin, so that counts at it are exact.
        """
        return cls.from_batches(lambda: [(label, score, group)], groups, thresholds, most_bins)

    @classmethod
    def from_batches(
        cls,
        batches: Callable[[], Iterable[tuple[NDArray[np.bool_], FloatArray, NDArray[Any]]]],
        groups: int,
        thresholds: Sequence[float] = (),
        most_bins: int = MOST_BINS,
    ) -> ScoreCounts:
        """Sort and count rows that come in batches of label, score and group, as in :meth:`from_rows`.

        ``batches`` is called twice, and must give the same rows both times. The scores are copied once, to their place
        beside those of their group and label; nothing else is held.
        """

        kind = np.min_scalar_type(2 * groups)  # of 8 or 16 bits, a stable sort is a radix sort

        def cells() -> Iterator[tuple[NDArray[Any], FloatArray]]:
            for label, score, group in batches():
                yield group.astype(kind) * kind.type(2) + label, np.asarray(score, np.float64)

        sizes = np.zeros(2 * groups, np.int64)
        for cell, _ in cells():
            sizes += np.bincount(cell, minlength=2 * groups)
        ends = np.cumsum(sizes)
        whole, filled = np.empty(int(sizes.sum())), ends - sizes
        for cell, score in cells():
            order = np.argsort(cell, kind="stable")
            ordered = score[order]
            rows = np.bincount(cell, minlength=2 * groups)
            bounds = np.cumsum(rows)
            for at in np.flatnonzero(rows):
                whole[filled[at] : filled[at] + rows[at]] = ordered[bounds[at] - rows[at] : bounds[at]]
            filled += rows
        parts = np.split(whole, ends[:-1])
        for part in parts:
            part.sort()
        return cls.from_sorted(parts, thresholds, most_bins)

    @classmethod
    def from_sorted(
        cls, parts: Sequence[FloatArray], thresholds: Sequence[float] = (), most_bins: int = MOST_BINS
    ) -> ScoreCounts:
        """Count sorted scores: one array for the negatives and one for the positives of each group, in turn."""
        groups, rows = len(parts) // 2, sum(map(len, parts))
        most = max(256, min(most_bins, MOST_CELLS // max(1, 2 * groups)))
        # Every k-th score of each cell: no bin then holds more than k rows of a cell.
        step = max(1, -(-rows // most))
        distinct = np.unique(np.concatenate([part[::step] for part in parts]))
        exact = step == 1
        if step > 1 and len(distinct) <= most // 4:  # scores of few values, for example rounded ones
            every = np.unique(np.concatenate([_distinct(part) for part in parts]))
            if exact := len(every) <= most:
                distinct = every
        if not exact:
            least = [part[0] for part in parts if len(part)]
            distinct = np.unique(np.concatenate([distinct, least, np.asarray(thresholds, np.float64)]))
        counts = np.empty((2 * groups, len(distinct)), np.int64)
        sums = np.zeros((2 * groups, len(distinct)))
        squares = np.empty(2 * groups)
        for at, part in enumerate(parts):
            places = np.append(np.searchsorted(part, distinct), len(part))
            counts[at] = np.diff(places)
            if exact:
                sums[at] = counts[at] * distinct
            elif len(part):
                filled = np.flatnonzero(counts[at])
                sums[at, filled] = np.add.reduceat(part, places[filled])
            squares[at] = np.dot(part, part)
        shape = (groups, 2, len(distinct))
        return cls(distinct, counts.reshape(shape), sums.reshape(shape), squares.reshape(groups, 2), exact)

    @property
    def sizes(self) -> IntArray:
        """Negatives and positives of each group, (groups, 2)."""
        return self.rows.sum(-1)

    def tables(self, thresholds: Sequence[float] | FloatArray) -> IntArray:
        """Count tables (thresholds, groups, 2, 2) of label and prediction: a score at or above a threshold is 1."""
        places = np.searchsorted(self.edges, np.asarray(thresholds, np.float64))
        below = np.concatenate([np.zeros((*self.rows.shape[:2], 1), np.int64), self.rows.cumsum(-1)], -1)
        negative = np.moveaxis(below[..., places], -1, 0)
        return np.stack([negative, self.sizes - negative], -1)

    def grid(self, most: int = 101) -> FloatArray:
        """Return at most ``most`` thresholds at equal steps of the share of rows decided positive."""
        total = self.rows.sum((0, 1))
        below = np.cumsum(total) - total
        wanted = np.linspace(0, total.sum(), most)
        return np.unique(self.edges[np.unique(np.minimum(np.searchsorted(below, wanted), len(self.edges) - 1))])


def _distinct(part: FloatArray) -> FloatArray:
    """Distinct values of a sorted array."""
    return part[np.concatenate([[True], part[1:] != part[:-1]])] if len(part) else part


class Areas(NamedTuple):
    """Areas [g, h]: how often a positive of group g has a higher score than a negative of group h, ties half.

    ``value``, ``variance`` (DeLong's) and ``freedom`` (Welch's) are (groups, groups); NaN without rows. The areas of
    the groups themselves are on the diagonal.
    """

    value: FloatArray
    variance: FloatArray
    freedom: FloatArray


def placements(counts: ScoreCounts) -> tuple[FloatArray, FloatArray]:
    """Return, for each bin, the shares of a group's negatives below it and of its positives above it, ties half.

    Both are (groups, bins); NaN without such rows.
    """
    negatives, positives = np.moveaxis(counts.rows.astype(np.float64), 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = (negatives.cumsum(-1) - negatives / 2) / negatives.sum(-1, keepdims=True)
        return below, 1 - (positives.cumsum(-1) - positives / 2) / positives.sum(-1, keepdims=True)


def areas(counts: ScoreCounts) -> Areas:
    """Return the areas of all pairs of groups; the cost is that of two products of (groups, bins) matrices."""
    negatives, positives = counts.rows[:, 0].astype(np.float64), counts.rows[:, 1].astype(np.float64)
    n, m = negatives.sum(-1), positives.sum(-1)
    below, above = placements(counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = positives @ below.T / m[:, None]
        of_positives = np.maximum(0, positives @ (below**2).T / m[:, None] - value**2) / (m - 1)[:, None]
        of_negatives = np.maximum(0, above**2 @ negatives.T / n - value**2) / (n - 1)
        variance = of_positives + of_negatives
        freedom = variance**2 / (of_positives**2 / (m - 1)[:, None] + of_negatives**2 / (n - 1))
    return Areas(value, variance, np.where(variance > 0, freedom, np.inf))


def area_interval(
    value: FloatArray,
    variance: FloatArray,
    freedom: FloatArray,
    positives: IntArray | FloatArray,
    negatives: IntArray | FloatArray,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """Ends of intervals on the logit scale; arrays of one shape. NaN with fewer than :data:`FEWEST` rows of a class.

    DeLong's variance is 0 where scores separate the classes, and too small where they nearly do: it gets the share
    :data:`SMOOTHING` of a row of each class that is placed at chance. (Without, a true area of 98% with 60 positives is
    covered 91% of the time.) Where that is too much, because the order is all but perfect, an end is no farther away
    than that of a proportion of the rarer class without failures.
    """
    least = np.minimum(positives, negatives)
    alpha = 1 - level
    with np.errstate(all="ignore"):
        smoothed = variance + SMOOTHING * (value - 0.5) ** 2 * (1.0 / positives**2 + 1.0 / negatives**2)
        arm = special.stdtrit(freedom, 1 - alpha / 2) * np.sqrt(smoothed)
        stretch = arm / (value * (1 - value))
        low = special.expit(special.logit(value) - stretch)
        high = special.expit(special.logit(value) + stretch)
        edge = (alpha / 2) ** (1 / np.maximum(least, 1))
        low = np.maximum(low, np.minimum(edge - (1 - value), value - 2 * arm))
        high = np.minimum(high, np.maximum(1 - edge + value, value + 2 * arm))
        separated = (value >= 1) | (value <= 0) | (variance == 0)
        low = np.where(separated, np.maximum(0.0, value - (1 - edge)), low)
        high = np.where(separated, np.minimum(1.0, value + (1 - edge)), high)
        low, high = np.where(value <= 0, 0.0, low), np.where(value >= 1, 1.0, high)
    few = least < FEWEST
    return np.where(few, np.nan, low), np.where(few, np.nan, high)


def residuals(counts: ScoreCounts) -> tuple[FloatArray, FloatArray]:
    """Mean of label - score in each group and its variance, both (groups,); NaN with fewer than two rows."""
    sizes, sums = counts.sizes.astype(np.float64), counts.sums.sum(-1)
    n = sizes.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = sizes[:, 1] - sums.sum(-1)
        mean = total / n
        squares = counts.squares.sum(-1) + sizes[:, 1] - 2 * sums[:, 1]  # sum of (label - score)^2
        spread = np.maximum(0, squares - n * mean**2) / (n - 1)
        return np.where(n > 0, mean, np.nan), np.where(n > 1, spread / n, np.nan)


def calibration_p(counts: ScoreCounts, group: int) -> float:
    """Return the p-value of "each row is positive with the probability that its score is", for one group.

    Twice the smaller tail of the number of positives, which is a sum of unequal coins (Poisson binomial), by Lugannani
    and Rice's approximation with a continuity correction (Butler 2007, section 1.2.3). It holds where a few positives
    are expected and a normal or Student's law is skewed; rows of a bin count with their mean score.
    """
    rows = counts.rows[group].sum(0)
    used = rows > 0
    rows, score = rows[used], np.clip(counts.sums[group].sum(0)[used] / rows[used], 0.0, 1.0)
    open_, positives = (score > 0) & (score < 1), int(counts.sizes[group, 1] - rows[score == 1].sum())
    rows, hit, miss = rows[open_], np.log(score[open_]), np.log1p(-score[open_])
    if not 0 <= positives <= rows.sum():
        return 0.0  # more or fewer than scores of exactly 0 and 1 allow
    if positives < rows @ np.exp(hit):
        positives, hit, miss = int(rows.sum() - positives), miss, hit
    at = positives - 0.5
    if at <= rows @ np.exp(hit):
        return 1.0
    tilt = root(lambda one: rows @ special.expit(hit - miss + one) - at, 0.0, 1400.0)
    tilted = special.expit(hit - miss + tilt)
    far = math.sqrt(max(0.0, 2 * (tilt * at - float(rows @ np.logaddexp(miss, hit + tilt)))))
    step = 2 * math.sinh(tilt / 2) * math.sqrt(rows @ (tilted * (1 - tilted)))
    if min(far, step) < 1e-6:
        return 1.0
    tail = float(special.ndtr(-far) + math.exp(-(far**2) / 2) / math.sqrt(2 * math.pi) * (1 / step - 1 / far))
    return min(1.0, max(0.0, 2 * tail))


def _merged(counts: ScoreCounts, most: int) -> tuple[FloatArray, FloatArray]:
    """Return rows and sums of scores in at most this many bins, of equal shares of all rows."""
    total = counts.rows.sum((0, 1))
    place = ((np.cumsum(total) - total / 2) * most // max(1, total.sum())).clip(max=most - 1).astype(np.int64)
    starts = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
    return np.add.reduceat(counts.rows, starts, axis=-1).astype(np.float64), np.add.reduceat(counts.sums, starts, -1)


class Lines(NamedTuple):
    """Slope and intercept of label on the score's log odds, with standard errors; all (groups,), NaN where no fit is.

    ``intercept`` is that of the regression with the slope held at 1, "calibration in the large"; ``beside_slope`` that
    of the regression that gives the slope.
    """

    slope: FloatArray
    slope_error: FloatArray
    intercept: FloatArray
    intercept_error: FloatArray
    beside_slope: FloatArray


def calibration_lines(counts: ScoreCounts) -> Lines:
    """Fit the logistic regressions; a perfectly calibrated score has slope 1 and intercept 0."""
    many = len(counts.edges) > LINE_BINS
    rows, sums = _merged(counts, LINE_BINS) if many else (counts.rows, counts.sums)
    size = rows.sum(1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(size > 0, sums.sum(1) / size, 0.5)
    log_odds = special.logit(np.clip(mean, SMALLEST, 1 - SMALLEST))
    found = [_line(log_odds[g], rows[g, 1].astype(np.float64), size[g]) for g in range(len(rows))]
    return Lines(*np.array(found, np.float64).reshape(-1, 5).T)


def _line(log_odds: FloatArray, positives: FloatArray, size: FloatArray) -> tuple[float, float, float, float, float]:
    used = size > 0
    log_odds, positives, size = log_odds[used], positives[used], size[used]
    total = size.sum()
    if total < 2 or not 0 < positives.sum() < total:
        return np.nan, np.nan, np.nan, np.nan, np.nan
    centre = float((size * log_odds).sum() / total)
    spread = float(np.sqrt((size * (log_odds - centre) ** 2).sum() / total))
    slope = slope_error = beside = np.nan
    if spread > 0:
        scaled = (log_odds - centre) / spread
        fit = regress(
            scaled[None], positives[None], size[None], Regression(np.array(spread), np.array([centre])), 60, 1e-9
        )
        expected = special.expit(float(fit.slope) * scaled + float(fit.intercept[0]))
        weight = size * expected * (1 - expected)
        information = (weight * scaled**2).sum() - (weight * scaled).sum() ** 2 / weight.sum()
        slope, slope_error = float(fit.slope) / spread, float(information**-0.5) / spread
        beside = float(fit.intercept[0]) - slope * centre
    hits = positives.sum()
    intercept = root(lambda one: hits - size @ special.expit(log_odds + one), -60.0, 60.0)
    expected = special.expit(log_odds + intercept)
    return slope, slope_error, intercept, float((size * expected * (1 - expected)).sum()) ** -0.5, beside


def student(
    value: float, variance: float, freedom: float, n: int, level: float, ends: tuple[float, float] = (-1.0, 1.0)
) -> Estimate:
    """Return a figure with Student's interval, cut off at ``ends``."""
    arm = float(special.stdtrit(freedom, (1 + level) / 2)) * variance**0.5
    return Estimate(value, max(ends[0], value - arm), min(ends[1], value + arm), n)
