"""Columns as codes, and rows counted by group, label and prediction, on examples counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from levelhead.metrics import Counts, JointCounts
from levelhead.metrics.counts import MOST_CELLS, distinct, encode, encode_together
from levelhead.types import DataError

NAN = math.nan


def coded(values: object, function: object = encode) -> tuple[list[int], list[object]]:
    codes, names = function(values)  # type: ignore[operator]
    assert codes.dtype == np.int64
    assert not any(isinstance(name, np.generic) for name in names)
    return codes.tolist(), names


@pytest.mark.parametrize(
    ("values", "codes", "names"),
    [
        ([30, 10, 20, 10], [2, 0, 1, 0], [10, 20, 30]),
        (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
        (np.array(["b", "a"], "U1"), [1, 0], ["a", "b"]),
        (np.array([b"b", b"a"], "S1"), [1, 0], [b"a", b"b"]),
        (np.array([2, 1], np.int32), [1, 0], [1, 2]),
        (np.array([True, False]), [1, 0], [False, True]),
        ([], [], []),
        # What cannot be compared is sorted by type and text: 10 stands before 9.
        (np.array(["b", 10, "a", 9, (1,), "b"], object), [3, 0, 2, 1, 4, 3], [10, 9, "a", "b", (1,)]),
    ],
)
def test_values_become_positions_in_their_sorted_order(values: object, codes: list[int], names: list[object]) -> None:
    found = coded(values)
    assert found == (codes, names)
    assert list(map(type, found[1])) == list(map(type, names))


@pytest.mark.parametrize(
    ("values", "codes", "names"),
    [
        (["b", "a", "b", "a "], [0, 1, 0, 2], ["b", "a", "a "]),
        ([1, 1.0, 2.5, True and 1], [0, 0, 1, 0], [1, 2.5]),
        (np.array([3, 1, 3], np.int8), [0, 1, 0], [3, 1]),
        (np.array([1, 0], np.float32), [0, 1], [1, 0]),
        (np.array(["01", "1", "1.0"], object), [0, 1, 2], ["01", "1", "1.0"]),
        (["1", "a"], [0, 1], ["1", "a"]),
        ([10, "x", 10], [0, 1, 0], [10, "x"]),  # of which NumPy makes texts
        (np.array([10, "1", "x"], object), [0, 1, 2], [10, "1", "x"]),
        (np.array([1, 1.0, (1,), np.float32(1)], object), [0, 0, 1, 0], [1, (1,)]),
        (np.array([(1, 2), None, (3,), (1, 2), "x"], object), [0, -1, 1, 0, 2], [(1, 2), (3,), "x"]),
        (np.array([np.int64(7), "x"], object), [0, 1], [7, "x"]),
        # A missing value has no name.
        (np.array([None, "a", NAN], object), [-1, 0, -1], ["a"]),
        ([NAN, 1.0], [-1, 0], [1.0]),
        (np.ma.MaskedArray([1, 2, 1], [False, True, False]), [0, -1, 0], [1]),
        (np.array([None, 2, (1,)], object), [-1, 0, 1], [2, (1,)]),
    ],
)
def test_values_are_told_apart_in_the_order_of_their_first_rows(
    values: object, codes: list[int], names: list[object]
) -> None:
    assert coded(values, distinct) == (codes, names)


def test_times_are_told_apart() -> None:
    for kind, values, texts in (
        ("timedelta64[s]", [60, 1], ["0 days 00:01:00", "0 days 00:00:01"]),
        ("datetime64[ns]", ["2020-01-02", "2020-01-01"], ["2020-01-02 00:00:00", "2020-01-01 00:00:00"]),
    ):
        codes, names = coded(np.array(values, kind), distinct)
        assert (codes, [str(name) for name in names]) == ([0, 1], texts)


def test_a_table_of_more_than_a_gigabyte_is_refused() -> None:
    none, names = np.zeros(0, np.int64), range(1 << 9)  # 2^9 groups and 2^9 classes make 2^27 cells
    assert len(names) ** 3 == MOST_CELLS
    with pytest.raises(DataError, match="A table of 513 groups and 512 classes is too large"):
        Counts.from_codes(none, none, none, range(513), names)


def test_labels_and_predictions_share_one_vocabulary() -> None:
    for columns, names, codes in (
        (([5, 5], [7, 5], [6, 6]), [5, 6, 7], [[0, 0], [2, 0], [1, 1]]),
        (([True, False], [1.0, 0.0]), [0, 1], [[1, 0], [1, 0]]),
        ((["a", "b"],), ["a", "b"], [[0, 1]]),
        ((np.array([1, 2], np.uint8), np.array([1.5, 2.0])), [1, 1.5, 2], [[0, 2], [1, 2]]),
    ):
        found, known = encode_together(*columns)
        assert (known, [one.tolist() for one in found]) == (names, codes)


def test_counting_rows_gives_groups_by_classes_by_predictions() -> None:
    counts = Counts.from_rows(["y", "n", "y", "y"], ["n", "n", "y", "n"], ["b", "a", "b", "b"])
    assert (counts.groups, counts.classes, counts.n) == (("a", "b"), ("n", "y"), 4)
    assert counts.table.tolist() == [[[1, 0], [0, 0]], [[0, 0], [2, 1]]]
    assert counts.table.dtype == np.int64
    assert counts.cell_sizes.tolist() == [[1, 0], [0, 3]]
    assert counts.group_sizes.tolist() == [1, 3]


def test_patterns_may_stand_for_several_rows() -> None:
    codes = np.array([0, 1]), np.array([2, 0]), np.array([1, 0])
    for rows, each in ((None, (1, 1)), (np.array([5, 7]), (5, 7))):
        found = Counts.from_codes(*codes, ("a", "b", "c"), (0, 1, 2), rows)
        assert found.table.shape == (3, 3, 3)
        assert (found.table[0, 2, 1], found.table[1, 0, 0], found.n) == (*each, sum(each))


def test_a_count_table_is_made_plain_and_groups_are_kept_with_all_classes() -> None:
    made = Counts([[[1, 2], [3, 4]]], ["a"], ["n", "y"])
    assert (made.groups, made.classes) == (("a",), ("n", "y"))
    assert Counts(np.ones((1, 2, 2), np.uint8), ("a",), (0, 1)).table.dtype == np.int64
    assert Counts(np.zeros((1, 2, 2), int), ("a",), (0, 1)).n == 0
    table = np.arange(12).reshape(3, 2, 2)
    kept = Counts(table, ("a", "b", "c"), ("n", "y")).keep(["c", "a"])
    assert (kept.groups, kept.classes) == (("c", "a"), ("n", "y"))
    assert np.array_equal(kept.table, table[[2, 0]])


def test_predictions_of_several_models_are_counted_by_joint_patterns() -> None:
    joint = JointCounts.from_rows(
        ["y", "n", "y", "y"], ["a", "a", "b", "a"], [["y", "n", "y", "y"], ["n", "n", "n", "n"]]
    )
    assert (joint.groups, joint.classes, joint.n) == (("a", "b"), ("n", "y"), 4)
    assert joint.patterns.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [1, 1, 1, 0]]
    assert joint.multiplicity.tolist() == [1, 2, 1]
    assert joint.multiplicity.dtype == np.int64
    assert joint.marginal(0).table.tolist() == [[[1, 0], [0, 2]], [[0, 0], [0, 1]]]
    assert joint.marginal(1).table.tolist() == [[[1, 0], [2, 0]], [[0, 0], [1, 0]]]
    assert joint.marginal(1).groups == ("a", "b")
