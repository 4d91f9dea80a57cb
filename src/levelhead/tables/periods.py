"""Columns of times as periods: dates are months, any other value is a period of its own."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from decimal import Decimal

from levelhead.spelling import number_of
from levelhead.tables.columns import Column
from levelhead.tables.vocabulary import in_order

_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_FULL = "jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sep(t(ember)?)?|oct(ober)?|nov(ember)?"
_NAME = rf"(?P<month>{_FULL}|dec(ember)?)\.?"
_DATES = [
    re.compile(form, re.DOTALL | re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})([-/.])(?P<month>\d{1,2})\2\d{1,2}(\D.*)?",
        r"(?P<year>(19|20)\d\d)(?P<month>\d\d)(0[1-9]|[12]\d|3[01])(([01]\d|2[0-3])([0-5]\d){0,2})?(\D.*)?",
        r"\d{1,2}\.(?P<month>\d{1,2})\.(?P<year>\d{4})(\D.*)?",
        rf"([a-z]{{3,9}},? )?(\d{{1,2}}[-/. ]?)?{_NAME}[-/. ]?(?P<year>\d{{4}})(\D.*)?",
        rf"(?P<year>\d{{4}})[-/. ]?{_NAME}([-/. ]?\d{{1,2}}(\D.*)?)?",
        rf"([a-z]{{3,9}},? )?{_NAME} \d{{1,2}},?( [\d:]+)? (?P<year>\d{{4}})(\D.*)?",
        r"(?P<month>\d{1,2})[-/](?P<year>\d{4})",
    )
]
"""A date with a day and whatever time follows, or a month that is before its year or has a name."""
_TWO = re.compile(r"((\d{1,2})[-/](\d{1,2})[-/](\d{4}))(\D.*)?", re.DOTALL)
"""A date in which the day or the month is first: the other dates of its column tell."""
_UNIX_TIME = 631_152_000, 4_102_444_800
"""Ends of the seconds of the years from 1990 to 2099."""
_MONTH = re.compile(r"(\d{4}[-/])(\d)")
_PART = re.compile(r"(\d{4})(\D{1,3})(\d{1,2})")
"""A year and a month, a half, a quarter or a week of it, or the year after."""
_LETTER = re.compile(r"(\d{4})([-/ ]?)([a-rtvx-z])", re.IGNORECASE)
"""A year and a letter, but for those of seasons: spring, 2024S, is before fall, 2024F."""
_DOTTED = re.compile(r"\d{4}\.(0?[1-9]|1[0-2])")
"""A year and a month of it, which would be sorted as a number: 2024.10 before 2024.9."""
_COUNTED = re.compile(r"(\D*)(\d+)(\D*)")
"""A name with one number in it, such as ``week 3`` or ``sales_12.csv``."""


def as_periods(column: Column) -> Column:
    """Return codes and periods: a date with a day is its month, ``2024-03``, and so are ``2024-3`` and Unix time.

    Of a date such as 31/12/2024 only the time of the day goes: :func:`months` has to see all of them.
    """
    codes, values = column
    return codes, [_period(str(value)) for value in values]


def months(periods: Collection[str]) -> dict[str, str]:
    """Return the month of each date such as 31/12/2024, where the dates tell whether the day or the month is first."""
    dates = {one: date for one in periods if (date := _TWO.fullmatch(one))}
    largest = [max((int(date[at]) for date in dates.values()), default=0) for at in (2, 3)]
    of_month = {(True, False): 3, (False, True): 2}.get((largest[0] > 12, largest[1] > 12))
    return {} if of_month is None else {one: _month(date[4], date[of_month]) or one for one, date in dates.items()}


def _period(text: str) -> str:
    number = number_of(text)
    whole = number is not None and number == number.to_integral_value()  # 20240131.0 beside missing values
    for form in _DATES:
        if (date := form.fullmatch(f"{number:.0f}" if whole else text)) and (
            month := _month(date["year"], date["month"])
        ):
            return month
    if number is not None:
        return _month_of_unix_time(number) or text
    if date := _TWO.fullmatch(text):
        return date[1]
    return f"{short[1]}0{short[2]}" if (short := _MONTH.fullmatch(text)) else text


def _month(year: str, month: str) -> str | None:
    """Return ``2024-03`` of a month as a number or a name; None of a number that is no month."""
    place = int(month) if month.isdigit() else _NAMES.index(month[:3].lower()) + 1
    return f"{year}-{place:02}" if 1 <= place <= 12 else None


def _month_of_unix_time(number: Decimal) -> str | None:
    """Return the month of a number of seconds since 1970, or of thousandths, millionths or billionths of them."""
    units = (float(number) / 10**power for power in (0, 3, 6, 9))
    seconds = next((one for one in units if _UNIX_TIME[0] <= one < _UNIX_TIME[1]), None)
    return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m}"


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
            kinds = {"": 12 if most <= 12 else 52, "m": 12, "q": 4, "h": 2, "s": 2, "w": 52}
            year = kinds.get(parts[0][1].strip("-/ .").lower(), 0)
            values = [float(when * year + part) for when, _, part in parts if most <= year + (year == 52)]
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
    are all written alike, such as ``2024-03``, ``2024-Q1`` or ``2024B``. That of ``12/2023`` beside ``01/2024`` is not:
    sorted as texts, the later one would come first.
    """
    months = all(_DOTTED.fullmatch(one) for one in periods)
    if not months and all(number_of(one) is not None for one in periods):
        return [str(one) for one in in_order(periods)], True
    counted = {one: found for one in periods if (found := _COUNTED.fullmatch(one))}
    if len(counted) == len(periods) and len({(found[1], found[3]) for found in counted.values()}) == 1:
        return sorted(counted, key=lambda one: (int(counted[one][2]), one)), True
    letters = [found[2] for one in periods if (found := _LETTER.fullmatch(one))]
    if len(letters) == len(periods) and len(set(letters)) == 1:
        return sorted(periods, key=str.upper), True
    parts = {one: found for one in periods if (found := _PART.fullmatch(one))}
    if len(parts) < len(periods) or len({found[2] for found in parts.values()}) > 1:
        return list(periods), False
    return sorted(parts, key=lambda one: (int(parts[one][1]), int(parts[one][3]), one)), True
