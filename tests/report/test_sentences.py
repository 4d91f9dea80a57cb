from __future__ import annotations

import math

import pytest

from levelhead.report.sentences import (
    Difference,
    comparison_sentence,
    difference_sentence,
    gap_sentence,
    one_run_sentence,
    several_sentence,
)
from levelhead.report.text import interval, number, short, visible
from levelhead.types import Estimate

UNDECIDED = Difference("DAM", Estimate(0.007, -0.018, 0.031, 1544), 1.0)
SMALLER = Difference("DAM", Estimate(-0.021, -0.035, -0.007, 1544), 0.01)
LARGER = Difference("jtt", Estimate(0.042, 0.012, 0.072, 1544), 0.02)
UNDEFINED = Difference("DAM", Estimate.undefined("no rows with label 'b' in group 'x'"), math.nan)


def test_an_undecided_difference() -> None:
    assert difference_sentence(UNDECIDED, "ERM") == (
        "DAM’s measured gap in equalized odds is 0.7 points larger than ERM’s, interval [−1.8, +3.1]: "
        "the difference is not distinguishable from zero."
    )


def test_a_decided_difference_of_either_sign() -> None:
    assert difference_sentence(SMALLER, "ERM") == (
        "DAM’s measured gap in equalized odds is 2.1 points smaller than ERM’s, interval [−3.5, −0.7]: "
        "the difference is distinguishable from zero."
    )
    sentence = difference_sentence(LARGER, "ERM")
    assert (
        "4.2 points larger than ERM’s, interval [+1.2, +7.2]: the difference is distinguishable from zero." in sentence
    )


def test_holm_decides_too_not_the_interval_alone() -> None:
    adjusted = Difference("DAM", SMALLER.estimate, 0.3)
    assert difference_sentence(adjusted, "ERM").endswith("the difference is not distinguishable from zero.")
    by_interval_alone = Difference("DAM", Estimate(-0.021, -0.04, 0.001, 9), 0.04)
    assert not by_interval_alone.decided


def test_a_difference_below_the_margin_is_said_to_be_so() -> None:
    equal = Difference("DAM", Estimate(0.001, -0.012, 0.014, 1544), 1.0, p_within=0.01)
    assert difference_sentence(equal, "ERM").endswith("interval [−1.2, +1.4]: the two are equal within 2.0 points.")
    small = Difference("DAM", Estimate(-0.01, -0.015, -0.005, 1544), 0.001, p_within=0.001, margin=0.03)
    assert difference_sentence(small, "ERM").endswith("distinguishable from zero, and less than 3.0 points.")
    both = comparison_sentence([equal, UNDECIDED], "ERM")
    assert both.endswith(" 1 of them has one within 2.0 points of ERM’s.")
    assert comparison_sentence([equal, equal], "ERM").endswith(" All have one within 2.0 points of ERM’s.")
    one_seed = Difference("DAM", Estimate(0.001, -0.012, 0.014, 1544, "one seed"), 1.0, p_within=0.01)
    assert not one_seed.within


def test_an_undefined_difference_says_why_and_is_never_zero() -> None:
    sentence = difference_sentence(UNDEFINED, "ERM")
    assert sentence.endswith("it is undefined, because no rows with label 'b' in group 'x'.")
    assert "0.0" not in sentence
    assert not UNDEFINED.decided


def test_one_seed_is_undecided_whatever_its_interval() -> None:
    reason = "one seed: its variance over seeds is unknown and not in the interval"
    alone = Difference("DAM", Estimate(-0.05, -0.07, -0.03, 100, reason), 0.001)
    assert not alone.decided
    assert difference_sentence(alone, "ERM").endswith(f"interval [−7.0, −3.0]: undecided, {reason}.")


def test_the_same_predictions_and_tiny_differences() -> None:
    assert "is the same as ERM’s" in difference_sentence(Difference("DAM", Estimate(0.0, 0.0, 0.0, 9), 1.0), "ERM")
    tiny = difference_sentence(Difference("DAM", Estimate(-0.0002, -0.01, 0.01, 9), 1.0), "ERM")
    assert "within 0.05 points of ERM’s, interval [−1.0, +1.0]" in tiny


def test_accuracy_is_higher_or_lower_and_odd_names_are_quoted() -> None:
    sentence = difference_sentence(Difference("ERM, 11 layers", Estimate(0.01, -0.01, 0.03, 9), 1.0), "ERM", "accuracy")
    assert sentence.startswith("“ERM, 11 layers”’s accuracy is 1.0 points higher than ERM’s")


def test_a_comparison_of_one_method_is_its_sentence() -> None:
    assert comparison_sentence([UNDECIDED], "ERM") == difference_sentence(UNDECIDED, "ERM")
    assert comparison_sentence([], "ERM").startswith("There is nothing to compare ERM with")


def test_a_comparison_of_many() -> None:
    second = Difference("jtt", Estimate(-0.02, -0.05, 0.02, 9), 1.0)
    assert comparison_sentence([UNDECIDED, second], "ERM") == (
        "None of the 2 alternatives to ERM has a measured gap in equalized odds that these data can distinguish from "
        "ERM’s: differences run from −2.0 to +0.7 points, their intervals from −5.0 to +3.1."
    )
    assert comparison_sentence([SMALLER, LARGER, UNDEFINED], "ERM") == (
        "2 of the 3 alternatives to ERM have a measured gap in equalized odds that these data distinguish from ERM’s: "
        "DAM (2.1 points smaller, interval [−3.5, −0.7]) and jtt (4.2 points larger, interval [+1.2, +7.2]). "
        "For 1 of them it is undefined."
    )
    assert "undefined for every method, because no rows" in comparison_sentence([UNDEFINED, UNDEFINED], "ERM")
    assert " and 2 more." in comparison_sentence([SMALLER] * 5, "ERM")


def test_several_comparisons() -> None:
    assert several_sentence([("a", [UNDECIDED]), ("a", [UNDECIDED])], "erm").startswith("In none of 2 comparisons can")
    assert several_sentence([("a", [UNDECIDED]), ("b", [SMALLER])], "erm").endswith("apart from erm’s: b.")
    assert several_sentence([("a", [UNDECIDED]), ("b", [SMALLER])], "").endswith("apart from its baseline’s: b.")
    assert "undefined in all of 1 comparison" in several_sentence([("a", [UNDEFINED])], "erm")


def test_the_gap_of_one_set_of_predictions() -> None:
    shown = gap_sentence(Estimate(0.072, 0.023, 0.112, 100), "white")
    assert shown == (
        "The measured gap in equalized odds between groups of “white” is 7.2 points, interval [2.3, 11.2]: "
        "these rows show a gap."
    )
    assert gap_sentence(Estimate(0.02, 0.0, 0.051, 9), "g").endswith("these rows cannot tell whether there is a gap.")
    assert gap_sentence(Estimate(0.02, 0.0, 0.05, 9), "g").endswith("interval [0.0, 5.0]: at most 5.0 points.")
    assert gap_sentence(Estimate.undefined("there is one group only"), "g").endswith(
        "is undefined: there is one group only."
    )


def test_one_run_names_what_it_leaves_out() -> None:
    assert one_run_sentence(Estimate(0.02, 0.0, 0.05, 9), "g").endswith("over training seeds is not in it.")
    assert one_run_sentence(Estimate.undefined("no groups"), "g").endswith("undefined: no groups.")


@pytest.mark.parametrize(("value", "text"), [(-0.04, "0.0"), (-0.06, "−0.1"), (12.345, "12.3"), (0.0, "0.0")], ids=str)
def test_numbers_have_a_true_minus_and_no_minus_zero(value: float, text: str) -> None:
    assert number(value) == text


def test_names_are_shortened_and_cannot_turn_text_around() -> None:
    assert interval(math.nan, 1.0) == ""
    assert len(short("x" * 10_000)) == 80
    assert visible("a\u202egnp.exe\x00\n") == "a\\u202egnp.exe\\x00 "
    assert visible("👩‍👩‍👧 é عربي") == "👩‍👩‍👧 é عربي"


def test_a_difference_without_an_interval_is_not_decided() -> None:
    assert LARGER.decided
    assert not Difference("jtt", Estimate(0.042, math.nan, math.nan, 1544), 0.02).decided
