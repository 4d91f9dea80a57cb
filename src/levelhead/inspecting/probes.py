"""Whether a group can be read from vectors, and vectors without it: cross-fitted probes, and one direction removed.

A probe is a ridge regression of the group on the vectors, fitted on four folds and measured on the fifth: Fisher's
discriminant. With hidden units it regresses on random rectified units of the leading components as well, so that it
sees differences that are no shift of the mean. The area under the ROC curve counts pairs of rows of one fold alone
(and of one label, where the label is given): scores of two folds have no common scale. Chance is measured, not assumed:
groups are drawn again within folds and labels.

The interval of the area is on the scale of log odds. Its variance is that of DeLong, DeLong and Clarke-Pearson
(Biometrics 1988), which takes the probes as given. Probes vary with the rows, too: the areas of redrawn groups vary
more than DeLong says, up to twice as much. That excess is added within three standard deviations of chance, and fades
beyond: where there is much to read, probes hardly vary.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, special, stats

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
ALIKE = 8
"""Clusters whose groups are exchanged for chance."""
HIDDEN = 200
COMPONENTS = 24
"""Leading components of the vectors that hidden units see."""
RIDGE = 0.01
"""Of the mean variance of a feature: below it a direction counts as noise."""
DEALS_OF_VARIANCE = 4
"""Deals whose variance by DeLong is compared with the variance between deals."""
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


class Probe:
    """Reads a group from the same vectors several times: with and without the label, linear and with a hidden layer.

    What these readings share is computed once.

    Args:
        vectors: (rows, features) finite numbers.
        member: (rows,) whether a row belongs to the second group.
        cluster: (rows,) codes of rows that belong together; they share a fold, and are drawn together.
        deals: of groups, for the null distribution.
        level: of the interval.
        seed: of folds, hidden units and deals.
    """

    def __init__(
        self,
        vectors: Array,
        member: Bools,
        *,
        cluster: Ints | None = None,
        deals: int = 200,
        level: float = 0.95,
        seed: int = 0,
    ) -> None:
        self.member, self.cluster, self.deals, self.level = member, cluster, deals, level
        self.rng = np.random.default_rng(seed)
        self.vectors, self.reason = vectors, ""
        if min(member.sum(), (~member).sum()) < FEWEST:
            self.reason = f"fewer than {FEWEST} rows of a group"
            return
        self.vectors = varying(vectors)
        if not self.vectors.shape[1]:
            self.reason = "these vectors are the same in every row"
            return
        self.fold = folds(len(vectors), cluster, self.rng)

    @functools.cached_property
    def _leading(self) -> Array:
        """Leading components (rows, at most COMPONENTS), in standard deviations."""
        left, size, _ = np.linalg.svd(self.vectors, full_matrices=False)
        return np.asarray(left[:, :COMPONENTS][:, size[:COMPONENTS] > STILL * size[0]] * np.sqrt(len(left)))

    @functools.cached_property
    def _squares(self) -> Array:
        """Products of the vectors' features with each other, fold by fold."""
        return _products(self.vectors, self.vectors, self.fold)

    def read(self, label: Ints | None, hidden: Sequence[bool] = (False, True)) -> list[Readability]:
        """Measure how well probes without or with a hidden layer read the group, beyond a ``label`` (rows,) if given.

        Then means of each label are taken off, pairs are of rows with one label, and deals stay within labels. NaN with
        a reason where a group has fewer than :data:`FEWEST` rows, or the vectors do not vary.
        """
        if self.reason:
            return [_undefined(self.reason, len(self.member))] * len(hidden)
        rng = copy.deepcopy(self.rng)  # each reading draws what it would draw alone
        stratum = np.zeros(len(self.member), np.int64) if label is None else np.unique(label, return_inverse=True)[1]
        cell = np.unique(self.fold * (stratum.max() + 1) + stratum, return_inverse=True)[1]
        drawn = dealt(self.member, cell, self.cluster, self.deals, rng)
        cross = _products(self.vectors, drawn, self.fold)
        found = []
        for one in hidden:
            inputs, squares, crossed = self.vectors, self._squares, cross
            if one:
                units = _units(self._leading, rng)
                inputs = np.column_stack([self.vectors, units])
                beside = _products(self.vectors, units, self.fold)
                squares = np.concatenate(
                    [
                        np.concatenate([squares, beside], 2),
                        np.concatenate([beside.transpose(0, 2, 1), _products(units, units, self.fold)], 2),
                    ],
                    1,
                )
                crossed = np.concatenate([cross, _products(units, drawn, self.fold)], 1)
            scores = np.empty(drawn.shape)
            for fold, direction in enumerate(_directions(inputs, drawn, self.fold, stratum, squares, crossed)):
                scores[self.fold == fold] = inputs[self.fold == fold] @ direction
            found.append(self._measured(scores, drawn, cell, label is not None))
        return found

    def _measured(self, scores: Array, drawn: Array, cell: Ints, given: bool) -> Readability:
        areas = _areas(scores, drawn, cell)
        area, null = float(areas[0]), areas[1:][np.isfinite(areas[1:])]  # dealt by cluster, a group may lack its pairs
        if not np.isfinite(area):
            more = " with one label" if given else ""
            return _undefined(f"no fold has two rows of both groups{more}", len(self.member))
        p = (1 + int((null >= area - 1e-12).sum())) / (1 + self.deals)
        sizes = int(self.member.sum()), int((~self.member).sum())
        variance, *dealt = (
            _variance(scores[:, one], drawn[:, one] > 0, cell, self.cluster)
            for one in range(min(len(areas), 1 + DEALS_OF_VARIANCE))
        )
        excess = max(0.0, float(null.var() - np.nanmean(dealt)))
        excess /= max(1.0, (area - float(null.mean())) ** 2 / (9 * float(null.var()) or 1.0))
        estimate = area_estimate(area, variance, excess, sizes, self.level)
        return Readability(estimate, float(null.mean()), float(np.quantile(null, 0.95)), p)


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

    Rows of one cluster go together, with the group of the first of them. It is exchanged with at most :data:`ALIKE` - 1
    others whose rows lie in the cells in like shares. Dealt cell by cell, a person would be two, and chance too narrow.
    """
    drawn = np.empty((len(member), 1 + deals))
    drawn[:, 0] = member
    if cluster is None:
        for one in np.unique(cell):
            own = np.flatnonzero(cell == one)
            drawn[own, 1:] = rng.permuted(np.repeat(member[own, None], deals, axis=1), axis=0)
        return drawn
    _, first, block = np.unique(cluster, return_index=True, return_inverse=True)
    cells, place = np.unique(cell, return_inverse=True)
    counts = np.bincount(block * len(cells) + place, minlength=len(first) * len(cells)).reshape(len(first), -1)
    most, share = counts.argmax(1), counts.max(1) / counts.sum(1)
    order = np.lexsort((rng.random(len(first)), share, most))  # equal ones by chance
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first)) - np.searchsorted(most[order], most[order])
    alike = np.unique(np.stack([most, rank // ALIKE]), axis=1, return_inverse=True)[1].ravel()
    drawn[:, 1:] = dealt(member[first], alike, None, deals, rng)[block, 1:]
    return drawn


def _units(leading: Array, rng: np.random.Generator) -> Array:
    """Random rectified units of the leading components, in standard deviations; no group enters here."""
    weights = rng.normal(size=(leading.shape[1], HIDDEN)) / np.sqrt(leading.shape[1])
    return varying(np.maximum(leading @ weights + rng.normal(size=HIDDEN), 0))


def _products(left: Array, right: Array, fold: Ints) -> Array:
    """Sums over the rows of each fold of products of features, (folds, left features, right features)."""
    return np.stack([left[fold == one].T @ right[fold == one] for one in range(FOLDS)])


def _directions(vectors: Array, targets: Array, fold: Ints, stratum: Ints, squares: Array, cross: Array) -> Array:
    """Ridge regressions of ``targets`` (rows, several) without each fold, (folds, features, several).

    ``squares`` and ``cross`` are products of features, with each other and with the targets. Those of the other folds
    are the sum of all less the fold's own; then means of each stratum are taken off.
    """
    kinds = stratum.max() + 1
    member = np.eye(FOLDS * kinds)[fold * kinds + stratum]
    rows, sums, outcomes = (
        (member.T @ one).reshape(FOLDS, kinds, -1) for one in (np.ones((len(fold), 1)), vectors, targets)
    )
    found = []
    for one in range(FOLDS):
        number, inputs, outputs = (each.sum(0) - each[one] for each in (rows, sums, outcomes))
        means = inputs / number.clip(min=1)
        square = squares.sum(0) - squares[one] - means.T @ inputs
        # The least penalty is above what rounding leaves of features that the label explains whole.
        square[np.diag_indices_from(square)] += RIDGE * max(float(np.trace(square)) / len(square), 1e-9 * len(fold))
        found.append(linalg.solve(square, cross.sum(0) - cross[one] - means.T @ outputs, assume_a="pos"))
    return np.stack(found)


def _within(values: Array, stratum: Ints) -> Array:
    member = np.eye(stratum.max() + 1)[stratum]
    means = member.T @ values / member.sum(0).clip(min=1)[:, None]
    return np.asarray(values - means[stratum])


def _areas(scores: Array, drawn: Array, cell: Ints) -> Array:
    """Areas of all columns (rows, columns) from pairs of rows of one cell."""
    wins, pairs = np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
    for one in np.unique(cell):
        own = np.flatnonzero(cell == one)
        ranks, members = _ranks(scores[own]), drawn[own]
        inside = members.sum(0)
        wins += (ranks * members).sum(0) - inside * (inside + 1) / 2
        pairs += inside * (len(own) - inside)
    return np.divide(wins, pairs, out=np.full(len(wins), np.nan), where=pairs > 0)


def _variance(scores: Array, member: Bools, cell: Ints, cluster: Ints | None) -> float:
    """DeLong's variance of the area of one column: of what each row, or cluster, adds to it."""
    placed, others = np.zeros(len(scores)), np.zeros(len(scores))
    for one in np.unique(cell):
        own = np.flatnonzero(cell == one)
        yes = member[own]
        if yes.any() and not yes.all():
            placed[own], others[own] = _placements(scores[own], yes), np.where(yes, (~yes).sum(), yes.sum())
    pairs = others[member].sum()
    # What a row adds to the weighted mean over cells: its own pairs, over all pairs.
    influence = others * (placed - (others * placed)[member].sum() / pairs) / pairs
    if cluster is not None:
        influence = np.bincount(np.unique(cluster, return_inverse=True)[1], influence).astype(float)
    number = max(2, int((influence != 0).sum()))
    return float((influence**2).sum()) * number / (number - 1)


def _ranks(scores: Array) -> Array:
    """Ranks within columns from 1; ties share their mean, and only then scipy's slower function is needed."""
    order = scores.argsort(0)
    placed = np.take_along_axis(scores, order, 0)
    if (placed[1:] == placed[:-1]).any():
        return np.asarray(stats.rankdata(scores, axis=0))
    ranks = np.empty(scores.shape)
    np.put_along_axis(ranks, order, np.arange(1.0, len(scores) + 1)[:, None], 0)
    return ranks


def _placements(scores: Array, yes: Bools) -> Array:
    """Share of the other group's scores that a row beats, if it is a member, or loses to; ties count half."""
    ranks, placed = stats.rankdata(scores), np.empty(len(scores))
    inside, outside = int(yes.sum()), int((~yes).sum())
    placed[yes] = (ranks[yes] - stats.rankdata(scores[yes])) / outside
    placed[~yes] = 1 - (ranks[~yes] - stats.rankdata(scores[~yes])) / inside
    return placed


def area_estimate(area: float, variance: float, excess: float, sizes: tuple[int, int], level: float) -> Estimate:
    """Return an area with its interval on the scale of log odds; at 0 and 1 that of Newcombe, which has a width.

    ``excess`` is more variance at an area of 1/2, where the slope of log odds is 4.
    """
    z, rows = normal_quantile(level), sum(sizes)
    if not 0 < area < 1 or variance <= 0:
        return Estimate(area, *score_interval(area, *sizes, z), rows)
    arm = z * (variance / (area * (1 - area)) ** 2 + 16 * excess) ** 0.5
    low, high = special.expit(special.logit(area) + np.array([-arm, arm]))
    return Estimate(area, float(low), float(high), rows)


def _undefined(reason: str, rows: int) -> Readability:
    return Readability(Estimate.undefined(reason, rows), float("nan"), float("nan"), float("nan"))


def group_shifts(vectors: Array, member: Bools, label: Ints, *, cluster: Ints | None = None, seed: int = 0) -> Array:
    """Return what the group moves each row's vector by, (rows, features), as the other folds tell it.

    ``vectors`` less that have no covariance with the group given the label: no linear probe reads the group there. It
    changes no more than it must (Belrose et al., "LEACE", NeurIPS 2023, for one binary concept). Arguments as
    :class:`Probe` has them; ``label`` (rows,) codes.
    """
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
    return np.asarray(along[:, None] * differences[fold])


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
