"""Every group metric as the largest of signed contrasts of rates."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics import group as group_metrics
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray, Rate, Table

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds", "equalized_odds_worst")
LEVELS = ("accuracy", "balanced_accuracy")
METRICS = (*LEVELS, "worst_group_accuracy", *GAPS)
FEW = 32
"""Groups of which all pairs are resampled. Of more, the pairs are too many, and their number is allowed for instead."""

BoolArray = NDArray[np.bool_]
Moments = tuple[FloatArray, FloatArray]


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
        """Which of :meth:`Contrasts.contrasts` count, (classes compared, contrasts)."""
        if name in LEVELS:
            return np.ones((1, 1), bool)
        if name == "worst_group_accuracy":
            return self.cells.reshape(1, -1)
        groups = self.groups(name)
        first, second = pair_indices(groups.shape[-1])
        pairs = groups[:, first] & groups[:, second]
        return np.concatenate([pairs, pairs], -1) if name.startswith("equalized_odds") else pairs


class Contrasts:
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
