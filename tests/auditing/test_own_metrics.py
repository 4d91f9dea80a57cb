"""Metrics of the user's own in an audit: any function of labels and predictions, by group."""

import math

import numpy as np
import pytest

import levelhead as lh
from levelhead.auditing.options import AuditOptions
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


def audited(label, prediction, groups, metrics, **options):
    return lh.audit(label, prediction, sensitive_features=groups, metrics=metrics, **{"replicates": 100, **options})


def test_the_figures_are_those_of_the_function_on_the_rows_of_each_group():
    label, prediction, sex = rows()
    result = audited(label, prediction, {"sex": sex}, {"right": accuracy}, replicates=200)
    own = result.own_metrics["sex"]["right"]
    for group, figure in own.groups.items():
        assert figure.value == pytest.approx(accuracy(label[sex == group], prediction[sex == group]))
        assert figure.low < figure.value < figure.high
        wilson = result.groups[group].rates["accuracy"]
        assert (figure.low, figure.high) == pytest.approx((wilson.low, wilson.high), abs=0.03)
    (pair,) = own.pairs
    assert (pair.first.group, pair.second.group) == ("men", "women")
    assert pair.decided
    one = pair.difference
    assert one.value == pytest.approx(own.groups["men"].value - own.groups["women"].value)
    said = f"men and women differ by {digits(one.value)}, interval {digits(one.low)} to {digits(one.high)}."
    written, page = result.to_dict()["own_metrics"]["sex"]["right"], result.to_html()
    assert written["sentences"] == [f"right by sex: {said}"]
    assert written["comparisons"] == 1
    assert written["groups"]["men"]["value"] == own.groups["men"].value
    assert said in page
    assert said in result.text(all=True)


def test_functions_see_labels_and_predictions_as_they_were_given():
    """But for the label map, which is applied first, and scores alone, which they get."""
    seen = []

    def metric(label, prediction):
        seen.append((label.dtype.kind, set(label.tolist()), set(prediction.tolist())))
        return accuracy(label, prediction)

    label = np.array(["no", "yes"] * 20)
    audited(label, label[::-1], ["a"] * 20 + ["b"] * 20, {"m": metric})
    assert seen[0] == ("U", {"no", "yes"}, {"no", "yes"})
    label, _, sex = rows(200)
    score = np.clip(label * 0.4 + np.random.default_rng(0).random(200) * 0.6, 0, 1)
    metrics = {"brier": lambda y, p: ((y - p) ** 2).mean()}
    found = audited(label, None, sex, metrics, scores=score).own_metrics["group"]["brier"].groups["women"]
    assert found.value == pytest.approx(((label - score)[sex == "women"] ** 2).mean())


def test_an_undefined_figure_has_its_reason_among_the_warnings():
    label = np.array([0, 1] * 20 + [0] * 40)

    def recall(y, p):
        return p[y == 1].mean() if (y == 1).any() else math.nan

    result = audited(label, label, ["a"] * 40 + ["b"] * 40, {"recall": recall})
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

    options = AuditOptions(metrics={"r": recall}, replicates=200)
    found = own_metrics(options, label, label, np.zeros(30, np.int64), ["a"])
    assert "resamplings of its 30 rows have no figure" in found["r"].groups["a"].reason


def test_digits_of_any_unit():
    assert [digits(one) for one in (0, -0.0001e-9, 0.1234, 12.345, 1234.5, -3.14159, 1.5e9, math.nan, math.inf)] == [
        "0.000", "−1.00e−13", "0.123", "12.3", "1,234", "−3.14", "1.50e9", "undefined", "inf",
    ]  # fmt: skip


def test_a_figure_that_never_varies_has_no_interval():
    label = np.array([0, 1] * 100)
    result = audited(label, label, ["a"] * 100 + ["b"] * 100, {"right": accuracy})
    own = result.own_metrics["group"]["right"]
    assert own.groups["a"].value == 1
    assert np.isnan(own.groups["a"].low)
    assert own.pairs == []
    assert any("right of group “a” is constant over all resamples" in one for one in result.warnings)
    assert "right by group: fewer than two groups have an interval" in " ".join(result.text(all=True).split())
    assert "no interval" in result.to_html()
