"""Audits of predicted numbers: errors by group, in the unit of the label."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from command_line import written
from levelhead.auditing.regression import QUANTITIES, regression_leads


def rows(count=300, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["men", "women"], count)
    label = rng.normal(100, 20, count)
    return label, label + np.where(sex == "men", 3.0, -4.0) + rng.normal(0, 5, count), sex


def audited(label, prediction, groups, **options):
    return lh.audit(label, prediction, sensitive_features=groups, numbers=True, **options)


def halls(rows, level=0.95):
    """Hall's interval of a mean (1992), in which the skewness counts 1.25 + 2.5 / n times."""
    n, error = len(rows), stats.sem(rows)
    t = stats.t.ppf((1 + level) / 2, n - 1)
    k = stats.skew(rows, bias=False) * (1.25 + 2.5 / n) / np.sqrt(n)
    ends = [rows.mean() - error * 3 / k * (np.cbrt(1 + k * (q - k / 6)) - 1) for q in (t, -t)]
    return ends[0], ends[1]


def test_figures_are_those_of_the_rows_and_the_larger_mean_comes_first():
    label, prediction, sex = rows()
    result, error = audited(label, prediction, {"sex": sex}), prediction - label
    for group, found in result.by_attribute["sex"].items():
        own = error[sex == group]
        assert found.n == len(own)
        assert found.mean_error.value == pytest.approx(own.mean())
        assert found.mean_absolute_error.value == pytest.approx(np.abs(own).mean())
        assert found.root_mean_squared_error == pytest.approx(np.sqrt((own**2).mean()))
        assert found.mean_label == pytest.approx(label[sex == group].mean())
        assert found.mean_prediction.value == pytest.approx(prediction[sex == group].mean())
        student, (low, high) = stats.ttest_1samp(own, 0).confidence_interval(), halls(own)
        assert found.mean_error.low == pytest.approx(min(student.low, low))
        assert found.mean_error.high == pytest.approx(max(student.high, high))
    assert result.explained == pytest.approx(1 - (error**2).mean() / label.var())
    assert result.overall.n == 300
    assert result.comparisons == 3
    assert {one.quantity for one in result.pairs} == set(QUANTITIES)
    first = result.pairs[0]
    assert (first.quantity, first.first.group, first.second.group) == ("mean_error", "men", "women")
    assert first.decided
    assert 4 < first.difference.low < 7 < first.difference.high < 9
    welch = stats.ttest_ind(error[sex == "men"], error[sex == "women"], equal_var=False)
    ends = welch.confidence_interval(1 - 0.05 / 3)
    assert (first.difference.low, first.difference.high) == pytest.approx((ends.low, ends.high), abs=0.08)


def test_a_long_right_tail_is_held():
    # Student's interval alone holds these means in 86% and 86%.
    rng, sex = np.random.default_rng(0), np.repeat(["a", "b"], 60)
    truth, held, log = np.exp(0.5) - 1.5, [], np.log(1.5)
    size = truth + 2 * (1.5 * stats.norm.cdf(log) - np.exp(0.5) * stats.norm.cdf(log - 1))
    for _ in range(200):
        found = audited(np.zeros(120), rng.lognormal(0, 1, 120) - 1.5, sex)
        one = found.by_attribute["group"]["a"]
        apart = [pair.difference for pair in found.pairs]
        held.append(
            [
                one.mean_error.low <= truth <= one.mean_error.high,
                one.mean_absolute_error.low <= size <= one.mean_absolute_error.high,
                all(figure.low <= 0 <= figure.high for figure in apart),
            ]
        )
    assert (np.mean(held, axis=0) > 0.92).all()


def test_a_long_tail_of_few_rows_is_named_and_that_of_the_other_side_is_the_mirror_image():
    error, sex = np.random.default_rng(2).lognormal(0, 1, 130) - 1.5, np.repeat(["few", "enough"], [30, 100])
    found, other = (audited(np.zeros(130), sign * error, sex) for sign in (1, -1))
    (said,) = [one for one in found.warnings if "long tail" in one]
    assert "the 30 errors of group “few” have a long tail" in said
    assert "covers as little as 83%; collect 60 rows or more." in said
    right, left = (one.by_attribute["group"]["few"].mean_error for one in (found, other))
    assert (left.low, left.high) == pytest.approx((-right.high, -right.low))
    assert right.high - right.value > 1.2 * (right.value - right.low)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_batches_of_a_file_give_what_arrays_give(kind, tmp_path, monkeypatch):
    label, prediction, sex = rows(1000)
    label, prediction = label + 1e8, prediction + 1e8  # sums of squares would lose all digits
    file = written(pd.DataFrame({"price": label, "guess": prediction, "sex": sex}), tmp_path / f"prices.{kind}")
    monkeypatch.setattr("levelhead.tables.files.BATCH_BYTES", 4096)
    whole, read = (
        audited(label, prediction, {"sex": sex}),
        lh.audit_table(file, label="price", prediction="guess", groups=["sex"], numbers=True),
    )
    for group, one in whole.by_attribute["sex"].items():
        other = read.by_attribute["sex"][group]
        assert other.n == one.n
        assert other.mean_error.low == pytest.approx(one.mean_error.low, rel=1e-6)
        assert other.mean_absolute_error.high == pytest.approx(one.mean_absolute_error.high, rel=1e-6)
    assert [one.first.group for one in whole.pairs] == [one.first.group for one in read.pairs]


def test_groups_that_are_small_missing_or_written_alike_are_named():
    label, prediction, sex = rows(100)
    sex = sex.astype(object)
    sex[:5], sex[5:12] = "few", None
    result = audited(label, prediction, {"sex": sex})
    included = {group: one.included for group, one in result.by_attribute["sex"].items()}
    assert included == {"few": False, "men": True, "women": True, "(missing)": False}
    assert result.comparisons == 3
    assert any("group “few” has 5 rows, fewer than 10, and is not compared" in one for one in result.warnings)
    assert any("7 rows without a group are not compared" in one for one in result.warnings)
    assert audited(label, prediction, {"sex": sex}, missing="group", min_count=5).comparisons == 3 * 6
    alike = audited(*np.random.default_rng(0).normal(size=(2, 90)), ["a", "A", "b"] * 30)
    assert any("“A” and “a” differ only in how" in said for said in alike.warnings)
    assert "of the variance" not in alike.text(all=True)  # below 0%, which a warning says


COUNT = np.arange(40.0)


@pytest.mark.parametrize(
    ("label", "prediction", "sentence"),
    [
        (COUNT, np.full(40, 7.0), "The prediction is 7.00 for every row"),
        (np.full(40, 7.0), COUNT, "The label is 7.00 for every row"),
        (COUNT, COUNT[::-1], "does not beat predicting the mean label"),
    ],
)
def test_a_model_that_is_no_use_is_named_before_any_gap(label, prediction, sentence):
    assert sentence in audited(label, prediction, ["a", "b"] * 20).warnings[0]


def test_errors_that_are_all_alike_have_no_interval():
    result = audited(COUNT, COUNT, ["a", "b"] * 20)
    assert result.explained == 1
    assert np.isnan(result.by_attribute["group"]["a"].mean_error.low)
    assert [one.quantity for one in result.pairs] == ["mean_prediction"]
    assert regression_leads(result)[0].sentence.startswith("No two groups can be compared")
    assert any("all 20 errors of group “a” are 0.000. Constant errors" in one for one in result.warnings)
    assert json.dumps(result.to_dict(), allow_nan=False)
    assert "no interval" in result.to_html()
    label, group = np.array([50.1, 60.2, 70.3, 80.7] * 20), np.array(["a", "b"] * 40)
    rounded = audited(label, label + np.where(group == "a", 0.1, 0.3), group)
    assert sum("Constant errors have no interval" in said for said in rounded.warnings) == 2
    assert {one.quantity for one in rounded.pairs} <= {"mean_prediction"}


@pytest.mark.parametrize(
    ("groups", "options", "said"),
    [
        (["a"] * 5 + ["b", "c"] * 30, {"reference": "a"}, "the reference group “a” is too small"),
        (["a"] * 20, {}, "there is only one group"),
        (["a"], {}, "there is only one group"),
    ],
)
def test_why_no_errors_are_compared_is_said(groups, options, said):
    label = np.arange(float(len(groups)))
    result = audited(label, np.sqrt(label) + 1, groups, **options)
    assert regression_leads(result)[0].sentence.endswith("so no gap was measured.")
    assert said in " ".join(result.warnings)
    assert np.isnan(result.overall.mean_error.low) == (len(groups) == 1)
    assert json.dumps(result.to_dict(), allow_nan=False)
    assert said in " ".join(result.text(all=True).split())
    assert said in result.to_html()


def test_pairs_are_with_the_reference_alone_and_allow_for_fewer_comparisons() -> None:
    rng = np.random.default_rng(0)
    group, label = rng.choice(list("abcd"), 400), rng.normal(size=400)
    group[:5] = "f"
    guess = label + rng.normal(size=400) + (group == "b")
    every, one, small = (audited(label, guess, {"sex": group}, reference=name) for name in (None, "sex=a", "f"))
    assert (every.comparisons, one.comparisons) == (18, 9)
    assert one.to_dict()["reference"] == {"sex": "a"}
    assert "reference" not in every.to_dict()
    assert all(pair.second.group == "a" for pair in one.pairs)
    alone, among = (
        next(p for p in found.pairs if p.quantity == "mean_error" and {p.first.group, p.second.group} == {"a", "b"})
        for found in (one, every)
    )
    assert alone.difference.high - alone.difference.low < among.difference.high - among.difference.low
    assert small.pairs == []
    assert any("the reference group “f” is too small" in said for said in small.warnings)
