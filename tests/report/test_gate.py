"""Limits on figures: the whole interval decides, and what is undecided is said."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import levelhead as lh
from as_tables import audit_unrecorded, explain_columns
from levelhead.metrics.names import Key
from levelhead.report.gate import Condition, check
from levelhead.report.result import Report
from levelhead.report.wide import Fraction, Pair
from levelhead.types import ConfigError, Estimate


class Result(Report):
    def __init__(self, *figures: tuple[str, Key | None, str, Estimate]) -> None:
        self.every = figures

    def to_dict(self) -> dict[str, Any]:
        return {}

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        return iter(self.every)


def ratio(value: float, low: float, high: float, group: str = "b", attribute: str = "race") -> Any:
    return attribute, group, "selection_ratio", Estimate(value, low, high, 100, None)


@pytest.mark.parametrize(
    ("text", "low", "high", "answer"),
    [
        ("selection_ratio < 0.8", 0.5, 0.7999, "yes"),
        ("selection_ratio < 0.8", 0.5, 0.8, "undecided"),
        ("selection_ratio <= 0.8", 0.5, 0.8, "yes"),
        ("selection_ratio < 0.8", 0.8, 0.9, "no"),
        ("selection_ratio >= 80%", 0.8, 0.9, "yes"),
        ("selection_ratio>80 %", 0.8, 0.9, "undecided"),
        ("  selection_ratio.value < .8", 0.5, 0.9, "yes"),
        ("selection_ratio.low < 8e-1", 0.5, 0.9, "yes"),
        ("selection_ratio.high < 0.8", 0.5, 0.9, "no"),
        ("race: selection_ratio < 0.8", 0.1, 0.2, "yes"),
        ("race:selection_ratio < 0.8", 0.1, 0.2, "yes"),
    ],
)
def test_the_whole_interval_or_the_named_end_decides(text: str, low: float, high: float, answer: str) -> None:
    (found,) = check(Result(ratio(0.7, low, high)), [Condition.parse(text)]).checks
    assert found.answer == answer


@pytest.mark.parametrize("text", ["selection_ratio < 1", "selection_ratio.value > -1", "selection_ratio.low > -1"])
@pytest.mark.parametrize("figure", [Estimate.undefined("no rows"), Estimate(0.5, math.nan, math.nan, 3)])
def test_what_is_missing_is_never_met(text: str, figure: Estimate) -> None:
    (found,) = check(Result(("race", "b", "selection_ratio", figure)), [Condition.parse(text)]).checks
    asked_of_the_value = text.startswith("selection_ratio.value") and figure.defined
    assert found.answer == ("yes" if asked_of_the_value else "undecided")


@pytest.mark.parametrize("name", ["equal_opportunity", "accuracy", "true_positive_rate_difference", "accuracy_change"])
def test_a_limit_in_points_on_a_fraction_is_refused(name: str) -> None:
    result = Result(("race", "b", Fraction(name), Estimate(0.1, 0.05, 0.15, 100, None)))
    with pytest.raises(ConfigError, match=rf"{name} is a fraction, at most 1\. For 5 points write 5%\."):
        check(result, [Condition.parse(f"{name} > 5")])
    assert check(result, [Condition.parse(f"{name} > 1")]).answer == "no"
    cost = Result(("race", "b", "mean_error", Estimate(7, 6, 8, 100, None)))
    assert check(cost, [Condition.parse("mean_error > 5")]).answer == "yes"


NO_FRACTIONS = {
    "selection_ratio", "ratio_of_rates", "true_positive_ratio", "slope", "intercept", "cost", "cost_difference", "rho",
    "representation", "exposure", "own", "own_difference",
}  # fmt: skip


def refusal(result: Report, text: str) -> str:
    try:
        check(result, [Condition.parse(text)])
    except ConfigError as error:
        return str(error)
    return ""


def test_every_result_refuses_points_on_each_of_its_fractions() -> None:
    """The others have another unit: ratios, slopes of calibration, costs, metrics of one's own."""
    rng = np.random.default_rng(0)
    sex, label, stratum = (rng.integers(0, 2, 600) for _ in range(3))
    score = np.clip(0.3 * label + 0.2 * sex + 0.5 * rng.random(600), 0.01, 0.99)
    decided, month, groups = (score > 0.5) * 1, rng.integers(1, 5, 600), {"sex": sex}
    results: list[Report] = [
        lh.audit(label, sensitive_features=groups, scores=score, threshold=[0.5, 0.6],
                 costs={"false_positive": 1, "false_negative": 9}, time=month, along={"age": rng.random(600)},
                 replicates=100),
        lh.audit(label, decided, sensitive_features=groups, against=stratum, replicates=100,
                 control_features={"dep": stratum}, metrics={"own": lambda y, p: float(np.sum(y == p))}),
        lh.audit(None, decided, sensitive_features=groups, favourable=1, replicates=100),
        lh.audit(None, scores=score, sensitive_features=groups, top="10%"),
        explain_columns(label, score, sensitive_features=groups, replicates=100),
        audit_unrecorded(label, decided, shares={"women": 0.5}),
    ]  # fmt: skip
    asked: set[str] = set()
    for result in results:
        for name in {one[2] for one in result.figures()}:
            said = refusal(result, f"{name} > 5")
            assert said in ("", f"'{name} > 5': {name} is a fraction, at most 1. For 5 points write 5%.")
            asked |= set() if said else {name}
    assert asked == NO_FRACTIONS


def test_bounds_are_asked_by_their_ends() -> None:
    def answers(low: float, high: float, *texts: str) -> list[str]:
        bounds = Estimate(math.nan, low, high, 100, "bounds: the gap can lie anywhere between them")
        found = Result(("sex", Pair("a", "b"), "gap_bounds", bounds))
        return [one.answer for one in check(found, [Condition.parse("gap_bounds" + text) for text in texts]).checks]

    asked = (" > 0.05", " <= 0.5", ".high > 0.25", ".low < -0.05", ".value > 0.05", " > 0", " < -0.1")
    assert answers(-0.3, -0.2, *asked) == ["yes", "yes", "yes", "yes", "undecided", "yes", "yes"]
    assert answers(-0.02, 0.4, *asked) == ["undecided", "yes", "yes", "no", "undecided", "undecided", "no"]
    assert answers(math.nan, math.nan, *asked) == ["undecided"] * 7
    bounds = Estimate(math.nan, -0.3, -0.2, 100, "bounds: the gap can lie anywhere between them")
    gate = check(Result(("sex", Pair("a", "b"), "gap_bounds", bounds)), [Condition.parse("gap_bounds > 0.1")])
    assert gate.exit_code == 1
    assert gate.sentences()[0] == (
        "gap_bounds > 0.1 holds: sex, group 'a minus b': gap_bounds lies between -0.3 and -0.2."
    )


def test_one_that_holds_outweighs_what_is_undecided() -> None:
    asked = [Condition.parse("selection_ratio < 0.8")]
    no, undecided, yes = ratio(0.9, 0.85, 0.95), ratio(0.8, 0.7, 0.9, "c"), ratio(0.5, 0.4, 0.6, "d", "sex")
    assert [check(Result(*some), asked).exit_code for some in ([no], [no, undecided], [undecided, yes, no])] == [
        0,
        3,
        1,
    ]
    assert check(Result(no, undecided, yes), asked).sentences() == [
        "selection_ratio < 0.8 is undecided: race, group 'c': selection_ratio 0.8 [0.7, 0.9].",
        "selection_ratio < 0.8 holds: sex, group 'd': selection_ratio 0.5 [0.4, 0.6].",
        "--fail-if: 1 true, 1 undecided, 1 false.",
    ]


def test_the_mean_of_two_gaps_is_told_from_the_gap_that_an_audit_shows() -> None:
    gap = Result(("race", None, "equalized_odds", Estimate(0.1, 0.05, 0.15, 100, None)))
    said = check(gap, [Condition.parse("equalized_odds > 0.2")]).sentences()
    assert said[:-1] == ["equalized_odds is the mean of two gaps; an audit shows the larger one, equalized_odds_worst."]


@pytest.mark.parametrize(("group", "name"), [(Pair("a", "b"), "area"), ("a", "difference")])
def test_a_limit_on_a_difference_is_one_on_its_size_because_the_audit_chooses_its_order(group: Key, name: str) -> None:
    def answers(low: float, high: float, *texts: str) -> list[str]:
        found = Result(("sex", group, name, Estimate((low + high) / 2, low, high, 100)))
        return [one.answer for one in check(found, [Condition.parse(name + text) for text in texts]).checks]

    asked = (" > 0.05", " <= 0.05", ".low > 0.05", " > 0", " < -0.05")
    assert answers(-0.3, -0.2, *asked) == ["yes", "no", "yes", "yes", "yes"]
    assert answers(0.2, 0.3, *asked) == ["yes", "no", "yes", "yes", "no"]
    assert answers(-0.3, 0.1, *asked) == ["undecided", "undecided", "no", "undecided", "undecided"]
    assert answers(-0.02, 0.01, *asked) == ["no", "yes", "no", "undecided", "no"]


def test_a_pair_that_is_not_named_breaks_no_limit() -> None:
    """Six large groups have 15 decided pairs, more than are named; the small one's interval goes beyond the limit."""
    rng, rates = np.random.default_rng(0), {"a": 0.25, "b": 0.3, "c": 0.35, "d": 0.4, "e": 0.45, "f": 0.5, "x": 0.37}
    group = np.concatenate([np.full(80 if name == "x" else 40_000, name) for name in rates])
    label, stratum = rng.integers(0, 2, len(group)), rng.integers(0, 2, len(group))
    decided = (rng.random(len(group)) < np.vectorize(rates.get)(group)).astype(int)
    found = lh.audit(label, decided, sensitive_features=group, control_features={"k": stratum}, replicates=100)
    for figure in ("true_positive_rate_difference", "selection_rate_difference_within_levels"):
        gate = check(found, [Condition.parse(f"{figure} > 0.28")])
        assert (gate.answer, len(gate.checks) <= 11) == ("undecided", True)


def test_an_audit_is_a_test_in_one_line() -> None:
    labels, predictions, groups = [1, 0] * 50, [1, 0, 1, 1] * 25, ["a", "a", "b", "b"] * 25
    result = lh.audit(labels, predictions, sensitive_features={"sex": groups})
    result.require("true_positive_rate > 0.8")
    result.require("sex: equal_opportunity.value < 0.05")
    with pytest.raises(
        AssertionError, match=r"^false_positive_rate < 0.5 does not hold: sex, group 'b': false_posi.*\]$"
    ):
        result.require("false_positive_rate < 0.5")
    with pytest.raises(AssertionError, match=r"demographic_parity <= 0\.4 is undecided: sex: demographic_parity 0\.5"):
        result.require("demographic_parity <= 0.4")
    result.require("demographic_parity <= 0.4", allow_undecided=True)
