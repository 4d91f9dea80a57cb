"""When two values are one value, written in two ways: the one rule for classes, in audits and before training.

Values are compared exactly, and nothing is ever matched silently. But two classes that differ only in case, blanks, a
final mark or the way a number is written are most often one class: two must be declared.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Hashable, Iterable, Mapping
from decimal import Decimal
from numbers import Number

# A code of more digits is a name, and an exponent of more is a curiosity.
NUMBER = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})(e[+-]?[0-9]{1,4})?")
WHOLE_WITH_COMMA = re.compile(r"([+-]?[0-9]{1,40}),0{1,2}")
MOST_CLASSES = 200
"""More are distinguished nowhere: a column that has more holds ids or scores."""
TRUTH = {"true": Decimal(1), "false": Decimal(0)}
MINUS = str.maketrans("\u2212\u2010\u2011\u2013", "----")
MARKS = ".,;:!?\u2026\u3002"
QUOTES = "\"'`\u2018\u2019\u201c\u201d\u00ab\u00bb"


def number_of(value: Hashable) -> Decimal | None:
    """Return the number that a value is, or that a text spells out; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (str, Number)):
        return None
    if isinstance(value, int):
        return Decimal(value)
    text = str(value).strip().lower()
    return Decimal(text) if NUMBER.fullmatch(text) else None


def shape_of(text: str) -> str:
    """Return what a text looks like without telling it: letters as a, digits as 9."""
    return "".join("9" if one.isdigit() else "a" if one.isalpha() else one for one in text)


def loosely(value: Hashable) -> Hashable:
    """Return what is left of a value once case, blanks, quotes, final marks and the format of numbers do not matter.

    Numbers are decimals, and truth values are 1 and 0.
    """
    if isinstance(value, bool):
        return Decimal(int(value))
    if isinstance(value, Number) and (number := number_of(value)) is not None:
        return number
    text = unicodedata.normalize("NFKC", str(value)).casefold().translate(MINUS)
    plain = "".join(character for character in text if not _is_blank(character)).strip(QUOTES)
    for form in (plain, plain.rstrip(MARKS).strip(QUOTES)):
        if form in TRUTH:
            return TRUTH[form]
        if NUMBER.fullmatch(form):
            return Decimal(form)
        if comma := WHOLE_WITH_COMMA.fullmatch(form):
            return Decimal(comma[1])
    return form or plain or text


def _is_blank(character: str) -> bool:
    """Whether a character is a blank, represents one, or cannot be seen."""
    return character.isspace() or character == "_" or unicodedata.category(character) in ("Cc", "Cf")


def alike_pairs(values: Iterable[Hashable]) -> list[tuple[Hashable, Hashable]]:
    """Return pairs of different values that are alike, each beside the first of its kind, in the order given."""
    met: dict[Hashable, Hashable] = {}
    return [(met[form], value) for value in values if met.setdefault(form := loosely(value), value) != value]


def one_spelling(rows: Mapping[Hashable, int]) -> dict[Hashable, Hashable]:
    """Return for each value that is alike another one the most frequent spelling; ``rows`` counts each spelling."""
    best: dict[Hashable, Hashable] = {}
    for value in sorted(rows, key=lambda value: (-rows[value], str(value))):
        best.setdefault(loosely(value), value)
    return {value: best[form] for value in rows if best[form := loosely(value)] != value}


def is_value(value: Hashable, wanted: Hashable) -> bool:
    """Whether a value is one that a user named: the same text, or the same number however it is written."""
    number = number_of(wanted)
    return str(value) == str(wanted) or (number is not None and number_of(value) == number)


def unlabelled(
    labels: Collection[Hashable],
    predictions: Collection[Hashable],
    meant: Collection[str] = (),
    *,
    signed: bool = False,
) -> list[Hashable]:
    """Return the labels, never predicted, that many data sets write where there is none: -1, -100, 255.

    ``signed``: of -1 and 1 alone, -1 is a class.
    """
    if signed and {number_of(one) for one in labels} == {-1, 1}:
        return []
    there = set(map(loosely, predictions))
    absent = [one for one in labels if loosely(one) not in there and str(one) not in meant]
    numbers = {one: number for one in absent if (number := number_of(one)) is not None}
    return sorted((one for one, number in numbers.items() if number < 0 or number == 255), key=str)
