"""How well scores order the two classes within each group: the area under the ROC curve, whatever the threshold.

Intervals hold test rows and training seeds together, like those of the counts; the variance over rows is that of
DeLong, DeLong and Clarke-Pearson (Biometrics 1988), from placement values averaged over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from levelhead.metrics.intervals import _satterthwaite, _seed_variance
from levelhead.types import DataError, Estimate

FloatArray = NDArray[np.float64]


def _placements(positive: FloatArray, negative: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Share of the other class that each score beats, ties counting half: (seeds, positives), (seeds, negatives)."""
    own_p, own_n = stats.rankdata(positive, axis=1), stats.rankdata(negative, axis=1)
    ranks = stats.rankdata(np.concatenate([positive, negative], axis=1), axis=1)
    p, n = positive.shape[1], negative.shape[1]
    return (ranks[:, :p] - own_p) / n, 1 - (ranks[:, p:] - own_n) / p


def _estimate(
    up: FloatArray, down: FloatArray, by_seed: list[FloatArray], level: float, low: float, high: float
) -> Estimate:
    """Mean over seeds; rows' variance from placements (positives,) and (negatives,), plus the variance over seeds."""
    value = float(up.mean())
    rows = float(up.var(ddof=1) / len(up) + down.var(ddof=1) / len(down))
    parts = [_seed_variance(values) for values in by_seed]
    known = [(variance, freedom) for variance, freedom in parts if not math.isnan(variance)]
    reason = None
    if len(known) < len(parts):
        reason = "one seed: its variance over seeds is unknown and not in the interval"
    freedom = _satterthwaite([(rows, math.inf), *known])
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(rows + sum(variance for variance, _ in known))
    return Estimate(value, max(low, value - half), min(high, value + half), len(up) + len(down), reason)


def area_under_roc(
    y_true: ArrayLike,
    group: ArrayLike,
    scores: Mapping[str, ArrayLike],
    *,
    positive: Any,
    baseline: str | None = None,
    level: float = 0.95,
) -> dict[str, dict[str, tuple[Estimate, Estimate | None]]]:
    """Area under the ROC curve by method and group, and its difference to the baseline on the same rows.

    Args:
        y_true: (rows,) labels, of which ``positive`` is the positive one.
        group: (rows,) group of each row.
        scores: method -> (seeds, rows), higher meaning more likely positive.
        positive: the positive label.
        baseline: the method that the others are compared with, or None.
        level: of the intervals.

    Returns:
        ``{method: {group: (area, difference or None)}}``, with all rows under ``"all"``. A group with fewer than two
        rows of a class has NaN with the reason.
    """
    labels, groups = np.asarray(y_true) == positive, np.asarray(group)
    arrays = {name: np.atleast_2d(np.asarray(values, float)) for name, values in scores.items()}
    for name, values in arrays.items():
        if values.shape[1:] != labels.shape or not np.isfinite(values).all():
            raise DataError(f"Scores of {name!r} must be finite numbers of shape (seeds, {len(labels)}).")
    result: dict[str, dict[str, tuple[Estimate, Estimate | None]]] = {name: {} for name in arrays}
    members = {"all": np.ones(len(labels), bool)} | {str(one): groups == one for one in np.unique(groups)}
    for where, inside in members.items():
        if min((inside & labels).sum(), (inside & ~labels).sum()) < 2:
            missing = Estimate.undefined(f"group {where} has fewer than two rows of a class", int(inside.sum()))
            for name in arrays:
                result[name][where] = (missing, None if name == baseline or baseline is None else missing)
            continue
        placed = {
            name: _placements(values[:, inside & labels], values[:, inside & ~labels])
            for name, values in arrays.items()
        }
        for name, (up, down) in placed.items():
            own = _estimate(up.mean(0), down.mean(0), [up.mean(1)], level, 0.0, 1.0)
            difference = None
            if baseline is not None and name != baseline:
                base_up, base_down = placed[baseline]
                difference = _estimate(
                    up.mean(0) - base_up.mean(0),
                    down.mean(0) - base_down.mean(0),
                    [up.mean(1), base_up.mean(1)],
                    level,
                    -1.0,
                    1.0,
                )
            result[name][where] = (own, difference)
    return result
