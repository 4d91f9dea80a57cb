"""Percentile bootstrap of scores over items, or over clusters of items that share a template or a term.

A score is a function of sums over items: accuracy is (right, 1) summed, then the first over the second. So a replicate
needs no rows, only how often each cluster was drawn. Clusters with equal sums are one cell of a multinomial draw: the
accuracy of 29,000 items is drawn from two cells.

Under :data:`FEW_CLUSTERS` clusters a percentile interval is too narrow, so there is none. Where all clusters agree (all
right, none right, two models that answer alike), replicates do not vary. Then another cluster differs with a
probability of at most ``u = 1 - (alpha / 2) ** (1 / clusters)`` (Clopper and Pearson, 1934), and the true figure is at
most ``u`` of the way from this one to the ends of its scale.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.metrics.seeds import OverSeeds, seed_by_row
from levelhead.report.text import counted
from levelhead.types import DataError, Estimate

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]

FEW_CLUSTERS = 10
LEVEL, REPLICATES = 0.95, 1000
SAME = 1e-12  # replicates that differ by rounding alone
SHARE, SIGNED = (0.0, 1.0), (-1.0, 1.0)  # ends of scales
AGREE = "no interval: all items agree"
BLOCK = 2**24  # numbers of drawn counts held at a time


@dataclass(frozen=True)
class Sample:
    """What an estimate was drawn from.

    ``values`` (rows, terms); ``clusters`` (rows,) cluster of each row, or None; ``statistic`` as in :func:`bootstrap`;
    ``ids`` name the rows, or None where rows are all items in their order; ``ends`` of its scale, or None; ``arms``:
    samples of the same rows whose smallest statistic is this one, see :func:`least`; ``kinked``: it is made of such.
    """

    values: NDArray[np.float64]
    clusters: NDArray[Any] | None
    statistic: Statistic
    ids: tuple[Hashable, ...] | None = None
    ends: tuple[float, float] | None = None
    arms: tuple[Sample, ...] = ()
    kinked: bool = False


@dataclass(frozen=True)
class SampledEstimate(Estimate):
    """An estimate that remembers its sample, so that :func:`paired_difference` can draw two models together."""

    sample: Sample | None = None


def bootstrap(
    values: ArrayLike,
    clusters: ArrayLike | None,
    statistic: Statistic,
    *,
    reason: str = "nothing to divide by",
    ids: Sequence[Hashable] | None = None,
    ends: tuple[float, float] | None = None,
) -> Estimate:
    """Estimate a statistic of sums over items, with a 95% percentile interval.

    Args:
        values: (n, k), one row an item: what is summed. Several ratios in one statistic are several columns.
        clusters: (n,) labels; rows of one label are drawn together. None: each row is drawn alone.
        statistic: maps sums (replicates, k) to (replicates,); NaN where it is undefined. :func:`ratio` divides the
            first column by the second. A macro average over terms has one row a term, see :func:`group_means`.
        reason: why the statistic is undefined where it is.
        ids: names of the rows; give them when rows are a selection that depends on the answers.
        ends: smallest and largest value that the statistic can have, for the interval where all items agree.

    Returns:
        The estimate; undefined with the reason where the statistic of all rows is NaN. With fewer clusters than
        :data:`FEW_CLUSTERS`, where less than half of the replicates have a value, or where all items agree on a scale
        without ends, it has no interval (NaN), and ``reason`` says so.

    Raises:
        DataError: if shapes do not match or a value is not finite.
    """
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2:
        raise DataError(f"A bootstrap needs values of shape (items, terms); these are {rows.shape}.")
    if not np.isfinite(rows).all():
        raise DataError("A bootstrap needs finite values: leave items without one out, and say so in the notes.")
    labels = None if clusters is None else np.asarray(clusters)
    if labels is not None and labels.shape != (len(rows),):
        raise DataError(f"There are {len(rows)} items, and clusters of shape {labels.shape}: one label an item.")
    if ids is not None and len(ids) != len(rows):
        raise DataError(f"There are {len(rows)} items and {len(ids)} ids: one id an item.")
    sample = Sample(rows, labels, statistic, None if ids is None else tuple(ids), ends)
    return _estimate(sample, reason)


def paired_difference(first: Estimate, second: Estimate) -> Estimate:
    """Estimate ``second - first`` on the same items: both are computed from the same draws.

    Undefined, with a reason, where an estimate does not come from :func:`bootstrap`, where one is undefined, or where
    the two are not based on the same rows.
    """
    a, b = getattr(first, "sample", None), getattr(second, "sample", None)
    if not (first.defined and second.defined):
        return Estimate.undefined("one of the two is undefined")
    if a is None or b is None:
        return Estimate.undefined("the score keeps no items")
    if not _same_rows(a, b):
        return Estimate.undefined("the two are on different items, or tokens of them")
    figure = _difference(a, b)
    if not (a.arms or b.arms) or not isinstance(figure, SampledEstimate) or figure.sample is None:
        return figure
    # min(b) - min(a) is the smallest over b's arms of the largest difference to one of a's.
    pairs = [[_difference(one, other) for one in a.arms or (a,)] for other in b.arms or (b,)]
    low, high = (min(max(getattr(pair, end) for pair in row) for row in pairs) for end in ("low", "high"))
    ends = _less(b.ends, a.ends) or (-np.inf, np.inf)
    sample = replace(figure.sample, kinked=True)
    return replace(figure, low=low, high=high, sample=sample).within(*ends)


def _difference(a: Sample, b: Sample) -> Estimate:
    split = a.values.shape[1]

    def difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(b.statistic(sums[:, split:]) - a.statistic(sums[:, :split]))

    return _estimate(_joined([a, b], difference, _less(b.ends, a.ends)), "one of the two is undefined")


def least(figure: Estimate, arms: Sequence[Estimate]) -> Estimate:
    """Return a figure that is the smallest of ``arms``, all of :func:`bootstrap`, with the interval of these.

    A minimum of noisy values is too small, so its own replicates lie too low where two arms are close.
    """
    samples = tuple(one for arm in arms if (one := getattr(arm, "sample", None)) is not None)
    if not isinstance(figure, SampledEstimate) or figure.sample is None or len(samples) < len(arms):
        return figure
    low, high = float(np.min([arm.low for arm in arms])), float(np.min([arm.high for arm in arms]))
    kept = replace(figure.sample, arms=samples, kinked=True)
    return replace(figure, low=low, high=high, sample=kept).within(*(kept.ends or (-np.inf, np.inf)))


def p_value(difference: Estimate) -> float:
    """Return the two-sided p-value of a difference from :func:`paired_difference`; NaN where it has no interval.

    Student's t with the standard deviation of the replicates and one degree of freedom less than there are clusters.
    Where all clusters agree, the level at which the interval ends at 0: for shares that of the sign test.
    """
    from scipy import stats

    sample: Sample | None = getattr(difference, "sample", None)
    drawn = None if sample is None else _replicates(sample)
    if sample is None or drawn is None or (np.isnan(difference.low) and difference.reason != AGREE):
        return float("nan")
    if difference.value == 0:
        return 1.0
    if _constant(drawn):
        if (ends := sample.ends) is None:
            return float("nan")
        way = difference.value / (difference.value - ends[0 if difference.value > 0 else 1])
        return float(2 * (1 - way) ** _informed(sample))
    spread = float(drawn.std(ddof=1))
    return float(2 * stats.t.sf(abs(difference.value) / spread, clusters_in(sample) - 1))


def pooled(figures: Sequence[Estimate]) -> Estimate:
    """Estimate the mean of figures of the same items: all are computed from the same draws, items alone are drawn.

    Undefined where one of them is, or where they are not based on the same rows.
    """
    if not figures or not all(figure.defined for figure in figures):
        return Estimate.undefined("one of the figures is undefined")
    if not (samples := _of_same_rows(figures)):
        return Estimate.undefined("the figures do not keep the same items")
    each = _together(samples)

    def mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(each(sums).mean(0))

    figure = _estimate(joined := _joined(samples, mean, _mean_ends(samples)), "one of the figures is undefined")
    drawn = _replicates(joined)
    if np.isnan(figure.low) or drawn is None or not any(sample.kinked for sample in samples):
        return figure
    half = 1.96 * float(drawn.std(ddof=1))  # percentiles of a mean of minima lie too low, see :func:`least`
    return replace(figure, low=figure.value - half, high=figure.value + half).within(
        *(joined.ends or (-np.inf, np.inf))
    )


def over_seeds(after: Sequence[Estimate], before: Estimate | None = None) -> Estimate:
    """Estimate the mean of one score over training seeds, less ``before`` where it is given.

    Its variance is that of the mean under joint draws of the items (all seeds and ``before`` see the same draw) plus
    what the variance between seeds has beyond the noise of (seed x item), divided by their number; degrees of freedom
    are those of :func:`levelhead.metrics.joint`. One seed has the interval of its items alone, and ``reason`` says so.
    There is no interval where the figures do not keep their items, or are based on different ones.
    """
    figures = [*after, *([] if before is None else [before])]
    if not after or not all(figure.defined for figure in figures):
        return Estimate.undefined("undefined for a seed")
    values = np.array([figure.value for figure in after])
    value = float(values.mean()) - (0.0 if before is None else before.value)
    count = min(figure.n for figure in figures)
    if not (samples := _of_same_rows(figures)):
        return Estimate.without_interval(value, count, "the figures do not keep the same items")
    together = _together(samples)

    def each(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = together(sums)
        return parts[: len(after)] - (0.0 if before is None else parts[-1])

    def mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(each(sums).mean(0))

    ends = _mean_ends(samples[: len(after)])
    if before is not None:
        ends = _less(ends, samples[-1].ends)
    both = _joined(samples, mean, ends)
    joint = _estimate(both, "undefined for a seed")
    if len(after) == 1:
        why = joint.reason or "one seed: its variance over seeds is unknown and not in the interval"
        return replace(joint, reason=why)
    drawn = _replicates(both)
    if drawn is None or (np.isnan(joint.low) and joint.reason != AGREE):
        return joint
    moves = [_replicates(replace(both, statistic=_seed(each, position))) for position in range(len(after))]
    spread = OverSeeds.of([values], [seed_by_row([move - move.mean() for move in moves if move is not None])])
    half = spread.join(float(drawn.var(ddof=1))).arm(LEVEL)
    low, high = value - half, value + half
    if _constant(drawn):  # items add no variance, and still are a sample
        if np.isnan(joint.low) and half <= SAME:
            return joint
        low, high = np.fmin(low, joint.low), np.fmax(high, joint.high)
    return Estimate(value, float(low), float(high), count).within(*(ends or (-np.inf, np.inf)))


def _together(samples: Sequence[Sample]) -> Statistic:
    """Return the statistics (samples, replicates) of sums that stand side by side."""
    ends = np.cumsum([0, *(sample.values.shape[1] for sample in samples)])

    def each(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array(
            [
                np.asarray(sample.statistic(sums[:, start:end]))
                for sample, start, end in zip(samples, ends[:-1], ends[1:], strict=True)
            ]
        )

    return each


def _joined(samples: Sequence[Sample], statistic: Statistic, ends: tuple[float, float] | None) -> Sample:
    """Return one sample with the values of all, side by side."""
    values, first = np.concatenate([sample.values for sample in samples], axis=1), samples[0]
    return Sample(values, first.clusters, statistic, first.ids, ends)


def _mean_ends(samples: Sequence[Sample]) -> tuple[float, float] | None:
    """Return the ends of the scale of a mean of several figures."""
    known = [sample.ends for sample in samples if sample.ends is not None]
    if len(known) < len(samples):
        return None
    low, high = np.mean(known, axis=0)
    return float(low), float(high)


def _less(ends: tuple[float, float] | None, others: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the ends of the scale of a difference: that of ``ends`` minus that of ``others``."""
    return None if ends is None or others is None else (ends[0] - others[1], ends[1] - others[0])


def _seed(each: Statistic, position: int) -> Statistic:
    """Return the statistic of one seed out of those of ``each`` (seeds, replicates), NaN where any of them is."""

    def one(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        found = each(sums)
        return np.where(np.isfinite(found).all(0), found[position], np.nan)

    return one


def _of_same_rows(figures: Sequence[Estimate]) -> list[Sample]:
    """Return the samples of figures; none where one keeps none, or where they are not of the same rows."""
    samples: list[Sample] = [sample for figure in figures if (sample := getattr(figure, "sample", None)) is not None]
    alike = len(samples) == len(figures) and all(_same_rows(samples[0], sample) for sample in samples)
    return samples if alike else []


def _same_rows(a: Sample, b: Sample) -> bool:
    if len(a.values) != len(b.values) or a.ids != b.ids:
        return False
    if a.clusters is None or b.clusters is None:
        return a.clusters is b.clusters
    return np.array_equal(a.clusters, b.clusters)


def clusters_in(sample: Sample) -> int:
    """Return how many clusters, or single rows, a bootstrap of a sample draws from."""
    return len(sample.values) if sample.clusters is None else len(np.unique(sample.clusters))


def ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the first column over the second, NaN where that is 0; (replicates, 2) to (replicates,)."""
    bottom = sums[:, 1]
    return np.divide(sums[:, 0], bottom, out=np.full(len(sums), np.nan), where=bottom != 0)


def group_means(values: ArrayLike, groups: ArrayLike) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return means of ``values`` (n, k) by group, (g, k + 1) with a last column of ones, and the g group labels.

    A macro average over groups is then a bootstrap over rows that are groups: column j of the sums over the last one.
    """
    rows = np.asarray(values, dtype=np.float64)
    names, index = np.unique(np.asarray(groups), return_inverse=True)
    sums = _sums(rows, index, len(names)) / np.bincount(index, minlength=len(names))[:, None]
    return np.concatenate([sums, np.ones((len(names), 1))], axis=1), names


def _estimate(sample: Sample, reason: str) -> Estimate:
    rows = sample.values
    if not len(rows):
        return Estimate.undefined("there are no items")
    value = float(np.asarray(sample.statistic(rows.sum(axis=0, keepdims=True)))[0])
    if not np.isfinite(value):
        return Estimate.undefined(reason, len(rows))
    count = clusters_in(sample)
    drawn = None if count < FEW_CLUSTERS else _replicates(sample)
    if drawn is None:
        what = "item" if sample.clusters is None else "cluster"
        few = f"{counted(count, what)}, and {FEW_CLUSTERS} are needed"
        return SampledEstimate.without_interval(value, len(rows), few, sample=sample)
    if 2 * len(drawn) < REPLICATES:
        rare = f"{REPLICATES - len(drawn)} of {REPLICATES} replicates are undefined ({reason})"
        return SampledEstimate.without_interval(value, len(rows), rare, sample=sample)
    if not _constant(drawn):
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    elif sample.ends is None:
        return SampledEstimate(value, np.nan, np.nan, len(rows), AGREE, sample=sample)
    else:
        other = 1 - ((1 - LEVEL) / 2) ** (1 / _informed(sample))
        low, high = (value + other * (end - value) for end in sample.ends)
    return SampledEstimate(value, float(low), float(high), len(rows), sample=sample)


def _constant(drawn: NDArray[np.float64]) -> bool:
    """Say whether replicates differ by no more than rounding."""
    return float(np.ptp(drawn)) <= SAME * max(1.0, float(np.abs(drawn).max()))


def _informed(sample: Sample) -> int:
    """Return how many clusters add anything to the sums."""
    told = (sample.values != 0).any(axis=1)
    return int(told.sum()) if sample.clusters is None else len(np.unique(sample.clusters[told]))


def _replicates(sample: Sample) -> NDArray[np.float64] | None:
    """Return the finite values of the statistic over replicates; None for a single row or cluster."""
    sums = sample.values
    if sample.clusters is not None:
        names, index = np.unique(sample.clusters, return_inverse=True)
        sums = _sums(sums, index, len(names))
    if len(sums) == 1:
        return None
    drawn = np.asarray(sample.statistic(_draw(sums)))
    return np.asarray(drawn[np.isfinite(drawn)])


def _draw(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums (replicates, k) of as many clusters as there are in ``sums`` (clusters, k), drawn again."""
    cells, multiplicity = np.unique(sums, axis=0, return_counts=True)
    rng = np.random.default_rng(0)  # the same values give the same interval
    block = max(1, BLOCK // len(cells))
    found = []
    for start in range(0, REPLICATES, block):
        size = min(block, REPLICATES - start)
        found.append(rng.multinomial(len(sums), multiplicity / len(sums), size=size).astype(np.float64) @ cells)
    return np.concatenate(found)


def _sums(rows: NDArray[np.float64], index: NDArray[np.intp], groups: int) -> NDArray[np.float64]:
    sums = np.zeros((groups, rows.shape[1]))
    np.add.at(sums, index, rows)
    return sums
