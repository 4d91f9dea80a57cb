"""Area under the ROC curve by group: worked numbers, coverage, undefined groups."""

import math

import numpy as np
import pytest
from scipy import stats

from levelhead.metrics.ranking import _row_variance, area_under_roc, monotone_share, score_interval
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
    variance, freedom = _row_variance(np.array([1, 2 / 3, 1]), np.array([1, 1, 2 / 3]))
    assert variance == pytest.approx(2 * np.var([1, 2 / 3, 1], ddof=1) / 3)
    assert freedom == pytest.approx(4)


def test_the_score_interval_solves_its_equation():
    low, high = score_interval(0.9, 30, 50, 1.96)
    for area in (low, high):
        spread = area * (1 - area) * (1 + 39 * ((1 - area) / (2 - area) + area / (1 + area))) / 1500
        assert abs(0.9 - area) == pytest.approx(1.96 * math.sqrt(spread), abs=1e-6)


def test_a_perfect_order_of_few_rows_is_not_certain():
    labels = np.array([1] * 5 + [0] * 40)
    area = area_under_roc(labels, np.zeros(45), {"a": np.tile(labels, (2, 1))}, positive=1)["a"]["all"][0]
    assert area.value == area.high == 1
    assert area.low < 0.9
    one = area_under_roc(labels, np.zeros(45), {"a": labels}, positive=1)["a"]["all"][0]
    assert "one seed" in one.reason


def test_equal_scores_do_not_differ():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 50), rng.normal(size=(2, 50))
    result = area_under_roc(labels, np.zeros(50), {"a": scores, "b": scores}, positive=1, baseline="a")
    difference = result["b"]["all"][1]
    assert difference.value == 0
    assert math.isnan(difference.low)
    assert str(difference.reason).startswith("no interval")
    assert result["a"]["all"][1] is None


def test_a_group_without_a_class_is_undefined():
    labels, groups = np.array([0, 1, 0, 1, 1, 1]), np.array([0, 0, 0, 0, 1, 1])
    result = area_under_roc(labels, groups, {"a": np.arange(6.0)}, positive=1)["a"]
    assert math.isnan(result["1"][0].value)
    assert "fewer than two" in result["1"][0].reason
    with pytest.raises(DataError, match="finite"):
        area_under_roc(labels, groups, {"a": np.full(6, np.nan)}, positive=1)


def test_a_difference_needs_rows_of_both_classes():
    labels = np.array([1] * 9 + [0] * 40)
    scores = np.random.default_rng(0).normal(size=(2, 49))
    result = area_under_roc(labels, np.zeros(49), {"a": scores, "b": -scores}, positive=1, baseline="a")["b"]["all"]
    assert result[0].defined
    assert "too few" in result[1].reason


@pytest.mark.parametrize(("positives", "negatives", "area"), [(100, 100, 0.76), (10, 300, 0.9), (44, 1000, 0.97)])
@pytest.mark.slow
@pytest.mark.long
def test_coverage_over_rows_and_seeds(positives, negatives, area):
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], [positives, negatives])
    distance = math.sqrt(2) * stats.norm.ppf(area)
    hits, zero = 0, 0
    for _ in range(300):
        shared = rng.normal(size=len(labels)) + distance * labels
        # Each seed separates the classes a little better or worse.
        scores = [shared + rng.normal(scale=0.1, size=(5, 1)) * labels for _ in range(2)]
        one = area_under_roc(labels, labels * 0, {"a": scores[0], "b": scores[1]}, positive=1, baseline="a")
        estimate, difference = one["a"]["all"][0], one["b"]["all"][1]
        hits += estimate.low <= area <= estimate.high
        zero += difference.low <= 0 <= difference.high
    assert 0.92 * 300 <= hits <= 0.995 * 300
    assert zero >= 0.92 * 300


def test_reweighting_returns_a_function_of_the_score() -> None:
    """For a calibrated score s a flexible second training gives s + log(w_1(p) / w_0(p)); values worked by hand."""

    def afr(score: np.ndarray, gamma: float) -> np.ndarray:
        return score + gamma * (1 - 2 / (1 + np.exp(-score)))

    def jtt(score: np.ndarray, weight: float) -> np.ndarray:
        return score - np.sign(score) * np.log(weight)

    two, half = np.array([2.0]), np.array([-0.5])
    assert afr(two, 4) == pytest.approx([-1.046377], abs=1e-6)
    assert afr(half, 4) == pytest.approx([0.479675], abs=1e-6)
    assert jtt(two, 3) == pytest.approx([0.901388], abs=1e-6)
    assert jtt(half, 3) == pytest.approx([0.598612], abs=1e-6)
    scores = np.linspace(-2, 2, 401)
    assert (np.diff(afr(scores, 2)) > -1e-12).all()  # up to 2 the order stays
    assert (np.diff(afr(scores, 4)) < 0).any()  # beyond, people change places
    assert monotone_share(scores, afr(scores, 2)) == pytest.approx(1)
    assert monotone_share(scores, afr(scores, 4)) > 0.9  # turned round
    assert monotone_share(scores, np.random.default_rng(0).normal(size=401)) < 0.1
    assert np.isnan(monotone_share(scores, np.zeros(401)))
    assert monotone_share(np.zeros(4), np.arange(4.0)) == pytest.approx(0)
    with pytest.raises(DataError, match="same rows"):
        monotone_share(scores, scores[:-1])


def test_a_group_that_is_called_all_is_not_all_rows() -> None:
    label = np.arange(80) % 2
    score, group = np.where(np.arange(80) < 40, label, 0.5), np.where(np.arange(80) < 40, "b", "all")
    found = area_under_roc(label, group, {"erm": score}, positive=1)["erm"]
    assert {name: one.value for name, (one, _) in found.items()} == {"all": 0.875, "b": 1.0, "all (group)": 0.5}
