"""The joint table: each method's figures are its own, and small groups are left out as an audit leaves them out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import levelhead as lh
from levelhead.metrics import Counts, JointRow, JointTable, estimate, joint
from levelhead.metrics.paired import paired_interval
from levelhead.types import Estimate

ROWS = 300
METRICS = ("accuracy", "balanced_accuracy", "worst_group_accuracy", "demographic_parity", "equalized_odds")
FEW: dict[str, Any] = {"baseline": "erm", "replicates": 200}


def rows_of(seed: int, classes: int = 2) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Labels, groups and predictions of three methods, some of which are often wrong."""
    rng = np.random.default_rng(seed)
    label, group = rng.integers(classes, size=ROWS), rng.choice(["a", "b", "c"], size=ROWS)
    answers = {}
    for method, error in (("erm", 0.1), ("dam", 0.2), ("jtt", 0.4)):
        wrong = rng.random((3, ROWS)) < error
        answers[method] = np.where(wrong, rng.integers(classes, size=(3, ROWS)), label)
    return label, group, answers


def flip(label: np.ndarray, share: float, seed: int, seeds: int = 1) -> np.ndarray:
    """Predictions (seeds, rows) that are wrong in this share of the rows."""
    return np.where(np.random.default_rng(seed).random((seeds, len(label))) < share, 1 - label, label)


@pytest.mark.parametrize("clustered", [False, True])
def test_an_interval_depends_on_the_own_rows_and_the_seed_alone(clustered: bool) -> None:
    label, group, answers = rows_of(0)
    options = {"replicates": 200, "clusters": np.arange(ROWS) // 3 if clustered else None}
    alone = joint(label, group, {"erm": answers["erm"]}, baseline="erm", **options)
    two = joint(label, group, {"erm": answers["erm"], "dam": answers["dam"]}, baseline="erm", **options)
    every = joint(label, group, dict(reversed(answers.items())), baseline="dam", **options)
    for name in METRICS:
        own = alone.rows["erm"][name].estimate
        assert own.low < own.value < own.high
        assert own == two.rows["erm"][name].estimate == every.rows["erm"][name].estimate
    # The same holds for a difference.
    other = joint(label, group, {**answers, "erm again": answers["jtt"]}, baseline="erm", **options)
    assert two.rows["dam"]["equalized_odds"].difference == other.rows["dam"]["equalized_odds"].difference


def test_the_table_holds_rows_and_seeds() -> None:
    label, group, answers = rows_of(7)
    answers = {"erm": flip(label, 0.2, 0, 3), "dam": flip(label, 0.08, 1, 3), "jtt": flip(label, 0.2, 2, 3)}
    result = joint(label, group, answers, **FEW)
    accuracy = {method: result.rows[method]["accuracy"] for method in answers}
    for method, row in accuracy.items():
        figures = [(values == label).mean() for values in answers[method]]
        assert row.by_seed == pytest.approx(figures)
        assert row.estimate.value == pytest.approx(np.mean(figures))
        assert row.estimate.high - row.estimate.low >= row.rows_only.high - row.rows_only.low
    assert accuracy["erm"].difference is None
    better, same = accuracy["dam"], accuracy["jtt"]
    assert better.difference.low > 0
    assert better.p_value <= better.p_holm < 0.05 < same.p_holm
    assert result.to_dict()["methods"]["dam"]["equalized_odds"]["estimate"]["n"] == ROWS
    paired = result.rows["dam"]["accuracy"].difference
    alone = [estimate(Counts.from_rows(label, answers[one][0], group), "accuracy") for one in ("erm", "dam")]
    assert paired.high - paired.low < math.hypot(*(figure.high - figure.low for figure in alone))


def test_answers_at_chance_have_no_gap_and_are_never_the_best() -> None:
    rng = np.random.default_rng(0)
    label, group = rng.integers(0, 2, (2, 600))
    good = np.where(rng.random(600) < 0.15 + 0.1 * group, 1 - label, label)[None]
    methods = {"erm": good, "constant": np.ones((1, 600), int), "turned": 1 - good}
    table = joint(label, group, methods, **FEW)
    assert table.at_chance == ("constant", "turned")
    assert table.rows["constant"]["equalized_odds"].estimate.value == 0
    assert table.rows["erm"]["equalized_odds"].p_best is None
    assert table.rows["constant"]["equalized_odds"].p_best is not None
    assert "one seed" in str(table.rows["turned"]["accuracy"].estimate.reason)
    balanced = np.arange(600) % 2
    table = joint(balanced, group, {"erm": 0 * good, "b": 0 * good + 1}, **FEW)
    assert table.at_chance == ("erm", "b")
    assert all(math.isnan(rows["accuracy"].p_best) for rows in table.rows.values())
    # One class has no chance level.
    assert joint(0 * label, group, {"erm": 0 * good}, **FEW).at_chance == ()


def test_seeds_too_few_to_tell_are_not_at_chance() -> None:
    """Two seeds of 80% and 56%: far above chance by the rows, and distinguished from nothing by so few seeds."""
    rng = np.random.default_rng(0)
    label, group = rng.integers(0, 2, (2, 800))

    def right(*shares: float) -> np.ndarray:
        return np.stack([np.where(rng.random(800) < share, label, 1 - label) for share in shares])

    methods = {"erm": right(0.7, 0.7, 0.71), "shaky": right(0.8, 0.56), "guess": right(0.5, 0.5, 0.5)}
    table = joint(label, group, methods, **FEW)
    assert (table.at_chance, table.few_seeds) == (("guess",), ("shaky",))
    shaky = table.rows["shaky"]["balanced_accuracy"]
    assert shaky.rows_only.low > 0.5 >= shaky.estimate.low
    for metric in table.rows["erm"]:
        assert table.rows["erm"][metric].p_best is None, "the only row without a mark is the best in every column"
        assert table.rows["shaky"][metric].p_best is not None


def test_a_class_that_one_method_alone_predicts_moves_no_other_figure() -> None:
    label, group, answers = rows_of(1, classes=3)
    answers = {name: answers[name][:2] for name in ("erm", "jtt")}
    rare = {**answers, "jtt": np.where(np.arange(ROWS) == 0, 3, answers["jtt"])}
    known = {**FEW, "classes": [0, 1, 2, 3], "min_count": 10}
    before, after = (joint(label, group, one, **known) for one in (answers, rare))
    for name in ("accuracy", "demographic_parity", "equalized_odds_mean", "worst_group_accuracy"):
        assert before.rows["erm"][name].estimate == after.rows["erm"][name].estimate
        assert before.rows["erm"][name].estimate.defined


def test_predictions_that_agree_in_every_row_do_not_differ() -> None:
    label, group, answers = rows_of(2)
    found = joint(label, group, {"erm": answers["erm"][:1], "twin": answers["erm"][:1]}, **FEW)
    same = found.rows["twin"]["accuracy"].difference
    assert (same.low, same.high) == pytest.approx(paired_interval(0, 0, ROWS))
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
    audited = lh.audit(label, prediction, sensitive_features=group, positive=1, replicates=100).metrics
    found = joint(label, group, {"erm": prediction[None], "dam": answers["dam"]}, min_count=10, **FEW)
    for name in METRICS:
        assert found.rows["erm"][name].estimate.value == pytest.approx(audited[name].value)
        assert found.rows["erm"][name].estimate.n == audited[name].n
        assert found.rows["dam"][name].difference.defined


def test_rows_without_a_group_count_in_accuracies_alone() -> None:
    label, group, answers = rows_of(4)
    group = group.astype("U9")
    group[:60] = "(missing)"
    options = {**FEW, "min_count": 10}
    found = joint(label, group, answers, left_out=["(missing)"], **options).rows["erm"]
    known = joint(label[60:], group[60:], {name: one[:, 60:] for name, one in answers.items()}, **options).rows["erm"]
    assert found["accuracy"].estimate.value == pytest.approx((answers["erm"] == label).mean())
    assert found["equalized_odds"].estimate.value == known["equalized_odds"].estimate.value
    assert found["equalized_odds"].estimate.n == 240


def test_what_cannot_be_compared_is_undefined_and_accuracies_are_not() -> None:
    label, group, answers = rows_of(5)
    two = {name: answers[name] for name in ("erm", "dam")}
    found = joint(label, group, two, min_count=10_000, **FEW).rows["dam"]
    assert found["accuracy"].estimate.defined
    assert not found["demographic_parity"].estimate.defined
    assert not found["equalized_odds"].difference.defined
    assert "a gap needs two" in str(found["equalized_odds"].estimate.reason)
    # Without a smallest denominator a rate over no rows is undefined.
    label[group == "c"] = 0
    one = joint(label, group, two, **FEW).rows["erm"]["equalized_odds"].estimate
    assert (math.isnan(one.value), "no rows with label" in str(one.reason)) == (True, True)


def test_means_over_classes_leave_out_a_class_that_too_few_groups_have() -> None:
    label, group, answers = rows_of(6, classes=3)
    label[label == 2] = 0
    label[:4] = 2
    found = joint(label, group, {name: answers[name] for name in ("erm", "dam")}, min_count=10, **FEW).rows["dam"]
    for name in ("equalized_odds_mean", "equal_opportunity_mean", "equalized_odds"):
        assert found[name].estimate.defined
        assert found[name].difference.low <= found[name].difference.value <= found[name].difference.high


def row(value: float, p_holm: float, p_within: float, reason: str | None = None, half: float = 0.004) -> JointRow:
    estimate = Estimate(value, value - half, value + half, 100, reason)
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
        (row(-0.05, 0.001, 0.9, half=0.06), "undecided"),  # an interval that holds 0 is never called a difference
        (row(0.1, 0.001, 0.9, half=math.nan), "undecided"),
        (JointRow(Estimate(0.1, 0.0, 0.2, 10), Estimate(0.1, 0.0, 0.2, 10), (0.1,), 4.0), None),  # the baseline
    ],
)
def test_a_verdict_is_what_two_tests_say(found: JointRow, verdict: str | None) -> None:
    assert found.verdict(0.05) == verdict


def test_equivalence_is_two_one_sided_tests() -> None:
    # One method right in 80% and another in 79.5% of many rows: the textbook's two one-sided tests of paired shares.
    rng = np.random.default_rng(0)
    rows = 10_000
    label, group = rng.integers(2, size=rows), rng.integers(2, size=rows)
    base = rng.random(rows) < 0.8
    other = np.where(rng.random(rows) < 0.05, rng.random(rows) < 0.7, base)
    predictions = {name: np.where(one, label, 1 - label)[None] for name, one in (("a", base), ("b", other))}
    table = joint(label, group, predictions, baseline="a", positive=1, margin=0.01, replicates=1000)
    difference = other.astype(float) - base
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(rows)
    expected = max(stats.norm.sf((mean + 0.01) / error), stats.norm.sf((0.01 - mean) / error))
    found = table.rows["b"]["accuracy"].p_within
    assert found is not None
    assert stats.norm.isf(found) == pytest.approx(stats.norm.isf(expected), rel=0.08)
    assert table.margin == 0.01


def test_a_table_says_whom_it_compares_with_the_best() -> None:
    rows = {name: {"accuracy": row(-0.05 if name == "d" else 0.05, 0.04, 0.9)} for name in ("a", "b", "c", "d", "e")}
    table = JointTable(rows, "a", 0.95, ("b",), ("c",), 0.03)
    assert [table.can_be_best(name) for name in rows] == [True, False, False, False, True]
    assert not JointTable({"a": rows["a"]}, "a", 0.95).can_be_best("a")
    assert JointTable({"a": rows["a"], "b": rows["b"]}, "a", 0.95).can_be_best("b")
    assert (table.verdict("b", "accuracy"), JointTable(rows, "a", 0.97).verdict("b", "accuracy")) == (
        "larger", "undecided",
    )  # fmt: skip
    assert table.to_dict()["methods"]["e"]["accuracy"]["verdict"] == "larger"
    alone = JointRow(table.rows["a"]["accuracy"].estimate, Estimate.undefined("no rows"), (math.nan,), math.inf)
    found = alone.to_dict()
    assert (found["by_seed"], found["degrees_of_freedom"], found["difference"]) == ([None], None, None)
