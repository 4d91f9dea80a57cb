"""Figures of an explained gap, from weights in bins of the score, and their intervals, from replicates of the rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special

from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.implied import Rates, Regression, area_of_counts, implied_rates, model_rates, regress, separation
from levelhead.metrics.intervals import distance_credit, selection_threshold
from levelhead.types import Estimate

CELLS_AT_ONCE = 1 << 20
"""Cells of replicates that are held at once."""


class Figures:
    """All figures of a set of groups from weights in bins, (..., groups, bins): observed ones or replicates."""

    def __init__(
        self,
        positives: FloatArray,
        negatives: FloatArray,
        score: FloatArray,
        decided: NDArray[np.bool_],
        cut: float,
        start: Regression | None = None,
    ) -> None:
        rows = positives + negatives
        sums = positives.sum(-1), negatives.sum(-1)
        size = sums[0] + sums[1]
        self.base, self.share = sums[0] / size, size / size.sum(-1, keepdims=True)
        self.logit = np.log(sums[0]) - np.log(sums[1])
        self.measured = Rates(positives[..., decided].sum(-1) / sums[0], negatives[..., decided].sum(-1) / sums[1])
        self.rate = rows[..., decided].sum((-1, -2)) / size.sum(-1)
        self.area = area_of_counts(positives, negatives)
        if start is None:
            start = Regression(np.zeros(self.rate.shape), self.logit.copy())
            fit = regress(score, positives, rows, start, 60)
        else:
            begin = np.broadcast_to(start.slope, self.rate.shape), np.broadcast_to(start.intercept, self.logit.shape)
            fit = regress(score, positives, rows, Regression(*begin), 12, 1e-5)
        self.fit = Regression(np.where(fit.slope > 0, fit.slope, np.nan), fit.intercept)
        self.offset = np.where(fit.slope[..., None] > 0, self.logit - fit.intercept, np.nan)
        with np.errstate(invalid="ignore"):
            self.implied = implied_by_group(self.area, self.base, self.share, self.rate)
            self.predicted = model_rates(separation(self.area), self.offset, self.fit.slope * cut)


def implied_by_group(area: FloatArray, base: FloatArray, share: FloatArray, rate: FloatArray) -> Rates:
    """Return rates at one threshold for all groups whose area the model can hold; NaN for the others."""
    good = np.isfinite(separation(area))
    filled = np.where(good, area, 0.75)
    weight = np.where(good, share, 0.0)
    rates = implied_rates(filled, base, weight / weight.sum(-1, keepdims=True), rate)
    return Rates(*(np.where(good, one, np.nan) for one in rates))


class Bins(NamedTuple):
    """Rows in bins of the score: ``weights`` of positives and of negatives, (groups, bins) each, and mean ``score``.

    ``decided`` (bins,): which are decided positive. ``together``: the rows of each cluster in the cells of positives,
    then of negatives, (2 groups bins, clusters); None if rows are independent.
    """

    weights: tuple[FloatArray, FloatArray]
    score: FloatArray
    decided: NDArray[np.bool_]
    together: sparse.csr_matrix | None


class ScoredCells(NamedTuple):
    """Rows (rows,) of groups 0, 1 and so on: label, score, its log odds, decision, and cluster or None."""

    group: IntArray
    truth: NDArray[np.bool_]
    score: FloatArray
    log_odds: FloatArray
    decided: NDArray[np.bool_]
    cluster: IntArray | None

    def binned(self, most: int) -> Bins:
        """Return the rows in at most this many bins, and as many again: none holds rows of both decisions."""
        # Bins follow the scores themselves; their log odds may be cut at the ends.
        values = np.unique(self.score)
        edges = values if len(values) <= most else np.unique(np.quantile(self.score, np.arange(1, most) / most))
        code = np.searchsorted(edges, self.score, side="right") + self.decided
        _, code = np.unique(code, return_inverse=True)
        shape = (int(self.group.max()) + 1, int(code.max()) + 1)
        flat, size = self.group * shape[1] + code, shape[0] * shape[1]
        positives = np.bincount(flat[self.truth], minlength=size).reshape(shape).astype(np.float64)
        rows = np.bincount(flat, minlength=size).reshape(shape).astype(np.float64)
        sums = np.bincount(flat, weights=self.log_odds, minlength=size).reshape(shape)
        above = np.zeros(shape[1], bool)
        above[code[self.decided]] = True
        together = None
        if self.cluster is not None:
            of = np.unique(self.cluster, return_inverse=True)[1]
            cells = np.where(self.truth, flat, size + flat)
            together = sparse.csr_matrix((np.ones(len(of)), (cells, of)), shape=(2 * size, int(of.max()) + 1))
        return Bins((positives, rows - positives), sums / np.maximum(rows, 1), above, together)


def replicates(bins: Bins, cut: float, fit: Regression, *, number: int, seed: int) -> Iterator[Figures]:
    """Yield the figures of Bayesian bootstraps (Rubin 1981), some at a time; ``fit`` is where regressions start."""
    rng, together = np.random.default_rng(seed), bins.together
    cells = bins.weights[0].shape
    at_once = max(1, CELLS_AT_ONCE // (bins.weights[0].size if together is None else max(together.shape)))
    for first in range(0, number, at_once):
        shape = (min(at_once, number - first), *cells)
        if together is None:
            drawn = rng.standard_gamma(bins.weights[0], shape), rng.standard_gamma(bins.weights[1], shape)
        else:  # one weight a cluster
            weights = rng.standard_exponential((together.shape[1], shape[0]))
            both = np.asarray(together @ weights).T.reshape(shape[0], 2, *cells)
            drawn = both[:, 0], both[:, 1]
        yield Figures(*drawn, bins.score, bins.decided, cut, start=fit)


def quantile(level: float, fewest: int) -> float:
    """Return Student's quantile, times what replicates of the smallest class of ``fewest`` rows vary too little."""
    return float(special.stdtrit(fewest - 1, (1 + level) / 2)) * math.sqrt((fewest + 1) / (fewest - 1))


def gap_estimate(now: FloatArray, shift: FloatArray, rows: int, fewest: int, level: float, fail: str) -> Estimate:
    """Return (|dTPR| + |dFPR|) / 2 with an interval that can hold 0.

    It is the largest of four signed contrasts, and gets the interval that such a maximum has in
    :mod:`levelhead.metrics.intervals`: contrasts which are clearly smaller do not count.

    Args:
        now: (2,) the differences.
        shift: (replicates, 2) how they move in replicates.
        rows: that the figure is based on.
        fewest: rows of the smallest class of the two groups.
        level: of the interval.
        fail: why it is undefined, where it is.
    """
    good = np.isfinite(shift).all(-1)  # few replicates may lie beyond the model, with an area of 1/2 or 1
    if not np.isfinite(now).all() or 20 * good.sum() < 19 * len(shift):
        return Estimate.undefined(fail, rows)
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) / 2
    size, moved = signs @ now, shift[good] @ signs.T
    spread = np.maximum(moved.std(0), 1e-12)
    t = quantile(level, fewest)
    slack = distance_credit(size, moved, selection_threshold(rows)) / spread
    critical = max(t, float(np.quantile((moved / spread - slack).max(-1), (1 + level) / 2)))
    value = float(size.max())
    # Bayesian replicates of few rows vary too little, and skewed figures too much on one side: hence Student's
    # quantile, and the upper end of the replicates themselves where it lies higher.
    ends = np.maximum(size + t * spread, size + np.quantile(moved, (1 + level) / 2, axis=0))
    low, high = float((size - critical * spread).max()), float(ends.max())
    return Estimate(value, max(0.0, min(low, value)), min(1.0, max(high, value)), rows)


def fieller(top: float, bottom: float, draws: FloatArray, z: float) -> tuple[float, float] | None:
    """Return the ends of the interval of a ratio, ``z`` standard errors wide (Fieller 1954).

    ``draws`` (replicates, 2) are of both parts. None where the lower part is not measurably different from 0.
    """
    (v_top, cov), (_, v_bottom) = np.cov(draws, rowvar=False)
    squared = bottom**2 - z**2 * v_bottom
    if squared <= 0:
        return None
    middle = float((top * bottom - z**2 * cov) / squared)
    half = math.sqrt(max(0.0, float(middle**2 - (top**2 - z**2 * v_top) / squared)))
    return middle - half, middle + half
