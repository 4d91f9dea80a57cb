"""Weighted rates, their effective sample sizes and intervals, with numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from levelhead.metrics.counts import Counts
from levelhead.metrics.weighted import WeightedCounts, WeightedRate, weighted_estimates

# (groups, labels, predictions): rows, and the weight that each row of a cell has.
ROWS = np.array([[[8, 2, 0], [1, 4, 5], [0, 0, 10]], [[3, 3, 4], [2, 8, 0], [6, 0, 4]]])
EACH = np.array([[[0.1, 0.3, 1], [0.2, 0.1, 0.5], [1, 1, 0.2]], [[1, 2, 3], [0.5, 0.25, 1], [2, 1, 1]]])


def weighted(rows: np.ndarray = ROWS, each: np.ndarray = EACH) -> WeightedCounts:
    groups, classes = tuple(f"g{one}" for one in range(len(rows))), tuple(range(rows.shape[1]))
    return WeightedCounts(Counts(rows, groups, classes), rows * each, rows * each**2)


def test_all_classes_but_one_are_summed() -> None:
    assert weighted().swapped(1).counts.table.tolist() == [[[18, 6], [2, 4]], [[17, 2], [3, 8]]]


def test_rates_of_a_class_are_weighted() -> None:
    found = weighted().rate("false_positive_rate", 1)
    # False alarms of class 1 over the rows of classes 0 and 2.
    assert found.value[0].tolist() == pytest.approx([0.6 / (0.8 + 0.6 + 2.0), 6.0 / (3.0 + 6.0 + 12.0 + 12.0 + 4.0)])
    assert found.rows[0].tolist() == [20, 20]
    assert found.value.shape == (1, 2)
    assert weighted().rate("false_positive_rate", None).value.shape == (3, 2)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_rows_are_worth_the_smaller_of_two_numbers_whatever_the_scale_of_weights(scale: float) -> None:
    found = weighted(each=scale * EACH).rate("true_positive_rate", 1)
    share = 0.4 / 3.1  # group g0, label 1: hits 4 x 0.1 of 1 x 0.2 + 4 x 0.1 + 5 x 0.5
    squares = np.array([1 * 0.2**2, 4 * 0.1**2, 5 * 0.5**2])
    spread = (1 - share) ** 2 * squares[1] + share**2 * (squares[0] + squares[2])
    worth = min(3.1**2 / squares.sum(), share * (1 - share) * 3.1**2 / spread)
    assert found.value[0, 0] == pytest.approx(share)
    assert found.worth[0, 0] == pytest.approx(worth)
    assert found.hits[0, 0] == pytest.approx(share * worth)


def test_whole_numbers_are_weights_and_rows_without_any_have_no_rate() -> None:
    empty = ROWS.copy()
    empty[0, 1] = 0
    for each in (np.ones_like(empty), np.full_like(empty, 3)):
        found = weighted(empty, each).rate("true_positive_rate", 1)
        assert math.isnan(found.value[0, 0])
        assert (found.rows[0, 0], found.worth[0, 0]) == (0, 0)
        assert (found.value[0, 1], found.worth[0, 1]) == pytest.approx((0.8, 10))


def test_balanced_accuracy_has_agresti_and_caffos_interval_at_the_effective_sizes() -> None:
    rows, each = np.array([[[30, 10], [5, 20]]]), np.array([[[0.5, 1.0], [2.0, 0.25]]])
    found = weighted_estimates(weighted(rows, each), positive=1, level=0.9, min_count=1)["balanced_accuracy"]
    recalls = weighted(rows, each).pooled().cells
    share = [(value * worth + 1) / (worth + 2) for value, worth in zip(recalls.value[0], recalls.worth[0], strict=True)]
    variance = sum(p * (1 - p) / (worth + 2) for p, worth in zip(share, recalls.worth[0], strict=True)) / 4
    middle, reach = sum(share) / 2, stats.norm.ppf(0.95) * math.sqrt(variance)
    assert recalls.value[0].tolist() == pytest.approx([15 / 25, 5 / 15])
    assert found.value == pytest.approx((15 / 25 + 5 / 15) / 2)
    assert (found.low, found.high) == pytest.approx((middle - reach, middle + reach))


def test_what_cannot_be_computed_says_why_and_of_how_many_rows() -> None:
    rows = ROWS.copy()
    rows[1, 1] = 0  # a group without rows of class 1
    one = weighted_estimates(weighted(rows), positive=0, level=0.95, min_count=0)
    every = weighted_estimates(weighted(rows), positive=None, level=0.95, min_count=0)
    assert one["equal_opportunity"].defined
    assert not every["equal_opportunity"].defined
    assert "(rows by group: g0: 10, g1: 0)" in str(every["equal_opportunity"].reason)
    assert every["equal_opportunity"].n == rows.sum()


@pytest.mark.parametrize("free", [0.5, 1.0, 3.0, 40.0])
def test_few_clusters_are_worth_less_by_students_t(free: float) -> None:
    rate = WeightedRate(np.array([0.5]), np.array([90]), np.array([80.0]), np.array([free]), np.array([9]))
    expected = 80 * (stats.norm.ppf(0.95) / stats.t.ppf(0.95, max(free, 1))) ** 2 if free >= 1 else 1e-9
    assert rate.worth_at(0.9).tolist() == pytest.approx([expected])
    assert rate._replace(freedom=None).worth_at(0.9).tolist() == [80.0]
