from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelhead.metrics import (
    Counts,
    accuracy,
    balanced_accuracy,
    demographic_parity,
    equal_opportunity,
    equalized_odds,
    equalized_odds_worst,
    estimate,
    estimate_all,
    gaps_by_class,
    worst_group_accuracy,
)

# Group 0: TN 80 FP 20 FN 30 TP 70; group 1: TN 90 FP 10 FN 60 TP 40.
TABLE = np.array([[[80, 20], [30, 70]], [[90, 10], [60, 40]]])


def rows_of(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return label, prediction and group of every counted row."""
    cells = [np.repeat([index], count, axis=0) for index, count in np.ndenumerate(table)]
    group, label, prediction = np.concatenate([cell for cell in cells if len(cell)]).T
    return label, prediction, group


def test_the_gaps_of_a_worked_table() -> None:
    assert demographic_parity(TABLE) == pytest.approx(0.2)
    assert equal_opportunity(TABLE) == pytest.approx(0.3)
    assert equalized_odds(TABLE) == pytest.approx(0.2)
    assert equalized_odds_worst(TABLE) == pytest.approx(0.3)
    assert accuracy(TABLE) == pytest.approx(0.7)
    assert balanced_accuracy(TABLE) == pytest.approx((0.85 + 0.55) / 2)
    assert worst_group_accuracy(TABLE) == pytest.approx(0.4)


def test_the_gaps_of_a_worked_table_with_three_classes() -> None:
    first = [[8, 1, 1], [1, 7, 2], [0, 2, 8]]
    second = [[5, 3, 2], [2, 6, 2], [1, 1, 8]]
    table = np.array([first, second])
    assert demographic_parity(table) == pytest.approx(1 / 30)
    assert equal_opportunity(table) == pytest.approx(0.3)
    assert equalized_odds(table) == pytest.approx(0.2)  # the largest average, not the average of the largest


tables = st.lists(st.integers(0, 12), min_size=18, max_size=18).map(lambda cells: np.array(cells).reshape(2, 3, 3))
binary = st.lists(st.integers(0, 12), min_size=12, max_size=12).map(lambda cells: np.array(cells).reshape(3, 2, 2))


def naive(label: np.ndarray, prediction: np.ndarray, group: np.ndarray, positive: int) -> tuple[float, float, float]:
    """DP, EOp and EOd from the rows, by their definitions."""
    rates = []
    for value in np.unique(group):
        mine = group == value
        chosen = prediction[mine] == positive
        is_positive = label[mine] == positive
        rates.append((chosen.mean(), chosen[is_positive].mean(), chosen[~is_positive].mean()))
    pairs = [(a, b) for a in rates for b in rates]
    return (
        max(abs(a[0] - b[0]) for a, b in pairs),
        max(abs(a[1] - b[1]) for a, b in pairs),
        max((abs(a[1] - b[1]) + abs(a[2] - b[2])) / 2 for a, b in pairs),
    )


@settings(deadline=None, max_examples=60)
@given(binary)
def test_counts_agree_with_the_rows(table: np.ndarray) -> None:
    table = table + 1  # every cell has a row
    label, prediction, group = rows_of(table)
    expected = naive(label, prediction, group, positive=1)
    counts = Counts.from_rows(label, prediction, group)
    assert np.array_equal(counts.table, table)
    found = [demographic_parity(counts.table), equal_opportunity(counts.table), equalized_odds(counts.table)]
    assert np.allclose(found, expected)


@settings(deadline=None, max_examples=60)
@given(tables, st.randoms(use_true_random=False))
def test_several_classes_are_each_set_against_the_rest(table: np.ndarray, random: object) -> None:
    table = table + 1
    label, prediction, group = rows_of(table)
    each = np.array([naive(label, prediction, group, positive=k) for k in range(3)])
    for column, name in enumerate(("demographic_parity", "equal_opportunity", "equalized_odds")):
        assert np.allclose(gaps_by_class(table, name), each[:, column])


@settings(deadline=None, max_examples=20)
@given(binary, st.permutations(range(3)), st.integers(0, 1000))
def test_order_of_rows_and_names_of_groups_do_not_matter(table: np.ndarray, names: list[int], seed: int) -> None:
    table = table + 1
    label, prediction, group = rows_of(table)
    order = np.random.default_rng(seed).permutation(len(label))
    renamed = np.array(names)[group]
    first = estimate_all(Counts.from_rows(label, prediction, group), replicates=100)
    shuffled = estimate_all(Counts.from_rows(label[order], prediction[order], group[order]), replicates=100)
    assert first == shuffled
    other = estimate_all(Counts.from_rows(label, prediction, renamed), replicates=100)
    for name, figure in first.items():
        assert other[name].value == pytest.approx(figure.value)


def test_a_group_without_positives_is_undefined_and_says_so() -> None:
    table = TABLE.copy()
    table[1, 1] = 0
    counts = Counts(table, ("a", "b"), ("no", "yes"))
    for name in ("equal_opportunity", "equalized_odds", "equalized_odds_worst", "worst_group_accuracy"):
        figure = estimate(counts, name)
        assert np.isnan(figure.value)
        assert np.isnan(figure.low)
        assert "“b”" in str(figure.reason) or "b: 0" in str(figure.reason)
    assert estimate(counts, "demographic_parity").defined
