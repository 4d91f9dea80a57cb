"""Columns of times as periods: dates are months, any other value is a period of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from levelhead.tables.columns import Column
from levelhead.tables.vocabulary import in_order

_DATE = re.compile(r"(\d{4})[-/](\d{1,2})[-/]\d{1,2}(?!\d).*", re.DOTALL)
"""Year, month and day, and whatever time follows."""


def as_periods(column: Column) -> Column:
    """Return codes and periods: a date with a day is its month, ``2024-03``."""
    codes, values = column
    texts = (str(value) for value in values)
    return codes, [f"{found[1]}-{int(found[2]):02}" if (found := _DATE.fullmatch(one)) else one for one in texts]


def ordered(periods: Sequence[str]) -> tuple[list[str], bool]:
    """Return periods in time's order, and whether it is known: else they are as they came.

    Periods that all begin with a digit, such as ``2024-03``, ``2024-Q1`` or ``12``, are sorted.
    """
    known = all(one[:1].isdigit() for one in periods)
    return [str(one) for one in in_order(periods)] if known else list(periods), known
