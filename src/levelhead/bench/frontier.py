"""Two frontiers of accuracy against gaps: the rows that none beats, and what post-processing of one model can reach."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.metrics import Counts
from levelhead.metrics.group import false_positives, true_positives
from levelhead.types import ConfigError, DataError, LevelheadError, quoted

FloatArray = NDArray[np.float64]


def pareto_set(points: ArrayLike, larger_is_better: Sequence[bool] = (True, False)) -> NDArray[np.bool_]:
    """Say which points no other point dominates.

    A point dominates another if it is at least as good in every column and better in one. Points that are equal in
    every column do not dominate each other: all of them are kept, or none.

    Args:
        points: (points, columns) figures.
        larger_is_better: for each column, whether a larger figure is the better one.

    Returns:
        (points,) bool. A point with a NaN is False, and dominates nothing: it cannot be compared.

    Raises:
        ConfigError: ``points`` has not as many columns as ``larger_is_better`` has entries.
    """
    values = np.asarray(points, np.float64)
    if values.ndim != 2 or values.shape[1] != len(larger_is_better):
        raise ConfigError(
            f"Points must be of shape (points, {len(larger_is_better)}), one column for each entry of "
            f"larger_is_better; got {values.shape}."
        )
    values = np.asarray(np.where(larger_is_better, values, -values), np.float64)
    known = ~np.isnan(values).any(1)
    # [i, j]: j is at least as good as i in every column, and better in one; every comparison with NaN is False.
    dominates = np.all(values[None] >= values[:, None], axis=-1) & np.any(values[None] > values[:, None], axis=-1)
    return known & ~dominates.any(1)


@dataclass(frozen=True)
class GroupRates:
    """Where a classifier with two classes stands in each group.

    ``false_positive`` and ``true_positive`` (groups,) are fractions, ``negatives`` and ``positives`` (groups,) the
    rows of the two classes.

    Raises:
        DataError: fewer than two groups, or a group without positive or without negative rows, which has no such rate.
    """

    groups: tuple[Hashable, ...]
    false_positive: FloatArray
    true_positive: FloatArray
    negatives: FloatArray
    positives: FloatArray

    def __post_init__(self) -> None:
        if len(self.groups) < 2:
            raise DataError(f"A gap needs two groups or more; there is {len(self.groups)}.")
        for field in ("false_positive", "true_positive", "negatives", "positives"):
            values = np.asarray(getattr(self, field), np.float64)
            if values.shape != (len(self.groups),):
                raise DataError(f"{field} must have one figure for each of the {len(self.groups)} groups.")
            object.__setattr__(self, field, values)
        for rows, word in ((self.negatives, "negative"), (self.positives, "positive")):
            for name in [name for name, count in zip(self.groups, rows, strict=True) if count <= 0]:
                raise DataError(
                    f"Group {quoted(name)} has no {word} row, so its {'true' if word == 'positive' else 'false'} "
                    "positive rate and the EOd gap are undefined. Leave the group out, or choose another split."
                )
        for rates in (self.false_positive, self.true_positive):
            if not ((rates >= 0) & (rates <= 1)).all():
                raise DataError("Rates are fractions between 0 and 1.")

    @classmethod
    def from_counts(cls, counts: Counts, positive: int = 1) -> GroupRates:
        """Read the rates off a table of counts with two classes, of which ``positive`` is the positive one.

        Raises:
            DataError: there are not two classes, or as for the class.
        """
        if len(counts.classes) != 2:
            raise DataError(f"Rates of this kind need two classes; the rows have {len(counts.classes)}.")
        found, alarms = true_positives(counts.table, positive), false_positives(counts.table, positive)
        return cls(counts.groups, alarms.value[0], found.value[0], alarms.rows[0], found.rows[0])

    @property
    def rows(self) -> float:
        """All rows of both classes."""
        return float((self.positives + self.negatives).sum())

    @property
    def accuracy(self) -> float:
        """Fraction of all rows that the classifier itself gets right."""
        right = self.positives * self.true_positive + self.negatives * (1 - self.false_positive)
        return float(right.sum() / self.rows)

    @property
    def equalized_odds(self) -> float:
        """Largest (|dTPR| + |dFPR|) / 2 between two groups, the metric ``equalized_odds``."""
        first, second = np.triu_indices(len(self.groups), 1)
        found = np.abs(self.true_positive[first] - self.true_positive[second])
        alarms = np.abs(self.false_positive[first] - self.false_positive[second])
        return float(((found + alarms) / 2).max())


def fact_frontier(rates: GroupRates, gaps: ArrayLike) -> FloatArray:
    """Return the highest accuracy that post-processing of a classifier's predictions reaches within each EOd gap.

    A post-processing sees a row's group and predicted class, and answers at random with a probability that depends
    on these two. In group g it reaches the points (FPR, TPR) in the convex hull of (0, 0) and (1, 1) (the same answer
    for everybody), the classifier's own point, and that point's mirror image (1 - FPR, 1 - TPR) (every answer turned
    around). With weights w_gv >= 0 on the four corners v, each gap's programme is linear:

        minimise    sum_g [N_g FPR_g + P_g (1 - TPR_g)] / n
        subject to  sum_v w_gv = 1                             for every group
                    -a_p <= TPR_g - TPR_h <= a_p               for every pair p of groups g, h
                    -b_p <= FPR_g - FPR_h <= b_p
                    (a_p + b_p) / 2 <= gap

    The last line for all pairs is the metric ``equalized_odds``: the mean of the two
    absolute differences, then the largest over pairs. A gap of 0 is always reached, by the same answer for everybody.

    It sees groups (ORACLE), and it knows the rows that it is measured on. It bounds nothing but such post-processings:
    other thresholds on the same scores, or another network, can lie above it.

    Args:
        rates: the classifier's rates on the rows.
        gaps: (gaps,) EOd gaps allowed, as fractions.

    Returns:
        (gaps,) accuracies, fractions; they never fall as the gap grows, up to the solver's tolerance of 1e-7.

    Raises:
        ConfigError: a gap is negative or NaN.

    Source: model-specific frontier of Kim, Chen, Talwalkar, FACT, ICML 2020, as used in figure 2 of Lu, Wang, Wang,
    ICLR 2024; the hull is that of Hardt, Price, Srebro, NeurIPS 2016.
    """
    from scipy.optimize import linprog

    allowed = np.asarray(gaps, np.float64)
    if allowed.ndim != 1 or not (allowed >= 0).all():
        raise ConfigError("Gaps must be a list of numbers of at least 0, as fractions.")
    groups = len(rates.groups)
    first, second = np.triu_indices(groups, 1)
    pairs = len(first)
    corners = np.zeros((groups, 4, 2))  # (group, corner, FPR and TPR)
    corners[:, 1] = 1
    corners[:, 2] = np.stack([rates.false_positive, rates.true_positive], -1)
    corners[:, 3] = 1 - corners[:, 2]

    # Variables: the weights (groups x 4), then a (pairs), then b (pairs).
    rows = (rates.positives + rates.negatives).sum()
    cost = (rates.negatives[:, None] * corners[..., 0] - rates.positives[:, None] * corners[..., 1]) / rows
    cost = np.concatenate([cost.ravel(), np.zeros(2 * pairs)])
    sums = np.zeros((groups, len(cost)))
    differences = np.zeros((2, pairs, groups, 4))  # TPR, then FPR
    for group in range(groups):
        sums[group, 4 * group : 4 * group + 4] = 1
    for pair, (g, h) in enumerate(zip(first, second, strict=True)):
        for row, column in enumerate((1, 0)):
            differences[row, pair, g] = corners[g, :, column]
            differences[row, pair, h] = -corners[h, :, column]
    flat = differences.reshape(2 * pairs, 4 * groups)
    none, one = np.zeros((pairs, 4 * groups)), np.eye(pairs)
    limits = np.block([[flat, -np.eye(2 * pairs)], [-flat, -np.eye(2 * pairs)], [none, one / 2, one / 2]])

    best = np.empty(len(allowed))
    for position, gap in enumerate(allowed):
        bounds = np.concatenate([np.zeros(4 * pairs), np.full(pairs, gap)])
        solved = linprog(cost, A_ub=limits, b_ub=bounds, A_eq=sums, b_eq=np.ones(groups), method="highs")
        if solved.status != 0:
            raise LevelheadError(f"The linear programme for a gap of {gap} was not solved: {solved.message}")
        # The cost leaves out sum_g P_g / n, which the weights do not change.
        best[position] = 1 - rates.positives.sum() / rows - solved.fun
    return best
