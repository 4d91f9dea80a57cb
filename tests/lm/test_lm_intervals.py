from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from levelhead.lm.intervals import (
    SHARE,
    estimated,
    group_means,
    over_seeds,
    p_value,
    paired_difference,
    pooled,
    ratio,
)
from levelhead.types import Estimate


def shares(right: int, count: int) -> NDArray[np.float64]:
    """Rows (right, 1) of which the first ``right`` are right."""
    return np.stack([np.arange(count) < right, np.ones(count)], axis=1).astype(float)


@pytest.mark.parametrize(("right", "count"), [(300, 400), (1, 20), (20, 20)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(right: int, count: int) -> None:
    exact = stats.binomtest(right, count).proportion_ci(method="exact")
    figure = estimated(shares(right, count), None, ratio, ends=SHARE)
    assert (figure.value, figure.n) == (right / count, count)
    assert (figure.low, figure.high) == pytest.approx((exact.low, exact.high), abs=0.002)
    copies = estimated(np.repeat(shares(right, count), 4, axis=0), np.repeat(np.arange(count), 4), ratio, ends=SHARE)
    assert (copies.low, copies.high) == pytest.approx((figure.low, figure.high))  # copies of items add nothing


def test_a_mean_has_students_interval_whatever_the_order_of_rows() -> None:
    rng = np.random.default_rng(1)
    values = np.stack([np.repeat([0.0, 1.0], 10) + 5, np.ones(20)], axis=1)
    figure = estimated(values, None, ratio)
    half = stats.t.ppf(0.975, 19) * math.sqrt(0.25 / 19)
    assert (figure.value, figure.low, figure.high) == pytest.approx((5.5, 5.5 - half, 5.5 + half))
    clusters, order = rng.integers(0, 12, 20).astype(str), rng.permutation(20)
    whole, mixed = estimated(values, clusters, ratio), estimated(values[order], clusters[order], ratio)
    assert (whole.value, whole.low, whole.high) == pytest.approx((mixed.value, mixed.low, mixed.high))


def test_the_clusters_count_that_a_figure_is_divided_by() -> None:
    """Eleven templates, of which one names a person: a bias of 1 is known from one of them."""
    named = [[1.0, 1.0]] + [[0.0, 0.0]] * 10
    figure = estimated(named, None, ratio, ends=SHARE)
    assert (figure.value, math.isnan(figure.low)) == (1.0, True)
    assert figure.reason == "no interval: 1 item, and 10 are needed"


def test_few_rows_have_a_value_and_no_interval_and_none_no_value() -> None:
    nothing = estimated(np.zeros((7, 2)), None, ratio, reason="every answer is unknown")
    assert (nothing.defined, nothing.reason, nothing.n) == (False, "every answer is unknown", 7)
    assert estimated(np.zeros((0, 2)), None, ratio).reason == "there are no items"
    alone = estimated(shares(1, 3), ["x"] * 3, ratio)
    assert (alone.value, alone.reason) == (1 / 3, "no interval: 1 cluster, and 10 are needed")
    nine, ten = (estimated([[row % 2, 1.0] for row in range(rows)], None, ratio) for rows in (9, 10))
    assert nine.value == 4 / 9
    assert (math.isnan(nine.low), nine.reason) == (True, "no interval: 9 items, and 10 are needed")
    assert 0 < ten.low < 0.5 < ten.high < 1
    few = paired_difference(nine, nine)
    assert (few.value, math.isnan(few.low), math.isnan(p_value(few))) == (0, True, True)


def test_a_macro_average_weighs_groups_equally() -> None:
    means, names = group_means([[1.0], [1.0], [1.0], [0.0]], ["b", "b", "b", "a"])
    assert names.tolist() == ["a", "b"]
    assert means.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert estimated(means, None, ratio).value == 0.5


def test_a_paired_difference_is_over_the_same_clusters_and_agrees_with_its_p() -> None:
    rng = np.random.default_rng(0)
    first = rng.random(200) < 0.5
    second = first.copy()
    second[::20] = True
    clusters = np.arange(200) // 2
    before, after = (estimated(np.stack([right, np.ones(200)], 1), clusters, ratio) for right in (first, second))
    paired = paired_difference(before, after)
    assert paired.value == pytest.approx(after.value - before.value)
    assert (paired.low > 0) == (p_value(paired) < 0.05)
    assert paired.high - paired.low < 0.7 * (after.high - after.low)  # unpaired it would be 1.4 times as wide
    closest = max(paired.value - paired.low, 1e-9) / paired.sample.critical  # type: ignore[attr-defined]
    assert p_value(paired) == pytest.approx(2 * stats.t.sf(paired.value / closest, paired.sample.freedom))  # type: ignore[attr-defined]
    nothing = paired_difference(before, before)
    assert (nothing.value, nothing.reason, p_value(nothing)) == (0.0, "no interval: all items agree", 1.0)


@pytest.mark.parametrize("right", [0, 40])
def test_where_all_agree_the_interval_is_that_of_clopper_and_pearson(right: int) -> None:
    figure = estimated(shares(right, 40), None, ratio, ends=SHARE)
    exact = stats.binomtest(right, 40).proportion_ci(method="exact")
    assert (figure.low, figure.high) == pytest.approx((exact.low, exact.high))
    in_tens = estimated(shares(10 * right, 400), np.arange(400) // 10, ratio, ends=SHARE)
    assert (in_tens.low, in_tens.high) == pytest.approx((exact.low, exact.high))  # 40 clusters of ten rows


def test_models_that_answer_alike_or_never_alike_have_an_interval_and_the_p_of_the_sign_test() -> None:
    wrong, right = (estimated(shares(count, 12), None, ratio, ends=SHARE) for count in (0, 12))
    alike, never = paired_difference(right, right), paired_difference(wrong, right)
    other = 1 - 0.025 ** (1 / 12)
    assert (alike.value, alike.low, alike.high, p_value(alike)) == pytest.approx((0, -other, other, 1))
    assert (never.value, never.low, never.high) == pytest.approx((1, 1 - 2 * other, 1))
    assert p_value(never) == pytest.approx(2 * 0.5**12)
    assert p_value(paired_difference(right, wrong)) == pytest.approx(2 * 0.5**12)


def test_seeds_that_differ_beside_items_that_agree() -> None:
    seeds = [estimated(shares(count, 40), None, ratio, ends=SHARE) for count in (40, 0, 40)]
    found = over_seeds(seeds)
    assert (found.value, found.low <= 0, found.high >= 1) == (pytest.approx(2 / 3), True, True)
    same = over_seeds(seeds[:1] * 3)
    assert (same.low, same.high) == pytest.approx((seeds[0].low, 1))
    against = over_seeds([paired_difference(seeds[1], seeds[0])] * 3)
    assert (against.value, against.high) == pytest.approx((1, 1))
    assert against.low == pytest.approx(2 * 0.025 ** (1 / 40) - 1)
    assert pooled(seeds).low < 2 / 3
    endless = estimated(shares(0, 40), None, ratio)  # a scale without known ends
    without = over_seeds([paired_difference(endless, seeds[0])] * 3)
    assert without.reason == "no interval: all items agree"
    assert math.isnan(without.low)
    # Student's interval of two shares, 0.05 and 0.95, ended beyond 1; a difference from 0 did, too.
    apart = [estimated(shares(right, 20), None, ratio, ends=SHARE) for right in (1, 19)]
    never = estimated(shares(0, 20), None, ratio, ends=SHARE)
    found, against = over_seeds(apart), over_seeds([paired_difference(never, one) for one in apart])
    assert (found.low, found.high, against.low, against.high) == (0, 1, -1, 1)


def test_what_does_not_rest_on_the_same_items_is_not_paired() -> None:
    one = estimated(shares(3, 8), None, ratio)
    for other in (
        estimated(shares(3, 9), None, ratio),
        estimated(shares(3, 8), [*"aabbccdd"], ratio),
        estimated(shares(3, 8), None, ratio, ids=[*"abcdefgh"]),
    ):
        assert paired_difference(one, other).reason == "the two are on different items, tokens or measures"
    assert "keeps no items" in str(paired_difference(one, Estimate(0.5, 0.4, 0.6, 8)).reason)
    assert "undefined" in str(paired_difference(one, estimated(np.zeros((8, 2)), None, ratio)).reason)


def test_the_difference_over_seeds_is_paired_by_item() -> None:
    items = np.random.default_rng(0).normal(0, 10, 100)
    ones, terms = np.ones(100), np.arange(100) // 10
    before = estimated(np.stack([items, ones], axis=1), terms, ratio)
    after = [estimated(np.stack([items + shift, ones], axis=1), terms, ratio) for shift in (1.0, 2.0, 3.0)]
    found = over_seeds([paired_difference(before, one) for one in after])
    assert found.value == pytest.approx(2.0)
    assert (found.high - found.low) / 2 == pytest.approx(4.303 * math.sqrt(1 / 3), rel=0.01)  # seeds alone
    one = over_seeds([paired_difference(before, after[0])])
    assert (one.value, one.reason) == (pytest.approx(1.0), "no interval: all items agree")
    one = over_seeds([estimated(np.stack([items + 1, ones], axis=1), terms, ratio)])
    assert "one seed" in str(one.reason)


def test_over_seeds_says_why_there_is_no_interval() -> None:
    good = estimated(shares(3, 9), None, ratio)
    assert not over_seeds([good, Estimate.undefined("nothing")]).defined
    for other in (Estimate(0.5, 0.4, 0.6, 9), estimated(shares(3, 8), None, ratio)):
        found = over_seeds([good, other])
        assert found.value == pytest.approx((good.value + other.value) / 2)
        assert math.isnan(found.low)
        assert "same items" in str(found.reason)
    alone = estimated(shares(3, 9), np.zeros(9), ratio)
    assert math.isnan(over_seeds([alone, alone]).low)
