"""The joint table: each method's figures are its own, and small groups are left out as an audit leaves them out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import levelhead as lh
from levelhead.metrics import JointRow, JointTable, joint
from levelhead.types import Estimate

ROWS = 300
METRICS = ("accuracy", "balanced_accuracy", "worst_group_accuracy", "demographic_parity", "equalized_odds")


def rows_of(seed: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Labels, groups and predictions of three methods, some of which are often wrong."""
    rng = np.random.default_rng(seed)
    label, group = rng.integers(classes, size=ROWS), rng.choice(["a", "b", "c"], size=ROWS)
    answers = {}
    for method, error in (("erm", 0.1), ("dam", 0.2), ("jtt", 0.4)):
        wrong = rng.random((3, ROWS)) < error
        answers[method] = np.where(wrong, rng.integers(classes, size=(3, ROWS)), label)
    return label, group, answers


@pytest.mark.parametrize("clustered", [False, True])
def test_an_interval_depends_on_the_own_rows_and_the_seed_alone(clustered: bool) -> None:
    label, group, answers = rows_of(0)
    clusters = np.arange(ROWS) // 3 if clustered else None
    alone = joint(label, group, {"erm": answers["erm"]}, baseline="erm", clusters=clusters)
    two = joint(label, group, {"erm": answers["erm"], "dam": answers["dam"]}, baseline="erm", clusters=clusters)
    every = joint(label, group, dict(reversed(answers.items())), baseline="dam", clusters=clusters)
    for name in METRICS:
        own = alone.rows["erm"][name].estimate
        assert own.low < own.value < own.high
        assert own == two.rows["erm"][name].estimate == every.rows["erm"][name].estimate
    # The same holds for a difference.
    other = joint(label, group, {**answers, "erm again": answers["jtt"]}, baseline="erm", clusters=clusters)
    assert two.rows["dam"]["equalized_odds"].difference == other.rows["dam"]["equalized_odds"].difference


def test_a_class_that_one_method_alone_predicts_moves_no_other_figure() -> None:
    label, group, answers = rows_of(1, classes=3)
    rare = {**answers, "jtt": np.where(np.arange(ROWS) == 0, 3, answers["jtt"])}
    known = {"baseline": "erm", "classes": [0, 1, 2, 3], "min_count": 10}
    before, after = (joint(label, group, one, **known) for one in (answers, rare))
    for name in ("accuracy", "demographic_parity", "equalized_odds_mean", "worst_group_accuracy"):
        assert before.rows["erm"][name].estimate == after.rows["erm"][name].estimate
        assert before.rows["erm"][name].estimate.defined


def test_predictions_that_agree_in_every_row_do_not_differ() -> None:
    label, group, answers = rows_of(2)
    found = joint(label, group, {"erm": answers["erm"], "twin": answers["erm"]}, baseline="erm")
    for name in METRICS:
        assert found.rows["erm"][name].estimate == found.rows["twin"][name].estimate
        assert found.rows["twin"][name].difference.value == 0
        if name != "accuracy":  # that has the interval of paired proportions
            assert math.isnan(found.rows["twin"][name].difference.low)
            assert found.verdict("twin", name) == "undecided"
            assert found.rows["twin"][name].p_holm == 1.0


@pytest.mark.parametrize("positives", [0, 4])
def test_a_group_with_too_few_rows_of_a_class_is_left_out_as_an_audit_leaves_it_out(positives: int) -> None:
    label, group, answers = rows_of(3)
    label[group == "c"] = 0
    label[np.flatnonzero(group == "c")[:positives]] = 1
    prediction = answers["erm"][0]
    audited = lh.audit(label, prediction, sensitive_features=group, positive=1).metrics
    found = joint(label, group, {"erm": prediction[None], "dam": answers["dam"]}, baseline="erm", min_count=10)
    for name in METRICS:
        assert found.rows["erm"][name].estimate.value == pytest.approx(audited[name].value)
        assert found.rows["erm"][name].estimate.n == audited[name].n
        assert found.rows["dam"][name].difference.defined
    # Of the two groups that are compared the interval is that of the two alone.
    both = group != "c"
    pair = joint(label[both], group[both], {"erm": prediction[None, both]}, baseline="erm")
    widths = [
        one.rows["erm"]["equalized_odds"].estimate.high - one.rows["erm"]["equalized_odds"].estimate.low
        for one in (found, pair)
    ]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_without_a_smallest_denominator_a_rate_over_no_rows_is_undefined() -> None:
    label, group, answers = rows_of(3)
    label[group == "c"] = 0
    found = joint(label, group, answers, baseline="erm").rows["erm"]["equalized_odds"].estimate
    assert np.isnan(found.value)
    assert "no rows with label" in str(found.reason)


def test_rows_without_a_group_count_in_accuracies_alone() -> None:
    label, group, answers = rows_of(4)
    group = group.astype("U9")
    group[:60] = "(missing)"
    options = {"baseline": "erm", "min_count": 10}
    found = joint(label, group, answers, left_out=["(missing)"], **options).rows["erm"]
    known = joint(label[60:], group[60:], {name: one[:, 60:] for name, one in answers.items()}, **options).rows["erm"]
    assert found["accuracy"].estimate.value == pytest.approx((answers["erm"] == label).mean())
    assert found["equalized_odds"].estimate.value == known["equalized_odds"].estimate.value
    assert found["equalized_odds"].estimate.n == 240


def test_no_gap_between_fewer_than_two_groups_is_undefined_and_accuracies_are_not() -> None:
    label, group, answers = rows_of(5)
    found = joint(label, group, answers, baseline="erm", min_count=10_000).rows["dam"]
    assert found["accuracy"].estimate.defined
    assert not found["demographic_parity"].estimate.defined
    assert not found["equalized_odds"].difference.defined
    assert "a gap needs two" in str(found["equalized_odds"].estimate.reason)


def test_means_over_classes_leave_out_a_class_that_too_few_groups_have() -> None:
    label, group, answers = rows_of(6, classes=3)
    label[label == 2] = 0
    label[:4] = 2
    found = joint(label, group, answers, baseline="erm", min_count=10).rows["dam"]
    for name in ("equalized_odds_mean", "equal_opportunity_mean", "equalized_odds"):
        assert found[name].estimate.defined
        assert found[name].difference.defined
        assert found[name].difference.low <= found[name].difference.value <= found[name].difference.high


def test_a_difference_without_an_interval_is_not_decided() -> None:
    figure = Estimate(0.1, 0.05, 0.15, 100)
    for low, high, verdict in ((0.05, 0.15, "larger"), (math.nan, math.nan, "undecided")):
        difference = Estimate(0.1, low, high, 100)
        assert JointRow(figure, figure, (0.1,), 4.0, difference, 0.001, 0.001).verdict(0.05) == verdict


def row(value: float, p_holm: float, p_within: float, reason: str | None = None) -> JointRow:
    estimate = Estimate(value, value - 0.004, value + 0.004, 100, reason)
    return JointRow(estimate, estimate, (value,), 4.0, estimate, p_holm, p_holm, None, p_within)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (row(-0.05, 0.001, 0.9), "smaller"),
        (row(0.05, 0.001, 0.9), "larger"),
        (row(-0.005, 0.04, 0.01), "smaller within"),
        (row(0.005, 0.04, 0.01), "larger within"),
        (row(0.001, 0.8, 0.01), "within"),
        (row(0.001, 0.8, 0.2), "undecided"),
        (row(-0.05, 0.001, 0.9, "one seed"), "undecided"),
    ],
)
def test_a_verdict_is_what_two_tests_say(found: JointRow, verdict: str) -> None:
    assert found.verdict(0.05) == verdict


def test_an_interval_that_holds_zero_is_never_called_a_difference() -> None:
    wide = Estimate(-0.05, -0.11, 0.01, 100)
    assert JointRow(wide, wide, (-0.05,), 4.0, wide, 0.001, 0.001, None, 0.9).verdict(0.05) == "undecided"


def test_the_baseline_has_no_verdict() -> None:
    estimate = Estimate(0.1, 0.0, 0.2, 10)
    assert JointRow(estimate, estimate, (0.1,), 4.0).verdict(0.05) is None


def test_equivalence_is_two_one_sided_tests() -> None:
    # One method right in 80% and another in 79.5% of many rows: the textbook's two one-sided tests of paired shares.
    rng = np.random.default_rng(0)
    rows = 20_000
    label, group = rng.integers(2, size=rows), rng.integers(2, size=rows)
    base = rng.random(rows) < 0.8
    other = np.where(rng.random(rows) < 0.05, rng.random(rows) < 0.7, base)
    predictions = {name: np.where(one, label, 1 - label)[None] for name, one in (("a", base), ("b", other))}
    table = joint(label, group, predictions, baseline="a", positive=1, margin=0.01, replicates=4000)
    difference = other.astype(float) - base
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(rows)
    expected = max(stats.norm.sf((mean + 0.01) / error), stats.norm.sf((0.01 - mean) / error))
    found = table.rows["b"]["accuracy"].p_within
    assert found is not None
    assert stats.norm.isf(found) == pytest.approx(stats.norm.isf(expected), rel=0.05)
    assert table.margin == 0.01


def test_a_table_says_whom_it_compares_with_the_best() -> None:
    rows = {name: {"accuracy": row(-0.05, 0.04, 0.9)} for name in ("a", "b", "c", "d", "e")}
    table = JointTable(rows, "a", 0.95, ("b",), ("c",), 0.03, ("d",))
    assert [table.can_be_best(name) for name in rows] == [True, False, False, False, True]
    assert not JointTable({"a": rows["a"]}, "a", 0.95).can_be_best("a")
    assert JointTable({"a": rows["a"], "b": rows["b"]}, "a", 0.95).can_be_best("b")
    assert (table.verdict("b", "accuracy"), JointTable(rows, "a", 0.97).verdict("b", "accuracy")) == (
        "smaller", "undecided",
    )  # fmt: skip
    kept = table.to_dict()
    methods = kept.pop("methods")
    assert kept == {
        "baseline": "a", "level": 0.95, "margin": 0.03, "at_chance": ["b"], "few_seeds": ["c"], "less_accurate": ["d"],
    }  # fmt: skip
    figure = {"value": -0.05, "low": pytest.approx(-0.054), "high": pytest.approx(-0.046), "n": 100}
    assert methods["e"]["accuracy"] == {
        "estimate": figure, "rows_only": figure, "by_seed": [-0.05], "degrees_of_freedom": 4.0, "difference": figure,
        "p_value": 0.04, "p_holm": 0.04, "p_best": None, "p_within": 0.9, "verdict": "smaller",
    }  # fmt: skip
    alone = JointRow(table.rows["a"]["accuracy"].estimate, Estimate.undefined("no rows"), (math.nan,), math.inf)
    found = alone.to_dict()
    assert (found["by_seed"], found["degrees_of_freedom"], found["difference"]) == ([None], None, None)
