"""The engine of every question that compares groups: figures of groups in, pairs of groups out, the first one first.

A question makes one :class:`Quantity` of each figure of each sensitive column: a rate, a mean, a change over time.
:func:`compare` makes the pairs, adjusts all of their intervals together (Bonferroni), turns and orders them, and keeps
those that tables name. So the largest gap can be named without exaggeration, and a limit that all named pairs keep for
sure is kept by all pairs.

A quantity needs the groups' names, values and rows, and ``apart``, which returns the differences of pairs of them::

    def apart(first, second, *, level, comparisons):
        ends = shared(level, comparisons)  # the level of each interval
        ...
        return Differences(value, low, high)  # (pairs,) each, the first group less the second; NaN: no interval

    found = compare([Quantity("sex", "mean_error", names, value, rows, apart)], level=0.95)
    found.pairs[0].difference
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics.between import Differences, clearest, mover, shared
from levelhead.metrics.contrasts import BoolArray, pair_indices
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import estimate_to_dict
from levelhead.report.headline import Lead
from levelhead.report.record import Finding
from levelhead.types import Estimate

NAMED_PAIRS = 10
"""Pairs of a sensitive column that tables name, beside the largest and the farthest of each quantity."""


@dataclass(frozen=True)
class Quantity:
    """One figure of several groups of a sensitive column.

    Attributes:
        column: the sensitive column, as JSON calls it.
        name: of the figure, such as ``true_positive_rate``.
        groups: their names.
        value: the figure of each, (groups,).
        rows: what it is based on, (groups,).
        apart: returns the differences of the ``first`` less the ``second`` groups, (pairs,) places each, with intervals
            for this many ``comparisons`` that all hold together at ``level``. No pair without an interval is named.
        of_class: the class that a rate is of; None where there is none.
        larger_first: whether the group with the larger figure stands first: the one that fares worse.
        reference: the group that others are compared with, always the second one; None: all pairs.
        rank: quantities of a lower rank come first where both are decided, or neither: units may not be compared.
        compared: whether each pair of :func:`~levelhead.metrics.contrasts.pair_indices` can be compared, (pairs,);
            None: all can.
        more: what the JSON says of each group beside value and rows, (groups,) by name.
        sides: returns the two groups of a pair, where their figures are not the same in every pair.
    """

    column: str
    name: str
    groups: Sequence[str]
    value: FloatArray
    rows: IntArray
    apart: Callable[..., Differences]
    of_class: str | None = None
    larger_first: bool = True
    reference: str | None = None
    rank: int = 0
    compared: BoolArray | None = None
    more: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    sides: Callable[[int, int], tuple[Side, Side]] | None = None

    @property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """Places of the first and of the second group of each pair; none where the reference is not there."""
        if self.reference is not None and self.reference not in self.groups:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        at = None if self.reference is None else list(self.groups).index(self.reference)
        first, second = pair_indices(len(self.groups), at)
        return (first, second) if self.compared is None else (first[self.compared], second[self.compared])

    def side(self, at: int) -> Side:
        """Return one group of a pair."""
        more = {name: column[at].item() for name, column in self.more.items()}
        return Side(self.groups[at], float(self.value[at]), int(self.rows[at]), more)

    def places(self, lead: Lead | None) -> list[int]:
        """Return the place of two groups that a lead names among :attr:`pairs`, if it is about this figure."""
        if lead is None or not lead.is_about(self.column, self.name, self.of_class):
            return []
        both = [at for at, group in enumerate(self.groups) if group in lead.groups]
        return np.flatnonzero(np.logical_and(*(np.isin(side, both) for side in self.pairs))).tolist()

    def pair(self, first: int, second: int, value: float, low: float, high: float) -> Pair:
        """Return two groups and the difference of the first less the second, in the order in which they are named."""
        if self.reference is None and value and (value > 0) != self.larger_first:
            first, second, value, low, high = second, first, -value, -high, -low
        sides = (self.side(first), self.side(second)) if self.sides is None else self.sides(first, second)
        figure = Estimate(value, low, high, sides[0].rows + sides[1].rows)
        return Pair(self.column, self.name, self.of_class, *sides, figure, self.reference is not None, self.rank)


@dataclass(frozen=True)
class Side(Finding):
    """One group of a pair: its ``value``, the ``rows`` that it is based on, and what else the JSON says of it."""

    group: str
    value: float
    rows: int
    more: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {"group": self.group, "value": self.value, "rows": self.rows, **self.more}


@dataclass(frozen=True)
class Pair(Finding):
    """Two groups of a sensitive column, and how much larger a quantity of the first is than that of the second.

    ``reference``: whether the second group is the reference; else the group that fares worse comes first.
    """

    column: str
    quantity: str
    of_class: str | None
    first: Side
    second: Side
    difference: Estimate
    reference: bool = False
    rank: int = 0

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.difference.excludes_zero

    @property
    def order(self) -> tuple[bool, int, float]:
        """What sorts pairs: decided ones first, then by rank, then the largest."""
        undecided, size = clearest(self.difference)
        return undecided, self.rank, size

    @property
    def about(self) -> Lead:
        """What it is about, without words."""
        groups, values = (self.first.group, self.second.group), (self.first.value, self.second.value)
        return Lead((), "", self.column, self.quantity, self.of_class, groups, values, self.difference)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        named = {"attribute": self.column, "rate": self.quantity, "class": self.of_class, "reference": self.reference}
        sides = {"first": self.first.to_dict(), "second": self.second.to_dict()}
        return {**named, **sides, "difference": estimate_to_dict(self.difference)}

    def named(self) -> dict[str, Any]:
        """Return a JSON-able dict that only names the groups."""
        sides = {"first": self.first.group, "second": self.second.group}
        figure = estimate_to_dict(self.difference)
        return {"attribute": self.column, "quantity": self.quantity, **sides, "difference": figure}


@dataclass(frozen=True)
class Compared(Finding):
    """The ``pairs`` to name, the first one first, and how many ``comparisons`` their intervals allow for."""

    pairs: list[Pair]
    comparisons: int


def independent(figures: Callable[[float], Differences]) -> Callable[..., Differences]:
    """Return the ``apart`` of figures of independent groups, by variance recovery from the groups' own intervals.

    ``figures`` returns value, low and high of the groups, (groups,) each, for the level of one interval.
    """

    def apart(first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        value, low, high = figures(shared(level, comparisons))
        ends = mover(value[first], (low[first], high[first]), value[second], (low[second], high[second]))
        return Differences(value[first] - value[second], *ends)

    return apart


def compare(quantities: Sequence[Quantity], *, level: float, about: Lead | None = None) -> Compared:
    """Compare all groups with each other, or with their reference, in every quantity.

    Args:
        quantities: of one column or several; a pair of groups in one of them is a comparison.
        level: how often the intervals of all comparisons together hold the true differences.
        about: what the audit names unless more was asked: the same groups in the same figure come first.

    Returns:
        of each column and rank the first :data:`NAMED_PAIRS` pairs, and of each quantity the largest difference and the
        interval that ends farthest from 0; decided ones first, then by rank, then the largest.
    """
    places = [one.pairs for one in quantities]
    comparisons = sum(len(first) for first, _ in places)
    found: list[tuple[Pair, bool, bool]] = []
    for one, (first, second) in zip(quantities, places, strict=True):
        apart = one.apart(first, second, level=level, comparisons=comparisons) if len(first) else None
        if apart is None or not (there := np.flatnonzero(~np.isnan(apart.low))).size:
            continue
        known, same = Differences(*(part[there] for part in apart)), np.isin(there, one.places(about))
        extremes = {int(np.abs(known.value).argmax()), int(np.maximum(-known.low, known.high).argmax())}
        extremes |= set(np.flatnonzero(same).tolist())
        for at in dict.fromkeys([*known.order[:NAMED_PAIRS].tolist(), *sorted(extremes)]):
            i, j = int(first[there[at]]), int(second[there[at]])
            pair = one.pair(i, j, float(known.value[at]), float(known.low[at]), float(known.high[at]))
            found.append((pair, at in extremes, bool(same[at])))
    named, taken = [], Counter[tuple[str, int]]()
    for pair, extreme, _ in sorted(found, key=lambda each: (not each[2], each[0].order)):
        taken[pair.column, pair.rank] += 1
        if extreme or taken[pair.column, pair.rank] <= NAMED_PAIRS:
            named.append(pair)
    return Compared(named, comparisons)


def headline(leads: Sequence[Lead], plain: Lead | None) -> list[Lead]:
    """Return what the answer to a question says first: one sentence on each sensitive column.

    What was measured comes first; of that what is decided, then what is about the column and the rate of ``plain``,
    which the audit names unless more was asked, and then the largest.
    """

    def place(one: Lead) -> tuple[bool, bool, bool, bool, float]:
        column, quantity = ("", "") if plain is None else (plain.column, plain.quantity)
        size = abs(one.difference.value - one.neutral) if one.difference.defined else 0.0
        return not one.quantity, not one.decided, one.column != column, one.quantity != quantity, -size

    first: dict[str, Lead] = {}
    for one in sorted(leads, key=place):
        first.setdefault(one.column, one)
    return list(first.values())
