"""Area under the ROC curve by group: worked numbers, coverage, undefined groups."""

import math

import numpy as np
import pytest

from levelhead.metrics.ranking import area_under_roc
from levelhead.types import DataError


def by_hand(labels, scores):
    """Share of pairs in the right order, ties counting half."""
    wins = [(p > n) + 0.5 * (p == n) for p in scores[labels == 1] for n in scores[labels == 0]]
    return np.mean(wins)


def test_equals_the_share_of_pairs_in_the_right_order():
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 2, 60), rng.integers(0, 2, 60)
    scores = np.round(rng.normal(size=(3, 60)) + labels, 1)  # rounding makes ties
    result = area_under_roc(labels, groups, {"a": scores}, positive=1)["a"]
    assert result["all"][0].value == pytest.approx(np.mean([by_hand(labels, one) for one in scores]))
    inside = groups == 1
    assert result["1"][0].value == pytest.approx(np.mean([by_hand(labels[inside], one[inside]) for one in scores]))
    assert result["1"][1] is None


def test_delong_variance_of_a_worked_example():
    # Placements of the positives 1, 2/3, 1; of the negatives 1, 1, 2/3.
    labels, scores = np.array([1, 1, 1, 0, 0, 0]), np.array([9.0, 4, 8, 1, 2, 5])
    area = area_under_roc(labels, np.zeros(6), {"a": scores}, positive=1)["a"]["all"][0]
    assert area.value == pytest.approx(8 / 9)
    error = math.sqrt(2 * np.var([1, 2 / 3, 1], ddof=1) / 3)
    assert area.low == pytest.approx(8 / 9 - 1.959964 * error, abs=1e-6)
    assert area.high == 1.0
    assert area.reason is not None  # one seed


def test_equal_scores_do_not_differ():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 50), rng.normal(size=(2, 50))
    result = area_under_roc(labels, np.zeros(50), {"a": scores, "b": scores}, positive=1, baseline="a")
    difference = result["b"]["all"][1]
    assert difference.value == 0
    assert difference.low <= 0 <= difference.high
    assert result["a"]["all"][1] is None


def test_a_group_without_a_class_is_undefined():
    labels, groups = np.array([0, 1, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1])
    result = area_under_roc(labels, groups, {"a": np.arange(6.0)}, positive=1)["a"]
    assert math.isnan(result["1"][0].value)
    assert "fewer than two" in result["1"][0].reason
    with pytest.raises(DataError, match="finite"):
        area_under_roc(labels, groups, {"a": np.full(6, np.nan)}, positive=1)


def test_coverage_over_rows_and_seeds():
    rng = np.random.default_rng(0)
    truth = 0.76025  # P(N(1, 1) > N(0, 1)): the normal distribution function at 1 / sqrt(2)
    hits = 0
    for _ in range(400):
        labels = np.arange(200) % 2
        shared = rng.normal(size=200) + labels
        shift = rng.normal(scale=0.15, size=(5, 1))  # each seed separates the classes a little better or worse
        scores = shared + shift * labels
        one = area_under_roc(labels, np.zeros(200), {"a": scores}, positive=1)["a"]["all"][0]
        hits += one.low <= truth <= one.high
    assert hits >= 0.92 * 400
