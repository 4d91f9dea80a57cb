"""Count rows by label, prediction and what is known of their group; a probability as sums of its powers.

A row is counted and forgotten, whatever the method: no figure about one row is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.missing.gaps import FloatArray
from levelhead.auditing.missing.labelled import FOLDS
from levelhead.tables.columns import Column
from levelhead.tables.tally import patterns_at
from levelhead.types import DataError, quoted

BINS = 100
MOST_PATTERNS = 200_000
MOST_VALUES = 100_000
"""Different values of one column, and different patterns: beyond, it is a column of ids."""
_MOST_COUNTED = 1 << 20

Pattern = tuple[Hashable, ...]


@dataclass
class Roles:
    """Which columns there are besides label and prediction: names, in the order in which they are counted."""

    labelled: str | None = None
    inclusion: str | None = None
    proxies: tuple[str, ...] = ()
    strata: str | None = None

    @property
    def categories(self) -> list[str]:
        """Names of the columns whose values are counted apart, proxies among them."""
        return [*self.proxies, *([self.strata] if self.strata else [])]

    @property
    def columns(self) -> list[str]:
        """Names of all of them."""
        known = [self.labelled, self.inclusion, *self.proxies, self.strata]
        return list(dict.fromkeys(name for name in known if name))


@dataclass
class Tally:
    """Rows by pattern: (label, prediction, group, a value of each category ..., bin of the probability, fold).

    ``sums`` has for each pattern the sums of w^i h^j, (3, 3): h is the probability if the only proxy is one
    (``probability``), and w one over the chance to be labelled, both to the powers 0, 1 and 2.
    """

    roles: Roles
    titles: dict[str, str]
    sums: dict[Pattern, FloatArray] = field(default_factory=dict)
    probability: bool | None = None
    labelled_rows: int = 0
    _kinds: dict[str, bool] = field(default_factory=dict)

    def add(self, label: Column, prediction: Column, columns: dict[str, Column]) -> None:
        """Count the rows of a batch.

        Raises:
            DataError: a proxy is missing or is neither a group nor a probability, a chance to be labelled is none, or
                a column has too many different values.
        """
        roles = self.roles
        nothing: Column = (np.zeros(0, np.int64), [None])  # one value: it takes no place in a row's code
        group = self._few(roles.labelled, columns[roles.labelled]) if roles.labelled else nothing
        parts: list[Column] = [label, prediction, group]
        h: FloatArray | None = None
        for name in roles.proxies:
            own = self._proxy(name, columns[name], alone=len(roles.proxies) == 1)
            if isinstance(own, tuple):
                parts.append(own)
            else:
                self.probability, h = True, own
                parts.append(nothing)
        if roles.strata:
            parts.append(self._few(roles.strata, columns[roles.strata]))
        if h is None:
            parts.append((nothing[0], [0]))
        else:
            parts.append((np.minimum((h * BINS).astype(np.int64), BINS - 1), list(range(BINS))))
        if roles.labelled and roles.proxies:
            parts.append(self._folds(group))
        else:
            parts.append((nothing[0], [0]))
        weight = None
        if roles.inclusion:
            weight = self._weights(columns, np.array([value is not None for value in group[1]])[group[0]])
        self._count(parts, h, weight)

    def _folds(self, group: Column) -> Column:
        """Deal the labelled rows out, one after the other, to the parts of a cross-fit."""
        codes, values = group
        absent = [code for code, value in enumerate(values) if value is None]
        known = np.ones(len(codes), bool)
        for code in absent:
            known &= codes != code
        places = np.flatnonzero(known)
        fold = np.zeros(len(codes), np.int64)
        fold[places] = (np.arange(len(places)) + self.labelled_rows) % FOLDS
        self.labelled_rows += len(places)
        return fold, list(range(FOLDS))

    def _proxy(self, name: str, column: Column, *, alone: bool) -> Column | FloatArray:
        """Return a proxy's groups as a column, or the probabilities (rows,) of one that is ``alone``."""
        codes, values = column
        # Where there are codes, what they stand for is looked at once, and not once for each row.
        numbers = self._numbers(name, column)
        if numbers is None:
            return self._few(name, column)
        if alone:
            return numbers[codes] if values else numbers
        # Of several proxies each speaks by its likelier group.
        likelier = (numbers >= 0.5).astype(np.int64)
        named: list[Hashable] = ["0", "1"]
        if not values:
            return likelier, named
        if likelier.tolist() == list(range(len(values))):
            return codes, named[: len(values)]
        return likelier[codes], named

    def _few(self, name: str, column: Column) -> Column:
        codes, values = column
        if not values and len(codes):  # numbers that are categories: read as texts
            unique, codes = np.unique(codes, return_inverse=True)
            values = [None if number != number else f"{number:g}" for number in unique.tolist()]
        if len(values) > MOST_VALUES:
            raise DataError(f"{self.titles[name]} has more than {MOST_VALUES:,} different values: is this an id?")
        # An empty text is a missing value in a parquet file, too.
        return codes, [None if value is None or value == "" else str(value) for value in values]

    def _numbers(self, name: str, column: Column) -> FloatArray | None:
        """Return a proxy's probabilities, one for each value or, without values, for each row; None if it has groups.

        The first batch says which of the two it is.
        """
        codes, values = column
        rows: NDArray[np.int64] | None = None
        if values:
            number = _as_numbers(values)
            numbers = np.full(len(values), -1.0) if number is None else number
            rows = np.bincount(codes, minlength=len(values))
            there = numbers[rows > 0]
        else:
            numbers = there = np.asarray(codes, np.float64)
        if len(there) and there.min() >= 0 and there.max() <= 1:
            inside, every = True, True
        else:  # NaN is neither above nor below
            within = (there >= 0) & (there <= 1)
            inside, every = bool(within.any()), bool(within.all())
        if not self._kinds.setdefault(name, inside):
            if inside and every:
                raise self._mixed(name)
            return None
        absent = np.isnan(numbers) if not every else None
        if absent is not None and absent.any():
            missing = int(absent.sum() if rows is None else rows[absent].sum())
            if missing:
                raise DataError(
                    f"{self.titles[name]} is missing in {missing:,} row{'' if missing == 1 else 's'}. A proxy must say "
                    "something of every row: fill it in, or leave those rows out."
                )
        if not every:
            raise self._mixed(name)
        return numbers

    def _mixed(self, name: str) -> DataError:
        return DataError(
            f"{self.titles[name]} holds numbers from 0 to 1 and other values. A proxy is either the probability "
            "of a group, in every row, or the name of a group."
        )

    def _weights(self, columns: dict[str, Column], known: NDArray[np.bool_]) -> FloatArray:
        name = self.roles.inclusion
        assert name is not None
        codes, values = columns[name]
        if values:
            number = _as_numbers(values)
            chance = np.full(len(codes), np.nan) if number is None else number[codes]
        else:
            chance = np.asarray(codes, np.float64)
        bad = known & ~((chance > 0) & (chance <= 1))
        if bad.any():
            raise DataError(
                f"{self.titles[name]} must be the probability with which a row was labelled, above 0 and at most 1; "
                f"{int(bad.sum()):,} labelled rows have none such."
            )
        return np.where(known, 1 / np.where(known, chance, 1.0), 1.0)

    def _count(self, parts: Sequence[Column], h: FloatArray | None, weight: FloatArray | None) -> None:
        sizes = [len(values) for _, values in parts]
        if np.prod(np.array(sizes, np.float64)) < 2**62:
            flat = parts[0][0].astype(np.int64)  # a copy, counted on in place
            for (codes, _), size in zip(parts[1:], sizes[1:], strict=True):
                if size > 1:
                    flat *= size
                    flat += codes
            if np.prod(np.array(sizes, np.float64)) <= _MOST_COUNTED:
                places, within = None, flat
            else:
                places, within = np.unique(flat, return_inverse=True)
        else:
            raise DataError("These columns have too many different values together: leave one out, or merge rare ones.")
        length = int(np.prod(sizes)) if places is None else len(places)
        found = np.zeros((length, 3, 3))
        first = np.bincount(within, minlength=length).astype(np.float64)
        for i in range(3):
            for j in range(3):
                if (i == 0 or weight is None) and (j == 0 or h is None):
                    found[:, i, j] = first
                elif weight is None and i > 0:
                    found[:, i, j] = found[:, 0, j]
                elif h is None and j > 0:
                    found[:, i, j] = found[:, i, 0]
                else:
                    factor: Any = 1.0 if not i or weight is None else weight**i
                    factor = factor * (1.0 if not j or h is None else h**j)
                    found[:, i, j] = np.bincount(within, weights=factor, minlength=length)
        filled = np.flatnonzero(first)
        named = patterns_at(filled if places is None else places[filled], parts)
        for pattern, sums in zip(named, found[filled], strict=True):
            if pattern in self.sums:
                self.sums[pattern] += sums
            else:
                self.sums[pattern] = sums
        if len(self.sums) > MOST_PATTERNS:
            raise DataError(
                f"{', '.join(quoted(name) for name in self.roles.columns)} have more than {MOST_PATTERNS:,} "
                f"different values "
                "together: are there ids among them? Merge rare values, or leave a column out."
            )


def _as_numbers(values: Sequence[Hashable]) -> FloatArray | None:
    """Return values as floats, NaN where one is missing; None if one is no number."""
    try:
        return np.array([np.nan if value is None else float(str(value)) for value in values])
    except ValueError:
        return None
