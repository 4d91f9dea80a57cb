"""Group metrics as pure functions of count arrays.

Every function takes ``table``, an array (..., groups, classes, classes) of counts indexed by group, true class and
predicted class. Leading axes are kept, so a thousand bootstrap replicates are one call. Figures are fractions.
A rate over no rows is NaN, and NaN spreads into every figure that needs the rate: it never turns into 0.

With more than two groups a gap is the largest one over all pairs of groups. With more than two classes each class
is set against the rest in turn; the plain name is the worst class, the name with ``_mean`` is the mean over classes.

Sources: demographic parity (Dwork et al. 2012), equal opportunity and equalized odds (Hardt, Price and Srebro
2016), worst-group accuracy (Sagawa et al. 2020, GroupDRO; Liu et al. 2021, JTT).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any, Concatenate, NamedTuple, ParamSpec

import numpy as np
from numpy.typing import NDArray

from levelhead.arrays import checked, counts_of
from levelhead.metrics.names import METRICS
from levelhead.metrics.names import gaps as gap_names
from levelhead.types import ConfigError

P = ParamSpec("P")
FloatArray = NDArray[np.float64]
Table = NDArray[Any]
SHORT = 8
"""Classes up to which sums over classes are made one by one."""


class Rate(NamedTuple):
    """A proportion before it is divided: ``hits`` out of ``rows``, arrays of one shape."""

    hits: Table
    rows: Table

    @property
    def value(self) -> FloatArray:
        """hits / rows, NaN where there are no rows."""
        return _divide(self.hits, self.rows)


def _of_counts(function: Callable[Concatenate[Table, P], FloatArray]) -> Callable[Concatenate[Table, P], FloatArray]:
    """Check the table and the options of a public metric."""
    inner = checked(function)

    @functools.wraps(function)
    def call(table: Table, *args: P.args, **kwargs: P.kwargs) -> FloatArray:
        return inner(counts_of(table), *args, **kwargs)

    return call


def add_up(table: Table) -> Table:
    """Return the sum over the last axis; along a short one, of a few classes, that is ten times as fast as NumPy's."""
    if table.shape[-1] > SHORT:
        return np.asarray(table.sum(-1))
    return reduce(operator.add, [table[..., k] for k in range(table.shape[-1])])


def _of_classes(table: Table, chosen: list[int]) -> Table:
    """Return the sums over the last axis in the chosen places of the one before it, (..., chosen, groups)."""
    if table.shape[-1] > SHORT:
        return np.moveaxis(table.sum(-1)[..., chosen], -1, -2)
    return np.stack([add_up(table[..., k, :]) for k in chosen], axis=-2)


def classes_compared(size: int, positive: int | None) -> list[int]:
    """Say which classes are set against the rest.

    Args:
        size: number of classes.
        positive: index of the positive class; None means class 1 of two, and every class of three or more.

    Returns:
        class indices.

    Raises:
        ConfigError: ``positive`` is not a class index.
    """
    if positive is not None:
        if not 0 <= positive < size:
            raise ConfigError(
                f"positive={positive} is not a class index: there are {size} classes. Pass 0 to {size - 1}."
            )
        return [positive]
    # Class 1 of a single class cannot be; class 0 then keeps demographic parity computable.
    return list(range(size)) if size > 2 else [size - 1]


def selection(table: Table, positive: int | None = None) -> Rate:
    """Count predictions of a class among the rows of each group; shape (..., classes compared, groups)."""
    chosen = classes_compared(table.shape[-1], positive)
    hits = _of_classes(np.swapaxes(table, -1, -2), chosen)
    return Rate(hits, np.broadcast_to(add_up(add_up(table))[..., None, :], hits.shape))


def true_positives(table: Table, positive: int | None = None) -> Rate:
    """Count hits among the rows of the class itself; shape (..., classes compared, groups)."""
    chosen = classes_compared(table.shape[-1], positive)
    hits = np.stack([table[..., k, k] for k in chosen], axis=-2)
    return Rate(hits, _of_classes(table, chosen))


def false_positives(table: Table, positive: int | None = None) -> Rate:
    """Count false alarms among the rows of all other classes; shape (..., classes compared, groups)."""
    chosen, found = selection(table, positive), true_positives(table, positive)
    return Rate(chosen.hits - found.hits, chosen.rows - found.rows)


RATES = {"selection_rate": selection, "true_positive_rate": true_positives, "false_positive_rate": false_positives}
"""What a gap may compare, by the names that :class:`~levelhead.metrics.names.Metric` has for them."""


def cell_hits(table: Table) -> Rate:
    """Count correct predictions in each (group, label) cell; shape (..., groups, classes)."""
    return Rate(np.diagonal(table, axis1=-2, axis2=-1), add_up(table))


@_of_counts
def selection_rate(table: Table, positive: int = 1) -> FloatArray:
    """Fraction of each group's rows that are predicted positive, shape (..., groups)."""
    return selection(table, positive).value[..., 0, :]


@_of_counts
def true_positive_rate(table: Table, positive: int = 1) -> FloatArray:
    """Fraction of each group's positive rows that are predicted positive, shape (..., groups)."""
    return true_positives(table, positive).value[..., 0, :]


@_of_counts
def false_positive_rate(table: Table, positive: int = 1) -> FloatArray:
    """Fraction of each group's negative rows that are predicted positive, shape (..., groups)."""
    return false_positives(table, positive).value[..., 0, :]


@_of_counts
def group_accuracy(table: Table) -> FloatArray:
    """Fraction of each group's rows that are predicted correctly, shape (..., groups)."""
    return _divide(np.trace(table, axis1=-2, axis2=-1), table.sum((-2, -1)))


@_of_counts
def accuracy(table: Table) -> FloatArray:
    """Fraction of all rows that are predicted correctly, shape (...)."""
    return _divide(np.trace(table, axis1=-2, axis2=-1).sum(-1), table.sum((-3, -2, -1)))


@_of_counts
def balanced_accuracy(table: Table) -> FloatArray:
    """Mean over the classes of the fraction of their rows predicted correctly, groups pooled, shape (...)."""
    pooled = table.sum(-3)
    return _divide(np.diagonal(pooled, axis1=-2, axis2=-1), pooled.sum(-1)).mean(-1)


@_of_counts
def worst_group_accuracy(table: Table) -> FloatArray:
    """Lowest accuracy over the (group, label) cells, shape (...).

    This is the "worst group" of GroupDRO and JTT, where a group is an attribute crossed with a label. It is not
    the lowest of :func:`group_accuracy`.
    """
    return cell_hits(table).value.min((-2, -1))


@_of_counts
def demographic_parity(table: Table, positive: int | None = None) -> FloatArray:
    """Largest absolute difference of selection rates between two groups, worst class, shape (...)."""
    return gaps_by_class(table, "demographic_parity", positive).max(-1)


@_of_counts
def demographic_parity_mean(table: Table, positive: int | None = None) -> FloatArray:
    """Mean over the classes of each class's demographic parity gap, shape (...)."""
    return gaps_by_class(table, "demographic_parity", positive).mean(-1)


@_of_counts
def equal_opportunity(table: Table, positive: int | None = None) -> FloatArray:
    """Largest absolute difference of true positive rates between two groups, worst class, shape (...)."""
    return gaps_by_class(table, "equal_opportunity", positive).max(-1)


@_of_counts
def equal_opportunity_mean(table: Table, positive: int | None = None) -> FloatArray:
    """Mean over the classes of each class's equal opportunity gap, shape (...)."""
    return gaps_by_class(table, "equal_opportunity", positive).mean(-1)


@_of_counts
def equalized_odds(table: Table, positive: int | None = None) -> FloatArray:
    """Largest (|dTPR| + |dFPR|) / 2 between two groups, worst class, shape (...)."""
    return gaps_by_class(table, "equalized_odds", positive).max(-1)


@_of_counts
def equalized_odds_mean(table: Table, positive: int | None = None) -> FloatArray:
    """Mean over the classes of each class's equalized odds gap, shape (...)."""
    return gaps_by_class(table, "equalized_odds", positive).mean(-1)


@_of_counts
def equalized_odds_worst(table: Table, positive: int | None = None) -> FloatArray:
    """Largest max(|dTPR|, |dFPR|) between two groups, worst class, shape (...).

    Several libraries call this form "equalized odds difference"; it is at least as large as the mean form.
    """
    return gaps_by_class(table, "equalized_odds_worst", positive).max(-1)


@_of_counts
def equalized_odds_worst_mean(table: Table, positive: int | None = None) -> FloatArray:
    """Mean over the classes of each class's max(|dTPR|, |dFPR|) gap, shape (...)."""
    return gaps_by_class(table, "equalized_odds_worst", positive).mean(-1)


@_of_counts
def gaps_by_class(table: Table, metric: str, positive: int | None = None) -> FloatArray:
    """Gap of each class against the rest.

    Args:
        table: (..., groups, classes, classes) counts.
        metric: ``demographic_parity``, ``equal_opportunity``, ``equalized_odds`` or ``equalized_odds_worst``.
        positive: index of the positive class, or None (see :func:`classes_compared`).

    Returns:
        (..., classes compared): the largest gap over pairs of groups; NaN with fewer than two groups.

    Raises:
        ConfigError: unknown metric or class.
    """
    if metric not in gap_names():
        raise ConfigError(f"Unknown gap {metric!r}. Known: {', '.join(gap_names())}.")
    record = METRICS[metric]
    far = {name: np.abs(_pair_differences(RATES[name](table, positive).value)) for name in record.rates_used}
    parts = [reduce(operator.add, [far[name] for name in part]) / len(part) for part in record.rates]
    gaps = reduce(np.maximum, parts)
    if gaps.shape[-1] == 0:
        return np.full(gaps.shape[:-1], np.nan)
    return gaps.max(-1)


def _pair_differences(rates: FloatArray) -> FloatArray:
    """(..., groups) -> (..., pairs)."""
    first, second = np.triu_indices(rates.shape[-1], 1)
    return rates[..., first] - rates[..., second]


def _divide(hits: Table, rows: Table) -> FloatArray:
    rows = np.asarray(rows)
    return np.divide(hits, rows, out=np.full(rows.shape, np.nan), where=rows > 0)
