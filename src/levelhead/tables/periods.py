"""Columns of times as periods: dates are months, any other value is a period of its own."""

from __future__ import annotations

import itertools
import math
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
_DOTTED = re.compile(r"\d{4}\.(0?[1-9]|1[0-2])")
"""A year and a month of it, which would be sorted as a number: 2024.10 before 2024.9."""
_COUNTED = re.compile(r"(\D*)(\d+)(\D*)")
"""A name with one number in it, such as ``week 3`` or ``sales_12.csv``."""


def as_periods(column: Column) -> Column:
    """Return codes and periods: a date with a day is its month, ``2024-03``, and so is ``2024-3``."""
    codes, values = column
    return codes, [_period(str(value)) for value in values]


def _period(text: str) -> str:
    if date := _DATE.fullmatch(text):
        return f"{date[1]}-{int(date[2]):02}"
    return f"{month[1]}0{month[2]}" if (month := _MONTH.fullmatch(text)) else text


def places_of(periods: Sequence[str]) -> list[float]:
    """Return where periods lie in time, (periods,), the smallest distance of two that follow each other being 1.

    They are in time's order, as :func:`ordered` returns them. Periods whose time is not known lie 1 apart, and so do
    numbers that may be codes: 202501 follows 202412.
    """
    values: list[float] = []
    if ordered(periods) == (list(periods), True):
        found = [_PART.fullmatch(one) for one in periods]
        if all(found):
            parts = [(int(one[1]), one[2], int(one[3])) for one in found if one is not None]
            most = max((part for *_, part in parts), default=0)
            kind = parts[0][1].strip("-/ ").lower()
            year = {"q": 4, "w": 52}.get(kind, 12 if most <= 12 else 52 if most <= 53 else 0)
            values = [float(when * year + part) for when, _, part in parts] if year else []
        else:
            numbers = [float(number) for one in periods if (number := number_of(one)) is not None]
            plain = all(abs(one) < 100 for one in numbers) or all(1900 <= one <= 2100 for one in numbers)
            values = numbers if plain else []
    steps = [after - before for before, after in itertools.pairwise(values)]
    if not steps or min(steps) <= 0 or not math.isfinite(sum(steps)):
        return [float(place) for place in range(len(periods))]
    return [(value - values[0]) / min(steps) for value in values]


def ordered(periods: Sequence[str]) -> tuple[list[str], bool]:
    """Return periods in time's order, and whether it is known: else they are as they came.

    Known is that of numbers, of names that differ in one number alone, such as ``week 3``, and of parts of years that
    are all written alike, such as ``2024-03`` or ``2024-Q1``. That of ``12/2023`` beside ``01/2024`` is not: sorted as
    texts, the later one would come first.
    """
    months = all(_DOTTED.fullmatch(one) for one in periods)
    if not months and all(number_of(one) is not None for one in periods):
        return [str(one) for one in in_order(periods)], True
    counted = {one: found for one in periods if (found := _COUNTED.fullmatch(one))}
    if len(counted) == len(periods) and len({(found[1], found[3]) for found in counted.values()}) == 1:
        return sorted(counted, key=lambda one: (int(counted[one][2]), one)), True
    parts = {one: found for one in periods if (found := _PART.fullmatch(one))}
    if len(parts) < len(periods) or len({found[2] for found in parts.values()}) > 1:
        return list(periods), False
    return sorted(parts, key=lambda one: (int(parts[one][1]), int(parts[one][3]), one)), True
