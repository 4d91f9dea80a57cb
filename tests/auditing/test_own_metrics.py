"""Metrics of the user's own in an audit: any function of labels and predictions, by group."""

import io
import math
import time

import numpy as np
import pytest
from rich.console import Console

import levelhead as lh
from levelhead.auditing.own_metrics import own_metrics
from levelhead.report.text import digits


def rows(count=400, seed=0):
    rng = np.random.default_rng(seed)
    sex = np.where(np.arange(count) % 2 == 0, "women", "men")
    label = rng.integers(0, 2, count)
    prediction = np.where(rng.random(count) < np.where(sex == "men", 0.95, 0.7), label, 1 - label)
    return label, prediction, sex


def accuracy(label, prediction):
    return (label == prediction).mean()


def test_the_figures_are_those_of_the_function_on_the_rows_of_each_group():
    label, prediction, sex = rows()
    result = lh.audit(label, prediction, sensitive_features={"sex": sex}, metrics={"right": accuracy}, replicates=200)
    own = result.own_metrics["sex"]["right"]
    for group, figure in own.groups.items():
        assert figure.value == pytest.approx(accuracy(label[sex == group], prediction[sex == group]))
        assert figure.low < figure.value < figure.high
        wilson = result.groups[group].rates["accuracy"]
        assert figure.low == pytest.approx(wilson.low, abs=0.03)
        assert figure.high == pytest.approx(wilson.high, abs=0.03)
    (pair,) = own.pairs
    assert (pair.first, pair.second) == ("men", "women")
    assert pair.decided
    assert pair.difference.value == pytest.approx(own.groups["men"].value - own.groups["women"].value)


def test_what_is_printed_written_and_drawn():
    label, prediction, sex = rows()
    result = lh.audit(label, prediction, sensitive_features={"sex": sex}, metrics={"right": accuracy}, replicates=200)
    own = result.own_metrics["sex"]["right"]
    one = own.pairs[0].difference
    sentence = (
        f"right by sex: men and women differ by {digits(one.value)}, interval {digits(one.low)} to {digits(one.high)}."
    )
    assert sentence in result.text(all=True)
    written = result.to_dict()["own_metrics"]["sex"]["right"]
    assert written["sentences"] == [sentence]
    assert written["comparisons"] == 1
    assert written["groups"]["men"]["value"] == own.groups["men"].value
    page = result.to_html()
    assert "Your own metrics" in page
    assert sentence in page


def test_rows_that_cannot_tell_say_so():
    label, _prediction, sex = rows(60)
    result = lh.audit(
        label, label, sensitive_features={"sex": sex}, metrics={"share": lambda y, _: y.mean()}, replicates=100
    )
    assert "share by sex: no measurable difference between" in result.text(all=True)


def test_functions_see_labels_and_predictions_as_they_were_given():
    seen = []

    def metric(label, prediction):
        seen.append((label.dtype.kind, set(label.tolist()), set(prediction.tolist())))
        return 0.5

    label = np.array(["no", "yes"] * 20)
    lh.audit(label, label[::-1], sensitive_features=["a"] * 20 + ["b"] * 20, metrics={"m": metric}, replicates=100)
    assert seen[0] == ("U", {"no", "yes"}, {"no", "yes"})


def test_a_label_map_is_applied_first():
    label = np.array([">50K", "<=50K"] * 30)
    prediction = np.array([1, 0] * 30)
    result = lh.audit(
        label, prediction, sensitive_features=["a", "b"] * 30, label_map={">50K": 1, "<=50K": 0},
        metrics={"right": accuracy}, replicates=100,
    )  # fmt: skip
    assert [one.value for one in result.own_metrics["group"]["right"].groups.values()] == [1, 1]


def test_scores_alone_are_what_a_function_gets():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 200)
    score = np.clip(label * 0.4 + rng.random(200) * 0.6, 0, 1)
    result = lh.audit(
        label, scores=score, sensitive_features=["a", "b"] * 100,
        metrics={"brier": lambda y, p: ((y - p) ** 2).mean()}, replicates=100,
    )  # fmt: skip
    first = slice(0, 200, 2)
    assert result.own_metrics["group"]["brier"].groups["a"].value == pytest.approx(
        ((label[first] - score[first]) ** 2).mean()
    )


def test_small_and_missing_groups_are_shown_and_not_compared():
    label, prediction, sex = rows(40)
    sex = sex.astype(object)
    sex[:4], sex[4:9] = None, "few"
    result = lh.audit(label, prediction, sensitive_features={"sex": sex}, metrics={"right": accuracy}, replicates=100)
    own = result.own_metrics["sex"]["right"]
    assert set(own.groups) == {"few", "men", "women", "(missing)"}
    assert {(pair.first, pair.second) for pair in own.pairs} <= {("men", "women"), ("women", "men")}


def test_crossings_have_own_metrics_too():
    label, prediction, sex = rows(200)
    result = lh.audit(
        label, prediction, sensitive_features={"sex": sex, "age": ["old", "old", "young", "young"] * 50},
        intersect=True, metrics={"right": accuracy}, replicates=100,
    )  # fmt: skip
    own = result.own_metrics["sex", "age"]["right"]
    assert own.comparisons == 6
    assert ("men", "old") in own.groups


def test_an_undefined_figure_has_its_reason_among_the_warnings():
    label = np.array([0, 1] * 20 + [0] * 40)

    def recall(y, p):
        return p[y == 1].mean() if (y == 1).any() else math.nan

    result = lh.audit(
        label, label, sensitive_features=["a"] * 40 + ["b"] * 40, metrics={"recall": recall}, replicates=100
    )
    figure = result.own_metrics["group"]["recall"].groups["b"]
    assert not figure.defined
    assert figure.reason == "the metric is nan on its 40 rows"
    assert any("recall" in warning and "nan on its 40 rows" in warning for warning in result.warnings)
    assert result.own_metrics["group"]["recall"].pairs == []
    assert "fewer than two groups have an interval" in " ".join(result.text(all=True).split())


def test_resamplings_without_a_figure_take_the_interval_away():
    label = np.array([1] + [0] * 29)

    def recall(y, p):
        if not (y == 1).any():
            raise ValueError("no positives")
        return float(p[y == 1].mean())

    found = own_metrics({"r": recall}, label, label, np.zeros(30, np.int64), ["a"], compared=[True], replicates=200)
    assert "resamplings of its 30 rows have no figure" in found["r"].groups["a"].reason


def test_hostile_names_cannot_command_a_page_or_terminal():
    label, prediction, sex = rows(60)
    result = lh.audit(
        label, prediction, sensitive_features={"sex": sex}, metrics={"<script>\x1b[2J[/red]": accuracy}, replicates=100
    )
    assert "\x1b" not in result.text(all=True)
    assert "<script>\x1b" not in result.to_html()
    assert "<script>" not in result.to_html().replace("&lt;script&gt;", "")


def test_the_same_seed_gives_the_same_intervals():
    label, prediction, sex = rows(100)
    one, other = (
        lh.audit(
            label, prediction, sensitive_features={"sex": sex}, metrics={"right": accuracy}, replicates=100, seed=3
        )
        for _ in range(2)
    )
    assert one.own_metrics == other.own_metrics


def test_long_work_shows_a_bar_and_short_work_none(monkeypatch):
    label, prediction, sex = rows(40)
    codes = (sex == "men").astype(np.int64)
    for seconds, shown in ((0.0, True), (60.0, False)):
        monkeypatch.setattr("levelhead.auditing.own_metrics.SLOW", seconds)
        console = Console(force_terminal=True, width=80, record=True, file=io.StringIO())
        own_metrics(
            {"m": accuracy}, label, prediction, codes, ["a", "b"], compared=[True, True], replicates=300,
            console=console,
        )  # fmt: skip
        assert ("Resampling rows" in console.export_text()) is shown


def test_digits_of_any_unit():
    assert [digits(one) for one in (0, -0.0001e-9, 0.1234, 12.345, 1234.5, -3.14159, 1.5e9, math.nan, math.inf)] == [
        "0.000", "−1.00e−13", "0.123", "12.3", "1,234", "−3.14", "1.50e9", "undefined", "inf",
    ]  # fmt: skip


def test_speed_is_that_of_the_function():
    label, prediction, sex = rows(1000)
    began = time.process_time()
    lh.audit(label, prediction, sensitive_features={"sex": sex}, metrics={"right": accuracy})
    assert time.process_time() - began < 5


def test_a_figure_that_never_varies_has_no_interval():
    label = np.array([0, 1] * 100)
    groups = ["a"] * 100 + ["b"] * 100
    result = lh.audit(label, label, sensitive_features=groups, metrics={"right": accuracy}, replicates=100)
    own = result.own_metrics["group"]["right"]
    assert own.groups["a"].value == 1
    assert np.isnan(own.groups["a"].low)
    assert own.pairs == []
    assert any("right of group “a” is constant over all resamples" in one for one in result.warnings)
    assert "right by group: fewer than two groups have an interval" in " ".join(result.text(all=True).split())
    assert "no interval" in result.to_html()
