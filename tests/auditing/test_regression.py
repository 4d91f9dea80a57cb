"""Audits of predicted numbers: errors by group, in the unit of the label."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

import levelhead as lh
from levelhead.auditing.regression import QUANTITIES, regression_sentences
from levelhead.cli import app


def rows(count=300, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["men", "women"], count)
    label = rng.normal(100, 20, count)
    return label, label + np.where(sex == "men", 3.0, -4.0) + rng.normal(0, 5, count), sex


def halls(rows, level=0.95):
    """Hall's interval of a mean (1992), in which the skewness counts 1.25 + 2.5 / n times."""
    n, error = len(rows), stats.sem(rows)
    t = stats.t.ppf((1 + level) / 2, n - 1)
    k = stats.skew(rows, bias=False) * (1.25 + 2.5 / n) / np.sqrt(n)
    ends = [rows.mean() - error * 3 / k * (np.cbrt(1 + k * (q - k / 6)) - 1) for q in (t, -t)]
    return ends[0], ends[1]


def test_figures_are_those_of_the_rows():
    label, prediction, sex = rows()
    result = lh.regression_audit(label, prediction, sensitive_features={"sex": sex})
    for group, found in result.by_attribute["sex"].items():
        error = (prediction - label)[sex == group]
        assert found.n == len(error)
        assert found.mean_error.value == pytest.approx(error.mean())
        assert found.mean_absolute_error.value == pytest.approx(np.abs(error).mean())
        assert found.root_mean_squared_error == pytest.approx(np.sqrt((error**2).mean()))
        assert found.mean_label == pytest.approx(label[sex == group].mean())
        assert found.mean_prediction.value == pytest.approx(prediction[sex == group].mean())
        student = stats.ttest_1samp(error, 0).confidence_interval()
        low, high = halls(error)
        assert found.mean_error.low == pytest.approx(min(student.low, low))
        assert found.mean_error.high == pytest.approx(max(student.high, high))
    assert result.explained == pytest.approx(1 - ((prediction - label) ** 2).mean() / label.var())
    assert result.overall.n == 300


def test_differences_hold_together_and_the_larger_mean_comes_first():
    label, prediction, sex = rows()
    result = lh.regression_audit(label, prediction, sensitive_features={"sex": sex})
    assert result.comparisons == 3
    assert {one.quantity for one in result.pairs} == set(QUANTITIES)
    first = result.pairs[0]
    assert first.quantity == "mean_error"
    assert (first.pair.first, first.pair.second) == ("men", "women")
    assert first.pair.decided
    assert 4 < first.pair.difference.low < 7 < first.pair.difference.high < 9
    error = prediction - label
    welch = stats.ttest_ind(error[sex == "men"], error[sex == "women"], equal_var=False).confidence_interval(
        1 - 0.05 / 3
    )
    assert first.pair.difference.low == pytest.approx(welch.low, abs=0.08)
    assert first.pair.difference.high == pytest.approx(welch.high, abs=0.08)


def test_a_long_right_tail_is_held():
    # Student's interval alone holds these means in 86% and 86%.
    rng, sex = np.random.default_rng(0), np.repeat(["a", "b"], 60)
    truth, held = np.exp(0.5) - 1.5, []
    size = np.abs(rng.lognormal(0, 1, 2_000_000) - 1.5).mean()
    for _ in range(400):
        error = rng.lognormal(0, 1, 120) - 1.5
        found = lh.regression_audit(np.zeros(120), error, sensitive_features=sex)
        one = found.by_attribute["group"]["a"]
        apart = [pair.pair.difference for pair in found.pairs]
        held.append(
            [
                one.mean_error.low <= truth <= one.mean_error.high,
                one.mean_absolute_error.low <= size <= one.mean_absolute_error.high,
                all(figure.low <= 0 <= figure.high for figure in apart),
            ]
        )
    assert (np.mean(held, axis=0) > 0.93).all()


def test_few_rows_with_a_long_tail_are_named():
    rng, sex = np.random.default_rng(2), np.repeat(["few", "enough"], [30, 100])
    found = lh.regression_audit(np.zeros(130), rng.lognormal(0, 1, 130) - 1.5, sensitive_features=sex)
    said = [one for one in found.warnings if "long tail" in one]
    assert said == [
        "group: the 30 errors of group “few” have a long tail. A 95% interval of their mean absolute error covers as "
        "little as 83%; collect 60 rows or more."
    ]


def test_a_long_left_tail_is_the_mirror_image():
    rng, sex = np.random.default_rng(1), np.repeat(["a", "b"], 25)
    error = rng.lognormal(0, 1, 50)
    right, left = (
        lh.regression_audit(np.zeros(50), sign * error, sensitive_features=sex).by_attribute["group"]["a"].mean_error
        for sign in (1, -1)
    )
    assert (left.low, left.high) == pytest.approx((-right.high, -right.low))
    assert right.high - right.value > 1.2 * (right.value - right.low)


def test_sentences():
    result = lh.regression_audit(
        [10.0, 20, 30, 40] * 10, [13.0, 21.5, 26, 40.5] * 10, sensitive_features=["a", "b"] * 20, min_count=20
    )
    sentences = regression_sentences(result)
    assert sentences == [
        "By group, predictions are off by 3.50 for a and by 1.00 for b on average: a difference of 2.50, interval "
        "2.04 to 2.94.",
        "By group, the mean error does not differ measurably between b and a: 1.50, interval −0.629 to 3.63.",
        "Over all 40 rows the mean absolute error is 2.25, the root mean squared error 2.62, and predictions are 0.250 "
        "too high on average. Predictions explain 94.5% of the variance.",
    ]


def test_batches_of_a_file_give_what_arrays_give(tmp_path, monkeypatch):
    label, prediction, sex = rows(2000)
    label, prediction = label + 1e8, prediction + 1e8  # sums of squares would lose all digits
    file = tmp_path / "prices.csv"
    pd.DataFrame({"price": label, "guess": prediction, "sex": sex}).to_csv(file, index=False)
    monkeypatch.setattr("levelhead.tables.files.BATCH_BYTES", 4096)
    whole = lh.regression_audit(label, prediction, sensitive_features={"sex": sex})
    read = lh.regression_audit_file(file, "price", "guess", ["sex"])
    for group, one in whole.by_attribute["sex"].items():
        other = read.by_attribute["sex"][group]
        assert other.n == one.n
        assert other.mean_error.low == pytest.approx(one.mean_error.low, rel=1e-6)
        assert other.mean_absolute_error.high == pytest.approx(one.mean_absolute_error.high, rel=1e-6)
    assert [str(one.pair.first) for one in whole.pairs] == [str(one.pair.first) for one in read.pairs]
    parquet = tmp_path / "prices.parquet"
    pd.DataFrame({"price": label, "guess": prediction, "sex": sex}).to_parquet(parquet)
    assert lh.regression_audit_file(parquet, "price", "guess", ["sex"]).overall.n == 2000


def test_groups_that_are_small_or_missing_are_shown_and_not_compared():
    label, prediction, sex = rows(100)
    sex = sex.astype(object)
    sex[:5], sex[5:12] = "few", None
    result = lh.regression_audit(label, prediction, sensitive_features={"sex": sex})
    assert [(group, one.included) for group, one in result.by_attribute["sex"].items()] == [
        ("few", False), ("men", True), ("women", True), ("(missing)", False),
    ]  # fmt: skip
    assert result.comparisons == 3
    assert any("group “few” has 5 rows, fewer than 10, and is not compared" in one for one in result.warnings)
    assert any("7 rows without a group are not compared" in one for one in result.warnings)
    as_group = lh.regression_audit(label, prediction, sensitive_features={"sex": sex}, missing="group", min_count=5)
    assert as_group.comparisons == 3 * 6


def test_groups_that_differ_only_in_how_they_are_written_are_named() -> None:
    rng = np.random.default_rng(0)
    found = lh.regression_audit(rng.normal(size=90), rng.normal(size=90), sensitive_features=["a", "A", "b"] * 30)
    assert any("“A” and “a” differ only in how" in said for said in found.warnings)
    assert "of the variance" not in found.text(all=True)  # below 0%, which a warning says


def test_crossings_ranges_and_numbers():
    label, prediction, sex = rows(400)
    ages = np.arange(400) % 50 + 20
    result = lh.regression_audit(
        label, prediction + 0.2 * (ages - 45), sensitive_features={"sex": sex, "age": ages}, bins={"age": [30, 50]},
        intersect=True, continuous={"years": ages},
    )  # fmt: skip
    assert list(result.by_attribute["age"]) == ["under 30", "30 to under 50", "50 and over"]
    assert ("men", "under 30") in result.by_attribute["sex", "age"]
    assert result.continuous["years"].slope.value == pytest.approx(0.2 * 49, abs=2.5)
    assert "Along years, the mean error runs from −" in " ".join(result.text(all=True).split())
    assert " at 22 to " in " ".join(result.text(all=True).split())


@pytest.mark.parametrize(
    ("label", "prediction", "sentence"),
    [
        (
            np.arange(40.0),
            np.full(40, 7.0),
            "The prediction is 7.00 for every row: only the labels differ between groups",
        ),
        (np.full(40, 7.0), np.arange(40.0), "The label is 7.00 for every row: prediction quality cannot be measured"),
        (np.arange(40.0), np.arange(40.0)[::-1], "does not beat predicting the mean label"),
    ],
)
def test_a_model_that_is_no_use_is_named_before_any_gap(label, prediction, sentence):
    result = lh.regression_audit(label, prediction, sensitive_features=["a", "b"] * 20)
    assert sentence in result.warnings[0]


def test_errors_that_are_all_alike_have_no_interval():
    label = np.arange(40.0)
    result = lh.regression_audit(label, label, sensitive_features=["a", "b"] * 20)
    assert result.explained == 1
    assert np.isnan(result.by_attribute["group"]["a"].mean_error.low)
    assert [one.quantity for one in result.pairs] == ["mean_prediction"]
    assert regression_sentences(result)[0] == (
        "Fewer than two groups have errors that vary; constant errors have no interval and are not compared."
    )
    said = "all 20 errors of group “a” are 0.000. Constant errors have no interval"
    assert any(said in one for one in result.warnings)
    assert json.dumps(result.to_dict(), allow_nan=False)
    assert "no interval" in result.to_html()


def test_a_reference_that_is_too_small_is_why_no_errors_are_compared():
    group, label = ["a"] * 5 + ["b", "c"] * 30, np.arange(65.0)
    result = lh.regression_audit(label, np.sqrt(label), sensitive_features=group, reference="a")
    assert regression_sentences(result)[0] == "The reference group “a” is too small; no errors are compared."


def test_one_group_has_nothing_to_compare():
    result = lh.regression_audit(np.arange(20.0), np.arange(20.0) ** 2, sensitive_features=["a"] * 20)
    assert regression_sentences(result)[0] == ("Fewer than two groups are large enough; there is nothing to compare.")
    assert "Fewer than two groups" in result.to_html()


def test_one_row_and_groups_of_one():
    result = lh.regression_audit([1.0], [2.0], sensitive_features=["a"])
    assert result.overall.n == 1
    assert np.isnan(result.overall.mean_error.low)
    assert json.dumps(result.to_dict(), allow_nan=False)
    assert result.text(all=True)
    assert result.to_html()


def test_hostile_names():
    label, prediction, _ = rows(40)
    groups = ["<script>\x1b[2J", "[/red]"] * 20
    result = lh.regression_audit(label, prediction, sensitive_features={"a\x1b]8;;": groups}, about={"title": "<i>"})
    assert "\x1b" not in result.text(all=True)
    assert "<script>" not in result.to_html()
    assert "<i>" not in result.to_html()


def test_the_command(tmp_path):
    label, prediction, sex = rows(200)
    file = tmp_path / "prices.csv"
    pd.DataFrame({"price": label, "guess": prediction, "sex": sex, "age": np.arange(200) % 60}).to_csv(
        file, index=False
    )
    page, figures = tmp_path / "page.html", tmp_path / "figures.json"
    words = ["audit", str(file), "--label", "price", "--prediction", "guess", "--group", "sex", "--regression"]
    done = CliRunner().invoke(app, [*words, "--continuous", "age", "--html", str(page), "--json", str(figures)])
    assert done.exit_code == 0, done.output
    assert "predictions are" in done.output
    assert "Mean absolute error" in done.output
    written = json.loads(figures.read_text())
    assert written["kind"] == "regression audit"
    assert written["sentences"][0] in page.read_text()
    again = tmp_path / "again.html"
    assert CliRunner().invoke(app, ["report", str(figures), "--html", str(again)]).exit_code == 0
    assert written["sentences"][0] in again.read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--positive", "1"], "--positive applies to classes, not numbers"),
    ],
)
def test_options_about_classes_are_refused(tmp_path, more, message):
    file = tmp_path / "prices.csv"
    file.write_text("price,guess,sex\n1,2,a\n")
    words = ["audit", str(file), "--label", "price", "--prediction", "guess", "--group", "sex", "--regression"]
    done = CliRunner().invoke(app, [*words, *more])
    assert done.exit_code == 1
    assert message in " ".join(str(done.exception or done.output).split())


def test_rows_of_one_person_are_named_and_not_taken_together(tmp_path):
    label, prediction, sex = rows()
    frame = pd.DataFrame({"y": label, "p": prediction, "sex": sex, "user_id": np.arange(300) // 3})
    frame.to_csv(tmp_path / "p.csv", index=False)
    found = lh.regression_audit_file(tmp_path / "p.csv", "y", "p", ["sex"])
    assert "user_id has 100 values in 300 rows" in found.warnings[-1]
    assert found.warnings[-1].endswith("intervals are too narrow: average the errors of each user_id first.")


def test_pairs_are_with_the_reference_alone_and_allow_for_fewer_comparisons() -> None:
    rng = np.random.default_rng(0)
    group, label = rng.choice(list("abcd"), 400), rng.normal(size=400)
    group[:5] = "f"
    guess = label + rng.normal(size=400) + (group == "b")
    every = lh.regression_audit(label, guess, sensitive_features={"sex": group})
    one = lh.regression_audit(label, guess, sensitive_features={"sex": group}, reference="sex=a")
    assert (every.comparisons, one.comparisons) == (18, 9)
    assert one.to_dict()["reference"] == {"sex": "a"}
    assert "reference" not in every.to_dict()
    assert all("a" in (pair.pair.first, pair.pair.second) for pair in one.pairs)
    width = {}
    for result in (every, one):
        pair = next(
            p for p in result.pairs if p.quantity == "mean_error" and {p.pair.first, p.pair.second} == {"a", "b"}
        )
        width[result.comparisons] = pair.pair.difference.high - pair.pair.difference.low
    assert width[9] < width[18]
    small = lh.regression_audit(label, guess, sensitive_features={"sex": group}, reference="f")
    assert small.pairs == []
    assert any("the reference group “f” is too small" in said for said in small.warnings)


def test_errors_that_are_equal_up_to_rounding_are_constant() -> None:
    label = np.array([50.1, 60.2, 70.3, 80.7] * 20)
    group = np.array(["a", "b"] * 40)
    found = lh.regression_audit(label, label + np.where(group == "a", 0.1, 0.3), sensitive_features={"g": group})
    assert sum("Constant errors have no interval" in said for said in found.warnings) == 2
    assert {one.quantity for one in found.pairs} <= {"mean_prediction"}
