"""Count tables and group metrics on small tables: counted by hand, or cell by cell in plain Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from levelhead.metrics import (
    Counts,
    JointCounts,
    accuracy,
    balanced_accuracy,
    demographic_parity,
    demographic_parity_mean,
    equal_opportunity,
    equal_opportunity_mean,
    equalized_odds,
    equalized_odds_mean,
    equalized_odds_worst,
    equalized_odds_worst_mean,
    false_positive_rate,
    gaps_by_class,
    group_accuracy,
    selection_rate,
    true_positive_rate,
    worst_group_accuracy,
)
from levelhead.metrics.counts import MOST_CELLS, distinct, encode, encode_together
from levelhead.metrics.group import Rate, cell_hits, classes_compared, false_positives, selection, true_positives
from levelhead.types import ConfigError, DataError

# ------------------------------------------------------------------------------------------------ counts


def encoded(values: object) -> tuple[list[int], list[object]]:
    codes, names = encode(values)
    assert codes.dtype == np.int64
    return codes.tolist(), names


def test_values_become_positions_in_their_sorted_order() -> None:
    assert encoded([30, 10, 20, 10]) == ([2, 0, 1, 0], [10, 20, 30])
    assert encoded(["b", "a", "b"]) == ([1, 0, 1], ["a", "b"])
    assert encoded(np.array(["b", "a"], "U1")) == ([1, 0], ["a", "b"])
    assert encoded(np.array([b"b", b"a"], "S1")) == ([1, 0], [b"a", b"b"])
    assert encoded([]) == ([], [])
    _, names = encode(np.array([2, 1], np.int32))
    assert [type(name) for name in names] == [int, int]
    _, names = encode(np.array([True, False]))
    assert names == [False, True]
    assert [type(name) for name in names] == [bool, bool]


def test_values_that_cannot_be_compared_are_sorted_by_type_and_text() -> None:
    mixed = np.array(["b", 10, "a", 9, (1,), "b"], object)
    # int before str before tuple; within a type by text, so that 10 stands before 9.
    assert encoded(mixed) == ([3, 0, 2, 1, 4, 3], [10, 9, "a", "b", (1,)])


def told_apart(values: object, title: str = "A column") -> tuple[list[int], list[object]]:
    codes, names = distinct(values, title)
    assert codes.dtype == np.int64
    return codes.tolist(), names


def test_values_are_told_apart_in_the_order_of_their_first_rows() -> None:
    assert told_apart(["b", "a", "b", "a "]) == ([0, 1, 0, 2], ["b", "a", "a "])
    assert told_apart([1, 1.0, 2.5, True and 1]) == ([0, 0, 1, 0], [1, 2.5])
    assert told_apart(np.array([3, 1, 3], np.int8)) == ([0, 1, 0], [3, 1])
    assert told_apart(np.array(["01", "1", "1.0"], object)) == ([0, 1, 2], ["01", "1", "1.0"])
    assert told_apart(["1", "a"]) == ([0, 1], ["1", "a"])
    assert told_apart([10, "x", 10]) == ([0, 1, 0], [10, "x"])  # of which NumPy makes texts
    assert told_apart(np.array([1, 1.0, (1,), np.float32(1)], object)) == ([0, 0, 1, 0], [1, (1,)])
    codes, names = told_apart(np.array([60, 1], "timedelta64[s]"))
    assert (codes, [str(name) for name in names]) == ([0, 1], ["0 days 00:01:00", "0 days 00:00:01"])
    assert told_apart(np.array([(1, 2), None, (3,), (1, 2), "x"], object)) == ([0, -1, 1, 0, 2], [(1, 2), (3,), "x"])
    codes, names = told_apart(np.array(["2020-01-02", "2020-01-01"], "datetime64[ns]"))
    assert (codes, [str(name) for name in names]) == ([0, 1], ["2020-01-02 00:00:00", "2020-01-01 00:00:00"])
    for kind in (np.int64, np.float32, np.bool_):
        _, names = told_apart(np.array([1, 0], kind))
        assert not any(isinstance(name, np.generic) for name in names)
    _, names = told_apart(np.array([np.int64(7), "x"], object))
    assert [type(name) for name in names] == [int, str]


def test_a_missing_value_has_no_name() -> None:
    assert told_apart(np.array([None, "a", math.nan], object)) == ([-1, 0, -1], ["a"])
    assert told_apart([math.nan, 1.0]) == ([-1, 0], [1.0])
    assert told_apart(np.ma.MaskedArray([1, 2, 1], [False, True, False])) == ([0, -1, 0], [1])
    assert told_apart(np.array([None, 2, (1,)], object)) == ([-1, 0, 1], [2, (1,)])


@pytest.mark.parametrize(
    ("one", "other", "types"), [(1, "1", "int and str"), (1, True, "int and bool"), (2.0, "2.0", "float and str")]
)
def test_values_of_two_kinds_that_are_equal_or_print_alike_are_refused(one: object, other: object, types: str) -> None:
    with pytest.raises(DataError, match=f"^Group holds both .* of the types {types}. Write all"):
        distinct(np.array([one, "x", (1,), other], object), "Group")
    assert told_apart(np.array([10, "1", "x"], object)) == ([0, 1, 2], [10, "1", "x"])


def test_a_table_of_more_than_a_gigabyte_is_refused() -> None:
    none = np.zeros(0, np.int64)
    names = range(1 << 9)  # 2^9 groups and 2^9 classes make 2^27 cells
    assert len(names) ** 3 == MOST_CELLS
    with pytest.raises(DataError, match="A table of 513 groups and 512 classes is too large"):
        Counts.from_codes(none, none, none, range(513), names)


def test_labels_and_predictions_share_one_vocabulary() -> None:
    (first, second, third), names = encode_together([5, 5], [7, 5], [6, 6])
    assert names == [5, 6, 7]
    assert (first.tolist(), second.tolist(), third.tolist()) == ([0, 0], [2, 0], [1, 1])
    with pytest.raises(DataError, match="holds both 1 and '1', of the types int and str"):
        encode_together([1, 2], ["1", "2"])  # a number is not its text
    (first, second), names = encode_together([True, False], [1.0, 0.0])
    assert names == [0, 1]
    assert first.tolist() == second.tolist() == [1, 0]
    (first,), names = encode_together(["a", "b"])
    assert first.tolist() == [0, 1]
    (first, second), names = encode_together(np.array([1, 2], np.uint8), np.array([1.5, 2.0]))
    assert names == [1, 1.5, 2]


def test_counting_rows_gives_groups_by_classes_by_predictions() -> None:
    counts = Counts.from_rows(["y", "n", "y", "y"], ["n", "n", "y", "n"], ["b", "a", "b", "b"])
    assert (counts.groups, counts.classes) == (("a", "b"), ("n", "y"))
    assert counts.table.tolist() == [[[1, 0], [0, 0]], [[0, 0], [2, 1]]]
    assert counts.table.dtype == np.int64
    assert counts.n == 4
    assert counts.cell_sizes.tolist() == [[1, 0], [0, 3]]
    assert counts.group_sizes.tolist() == [1, 3]
    with pytest.raises(DataError, match="3 group values for 4 labels"):
        Counts.from_rows([0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 1])
    with pytest.raises(DataError, match="There are no rows to count"):
        Counts.from_rows([], [], [])


def test_patterns_may_stand_for_several_rows() -> None:
    codes = np.array([0, 1]), np.array([2, 0]), np.array([1, 0])
    once = Counts.from_codes(*codes, ("a", "b", "c"), (0, 1, 2))
    often = Counts.from_codes(*codes, ("a", "b", "c"), (0, 1, 2), np.array([5, 7]))
    assert once.table.shape == often.table.shape == (3, 3, 3)
    assert (once.table[0, 2, 1], once.table[1, 0, 0], once.n) == (1, 1, 2)
    assert (often.table[0, 2, 1], often.table[1, 0, 0], often.n) == (5, 7, 12)


def test_a_count_table_is_checked_and_made_plain() -> None:
    made = Counts([[[1, 2], [3, 4]]], ["a"], ["n", "y"])
    assert (made.groups, made.classes) == (("a",), ("n", "y"))
    assert isinstance(made.table, np.ndarray)
    assert Counts(np.ones((1, 2, 2), np.uint8), ("a",), (0, 1)).table.dtype == np.int64
    with pytest.raises(DataError, match="A count is negative"):
        Counts(np.array([[[0, -1], [0, 1]]]), ("a",), (0, 1))
    assert Counts(np.zeros((1, 2, 2), int), ("a",), (0, 1)).n == 0
    with pytest.raises(DataError, match="must be whole numbers, got float64"):
        Counts(np.ones((1, 2, 2)), ("a",), (0, 1))
    for groups, classes in ((("a", "b"), (0, 1)), (("a",), (0, 1, 2))):
        with pytest.raises(DataError, match=r"has shape \(1, 2, 2\), but"):
            Counts(np.ones((1, 2, 2), int), groups, classes)
    with pytest.raises(DataError, match=r"2 groups and 3 classes need \(2, 3, 3\)"):
        Counts(np.ones((2, 3, 2), int), ("a", "b"), (0, 1, 2))


def test_groups_that_are_kept_keep_their_rows_and_all_classes() -> None:
    table = np.arange(12).reshape(3, 2, 2)
    kept = Counts(table, ("a", "b", "c"), ("n", "y")).keep(["c", "a"])
    assert (kept.groups, kept.classes) == (("c", "a"), ("n", "y"))
    assert np.array_equal(kept.table, table[[2, 0]])


def test_predictions_of_several_models_are_counted_by_joint_patterns() -> None:
    joint = JointCounts.from_rows(
        ["y", "n", "y", "y"], ["a", "a", "b", "a"], [["y", "n", "y", "y"], ["n", "n", "n", "n"]]
    )
    assert (joint.groups, joint.classes) == (("a", "b"), ("n", "y"))
    assert joint.patterns.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]]
    assert joint.multiplicity.tolist() == [1, 2, 1]
    assert joint.multiplicity.dtype == np.int64
    assert joint.n == 4
    assert joint.marginal(0).table.tolist() == [[[1, 0], [0, 2]], [[0, 0], [0, 1]]]
    assert joint.marginal(1).table.tolist() == [[[1, 0], [2, 0]], [[0, 0], [1, 0]]]
    assert joint.marginal(1).groups == ("a", "b")
    with pytest.raises(DataError, match="no predictions to compare"):
        JointCounts.from_rows([0, 1], [0, 1], [])
    with pytest.raises(DataError, match="1 group values for 2 labels"):
        JointCounts.from_rows([0, 1], [0], [[0, 1]])
    with pytest.raises(DataError, match="no rows to count"):
        JointCounts.from_rows([], [], [[]])


# ------------------------------------------------------------------------------------------------ metrics

# Two tables of three groups and three classes: the first axis is kept by every metric.
TABLES = np.random.default_rng(3).integers(1, 20, (2, 3, 3, 3))
PAIRS = list(itertools.combinations(range(3), 2))


def rates(cells: list[list[int]], one: int) -> tuple[float, float, float]:
    """Selection rate, true and false positive rate of class ``one`` in a group's (label, prediction) cells."""
    rows = [(label, prediction, cells[label][prediction]) for label in range(3) for prediction in range(3)]
    chosen = sum(count for _, prediction, count in rows if prediction == one)
    positive = sum(count for label, _, count in rows if label == one)
    everything = sum(count for *_, count in rows)
    hits = cells[one][one]
    return chosen / everything, hits / positive, (chosen - hits) / (everything - positive)


def gap(cells: list[list[list[int]]], one: int, metric: str) -> float:
    by_group = [rates(group, one) for group in cells]
    differences = [[abs(a - b) for a, b in zip(by_group[i], by_group[j], strict=True)] for i, j in PAIRS]
    return max(
        {
            "demographic_parity": selected,
            "equal_opportunity": found,
            "equalized_odds": (found + alarms) / 2,
            "equalized_odds_worst": max(found, alarms),
        }[metric]
        for selected, found, alarms in differences
    )


WORST_AND_MEAN: dict[str, tuple[Callable, Callable]] = {
    "demographic_parity": (demographic_parity, demographic_parity_mean),
    "equal_opportunity": (equal_opportunity, equal_opportunity_mean),
    "equalized_odds": (equalized_odds, equalized_odds_mean),
    "equalized_odds_worst": (equalized_odds_worst, equalized_odds_worst_mean),
}


@pytest.mark.parametrize("metric", WORST_AND_MEAN)
def test_gaps_of_several_tables_are_the_gaps_of_each(metric: str) -> None:
    worst, mean = WORST_AND_MEAN[metric]
    each = np.array([[gap(cells, one, metric) for one in range(3)] for cells in TABLES.tolist()])
    assert np.allclose(gaps_by_class(TABLES, metric), each)
    assert np.allclose(worst(TABLES), each.max(1))
    assert np.allclose(mean(TABLES), each.mean(1))
    # One table, and tables of tables, have one axis less and one more.
    assert np.allclose([worst(TABLES[0]), mean(TABLES[0])], [each[0].max(), each[0].mean()])
    assert np.allclose(worst(TABLES[None]), each.max(1)[None])
    assert np.allclose(mean(TABLES[None]), each.mean(1)[None])
    for one in range(3):
        assert np.allclose(gaps_by_class(TABLES, metric, one), each[:, [one]])
        assert np.allclose(worst(TABLES, one), each[:, one])
        assert np.allclose(mean(TABLES, one), each[:, one])
    assert np.isnan(gaps_by_class(TABLES[:, :1], metric)).tolist() == [[True] * 3] * 2


@pytest.mark.parametrize("position", [0, 1, 2])
def test_rates_of_several_tables_are_the_rates_of_each(position: int) -> None:
    metric = (selection_rate, true_positive_rate, false_positive_rate)[position]
    each = np.array([[[rates(cells, one)[position] for cells in groups] for groups in TABLES] for one in range(3)])
    for one in range(3):
        assert np.allclose(metric(TABLES, one), each[one])
    assert np.allclose(metric(TABLES), each[1])  # class 1 unless another is requested
    whole = (selection, true_positives, false_positives)[position]
    assert np.allclose(whole(TABLES).value, each.transpose(1, 0, 2))
    assert np.allclose(whole(TABLES, 2).value, each[[2]].transpose(1, 0, 2))


def test_selection_does_not_ask_for_the_labels() -> None:
    """Predictions may be counted whatever the label is: (..., groups, 1, classes)."""
    assert np.array_equal(selection(TABLES.sum(2, keepdims=True)).value, selection(TABLES).value)


def test_accuracies_of_several_tables_are_those_of_each() -> None:
    for number, groups in enumerate(TABLES):
        right = [[groups[group][one][one] for one in range(3)] for group in range(3)]
        rows = [[sum(groups[group][one]) for one in range(3)] for group in range(3)]
        assert group_accuracy(TABLES)[number].tolist() == pytest.approx(
            [sum(hits) / sum(sizes) for hits, sizes in zip(right, rows, strict=True)]
        )
        assert accuracy(TABLES)[number] == pytest.approx(sum(map(sum, right)) / groups.sum())
        by_class = [sum(row[one] for row in right) / sum(row[one] for row in rows) for one in range(3)]
        assert balanced_accuracy(TABLES)[number] == pytest.approx(sum(by_class) / 3)
        cells = [
            hit / size for hits, sizes in zip(right, rows, strict=True) for hit, size in zip(hits, sizes, strict=True)
        ]
        assert worst_group_accuracy(TABLES)[number] == pytest.approx(min(cells))
        for metric in (group_accuracy, accuracy, balanced_accuracy, worst_group_accuracy):
            assert np.array_equal(metric(groups), metric(TABLES)[number])
            assert np.array_equal(metric(TABLES[None])[0], metric(TABLES))
        assert cell_hits(TABLES).value[number].ravel().tolist() == pytest.approx(cells)


def test_class_one_of_two_is_positive_and_each_class_of_three_in_turn() -> None:
    assert classes_compared(2, None) == [1]
    assert classes_compared(3, None) == [0, 1, 2]
    assert classes_compared(1, None) == [0]
    assert classes_compared(2, 0) == [0]
    for positive in (-1, 2, 3):
        with pytest.raises(ConfigError, match=rf"positive={positive} is not a class index: there are 2 classes"):
            classes_compared(2, positive)


def test_a_rate_over_no_rows_is_not_a_number_and_spreads() -> None:
    assert np.isnan(Rate(np.array([0, 1]), np.array([0, 2])).value).tolist() == [True, False]
    assert Rate(np.array([1, 1]), np.array([1, 2])).value.tolist() == [1, 0.5]
    table = np.array([[[3, 1], [0, 0]], [[2, 2], [1, 3]]])
    assert math.isnan(equal_opportunity(table))
    assert math.isnan(worst_group_accuracy(table))
    assert demographic_parity(table) == pytest.approx(5 / 8 - 1 / 4)
    assert math.isnan(accuracy(np.zeros((2, 2, 2), int)))
