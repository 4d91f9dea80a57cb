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
from numpy.typing import NDArray

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


class Pattern(NamedTuple):
    """What rows that are counted together have in common.

    ``said`` is what each proxy says that names a group; a probability is in one of :data:`BINS`.
    """

    label: Hashable
    prediction: Hashable
    group: Hashable
    said: tuple[Hashable, ...]
    stratum: Hashable
    bin: int


@dataclass
class Tally:
    """Rows by pattern, of the columns that ``known`` names.

    ``sums`` has for each pattern the sums of w^i h^j, (3, 3): h is the probability if the only proxy is one
    (``probability``), and w one over the chance to be labelled, both to the powers 0, 1 and 2. Where there are such
    chances, it is (7, 3): the sums of the chance to the powers 1 to 4 follow. With a probability for each group, it
    has the sums of v v' instead, v = (1, p_1, ...); ``rounded`` rows had sums of p that are not quite 1.
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
            DataError: a proxy is missing or is neither a group nor a probability, a chance to be labelled is none, or
                a column has too many different values.
        """
        known = self.known
        if known.probabilities:
            self._add_probabilities(label, prediction, [columns[name] for name in known.probabilities.values()])
            return
        group = self._few(known.labelled, columns[known.labelled]) if known.labelled else NOTHING
        parts, h, chance = [label, prediction, group], None, None
        for name in known.proxies:
            own = self._proxy(name, columns[name], alone=len(known.proxies) == 1)
            if isinstance(own, tuple):
                parts.append(own)
            else:
                self.probability, h = True, own
                parts.append(NOTHING)
        parts.append(self._few(known.strata, columns[known.strata]) if known.strata else NOTHING)
        bins: list[Hashable] = list(range(BINS))
        parts.append((NOTHING[0], [0]) if h is None else (np.minimum((h * BINS).astype(np.int64), BINS - 1), bins))
        if known.inclusion:
            chance = self._chances(known.inclusion, columns, np.array([one is not None for one in group[1]])[group[0]])
        self._count(parts, h, chance)

    def _add_probabilities(self, label: Column, prediction: Column, given: Sequence[Column]) -> None:
        """Count the rows of a batch by their probabilities, in steps, with the sums of all products of two of them."""
        names = list(self.known.probabilities)
        p = np.stack([self._probability(name, one) for name, one in zip(names, given, strict=True)], -1)
        if len(names) == 1:
            p = np.concatenate([1 - p, p], -1)
        total = p.sum(-1)
        if len(wrong := np.flatnonzero(np.abs(total - 1) > FARTHEST_SUM)):
            raise DataError(
                f"The probabilities of {counted(len(wrong), 'row')} do not add to 1; the first add to "
                f"{total[wrong[0]]:.4g}, in row {self.seen + wrong[0] + 1:,} (counted from 1). Name the column of "
                "every group, or of one group alone."
            )
        self.seen += len(p)
        self.rounded += int((np.abs(total - 1) > 1e-6).sum())
        p = p / total[:, None]
        steps = BINS if p.shape[1] == 2 else 20 if p.shape[1] == 3 else 10
        coded = np.minimum((p[:, 1:] * steps).astype(np.int64), steps - 1)  # the first follows from the others
        whole: list[Hashable] = list(range(steps))
        said: list[Column] = [(one, whole) for one in coded.T]
        one_bin: Column = (NOTHING[0], [0])
        parts = [label, prediction, NOTHING, *said, NOTHING, one_bin]
        self._count(parts, None, None, np.concatenate([np.ones((len(p), 1)), p], 1))

    def _probability(self, group: str, column: Column) -> FloatArray:
        """Return the probability of a group, (rows,)."""
        codes, values = column
        found = np.asarray(codes, np.float64)
        if values:
            number = _as_numbers(values)
            if number is None:
                raise DataError(f"{self.titles[self.known.probabilities[group]]} holds other values than numbers.")
            found = number[codes]
        if len(wrong := np.flatnonzero(~((found >= 0) & (found <= 1)))):
            raise DataError(
                f"{self.titles[self.known.probabilities[group]]}: the probability of {quoted(group)} is missing or not "
                f"within 0 to 1 in {counted(len(wrong), 'row')}, first in row {self.seen + wrong[0] + 1:,} (counted "
                "from 1). Fill it in, or leave those rows out."
            )
        return found

    def _proxy(self, name: str, column: Column, *, alone: bool) -> Column | FloatArray:
        """Return a proxy's groups as a column, or the probabilities (rows,) of one that is ``alone``."""
        codes, values = column
        # Where there are codes, what they represent is looked at once, and not once for each row.
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
            values = [None if number != number else written(number) for number in unique.tolist()]
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
        within = (there >= 0) & (there <= 1)
        inside, every = bool(within.any()), bool(within.all())
        if not self._kinds.setdefault(name, inside):
            if inside and every:
                raise self._mixed(name)
            return None
        if every:
            return numbers
        absent = np.isnan(numbers)
        if missing := int(absent.sum() if rows is None else rows[absent].sum()):
            raise DataError(
                f"{self.titles[name]} is missing in {counted(missing, 'row')}. A proxy needs a value in every row: "
                "fill it in, or leave those rows out."
            )
        raise self._mixed(name)

    def _mixed(self, name: str) -> DataError:
        return DataError(
            f"{self.titles[name]} holds numbers from 0 to 1 and other values. A proxy is either the probability "
            "of a group, in every row, or the name of a group."
        )

    def _chances(self, name: str, columns: Mapping[str, Column], known: NDArray[np.bool_]) -> FloatArray:
        """Return the chance to be labelled, (rows,); NaN where a row without a label has none."""
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
                f"{int(bad.sum()):,} labelled rows have another value."
            )
        return np.where((chance >= 0) & (chance <= 1), chance, np.nan)

    def _count(
        self, parts: Sequence[Column], h: FloatArray | None, chance: FloatArray | None, vector: FloatArray | None = None
    ) -> None:
        size = np.prod([float(len(values)) for _, values in parts])
        if size >= 2**62:
            raise DataError("These columns have too many different values together: leave one out, or merge rare ones.")
        flat = crossed(parts)
        places, rows = occurring_codes(flat, parts)
        found = np.tile(rows.astype(np.float64)[:, None, None], (1, 3, 3))
        if vector is not None:
            within, width = np.searchsorted(places, flat), vector.shape[1]
            found = np.empty((len(places), width, width))
            for i, j in itertools.combinations_with_replacement(range(width), 2):
                found[:, i, j] = found[:, j, i] = np.bincount(within, weights=vector[:, i] * vector[:, j])
        elif h is not None or chance is not None:
            # Only labelled rows count by their weight; the others may lack a chance, or have one of 0.
            weight = None if chance is None else 1 / np.where(chance > 0, chance, 1.0)
            few = size <= MOST_COUNTED_CELLS  # they are looked up faster than they are searched for
            within, there = (flat, places) if few else (np.searchsorted(places, flat), np.arange(len(places)))
            for i, j in itertools.product(range(1 if weight is None else 3), range(1 if h is None else 3)):
                if i or j:
                    factors = (one**power for one, power in ((weight, i), (h, j)) if one is not None and power)
                    found[:, i, j] = np.bincount(within, weights=reduce(mul, factors))[there]
            if weight is None:
                found[:, 1:] = found[:, :1]
            if h is None:
                found[:, :, 1:] = found[:, :, :1]
            if chance is not None:
                own = [np.bincount(within, weights=chance**power)[there] for power in range(1, 5)]
                found = np.concatenate([found, np.tile(np.stack(own, 1)[:, :, None], (1, 1, 3))], 1)
        for one, sums in zip(patterns_at(places, parts), found, strict=True):
            label, prediction, group, *said, stratum, part = one
            pattern = Pattern(label, prediction, group, tuple(said), stratum, part)
            self.sums[pattern] = self.sums[pattern] + sums if pattern in self.sums else sums
        if len(self.sums) > MOST_PATTERNS:
            raise DataError(
                f"{', '.join(quoted(name) for name in self.known.columns)} have more than {MOST_PATTERNS:,} different "
                "values together: are there ids among them? Merge rare values, or leave a column out."
            )


def _as_numbers(values: Sequence[Hashable]) -> FloatArray | None:
    """Return values as floats, NaN where one is missing; None if one is no number."""
    try:
        return np.array([np.nan if value is None else float(str(value)) for value in values])
    except ValueError:
        return None
