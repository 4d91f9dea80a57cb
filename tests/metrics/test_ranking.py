"""Areas under the ROC curve on small samples, against pairs counted one by one, SciPy and formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.metrics import roc_auc_score

from levelhead.metrics.ranking import MINIMUM, _placements, _row_variance, area_under_roc, score_interval
from levelhead.types import Estimate

LABELS = np.array([1] * 12 + [0] * 15)
ONE_GROUP = np.zeros(27, int)
ONE_SEED = "one seed: its variance over seeds is unknown and not in the interval"


def scores(seed: int, apart: float = 1.0) -> np.ndarray:
    """Rounding makes ties."""
    return np.round(np.random.default_rng(seed).normal(size=27) + apart * LABELS, 1)


def placements(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Share of the negatives that each positive beats, and of the positives that each negative is beaten by."""
    up, down = values[LABELS == 1][:, None], values[LABELS == 0]
    beats = (up > down) + 0.5 * (up == down)
    return beats.mean(1), beats.mean(0)


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


def one(values: object, **options: object) -> Estimate:
    return area_under_roc(LABELS, ONE_GROUP, {"a": values}, positive=1, **options)["a"]["all"][0]


def difference(first: np.ndarray, second: np.ndarray, level: float = 0.95) -> Estimate:
    """Of the second to the first, which is the baseline."""
    found = area_under_roc(LABELS, ONE_GROUP, {"a": first, "b": second}, positive=1, baseline="a", level=level)
    assert found["a"]["all"][1] is None
    moved = found["b"]["all"][1]
    assert moved is not None
    return moved


def test_areas_and_placements_are_shares_of_pairs_in_the_right_order() -> None:
    values, groups = np.stack([scores(seed) for seed in range(3)]), np.arange(27) % 2
    up, down = _placements(values[:, LABELS == 1], values[:, LABELS == 0])
    for seed in range(3):
        np.testing.assert_allclose(up[seed], placements(values[seed])[0])
        np.testing.assert_allclose(down[seed], placements(values[seed])[1])
    found = area_under_roc(LABELS, groups, {"a": values}, positive=1)["a"]
    for name, inside in (("all", groups >= 0), ("1", groups == 1)):
        expected = np.mean([roc_auc_score(LABELS[inside], own[inside]) for own in values])
        assert found[name][0].value == pytest.approx(expected)
        assert found[name][1] is None


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_the_area_of_one_seed_has_newcombes_interval(level: float) -> None:
    area = float(placements(scores(0))[0].mean())
    found = one(scores(0), level=level)
    assert (found.value, found.low, found.high) == pytest.approx((area, *newcombe(area, 12, 15, level)))
    assert (found.n, found.reason) == (27, ONE_SEED)
    twice = one(np.stack([scores(0)] * 2), level=level)  # seeds that agree have the interval of their rows
    assert (twice.value, twice.low, twice.high) == pytest.approx((found.value, found.low, found.high))
    assert twice.reason is None
    assert score_interval(0.9, 30, 50, stats.norm.ppf((1 + level) / 2)) == pytest.approx(newcombe(0.9, 30, 50, level))


def test_the_order_of_no_rows_and_of_all_rows_reach_the_ends_and_are_not_certain() -> None:
    below, above = score_interval(0.0, 12, 15, 1.96), score_interval(1.0, 12, 15, 1.96)
    assert (below[0], above[1]) == (0, 1)
    assert below[1] == pytest.approx(1 - above[0])
    assert 0 < below[1] < 0.3
    worst, best = one(-LABELS.astype(float)), one(np.tile(LABELS, (2, 1)))
    assert (worst.value, worst.low, worst.high) == (0, 0, pytest.approx(below[1], abs=1e-4))
    assert (best.value, best.low, best.high) == (1, pytest.approx(above[0], abs=1e-4), 1)


def test_intervals_end_at_the_ends_of_their_scale_however_far_seeds_lie_apart() -> None:
    apart = np.stack([scores(0, apart=9), scores(0, apart=-9)])
    far, moved = one(apart), difference(apart, np.stack([scores(1), scores(2)]))
    assert (far.low, far.high, moved.low, moved.high) == (0, 1, -1, 1)
    assert 0 < far.value < 1
    assert -1 < moved.value < 1


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_a_difference_of_one_seed_has_welchs_interval_on_differences_of_placements(level: float) -> None:
    first, second = scores(0), scores(1, apart=2)
    up, down = (np.subtract(b, a) for a, b in zip(placements(first), placements(second), strict=True))
    welch = stats.ttest_ind(up, down, equal_var=False).confidence_interval(level)
    found = difference(first, second, level)
    assert found.value == pytest.approx(up.mean())
    assert found.high - found.low == pytest.approx(welch.high - welch.low)
    assert found.high + found.low == pytest.approx(2 * up.mean())
    assert (found.n, found.reason) == (27, ONE_SEED)
    same = difference(np.stack([first, second]), np.stack([first, second]))
    assert (same.value, math.isnan(same.low)) == (0, True)
    assert str(same.reason).startswith("no interval")


def test_the_variance_of_rows_adds_both_classes() -> None:
    up, down = np.array([0.2, 0.4, 0.9]), np.array([0.1, 0.5, 0.6, 0.8])
    parts = np.var(up, ddof=1) / 3, np.var(down, ddof=1) / 4
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3)
    assert _row_variance(up, down) == pytest.approx((sum(parts), freedom))


def test_a_difference_needs_ten_rows_of_each_class_and_has_one_with_ten() -> None:
    assert MINIMUM == 10
    for positives, negatives, enough in ((10, 10, True), (9, 20, False), (20, 9, False)):
        labels = np.repeat([1, 0], [positives, negatives])
        values = np.random.default_rng(0).normal(size=len(labels))
        found = area_under_roc(labels, labels * 0, {"a": values, "b": -values}, positive=1, baseline="a")
        own, moved = found["b"]["all"]
        assert (own.defined, moved.defined) == (True, enough)
        if not enough:
            assert (moved.reason, moved.n) == ("fewer than 10 rows of a class: too few for an interval", 29)


def test_groups_are_apart_and_small_ones_say_what_they_lack() -> None:
    labels = np.array([1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 0])
    groups = np.array(["p"] * 4 + ["q"] * 4 + ["all"] * 4)
    values = np.array([3, 1, 2, 0, 9, 9, 9, 9, 9, 9, 9, 9.0])
    found = area_under_roc(labels, groups, {"a": values, "b": -values}, positive=1, baseline="a")
    assert list(found) == ["a", "b"]
    # A group that is called all is not all rows.
    assert set(found["a"]) == {"all", "p", "q", "all (group)"}
    assert [found[name]["p"][0].value for name in "ab"] == pytest.approx([3 / 4, 1 / 4])
    assert found["a"]["p"][0].n == 4
    for name in ("q", "all (group)"):  # one positive row, one negative row
        own, moved = found["b"][name]
        assert own.reason == moved.reason == f"group {name} has fewer than two rows of a class"
        assert (own.n, moved.n, own.defined) == (4, 4, False)
        assert found["a"][name][1] is None
    alone = area_under_roc(labels, groups, {"a": values}, positive=1)["a"]
    assert alone["p"][1] is alone["q"][1] is None


def test_any_label_can_be_the_positive_one_and_texts_can_be_numbers() -> None:
    named = np.where(LABELS == 1, "yes", "no")
    found = area_under_roc(named, ONE_GROUP, {"a": scores(0)}, positive="no")["a"]["all"][0]
    assert found.value == pytest.approx(1 - one(scores(0)).value)
    assert one([[f"{value}" for value in scores(0)]]).value == one(scores(0)).value


@pytest.mark.parametrize(("positives", "negatives", "area"), [(100, 100, 0.76), (10, 300, 0.9), (44, 1000, 0.97)])
@pytest.mark.slow
@pytest.mark.long
def test_coverage_over_rows_and_seeds(positives: int, negatives: int, area: float) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], [positives, negatives])
    distance = math.sqrt(2) * stats.norm.ppf(area)
    hits, zero = 0, 0
    for _ in range(300):
        shared = rng.normal(size=len(labels)) + distance * labels
        # Each seed separates the classes a little better or worse.
        drawn = {name: shared + rng.normal(scale=0.1, size=(5, 1)) * labels for name in "ab"}
        found = area_under_roc(labels, labels * 0, drawn, positive=1, baseline="a")
        estimate, moved = found["a"]["all"][0], found["b"]["all"][1]
        hits += estimate.low <= area <= estimate.high
        zero += moved.low <= 0 <= moved.high
    assert 0.92 * 300 <= hits <= 0.995 * 300
    assert zero >= 0.92 * 300
