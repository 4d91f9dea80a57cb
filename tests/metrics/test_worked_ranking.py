"""Areas under the ROC curve on small samples, against pairs counted one by one and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from levelhead.metrics.ranking import MINIMUM, _placements, _row_variance, area_under_roc, score_interval
from levelhead.types import DataError, Estimate

LABELS = np.array([1] * 12 + [0] * 15)
ONE_GROUP = np.zeros(27, int)


def scores(seed: int, apart: float = 1.0) -> np.ndarray:
    return np.round(np.random.default_rng(seed).normal(size=27) + apart * LABELS, 1)


def placements(values: np.ndarray) -> tuple[list[float], list[float]]:
    """Share of the negatives that each positive beats, and of the positives that each negative is beaten by."""
    positive, negative = values[LABELS == 1], values[LABELS == 0]
    beats = [[(p > n) + 0.5 * (p == n) for n in negative] for p in positive]
    return [float(np.mean(row)) for row in beats], [float(np.mean(column)) for column in zip(*beats, strict=True)]


def newcombe(area: float, positives: int, negatives: int, level: float = 0.95) -> tuple[float, float]:
    """The two areas whose own standard error puts them just that far from the measured one (method 5)."""
    z = stats.norm.ppf((1 + level) / 2)

    def spread(theta: float) -> float:
        more = (positives + negatives) / 2 - 1
        inner = theta * (1 - theta) * (1 + more * ((1 - theta) / (2 - theta) + theta / (1 + theta)))
        return math.sqrt(inner / (positives * negatives))

    low = optimize.brentq(lambda theta: area - theta - z * spread(theta), 1e-9, area)
    high = optimize.brentq(lambda theta: theta - area - z * spread(theta), area, 1 - 1e-9)
    return float(low), float(high)


def one(values: np.ndarray, **options: object) -> Estimate:
    return area_under_roc(LABELS, ONE_GROUP, {"a": values}, positive=1, **options)["a"]["all"][0]


def test_placements_are_shares_of_the_other_class() -> None:
    values = np.stack([scores(0), scores(1)])
    up, down = _placements(values[:, LABELS == 1], values[:, LABELS == 0])
    for seed in range(2):
        expected = placements(values[seed])
        assert up[seed].tolist() == pytest.approx(expected[0])
        assert down[seed].tolist() == pytest.approx(expected[1])


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_the_area_of_one_seed_has_newcombes_interval(level: float) -> None:
    values = scores(0)
    area = float(np.mean(placements(values)[0]))
    found = one(values, level=level)
    assert (found.value, found.low, found.high) == pytest.approx((area, *newcombe(area, 12, 15, level)))
    assert found.n == 27
    assert found.reason == "one seed: its variance over seeds is unknown and not in the interval"


def test_the_order_of_no_rows_and_of_all_rows_reach_the_ends() -> None:
    assert score_interval(0.0, 12, 15, 1.96)[0] == 0
    assert score_interval(1.0, 12, 15, 1.96)[1] == 1
    below, above = score_interval(0.0, 12, 15, 1.96), score_interval(1.0, 12, 15, 1.96)
    assert below[1] == pytest.approx(1 - above[0])
    assert 0 < below[1] < 0.3
    worst = one(-LABELS.astype(float))
    assert (worst.value, worst.low) == (0, 0)
    assert worst.high == pytest.approx(below[1], abs=1e-4)


def test_seeds_that_agree_have_the_interval_of_their_rows() -> None:
    values = scores(0)
    alone, twice = one(values), one(np.stack([values, values]))
    assert (twice.value, twice.low, twice.high) == pytest.approx((alone.value, alone.low, alone.high))
    assert twice.reason is None


def test_the_interval_of_an_area_ends_at_zero_and_one_however_far_seeds_lie_apart() -> None:
    far = one(np.stack([scores(0, apart=9), scores(0, apart=-9)]))
    assert 0 < far.value < 1
    assert (far.low, far.high) == (0, 1)


def difference(first: np.ndarray, second: np.ndarray, level: float = 0.95) -> Estimate:
    """Of the second to the first, which is the baseline."""
    found = area_under_roc(LABELS, ONE_GROUP, {"a": first, "b": second}, positive=1, baseline="a", level=level)
    assert found["a"]["all"][1] is None
    moved = found["b"]["all"][1]
    assert moved is not None
    return moved


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_a_difference_of_one_seed_has_welchs_interval_on_differences_of_placements(level: float) -> None:
    first, second = scores(0), scores(1, apart=2)
    up, down = (np.subtract(b, a) for a, b in zip(placements(first), placements(second), strict=True))
    welch = stats.ttest_ind(up, down, equal_var=False).confidence_interval(level)
    found = difference(first, second, level)
    assert found.value == pytest.approx(up.mean())
    assert found.high - found.low == pytest.approx(welch.high - welch.low)
    assert found.high + found.low == pytest.approx(2 * up.mean())
    assert found.n == 27
    assert found.reason == "one seed: its variance over seeds is unknown and not in the interval"


def test_a_difference_ends_at_minus_one_and_one_however_far_seeds_lie_apart() -> None:
    far = difference(np.stack([scores(0, apart=9), scores(0, apart=-9)]), np.stack([scores(1), scores(2)]))
    assert -1 < far.value < 1
    assert (far.low, far.high) == (-1, 1)


def test_the_variance_of_rows_adds_both_classes() -> None:
    up, down = np.array([0.2, 0.4, 0.9]), np.array([0.1, 0.5, 0.6, 0.8])
    variance, freedom = _row_variance(up, down)
    parts = np.var(up, ddof=1) / 3, np.var(down, ddof=1) / 4
    assert variance == pytest.approx(sum(parts))
    assert freedom == pytest.approx(sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3))


def test_a_difference_needs_ten_rows_of_each_class_and_has_one_with_ten() -> None:
    assert MINIMUM == 10
    for positives, negatives, enough in ((10, 10, True), (9, 20, False), (20, 9, False)):
        labels = np.repeat([1, 0], [positives, negatives])
        values = np.random.default_rng(0).normal(size=len(labels))
        found = area_under_roc(labels, labels * 0, {"a": values, "b": -values}, positive=1, baseline="a")
        moved = found["b"]["all"][1]
        assert moved.defined is enough
        if not enough:
            assert (moved.reason, moved.n) == ("fewer than 10 rows of a class: too few for an interval", 29)


def test_groups_are_apart_and_small_ones_say_what_they_lack() -> None:
    labels = np.array([1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0])
    groups = np.array(["p"] * 4 + ["q"] * 4 + ["r"] * 4)
    values = np.array([3, 1, 2, 0, 9, 9, 9, 9, 9, 9, 9, 9.0])
    found = area_under_roc(labels, groups, {"a": values, "b": -values}, positive=1, baseline="a")
    assert list(found) == ["a", "b"]
    assert list(found["a"]) == ["all", "p", "q", "r"]
    assert found["a"]["p"][0].value == pytest.approx(3 / 4)
    assert found["b"]["p"][0].value == pytest.approx(1 / 4)
    assert found["a"]["p"][0].n == 4
    for name in "qr":  # one positive row, one negative row
        own, moved = found["b"][name]
        assert own.reason == moved.reason == f"group {name} has fewer than two rows of a class"
        assert own.n == moved.n == 4
        assert not own.defined
        assert found["a"][name][1] is None
    alone = area_under_roc(labels, groups, {"a": values}, positive=1)["a"]
    assert alone["p"][1] is alone["q"][1] is None


def test_any_label_can_be_the_positive_one() -> None:
    values = scores(0)
    named = np.where(LABELS == 1, "yes", "no")
    found = area_under_roc(named, ONE_GROUP, {"a": values}, positive="no")["a"]["all"][0]
    assert found.value == pytest.approx(1 - one(values).value)


def test_scores_are_finite_numbers_one_a_row() -> None:
    for values in (np.zeros(26), np.full((2, 27), np.inf), np.where(LABELS == 1, np.nan, 0)):
        with pytest.raises(DataError, match=r"^Scores of 'a' must be finite numbers of shape \(seeds, 27\)"):
            one(values)
    assert one([[f"{value}" for value in scores(0)]]).value == one(scores(0)).value  # text that reads as numbers
