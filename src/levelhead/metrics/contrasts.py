"""Every group metric as the largest of signed contrasts of rates.

With more than two groups a gap is the largest one over all pairs of groups. With more than two classes each class
is set against the rest in turn; the plain name is the worst class, the name with ``_mean`` is the mean over classes.

Sources: demographic parity (Dwork et al. 2012), equal opportunity and equalized odds (Hardt, Price and Srebro
2016), worst-group accuracy (Sagawa et al. 2020, GroupDRO; Liu et al. 2021, JTT).
"""

from __future__ import annotations

import itertools
import operator
from functools import cached_property, lru_cache, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics import group as group_metrics
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray, Rate, Table
from levelhead.metrics.names import metric_of

FEW = 32
"""Groups of which all pairs are resampled. Of more, the pairs are too many, and their number is allowed for instead."""

BoolArray = NDArray[np.bool_]
Moments = tuple[FloatArray, FloatArray]


class Enough(NamedTuple):
    """Which rates are based on enough rows to be compared.

    ``rates`` are (classes compared, groups) by the rate's name, ``cells`` is (groups, classes); all bool.
    """

    rates: dict[str, BoolArray]
    cells: BoolArray

    @classmethod
    def of(cls, table: IntArray, positive: int | None, least: int) -> Enough:
        """Ask for ``least`` rows under each rate of ``table``: rows of the group, its positives, its negatives."""
        rates = {name: count(table, positive).rows >= least for name, count in group_metrics.RATES.items()}
        return cls(rates, table.sum(-1) >= least)

    def groups(self, name: str) -> BoolArray:
        """Which groups a gap compares, (classes compared, groups)."""
        return np.logical_and.reduce([self.rates[rate] for rate in metric_of(name).rates_used])

    def classes(self, name: str) -> BoolArray:
        """Which classes have two groups to compare, (classes compared,)."""
        return self.groups(name).sum(-1) > 1

    def contrasts(self, name: str) -> BoolArray:
        """Which of :meth:`Contrasts.contrasts` count, (classes compared, contrasts)."""
        metric = metric_of(name)
        if metric.kind == "level":
            return np.ones((1, 1), bool)
        if metric.kind == "lowest":
            return self.cells.reshape(1, -1)
        groups = self.groups(name)
        first, second = pair_indices(groups.shape[-1])
        pairs = groups[:, first] & groups[:, second]
        return np.concatenate([pairs for part in metric.rates for _ in _signs(part)], -1)


class Contrasts:
    """The contrasts of every metric for one table or a stack of replicates (..., groups, classes, classes)."""

    def __init__(self, table: Table, positive: int | None, enough: Enough, *, smooth: bool = True) -> None:
        self.table, self.positive, self.enough, self.smooth = table, positive, enough, smooth
        self._counted: dict[str, Rate] = {}
        self._shares: dict[str, Moments] = {}
        self._pairs: dict[str, Moments] = {}

    def _share(self, rate: Rate, pseudo: int) -> Moments:
        """Rate and its variance with this many pseudo-successes and pseudo-failures."""
        if not self.smooth:
            value = rate.value
            return value, np.zeros_like(value)
        rows = rate.rows + 2.0 * pseudo
        value = (rate.hits + pseudo) / rows
        return value, value * (1 - value) / rows

    def counted(self, rate: str) -> Rate:
        """Hits and rows of a rate of :data:`~levelhead.metrics.group.RATES`, (..., classes compared, groups)."""
        if rate not in self._counted:
            if rate == "false_positive_rate":  # from the other two, which are counted anyway
                selected, found = self.counted("selection_rate"), self.counted("true_positive_rate")
                self._counted[rate] = Rate(selected.hits - found.hits, selected.rows - found.rows)
            else:
                self._counted[rate] = group_metrics.RATES[rate](self.table, self.positive)
        return self._counted[rate]

    def share(self, rate: str) -> Moments:
        """A rate with one pseudo-success and one pseudo-failure, and its variance."""
        if rate not in self._shares:
            self._shares[rate] = self._share(self.counted(rate), 1)
        return self._shares[rate]

    def pairs(self, rate: str) -> Moments:
        """Differences of a rate over pairs of groups, and their variances, (..., classes compared, pairs)."""
        if rate not in self._pairs:
            self._pairs[rate] = _pairs(self.share(rate))
        return self._pairs[rate]

    @cached_property
    def cells(self) -> Rate:
        """Hits and rows of each (group, label)."""
        return group_metrics.cell_hits(self.table)

    def contrasts(self, name: str) -> Moments:
        """Contrasts and their variances, both (..., classes compared, contrasts)."""
        metric = metric_of(name)
        if metric.name == "accuracy":
            rate = Rate(self.cells.hits.sum((-2, -1)), self.cells.rows.sum((-2, -1)))
            value, variance = self._share(rate, 2)
            return value[..., None, None], variance[..., None, None]
        if metric.name == "balanced_accuracy":
            value, variance = self._share(Rate(self.cells.hits.sum(-2), self.cells.rows.sum(-2)), 1)
            size = value.shape[-1]
            return value.mean(-1)[..., None, None], (variance.sum(-1) / size**2)[..., None, None]
        if metric.kind == "lowest":
            value, variance = self._share(self.cells, 2)
            shape = (*value.shape[:-2], 1, -1)
            return -value.reshape(shape), variance.reshape(shape)
        if len(metric.rates_used) == len(metric.rates) == 1:
            return self.pairs(metric.rates_used[0])
        deltas, variances = [], []
        for part in metric.rates:
            differences = [self.pairs(rate) for rate in part]
            variance = reduce(operator.add, [variance for _, variance in differences]) / len(part) ** 2
            for signs in _signs(part):
                deltas.append(_signed_sum(signs, [value for value, _ in differences]) / len(part))
                variances.append(variance)
        return np.concatenate(deltas, -1), np.concatenate(variances, -1)

    def rarest(self, name: str) -> IntArray:
        """Rows under the rarest rate of each contrast, (..., classes compared, contrasts)."""
        metric = metric_of(name)
        if metric.kind == "level":
            return self.table.sum((-3, -2, -1))[..., None, None]
        if metric.kind == "lowest":
            return self.cells.rows.reshape(*self.table.shape[:-3], 1, -1)
        first, second = pair_indices(self.table.shape[-3])
        found = []
        for part in metric.rates:
            rows = reduce(np.minimum, [self.counted(rate).rows for rate in part])
            found += [np.minimum(rows[..., first], rows[..., second]) for _ in _signs(part)]
        return np.concatenate(found, -1)

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

        gaps = []
        for part in metric_of(name).rates:
            values = [self.share(rate)[0] for rate in part]
            sums = [widest(_signed_sum(signs, values)) for signs in _signs(part)]
            gaps.append(reduce(np.maximum, sums) / len(part))
        return reduce(np.maximum, gaps)

    def values(self, name: str) -> FloatArray:
        """The metric itself, shape (...)."""
        kind = metric_of(name).kind
        if kind == "level":
            return self.contrasts(name)[0][..., 0, 0]
        if kind == "lowest":
            return -self.contrasts(name)[0][..., self.enough.contrasts(name)].max(-1)
        gaps = self.by_class(name)
        return gaps.mean(-1) if name.endswith("_mean") else gaps.max(-1)

    def largest_t(self, name: str) -> FloatArray:
        """Largest absolute contrast in its standard errors, shape (...).

        Of many groups only the :data:`FEW` whose rates lie farthest from the mean are paired. A pair's t squared is at
        most the sum of its two groups' squared distances, each in its own standard errors (Cauchy and Schwarz), so
        that the largest is among these.
        """
        groups, parts = self.enough.groups(name), metric_of(name).rates
        if groups.shape[-1] > FEW:
            found = [_largest_t(*_farthest([self.share(rate) for rate in part], groups)) for part in parts]
        else:
            found = [_largest_t([self.pairs(rate) for rate in part], groups) for part in parts]
        return np.max(found, axis=0)


def measured(table: Table, metric: str, positive: int | None = None) -> FloatArray:
    """Return a metric of counts (..., groups, classes, classes) as it was measured, without an interval: (...).

    NaN where a rate that the metric needs has no rows, and for a gap of fewer than two groups.
    """
    every = Enough.of(np.zeros(table.shape[-3:], np.int64), positive, 0)
    if metric_of(metric).kind == "gap" and table.shape[-3] < 2:
        return np.full(table.shape[:-3], np.nan)
    return Contrasts(table, positive, every, smooth=False).values(metric)


def _signs(part: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Signs of the rates in each contrast of a part: of the contrasts that differ in all signs only one counts."""
    return [(1, *others) for others in itertools.product((1, -1), repeat=len(part) - 1)]


def _signed_sum(signs: tuple[int, ...], values: list[FloatArray]) -> FloatArray:
    """Sum of ``values`` with their signs; the first sign is positive."""
    total = values[0]
    for sign, value in zip(signs[1:], values[1:], strict=True):
        total = total + value if sign > 0 else total - value
    return total


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
def pair_indices(groups: int, reference: int | None = None) -> tuple[IntArray, IntArray]:
    """First and second group of every pair; of those with a ``reference`` alone, it is the second."""
    if reference is None:
        return np.triu_indices(groups, 1)
    others = np.delete(np.arange(groups), reference)
    return others, np.full(len(others), reference)


def _pairs(rates: Moments) -> Moments:
    """Differences over pairs of groups and their variances: (..., groups) -> (..., pairs)."""
    value, variance = rates
    first, second = pair_indices(value.shape[-1])
    return value.take(first, -1) - value.take(second, -1), variance.take(first, -1) + variance.take(second, -1)
