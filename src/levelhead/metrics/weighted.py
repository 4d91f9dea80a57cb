"""Rates, gaps and intervals of weighted rows, from three numbers a cell: rows, sum of weights, sum of squared weights.

*Effective sample size.* Kish (1965, Survey Sampling, section 8.2): rows with the weights w count as
(sum w)^2 / sum w^2 rows of equal weight, whatever the outcome. Where weights go together with the outcome the variance
of a weighted rate p is larger or smaller than that says; the linearised one is sum w^2 (y - p)^2 / (sum w)^2, so the
effective sample size is p (1 - p) over it. In 4,000 simulated audits a cell, intervals by Kish's number alone held the
true
difference in 89% where hits had the larger weights, and those by the linearised variance alone in 88% to 91% where
weights spread far and rows were few. The smaller of the two numbers is used. With fewer than about ten rows of the
rarer outcome, and weights that depend on it, no choice covers.

*Intervals.* Wilson's, and for differences Newcombe's (:mod:`levelhead.metrics.between`), with these numbers of
rows (Korn and Graubard 1998 put them into exact intervals).
Gaps come from intervals of all pairs that hold together (Bonferroni): the largest lower and the largest upper end.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.metrics import group as group_metrics
from levelhead.metrics.between import Differences, differences, normal_quantile, proportion, shared
from levelhead.metrics.contrasts import Enough, pair_indices
from levelhead.metrics.counts import Counts, IntArray
from levelhead.metrics.group import FloatArray, Rate, Table
from levelhead.metrics.intervals import metric_names, rows_used, undefined_reason
from levelhead.metrics.names import METRICS, metric_of
from levelhead.types import Estimate

LEAST = 1e-9
"""Effective size of uninformative rows: their interval is 0 to 1."""

CLOSEST = 0.9
"""Largest correlation of two groups that share clusters."""
FEWEST_FREE = 7
"""Degrees of freedom that both groups need for a positive correlation to narrow the interval of their difference."""


class WeightedRate(NamedTuple):
    """A rate of weighted rows: its ``value``, the real ``rows``, and how many of equal weight they are ``worth``.

    Of clustered rows also the degrees of ``freedom`` of that, the number of ``clusters``, and the ``correlation``
    (..., groups, groups) of groups that share clusters; None where no two do.
    """

    value: FloatArray
    rows: IntArray
    worth: FloatArray
    freedom: FloatArray | None = None
    clusters: IntArray | None = None
    correlation: FloatArray | None = None

    @property
    def hits(self) -> FloatArray:
        """Hits among rows of equal weight that say the same."""
        return self.value * self.worth

    def worth_at(self, level: float) -> FloatArray:
        """The effective sample size for an interval with normal quantiles at ``level``, where Student's ought to be."""
        if self.freedom is None:
            return self.worth
        student = special.stdtrit(np.maximum(self.freedom, 1), (1 + level) / 2)
        # One cluster, or one beside tiny ones, says nothing of the others.
        return np.where(self.freedom < 1, LEAST, self.worth * (normal_quantile(level) / student) ** 2)

    def of(self, position: int, groups: IntArray) -> WeightedRate:
        """Return one class and these groups alone."""
        value, rows, worth, freedom, clusters = (
            None if part is None else np.asarray(part)[position][groups] for part in self[:5]
        )
        correlation = None if self.correlation is None else self.correlation[position][np.ix_(groups, groups)]
        return WeightedRate(value, rows, worth, freedom, clusters, correlation)  # type: ignore[arg-type]

    def differences(self, first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        """Return :func:`~levelhead.metrics.between.differences` of (groups,) rates."""
        worth = self.worth_at(shared(level, comparisons))
        correlation = None
        if self.correlation is not None and self.freedom is not None:
            correlation = relied(self.correlation[first, second], self.freedom[first], self.freedom[second])
        hits = np.where(self.rows > 0, self.value, 0) * worth
        return differences(hits, worth, first, second, level=level, comparisons=comparisons, correlation=correlation)


def relied(correlation: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return as much of a correlation of two figures, with these degrees of freedom, as an interval may rely on."""
    # Residuals that are all alike must not take all width away, nor a few large clusters most of it.
    return np.minimum(correlation, np.where(np.minimum(first, second) < FEWEST_FREE, 0.0, CLOSEST))


@dataclass(frozen=True)
class WeightedCounts:
    """Rows of each (group, label, prediction), the sum of their weights, and that of the squared weights.

    All three are (groups, classes, classes). Weights are positive.
    """

    counts: Counts
    weight: FloatArray
    square: FloatArray

    @property
    def tables(self) -> tuple[NDArray[Any], ...]:
        """Rows, sums of weights and sums of squared weights."""
        return self.counts.table, self.weight, self.square

    @classmethod
    def equal(cls, counts: Counts) -> WeightedCounts:
        """Return rows that all weigh 1."""
        ones = counts.table.astype(np.float64)
        return cls(counts, ones, ones)

    def keep(self, groups: Sequence[Hashable]) -> WeightedCounts:
        """Return these groups alone."""
        at = [self.counts.groups.index(name) for name in groups]
        return WeightedCounts(self.counts.keep(groups), self.weight[at], self.square[at])

    def pooled(self) -> WeightedCounts:
        """Return all rows in one group."""
        table, weight, square = (one.sum(0, keepdims=True) for one in self.tables)
        return WeightedCounts(Counts(table, ("all",), self.counts.classes), weight, square)

    def swapped(self, positive: int) -> WeightedCounts:
        """Return two classes, ``positive`` and the rest, with label and prediction changed over."""
        table, weight, square = (two_by_two(one, positive).swapaxes(1, 2) for one in self.tables)
        return WeightedCounts(Counts(table, self.counts.groups, (0, 1)), weight, square)

    def rate(self, name: str, positive: int | None) -> WeightedRate:
        """Return a rate of :data:`~levelhead.metrics.group.RATES`, (classes compared, groups)."""
        count = _false_positives if name == "false_positive_rate" else group_metrics.RATES[name]
        return _rate(*(count(table, positive) for table in self.tables))

    @property
    def cells(self) -> WeightedRate:
        """Accuracy of each (group, label), (groups, classes)."""
        return _rate(*map(group_metrics.cell_hits, self.tables))

    @property
    def accuracy(self) -> WeightedRate:
        """Accuracy of each group, (groups,)."""
        return _rate(*(Rate(np.trace(one, axis1=-2, axis2=-1), one.sum((-2, -1))) for one in self.tables))

    def enough(self, positive: int | None, min_count: int) -> Enough:
        """Which rates have enough rows to be compared."""
        return Enough.of(self.counts.table, positive, min_count)

    def undefined_reason(self, name: str, positive: int | None, min_count: int, enough: Enough) -> str | None:
        """Say why a metric cannot be computed; None if it can."""
        return undefined_reason(self.counts, name, positive, min_count, enough)

    @property
    def worth(self) -> FloatArray:
        """Kish's effective sample size of each group, (groups,)."""
        return kish(self.weight.sum((-2, -1)), self.square.sum((-2, -1)))


def two_by_two(table: NDArray[Any], positive: int) -> NDArray[Any]:
    """Sum all classes but one: (..., classes, classes) -> (..., 2, 2), of the rest and the ``positive`` one."""
    for axis in (-2, -1):
        rest = np.delete(table, positive, axis).sum(axis, keepdims=True)
        table = np.concatenate([rest, table.take([positive], axis)], axis)
    return table


def kish(weight: FloatArray, square: FloatArray) -> FloatArray:
    """Return the effective sample size of some rows, from their sums of weights and of squared weights.

    0 where there are no rows.
    """
    weight, square = np.asarray(weight, float), np.asarray(square, float)
    return np.divide(weight, square, out=np.zeros(weight.shape), where=square > 0) * weight


def _false_positives(table: Table, positive: int | None) -> Rate:
    """Count false alarms by sums alone: differences of sums of weights would be noise where the weights differ much."""
    rates = []
    for k in group_metrics.classes_compared(table.shape[-1], positive):
        others = np.delete(table, k, axis=1)
        rates.append((others[..., k].sum(-1), others.sum((-2, -1))))
    hits, rows = zip(*rates, strict=True)
    return Rate(np.stack(hits), np.stack(rows))


def _rate(rows: Rate, weight: Rate, square: Rate) -> WeightedRate:
    hits, total = np.asarray(weight.hits, float), np.asarray(weight.rows, float)
    there = np.asarray(rows.rows) > 0
    share = np.clip(np.divide(hits, total, out=np.full(total.shape, np.nan), where=there), 0, 1)
    # Sums of weights are rounded, so that "no hit" and "no miss" are said by the counts of rows.
    share = np.where(there & (rows.hits == 0), 0.0, np.where(there & (rows.hits == rows.rows), 1.0, share))
    missed = np.maximum(0.0, np.asarray(square.rows, float) - square.hits)
    spread = (1 - share) ** 2 * square.hits + share**2 * missed
    worth = kish(total, np.asarray(square.rows, float))
    both = there & (rows.hits > 0) & (rows.hits < rows.rows) & (spread > 0)
    linear = np.divide(share * (1 - share) * total, spread, out=np.zeros(total.shape), where=both) * total
    return WeightedRate(share, np.asarray(rows.rows), np.minimum(worth, np.where(both, linear, worth)))


def weighted_proportion(rate: WeightedRate, at: int | tuple[int, ...], level: float) -> Estimate:
    """Return one rate with Wilson's interval at its effective sample size; undefined if there are none."""
    rows = int(rate.rows[at])
    if not rows:
        return Estimate.undefined("no rows")
    value, worth = float(rate.value[at]), float(rate.worth_at(level)[at])
    one = proportion(value * worth, worth, level=level)  # type: ignore[arg-type]  # fractions of rows are as good
    return Estimate(value, min(value, float(one.low)), max(value, float(one.high)), rows)


def weighted_estimates(
    weighted: WeightedCounts, *, positive: int | None, level: float, min_count: int
) -> dict[str, Estimate]:
    """Return every metric of :func:`~levelhead.metrics.intervals.estimate_all` for weighted rows.

    Args:
        weighted: the rows.
        positive: as there.
        level: as there.
        min_count: as there, in real rows.

    Returns:
        the figures by name; undefined ones with the reason. None has a bias-corrected figure.
    """
    counts, enough = weighted.counts, weighted.enough(positive, min_count)
    found = {}
    for name in metric_names(len(counts.classes), positive):
        rows = rows_used(counts.table, name, positive, min_count, enough)
        reason = weighted.undefined_reason(name, positive, min_count, enough)
        if reason:
            found[name] = Estimate.undefined(reason, rows)
            continue
        value, low, high = _ends(weighted, name, positive, level, enough)
        found[name] = Estimate(value, max(0.0, min(value, low)), min(1.0, max(value, high)), rows)
    return found


def _ends(
    weighted: WeightedCounts, name: str, positive: int | None, level: float, enough: Enough
) -> tuple[float, float, float]:
    metric = metric_of(name)
    if metric.name == "accuracy":
        whole = weighted_proportion(weighted.pooled().accuracy, (0,), level)
        return whole.value, whole.low, whole.high
    if metric.name == "balanced_accuracy":
        recalls = weighted.pooled().cells
        worth = recalls.worth_at(level)[0]
        # Agresti and Caffo's pseudo-rows, as without weights
        share = (recalls.value[0] * worth + 1) / (worth + 2)
        spread = np.sqrt(share * (1 - share) / (worth + 2)) / share.size
        # Recalls of the same people go together; where they go apart is not relied on.
        together = np.eye(len(spread)) if recalls.correlation is None else np.maximum(recalls.correlation, 0)
        np.fill_diagonal(together, 1.0)
        variance = spread @ together @ spread
        middle, reach = float(share.mean()), normal_quantile(level) * math.sqrt(max(0.0, variance))
        return float(recalls.value[0].mean()), middle - reach, middle + reach
    if metric.kind == "lowest":
        cells, kept = weighted.cells, np.argwhere(enough.cells)
        of_each = shared(level, len(kept))
        figures = [weighted_proportion(cells, (int(i), int(k)), of_each) for i, k in kept]
        return (
            min(one.value for one in figures),
            min(one.low for one in figures),
            min(one.high for one in figures),
        )
    groups, asked = enough.groups(name), np.flatnonzero(enough.classes(name))
    rates = {rate: weighted.rate(rate, positive) for rate in metric.rates_used}
    pairs = {int(k): _kept_pairs(groups[k]) for k in asked}
    comparisons, every = sum(len(first) for first, _ in pairs.values()) * len(rates), np.arange(groups.shape[-1])
    by_class = []
    for k, (first, second) in pairs.items():
        far = {}
        for rate, one in rates.items():
            differ = one.of(k, every).differences(first, second, level=level, comparisons=comparisons)
            value = np.abs(one.value[k][first] - one.value[k][second])
            far[rate] = np.stack(
                [value, np.maximum(0, np.maximum(differ.low, -differ.high)), np.maximum(-differ.low, differ.high)]
            )
        parts = [sum((far[rate] for rate in part), np.zeros(3)[:, None]) / len(part) for part in metric.rates]
        by_class.append(np.max(parts, axis=0).max(-1))
    # Ends hold together over classes, so those of the mean are the means of the ends.
    value, low, high = np.mean(by_class, 0) if name.endswith("_mean") else np.max(by_class, 0)
    return float(value), float(low), float(high)


def _kept_pairs(groups: FloatArray) -> tuple[IntArray, IntArray]:
    kept = np.flatnonzero(groups)
    first, second = pair_indices(len(kept))
    return kept[first], kept[second]


def worst_class(rows: WeightedCounts, name: str, positive: int | None, min_count: int) -> int:
    """Return the index of the class behind a gap, out of those that two groups have enough rows for."""
    enough, metric = rows.enough(positive, min_count), METRICS[name]
    rates = {rate: rows.rate(rate, positive).value for rate in metric.rates_used}
    compared = np.flatnonzero(enough.classes(name))
    gaps = []
    for k in compared:
        first, second = _kept_pairs(enough.groups(name)[k])
        far = {rate: np.abs(value[k, first] - value[k, second]) for rate, value in rates.items()}
        gaps.append(max((sum(far[rate] for rate in part) / len(part)).max() for part in metric.rates))
    return group_metrics.classes_compared(len(rows.counts.classes), positive)[compared[np.argmax(gaps)]]
