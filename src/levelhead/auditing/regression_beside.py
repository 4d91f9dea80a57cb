"""Errors of predicted numbers: between groups, within levels of another column, and beside another model's.

*Within levels* groups are compared as their rates are (:mod:`levelhead.auditing.control`).

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
from levelhead.auditing.strata import Stratified
from levelhead.metrics.between import Differences
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import Key, group_name
from levelhead.report.record import Finding, Told
from levelhead.report.sentences import named_group
from levelhead.report.text import digits
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


@dataclass(frozen=True, kw_only=True)
class MeanStrata(Stratified):
    """A mean in each level; ``figures`` are those of (levels x groups,) at the level of one interval."""

    figures: Callable[[float], Differences]

    @classmethod
    def of(
        cls, column: Column, moments: Moments, levels: Mapping[Key, bool], groups: int, min_count: int
    ) -> list[MeanStrata]:
        """Return the means of the compared groups of a column within levels.

        Args:
            column: the groups that are compared.
            moments: those of (levels x groups,).
            levels: each level, and whether it counts.
            groups: how many there are, also those that are not compared.
            min_count: fewest rows of a group in a level.
        """
        used = np.array(list(levels.values()))

        def table(cells: Any) -> Any:
            return np.reshape(cells, (-1, groups))[used][:, column.kept]

        names = [group_name(level) for level, counts in levels.items() if counts]
        size, rows, found = moments.rows.reshape(-1, groups)[used].sum(1), table(moments.rows), []
        for rank, name in enumerate(QUANTITIES):
            mean, figures = table(moments.mean[PLACES[name]]), figures_of(moments, name)

            def tabled(level: float, own: Callable[[float], Differences] = figures) -> Differences:
                return Differences(*map(table, own(level)))

            known = rows * ~np.isnan(tabled(0.5).low)  # rows that are all alike have no interval
            found.append(
                cls(
                    column.name, name, None, names, column.groups, mean, known, rows, size, rows, min_count, rank,
                    figures=tabled,
                )
            )  # fmt: skip
        return found

    def by_level(self, first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        """Return the differences within each level, (levels, pairs)."""
        start = len(self.groups) * np.arange(len(self.levels))[:, None]
        apart = independent(lambda at: Differences(*(part.ravel() for part in self.figures(at))))
        found = apart((start + first).ravel(), (start + second).ravel(), level=level, comparisons=comparisons)
        return Differences(*(part.reshape(len(self.levels), -1) for part in found))


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
    names = [named_group(one.attribute, name) for name in (one.group, one.other)[::sign] if name]
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
