"""How well scores order the two classes within each group: the area under the ROC curve, whatever the threshold.

Intervals hold test rows and training seeds together, like those of the counts. Over rows, an area has Newcombe's score
interval (Statistics in Medicine 2006, method 5), and a difference of areas on the same rows the variance of DeLong,
DeLong and Clarke-Pearson (Biometrics 1988), from placement values averaged over seeds. Of the variance over seeds only
what goes beyond the noise of (seed x row) is added, as :mod:`levelhead.metrics.intervals` does.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from levelhead.arrays import checked, floats_of
from levelhead.metrics.between import check_level
from levelhead.metrics.counts import distinct, encode
from levelhead.metrics.group import FloatArray
from levelhead.metrics.roots import root
from levelhead.metrics.seeds import OverSeeds, satterthwaite
from levelhead.types import DataError, Estimate

Together = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Clusters of the positives and of the negatives, as codes."""

MINIMUM = 10
"""Rows of each class that a difference needs: with fewer, its interval covers less than it says."""


def _placements(positive: FloatArray, negative: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Share of the other class that each score beats, ties counting half: (seeds, positives), (seeds, negatives)."""
    from scipy import stats  # half a second, which audits without scores do not wait for

    own_p, own_n = stats.rankdata(positive, axis=1), stats.rankdata(negative, axis=1)
    ranks = stats.rankdata(np.concatenate([positive, negative], axis=1), axis=1)
    p, n = positive.shape[1], negative.shape[1]
    return (ranks[:, :p] - own_p) / n, 1 - (ranks[:, p:] - own_n) / p


def score_interval(value: float, positives: int, negatives: int, z: float) -> tuple[float, float]:
    """Return where the area may lie when ``value`` was measured: method 5 of Newcombe (Statistics in Medicine 2006).

    The variance is taken at each candidate, not at the measured value, so that a perfect order of a few rows does not
    give an interval of width zero.
    """
    extra = (positives + negatives) / 2 - 1

    def distance(area: float) -> float:
        spread = area * (1 - area) / (positives * negatives)
        spread *= 1 + extra * ((1 - area) / (2 - area) + area / (1 + area))
        return (value - area) ** 2 - z**2 * spread

    inside = min(max(value, 1e-12), 1 - 1e-12)  # the ends themselves are roots, but not the ones that are looked for
    low = root(distance, 0.0, inside) if value > 0 else 0.0
    high = root(distance, inside, 1.0) if value < 1 else 1.0
    return low, high


def _row_variance(up: FloatArray, down: FloatArray, together: Together | None = None) -> tuple[float, float]:
    """DeLong's variance of an area, or of a difference, from its placements, and its degrees of freedom (Welch).

    Rows that belong ``together`` add up first (Obuchowski, Biometrics 1997).
    """
    if together is not None:
        sizes = np.bincount(np.concatenate(together)).astype(float)
        sums = np.zeros(len(sizes))
        for one, codes in zip((up, down), together, strict=True):
            sums += np.bincount(codes, (one - one.mean()) / len(one), len(sizes))
        number = int((sizes > 0).sum())
        freedom = float(sizes.sum() ** 2 / (sizes**2).sum()) - 1
        return float((sums**2).sum()) * number / max(1, number - 1), max(1.0, freedom)
    parts = [float(up.var(ddof=1) / len(up)), float(down.var(ddof=1) / len(down))]
    freedom = satterthwaite([(parts[0], len(up) - 1.0), (parts[1], len(down) - 1.0)], sum(parts))
    return sum(parts), freedom


def seed_by_row(up: FloatArray, down: FloatArray, together: Together | None = None) -> float:
    """Variance of one seed's area from what the rows do to that seed alone; placements (seeds, rows of a class).

    Of the mean over S seeds, that noise is the S-th part, and noise that all seeds share is whole.
    """
    seeds = len(up)
    if seeds < 2:
        return 0.0
    single = float(np.mean([_row_variance(*pair, together)[0] for pair in zip(up, down, strict=True)]))
    return (single - _row_variance(up.mean(0), down.mean(0), together)[0]) * seeds / (seeds - 1)


def _area(up: FloatArray, down: FloatArray, level: float, together: Together | None) -> Estimate:
    """Mean area over seeds from placements (seeds, positives) and (seeds, negatives)."""
    positives, negatives = up.shape[1], down.shape[1]
    value = float(up.mean())
    z = float(special.ndtri((1 + level) / 2))
    low, high = score_interval(value, positives, negatives, z)
    # Noise of the rows that differs between seeds cancels in their mean: by how much, DeLong's variance tells.
    single = float(np.mean([_row_variance(*pair)[0] for pair in zip(up, down, strict=True)]))
    kept = math.sqrt(_row_variance(up.mean(0), down.mean(0))[0] / single) if single > 0 else 1.0
    if together is not None:
        # Arms of clustered rows are longer by what clusters add to the variance, and by Student's t; never shorter.
        variance, freedom = _row_variance(up.mean(0), down.mean(0), together)
        wider = math.sqrt(variance / single) if single > 0 else math.sqrt(sum(map(len, together)) / (freedom + 1))
        kept = max(kept, wider) * float(special.stdtrit(freedom, (1 + level) / 2)) / z
    over_seeds = OverSeeds.of([up.mean(1)], [seed_by_row(up, down, together)])
    arms = [over_seeds.join((kept * arm / z) ** 2).arm(level) for arm in (value - low, high - value)]
    return Estimate(
        value, max(0.0, value - arms[0]), min(1.0, value + arms[1]), positives + negatives, over_seeds.missing
    )


def _difference(
    placed: tuple[FloatArray, FloatArray],
    base: tuple[FloatArray, FloatArray],
    level: float,
    together: Together | None,
) -> Estimate:
    """Difference of two mean areas on the same rows; each has placements (seeds, positives) and (seeds, negatives)."""
    up, down = (own.mean(0) - other.mean(0) for own, other in zip(placed, base, strict=True))
    rows = len(up) + len(down)
    if min(len(up), len(down)) < MINIMUM:
        return Estimate.undefined(f"fewer than {MINIMUM} rows of a class: too few for an interval", rows)
    value = float(up.mean())
    variance, freedom = _row_variance(up, down, together)
    if variance == 0:
        return Estimate.without_interval(value, rows, "all rows change alike")
    noise = [seed_by_row(*one, together) for one in (placed, base)]
    over_seeds = OverSeeds.of([one[0].mean(1) for one in (placed, base)], noise)
    arm = over_seeds.join(variance, freedom).arm(level)
    return Estimate(value, max(-1.0, value - arm), min(1.0, value + arm), rows, over_seeds.missing)


@checked
def area_under_roc(
    y_true: ArrayLike,
    group: ArrayLike,
    scores: Mapping[str, ArrayLike],
    *,
    positive: Hashable,
    baseline: str | None = None,
    level: float = 0.95,
    clusters: ArrayLike | None = None,
) -> dict[str, dict[str, tuple[Estimate, Estimate | None]]]:
    """Area under the ROC curve by method and group, and its difference to the baseline on the same rows.

    Args:
        y_true: (rows,) labels, of which ``positive`` is the positive one.
        group: (rows,) group of each row.
        scores: method -> (seeds, rows), higher meaning more likely positive.
        positive: the positive label.
        baseline: the method that the others are compared with, or None.
        level: of the intervals.
        clusters: (rows,) what rows that belong together have in common; None: rows are independent.

    Returns:
        ``{method: {group: (area, difference or None)}}``, with all rows under ``"all"``. A group with fewer than two
        rows of a class has NaN with the reason, and so has a difference with fewer than :data:`MINIMUM`.
    """
    coded, classes = distinct(y_true, "y_true")
    labels = np.isin(coded, [at for at, name in enumerate(classes) if name == positive])
    groups, names = encode(group)
    if len(groups) != len(labels):
        raise DataError(f"{len(labels)} labels and {len(groups)} groups. Pass one of each for every row.")
    check_level(level)
    arrays = {name: np.atleast_2d(floats_of(values, f"Scores of {name!r}")) for name, values in scores.items()}
    for name, values in arrays.items():
        if values.shape[1:] != labels.shape or not np.isfinite(values).all():
            raise DataError(f"Scores of {name!r} must be finite numbers of shape (seeds, {len(labels)}).")
    result: dict[str, dict[str, tuple[Estimate, Estimate | None]]] = {name: {} for name in arrays}
    codes = None if clusters is None else encode(clusters)[0]
    members = {"all": np.ones(len(labels), bool)}
    for at, group_of in enumerate(map(str, names)):
        members["all (group)" if group_of == "all" else group_of] = groups == at
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
        together = None if codes is None else (codes[inside & labels], codes[inside & ~labels])
        for name, (up, down) in placed.items():
            own = _area(up, down, level, together)
            difference = None
            if baseline is not None and name != baseline:
                difference = _difference((up, down), placed[baseline], level, together)
            result[name][where] = (own, difference)
    return result
