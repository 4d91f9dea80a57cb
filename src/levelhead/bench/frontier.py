"""Two frontiers of accuracy against gaps: the rows that none beats, and what post-processing of one model can reach."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics import Counts
from levelhead.metrics.group import false_positives, true_positives
from levelhead.types import LevelheadError

FloatArray = NDArray[np.float64]


def pareto_set(gap: FloatArray, accuracy: FloatArray) -> NDArray[np.bool_]:
    """Say which points no other point dominates: with a gap and an accuracy at least as good, and one of them better.

    Equal points do not dominate each other: all of them are kept, or none.

    Args:
        gap: (points,); smaller is better.
        accuracy: (points,).

    Returns:
        (points,) bool. A point with a NaN is False, and dominates nothing: it cannot be compared.
    """
    values = np.stack([-gap, accuracy], -1)
    known = ~np.isnan(values).any(1)
    # [i, j]: j is at least as good as i in every column, and better in one; every comparison with NaN is False.
    dominates = np.all(values[None] >= values[:, None], axis=-1) & np.any(values[None] > values[:, None], axis=-1)
    return known & ~dominates.any(1)


class GroupRates(NamedTuple):
    """Where a classifier with two classes stands in each of two groups or more, all with rows of both classes.

    ``false_positive`` and ``true_positive`` (groups,) are fractions, ``negatives`` and ``positives`` (groups,) the
    rows of the two classes.
    """

    false_positive: FloatArray
    true_positive: FloatArray
    negatives: FloatArray
    positives: FloatArray

    @classmethod
    def from_counts(cls, counts: Counts, positive: int) -> GroupRates:
        """Read the rates off a table of counts with two classes, of which ``positive`` is the positive one."""
        found, alarms = true_positives(counts.table, positive), false_positives(counts.table, positive)
        return cls(alarms.value[0], found.value[0], alarms.rows[0], found.rows[0])

    @property
    def rows(self) -> float:
        """All rows of both classes."""
        return float((self.positives + self.negatives).sum())


def fact_frontier(rates: GroupRates, gaps: FloatArray) -> FloatArray:
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

    Source: model-specific frontier of Kim, Chen, Talwalkar, FACT, ICML 2020, as used in figure 2 of Lu, Wang, Wang,
    ICLR 2024; the hull is that of Hardt, Price, Srebro, NeurIPS 2016.
    """
    from scipy.optimize import linprog

    groups = len(rates.positives)
    first, second = np.triu_indices(groups, 1)
    pairs = len(first)
    corners = np.zeros((groups, 4, 2))  # (group, corner, FPR and TPR)
    corners[:, 1] = 1
    corners[:, 2] = np.stack([rates.false_positive, rates.true_positive], -1)
    corners[:, 3] = 1 - corners[:, 2]

    # Variables: the weights (groups x 4), then a (pairs), then b (pairs).
    cost = (rates.negatives[:, None] * corners[..., 0] - rates.positives[:, None] * corners[..., 1]) / rates.rows
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

    best = np.empty(len(gaps))
    for position, gap in enumerate(gaps):
        bounds = np.concatenate([np.zeros(4 * pairs), np.full(pairs, gap)])
        solved = linprog(cost, A_ub=limits, b_ub=bounds, A_eq=sums, b_eq=np.ones(groups), method="highs")
        if solved.status != 0:
            raise LevelheadError(f"The linear programme for a gap of {gap} was not solved: {solved.message}")
        # The cost leaves out sum_g P_g / n, which the weights do not change.
        best[position] = 1 - rates.positives.sum() / rates.rows - solved.fun
    return best
