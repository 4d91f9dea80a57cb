"""Directional bias amplification: does a model tie task and attribute closer together than its training labels did?

Wang and Russakovsky, "Directional bias amplification" (ICML 2021), equation 1. A -> T is about predicting the task T:
for each attribute a and task t, P(T^ = t | A = a) - P(T = t | A = a), with the sign of P(A, T) - P(A) P(T) in the
training labels, and the mean over all pairs. T -> A is the same with the parts changed over. Above 0, predictions go
further than the labels; it is no measure of how often they are wrong.

A binary attribute or task is always two columns, itself and its complement. With a single column, rows that have
neither are dropped before the sign is taken, as the published code does, and the sign can turn over: 11001010 and
11100010 give -0.25 where two columns give +0.25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics.between import unlike
from levelhead.metrics.clustered import Members
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import estimate_to_dict
from levelhead.metrics.scores import student
from levelhead.types import Estimate, printable


@dataclass(frozen=True)
class Amplification:
    """A -> T for one attribute: ``value`` with its interval, the mean over groups and classes.

    A pair of both whose sign is chance is not in the mean. Chance is what Fisher's exact test of the group against all
    others cannot rule out, with all groups and classes allowed for: of many tiny groups some go together with a class
    by chance, and their predictions then go "less far".
    """

    value: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {"value": estimate_to_dict(self.value)}


def signs(train: IntArray) -> FloatArray:
    """Direction of each (group, class) of a count table (groups, classes): 1, -1, or 0 if it is exactly none."""
    rows = train.sum()
    excess = train / rows - train.sum(1, keepdims=True) / rows * (train.sum(0, keepdims=True) / rows)
    return np.sign(np.where(np.abs(excess) < 1e-15, 0.0, excess))


def _told(train: IntArray, error: float) -> NDArray[np.bool_]:
    """Say which pairs of a count table (groups, classes) go together more, or less, often than chance would have it."""
    groups, classes = train.shape
    others = train.sum(0) - train
    hits, rows = np.stack([train, others]).reshape(2, -1), np.stack([train, others]).sum(-1, keepdims=True)
    rows = np.broadcast_to(rows, (2, groups, classes)).reshape(2, -1)
    # Two groups, or two classes, are one question seen from both sides.
    questions = (groups if groups > 2 else 1) * (classes if classes > 2 else 1)
    first = np.arange(train.size)
    told = unlike(hits.ravel(), rows.ravel(), first, first + train.size, error / questions)
    return told.reshape(groups, classes)


def amplification_of(table: NDArray[Any], directions: FloatArray) -> FloatArray:
    """Signed differences of the pairs from counts (..., groups, classes, predicted classes): (..., groups, classes)."""
    rows = table.sum((-2, -1))[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(directions * (table.sum(-2) - table.sum(-1)) / rows)


def audited_amplification(table: IntArray, *, level: float = 0.95, members: Members | None = None) -> Amplification:
    """Estimate A -> T from counts.

    Args:
        table: (groups, classes, predicted classes) counts of the evaluated rows.
        level: confidence level.
        members: the clusters that the rows come in; None: rows are independent.

    Returns:
        the figure; undefined with a reason where no pair has a direction.
    """
    known, rows = table.sum(-1), int(table.sum())
    if rows == 0 or (table.sum((-2, -1)) > 0).sum() < 2:
        return Amplification(Estimate.undefined("fewer than two groups have rows", rows))
    directions = np.where(_told(known, 1 - level), signs(known), np.nan)
    found = amplification_of(table, directions)
    used = ~np.isnan(found)
    if not used.any():
        few = "the labels show no association of group and class beyond chance"
        return Amplification(Estimate.undefined(few, rows))
    # With fixed signs the figure is a sum of independent means, of what each row adds: the sign of its predicted class
    # less that of its own.
    sign = np.where(used, directions, 0.0)
    adds = sign[:, None, :] - sign[:, :, None]  # (groups, classes, predicted classes)
    n = table.sum((-2, -1)).astype(np.float64)
    there = n > 0
    if members is not None:
        # What each cluster adds to the sum of the groups' means, whichever of its rows are in which group.
        means = (table * adds).sum((-2, -1)) / np.maximum(n, 1)
        of_rows = (adds[members.group, members.label, members.prediction] - means[members.group]) / n[members.group]
        _, place = np.unique(members.cluster, return_inverse=True)
        sums, sizes = np.bincount(place, of_rows * members.rows), np.bincount(place, members.rows)
        variance = (sums**2).sum() * len(sums) / max(1, len(sums) - 1) / used.sum() ** 2
        effective = max(1.0, float(sizes.sum() ** 2 / (sizes**2).sum()) - 1)
        return Amplification(_student(float(found[used].mean()), float(variance), effective, rows, level))
    n = n[there]
    mean = (table * adds).sum((-2, -1))[there] / n
    squares = (table * adds**2).sum((-2, -1))[there] / n
    spread = np.maximum(0, squares - mean**2) / np.maximum(1, n - 1) / used.sum() ** 2
    freedom = spread.sum() ** 2 / max(1e-300, float((spread**2 / np.maximum(1, n - 1)).sum()))
    value = _student(float(found[used].mean()), float(spread.sum()), max(1.0, float(freedom)), rows, level)
    return Amplification(value)


def _student(value: float, variance: float, freedom: float, rows: int, level: float) -> Estimate:
    if variance <= 0:
        return Estimate.without_interval(value, rows, "every row of a group changes it alike")
    return student(value, variance, freedom, rows, level)


def amplification_sentence(name: str, found: Amplification) -> str:
    """Say whether predictions tie group and class closer together than the labels do."""
    where = f"By {printable(name)}"
    one = found.value
    if not one.defined:
        return f"{where}, bias amplification is undefined: {one.reason}."
    shown, form = (one.size, ".1f") if one.excludes_zero else (one, "+.1f")
    span = one.reason if math.isnan(one.low) else f"interval {100 * shown.low:{form}} to {100 * shown.high:{form}}"
    size = f"{100 * shown.value:{form}} points, {span}".replace(" -", " −")
    if not one.excludes_zero:
        return f"{where}, predictions do not measurably amplify the differences in the labels: {size}."
    verb = "exaggerate" if one.value > 0 else "understate"
    return f"{where}, predictions {verb} the differences between groups in the labels by {size}."
