"""Signed gaps: the rows that each is based on, and the order of pairs."""

from __future__ import annotations

import math

import numpy as np

from levelhead.metrics.signed import GAPS, pairs_of, rate_gap, rows_of


def test_a_gap_rests_on_the_rows_of_its_label() -> None:
    table = np.arange(24).reshape(2, 2, 2, 3)  # the labels may be any axis
    assert list(GAPS) == ["demographic_parity", "equal_opportunity", "false_positive_rate"]
    for axis in (-2, 1):
        first, second = np.moveaxis(table, axis, 0)
        np.testing.assert_array_equal(rows_of(table, "demographic_parity", axis), first + second)
        np.testing.assert_array_equal(rows_of(table, "equal_opportunity", axis), second)
        np.testing.assert_array_equal(rows_of(table, "false_positive_rate", axis), first)
    assert rows_of([[1, 2], [3, 4]], "equal_opportunity").tolist() == [3.0, 4.0]


def test_the_second_groups_rate_less_the_firsts() -> None:
    assert rate_gap([[3, 1], [1, 3]]) == 0.5
    assert math.isnan(rate_gap([[3, 1], [0, 0]]))
    assert rate_gap(np.array([[0, 1], [1, 0]])) == -1


def test_the_later_group_of_a_pair_comes_first() -> None:
    assert pairs_of(3) == [(1, 0), (2, 0), (2, 1)]
    assert pairs_of(1) == []
