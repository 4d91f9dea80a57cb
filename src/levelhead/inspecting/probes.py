"""Whether a group can be read from vectors, and vectors without it: cross-fitted probes, and one direction removed.

A probe is a ridge regression of the group on the vectors, fitted on four folds and measured on the fifth: Fisher's
discriminant. With hidden units it regresses on random rectified units of the leading components as well, so that it
sees differences that are no shift of the mean. The area under the ROC curve counts pairs of rows of one fold alone
(and of one label, where the label is given): scores of two folds have no common scale. Its interval is that of DeLong,
DeLong and Clarke-Pearson (Biometrics 1988) for such pairs, on the scale of log odds. Chance is measured, not assumed:
groups are drawn again within folds and labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from levelhead.metrics.between import normal_quantile
from levelhead.metrics.ranking import score_interval
from levelhead.report.record import Finding
from levelhead.types import Estimate

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

FOLDS = 5
FEWEST = 20
"""Rows of each group that a probe needs."""
HIDDEN = 200
COMPONENTS = 24
"""Leading components of the vectors that hidden units see."""
RIDGE = 0.01
"""Of the mean variance of a feature: below it a direction counts as noise."""
STILL = 1e-7
"""A feature that varies less than this share of the largest is constant."""


@dataclass(frozen=True)
class Readability(Finding):
    """How well a probe tells the second group from the first: ``area`` of the ROC curve, beside its null distribution.

    ``chance`` is the mean area with groups drawn again, ``above`` its 95% quantile, ``p`` the share of deals (and of
    the measured one) that reach the measured area.
    """

    area: Estimate
    chance: float
    above: float
    p: float

    @property
    def readable(self) -> bool:
        """Whether the group can be read at the 5% level."""
        return self.p <= 0.05


def readability(
    vectors: Array,
    member: Bools,
    *,
    label: Ints | None = None,
    hidden: bool = False,
    cluster: Ints | None = None,
    deals: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Readability:
    """Measure how well a group is read from vectors.

    Args:
        vectors: (rows, features) finite numbers.
        member: (rows,) whether a row belongs to the second group.
        label: (rows,) codes; given, the group is read beyond the label: means of each label are taken off, pairs are of
            rows with one label, and deals stay within labels.
        hidden: let the probe have one hidden layer.
        cluster: (rows,) codes of rows that belong together; they share a fold, and are drawn together.
        deals: of groups, for the null distribution.
        level: of the interval.
        seed: of folds, hidden units and deals.

    Returns:
        NaN with a reason where a group has fewer than :data:`FEWEST` rows, or the vectors do not vary.
    """
    rng = np.random.default_rng(seed)
    rows = len(vectors)
    stratum = np.zeros(rows, np.int64) if label is None else np.unique(label, return_inverse=True)[1]
    if min(member.sum(), (~member).sum()) < FEWEST:
        return _undefined(f"fewer than {FEWEST} rows of a group", rows)
    vectors = varying(vectors)
    if not vectors.shape[1]:
        return _undefined("these vectors are the same in every row", rows)
    fold = folds(rows, cluster, rng)
    cell = np.unique(fold * (stratum.max() + 1) + stratum, return_inverse=True)[1]
    drawn = dealt(member, cell, cluster, deals, rng)
    if hidden:
        vectors = np.column_stack([vectors, _units(vectors, rng)])
    scores = np.empty(drawn.shape)
    for one in range(FOLDS):
        train, own = fold != one, fold == one
        scores[own] = _ridge(vectors[train], drawn[train], stratum[train], vectors[own])
    areas, area, variance = _areas(scores, drawn, cell, cluster)
    if not np.isfinite(area):
        return _undefined(
            "no fold has two rows of both groups" + (" with one label" if label is not None else ""), rows
        )
    null = areas[1:]
    p = (1 + int((null >= area - 1e-12).sum())) / (1 + deals)
    sizes = int(member.sum()), int((~member).sum())
    return Readability(
        area_estimate(area, variance, sizes, level), float(null.mean()), float(np.quantile(null, 0.95)), p
    )


def varying(vectors: Array) -> Array:
    """Return features in standard deviations, without those that do not vary."""
    centred = vectors - vectors.mean(0)
    spread = np.sqrt((centred**2).mean(0))
    kept = spread > STILL * max(float(np.abs(vectors).max(initial=0)), 1e-30)
    return np.asarray(centred[:, kept] / spread[kept])


def folds(rows: int, cluster: Ints | None, rng: np.random.Generator) -> Ints:
    """Deal rows, or clusters of them, out to folds of like size."""
    if cluster is None:
        return rng.permutation(rows) % FOLDS
    codes = np.unique(cluster, return_inverse=True)[1]
    return np.asarray(rng.permutation(codes.max() + 1)[codes] % FOLDS)


def dealt(member: Bools, cell: Ints, cluster: Ints | None, deals: int, rng: np.random.Generator) -> Array:
    """Return groups (rows, 1 + deals) of 0 and 1: as they are, then drawn again within each cell.

    Rows of one cluster and cell go together, with the group of the first of them.
    """
    drawn = np.empty((len(member), 1 + deals))
    drawn[:, 0] = member
    if cluster is None:
        for one in np.unique(cell):
            own = np.flatnonzero(cell == one)
            drawn[own, 1:] = rng.permuted(np.repeat(member[own, None], deals, axis=1), axis=0)
        return drawn
    _, first, block = np.unique(np.stack([cell, cluster]), axis=1, return_index=True, return_inverse=True)
    drawn[:, 1:] = dealt(member[first], cell[first], None, deals, rng)[block.ravel(), 1:]
    return drawn


def _units(vectors: Array, rng: np.random.Generator) -> Array:
    """Random rectified units of the leading components, in standard deviations; no group enters here."""
    left, size, _ = np.linalg.svd(vectors, full_matrices=False)
    kept = size[:COMPONENTS] > STILL * size[0]
    inputs = left[:, :COMPONENTS][:, kept] * np.sqrt(len(vectors))
    weights = rng.normal(size=(inputs.shape[1], HIDDEN)) / np.sqrt(inputs.shape[1])
    return varying(np.maximum(inputs @ weights + rng.normal(size=HIDDEN), 0))


def _ridge(vectors: Array, targets: Array, stratum: Ints, held_out: Array) -> Array:
    """Scores of held-out rows by regressions of all ``targets`` (rows, several), means of each stratum taken off."""
    inputs, outputs = _within(vectors, stratum), _within(targets, stratum)
    square = inputs.T @ inputs
    penalty = RIDGE * max(float(np.trace(square)) / len(square), 1e-12)
    found = np.linalg.solve(square + penalty * np.eye(len(square)), inputs.T @ outputs)
    return np.asarray(held_out @ found)


def _within(values: Array, stratum: Ints) -> Array:
    member = np.eye(stratum.max() + 1)[stratum]
    means = member.T @ values / member.sum(0).clip(min=1)[:, None]
    return np.asarray(values - means[stratum])


def _areas(scores: Array, drawn: Array, cell: Ints, cluster: Ints | None) -> tuple[Array, float, float]:
    """Areas of all columns from pairs of one cell; of the first column its variance, too."""
    wins, pairs = np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
    influence: Array = np.zeros(len(scores))
    kept = []
    for one in np.unique(cell):
        own = np.flatnonzero(cell == one)
        ranks, members = stats.rankdata(scores[own], axis=0), drawn[own]
        inside = members.sum(0)
        wins += (ranks * members).sum(0) - inside * (inside + 1) / 2
        pairs += inside * (len(own) - inside)
        yes = members[:, 0] > 0
        if yes.any() and not yes.all():
            kept.append((own, yes))
    areas = np.divide(wins, pairs, out=np.full(len(wins), np.nan), where=pairs > 0)
    area = float(areas[0])
    for own, yes in kept:
        placed = _placements(scores[own, 0], yes)
        # What a row adds to the weighted mean over cells: its own pairs, over all pairs.
        influence[own] = np.where(yes, (~yes).sum(), yes.sum()) * (placed - area) / pairs[0]
    if cluster is not None:
        influence = np.bincount(np.unique(cluster, return_inverse=True)[1], influence).astype(float)
    number = max(2, int((influence != 0).sum()))
    return areas, area, float((influence**2).sum()) * number / (number - 1)


def _placements(scores: Array, yes: Bools) -> Array:
    """Share of the other group's scores that a row beats, if it is a member, or loses to; ties count half."""
    ranks, placed = stats.rankdata(scores), np.empty(len(scores))
    inside, outside = int(yes.sum()), int((~yes).sum())
    placed[yes] = (ranks[yes] - stats.rankdata(scores[yes])) / outside
    placed[~yes] = 1 - (ranks[~yes] - stats.rankdata(scores[~yes])) / inside
    return placed


def area_estimate(area: float, variance: float, sizes: tuple[int, int], level: float) -> Estimate:
    """Return an area with its interval on the scale of log odds; at 0 and 1 that of Newcombe, which has a width."""
    z, rows = normal_quantile(level), sum(sizes)
    if not 0 < area < 1 or variance <= 0:
        return Estimate(area, *score_interval(area, *sizes, z), rows)
    arm = z * variance**0.5 / (area * (1 - area))
    low, high = special.expit(special.logit(area) + np.array([-arm, arm]))
    return Estimate(area, float(low), float(high), rows)


def _undefined(reason: str, rows: int) -> Readability:
    return Readability(Estimate.undefined(reason, rows), float("nan"), float("nan"), float("nan"))


@dataclass(frozen=True)
class Shifts:
    """How a group moves vectors: ``difference`` (folds, features) of its means given the label; ``along`` (rows,).

    ``vectors - along[:, None] * difference[fold]`` has no covariance with the group given the label, as far as the
    other folds can tell: no linear probe reads the group there. It changes no more than it must (Belrose et al.,
    "LEACE", NeurIPS 2023, for one binary concept).
    """

    difference: Array
    along: Array
    fold: Ints

    def of_rows(self) -> Array:
        """What is taken off each row, (rows, features)."""
        return np.asarray(self.along[:, None] * self.difference[self.fold])


def group_shifts(vectors: Array, member: Bools, label: Ints, *, cluster: Ints | None = None, seed: int = 0) -> Shifts:
    """Find the direction of the group in each fold from the other folds; arguments as :func:`readability` has them."""
    fold = folds(len(vectors), cluster, np.random.default_rng(seed))
    stratum = np.unique(label, return_inverse=True)[1]
    differences, along = np.zeros((FOLDS, vectors.shape[1])), np.zeros(len(vectors))
    for one in range(FOLDS):
        train, own = fold != one, fold == one
        inputs = _within(vectors[train], stratum[train])
        group = _within(member[train, None].astype(float), stratum[train])[:, 0]
        if not (spread := float(group @ group)):
            continue
        covariance = inputs.T @ group
        square = inputs.T @ inputs
        square[np.diag_indices_from(square)] += 1e-6 * max(float(np.trace(square)) / len(square), 1e-12)
        means = np.stack([vectors[train][stratum[train] == each].mean(0) for each in np.unique(stratum[train])])
        score = _blind_to_labels(square, covariance, means - means.mean(0))
        differences[one] = covariance / spread
        along[own] = (vectors[own] - means.mean(0)) @ score * spread / float(covariance @ score)
    return Shifts(differences, along, fold)


def _blind_to_labels(square: Array, covariance: Array, means: Array) -> Array:
    """The best linear score of the group among those whose mean is the same for all labels.

    A score that moved with the label would take the label off, too. Where the group's direction is the label's, no
    such score is left, and the best of all is taken.
    """
    free = np.linalg.solve(square, covariance)
    of_labels = np.linalg.svd(means, full_matrices=False)
    directions = of_labels[2][of_labels[1] > STILL * max(of_labels[1].max(), 1e-30)]
    solved = np.linalg.solve(square, directions.T)
    tied = free - solved @ np.linalg.lstsq(directions @ solved, directions @ free, rcond=None)[0]
    return np.asarray(tied if covariance @ tied > 1e-3 * (covariance @ free) else free)
