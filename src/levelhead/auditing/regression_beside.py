"""Errors of predicted numbers: between groups, within levels of another column, and beside another model's.

*Within levels* groups are compared among rows of the same level, and the differences are averaged; a level weighs as
many of the rows as it holds, among the levels in which both groups have enough rows (:mod:`levelhead.auditing.control`
does so with rates).

*Against another model* a group's change is the mean of the changes of its rows, new less old: a paired comparison. The
change of a difference of two groups is the difference of their changes.

Means have the intervals of :mod:`levelhead.metrics.moments`, and differences and averages theirs by variance recovery
(Zou and Donner, Statistics in Medicine 2008). All intervals of a kind hold together (Bonferroni).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from levelhead.auditing.engine import Pair, Quantity, compare, independent
from levelhead.metrics.between import Differences
from levelhead.metrics.contrasts import BoolArray
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import Key
from levelhead.report.record import Finding, Told
from levelhead.report.text import counted, digits, number
from levelhead.types import Estimate, printable

QUANTITIES = {
    "mean_error": "Mean error",
    "mean_absolute_error": "Mean absolute error",
    "mean_prediction": "Mean prediction",
}
"""Quantities that groups are compared in, in order of importance."""
PLACES = {"mean_prediction": 1, "mean_error": 2, "mean_absolute_error": 3}
"""Of the quantities among label, prediction, error and its size."""
CHANGES = {"mean_error": (0, 2), "mean_absolute_error": (1, 3)}
"""Places of the new model's mean and of the change among error, its size, and the changes of both."""
UNCHANGED = "(unchanged)"
"""The other side of the pair that is a group’s own change."""
NAMED = 5
"""Groups whose change sentences name."""


@dataclass(frozen=True)
class Column:
    """The groups of a sensitive column or crossing that are compared: their names, and their places among all groups.

    ``reference``: the group that the others are compared with.
    """

    name: str
    groups: Sequence[str]
    kept: IntArray
    reference: str | None = None

    def quantity(self, name: str, value: FloatArray, rows: IntArray, apart: Any, **more: Any) -> Quantity:
        """Return a quantity of the compared groups, (groups,) each."""
        own = {"reference": self.reference, "rank": list(QUANTITIES).index(name)} | more
        return Quantity(self.name, name, self.groups, value, rows, apart, **own)

    def means(self, moments: Moments) -> list[Quantity]:
        """Return the means of the compared groups, from the moments of all."""
        return [
            self.quantity(
                name, moments.mean[at][self.kept], moments.rows[self.kept], self.independent(figures_of(moments, name))
            )
            for name, at in PLACES.items()
        ]

    def independent(self, figures: Callable[[float], Differences]) -> Callable[..., Differences]:
        """Return how compared groups differ, from the ``figures`` of all groups at a level."""
        return independent(lambda level: Differences(*(part[self.kept] for part in figures(level))))


def figures_of(moments: Moments, name: str) -> Callable[[float], Differences]:
    """Return the means of a quantity, with intervals at a level."""
    return partial(moments.means, PLACES[name], skewed=name == "mean_absolute_error")


@dataclass(frozen=True)
class LevelPair(Finding):
    """Two groups' difference, averaged over ``levels``; ``plain``: over the same rows, without regard to them.

    ``covered`` is the share of all rows that these levels hold.
    """

    pair: Pair
    plain: float
    levels: int
    covered: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return self.pair.named() | {"plain": self.plain, "levels": self.levels, "covered": self.covered}


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
        one, pair = self.pairs[0], self.pairs[0].pair
        told = "" if pair.decided else "; inconclusive"
        sign, more = (1, "more") if pair.difference.value >= 0 else (-1, "less")
        low, high = sorted((sign * pair.difference.low, sign * pair.difference.high))
        return [
            f"{within}, the {QUANTITIES[pair.quantity].lower()} of {printable(pair.first.group)} is "
            f"{digits(sign * pair.difference.value)} {more} than that of {printable(pair.second.group)} (interval "
            f"{digits(low)} to {digits(high)}){told}. Without levels it is {digits(sign * one.plain)}.",
            f"The average within strata is over {counted(one.levels, 'level')} with {number(100 * one.covered)}% of "
            "the rows.",
        ]


@dataclass(frozen=True)
class Strata:
    """The compared groups of a column by level.

    ``moments`` are those of (levels x groups,), where there are this many ``groups``, also those not compared;
    ``used`` says which levels count, (levels,), and ``every`` how many rows the audit has.
    """

    column: Column
    moments: Moments
    groups: int
    used: BoolArray
    min_count: int
    every: int

    def table(self, cells: Any) -> Any:
        """Return figures of (levels x groups,) as (levels, compared groups), of the levels that count."""
        return np.reshape(cells, (-1, self.groups))[self.used][:, self.column.kept]

    @property
    def size(self) -> IntArray:
        """Rows of each level, of all groups, (levels,)."""
        return np.asarray(self.moments.rows.reshape(-1, self.groups)[self.used].sum(1))

    def enough(self, first: Any, second: Any) -> BoolArray:
        """Say in which levels both groups of each pair have enough rows, (levels, pairs)."""
        enough = self.table(self.moments.rows) >= self.min_count
        return np.asarray(enough[:, first] & enough[:, second])

    def by_level(self, name: str, first: Any, second: Any, *, level: float, comparisons: int) -> Differences:
        """Return the differences within each level, (levels, pairs); NaN where rows are too few, or all alike."""
        figures, start = figures_of(self.moments, name), len(self.column.groups) * np.arange(len(self.size))[:, None]
        apart = independent(lambda at: Differences(*(self.table(part).ravel() for part in figures(at))))
        found = apart((start + first).ravel(), (start + second).ravel(), level=level, comparisons=comparisons)
        there = self.enough(first, second)
        return Differences(*(np.where(there, part.reshape(there.shape), np.nan) for part in found))

    def averages(self, name: str, first: Any, second: Any, *, level: float, comparisons: int) -> Differences:
        """Return the differences averaged over levels, (pairs,); shares of levels count as known."""
        one = self.by_level(name, first, second, level=level, comparisons=comparisons)
        size = ~np.isnan(one.low) * self.size[:, None]
        share = size / np.where(size.any(0), size.sum(0), np.nan)
        value = np.nansum(share * one.value, 0)
        arms = [np.sqrt(np.nansum((share * (end - one.value)) ** 2, 0)) for end in (one.low, one.high)]
        known = np.where(size.any(0), 0.0, np.nan)
        return Differences(value, value - arms[0] + known, value + arms[1] + known)

    def quantity(self, name: str) -> Quantity:
        """Return the means within levels; pairs that share no level with enough rows are not compared."""
        mean = self.table(self.moments.mean[PLACES[name]]).mean(0)
        apart = partial(self.averages, name)
        one = self.column.quantity(name, mean, self.table(self.moments.rows).sum(0), apart)
        return replace(one, compared=np.asarray(self.enough(*one.pairs).any(0)))

    def told(self, pair: Pair) -> LevelPair:
        """Return a pair of groups with what its average is over."""
        at = np.array([self.column.groups.index(side.group) for side in (pair.first, pair.second)])[:, None]
        there = ~np.isnan(self.by_level(pair.quantity, *at, level=0.5, comparisons=1).low[:, 0])
        mean, rows = (
            self.table(part)[there][:, at[:, 0]]
            for part in (self.moments.mean[PLACES[pair.quantity]], self.moments.rows)
        )
        plain = (mean * rows).sum(0) / rows.sum(0)
        covered = float(self.size[there].sum() / self.every)
        return LevelPair(pair, float(plain[0] - plain[1]), int(there.sum()), covered)


def within_levels(strata: Sequence[Strata], control: str, level: float, plain: Pair | None) -> WithinLevels:
    """Compare groups within levels of a column, ``control``; ``plain``: what the audit names without levels."""
    found = compare([one.quantity(name) for one in strata for name in QUANTITIES], level=level, about=plain)
    by_name = {one.column.name: one for one in strata}
    pairs = tuple(by_name[pair.column].told(pair) for pair in found.pairs)
    return WithinLevels(control, pairs, found.comparisons, strata[0].every - int(strata[0].size.sum()))


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

    @classmethod
    def of(cls, pair: Pair) -> ErrorChange:
        """Return the change of a group beside :data:`UNCHANGED`, or of the difference of two."""
        first, second = pair.first, pair.second
        new, other = first.more["new"] - second.more["new"], None if second.group == UNCHANGED else second.group
        old = new - pair.difference.value
        return cls(pair.column, pair.quantity, first.group, other, old, new, pair.difference)


@dataclass(frozen=True)
class AgainstNumbers(Told):
    """Changes between the models ``old`` and ``new`` on the same ``rows``, the clearest first."""

    old: str
    new: str
    rows: int
    changes: tuple[ErrorChange, ...]
    comparisons: int

    def sentences(self) -> list[str]:
        """Say for which groups errors became smaller or larger, and whether the clearest gap changed."""
        own = [one for one in self.changes if one.quantity == "mean_absolute_error"]
        if not own:
            return ["No group has enough rows of both models whose changes vary: there is nothing to compare."]
        groups = [one for one in own if one.other is None]
        said = [_change_sentence(one) for one in groups if one.change.excludes_zero][:NAMED]
        if not said:
            said = ["For no group do these rows show a change of the mean absolute error."]
        return said + [_change_sentence(one) for one in own if one.other is not None][:1]


def changes_against(
    columns: Mapping[Key, Column], moments: Mapping[Key, Moments], models: tuple[str, str], level: float, min_count: int
) -> AgainstNumbers:
    """Compare two models on the same rows, from the moments of :meth:`ErrorRows.changes` by sensitive column."""
    quantities = [one for key, column in columns.items() for one in _changes(column, moments[key], min_count)]
    found = compare(quantities, level=level)
    rows = int(next(iter(moments.values())).rows.sum())
    return AgainstNumbers(*models, rows, tuple(map(ErrorChange.of, found.pairs)), found.comparisons)


def _changes(column: Column, moments: Moments, min_count: int) -> list[Quantity]:
    """Return the changes of groups, each beside :data:`UNCHANGED`, and those of all groups beside each other."""
    enough = moments.rows[column.kept] >= min_count
    kept = column.kept[enough]
    there = replace(column, groups=list(itertools.compress(column.groups, enough)), kept=kept)
    found = []
    for name, (new_at, change_at) in CHANGES.items():
        new, rows, figures = moments.mean[new_at], moments.rows, partial(moments.means, change_at)
        for group, at in zip(there.groups, kept.tolist(), strict=True):
            beside = replace(there, groups=[group, UNCHANGED], reference=UNCHANGED)

            def alone(level: float, at: int = at, figures: Callable[[float], Differences] = figures) -> Differences:
                return Differences(*(np.array([part[at], 0.0]) for part in figures(level)))

            more = {"new": np.array([new[at], 0.0])}
            value, counted_rows = np.array([moments.mean[change_at][at], 0.0]), np.array([rows[at], 0])
            found.append(beside.quantity(name, value, counted_rows, independent(alone), more=more))
        rank = len(QUANTITIES) + list(QUANTITIES).index(name)  # after the groups
        apart, value = there.independent(figures), moments.mean[change_at][kept]
        found.append(there.quantity(name, value, rows[kept], apart, more={"new": new[kept]}, rank=rank))
    return found


def _change_sentence(one: ErrorChange) -> str:
    sign = -1 if one.other is not None and one.old < 0 else 1
    names = list(map(printable, filter(None, (one.group, one.other)[::sign])))
    what = f"the difference in mean absolute error between {names[0]} and {names[-1]}"
    if one.other is None:
        what = f"the mean absolute error of {names[0]}"
    low, high = sorted((sign * one.change.low, sign * one.change.high))
    told = "" if one.change.excludes_zero else "inconclusive: "
    return (
        f"By {printable(one.attribute)}, {what} went from {digits(sign * one.old)} to {digits(sign * one.new)}"
        f"{'; ' if told else ': '}{told}a change of {digits(sign * one.change.value)}, interval {digits(low)} to "
        f"{digits(high)}."
    )
