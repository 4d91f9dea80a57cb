"""Cut a column of numbers into ranges, which are then its groups: ``--bins age=25,40,60`` or ``age=quantiles:4``."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics.names import MISSING_GROUP, Key, parts_of
from levelhead.tables.columns import Column
from levelhead.tables.tally import VALUES
from levelhead.tables.vocabulary import in_order
from levelhead.types import ConfigError, DataError, printable, quoted

Bins = Mapping[str, Sequence[float] | str]
"""For each column: cut points or their text, ``quantiles:4``, or ``values`` (the numbers are codes of groups)."""
MOST_BINS = 100
MOST_DIGITS = 40
"""A longer whole number is written with an exponent."""


class Cuts:
    """How one column is cut: at ``points``, or into this many ``quantiles``, or not at all (``values``)."""

    def __init__(self, column: str, given: Sequence[float] | str) -> None:
        self.column, self.quantiles, self.points = column, 0, list[Decimal]()
        self.values = isinstance(given, str) and given == VALUES
        if isinstance(given, str) and not self.values:
            kind, _, number = given.strip().partition(":")
            if kind == "quantiles":
                if not number.isascii() or not number.isdigit() or not 2 <= int(number[:9]) <= MOST_BINS:
                    raise self._wrong(given)
                self.quantiles = int(number)
                return
        if not self.values:
            texts = given.split(",") if isinstance(given, str) else given
            self.points = [point for one in texts if (point := _number(one)) is not None and point.is_finite()]
            if not 1 <= len(texts) < MOST_BINS or len(self.points) < len(texts):
                raise self._wrong(given)
            if sorted(set(self.points)) != self.points:
                listed = printable(", ".join(map(written, self.points)))
                raise ConfigError(f"The cut points of column {quoted(self.column)} must rise: {listed}.")

    def _wrong(self, given: object) -> ConfigError:
        return ConfigError(
            f"Bins of column {quoted(self.column)} are {quoted(str(given))}. Pass numbers that rise, such as 25,40,60, "
            f"or quantiles:4 for four groups of about equal size (at most {MOST_BINS}), or values."
        )

    def find(self, columns: Iterable[tuple[Column, NDArray[np.int64] | None]], title: str) -> None:
        """Set the points of quantiles from all rows of the column, and how many each is, given batch by batch.

        Raises:
            DataError: a value is not a number.
        """
        found: dict[Decimal, int] = {}
        for (codes, values), counts in columns:
            rows = np.bincount(codes, counts, len(values)).tolist()
            for value, count in zip(values, map(int, rows), strict=True):
                if count and (number := _as_number(value, title)) is not None:
                    found[number] = found.get(number, 0) + count
        if not found:
            raise DataError(f"{title} has no numbers to cut into quantiles.")
        numbers = sorted(found)
        reached = np.cumsum([found[number] for number in numbers])
        wanted = np.arange(1, self.quantiles) / self.quantiles * reached[-1]
        # The first number at which a share of the rows lies below; a number that many rows share is never split.
        places = np.searchsorted(reached, wanted, side="left") + 1
        self.points = sorted({numbers[place] for place in places.tolist() if place < len(numbers)})
        if not self.points:
            raise DataError(f"{title} has too few different numbers for {self.quantiles} quantiles. Pass cut points.")

    @property
    def names(self) -> list[str]:
        """The names of the ranges, from the lowest to the highest, each another one."""
        texts = _told_apart(self.points, 10) if self.quantiles else [written(point) for point in self.points]
        between = [f"{low} to under {high}" for low, high in itertools.pairwise(texts)]
        return [f"under {texts[0]}", *between, f"{texts[-1]} and over"]

    def cut(self, column: Column, title: str) -> Column:
        """Replace the values of a batch by the names of their ranges; NaN is a missing value.

        Raises:
            DataError: a value is not a number.
        """
        if self.values:
            return column
        codes, values = column
        used = np.bincount(codes, minlength=len(values)) > 0
        places = []
        for value, occurs in zip(values, used.tolist(), strict=True):
            number = _as_number(value, title) if occurs else None
            places.append(len(self.points) + 1 if number is None else bisect_right(self.points, number))
        return np.array(places, np.int64)[codes], [*self.names, None]


def cuts_of(bins: Bins | Sequence[str] | None, columns: Sequence[str]) -> dict[str, Cuts]:
    """Read how columns are cut.

    Args:
        bins: by column, or ``column=...`` texts as the command line has them.
        columns: the columns of groups.

    Returns:
        how each column that is named is cut.

    Raises:
        ConfigError: a text cannot be read, or names no column of groups.
    """
    given: list[tuple[str, Sequence[float] | str]] = []
    if isinstance(bins, Mapping):
        given = list(bins.items())
    else:
        texts: Sequence[str] = [bins] if isinstance(bins, str) else bins or ()
        for text in texts:
            name, equals, written = str(text).rpartition("=")
            if not equals:
                raise ConfigError(f"--bins {quoted(text)} names no column. Write for example age=25,40,60.")
            given.append((name, written))
    cuts: dict[str, Cuts] = {}
    for name, how in given:
        if name not in columns:
            raise ConfigError(
                f"Bins are given for {quoted(name)}, which is no column of groups: {', '.join(map(quoted, columns))}."
            )
        if name in cuts:
            raise ConfigError(f"Bins are given twice for column {quoted(name)}.")
        cuts[name] = Cuts(name, how)
    return cuts


def ordered_groups(
    members: list[Hashable], attribute: Key, cuts: Mapping[str, Cuts]
) -> tuple[NDArray[np.int64], list[Key]]:
    """Sort groups, part by part in a crossing; return the codes of ``members`` and the groups."""
    parts = [group if isinstance(group, tuple) else (group,) for group in members]
    ordered = [
        cuts[column].names if column in cuts and not cuts[column].values else in_order(set(values) - {None})
        for column, values in zip(parts_of(attribute), zip(*parts, strict=True), strict=True)
    ]
    ranks = [{value: rank for rank, value in enumerate([*values, None])} for values in ordered]
    order = sorted(set(parts), key=lambda group: [rank[part] for rank, part in zip(ranks, group, strict=True)])
    place = {group: position for position, group in enumerate(order)}
    texts = [tuple(MISSING_GROUP if part is None else str(part) for part in group) for group in order]
    crossed = isinstance(members[0], tuple)
    return np.array([place[group] for group in parts]), [group if crossed else group[0] for group in texts]


def _number(value: object) -> Decimal | None:
    """Return the number that a value is, or that a text spells out, exactly; None of anything else."""
    try:
        return Decimal(str(value)) or Decimal(0)  # -0 is 0
    except (InvalidOperation, ValueError):
        return None


def written(point: float | Decimal) -> str:
    """Return a number as a text that no other number has: a whole one without a point."""
    exact = Decimal(str(point))
    if exact == exact.to_integral_value() and exact.adjusted() < MOST_DIGITS:
        return str(int(exact))
    return str(exact).lower()


def _told_apart(points: Sequence[Decimal], digits: int) -> list[str]:
    """Return points as texts, with this many digits or, where two of them would look alike, with more."""
    for more in range(digits, MOST_DIGITS):
        texts = [written(point) if point == point.to_integral_value() else f"{point:.{more}g}" for point in points]
        if len(set(texts)) == len(texts):
            break
    return texts


def _as_number(value: Hashable, title: str) -> Decimal | None:
    """Return a number; None for a missing value or NaN."""
    number = None if value is None else _number(value)
    if number is None and value is not None:
        raise DataError(f"{title} is cut into ranges, but {quoted(value)} is not a number.")
    return None if number is None or number.is_nan() else number
