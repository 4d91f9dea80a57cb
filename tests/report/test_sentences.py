from __future__ import annotations

import math
import re
from dataclasses import replace

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
        "DAM did not measurably change the gap in equalized odds relative to ERM: +0.7 points, interval [−1.8, +3.1]; "
        "inconclusive."
    )


def test_a_decided_difference_of_either_sign() -> None:
    assert difference_sentence(SMALLER, "ERM") == (
        "DAM reduced the gap in equalized odds by 2.1 points relative to ERM, interval [−3.5, −0.7]."
    )
    sentence = difference_sentence(LARGER, "ERM")
    assert sentence.startswith("jtt increased the gap in equalized odds by 4.2 points relative to ERM, interval [+1.2")


def test_holm_decides_too_not_the_interval_alone() -> None:
    adjusted = Difference("DAM", SMALLER.estimate, 0.3)
    assert difference_sentence(adjusted, "ERM") == (
        "Whether DAM reduced the gap in equalized odds relative to ERM is inconclusive: −2.1 points, interval "
        "[−3.5, −0.7], but p = 0.300 after correction for the number of methods."
    )
    by_interval_alone = Difference("DAM", Estimate(-0.021, -0.04, 0.001, 9), 0.04)
    assert not by_interval_alone.decided


def test_a_difference_below_the_margin_is_said_to_be_so() -> None:
    equal = Difference("DAM", Estimate(0.001, -0.012, 0.014, 1544), 1.0, p_within=0.01)
    assert difference_sentence(equal, "ERM").startswith(
        "DAM and ERM have an equivalent gap in equalized odds (within 2.0 points): +0.1 points, "
    )
    small = Difference("DAM", Estimate(-0.01, -0.015, -0.005, 1544), 0.001, p_within=0.001, margin=0.03)
    assert difference_sentence(small, "ERM").endswith(
        "interval [−1.5, −0.5], which is less than the margin of 3.0 points."
    )
    both = comparison_sentence([equal, UNDECIDED], "ERM")
    assert both.endswith(" 1 of 2 is equivalent to ERM within 2.0 points.")
    assert comparison_sentence([equal, equal], "ERM").endswith(" All are equivalent to ERM within 2.0 points.")
    one_seed = Difference("DAM", Estimate(0.001, -0.012, 0.014, 1544, "one seed"), 1.0, p_within=0.01)
    assert not one_seed.within


def test_no_interval_is_written_where_every_draw_gives_the_same_change() -> None:
    same = Difference("DAM", Estimate(0.0, math.nan, math.nan, 9, "no interval: every draw of the rows gives it"), 1.0)
    assert difference_sentence(same, "ERM") == (
        "DAM and ERM have the same gap in equalized odds on these data; no interval: every draw of the rows gives it."
    )
    other = replace(same, estimate=replace(same.estimate, value=0.1))
    assert "+10.0 points; inconclusive (no interval" in difference_sentence(other, "ERM")
    assert comparison_sentence([same, same], "ERM") == "2 of 2 methods have the same gap in equalized odds as ERM."
    assert comparison_sentence([same, other], "ERM").endswith("from 0.0 to +10.0 points, without intervals.")
    both = comparison_sentence([same, UNDECIDED], "ERM")
    assert "with intervals from" in both
    assert "nan" not in both


def test_an_undefined_difference_says_why_and_is_never_zero() -> None:
    sentence = difference_sentence(UNDEFINED, "ERM")
    assert sentence.endswith("is undefined: no rows with label 'b' in group 'x'.")
    assert "0.0" not in sentence
    assert not UNDEFINED.decided


def test_one_seed_is_undecided_whatever_its_interval() -> None:
    reason = "one seed: its variance over seeds is unknown and not in the interval"
    alone = Difference("DAM", Estimate(-0.05, -0.07, -0.03, 100, reason), 0.001)
    assert not alone.decided
    said = "on one seed, interval [−7.0, −3.0] over these rows alone; other seeds may differ."
    assert difference_sentence(alone, "ERM") == (
        f"DAM reduced the gap in equalized odds by 5.0 points relative to ERM {said}"
    )
    wide = Difference("KD", Estimate(-0.05, -0.11, 0.01, 100, reason), 0.1)
    assert difference_sentence(wide, "ERM").endswith(f"interval [−11.0, +1.0]; inconclusive ({reason}).")
    both = comparison_sentence([alone, wide], "ERM")
    assert both.startswith("On one seed, DAM (−5.0 points, interval [−7.0, −3.0]) reduced the gap in equalized odds ")
    assert both.endswith("relative to ERM; 1 of 2 did not change it measurably; other seeds may differ.")
    after_holm = replace(alone, p=0.2)
    assert not after_holm.on_one_seed


def test_the_same_predictions_and_tiny_differences() -> None:
    assert "DAM and ERM have the same gap" in difference_sentence(
        Difference("DAM", Estimate(0.0, 0.0, 0.0, 9), 1.0), "ERM"
    )
    tiny = difference_sentence(Difference("DAM", Estimate(-0.0002, -0.01, 0.01, 9), 1.0), "ERM")
    assert "relative to ERM: 0.0 points, interval [−1.0, +1.0]; inconclusive." in tiny


def test_accuracy_is_raised_or_lowered_and_odd_names_are_quoted() -> None:
    sentence = difference_sentence(Difference("ERM, 11 layers", Estimate(0.01, -0.01, 0.03, 9), 1.0), "ERM", "accuracy")
    assert sentence.startswith("“ERM, 11 layers” did not measurably change accuracy relative to ERM: +1.0 points")


def test_a_comparison_of_one_method_is_its_sentence() -> None:
    assert comparison_sentence([UNDECIDED], "ERM") == difference_sentence(UNDECIDED, "ERM")
    assert comparison_sentence([], "ERM").startswith("There is nothing to compare ERM with")


def test_a_comparison_of_many() -> None:
    second = Difference("jtt", Estimate(-0.02, -0.05, 0.02, 9), 1.0)
    assert comparison_sentence([UNDECIDED, second], "ERM") == (
        "None of the 2 methods measurably changed the gap in equalized odds relative to ERM: changes from −2.0 to "
        "+0.7 points, with intervals from −5.0 to +3.1."
    )
    assert comparison_sentence([SMALLER, LARGER, UNDEFINED], "ERM") == (
        "DAM (−2.1 points, interval [−3.5, −0.7]) reduced the gap in equalized odds relative to ERM; jtt (+4.2 points, "
        "interval [+1.2, +7.2]) increased it. For 1 it is undefined."
    )
    assert "undefined for every method: no rows" in comparison_sentence([UNDEFINED, UNDEFINED], "ERM")
    assert " and 2 more reduced the gap" in comparison_sentence([SMALLER] * 5, "ERM")


def test_several_comparisons() -> None:
    none = several_sentence([("a", [UNDECIDED]), ("a", [UNDECIDED])], "erm")
    assert none.startswith("No method measurably changed the gap in equalized odds relative to erm in any of 2 comp")
    jtt = Difference("jtt", SMALLER.estimate, 0.01)
    both = [("a", [UNDECIDED, jtt]), ("b", [UNDECIDED, jtt]), ("c", [UNDECIDED, LARGER])]
    assert several_sentence(both, "erm") == (
        "jtt reduced the gap in equalized odds relative to erm in 2 of 3 comparisons; jtt increased it in 1 of 3; DAM "
        "did not change it measurably in any."
    )
    assert several_sentence(both[:2], "").startswith("jtt reduced the gap in equalized odds in 2 of 2 comparisons; ")
    assert "undefined in all of 1 comparison" in several_sentence([("a", [UNDEFINED])], "erm")


def test_the_gap_of_one_set_of_predictions() -> None:
    shown = gap_sentence(Estimate(0.072, 0.023, 0.112, 100), "white")
    assert shown == (
        "The measured gap in equalized odds between groups of “white” is 7.2 percentage points, interval [2.3, 11.2]."
    )
    assert gap_sentence(Estimate(0.02, 0.0, 0.051, 9), "g").endswith(
        "; inconclusive: anything from no gap to 5.1 points."
    )
    assert gap_sentence(Estimate(0.02, 0.0, 0.05, 9), "g").endswith("interval [0.0, 5.0]: at most 5.0 points.")
    assert gap_sentence(Estimate.undefined("there is one group only"), "g").endswith(
        "is undefined: there is one group only."
    )


def test_one_run_names_what_it_leaves_out() -> None:
    assert one_run_sentence(Estimate(0.02, 0.0, 0.05, 9), "g").endswith(
        "the interval does not cover variation between training seeds."
    )
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


def test_a_baseline_that_did_not_learn_is_the_first_sentence_and_decides_nothing() -> None:
    larger = Difference("dam", Estimate(0.496, 0.4, 0.6, 99), 0.001, learned=False)
    smaller = Difference("jtt", Estimate(-0.2, -0.3, -0.1, 99), 0.001, learned=False)
    assert not any((larger.decided, larger.on_one_seed, larger.uncorrected))
    for differences in ([larger], [larger, smaller]):
        said = comparison_sentence(differences, "erm")
        assert said.startswith("erm did not learn: ")
        assert "train.epochs" in said
        assert not re.search(r"reduced|increased|49\.6", said)
    learned = Difference("dam", SMALLER.estimate, 0.01)
    assert several_sentence([("a", [larger]), ("b", [learned])], "erm").endswith(
        "dam reduced the gap in equalized odds relative to erm in 1 of 2 comparisons. In 1 of 2 comparisons the "
        "baseline did not learn: raise train.epochs there."
    )
    assert several_sentence([("a", [larger])] * 2, "erm").startswith("In all of 2 comparisons the baseline did not ")


def test_a_smaller_gap_with_lower_accuracy_says_both_in_one_sentence() -> None:
    afr = Difference("afr", Estimate(-0.146, -0.2, -0.1, 99), 0.01, accuracy=Estimate(-0.077, -0.09, -0.06, 99))
    assert difference_sentence(afr, "erm").endswith("[−20.0, −10.0], and lowered accuracy by 7.7 points.")
    alone = replace(afr, estimate=replace(afr.estimate, reason="one seed: unknown"))
    assert "over these rows alone, and lowered accuracy by 7.7 points; other" in difference_sentence(alone, "erm")
    assert comparison_sentence([afr, UNDECIDED], "erm").startswith(
        "afr (−14.6 points, interval [−20.0, −10.0], accuracy −7.7) reduced the gap"
    )
    assert " and 2 more (2 at lower accuracy) reduced the gap" in comparison_sentence([afr] * 5, "erm")
    assert several_sentence([("a", [afr]), ("b", [UNDECIDED])], "erm").endswith("; afr lowered accuracy with it.")


def test_an_interval_without_0_that_the_correction_undoes_establishes_nothing() -> None:
    jtt = Difference("JTT", Estimate(-0.515, -0.985, -0.085, 99), 0.063)
    other = Difference("dam", Estimate(-0.5, -1.0, 0.1, 99), 0.2)
    assert comparison_sentence([jtt, other], "erm") == (
        "No reduction of the gap in equalized odds relative to erm is established: JTT −51.5 points, interval [−98.5, "
        "−8.5], p = 0.063 after correction for 2 methods."
    )
    several = several_sentence([("a", [jtt, other]), ("b", [other, other])], "erm")
    assert several.startswith("No reduction of the gap in equalized odds relative to erm in any of 2 comparisons is ")
    assert "p = 0.063 after correction for 2 methods" in several
