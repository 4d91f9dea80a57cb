"""Intervals of scores over items, or over clusters of items that share a template or a term.

A score is a function of sums over clusters: accuracy is (right, 1) summed, then the first over the second. Leaving each
cluster out once tells how far it pulls the score (jackknife), and the squares of these pulls add up to the variance.
Two models' scores on the same items have pulls on the same clusters, so that of a difference is the difference.

- A figure on a scale with ends gets the interval of Clopper and Pearson (1934) for as many independent answers as have
  its variance, see Korn and Graubard (1998); at least one a cluster.
- A difference, and a figure on a scale without ends, gets Student's t, and so does its p-value.
- Degrees of freedom are those of the clusters that the score is divided by, less one; fewer where a few clusters make
  up the variance (Satterthwaite 1946). A difference has at most one less than there are clusters that differ.

Below :data:`FEW_CLUSTERS` clusters there is no interval. Where all clusters agree (all right, none right, two models
that answer alike), another cluster differs with a probability of at most ``u = 1 - (alpha / 2) ** (1 / clusters)``, and
the true figure is at most ``u`` of the way from this one to the ends of its scale. ``benchmarks/coverage_lm.py`` holds
the simulation that chose these rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from levelhead.metrics.seeds import OverSeeds
from levelhead.report.text import counted
from levelhead.types import DataError, Estimate

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
Ends = tuple[float, float]

FEW_CLUSTERS = 10
LEVEL = 0.95
TAIL = (1 - LEVEL) / 2
SAME = 1e-12  # deviations that are rounding alone
SHARE, SIGNED = (0.0, 1.0), (-1.0, 1.0)  # ends of scales
AGREE = "no interval: all items agree"


@dataclass(frozen=True)
class Sample:
    """What an estimate is made of, cluster by cluster.

    ``sums`` (clusters, terms); ``pulls`` (clusters,): their squares add up to the variance of the figure; ``informed``:
    the clusters that the figure is divided by; ``rows`` and ``ids`` say which items these are; ``ends`` of the scale,
    or None.
    """

    sums: NDArray[np.float64]
    pulls: NDArray[np.float64]
    informed: int
    rows: NDArray[Any]
    ids: tuple[Hashable, ...] | None = None
    ends: Ends | None = None

    @property
    def error(self) -> float:
        """The standard error of the figure; 0 where clusters differ by no more than rounding."""
        found = math.sqrt(float(self.pulls @ self.pulls))
        return 0.0 if found <= SAME * max(1.0, float(np.abs(self.sums).max(initial=0))) else found

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the variance, at least 1."""
        squares = self.pulls**2
        unequal = len(squares) * float(squares @ squares) / float(squares.sum()) ** 2 - 1
        moved = int(np.count_nonzero(self.sums.any(axis=1)))  # of a difference: clusters that differ
        return max(1.0, min(self.informed - 1, moved - 1, len(squares) / unequal if unequal > 0 else math.inf))

    @property
    def critical(self) -> float:
        """Standard errors from a figure to the ends of its interval."""
        return float(special.stdtrit(self.freedom, 1 - TAIL))


@dataclass(frozen=True)
class SampledEstimate(Estimate):
    """An estimate that remembers its sample, so that :func:`paired_difference` can compare two models."""

    sample: Sample | None = None


def estimated(
    values: ArrayLike,
    clusters: ArrayLike | None,
    statistic: Statistic,
    *,
    reason: str = "nothing to divide by",
    ids: Sequence[Hashable] | None = None,
    ends: Ends | None = None,
) -> Estimate:
    """Estimate a statistic of sums over items, with its 95% interval.

    Args:
        values: (n, k), one row an item: what is summed. The last column is what the figure is divided by.
        clusters: (n,) labels; rows of one label count together. None: each row is its own cluster.
        statistic: maps sums (rows, k) to (rows,); NaN where it is undefined. :func:`ratio` divides the first column by
            the last. A macro average over terms has one row a term, see :func:`group_means`.
        reason: why the statistic is undefined where it is.
        ids: names of the rows; give them when rows are a selection that depends on the answers.
        ends: smallest and largest value that the statistic can have.

    Returns:
        The estimate; undefined with the reason where the statistic of all rows is NaN. With fewer clusters than
        :data:`FEW_CLUSTERS` to divide by, or where all items agree on a scale without ends, it has no interval (NaN),
        and ``reason`` says so.

    Raises:
        DataError: if a value is not finite.
    """
    rows = np.asarray(values, dtype=np.float64)
    if not np.isfinite(rows).all():
        raise DataError("An interval needs finite values: leave items without one out, and say so in the notes.")
    labels = np.arange(len(rows)) if clusters is None else np.asarray(clusters)
    if not len(rows):
        return Estimate.undefined("there are no items")
    whole = rows.sum(axis=0)
    value = float(np.asarray(statistic(whole[None]))[0])
    if not math.isfinite(value):
        return Estimate.undefined(reason, len(rows))
    names, index = np.unique(labels, return_inverse=True)
    sums = _sums(rows, index, len(names))
    moves = value - np.asarray(statistic(whole - sums))
    moves = np.where(np.isfinite(moves), moves, 0.0)
    pulls = math.sqrt(max(0.0, 1 - 1 / len(names))) * (moves - moves.mean())
    informed = int(np.count_nonzero(sums[:, -1]))
    sample = Sample(sums, pulls, informed, labels, None if ids is None else tuple(ids), ends)
    what = "item" if clusters is None else "cluster"
    return _bounded(value, sample, len(rows), what)


def paired_difference(first: Estimate, second: Estimate) -> Estimate:
    """Estimate ``second - first`` on the same items.

    Undefined, with a reason, where one is undefined, or where the two are not based on the same rows. Without an
    interval where one does not come from :func:`estimated`.
    """
    a, b = getattr(first, "sample", None), getattr(second, "sample", None)
    if not (first.defined and second.defined):
        return Estimate.undefined("one of the two is undefined")
    if a is None or b is None:
        apart = second.value - first.value
        return Estimate.without_interval(apart, min(first.n, second.n), "the score keeps no items")
    if not _same_rows(a, b):
        return Estimate.undefined("the two are on different items, tokens or measures")
    ends = None if a.ends is None or b.ends is None else (b.ends[0] - a.ends[1], b.ends[1] - a.ends[0])
    informed = min(a.informed, b.informed)
    sample = replace(b, sums=b.sums - a.sums, pulls=b.pulls - a.pulls, informed=informed, ends=ends)
    return _bounded(second.value - first.value, sample, min(first.n, second.n), "cluster", differ=True)


def p_value(difference: Estimate) -> float:
    """Return the two-sided p-value of a difference from :func:`paired_difference`; NaN where it has no interval.

    It is below 0.05 where the interval excludes 0. Where all clusters agree, the level at which the interval ends at 0:
    for shares that of the sign test.
    """
    sample: Sample | None = getattr(difference, "sample", None)
    if sample is None or (math.isnan(difference.low) and difference.reason != AGREE):
        return math.nan
    if difference.value == 0:
        return 1.0
    if sample.error > 0:
        return float(2 * special.stdtr(sample.freedom, -abs(difference.value) / sample.error))
    if sample.ends is None:
        return math.nan
    way = difference.value / (difference.value - sample.ends[0 if difference.value > 0 else 1])
    return float(2 * (1 - way) ** sample.informed)


def pooled(figures: Sequence[Estimate]) -> Estimate:
    """Estimate the mean of figures of the same items, with an interval over items alone.

    Undefined where one of them is, and without an interval where they are not based on the same rows.
    """
    if not figures or not all(figure.defined for figure in figures):
        return Estimate.undefined("one of the figures is undefined")
    value, count = float(np.mean([figure.value for figure in figures])), min(figure.n for figure in figures)
    if (sample := _mean(figures)) is None:
        return Estimate.without_interval(value, count, "the figures do not keep the same items")
    return _bounded(value, sample, count, "cluster", differ=True)


def over_seeds(figures: Sequence[Estimate]) -> Estimate:
    """Estimate the mean over training seeds of one score, or of one difference from :func:`paired_difference`.

    Its variance is that of the mean over items (all seeds see the same ones) plus what the variance between seeds has
    beyond the noise of (seed x item), divided by their number; degrees of freedom are those of
    :mod:`levelhead.metrics.seeds`. One seed has the interval of its items alone, and ``reason`` says so. There is no
    interval where the figures do not keep their items, or are based on different ones.
    """
    joint = pooled(figures)
    sample: Sample | None = getattr(joint, "sample", None)
    if sample is None:
        return joint
    if len(figures) == 1:
        why = joint.reason or "one seed: its variance over seeds is unknown and not in the interval"
        return replace(joint, reason=why)
    if math.isnan(joint.low) and joint.reason != AGREE:
        return joint
    each = np.array([figure.sample.pulls for figure in figures])  # type: ignore[attr-defined]
    spread = OverSeeds.of([np.array([figure.value for figure in figures])], [float(np.var(each, axis=0, ddof=1).sum())])
    half = spread.join(sample.error**2, sample.freedom if sample.error else math.inf).arm(LEVEL)
    low, high = joint.value - half, joint.value + half
    if not sample.error:  # items add no variance, and still are a sample
        if math.isnan(joint.low) and half <= SAME:
            return joint
        low, high = float(np.fmin(low, joint.low)), float(np.fmax(high, joint.high))
    return Estimate(joint.value, low, high, joint.n).within(*(sample.ends or (-math.inf, math.inf)))


def ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first column over the last, NaN where that is 0; (rows, k) to (rows,)."""
    bottom = sums[:, -1]
    return np.divide(sums[:, 0], bottom, out=np.full(len(sums), np.nan), where=bottom != 0)


def group_means(values: ArrayLike, groups: ArrayLike) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return means of ``values`` (n, k) by group, (g, k + 1) with a last column of ones, and the g group labels.

    A macro average over groups is then a figure over rows that are groups: column j of the sums over the last one.
    """
    rows = np.asarray(values, dtype=np.float64)
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    sums = _sums(rows, index, len(names)) / np.bincount(index, minlength=len(names))[:, None]
    return np.concatenate([sums, np.ones((len(names), 1))], axis=1), names


def _bounded(value: float, sample: Sample, count: int, what: str, *, differ: bool = False) -> SampledEstimate:
    """Return a figure with its interval; ``differ``: with Student's, whatever the ends of its scale."""
    if sample.informed < FEW_CLUSTERS:
        few = f"{counted(sample.informed, what)}, and {FEW_CLUSTERS} are needed"
        return SampledEstimate.without_interval(value, count, few, sample=sample)
    if not sample.error:
        if sample.ends is None:
            return SampledEstimate(value, math.nan, math.nan, count, AGREE, sample=sample)
        other = 1 - TAIL ** (1 / sample.informed)
        low, high = (value + other * (end - value) for end in sample.ends)
    elif sample.ends is None or differ:
        half = sample.critical * sample.error
        low, high = value - half, value + half
    else:
        low, high = _exact(value, sample, sample.ends)
    found = SampledEstimate(value, low, high, count, sample=sample)
    return found if sample.ends is None else found.within(*sample.ends)


def _exact(value: float, sample: Sample, ends: Ends) -> tuple[float, float]:
    """Return Clopper and Pearson's interval for as many answers as have the variance of the figure."""
    width, divided = ends[1] - ends[0], np.abs(sample.sums[:, -1])
    share = min(1.0, max(0.0, (value - ends[0]) / width))
    worth = share * (1 - share) * (width * special.ndtri(1 - TAIL) / (sample.critical * sample.error)) ** 2
    worth = max(worth, float(divided.sum() ** 2 / (divided @ divided)))  # clusters, as far as they are equally large
    hits, misses = share * worth, (1 - share) * worth
    low = special.betaincinv(hits, misses + 1, TAIL) if hits else 0.0
    high = special.betaincinv(hits + 1, misses, 1 - TAIL) if misses else 1.0
    return ends[0] + width * float(low), ends[0] + width * float(high)


def _mean(figures: Sequence[Estimate]) -> Sample | None:
    """Return the sample of a mean of figures; None where one keeps none, or where they are not of the same rows."""
    samples: list[Sample] = [one for figure in figures if (one := getattr(figure, "sample", None)) is not None]
    if len(samples) < len(figures) or not all(_same_rows(samples[0], one) for one in samples):
        return None
    known = [one.ends for one in samples if one.ends is not None]
    low, high = np.mean(known, axis=0) if len(known) == len(samples) else (math.nan, math.nan)
    return replace(
        samples[0],
        sums=np.mean([one.sums for one in samples], axis=0),
        pulls=np.mean([one.pulls for one in samples], axis=0),
        informed=min(one.informed for one in samples),
        ends=None if math.isnan(low) else (float(low), float(high)),
    )


def _same_rows(a: Sample, b: Sample) -> bool:
    return a.ids == b.ids and np.array_equal(a.rows, b.rows)


def _sums(rows: NDArray[np.float64], index: NDArray[np.intp], groups: int) -> NDArray[np.float64]:
    sums = np.zeros((groups, rows.shape[1]))
    np.add.at(sums, index, rows)
    return sums
