"""Intervals for group metrics that cover what they say they cover.

Why not the percentile bootstrap: an absolute gap is never negative, so its percentile interval covers a true gap of
zero 0% of the time, and the basic bootstrap of equalized odds covers 86 to 90% (1,000 simulated audits). What is
done instead:

*One form for every metric.* Each figure is the largest of some linear contrasts of rates. A demographic parity gap
is the largest p_i - p_j over ordered pairs of groups; since (|a| + |b|) / 2 is the largest (+-a +-b) / 2, equalized
odds is one too; so is the worst class, and minus the worst-group accuracy. Contrasts are signed and smooth, so the
bootstrap works for them although it fails for their maximum.

*Contrasts.* Rates get one pseudo-success and one pseudo-failure (Agresti and Caffo 2000; two of each for single
proportions, Agresti and Coull 1998), so that cells of 0/7 have a variance. Rows are resampled by one multinomial
draw on the (group, label, prediction) cells; each replicate is studentised with its own smoothed variance. Critical
values are never below the normal ones: the floor costs little where the bootstrap is right and holds the coverage
where cells are so small that resampling cannot show their spread.

*No gap*: if a permutation test of the largest |t| does not reject "all contrasts are 0", the interval starts at 0. The
predictions are dealt out anew, over all rows for demographic parity and over the rows of each label for the other
gaps, which keeps the sizes of all cells. With the table's rank among the deals the test is exact in cells of any size,
where the bootstrap rejected up to 12% instead of 5%. (With several classes it is exact if groups differ in no
confusion, and else, being studentised, in large cells: Chung and Romano 2013.)
*Lower end*: otherwise, invert the one-sided max-t bootstrap test of "the largest contrast is m". Contrasts that are
clearly smaller than the largest cannot push the maximum up, and counting them as if they could would make intervals
too wide; each gets credit for its distance to the largest, less sqrt(2 log log n) standard errors of that distance
(generalised moment selection, Andrews and Soares 2010).
*Upper end*: the largest contrast is at least the one that is truly largest, so max(contrast + z * se) suffices; where
several contrasts are nearly tied it is missed only if all fall short, and z is lowered accordingly.
With more than :data:`FEW` groups, pairs are too many to be resampled: the critical value of the lower end is then the
union bound of normal tails, with the same credits, and z is not lowered.
With two groups and one class this is the fold rule: the signed interval [l, u] becomes
[min(|l|, |u|), max(|l|, |u|)], or [0, max(|l|, |u|)] if it holds 0.

*The worst group* is the lowest of independent proportions, so it needs no bootstrap: its ends are those of exact tests
(Clopper and Pearson 1934), the upper one with the error probability shared among the cells that may be the lowest.

*Means over classes* of worst pairs use one simultaneous max-|t| band over all contrasts. That is conservative.

*Bias.* A maximum of noisy absolute values is too large on average. ``Estimate.corrected`` subtracts the bootstrap
estimate of the excess.

*Differences of two predictors on the same rows* resample the rows jointly. With k the contrast that is truly largest
for A, A - B is at most A_k - B_j for every j: each of these is linear, so their paired standard errors and a max-t
critical value give a bound, and the worst over all k that may be the largest holds. The lower end is the mirror
image. Predictions that agree in every row differ by exactly 0. (Bootstrapping the difference of the two gaps itself
covered 88% where one gap was zero and the other one standard error.) In a cell without errors all resamples are alike,
and intervals of differences covered 50%: here the pseudo-rows are drawn as well, and Student's t allows for the few
rows of the rarest rate.

*Means over seeds*: the arms of the seeds' intervals are averaged, and shrunk by what averaging over seeds takes off the
resampled deviations. That is the variance over rows: (v + (S - 1) c) / S, if v is the mean variance over rows of one
seed's figure, c the mean covariance of two seeds', and S their number. The variance s2 of the figures over seeds
contains v - c, the noise of (seed x row), too; only what it has beyond that is added: max(0, s2 - (v - c)) / S. The sum
is c + s2 / S, which is unbiased, but never below the variance over rows. Degrees of freedom are Satterthwaite's (1946)
with all of s2 on its S - 1, and infinite where nothing is added. Of fewer than four seeds the part of s2 gets the
quantile of its own degrees of freedom (Cochran, Biometrics 1964), because two or three seeds cannot vouch for their own
variance. (Adding all of s2 / S rejected a true null in 0 to 1% instead of 5%.)
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse, special, stats

from levelhead.metrics import group as group_metrics
from levelhead.metrics.counts import Counts, IntArray, JointCounts
from levelhead.metrics.group import FloatArray, Rate, Table
from levelhead.types import ConfigError, DataError, Estimate, quoted

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds", "equalized_odds_worst")
LEVELS = ("accuracy", "balanced_accuracy")
METRICS = (*LEVELS, "worst_group_accuracy", *GAPS)
FEW = 32
"""Groups of which all pairs are resampled. Of more, the pairs are too many, and their number is allowed for instead."""

BoolArray = NDArray[np.bool_]
Moments = tuple[FloatArray, FloatArray]


def metric_names(classes: int, positive: int | None = None) -> tuple[str, ...]:
    """Names of the metrics that exist for so many classes; means over classes only where there are several."""
    several = len(group_metrics.classes_compared(classes, positive)) > 1
    return METRICS + tuple(f"{name}_mean" for name in GAPS) if several else METRICS


def estimate(
    counts: Counts,
    metric: str,
    *,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    min_count: int = 0,
) -> Estimate:
    """Estimate one metric with its interval.

    Args:
        counts: the count table.
        metric: one of :func:`metric_names`.
        positive: index of the positive class. None means class 1 of two; with three or more classes every class is
            set against the rest, and the figure is the worst class (or, with ``_mean``, the mean).
        level: how often the interval should hold the true value, between 0 and 1.
        replicates: number of bootstrap replicates.
        seed: of the bootstrap; the same counts and seed give the same interval.
        min_count: rows that a rate must rest on to be compared: rows of the group for demographic parity, its
            positives for true positive rates, its negatives for false positive rates, rows of the (group, label)
            for the worst group. Rates with fewer are left out; with 0, a rate over no rows leaves the figure undefined.

    Returns:
        the figure as a fraction, or an undefined one that says which rows are lacking.

    Raises:
        ConfigError: unknown metric, or an option out of range.
    """
    known = metric_names(len(counts.classes), positive)
    if metric not in known:
        raise ConfigError(f"Unknown metric {metric!r} for {len(counts.classes)} classes. Known: {', '.join(known)}.")
    return _estimate([metric], counts, positive, level, replicates, seed, min_count)[metric]


def estimate_all(
    counts: Counts,
    *,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    min_count: int = 0,
) -> dict[str, Estimate]:
    """Estimate every metric of :func:`metric_names` from one set of replicates; arguments as for :func:`estimate`."""
    names = metric_names(len(counts.classes), positive)
    return _estimate(names, counts, positive, level, replicates, seed, min_count)


def proportion(hits: int, rows: int, *, level: float = 0.95) -> Estimate:
    """Estimate one proportion with Wilson's score interval (Wilson 1927).

    Args:
        hits: successes.
        rows: trials.
        level: confidence level.

    Returns:
        hits / rows; undefined if there are no rows.
    """
    if rows == 0:
        return Estimate.undefined("no rows")
    z = _normal_quantile(level)
    share, scale = hits / rows, 1 + z * z / rows
    middle = (share + z * z / (2 * rows)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    # At 0 and at 1 the end is exact; rounding must not push it past the value.
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)), rows)


# ---------------------------------------------------------------------------------------------------- one table


def _estimate(
    names: Sequence[str],
    counts: Counts,
    positive: int | None,
    level: float,
    replicates: int,
    seed: int,
    min_count: int,
) -> dict[str, Estimate]:
    _check_options(level, replicates)
    if counts.n == 0:
        return {name: Estimate.undefined("no rows") for name in names}
    enough = Enough.of(counts.table, positive, min_count)
    seen = _Predictions.build(counts.table, _resample(counts.table, replicates, seed), positive, enough, seed)
    results = {}
    for name in names:
        rows = rows_used(counts.table, name, positive, min_count)
        reason = undefined_reason(counts, name, positive, min_count)
        if reason:
            results[name] = Estimate.undefined(reason, rows)
            continue
        value = float(seen.plain.values(name))
        low, high = _ends(name, seen, level)
        results[name] = Estimate(
            value,
            max(0.0, min(low, value)),
            min(1.0, max(high, value)),
            rows,
            corrected=None if name in LEVELS else min(1.0, max(0.0, value - seen.excess(name))),
        )
    return results


def _resample(table: IntArray, replicates: int, seed: int) -> IntArray:
    """(groups, classes, classes) -> (replicates, groups, classes, classes): rows drawn with replacement."""
    flat = table.ravel()
    filled = np.flatnonzero(flat)
    drawn = np.zeros((replicates, flat.size), np.int64)
    rng = np.random.default_rng(seed)
    drawn[:, filled] = rng.multinomial(int(flat.sum()), flat[filled] / flat.sum(), size=replicates)
    return drawn.reshape(replicates, *table.shape)


def _shuffle(table: IntArray, replicates: int, seed: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Deal the predictions out anew, as if groups made no difference, at the sizes of the cells that there are.

    Returns:
        predictions dealt over all rows (replicates, groups, 1, classes), which keeps each group's size, and
        predictions dealt over the rows of each label (replicates, groups, classes, classes), which keeps each cell's.
    """
    rng = np.random.default_rng([*seed, 1])

    def deal(cells: IntArray) -> IntArray:
        # SciPy deals wrongly where a margin is 0 and where there is one row or one column.
        groups, predicted = np.flatnonzero(cells.sum(1)), np.flatnonzero(cells.sum(0))
        if min(len(groups), len(predicted)) < 2:
            return np.tile(cells, (replicates, 1, 1))
        sizes, totals = cells.sum(1), cells.sum(0)
        if len(totals) == 2 and sizes.sum() < 10**9:  # the same law, in half the time, up to NumPy's limit
            second = rng.multivariate_hypergeometric(sizes, int(totals[1]), size=replicates)
            return np.stack([sizes - second, second], -1)
        dealt = np.zeros((replicates, *cells.shape), np.int64)
        tables = stats.random_table(sizes[groups], totals[predicted])
        drawn = tables.rvs(size=replicates, method="patefield", random_state=rng)
        dealt[np.ix_(np.arange(replicates), groups, predicted)] = drawn
        return dealt

    by_label = [deal(table[:, k]) for k in range(table.shape[1])]
    return deal(table.sum(1))[:, :, None], np.stack(by_label, 2)


class Enough(NamedTuple):
    """Which rates rest on rows enough to be compared.

    ``selection``, ``found`` and ``alarms`` are (classes compared, groups), ``cells`` is (groups, classes); all bool.
    """

    selection: BoolArray
    found: BoolArray
    alarms: BoolArray
    cells: BoolArray

    @classmethod
    def of(cls, table: IntArray, positive: int | None, least: int) -> Enough:
        """Ask for ``least`` rows under each rate of ``table``: rows of the group, its positives, its negatives."""
        counts = (group_metrics.selection, group_metrics.true_positives, group_metrics.false_positives)
        selected, found, alarms = (count(table, positive).rows >= least for count in counts)
        return cls(selected, found, alarms, table.sum(-1) >= least)

    def groups(self, name: str) -> BoolArray:
        """Which groups a gap compares, (classes compared, groups)."""
        base = name.removesuffix("_mean")
        if base == "demographic_parity":
            return self.selection
        return self.found if base == "equal_opportunity" else self.found & self.alarms

    def classes(self, name: str) -> BoolArray:
        """Which classes have two groups to compare, (classes compared,)."""
        return self.groups(name).sum(-1) > 1

    def contrasts(self, name: str) -> BoolArray:
        """Which of :meth:`_Figures.contrasts` count, (classes compared, contrasts)."""
        if name in LEVELS:
            return np.ones((1, 1), bool)
        if name == "worst_group_accuracy":
            return self.cells.reshape(1, -1)
        groups = self.groups(name)
        first, second = pair_indices(groups.shape[-1])
        pairs = groups[:, first] & groups[:, second]
        return np.concatenate([pairs, pairs], -1) if name.startswith("equalized_odds") else pairs


class _Figures:
    """The contrasts of every metric for one table or a stack of replicates (..., groups, classes, classes)."""

    def __init__(self, table: Table, positive: int | None, enough: Enough, *, smooth: bool = True) -> None:
        self.table, self.positive, self.enough, self.smooth = table, positive, enough, smooth

    def _share(self, rate: Rate, pseudo: int) -> Moments:
        """Rate and its variance with so many pseudo-successes and pseudo-failures."""
        if not self.smooth:
            value = rate.value
            return value, np.zeros_like(value)
        rows = rate.rows + 2.0 * pseudo
        value = (rate.hits + pseudo) / rows
        return value, value * (1 - value) / rows

    @cached_property
    def cells(self) -> Rate:
        """Hits and rows of each (group, label)."""
        return group_metrics.cell_hits(self.table)

    @cached_property
    def _selected_rows(self) -> Rate:
        return group_metrics.selection(self.table, self.positive)

    @cached_property
    def _found_rows(self) -> Rate:
        return group_metrics.true_positives(self.table, self.positive)

    @cached_property
    def _alarm_rows(self) -> Rate:
        selected, found = self._selected_rows, self._found_rows
        return Rate(selected.hits - found.hits, selected.rows - found.rows)

    @cached_property
    def _selection(self) -> Moments:
        return self._share(self._selected_rows, 1)

    @cached_property
    def _found(self) -> Moments:
        return self._share(self._found_rows, 1)

    @cached_property
    def _alarms(self) -> Moments:
        return self._share(self._alarm_rows, 1)

    @cached_property
    def _selection_pairs(self) -> Moments:
        return _pairs(self._selection)

    @cached_property
    def _found_pairs(self) -> Moments:
        return _pairs(self._found)

    @cached_property
    def _alarms_pairs(self) -> Moments:
        return _pairs(self._alarms)

    def contrasts(self, name: str) -> Moments:
        """Contrasts and their variances, both (..., classes compared, contrasts)."""
        base = name.removesuffix("_mean")
        if base == "accuracy":
            rate = Rate(self.cells.hits.sum((-2, -1)), self.cells.rows.sum((-2, -1)))
            value, variance = self._share(rate, 2)
            return value[..., None, None], variance[..., None, None]
        if base == "balanced_accuracy":
            value, variance = self._share(Rate(self.cells.hits.sum(-2), self.cells.rows.sum(-2)), 1)
            size = value.shape[-1]
            return value.mean(-1)[..., None, None], (variance.sum(-1) / size**2)[..., None, None]
        if base == "worst_group_accuracy":
            value, variance = self._share(self.cells, 2)
            shape = (*value.shape[:-2], 1, -1)
            return -value.reshape(shape), variance.reshape(shape)
        if base == "demographic_parity":
            return self._selection_pairs
        if base == "equal_opportunity":
            return self._found_pairs
        (found, found_var), (alarms, alarms_var) = self._found_pairs, self._alarms_pairs
        if base == "equalized_odds":
            variance = (found_var + alarms_var) / 4
            deltas = np.concatenate([(found + alarms) / 2, (found - alarms) / 2], -1)
            return deltas, np.concatenate([variance, variance], -1)
        return np.concatenate([found, alarms], -1), np.concatenate([found_var, alarms_var], -1)

    def rarest(self, name: str) -> IntArray:
        """Rows under the rarest rate of each contrast, (..., classes compared, contrasts)."""
        base = name.removesuffix("_mean")
        if base in LEVELS:
            return self.table.sum((-3, -2, -1))[..., None, None]
        if base == "worst_group_accuracy":
            return self.cells.rows.reshape(*self.table.shape[:-3], 1, -1)
        first, second = pair_indices(self.table.shape[-3])

        def rarer(rate: Rate) -> IntArray:
            return np.minimum(rate.rows[..., first], rate.rows[..., second])

        if base == "demographic_parity":
            return rarer(self._selected_rows)
        found = rarer(self._found_rows)
        if base == "equal_opportunity":
            return found
        alarms = rarer(self._alarm_rows)
        if base == "equalized_odds":
            found = alarms = np.minimum(found, alarms)
        return np.concatenate([found, alarms], -1)

    def by_class(self, name: str) -> FloatArray:
        """Gap of each class that has two groups to compare, (..., classes).

        The largest difference over pairs of groups is the highest rate less the lowest.
        """
        compared = self.enough.classes(name)
        groups = self.enough.groups(name)[compared]

        def widest(rates: FloatArray) -> FloatArray:
            if groups.all() and compared.all():
                return rates.max(-1) - rates.min(-1)
            rates = rates[..., compared, :]
            return np.where(groups, rates, -np.inf).max(-1) - np.where(groups, rates, np.inf).min(-1)

        base = name.removesuffix("_mean")
        if base == "demographic_parity":
            return widest(self._selection[0])
        found = self._found[0]
        if base == "equal_opportunity":
            return widest(found)
        alarms = self._alarms[0]
        if base == "equalized_odds":
            return np.maximum(widest(found + alarms), widest(found - alarms)) / 2
        return np.maximum(widest(found), widest(alarms))

    def values(self, name: str) -> FloatArray:
        """The metric itself, shape (...)."""
        if name in LEVELS:
            return self.contrasts(name)[0][..., 0, 0]
        if name == "worst_group_accuracy":
            return -self.contrasts(name)[0][..., self.enough.contrasts(name)].max(-1)
        gaps = self.by_class(name)
        return gaps.mean(-1) if name.endswith("_mean") else gaps.max(-1)

    def largest_t(self, name: str) -> FloatArray:
        """Largest absolute contrast in its standard errors, shape (...).

        Of many groups only the :data:`FEW` whose rates lie farthest from the mean are paired. A pair's t squared is at
        most the sum of its two groups' squared distances, each in its own standard errors (Cauchy and Schwarz), so
        that the largest is among these.
        """
        groups = self.enough.groups(name)
        sums = {
            "demographic_parity": (("_selection",),),
            "equal_opportunity": (("_found",),),
            "equalized_odds": (("_found", "_alarms"),),
            "equalized_odds_worst": (("_found",), ("_alarms",)),
        }[name.removesuffix("_mean")]
        if groups.shape[-1] > FEW:
            found = [_largest_t(*_farthest([getattr(self, rate) for rate in rates], groups)) for rates in sums]
        else:
            found = [_largest_t([getattr(self, f"{rate}_pairs") for rate in rates], groups) for rates in sums]
        return np.max(found, axis=0)


def _largest_t(differences: list[Moments], groups: BoolArray) -> FloatArray:
    """Largest sum of absolute differences in its standard errors: (..., classes, pairs of groups) -> (...)."""
    first, second = pair_indices(groups.shape[-1])
    size = np.sum([np.abs(value) for value, _ in differences], axis=0)
    squared = size**2 / np.sum([variance for _, variance in differences], axis=0)
    return np.sqrt(np.where(groups[..., first] & groups[..., second], squared, 0.0).max((-2, -1)))


def _farthest(rates: list[Moments], groups: BoolArray) -> tuple[list[Moments], BoolArray]:
    """Differences over the pairs of the groups farthest from the mean, and which of these groups count."""
    far = np.sum([(value - value.mean(-1, keepdims=True)) ** 2 / variance for value, variance in rates], axis=0)
    far = np.where(groups, far, -1.0)
    kept = np.argpartition(-far, FEW, axis=-1)[..., :FEW]
    differences = [
        _pairs((np.take_along_axis(value, kept, -1), np.take_along_axis(variance, kept, -1)))
        for value, variance in rates
    ]
    return differences, np.take_along_axis(np.broadcast_to(groups, far.shape), kept, -1)


@lru_cache(maxsize=8)
def pair_indices(groups: int) -> tuple[IntArray, IntArray]:
    """First and second group of every pair."""
    return np.triu_indices(groups, 1)


def _pairs(rates: Moments) -> Moments:
    """Differences over pairs of groups and their variances: (..., groups) -> (..., pairs)."""
    value, variance = rates
    first, second = pair_indices(value.shape[-1])
    return value[..., first] - value[..., second], variance[..., first] + variance[..., second]


@dataclass(frozen=True)
class _Predictions:
    """One set of predictions: its figures as they are, smoothed, resampled, and shuffled as if there were no gap."""

    plain: _Figures
    observed: _Figures
    resampled: _Figures
    seed: tuple[int, ...]

    @classmethod
    def build(cls, table: IntArray, resampled: Table, positive: int | None, enough: Enough, *seed: int) -> _Predictions:
        """Make the figures of a table (groups, classes, classes) and its replicates (replicates, ...)."""
        return cls(
            _Figures(table, positive, enough, smooth=False),
            _Figures(table, positive, enough),
            _Figures(resampled, positive, enough),
            seed,
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.plain.table.sum())

    def excess(self, name: str) -> float:
        """How much larger the figure is over replicates than where they were drawn from; 0 for what is no maximum."""
        if name in LEVELS:
            return 0.0
        return float(self.resampled.values(name).mean() - self.observed.values(name))

    @cached_property
    def _shuffled(self) -> tuple[_Figures, _Figures]:
        tables = _shuffle(self.plain.table, len(self.resampled.table), self.seed)
        over_rows, within_labels = (_Figures(one, self.plain.positive, self.plain.enough) for one in tables)
        return over_rows, within_labels

    @cached_property
    def shaken(self) -> _Figures:
        """Replicates in which the pseudo-rows are drawn as well: those of a cell without errors differ, too."""
        rng = np.random.default_rng([*self.seed, 2])
        tables = self.resampled.table.astype(np.int64)
        classes = tables.shape[-1]
        redrawn = rng.binomial(tables, 2 / (tables.sum(-1, keepdims=True) + 2))
        tables = tables - redrawn + rng.multinomial(redrawn.sum(-1), np.full(classes, 1 / classes))
        return _Figures(tables, self.plain.positive, self.plain.enough)

    def no_gap(self, name: str, level: float) -> float:
        """Largest absolute t that a permutation test of "no gap" lets pass."""
        shuffled = self._shuffled[0 if name.startswith("demographic_parity") else 1]
        t = np.sort(shuffled.largest_t(name))
        # The measured table is one more draw: with its rank among them the test is exact for any number of draws.
        rank = min(len(t), math.ceil(level * (len(t) + 1)))
        return float(t[rank - 1]) * (1 + 1e-9)


def _ends(name: str, seen: _Predictions, level: float) -> tuple[float, float]:
    """Lower and upper end of the interval, before clipping to what a fraction can be."""
    if name == "worst_group_accuracy":
        return _lowest_rate(seen.plain.cells, seen.plain.enough.cells, level)
    alpha, z = 1 - level, _normal_quantile(level)
    kept = seen.plain.enough.contrasts(name)
    many = name not in LEVELS and len(seen.plain.table) > FEW
    by_class, variance = seen.observed.contrasts(name)
    delta, spread = by_class[kept], np.sqrt(variance[kept])

    if name in LEVELS:
        return float(delta[0] - z * spread[0]), float(delta[0] + z * spread[0])

    if name.endswith("_mean"):
        if many:
            reach = _union_bound(np.zeros(kept.sum()), alpha / 2)
        else:
            reach = max(z, float(np.quantile(np.abs(_deviations(name, seen, kept)[1]).max(-1), level)))
        band = reach * np.sqrt(variance)
        highest = np.where(kept, np.abs(by_class) + band, 0).max(-1)[seen.plain.enough.classes(name)]
        lowest = np.where(kept, np.abs(by_class) - band, 0).max(-1)[seen.plain.enough.classes(name)]
        tied = (np.abs(delta) <= seen.no_gap(name, level) * spread).all()
        return 0.0 if tied else float(lowest.mean()), float(highest.mean())

    # Point every contrast in the direction in which it was seen; its mirror image only matters for "no gap".
    size = np.abs(delta)
    if many:
        reach = z
    else:
        shift, t = (one * np.where(delta < 0, -1.0, 1.0) for one in _deviations(name, seen, kept))
        reach = _reach(size, shift, t, spread, level)
    high = float((size + reach * spread).max())
    no_gap = seen.no_gap(name, level)
    if (size <= no_gap * spread).all():
        return float((size - no_gap * spread).max()), high
    caution = _caution(seen.rows)
    if many:
        # The standard error of a distance is at most the sum of the two.
        top = int(size.argmax())
        slack = np.maximum(0, size[top] - size - caution * (spread[top] + spread)) / spread
        critical = _union_bound(slack, alpha / 2)
    else:
        slack = _slack(size, shift, caution) / spread
        critical = max(z, float(np.quantile((t - slack).max(-1), 1 - alpha / 2)))
    return max(0.0, float((size - critical * spread).max())), high


def _deviations(name: str, seen: _Predictions, kept: BoolArray) -> Moments:
    """Resampled deviations of the contrasts, plain and in standard errors, both (replicates, contrasts)."""
    moved, variance = seen.resampled.contrasts(name)
    shift = moved - seen.observed.contrasts(name)[0]
    if kept.all():  # the usual case, and choosing takes time
        shift, variance = shift.reshape(len(shift), -1), variance.reshape(len(shift), -1)
    else:
        shift, variance = shift[..., kept], variance[..., kept]
    return shift, shift / np.sqrt(variance)


def _union_bound(slack: FloatArray, error: float) -> float:
    """Critical value at which normal deviates, each less its ``slack``, exceed it with at most ``error`` in sum."""
    return float(optimize.brentq(lambda c: special.ndtr(-c - slack).sum() - error, 0.0, 40.0))


def _lowest_rate(cells: Rate, enough: BoolArray, level: float) -> tuple[float, float]:
    """Ends for the lowest of independent rates, from exact tests of each (Clopper and Pearson 1934).

    The lowest of the lower ends misses only if that of the truly lowest rate does. The lowest of the upper ends misses
    if any does, so each gets its part of the error probability; rates that are clearly higher need little of it.
    """
    hits, rows = cells.hits[enough], cells.rows[enough]
    error = (1 - level) / 2
    share = (hits + 2) / (rows + 4)
    variance = share * (1 - share) / (rows + 4)
    low = int(share.argmin())
    distance = share - share[low] - _caution(int(rows.sum())) * np.sqrt(variance + variance[low])
    slack = np.maximum(0, distance) / np.sqrt(variance)
    critical = optimize.brentq(lambda c: np.log1p(-special.ndtr(-c - slack)).sum() - math.log1p(-error), 0.0, 40.0)
    tail = special.ndtr(-critical)
    lower = np.where(hits > 0, stats.beta.ppf(error, hits, rows - hits + 1), 0.0)
    upper = np.where(hits < rows, stats.beta.isf(tail, hits + 1, rows - hits), 1.0)
    return float(lower.min()), float(upper.min())


def _caution(rows: int) -> float:
    """Standard errors by which a contrast must lie below the largest to be told apart: sqrt(2 log log n)."""
    return math.sqrt(2 * math.log(math.log(max(rows, 16))))


def _slack(delta: FloatArray, shift: FloatArray, caution: float) -> FloatArray:
    """Distance of each contrast to the largest that is beyond ``caution`` standard errors of that distance."""
    top = int(delta.argmax())
    return np.maximum(0, delta[top] - delta - caution * (shift - shift[:, [top]]).std(0))


def _reach(delta: FloatArray, shift: FloatArray, t: FloatArray, spread: FloatArray, level: float) -> float:
    """Standard errors to go up from the largest contrast.

    The upper end is missed only if every contrast falls short, so several near-ties need less than one contrast
    alone. Distances count as one standard error longer than seen, and the result never falls below the one-sided
    normal value.
    """
    top = int(delta.argmax())
    beyond = (delta[top] - delta + (shift - shift[:, [top]]).std(0)) / spread
    together = float(np.quantile((beyond - t).min(-1), (1 + level) / 2))
    alone = float(np.quantile(-t[:, top], (1 + level) / 2))
    z = _normal_quantile(level)
    return max(NormalDist().inv_cdf(level), z - max(0.0, alone - together))


def _normal_quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _check_options(level: float, replicates: int) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"level={level} is not between 0 and 1. Pass 0.95 for 95% intervals.")
    if replicates < 100:
        raise ConfigError(f"replicates={replicates} is too few for an interval. Pass at least 100.")


def rows_used(table: IntArray, name: str, positive: int | None = None, min_count: int = 0) -> int:
    """Count the rows that a figure rests on: the positives for equal opportunity, else rows of the groups compared."""
    if name in LEVELS:
        return int(table.sum())
    enough = Enough.of(table, positive, min_count)
    if name == "worst_group_accuracy":
        return int(table.sum(-1)[enough.cells].sum())
    compared = enough.groups(name) & enough.classes(name)[:, None]
    if name.startswith("equal_opportunity"):
        return int(group_metrics.true_positives(table, positive).rows[compared].sum())
    return int(table[compared.any(0)].sum())


def undefined_reason(counts: Counts, name: str, positive: int | None = None, min_count: int = 0) -> str | None:
    """Say why a metric cannot be computed from these counts, with the sizes of the cells; None if it can.

    A gap needs two groups, and every rate that it compares needs rows. Only rates over fewer than ``min_count`` rows
    are left out to make it computable.
    """
    base = name.removesuffix("_mean")
    labels, groups = counts.classes, counts.groups
    if counts.n == 0:
        return "no rows"
    if base == "accuracy":
        return None
    if base == "balanced_accuracy":
        sizes = counts.cell_sizes.sum(0)
        missing = [repr(label) for label, size in zip(labels, sizes, strict=True) if not size]
        return f"no rows have label {', '.join(missing)}" if missing else None
    enough = Enough.of(counts.table, positive, min_count)
    if base == "worst_group_accuracy":
        if not enough.cells.any():
            return f"no group has {min_count} rows of a label"
        empty = [
            f"group {quoted(str(groups[i]))} with label {quoted(str(labels[k]))}"
            for i, k in np.argwhere(enough.cells & (counts.cell_sizes == 0))
        ]
        return f"no rows in {'; '.join(empty)}" if empty else None
    if len(groups) < 2:
        return f"a gap needs at least two groups, there is {len(groups)}"
    chosen = group_metrics.classes_compared(len(labels), positive)
    wanted = [("rows", group_metrics.selection(counts.table, positive).rows)]
    if base != "demographic_parity":
        wanted = [("label", group_metrics.true_positives(counts.table, positive).rows)]
    if base.startswith("equalized"):
        wanted.append(("label other than", group_metrics.false_positives(counts.table, positive).rows))

    def sizes_of(kind: str, rows: IntArray, k: int) -> tuple[str, str]:
        what = "rows" if kind == "rows" else f"rows with {kind} {quoted(str(labels[k]))}"
        return what, ", ".join(f"{g}: {size}" for g, size in zip(groups, rows, strict=True))

    compared = enough.groups(name)
    if not enough.classes(name).any() and min(rows.min() for _, rows in wanted) > 0:
        listed = [sizes_of(kind, rows[0], chosen[0]) for kind, rows in wanted]
        what, sizes = " and ".join(part for part, _ in listed), "; ".join(part for _, part in listed)
        return f"fewer than two groups have {min_count} {what} (rows by group: {sizes})"
    # Where rates over few rows leave nothing to compare, those over none say best what is lacking.
    asked = compared if enough.classes(name).any() else np.ones_like(compared)
    for kind, rows in wanted:
        for position, k in enumerate(chosen):
            lacking = np.flatnonzero(asked[position] & (rows[position] == 0))
            if len(lacking):
                what, sizes = sizes_of(kind, rows[position], k)
                named = ", ".join(repr(str(groups[i])) for i in lacking)
                return f"no {what} in group {named} (rows by group: {sizes})"
    return None


def worst_class(counts: Counts, name: str, positive: int | None = None, min_count: int = 0) -> int:
    """Return the index of the class behind a gap that can be computed; arguments as for :func:`estimate`."""
    enough = Enough.of(counts.table, positive, min_count)
    gaps = _Figures(counts.table, positive, enough, smooth=False).by_class(name)
    compared = np.flatnonzero(enough.classes(name))
    return group_metrics.classes_compared(len(counts.classes), positive)[compared[gaps.argmax()]]


# ------------------------------------------------------------------------------- several predictions, same rows


@dataclass(frozen=True)
class JointRow:
    """One method's figure for one metric.

    ``estimate`` is the mean over seeds; its interval holds both sources of chance. ``rows_only`` is the same value
    with chance from the test rows alone. ``by_seed`` are the figures of the seeds, ``degrees_of_freedom``
    Satterthwaite's (infinite without seed variance). Against the baseline (None for the baseline itself):
    ``difference`` (method minus baseline), its ``p_value``, and ``p_holm``, adjusted over the methods. ``p_best`` is
    the same for the difference to the method with the best value (None for that one): where it is not small, these
    rows and seeds do not tell the two apart.
    """

    estimate: Estimate
    rows_only: Estimate
    by_seed: tuple[float, ...]
    degrees_of_freedom: float
    difference: Estimate | None = None
    p_value: float | None = None
    p_holm: float | None = None
    p_best: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; NaN and infinity become null."""
        return {
            "estimate": estimate_to_dict(self.estimate),
            "rows_only": estimate_to_dict(self.rows_only),
            "by_seed": [_finite(value) for value in self.by_seed],
            "degrees_of_freedom": _finite(self.degrees_of_freedom),
            "difference": None if self.difference is None else estimate_to_dict(self.difference),
            "p_value": None if self.p_value is None else _finite(self.p_value),
            "p_holm": None if self.p_holm is None else _finite(self.p_holm),
            "p_best": None if self.p_best is None else _finite(self.p_best),
        }


@dataclass(frozen=True)
class JointTable:
    """What :func:`joint` found: ``rows[method][metric]``, the baseline's name and the confidence level.

    ``at_chance`` are the methods whose balanced accuracy the test rows alone do not show to be above 1 / classes, that
    of a constant or random answer; ``few_seeds`` those that the rows do show to be above it, but not rows and seeds
    together. Constant answers have small gaps, so neither is ever the best: ``p_best`` compares with the best of the
    others, and is NaN where there is none.
    """

    rows: dict[str, dict[str, JointRow]]
    baseline: str
    level: float
    at_chance: tuple[str, ...] = ()
    few_seeds: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        methods = {
            method: {name: row.to_dict() for name, row in figures.items()} for method, figures in self.rows.items()
        }
        return {
            "baseline": self.baseline,
            "level": self.level,
            "at_chance": list(self.at_chance),
            "few_seeds": list(self.few_seeds),
            "methods": methods,
        }


def compare(
    y_true: ArrayLike,
    group: ArrayLike,
    prediction_a: ArrayLike,
    prediction_b: ArrayLike,
    *,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Compare two sets of predictions for the same rows.

    Args:
        y_true: (rows,) true classes.
        group: (rows,) groups.
        prediction_a: (rows,) predicted classes of A.
        prediction_b: (rows,) predicted classes of B, for the same rows in the same order.
        positive: index of the positive class, see :func:`estimate`.
        level: confidence level.
        replicates: number of bootstrap replicates.
        seed: of the bootstrap.

    Returns:
        for every metric the signed difference A - B; ``corrected`` has the bias of both figures taken off. For a
        gap, a negative difference is a smaller measured gap of A. Predictions that agree in every row differ by
        exactly 0.

    Raises:
        DataError: lengths differ or values are missing.
        ConfigError: an option is out of range.
    """
    predictions = {"a": np.asarray(prediction_a)[None], "b": np.asarray(prediction_b)[None]}
    analysis = Paired.build(y_true, group, predictions, positive, level, replicates, seed)
    return {name: analysis.difference(name, "a", "b").estimate for name in analysis.names}


def joint(
    y_true: ArrayLike,
    group: ArrayLike,
    predictions: Mapping[str, ArrayLike],
    *,
    baseline: str,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    shared_seeds: bool = False,
) -> JointTable:
    """Compare methods over test rows and training seeds at once.

        A method's figure is the mean over its seeds of each seed's figure; for a gap, the mean of absolute gaps. Its
    variance is that of the mean under joint resampling of the test rows (all methods and seeds see the same resample)
    plus what the variance between seeds has beyond the noise of (seed x row), divided by the number of seeds; the
    interval uses Student's t with Satterthwaite's degrees of freedom, and with fewer than four seeds Cochran's wider
    critical value. Ends are clipped to [0, 1] (differences to [-1, 1]).

    Args:
            y_true: (rows,) true classes.
            group: (rows,) groups.
            predictions: for each method an array (seeds, rows) of predicted classes.
            baseline: the method that the others are set against.
            positive: index of the positive class, see :func:`estimate`.
            level: confidence level.
            replicates: number of bootstrap replicates.
            seed: of the bootstrap.
            shared_seeds: whether the seed at one position is the same training seed for every method (same split, same
                initialisation). True pairs the differences over seeds by position; False treats the seeds of two
                methods as independent. Rows are always paired.

        Returns:
            figures, intervals, differences to the baseline and p-values adjusted by Holm over methods, metric by
            metric. With one seed the variance over seeds is unknown: the interval holds test rows only and says so.

        Raises:
            DataError: lengths differ or values are missing.
            ConfigError: unknown baseline, shared seeds of unequal number, or an option out of range.
    """
    arrays = {method: np.asarray(values) for method, values in predictions.items()}
    if baseline not in arrays:
        raise ConfigError(f"The baseline {baseline!r} has no predictions. Methods: {', '.join(arrays)}.")
    for method, values in arrays.items():
        if values.ndim != 2:
            raise DataError(
                f"Predictions of {method!r} have shape {values.shape}. Pass (seeds, rows), one row of it a seed."
            )
    if shared_seeds and len({len(values) for values in arrays.values()}) > 1:
        raise ConfigError("shared_seeds=True needs the same number of seeds for every method.")
    analysis = Paired.build(y_true, group, arrays, positive, level, replicates, seed)
    others = [method for method in arrays if method != baseline]
    rows: dict[str, dict[str, JointRow]] = {method: {} for method in arrays}
    chance = 1 / len(analysis.counts.classes)
    own = {name: {method: analysis.level_of(name, method) for method in arrays} for name in analysis.names}
    reaching = {
        method: (figure.rows_only.low <= chance < 1, figure.estimate.low <= chance < 1)
        for method, figure in own["balanced_accuracy"].items()  # NaN, where it is undefined, reaches nothing
    }
    at_chance = tuple(method for method, (by_rows, _) in reaching.items() if by_rows)
    few_seeds = tuple(method for method, (by_rows, by_both) in reaching.items() if by_both and not by_rows)
    contenders = [method for method in arrays if method not in at_chance + few_seeds]
    for name in analysis.names:
        differences = {method: analysis.difference(name, method, baseline, shared_seeds) for method in others}
        adjusted = holm([differences[method].p_value for method in others])
        holm_by_method = dict(zip(others, adjusted, strict=True))
        sign = 1 if name in LEVELS or name == "worst_group_accuracy" else -1
        best_by_method = dict.fromkeys(arrays, math.nan)
        if contenders:
            best = max(contenders, key=lambda method: _ranked(sign * own[name][method].estimate.value))
            rest = [method for method in arrays if method != best]
            to_best = holm([analysis.difference(name, method, best, shared_seeds).p_value for method in rest])
            best_by_method = dict(zip(rest, to_best, strict=True))
        for method, figure in own[name].items():
            against = differences.get(method)
            rows[method][name] = JointRow(
                figure.estimate,
                figure.rows_only,
                tuple(analysis.values(name, method).tolist()),
                figure.degrees_of_freedom,
                None if against is None else against.estimate,
                None if against is None else against.p_value,
                holm_by_method.get(method),
                best_by_method.get(method),
            )
    return JointTable(rows, baseline, level, at_chance, few_seeds)


def _ranked(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for testing several hypotheses (Holm 1979); NaN stays NaN and does not count."""
    values = np.asarray(p_values, float)
    adjusted = np.full(len(values), np.nan)
    valid = np.flatnonzero(~np.isnan(values))
    order = valid[np.argsort(values[valid], kind="stable")]
    running = 0.0
    for rank, position in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * values[position]))
        adjusted[position] = running
    return adjusted.tolist()


@dataclass(frozen=True)
class Inference:
    """A figure with its interval over rows and seeds and over rows alone, and the p-value of its being 0."""

    estimate: Estimate
    rows_only: Estimate
    degrees_of_freedom: float
    p_value: float


@dataclass(frozen=True)
class Paired:
    """Predictions of every method and seed on the same rows, resampled together."""

    counts: Counts
    names: tuple[str, ...]
    seeds: dict[str, list[_Predictions]]
    positive: int | None
    level: float

    @classmethod
    def build(
        cls,
        y_true: ArrayLike,
        group: ArrayLike,
        predictions: Mapping[str, NDArray[Any]],
        positive: int | None,
        level: float,
        replicates: int,
        seed: int,
    ) -> Paired:
        """Count and resample the rows; arguments as :func:`joint` takes them."""
        _check_options(level, replicates)
        flat = [one for values in predictions.values() for one in values]
        table = JointCounts.from_rows(y_true, group, flat)
        counts = table.marginal(0)
        stars = _resample_jointly(table, len(flat), replicates, seed)
        enough = Enough.of(counts.table, positive, 0)
        seeds: dict[str, list[_Predictions]] = {}
        position = 0
        for method, own in predictions.items():
            seeds[method] = []
            for _ in own:
                one = table.marginal(position).table
                # Predictions that agree in every row are one and the same, chance included.
                same = zlib.crc32(table.patterns[:, 2 + position].tobytes())
                seeds[method].append(_Predictions.build(one, stars[position], positive, enough, seed, same))
                position += 1
        return cls(counts, metric_names(len(counts.classes), positive), seeds, positive, level)

    @cached_property
    def _reasons(self) -> dict[str, str | None]:
        """Why a metric is undefined, by its name."""
        return {name: undefined_reason(self.counts, name, self.positive) for name in self.names}

    def values(self, name: str, method: str) -> FloatArray:
        """Figure of each seed, NaN where the metric is undefined."""
        if self._reasons[name]:
            return np.full(len(self.seeds[method]), np.nan)
        return np.array([float(seed.plain.values(name)) for seed in self.seeds[method]])

    def level_of(self, name: str, method: str) -> Inference:
        """Infer one method's mean over seeds."""
        if (missing := self._missing(name)) is not None:
            return missing
        values = self.values(name, method)
        seeds = self.seeds[method]
        ends = [_ends(name, seed, self.level) for seed in seeds]
        excess = [seed.excess(name) for seed in seeds]
        moves = [_Outward.of(name, seed).largest_alone() for seed in seeds]
        down = values - [low for low, _ in ends]
        up = [high for _, high in ends] - values
        over_seeds = OverSeeds.of([values], [seed_by_row(moves)])
        return self._infer(name, float(values.mean()), down, up, moves, float(np.mean(excess)), over_seeds, 0.0)

    def difference(self, name: str, method: str, other: str, shared_seeds: bool = False) -> Inference:
        """Infer the difference of two methods' means over seeds."""
        if (missing := self._missing(name)) is not None:
            return missing
        a, b = self.values(name, method), self.values(name, other)
        first, second = self.seeds[method], self.seeds[other]
        outward = [[_Outward.of(name, seed) for seed in seeds] for seeds in (first, second)]
        alone = [[one.largest_alone() for one in own] for own in outward]
        down, up, moves = [], [], []
        excess = 0.0
        # With unequal numbers of seeds the shorter list is gone through again.
        for position in range(max(len(first), len(second))):
            i, j = position % len(first), position % len(second)
            low, high = _difference_ends(outward[0][i], outward[1][j], self.level, self.counts.n)
            if name == "worst_group_accuracy":
                low, high = -high, -low
            down.append(a[i] - b[j] - low)
            up.append(high - (a[i] - b[j]))
            moves.append(alone[0][i] - alone[1][j])
        for seeds, sign in ((first, 1), (second, -1)):
            excess += sign * float(np.mean([seed.excess(name) for seed in seeds]))
        if shared_seeds:
            over_seeds = OverSeeds.of([a - b], [seed_by_row(moves)])
        else:
            over_seeds = OverSeeds.of([a, b], [seed_by_row(one) for one in alone])
        return self._infer(name, float(a.mean() - b.mean()), down, up, moves, excess, over_seeds, -1.0)

    def _missing(self, name: str) -> Inference | None:
        if (reason := self._reasons[name]) is None:
            return None
        missing = Estimate.undefined(reason, rows_used(self.counts.table, name, self.positive))
        return Inference(missing, missing, math.nan, math.nan)

    def _infer(
        self,
        name: str,
        value: float,
        down: Sequence[float] | FloatArray,
        up: Sequence[float] | FloatArray,
        moves: Sequence[FloatArray],
        excess: float,
        over_seeds: OverSeeds,
        floor: float,
    ) -> Inference:
        """Join the row intervals of the seeds, and add what the variance over seeds has beyond that of the rows.

        ``down`` and ``up`` (seeds,) are the arms of each seed's interval. Were the noise of the rows the same for
        every seed, the mean's arm would be the mean arm; how much of it cancels is read off the resampled
        deviations ``moves`` (seeds, replicates).
        """
        n = rows_used(self.counts.table, name, self.positive)
        z = _normal_quantile(self.level)
        single = float(np.mean([move.std() for move in moves]))
        kept = float(np.mean(moves, axis=0).std()) / single if single > 0 else 1.0
        rows = kept * np.maximum(0, [np.mean(down), np.mean(up)]) / z  # as standard errors, down and up
        joined = [over_seeds.join(float(row) ** 2) for row in rows]
        corrected = None if name in LEVELS else min(1.0, max(floor, value - excess))

        def interval(arms: Sequence[float] | FloatArray, why: str | None) -> Estimate:
            low, high = max(floor, value - float(arms[0])), min(1.0, value + float(arms[1]))
            return Estimate(value, low, high, n, why, corrected)

        return Inference(
            interval([one.arm(self.level) for one in joined], over_seeds.missing),
            interval(z * rows, None),
            min(one.degrees_of_freedom for one in joined),
            joined[0 if value > 0 else 1].p_value(value),
        )


def _resample_jointly(table: JointCounts, predictions: int, replicates: int, seed: int) -> FloatArray:
    """Resample rows for all predictions at once: (predictions, replicates, groups, classes, classes)."""
    groups, size = len(table.groups), len(table.classes)
    cells = groups * size * size
    base = (table.patterns[:, 0] * size + table.patterns[:, 1]) * size
    columns = (base[:, None] + table.patterns[:, 2:]) + cells * np.arange(predictions)
    patterns = len(table.multiplicity)
    members = sparse.csr_matrix(
        (np.ones(columns.size), (columns.ravel(), np.repeat(np.arange(patterns), predictions))),
        shape=(cells * predictions, patterns),
    )
    rng = np.random.default_rng(seed)
    result = np.empty((predictions, replicates, groups, size, size))
    # Draws of all patterns for all replicates at once can be large; a hundred replicates are enough to be fast.
    for start in range(0, replicates, 100):
        stop = min(start + 100, replicates)
        drawn = rng.multinomial(table.n, table.multiplicity / table.n, size=stop - start)
        counted = members @ drawn.T.astype(np.float64)
        shape = (predictions, groups, size, size, stop - start)
        result[:, start:stop] = np.moveaxis(counted.reshape(shape), -1, 1)
    return result


class _Outward(NamedTuple):
    """Contrasts whose largest is the metric, or minus the worst-group accuracy, as a mean over units.

    ``value`` and ``rows``, those under the rarest rate, are (units, contrasts); ``shift``, the resampled deviations,
    is (replicates, units, contrasts).
    """

    value: FloatArray
    shift: FloatArray
    rows: IntArray

    @classmethod
    def of(cls, name: str, seed: _Predictions) -> _Outward:
        value, shift = seed.observed.contrasts(name)[0], seed.shaken.contrasts(name)[0]
        shift, rows = shift - shift.mean(0), seed.plain.rarest(name)
        if name in LEVELS:
            return cls(value, shift, rows)
        if name != "worst_group_accuracy":
            value, shift = np.concatenate([value, -value], -1), np.concatenate([shift, -shift], -1)
            rows = np.concatenate([rows, rows], -1)
        if not name.endswith("_mean"):
            value, shift, rows = value.reshape(1, -1), shift.reshape(len(shift), 1, -1), rows.reshape(1, -1)
        return cls(value, shift, rows)

    def largest_alone(self) -> FloatArray:
        """Deviations (replicates,) of the contrasts that were the largest."""
        return np.take_along_axis(self.shift, self.value.argmax(-1)[None, :, None], -1).mean((-2, -1))

    def unit(self, position: int) -> _Outward:
        """Return the contrasts of one unit, without the axis of units."""
        return _Outward(self.value[position], self.shift[:, position], self.rows[position])


def _difference_ends(a: _Outward, b: _Outward, level: float, rows: int) -> tuple[float, float]:
    """Lower and upper end for the largest contrast of a less that of b, on the same rows, not clipped."""
    caution = _caution(rows)
    ends = []
    for position in range(len(a.value)):
        one, other = a.unit(position), b.unit(position)
        ends.append((-_difference_high(other, one, level, caution), _difference_high(one, other, level, caution)))
    low, high = np.mean(ends, axis=0)
    return float(low), float(high)


def _difference_high(a: _Outward, b: _Outward, level: float, caution: float) -> float:
    """Upper end for max(a) - max(b).

    With k the truly largest contrast of a, the difference is at most a_k - b_j for every j. Each k that may be the
    largest gets the lowest such bound, and the highest of these holds. Only the partner of k, and of the eight largest
    b_j those that may be the largest, are tried: fewer bounds are never wrong, and more need a wider critical value.
    """
    z = _normal_quantile(level)
    highest = np.argsort(-b.value, kind="stable")[:8]
    highest = highest[_slack(b.value, b.shift, caution)[highest] <= 0]
    ends = []
    for k in np.flatnonzero(_slack(a.value, a.shift, caution) <= 0):
        tried = highest if k in highest else np.append(highest, k)
        shift = a.shift[:, [k]] - b.shift[:, tried]
        spread = shift.std(0)
        t = np.divide(shift, spread, out=np.zeros_like(shift), where=spread > 0)
        critical = max(z, float(np.quantile((-t).max(-1), (1 + level) / 2))) if len(tried) > 1 else z
        # The standard error is itself known from few rows only; the two pseudo-rows count.
        freedom = np.minimum(a.rows[k], b.rows[tried]) + 1
        student = special.stdtrit(freedom, (1 + level) / 2) / z
        ends.append(float((a.value[k] - b.value[tried] + critical * student * spread).min()))
    return max(ends)


def seed_by_row(moves: Sequence[FloatArray]) -> float:
    """Variance of one seed's figure from what the rows do to that seed alone, out of ``moves`` (seeds, replicates)."""
    return float(np.var(moves, axis=0, ddof=1).mean()) if len(moves) > 1 else 0.0


@dataclass(frozen=True)
class OverSeeds:
    """The variance of a mean over training seeds, or of a difference of two such means.

    ``parts`` has for each list of seeds s2 / S, the variance of its mean, and its degrees of freedom S - 1. Part of
    s2 is noise of (seed x row), which the variance over rows holds already; ``beyond_rows`` is the sum of the parts
    less that noise, and not below 0. ``missing`` says which variance is unknown.
    """

    parts: tuple[tuple[float, float], ...]
    beyond_rows: float
    missing: str | None = None

    @classmethod
    def of(cls, by_seed: Sequence[FloatArray], noise: Sequence[float]) -> OverSeeds:
        """Measure the spread of lists of figures (seeds,), of which ``noise`` is the variance of (seed x row)."""
        known = [(values, one) for values, one in zip(by_seed, noise, strict=True) if len(values) > 1]
        parts = [(float(values.var(ddof=1)) / len(values), len(values) - 1.0) for values, _ in known]
        beyond = sum(variance for variance, _ in parts) - sum(one / len(values) for values, one in known)
        missing = "one seed: its variance over seeds is unknown and not in the interval"
        return cls(tuple(parts), max(0.0, beyond), missing if len(known) < len(by_seed) else None)

    def join(self, rows: float, freedom: float = math.inf) -> RowsAndSeeds:
        """Add the variance ``rows`` over test rows, which has so many degrees of freedom."""
        return RowsAndSeeds(rows, freedom, self)


@dataclass(frozen=True)
class RowsAndSeeds:
    """A variance over test rows, with its degrees of freedom, and what the seeds add to it."""

    rows: float
    row_freedom: float
    seeds: OverSeeds

    @property
    def variance(self) -> float:
        """The sum of both."""
        return self.rows + self.seeds.beyond_rows

    @property
    def degrees_of_freedom(self) -> float:
        """Satterthwaite's; those of the rows where the seeds add nothing."""
        if self.seeds.beyond_rows == 0:
            return self.row_freedom
        return satterthwaite([(self.rows, self.row_freedom), *self.seeds.parts], self.variance)

    @property
    def few(self) -> bool:
        """Whether some variance over seeds comes from fewer than four of them."""
        return any(freedom < 3 for _, freedom in self.seeds.parts)

    def critical(self, error: float) -> float:
        """How many standard errors a figure may be off, at most, but for a share ``error`` of all cases.

        Fewer than four seeds know too little of their own variance for Satterthwaite's approximation, which rejects up
        to 13% instead of 5%. Their part of the variance gets the quantile of its own degrees of freedom (Cochran 1964).
        """
        if not self.few:
            return float(special.stdtrit(self.degrees_of_freedom, 1 - error / 2))
        between = sum(variance for variance, _ in self.seeds.parts)
        share = min(1.0, between / self.variance) if self.variance > 0 else 0.0
        freedoms = [self.row_freedom, satterthwaite(self.seeds.parts, between)]
        of_rows, of_seeds = special.stdtrit(freedoms, 1 - error / 2)
        return float((1 - share) * of_rows + share * of_seeds)

    def arm(self, level: float) -> float:
        """Half the width of the interval."""
        return self.critical(1 - level) * math.sqrt(self.variance)

    def p_value(self, value: float) -> float:
        """Return the p-value of ``value`` being 0: the error probability at which the interval ends there."""
        if value == 0:
            return 1.0
        if self.variance == 0:
            return 0.0
        t = abs(value) / math.sqrt(self.variance)
        if not self.few:
            return float(2 * stats.t.sf(t, self.degrees_of_freedom))
        smallest = math.log(1e-12)
        if self.critical(math.exp(smallest)) <= t:
            return math.exp(smallest)
        return math.exp(optimize.brentq(lambda log: self.critical(math.exp(log)) - t, smallest, 0.0))


def satterthwaite(parts: Sequence[tuple[float, float]], total: float) -> float:
    """Degrees of freedom of ``total``, made of independent variance estimates that are given with their own."""
    rest = sum(variance**2 / freedom for variance, freedom in parts)
    return total**2 / rest if rest > 0 else math.inf


# ------------------------------------------------------------------------------------------------------- JSON


def estimate_to_dict(figure: Estimate) -> dict[str, Any]:
    """Return ``{"value", "low", "high", "n"}`` plus ``reason`` and ``corrected`` where there are any.

    NaN becomes null, because NaN is not JSON.
    """
    result: dict[str, Any] = {
        "value": _finite(figure.value),
        "low": _finite(figure.low),
        "high": _finite(figure.high),
        "n": figure.n,
    }
    if figure.corrected is not None:
        result["corrected"] = _finite(figure.corrected)
    if figure.reason is not None:
        result["reason"] = figure.reason
    return result


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
