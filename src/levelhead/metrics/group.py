"""Rates of groups as pure functions of count arrays.

Every function takes ``table``, an array (..., groups, classes, classes) of counts indexed by group, true class and
predicted class. Leading axes are kept, so a thousand bootstrap replicates are one call. Rates are fractions; one over
no rows is NaN. With more than two classes each class is set against the rest in turn.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from levelhead.types import ConfigError

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


def _divide(hits: Table, rows: Table) -> FloatArray:
    rows = np.asarray(rows)
    return np.divide(hits, rows, out=np.full(rows.shape, np.nan), where=rows > 0)
