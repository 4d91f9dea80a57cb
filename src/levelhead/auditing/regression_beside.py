"""Errors of predicted numbers within levels of another column, and beside another model's on the same rows.

*Within levels* groups are compared among rows of the same level, and the differences are averaged; a level weighs as
many of the rows as it holds, among the levels in which both groups have enough rows (:mod:`levelhead.auditing.control`
does so with rates). The ends come by variance recovery (Zou and Donner, Statistics in Medicine 2008) from those of each
group's mean in each level.

*Against another model* a group's change is the mean of the changes of its rows, new less old: a paired comparison. The
change of a difference of two groups is the difference of their changes. Means have the intervals of
:mod:`levelhead.metrics.moments`. All intervals of a kind hold together (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from levelhead.auditing.options import texts_of
from levelhead.auditing.regression_page import QUANTITIES
from levelhead.metrics.between import Differences, difference_of, shared
from levelhead.metrics.counts import IntArray
from levelhead.metrics.moments import GroupMoments
from levelhead.metrics.names import Key, group_name
from levelhead.report.record import Finding, Told
from levelhead.report.text import counted, digits, number
from levelhead.tables.columns import Column, FloatArray
from levelhead.tables.files import Stored
from levelhead.types import DataError, Estimate, printable

PLACES = {"mean_prediction": 1, "mean_error": 2, "mean_absolute_error": 3}
"""Of the quantities among label, prediction, error and its size."""
NAMED_PAIRS = 16
"""Pairs of groups that are kept of each column and quantity."""
NAMED = 5
"""Groups whose change sentences name."""
Used = NDArray[np.bool_]
One = TypeVar("One")


@dataclass(frozen=True)
class Compared:
    """What is compared, by sensitive column, and how.

    Attributes:
        kept: the groups, in their order.
        pairs: places of the first and the second group of each pair.
        names: what the column is called.
        groups_of: the group of each member that rows are counted by.
        level: of the intervals.
        min_count: fewest rows of a group for its mean to count.
        plain: column, quantity and groups of the pair that the audit names without levels; None: there is none.
    """

    kept: Mapping[Key, Sequence[Key]]
    pairs: Mapping[Key, tuple[IntArray, IntArray]]
    names: Mapping[Key, str]
    groups_of: Mapping[Key, Mapping[Any, Key]]
    level: float
    min_count: int
    plain: tuple[str, str, set[str]] | None = None

    def members(self, key: Key) -> list[str]:
        """Return the names of the groups of a column."""
        return list(map(group_name, self.kept[key]))


@dataclass(frozen=True)
class LevelPair(Finding):
    """The first group's mean less the second's, averaged over ``levels``; ``plain``: without regard to them.

    ``covered`` is the share of all rows that these levels hold.
    """

    attribute: str
    quantity: str
    first: str
    second: str
    difference: Estimate
    plain: float
    levels: int
    covered: float

    @property
    def about(self) -> tuple[str, str, set[str]]:
        """Column, quantity and groups."""
        return self.attribute, self.quantity, {self.first, self.second}


@dataclass(frozen=True)
class WithinLevels(Told):
    """Pairs of groups within levels of a ``column``; ``without``: rows of no level.

    The pair that the audit names without levels comes first, then the clearest and largest.
    """

    column: str
    pairs: tuple[LevelPair, ...]
    comparisons: int
    without: int

    def sentences(self) -> list[str]:
        """Say the first difference within levels, and what it is without them."""
        within = f"Within strata of {printable(self.column, 60)}"
        if not self.pairs:
            return [f"{within}, no two groups have enough rows in one level to be compared."]
        one = self.pairs[0]
        told = "" if one.difference.excludes_zero else "; inconclusive"
        return [
            f"{within}, the {QUANTITIES[one.quantity].lower()} of {printable(one.first)} is "
            f"{digits(one.difference.value)} more than that of {printable(one.second)} (interval "
            f"{digits(one.difference.low)} to {digits(one.difference.high)}){told}. Without levels it is "
            f"{digits(one.plain)}.",
            f"The average within strata is over {counted(one.levels, 'level')} with {number(100 * one.covered)}% of "
            "the rows.",
        ]


def within_levels(found: Mapping[Key, GroupMoments], asked: Compared, column: str, rows: int) -> WithinLevels:
    """Compare groups within levels of a ``column``.

    Args:
        found: the moments of each (group, level), by sensitive column.
        asked: what is compared.
        column: what the levels are of.
        rows: all rows, also those without a level.
    """
    pairs = asked.pairs
    tables = {
        key: _Levels.of(one, asked.kept[key], asked.groups_of[key], asked.min_count, rows) for key, one in found.items()
    }
    used = {key: one.enough[:, pairs[key][0]] & one.enough[:, pairs[key][1]] for key, one in tables.items()}
    comparisons = len(QUANTITIES) * sum(int(one.any(0).sum()) for one in used.values())
    made: list[LevelPair] = []
    for key, one in tables.items():
        members = asked.members(key)
        for quantity in QUANTITIES if used[key].any() else ():
            ends = one.ends(found[key], quantity, shared(asked.level, comparisons))
            of_pairs = []
            for first, second, there in zip(*pairs[key], used[key].T, strict=True):
                there = there & np.isfinite(ends[:, :, [first, second]]).all((0, 2))
                if there.any():
                    both = members[first], members[second]
                    of_pairs.append(one.averaged(asked.names[key], quantity, both, ends, [first, second], there))
            named = _named(of_pairs, [pair.difference for pair in of_pairs])
            made += [*named, *(pair for pair in of_pairs if asked.plain == pair.about and pair not in named)]
    order = list(QUANTITIES)
    made.sort(
        key=lambda one: (
            asked.plain != one.about, not one.difference.excludes_zero, order.index(one.quantity), -one.difference.value
        )
    )  # fmt: skip
    without = rows - int(next(iter(tables.values())).size.sum())
    return WithinLevels(column, tuple(made), comparisons, without)


@dataclass(frozen=True)
class _Levels:
    """One sensitive column: places of moments and rows, (levels, groups), rows of each level, and which are enough.

    ``every`` counts all rows, also those without a level.
    """

    places: IntArray
    rows: IntArray
    size: IntArray
    enough: Used
    every: int

    @classmethod
    def of(
        cls, found: GroupMoments, kept: Sequence[Key], groups_of: Mapping[Any, Key], min_count: int, every: int
    ) -> _Levels:
        place = {group: at for at, group in enumerate(kept)}
        levels = {level: at for at, level in enumerate(dict.fromkeys(level for _, level in found.places))}
        shape = len(levels), len(place)
        places, rows, size = np.full(shape, -1), np.zeros(shape, np.int64), np.zeros(len(levels), np.int64)
        for (group, level), at in found.places.items():
            own = int(found.known.rows[at])
            size[levels[level]] += own
            if groups_of[group] in place:
                where = levels[level], place[groups_of[group]]
                places[where], rows[where] = at, own
        return cls(places, rows, size, rows >= min_count, every)

    def ends(self, found: GroupMoments, quantity: str, level: float) -> FloatArray:
        """Return value, low and high of each group in each level, (3, levels, groups); NaN where rows are too few."""
        ends = np.full((3, *self.rows.shape), np.nan)
        for k, i in np.argwhere(self.enough):
            at, skewed = int(self.places[k, i]), quantity == "mean_absolute_error"
            one = found.known.estimate(PLACES[quantity], at, level, skewed=skewed)
            ends[:, k, i] = one.value, one.low, one.high
        return ends

    def averaged(
        self, name: str, quantity: str, members: tuple[str, str], ends: FloatArray, pair: list[int], there: Used
    ) -> LevelPair:
        """Return the difference of a ``pair`` averaged over the levels that are ``there``, the larger mean first."""
        size, rows = self.size[there], self.rows[there][:, pair]
        weight = size / size.sum()
        means = ends[:, there][:, :, pair]
        value = weight @ means[0]
        # Of each end the arms of the levels, as one interval: variance recovery for a weighted sum.
        arms = np.sqrt(((weight[:, None] * (means - means[0])) ** 2).sum(1))
        plain = (means[0] * rows).sum(0) / rows.sum(0)
        one, other = (0, 1) if value[0] >= value[1] else (1, 0)
        both = Differences(value, value - arms[1], value + arms[2])
        difference = difference_of(both.at(one, rows[:, one].sum()), both.at(other, rows[:, other].sum()))
        covered = float(size.sum() / self.every)
        return LevelPair(
            name, quantity, members[one], members[other], difference, float(plain[one] - plain[other]),
            int(there.sum()), covered,
        )  # fmt: skip


@dataclass(frozen=True)
class ErrorChange(Finding):
    """A mean of two models, ``change`` is new less old: of a ``group``, or of its difference to ``other``."""

    attribute: str
    quantity: str
    group: str
    other: str | None
    old: float
    new: float
    change: Estimate


@dataclass(frozen=True)
class AgainstNumbers(Told):
    """Changes between the models ``old`` and ``new`` on the same ``rows``, groups before pairs, the clearest first."""

    old: str
    new: str
    rows: int
    changes: tuple[ErrorChange, ...]
    comparisons: int

    def sentences(self) -> list[str]:
        """Say for which groups errors became smaller or larger, and whether the clearest gap changed."""
        own = [one for one in self.changes if one.quantity == "mean_absolute_error"]
        if not own:
            return ["No group has enough rows of both models to be compared."]
        groups = [one for one in own if one.other is None]
        said = [_change_sentence(one) for one in groups if one.change.excludes_zero][:NAMED]
        if not said:
            said = ["For no group do these rows show a change of the mean absolute error."]
        return said + [_change_sentence(one) for one in own if one.other is not None][:1]


def _change_sentence(one: ErrorChange) -> str:
    who, old, new = printable(one.group), one.old, one.new
    what = f"By {printable(one.attribute)}, the mean absolute error of {who}"
    sign = 1
    if one.other is not None:
        sign = -1 if old < 0 else 1
        names = (one.other, one.group) if sign < 0 else (one.group, one.other)
        what = f"By {printable(one.attribute)}, the difference in mean absolute error between {printable(names[0])}"
        what += f" and {printable(names[1])}"
    low, high = sorted((sign * one.change.low, sign * one.change.high))
    told = f"{what} went from {digits(sign * old)} to {digits(sign * new)}"
    size = f"a change of {digits(sign * one.change.value)}, interval {digits(low)} to {digits(high)}"
    if one.change.excludes_zero:
        return f"{told}: {size}."
    if np.isnan(one.change.low):
        return f"{told}; the change has no interval, because it is the same in all rows."
    return f"{told}; inconclusive: {size}."


CHANGES = {"mean_error": (0, 2), "mean_absolute_error": (1, 3)}
"""Places of the new model's mean and of the change among error, its size, and the changes of both."""


def changes_against(found: Mapping[Key, GroupMoments], asked: Compared, models: tuple[str, str]) -> AgainstNumbers:
    """Compare two models on the same rows, from the moments of each group by sensitive column."""
    made: list[ErrorChange] = []
    members, there, both = {}, {}, {}
    for key, one in found.items():
        own = {asked.groups_of[key][group]: at for group, at in one.places.items()}
        members[key] = [own[group] for group in asked.kept[key]]
        there[key] = _rows(one)[members[key]] >= asked.min_count
        pairs = np.transpose(asked.pairs[key])
        both[key] = pairs[there[key][pairs].all(1)]
    comparisons = len(CHANGES) * sum(len(both[key]) + int(there[key].sum()) for key in found)
    for key, one in found.items():
        name, names_of, level = asked.names[key], asked.members(key), shared(asked.level, comparisons)
        for quantity, (new_at, change_at) in CHANGES.items():
            new, change = {}, {}
            for at in np.flatnonzero(there[key]).tolist():
                new[at] = float(one.known.mean[new_at, members[key][at]])
                change[at] = own_change = one.known.estimate(change_at, members[key][at], level)
                old = new[at] - own_change.value
                made.append(ErrorChange(name, quantity, names_of[at], None, old, new[at], own_change))
            of_pairs = []
            for i, j in both[key].tolist():
                apart, of_gap = new[i] - new[j], difference_of(change[i], change[j])
                pair = names_of[i], names_of[j]
                of_pairs.append(ErrorChange(name, quantity, *pair, apart - of_gap.value, apart, of_gap))
            made += _named(of_pairs, [pair.change for pair in of_pairs])
    order = list(QUANTITIES)
    made.sort(
        key=lambda one: (
            one.other is not None, not one.change.excludes_zero, order.index(one.quantity), -abs(one.change.value)
        )
    )  # fmt: skip
    rows = int(_rows(next(iter(found.values()))).sum()) if found else 0
    return AgainstNumbers(*models, rows, tuple(made), comparisons)


def _named(pairs: Sequence[One], figures: Sequence[Estimate]) -> list[One]:
    """Return the pairs of a column that are kept of one quantity, whose differences or changes are the ``figures``."""
    ends = np.array([(one.value, one.low, one.high) for one in figures]).reshape(-1, 3)
    return [pairs[at] for at in Differences(*ends.T).named(NAMED_PAIRS)]


def _rows(found: GroupMoments) -> IntArray:
    return np.zeros(0, np.int64) if found.moments is None else found.moments.rows


def has_level(level: Column) -> Used:
    """Say which rows (rows,) have a level; of crossed columns, one of each."""
    codes, values = level
    return np.array([None not in (one if isinstance(one, tuple) else (one,)) for one in values], bool)[codes]


def crossed_with(groups: Column, level: Column, there: Used) -> Column:
    """Return pairs of group and level, as codes and values, of the rows that are ``there``."""
    codes = groups[0][there] * len(level[1]) + level[0][there]
    found, places = np.unique(codes, return_inverse=True)
    return places, [(groups[1][at // len(level[1])], level[1][at % len(level[1])]) for at in found.tolist()]


class OtherNumbers:
    """Another model's predictions in a table of its own, matched to rows by an id, or by their order.

    Args:
        source: the table.
        label: the column of true numbers, which must be those of the audited rows.
        prediction: the column of predicted numbers.
        on: the column of ids; None: rows are in the same order.
    """

    def __init__(self, source: Stored, label: str, prediction: str, on: str | None) -> None:
        self.source, self.label, self.on = source, label, on
        parts = list(source.batches([on] if on else [], (), [label, prediction]))
        self.labels, self.predictions = (
            np.concatenate([one.numbers[name] for one in parts]) for name in (label, prediction)
        )
        self.ids: Any = None
        if on is not None:
            self.ids = pd.Index([one for batch in parts for one in texts_of(batch.outcomes[on])])
        if self.ids is not None and not self.ids.is_unique:
            first, second = np.flatnonzero(self.ids == self.ids[self.ids.duplicated()][0])[:2]
            raise DataError(_same_id(source.title(str(on)), first, second))
        self.before, self.alone, self.found = 0, 0, 0
        self._row_of = np.full(len(self.labels), -1)

    def of(
        self, label: FloatArray, ids: NDArray[Any] | None, count: IntArray | None = None, title: str = ""
    ) -> FloatArray:
        """Return the predictions (rows,) for the next rows as they are read, NaN of those without a partner.

        Args:
            label: (rows,) true numbers; where one is missing, the reader raises an error after the last row.
            ids: (rows,) ids; None: rows are in the same order.
            count: (rows,) how many people each row represents; rows with 0 are not compared.
            title: what errors call the ids.

        Raises:
            DataError: a partner has another label, or two rows have one id.
        """
        if self.ids is not None:
            places = self.ids.get_indexer(pd.Index([] if ids is None else list(ids)))
        else:
            places = np.arange(self.before, self.before + len(label))
            places[places >= len(self.labels)] = -1
        there = places >= 0
        self._take(places[there], self.before + np.flatnonzero(there), title)
        self.before += len(label)
        used = np.isfinite(label) if count is None else np.isfinite(label) & (count > 0)
        self.alone, self.found = self.alone + int((used & ~there).sum()), self.found + int((used & there).sum())
        wrong = np.flatnonzero(used & there & (self.labels[places] != label))
        if len(wrong):
            raise DataError(
                f"{len(wrong):,} rows have another label in {self.source.title(self.label)} than in the audited file. "
                "The rows must be the same and in the same order; if the files have a column of ids, match by it: --on."
            )
        return np.where(there, self.predictions[places], np.nan)

    def _take(self, places: IntArray, rows: IntArray, title: str) -> None:
        """Note which row has which partner; raise :class:`DataError` where another row has the same one."""
        free = self._row_of[places] < 0
        self._row_of[places[free][::-1]] = rows[free][::-1]  # of two in one batch, the first stays
        again = np.flatnonzero(self._row_of[places] != rows)
        if len(again):
            raise DataError(_same_id(title, self._row_of[places[again[0]]], rows[again[0]]))

    def check(self) -> list[str]:
        """Say how many rows have no partner, after the last row; raise an error where none has."""
        if self.ids is None and self.before != len(self.labels):
            raise DataError(
                f"The audited file has {self.before:,} rows and {self.source} has {len(self.labels):,}. Both must hold "
                "the same rows in the same order, or a column of ids to match them by: --on."
            )
        if not self.found:
            raise DataError(
                f"The files share no id in {self.source.title(str(self.on))}: are they written the same way?"
            )
        missed = int((self._row_of < 0).sum())
        if not self.alone and not missed:
            return []
        return [
            f"{self.alone:,} audited rows and {missed:,} of {self.source.name} have no partner: the models are "
            f"compared on {self.found:,} rows."
        ]


def _same_id(title: str, first: int, second: int) -> str:
    return f"{title}: rows {first + 1:,} and {second + 1:,} (counted from 1) have the same id. Each id must be unique."
