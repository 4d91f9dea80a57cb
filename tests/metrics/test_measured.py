"""Metrics as they are measured: worked tables, rows counted one by one, and fairlearn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score

from levelhead.metrics import Counts, estimate, estimate_all
from levelhead.metrics.contrasts import measured
from levelhead.metrics.group import Rate, cell_hits, classes_compared, false_positives, selection, true_positives

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds", "equalized_odds_worst")
# Group 0: TN 80 FP 20 FN 30 TP 70; group 1: TN 90 FP 10 FN 60 TP 40.
TABLE = np.array([[[80, 20], [30, 70]], [[90, 10], [60, 40]]])
THREE = np.array([[[8, 1, 1], [1, 7, 2], [0, 2, 8]], [[5, 3, 2], [2, 6, 2], [1, 1, 8]]])
LEVELS = ("accuracy", "balanced_accuracy", "worst_group_accuracy")


def rows_of(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return label, prediction and group of every row that is counted in (groups, classes, classes)."""
    group, label, prediction = np.repeat(list(np.ndindex(table.shape)), table.ravel(), axis=0).reshape(-1, 3).T
    return label, prediction, group


def share(right: np.ndarray) -> float:
    return float(right.mean()) if len(right) else math.nan


def by_rows(table: np.ndarray, k: int) -> tuple[list[list[float]], dict[str, float]]:
    """Selection, true and false positive rate of class ``k`` in each group, and its gaps; NaN spreads."""
    label, prediction, group = rows_of(table)
    rates = []
    for own in range(len(table)):
        chosen, positive = prediction[group == own] == k, label[group == own] == k
        rates.append([share(chosen), share(chosen[positive]), share(chosen[~positive])])
    apart = np.array([np.abs(np.subtract(a, b)) for a, b in itertools.combinations(rates, 2)])
    selected, found, alarms = apart.T
    each = (selected, found, (found + alarms) / 2, np.maximum(found, alarms))
    return rates, {name: float(one.max()) for name, one in zip(GAPS, each, strict=True)}


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_figures_of_stacked_tables_are_those_of_their_rows(data: st.DataObject) -> None:
    groups, classes = data.draw(st.tuples(st.integers(2, 4), st.integers(2, 3)))
    size = 2 * groups * classes**2
    tables = np.array(data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size)))
    tables = tables.reshape(2, groups, classes, classes)
    chosen = classes_compared(classes, None)
    found = {name: measured(tables, name) for name in (*LEVELS, *GAPS, *(f"{gap}_mean" for gap in GAPS))}
    rates = np.array([[count(tables, k).value[:, 0] for count in (selection, true_positives, false_positives)]
                      for k in range(classes)])  # fmt: skip
    for at, table in enumerate(tables):
        each = [by_rows(table, k) for k in range(classes)]
        for k, (own, gaps) in enumerate(each):
            np.testing.assert_allclose(rates[k, :, at].T, own)
            np.testing.assert_allclose([measured(table, gap, k) for gap in GAPS], list(gaps.values()))
        for gap in GAPS:
            of_classes = [each[k][1][gap] for k in chosen]
            np.testing.assert_allclose(found[gap][at], np.max(of_classes))
            np.testing.assert_allclose(found[f"{gap}_mean"][at], np.mean(of_classes))
        label, prediction, group = rows_of(table)
        cells = [share(prediction[(group == g) & (label == k)] == k) for g in range(groups) for k in range(classes)]
        np.testing.assert_allclose(cell_hits(table).value.ravel(), cells)
        np.testing.assert_allclose(found["worst_group_accuracy"][at], np.min(cells))
        if (table.sum((0, 2)) > 0).all():
            assert found["accuracy"][at] == pytest.approx(accuracy_score(label, prediction))
            assert found["balanced_accuracy"][at] == pytest.approx(balanced_accuracy_score(label, prediction))
        else:
            assert np.isnan(found["balanced_accuracy"][at])
        counts = Counts.from_rows(label, prediction, group) if len(label) else None
        if counts is not None and counts.table.shape == table.shape:
            np.testing.assert_array_equal(counts.table, table)


@settings(deadline=None, max_examples=10)
@given(st.lists(st.integers(1, 13), min_size=12, max_size=12), st.permutations(range(3)), st.integers(0, 1000))
def test_order_of_rows_and_names_of_groups_do_not_matter(cells: list[int], names: list[int], seed: int) -> None:
    label, prediction, group = rows_of(np.array(cells).reshape(3, 2, 2))
    order = np.random.default_rng(seed).permutation(len(label))
    first = estimate_all(Counts.from_rows(label, prediction, group), replicates=100)
    assert estimate_all(Counts.from_rows(label[order], prediction[order], group[order]), replicates=100) == first
    other = estimate_all(Counts.from_rows(label, prediction, np.array(names)[group]), replicates=100)
    assert {name: one.value for name, one in other.items()} == pytest.approx(
        {name: one.value for name, one in first.items()}
    )


def test_class_one_of_two_is_positive_and_each_class_of_three_in_turn() -> None:
    found = [classes_compared(*asked) for asked in ((2, None), (3, None), (1, None), (2, 0))]
    assert found == [[1], [0, 1, 2], [0], [0]]
    # Predictions may be counted whatever the label is: (..., groups, 1, classes).
    assert np.array_equal(selection(THREE.sum(1, keepdims=True)).value, selection(THREE).value)
    many = np.random.default_rng(0).integers(1, 9, (2, 11, 11))  # long axes are added up in another way
    assert selection(many, 4).value[0] == pytest.approx(many[..., 4].sum(1) / many.sum((1, 2)))


def test_what_has_no_rows_is_not_a_number_and_says_so() -> None:
    assert np.isnan(Rate(np.array([0, 1]), np.array([0, 2])).value).tolist() == [True, False]
    assert math.isnan(measured(np.zeros((2, 2, 2), int), "accuracy"))
    table = TABLE.copy()
    table[1, 1] = 0
    counts = Counts(table, ("a", "b"), ("no", "yes"))
    for name in ("equal_opportunity", "equalized_odds", "equalized_odds_worst", "worst_group_accuracy"):
        figure = estimate(counts, name)
        assert np.isnan([figure.value, figure.low, measured(table, name)]).all()
        assert "“b”" in str(figure.reason) or "b: 0" in str(figure.reason)
    assert estimate(counts, "demographic_parity").defined


# ------------------------------------------------------------------------------------------------ fairlearn


def fairlearn_gaps(label: np.ndarray, prediction: np.ndarray, group: np.ndarray) -> dict[str, float]:
    """Return fairlearn's figures under our names of the same quantities."""
    rows = {"y_true": label, "y_pred": prediction, "sensitive_features": group}
    odds = [equalized_odds_difference(**rows, agg=agg) for agg in ("mean", "worst_case")]
    each = demographic_parity_difference(**rows), equal_opportunity_difference(**rows), *odds
    return dict(zip(GAPS, each, strict=True))


def our_gaps(table: np.ndarray) -> dict[str, float]:
    return {name: float(measured(table, name)) for name in GAPS}


def test_the_mean_form_of_three_groups_takes_one_pair_and_fairlearn_two() -> None:
    """True positive rates .5, .6, 1 and false positive rates 0, .5, .1: pairs have .3, .3 and .4."""
    table = np.array([[[10, 0], [5, 5]], [[5, 5], [4, 6]], [[9, 1], [0, 10]]])
    assert measured(table, "equalized_odds") == pytest.approx(0.4)
    assert fairlearn_gaps(*rows_of(table))["equalized_odds"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("table", "undefined", "theirs"),
    [
        # No positives in group 1: fairlearn takes its true positive rate for 0, so that .7 - 0 is the gap.
        ([[[8, 2], [3, 7]], [[9, 1], [0, 0]]], {"equal_opportunity", "equalized_odds", "equalized_odds_worst"}, 0.7),
        # No negatives in group 1: its false positive rate is taken for 0; .7 and .6 are true positive rates.
        ([[[8, 2], [3, 7]], [[0, 0], [4, 6]]], {"equalized_odds", "equalized_odds_worst"}, 0.1),
        ([[[8, 2], [3, 7]]], set(GAPS), 0.0),
    ],
)
def test_a_gap_without_rows_or_a_second_group_is_undefined_where_fairlearn_takes_zero(
    table: list[list[list[int]]], undefined: set[str], theirs: float
) -> None:
    ours, found = our_gaps(np.array(table)), fairlearn_gaps(*rows_of(np.array(table)))
    assert {name for name, gap in ours.items() if math.isnan(gap)} == undefined
    assert found["equal_opportunity"] == pytest.approx(theirs)
    assert not any(math.isnan(gap) for gap in found.values())
