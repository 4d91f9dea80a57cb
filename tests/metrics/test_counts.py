"""Columns as codes, and rows counted by group, label and prediction: counts.txt beside this file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from levelhead.metrics import Counts, JointCounts
from levelhead.metrics.counts import MOST_CELLS, _coded, distinct, encode
from levelhead.types import DataError
from sessions import check, renew

TEXT = Path(__file__).with_name("counts.txt")


def coded(values: object, function: object = encode) -> tuple[list[int], list[object]]:
    codes, names = function(values)  # type: ignore[operator]
    assert codes.dtype == np.int64
    assert not any(isinstance(name, np.generic) for name in names)
    return codes.tolist(), names


def apart(values: object) -> tuple[list[int], list[object]]:
    return coded(values, distinct)


def together(*columns: object) -> tuple[list[list[int]], list[object]]:
    codes, names, *_ = _coded(columns[0], columns[1:], columns[0])  # type: ignore[arg-type]
    return [one.tolist() for one in codes], names


def shown(counts: Counts) -> tuple[object, ...]:
    """Groups, classes, table and number of rows; the sizes of cells and groups are sums of it."""
    assert counts.table.dtype == np.int64
    assert counts.cell_sizes.tolist() == counts.table.sum(2).tolist()
    assert counts.group_sizes.tolist() == counts.table.sum((1, 2)).tolist()
    return counts.groups, counts.classes, counts.table.tolist(), counts.n


NAMES = {one.__name__: one for one in (coded, apart, together, shown, Counts, JointCounts)} | {
    "np": np,
    "nan": math.nan,
}


def test_columns_and_rows_are_counted_as_by_hand() -> None:
    check(TEXT, NAMES)


def test_a_table_of_more_than_a_gigabyte_is_refused() -> None:
    none, names = np.zeros(0, np.int64), range(1 << 9)  # 2^9 groups and 2^9 classes make 2^27 cells
    assert len(names) ** 3 == MOST_CELLS
    with pytest.raises(DataError, match="A table of 513 groups and 512 classes is too large"):
        Counts.from_codes(none, none, none, range(513), names)


if __name__ == "__main__":
    renew(TEXT, NAMES)
