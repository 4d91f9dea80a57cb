"""Columns of times as periods: dates are months, any other value is a period of its own."""

from __future__ import annotations

import re
from collections.abc import Sequence

from levelhead.spelling import number_of
from levelhead.tables.columns import Column
from levelhead.tables.vocabulary import in_order

_DATE = re.compile(r"(\d{4})[-/](\d{1,2})[-/]\d{1,2}(?!\d).*", re.DOTALL)
"""Year, month and day, and whatever time follows."""
_MONTH = re.compile(r"(\d{4}[-/])(\d)")
_PART = re.compile(r"(\d{4})(\D{1,3})(\d{1,2})")
"""A year and a month, a quarter or a week of it, or the year after."""


def as_periods(column: Column) -> Column:
    """Return codes and periods: a date with a day is its month, ``2024-03``, and so is ``2024-3``."""
    codes, values = column
    return codes, [_period(str(value)) for value in values]


def _period(text: str) -> str:
    if date := _DATE.fullmatch(text):
        return f"{date[1]}-{int(date[2]):02}"
    return f"{month[1]}0{month[2]}" if (month := _MONTH.fullmatch(text)) else text


def ordered(periods: Sequence[str]) -> tuple[list[str], bool]:
    """Return periods in time's order, and whether it is known: else they are as they came.

    Known is that of numbers, and of parts of years that are all written alike, such as ``2024-03`` or ``2024-Q1``. That
    of ``12/2023`` beside ``01/2024`` is not: sorted as texts, the later one would come first.
    """
    if all(number_of(one) is not None for one in periods):
        return [str(one) for one in in_order(periods)], True
    parts = {one: found for one in periods if (found := _PART.fullmatch(one))}
    if len(parts) < len(periods) or len({found[2] for found in parts.values()}) > 1:
        return list(periods), False
    return sorted(parts, key=lambda one: (int(parts[one][1]), int(parts[one][3]), one)), True
