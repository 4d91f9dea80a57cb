"""Count rows by label, prediction and what is known of their group; a probability as sums of its powers.

A row is counted and forgotten, whatever the method: no figure about one row is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import mul
from typing import NamedTuple

import numpy as np

from levelhead.auditing.unknown.known import Known
from levelhead.metrics.group import FloatArray
from levelhead.report.text import counted
from levelhead.tables.bins import written
from levelhead.tables.columns import Column
from levelhead.tables.tally import MOST_COUNTED_CELLS, crossed, occurring_codes, patterns_at
from levelhead.types import DataError, quoted

BINS = 100
FARTHEST_SUM = 0.011
"""Largest distance of a row's probabilities from sum 1: that of several rounded to two digits."""
MOST_PATTERNS = 200_000
MOST_VALUES = 100_000
"""Different values of one column, and different patterns: beyond, it is a column of ids."""
NOTHING: Column = (np.zeros(1, np.int64), [None])
"""A column that is not there: all rows have one value."""
ONE_BIN: Column = (np.zeros(1, np.int64), [0])
Factor = FloatArray | None
"""Numbers (rows,), or 1 in every row."""


class Pattern(NamedTuple):
    """What rows that are counted together have in common.

    ``said`` is what each proxy says that names a group; a probability is in one of :data:`BINS`.
    """

    label: Hashable
    prediction: Hashable
    group: Hashable
    said: tuple[Hashable, ...]
    bin: int


@dataclass
class Tally:
    """Rows by pattern, of the columns that ``known`` names.

    ``sums`` has for each pattern the sums of h^j, (1, 3): h is the probability if the only proxy is one
    (``probability``), to the powers 0, 1 and 2. With a probability for each group, it has the sums of v v' instead,
    v = (1, p_1, ...); ``rounded`` rows had sums of p that are not quite 1.
    """

    known: Known
    titles: dict[str, str]
    sums: dict[Pattern, FloatArray] = field(default_factory=dict)
    probability: bool = False
    seen: int = 0
    rounded: int = 0
    _kinds: dict[str, bool] = field(default_factory=dict)

    def add(self, label: Column, prediction: Column, columns: Mapping[str, Column]) -> None:
        """Count the rows of a batch.

        Raises:
            DataError: a proxy is missing or is neither a group nor a probability, or a column has too many different
                values.
        """
        known = self.known
        if known.probabilities:
            self._add_probabilities(label, prediction, columns)
        else:
            group = self._few(known.labelled, columns[known.labelled]) if known.labelled else NOTHING
            said, right, steps = list[Column](), list[Factor]([None] * 3), ONE_BIN
            for name in known.proxies:
                own = self._proxy(name, columns[name])
                if isinstance(own, tuple):
                    said.append(own)
                elif len(known.proxies) == 1:
                    self.probability, right = True, [None, own, own**2]
                    said.append(NOTHING)
                    steps = _in_steps(own, BINS)
                else:  # of several proxies each speaks by its likelier group
                    said.append(((own >= 0.5).astype(np.int64), ["0", "1"]))
            self._count([label, prediction, group, *said, steps], [None], right)
        self.seen += len(label[0])

    def _add_probabilities(self, label: Column, prediction: Column, columns: Mapping[str, Column]) -> None:
        """Count the rows of a batch by their probabilities, in steps, with the sums of all products of two of them."""
        given = self.known.probabilities.items()
        p = np.stack([self._fractions(name, columns, f"the probability of {quoted(one)}") for one, name in given], -1)
        if p.shape[1] == 1:
            p = np.concatenate([1 - p, p], -1)
        total = p.sum(-1)
        if len(wrong := np.flatnonzero(np.abs(total - 1) > FARTHEST_SUM)):
            raise DataError(
                f"The probabilities of {counted(len(wrong), 'row')} do not add to 1; the first add to "
                f"{total[wrong[0]]:.4g}, in row {self.seen + wrong[0] + 1:,} (counted from 1). Name the column of "
                "every group, or of one group alone."
            )
        self.rounded += int((np.abs(total - 1) > 1e-6).sum())
        p = p / total[:, None]
        steps = {2: BINS, 3: 20}.get(p.shape[1], 10)
        said = [_in_steps(one, steps) for one in p.T[1:]]  # the first follows from the others
        vector = [None, *p.T]
        self._count([label, prediction, NOTHING, *said, ONE_BIN], vector, vector)

    def _fractions(self, name: str, columns: Mapping[str, Column], what: str) -> FloatArray:
        """Return the probabilities of a column, (rows,)."""
        found = _numbers(columns[name])
        if found is None:
            raise DataError(f"{self.titles[name]} holds other values than numbers.")
        if len(wrong := np.flatnonzero(~((found >= 0) & (found <= 1)))):
            raise DataError(
                f"{self.titles[name]}: {what} is missing or not within 0 to 1 in {counted(len(wrong), 'row')}, first "
                f"in row {self.seen + wrong[0] + 1:,} (counted from 1). Fill it in, or leave those rows out."
            )
        return found

    def _proxy(self, name: str, column: Column) -> Column | FloatArray:
        """Return the groups that a proxy says as a column, or its probabilities (rows,).

        The first batch says which of the two it is.
        """
        numbers = _numbers(column)
        inside = np.zeros(1, bool) if numbers is None else (numbers >= 0) & (numbers <= 1)
        of_numbers = self._kinds.setdefault(name, bool(inside.any()))
        if of_numbers and numbers is not None and inside.all():
            return numbers
        if not of_numbers and not inside.all():
            return self._few(name, column)
        if numbers is not None and (missing := int(np.isnan(numbers).sum())):
            raise DataError(
                f"{self.titles[name]} is missing in {counted(missing, 'row')}. A proxy needs a value in every row: "
                "fill it in, or leave those rows out."
            )
        raise DataError(
            f"{self.titles[name]} holds numbers from 0 to 1 and other values. A proxy is either the probability "
            "of a group, in every row, or the name of a group."
        )

    def _few(self, name: str, column: Column) -> Column:
        codes, values = column
        if not values and len(codes):  # numbers that are categories: read as texts
            unique, codes = np.unique(codes, return_inverse=True)
            values = [None if number != number else written(number) for number in unique.tolist()]
        if len(values) > MOST_VALUES:
            raise DataError(f"{self.titles[name]} has more than {MOST_VALUES:,} different values: is this an id?")
        # An empty text is a missing value in a parquet file, too.
        return codes, [None if value is None or value == "" else str(value) for value in values]

    def _count(self, parts: Sequence[Column], left: Sequence[Factor], right: Sequence[Factor]) -> None:
        """Add the rows of patterns, with the sums of all products of a factor of ``left`` and one of ``right``."""
        size = np.prod([float(len(values)) for _, values in parts])
        if size >= 2**62:
            raise DataError("These columns have too many different values together: leave one out, or merge rare ones.")
        flat = crossed(parts)
        places, rows = occurring_codes(flat, parts)
        found = np.empty((len(places), len(left), len(right)))
        few = size <= MOST_COUNTED_CELLS  # they are looked up faster than they are searched for
        within, there = (flat, places) if few else (None, np.arange(len(places)))
        for (i, first), (j, second) in itertools.product(enumerate(left), enumerate(right)):
            factors = [one for one in (first, second) if one is not None]
            if factors:
                within = np.searchsorted(places, flat) if within is None else within
                found[:, i, j] = np.bincount(within, weights=reduce(mul, factors))[there]
            else:
                found[:, i, j] = rows
        for (label, prediction, group, *said, part), sums in zip(patterns_at(places, parts), found, strict=True):
            pattern = Pattern(label, prediction, group, tuple(said), part)
            self.sums[pattern] = self.sums[pattern] + sums if pattern in self.sums else sums
        if len(self.sums) > MOST_PATTERNS:
            raise DataError(
                f"{', '.join(quoted(name) for name in self.known.columns)} have more than {MOST_PATTERNS:,} different "
                "values together: are there ids among them? Merge rare values, or leave a column out."
            )


def _numbers(column: Column) -> FloatArray | None:
    """Return the numbers of a column (rows,), NaN where one is missing; None if it holds others."""
    codes, values = column
    if not values:
        return np.asarray(codes, np.float64)
    try:
        return np.array([np.nan if value is None else float(str(value)) for value in values])[codes]
    except ValueError:
        return None


def _in_steps(p: FloatArray, steps: int) -> Column:
    """Return the range, of ``steps`` equal ones, in which each probability is."""
    return np.minimum((p * steps).astype(np.int64), steps - 1), list[Hashable](range(steps))
