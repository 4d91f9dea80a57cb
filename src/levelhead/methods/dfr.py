"""Deep feature reweighting (Kirichenko, Izmailov, Wilson, ICLR 2023): the last layer, refitted on balanced groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray, LastLayerMethod
from levelhead.types import ConfigError, DataError

ENOUGH = 1e-4
"""Largest change of a weight at which a fit ends; features have unit variance."""

MOST_STEPS = 3000


@dataclass(frozen=True)
class DFR(LastLayerMethod):
    """Refit the last layer, with an L1 penalty, on validation rows of which every class and group has as many.

    The inverse penalty is the one of ``inverse_penalties`` that is best for the worst group on half of the rows, fitted
    on the other half. The layer is the average over ``subsets`` balanced draws of all rows. It is shown to tell what
    groups on held-out rows would buy, and marked ORACLE. ``smallest_group`` is the fewest rows that a class of a group
    may have.

    Source: Kirichenko, Izmailov, Wilson, "Last layer re-training is sufficient for robustness to spurious
    correlations", ICLR 2023, arXiv:2204.02937.
    """

    summary: ClassVar[str] = "refit the last layer on balanced groups of validation rows; sees groups (ICLR 2023)"
    uses_validation_groups: ClassVar[bool] = True
    inverse_penalties: tuple[float, ...] = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
    subsets: int = 20
    smallest_group: int = 10

    def __post_init__(self) -> None:
        if not self.inverse_penalties or min(self.inverse_penalties) <= 0:
            raise ConfigError("method dfr needs inverse_penalties above 0, at least one")
        if self.subsets < 1 or self.smallest_group < 2:
            raise ConfigError("method dfr needs subsets >= 1 and smallest_group >= 2")

    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return the average layer over balanced draws."""
        cells = self._cells(held)
        mean, scale = held.features.mean(0), held.features.std(0)
        scale[scale == 0] = 1
        features, labels = (held.features - mean) / scale, held.labels
        generator = np.random.default_rng(held.seed)
        inverse = self._tuned(features, labels, cells, len(held.bias), generator)
        start = (np.zeros_like(held.weight), np.zeros_like(held.bias))
        total = [np.zeros_like(part) for part in start]
        for _ in range(self.subsets):
            rows = balanced(cells, generator)
            start = lasso(features[rows], labels[rows], inverse, start)  # near the one before: a good place to begin
            total = [part + one for part, one in zip(total, start, strict=True)]
        weight, bias = (part / self.subsets for part in total)
        return weight / scale, bias - (weight / scale) @ mean

    def _cells(self, held: HeldOut) -> IntArray:
        """Return the number of each row's class and group, (rows,)."""
        cells = np.unique(np.stack([held.labels, held.group]), axis=1, return_inverse=True)[1].ravel()
        sizes = np.bincount(cells)
        if sizes.min() < self.smallest_group:
            raise DataError(
                f"The smallest class of a group has {sizes.min()} validation rows, and DFR cuts all others to that "
                f"many: at least {self.smallest_group} are needed (method.smallest_group)."
            )
        return cells

    def _tuned(
        self, features: FloatArray, labels: IntArray, cells: IntArray, classes: int, generator: np.random.Generator
    ) -> float:
        """Return the inverse penalty that serves the worst class of a group best."""
        order = generator.permutation(len(labels))
        fit, score = order[: len(order) // 2], order[len(order) // 2 :]
        rows = fit[balanced(cells[fit], generator)]
        layer = (np.zeros((classes, features.shape[1])), np.zeros(classes))
        found = []
        for inverse in sorted(self.inverse_penalties):
            layer = lasso(features[rows], labels[rows], inverse, layer)
            right = (features[score] @ layer[0].T + layer[1]).argmax(1) == labels[score]
            sizes = np.bincount(cells[score])
            rates = np.bincount(cells[score], right)[sizes > 0] / sizes[sizes > 0]
            found.append((rates.min(), inverse))
        return max(found)[1]


def balanced(cells: IntArray, generator: np.random.Generator) -> IntArray:
    """Return positions of as many random rows of each cell as the smallest has."""
    members = [np.flatnonzero(cells == cell) for cell in np.unique(cells)]
    smallest = min(map(len, members))
    return np.concatenate([generator.permutation(each)[:smallest] for each in members])


def lasso(
    features: FloatArray, labels: IntArray, inverse: float, start: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return weight (classes, width) and bias that minimise ``inverse`` sum CE_i + sum |W|, by accelerated steps.

    The biases are free. The steps are those of FISTA with a restart where the momentum points uphill (Beck, Teboulle
    2009; O'Donoghue, Candes 2015).

    Args:
        features: (rows, width).
        labels: (rows,) classes.
        inverse: weight of the loss, above 0.
        start: where to begin.
    """
    rows = len(labels)
    inputs = np.hstack([features, np.ones((rows, 1))])
    targets = np.eye(len(start[1]))[labels]
    step = 2 / np.linalg.norm(inputs, 2) ** 2 * rows  # the curvature of the mean loss is at most half the largest
    shrink = np.full(inputs.shape[1], step / (inverse * rows))
    shrink[-1] = 0
    layer = ahead = np.hstack([start[0], start[1][:, None]])
    pace = 1.0
    for _ in range(MOST_STEPS):
        slope = (special.softmax(inputs @ ahead.T, axis=1) - targets).T @ inputs / rows
        moved = ahead - step * slope
        new = np.sign(moved) * np.maximum(np.abs(moved) - shrink, 0)
        if ((ahead - new) * (new - layer)).sum() > 0:
            pace = 1.0
        later = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        ahead = new + (pace - 1) / later * (new - layer)
        change, layer, pace = np.abs(new - layer).max(), new, later
        if change < ENOUGH:
            break
    return layer[:, :-1], layer[:, -1]
