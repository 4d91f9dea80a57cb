"""A group is left out of a gap when the rate that the gap compares is based on few of its rows, and is named."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.auditing.door import audit
from levelhead.auditing.result import AuditResult

A, B = [[80, 20], [30, 70]], [[70, 30], [20, 80]]
NAMES = ("no", "yes")


def audited(tables: dict[str, list[list[int]]], min_count: int = 10, names: tuple[str, ...] = NAMES) -> AuditResult:
    """Audit rows that make these tables of labels by predictions, by group."""
    cells = [
        ((names[label], names[predicted], group), count)
        for group, table in tables.items()
        for label, line in enumerate(table)
        for predicted, count in enumerate(line)
    ]
    label, predicted, group = np.repeat([cell for cell, _ in cells], [count for _, count in cells], axis=0).T
    return audit(label, predicted, sensitive_features=group, min_count=min_count, replicates=100)


def test_a_group_with_many_rows_and_three_positives_is_left_out_of_equal_opportunity() -> None:
    result = audited({"a": A, "b": B, "c": [[1900, 97], [3, 0]]})
    assert result.metrics["equal_opportunity"].value == pytest.approx(0.1)  # not 0.8: no positive of c was found
    assert result.metrics["equal_opportunity"].n == 200
    assert result.metrics["equalized_odds"].value == pytest.approx(0.1)
    assert result.metrics["demographic_parity"].value == pytest.approx(0.55 - 97 / 2000)  # c stays in
    assert result.metrics["worst_group_accuracy"].value == pytest.approx(0.7)
    (said,) = result.warnings
    assert "has 3 rows with label “yes”, fewer than 10, and is left out of equal opportunity and equalized odds" in said
    figures = result.groups["c"]
    assert figures.included
    assert figures.left_out == ("equal_opportunity", "equalized_odds", "equalized_odds_worst")
    assert figures.rates["true_positive_rate"].n == 3
    assert result.to_dict()["groups"]["c"]["left_out"] == list(figures.left_out)
    assert result.groups["a"].left_out == ()
    assert "has 3 rows with label" in result.to_html()
    # One negative leaves it out of equalized odds alone: its half of the positives counts.
    result = audited({"a": A, "b": B, "c": [[0, 1], [500, 500]]})
    assert result.metrics["equal_opportunity"].value == pytest.approx(0.3)
    assert result.metrics["equalized_odds"].value == pytest.approx(0.1)
    assert result.groups["c"].left_out == ("equalized_odds", "equalized_odds_worst")
    (said,) = result.warnings
    assert "has 1 row with label “no”, fewer than 10, and is left out of equalized odds and of the worst" in said


def test_of_several_classes_a_group_is_left_out_of_those_that_it_lacks() -> None:
    even = [[20, 5, 5], [5, 20, 5], [5, 5, 20]]
    result = audited({"a": even, "b": even, "c": [[20, 5, 5], [5, 20, 5], [1, 1, 0]]}, names=("x", "y", "z"))
    assert result.metrics["equal_opportunity"].value == pytest.approx(0)
    assert result.groups["c"].left_out == ("equal_opportunity[z]", "equalized_odds[z]", "equalized_odds_worst[z]")
    # Of the other classes, c's false alarms are 5 + 1 of 32 rows instead of 5 + 5 of 60.
    assert result.metrics["equalized_odds_worst"].value == pytest.approx(6 / 32 - 10 / 60)
    assert result.by_attribute["group"].worst_class["equalized_odds_worst"] in ("x", "y")


def test_with_too_few_rows_everywhere_a_gap_is_undefined_and_the_rows_are_named() -> None:
    result = audited({"a": A, "b": [[70, 30], [2, 3]]})
    figure = result.metrics["equal_opportunity"]
    assert not figure.defined
    assert "10 rows with label “yes” (rows by group: a: 100, b: 5)" in figure.reason
    assert result.metrics["demographic_parity"].defined


def test_a_group_with_few_rows_is_in_no_gap() -> None:
    tables = {"a": A, "b": B, "c": [[0, 4], [0, 4]]}
    result, everyone = audited(tables), audited(tables, min_count=4)
    assert not result.groups["c"].included
    (said,) = [text for text in result.warnings if "“c”" in text]
    assert said.endswith("has 8 rows, fewer than 10, and is left out of the gaps.")
    assert everyone.groups["c"].left_out == ()
    assert everyone.metrics["equalized_odds"].value > result.metrics["equalized_odds"].value
