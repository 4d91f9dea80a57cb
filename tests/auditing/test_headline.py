"""What an audit says first, in exact sentences: who differs, in which direction, and what must be known before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import levelhead as lh

Tables = dict[str, list[list[int]]]


def rows_of(tables: Tables, names: tuple[str, ...] = ("<=50K", ">50K")) -> tuple[list[str], list[str], list[str]]:
    """Rows that make these tables (labels by predictions) of groups."""
    rows = [
        (names[label], names[predicted], group)
        for group, table in tables.items()
        for label, line in enumerate(table)
        for predicted, count in enumerate(line)
        for _ in range(count)
    ]
    label, predicted, group = zip(*rows, strict=True)
    return list(label), list(predicted), list(group)


def audited(tables: Tables, **options: Any) -> lh.AuditResult:
    label, predicted, group = rows_of(tables)
    return lh.audit(label, predicted, sensitive_features={"sex": group}, **{"replicates": 100, **options})


def said(tables: Tables, **options: Any) -> list[str]:
    return list(audited(tables, **options).to_dict()["sentences"])


# 495 of 1,000 and 1,848 of 3,000 positives are found; false positives are alike.
ADULT: Tables = {"women": [[8820, 180], [505, 495]], "men": [[8820, 180], [1152, 1848]]}


CONSTANT: Tables = {"women": [[9000, 0], [1000, 0]], "men": [[9000, 0], [3000, 0]]}
CHANCE: Tables = {"women": [[500, 500], [252, 248]], "men": [[1000, 1000], [500, 500]]}
SWAPPED: Tables = {"women": [[100, 900], [400, 100]], "men": [[200, 1800], [800, 200]]}
FALSE: Tables = {"women": [[950, 50], [200, 800]], "men": [[700, 300], [200, 800]]}
NARROW: Tables = {"women": [[9000, 1000], [3000, 7000]], "men": [[9010, 990], [3000, 7000]]}
WIDE: Tables = {"women": [[20, 10], [10, 20]], "men": [[20, 10], [12, 18]]}
SAME: Tables = {"women": [[20, 10], [10, 20]], "men": [[20, 10], [10, 20]]}
THREE: Tables = {name: [[9000, 1000], [3000, 7000]] for name in ("women", "men", "others")}


@pytest.mark.parametrize(
    ("tables", "options", "first"),
    [
        (ADULT, {}, "label “>50K”, the model predicts “>50K” for 49.5% of women and 61.6% of men: 12.1 points lower"),
        (ADULT, {"reference": "women"}, "61.6% of men and 49.5% of women: 12.1 points higher, interval 8.0 to 16.2"),
        (FALSE, {}, "“<=50K”, the model predicts “>50K” for 30.0% of men and 5.0% of women: 25.0 points higher"),
        (CONSTANT, {}, "The model predicts “<=50K” for every row, so its gaps of 0 say nothing."),
        (CHANCE, {}, "is not measurably better than chance: balanced accuracy 49.9%, interval 48.4 to 51.5"),
        (SWAPPED, {}, "is worse than chance: balanced accuracy 15.0%, interval 13.9 to 16.2"),
        (NARROW, {}, "predicts “>50K” for 10.0% of women and 9.9% of men: a gap of at most 1.5 points."),
        (WIDE, {}, "66.7% of women: 6.7 points lower, interval −20.5 to 32.8; inconclusive."),
        (SAME, {}, "no measured difference, interval −"),
        (THREE, {}, "no two groups differ by more than"),
    ],
)  # fmt: skip
def test_the_first_sentence(tables: Tables, options: dict[str, Any], first: str) -> None:
    """The pair, the direction and both rates; and what must be known of a model before any gap."""
    assert first in said(tables, **options)[0]


def test_the_largest_gap_that_is_shown_goes_before_a_larger_one_that_is_not() -> None:
    label, predicted, sex = rows_of(ADULT)
    kind = np.full(len(label), "usual")
    positives = np.flatnonzero(np.array(label) == ">50K")
    found = np.array(predicted)[positives] == ">50K"
    kind[positives[found][:8]] = kind[positives[~found][:12]] = "rare"  # 40% of 20, beside 58.6%
    result = lh.audit(label, predicted, sensitive_features={"kind": kind, "sex": sex}, replicates=100)
    pairs = result.more["pairs"]
    largest = max(pairs, key=lambda pair: abs(pair["difference"]["value"]))
    assert largest["attribute"] == "kind", "the case is not what it is meant to be"
    assert result.more["finding"]["pair"]["attribute"] == "sex"


def test_a_tiny_group_beside_a_big_one_is_named_only_if_an_exact_test_agrees() -> None:
    """5 of 59 beside 284 of 13,328 false positives: Fisher's p is .0088, which 15 comparisons make .13."""
    tables: Tables = {"big": [[13_044, 284], [134, 538]], "t0": [[54, 5], [1, 0]]}
    tables |= {f"t{place}": [[57, 1], [1, 1]] for place in range(1, 5)}
    assert 15 * stats.fisher_exact([[5, 54], [284, 13_044]]).pvalue > 0.05
    result = audited(tables)
    of_big = [pair for pair in result.more["pairs"] if "big" in (pair["first"]["group"], pair["second"]["group"])]
    largest = max(of_big, key=lambda pair: abs(pair["difference"]["value"]))
    assert {largest["first"]["group"], largest["second"]["group"]} == {"big", "t0"}
    assert largest["difference"]["low"] <= 0
    assert "; inconclusive." in result.to_dict()["sentences"][0]


def test_with_a_reference_only_its_pairs_are_named() -> None:
    tables = ADULT | {"others": [[900, 100], [60, 40]]}
    every, one = (audited(tables, reference=reference).more for reference in (None, "men"))
    assert (every["finding"]["comparisons"], one["finding"]["comparisons"]) == (6, 4)
    assert {pair["second"]["group"] for pair in one["pairs"]} == {"men"}


# ------------------------------------------------------------------------------------------ the misleading cases


def test_missing_groups_are_reported_with_their_share_and_left_out() -> None:
    label, predicted, group = rows_of(ADULT | {"": [[50, 150], [600, 353]]})
    missing, options = {"sex": [one or None for one in group]}, {"replicates": 100}
    result = lh.audit(label, predicted, sensitive_features=missing, **options)
    (told,) = result.warnings
    assert told.startswith("sex: 1,153 of 23,153 rows (5.0%) have no group and are left out of the gaps; ")
    without = audited(ADULT)
    assert result.metrics["equalized_odds"] == without.metrics["equalized_odds"]
    assert result.more["finding"]["pair"] == without.more["finding"]["pair"]
    assert (result.groups["(missing)"].n, result.groups["(missing)"].included) == (1153, False)
    assert result.more["missing"][0]["share"] == pytest.approx(0.0498, abs=1e-4)
    assert "5.0%" in result.to_html()
    compared = lh.audit(label, predicted, sensitive_features=missing, missing="group", **options)
    (told,) = compared.warnings
    assert told.endswith(" and are compared as the group (missing).")
    assert compared.metrics["demographic_parity"].value > result.metrics["demographic_parity"].value
    assert compared.groups["(missing)"].included


def test_tiny_cells_are_named_and_decide_nothing() -> None:
    result = audited({"women": [[60, 20], [3, 0]], "men": [[60, 20], [20, 60]]})
    told = result.warnings[-1]
    assert told.startswith("sex: group “women” has 3 rows with label “>50K”, fewer than 10, and is left out of equal ")
    assert told.endswith(" and of the worst (group, label) accuracy.")
    assert {pair["rate"] for pair in result.more["pairs"]} == {"false_positive_rate"}
    assert said({"f": [[1, 0], [0, 2]], "m": [[2, 0], [0, 1]]})[0].startswith("No two groups can be compared")
    assert said({"f": [[90, 10], [20, 80]]})[0] == "There is only one group, so no gap was measured."


def test_a_column_of_20_numbers_is_a_column_of_groups() -> None:
    assert lh.audit([0, 1] * 200, [0, 1] * 200, sensitive_features={"age": np.arange(400) % 20}, replicates=100)


# ------------------------------------------------------------------------------------------------ words and page


# ------------------------------------------------------------------------------------------------ label map


@pytest.mark.parametrize(
    ("tables", "answer"),
    [
        (FALSE, "excludes “no difference”"),
        (NARROW, "It could: these rows also fit"),
        (SWAPPED, "The interval of the balanced accuracy leaves out that of guesses"),
        (CHANCE, "It could: the interval of the balanced accuracy holds"),
    ],
)
def test_whether_it_could_be_chance_is_about_what_the_headline_says(tables: Tables, answer: str) -> None:
    page = audited(tables).page()
    assert answer in page["sure"][0]["answer"]
    assert "djusted" not in page["deck"] or "women" in "".join(one["text"] for one in page["headline"])


def test_the_lead_is_the_first_sentence_as_data() -> None:
    record = audited(ADULT).to_dict()
    lead, pair = record["lead"], record["finding"]["pair"]
    assert (lead["column"], lead["quantity"], lead["class"]) == ("sex", "true_positive_rate", ">50K")
    assert lead["groups"] == ["women", "men"]
    assert lead["difference"] == pair["difference"]
    assert lead["values"] == [pair[side]["value"] for side in ("first", "second")]
    assert (lead["neutral"], lead["decided"], lead["comparisons"]) == (0, True, 2)
    assert record["sentences"][0] == f"{lead['head']}: {lead['rest']}"
    ratio = audited(ADULT, favourable=">50K").to_dict()["lead"]
    assert (ratio["quantity"], ratio["neutral"], ratio["difference"]["value"] < 1) == ("selection_rate", 1, True)


def test_a_group_named_as_a_class_is_marked_where_the_group_stands() -> None:
    label, predicted, group = rows_of({"dog": FALSE["women"], "cat": FALSE["men"]}, ("cat", "dog"))
    page = lh.audit(label, predicted, sensitive_features=group, replicates=100).page()
    head = [(one["text"], bool(one["mark"])) for one in page["headline"]]
    assert head[0] == ("Among rows with label = cat, the model predicts dog for 30.0% of ", False)
    assert head[1:4] == [("cat", True), (" and 5.0% of ", False), ("dog", True)]
    assert page["brief"]["table"]["caption"].startswith("Groups: rates of dog"), "the column has no name of its own"


@pytest.mark.parametrize(("old", "first"), [([[600, 400], [200, 800]], "False"), ([[950, 50], [700, 300]], "True")])
def test_the_chart_of_two_models_begins_with_the_rate_whose_gap_the_headline_tells(
    old: list[list[int]], first: str
) -> None:
    """The old model's women are treated as its men but in one rate, whose gap goes."""
    tables: Tables = {"women": [[950, 50], [200, 800]], "men": [[950, 50], [200, 800]]}
    label, predicted, group = rows_of(tables)
    before = rows_of({"women": old, "men": tables["men"]})[1]
    page = lh.audit(label, predicted, against=before, sensitive_features=group, replicates=100).page()
    assert "the larger part of the equalized-odds gap changed from " in page["finding"]
    assert page["chart"][0]["panels"][0]["title"].startswith({"False": "Wrongly", "True": "Rightly"}[first])
