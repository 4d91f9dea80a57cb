"""Audit a ranking, without outcomes: who is in the first places, and how exposed each group is there.

Groups are compared with their share of all rows (representation; its logarithm is the skew of Geyik, Ambler and
Kenthapadi, KDD 2019), and with a reference group (impact ratio). Arithmetic, ties and intervals:
:mod:`levelhead.metrics.top`. Intervals of a kind hold together over all groups and columns (Bonferroni); impact ratios
count every pair of a column where the data choose the reference.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from levelhead.auditing.finding import references
from levelhead.auditing.grouped_rows import GroupedRows
from levelhead.auditing.options import AuditOptions, Roles, left_out
from levelhead.auditing.rates import ratio_span
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics.names import Key, attribute_names, by_names, group_name
from levelhead.metrics.top import Places, TopLaw, exposure_ends, ratio_ends
from levelhead.report.headline import Lead
from levelhead.report.record import Finding
from levelhead.report.result import Report
from levelhead.report.sentences import named_group, nothing_compared
from levelhead.report.text import counted, number, percent
from levelhead.report.wide import Fraction
from levelhead.tables.source import Source
from levelhead.types import ConfigError, Estimate, printable, quoted

LOWEST = "lowest:"
OF_RANKS = "Pass the number that the rows are ranked by."


@dataclass(frozen=True)
class GroupPlaces(Finding):
    """One group: ``in_top`` of its ``n`` rows are in the top; a fraction where rows tie at the cut.

    ``share_of_rows`` and ``share_of_top`` are its shares of all rows and of the top; ``representation`` is the second
    divided by the first, ``exposure`` the same with places discounted. ``selection_ratio`` is the share of its rows in
    the top divided by that of the reference group; None for the reference. ``chance`` has the counts that chance makes,
    and ``p_value`` is that of the hypergeometric law, adjusted; all NaN where the group is not ``included``.
    """

    n: int
    in_top: float
    share_of_rows: float
    share_of_top: Estimate
    representation: Estimate
    exposure: Estimate
    selection_ratio: Estimate | None = None
    chance: tuple[float, float] = (math.nan, math.nan)
    p_value: float = math.nan
    included: bool = True


@dataclass(frozen=True)
class ColumnPlaces(Finding):
    """One sensitive column: its groups, and the reference."""

    by_name: ClassVar = ("reference",)

    groups: dict[Key, GroupPlaces]
    reference: Key | None
    reference_is_given: bool


@dataclass(frozen=True)
class RankingAudit(Report):
    """What an audit of a ranking found, by sensitive column, and by their crossing under the tuple of their names.

    Of ``rows`` rows the first ``top`` by ``score`` are the top; ``tied`` rows have the score of the last place, for
    ``places`` places.

    Examples:
        >>> import levelhead as lh
        >>> sexes = {"sex": ["m", "m", "f", "f"] * 20}
        >>> result = lh.audit(None, scores=[9, 8, 7, 6] * 20, sensitive_features=sexes, top=30)
        >>> type(result).__name__, result.by_attribute["sex"].groups["m"].in_top
        ('RankingAudit', 30.0)
    """

    kind: ClassVar[str] = "ranking"
    optional: ClassVar[Collection[str]] = ("reading",)

    by_attribute: dict[Key, ColumnPlaces]
    rows: int
    top: int
    tied: int
    places: int
    score: str
    warnings: list[str]
    level: float = 0.95
    lowest_first: bool = False
    reading: tuple[str, ...] = ()

    @property
    def leads(self) -> list[Lead]:
        """What :func:`ranking_leads` returns."""
        return ranking_leads(self)

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every figure with its attribute, its group and its name."""
        for name, part in by_names(self.by_attribute).items():
            for group, found in part.groups.items():
                yield name, group, Fraction("share_of_rows"), Estimate.without_interval(found.share_of_rows, found.n)
                low, high = (end / self.top for end in found.chance)
                chance = Estimate(math.nan, low, high, found.n, "a range has no one value")
                yield name, group, Fraction("share_of_top_by_chance"), chance
                for figure in (Fraction("share_of_top"), "representation", "exposure", "selection_ratio"):
                    if (one := getattr(found, figure)) is not None:
                        yield name, group, figure, one


class _Top(NamedTuple):
    """How many places are the top, or which share of the rows; ``lowest_first``: the lowest score has the first."""

    number: float
    is_share: bool
    lowest_first: bool

    @classmethod
    def of(cls, given: int | str) -> _Top:
        """Read ``100`` or ``10%``, perhaps after ``lowest:``."""
        text = str(given).strip()
        number = text.removeprefix(LOWEST).strip()
        is_share = number.endswith("%")
        try:
            found = float(number.removesuffix("%")) / (100 if is_share else 1)
        except ValueError:
            found = math.nan
        if not (0 < found < 1 if is_share else found >= 1 and found.is_integer()):
            raise ConfigError(
                f"top={quoted(given)} is no number of places: pass for example 100, '10%' or 'lowest:10%' (--top on "
                "the command line)."
            )
        return cls(found, is_share, text.startswith(LOWEST))

    def places(self, rows: int) -> int:
        """Return how many places of this many rows are the top."""
        found = max(1, math.floor(self.number * rows + 1e-9)) if self.is_share else int(self.number)
        if found >= rows:
            raise ConfigError(
                f"top={found:,} includes every row in the top: there are {counted(rows, 'row')}. Pass fewer places."
            )
        return found


def ranking_of(source: Source, roles: Roles, options: AuditOptions) -> RankingAudit:
    """Read a table, rank its rows by their score, and compare its groups."""
    asked = _Top.of(options.top or "")
    rows = ScoreRows(roles.titles(source))
    read = GroupedRows.read(source, roles, options, rows, one_by_one=True)
    rows.check_finite()
    top, score, members, warnings = asked.places(len(rows)), rows.whole("score"), read.groups, read.warnings
    named, names, held = references(options.reference, members), attribute_names(members), {}
    whole = {role: rows.whole(role) for role in rows.parts}
    for key, groups in members.items():
        places = Places.of(score, rows.members(key, groups)(whole), lowest_first=asked.lowest_first)
        sizes = np.bincount(places.group, minlength=len(groups))
        held[key] = _Column(places, groups, sizes, top, named.get(key), options)
    shown = sum(one.figures for one in held.values())
    pairs = sum(one.comparisons for one in held.values())
    found = {key: one.found(max(1, shown), max(1, pairs)) for key, one in held.items()}
    for key, one in held.items():
        warnings += left_out(names[key], one.groups, one.sizes, options, found[key].reference)
    first, last = next(iter(held.values())).places.run_at(top)
    tied, left = last - first, top - first
    if left < tied:
        warnings.append(
            f"{counted(tied, 'row')} tie at the cut (score {score_at(score, top, asked.lowest_first):g}) for "
            f"{counted(left, 'place')}: each counts as {left:,}/{tied:,} of a row in the top."
        )
    return RankingAudit(
        found, len(rows), top, tied, left, source.called(str(roles.score)), warnings, options.level,
        asked.lowest_first, read.reading,
    )  # fmt: skip


def score_at(score: np.ndarray, place: int, lowest_first: bool) -> float:
    """Return the score of a place, from 1."""
    at = place - 1 if lowest_first else len(score) - place
    return float(np.partition(score, at)[at])


@dataclass(frozen=True)
class _Column:
    """The ranked rows of one column, and how many are of each of its groups."""

    places: Places
    groups: Sequence[Key]
    sizes: np.ndarray
    top: int
    named: Key | None
    options: AuditOptions

    @property
    def usable(self) -> list[int]:
        """Places of the groups that are compared; none where there is only one."""
        large = self.options.compared(self.groups, self.sizes)
        return large if len(large) > 1 else []

    @property
    def figures(self) -> int:
        """Groups with figures of their own: of two that are all rows, one says what the other is."""
        usable = self.usable
        return 1 if len(usable) == 2 and self.sizes[usable].sum() == self.sizes.sum() else len(usable)

    @property
    def comparisons(self) -> int:
        """Pairs that an impact ratio may be of."""
        return math.comb(len(self.usable), 2) if self.named is None else max(0, len(self.usable) - 1)

    def found(self, shown: int, pairs: int) -> ColumnPlaces:
        """Return the figures; intervals allow for this many groups and pairs."""
        rows, usable, level = len(self.places.group), self.usable, self.options.level
        hits, share = self.places.counts(len(self.groups), self.top), self.sizes / rows
        to = max(usable, key=lambda at: hits[at] / self.sizes[at], default=None)
        to = to if self.named is None else self.groups.index(self.named)
        worth = self.places.exposure(len(self.groups), self.top)
        exposed = worth / worth.sum()
        low, high = exposure_ends(exposed, rows, self.top, (1 - level) / shown)
        few = Estimate.undefined("too few rows to be compared")
        found = {}
        for at, group in enumerate(self.groups):
            n, own = int(self.sizes[at]), float(hits[at])
            if at not in usable:
                found[group] = GroupPlaces(n, own, float(share[at]), few, few, few, included=False)
                continue
            law = TopLaw(n, rows, self.top)
            ends = law.expected(own, (1 - level) / shown)
            kept = (
                _divided(own, ends, n, self.top),
                _divided(own, ends, n, self.top * share[at]),
                _divided(exposed[at], (low[at], high[at]), n, share[at]),
            )
            ratio = None if at == to or to not in usable else self._ratio(at, int(to), hits, (1 - level) / pairs)
            chance, p_value = law.by_chance((1 - level) / shown), min(1.0, shown * law.p_value(own))
            found[group] = GroupPlaces(n, own, float(share[at]), *kept, ratio, chance, p_value)
        reference = None if to is None else self.groups[to]
        return ColumnPlaces(found, reference, self.named is not None)

    def _ratio(self, at: int, to: int, hits: np.ndarray, error: float) -> Estimate:
        """Return the impact ratio of two groups."""
        n = int(self.sizes[at] + self.sizes[to])
        if not hits[to]:
            return Estimate.undefined("no row of the reference group is in the top", n)
        low, high = ratio_ends((hits[at], hits[to]), (int(self.sizes[at]), int(self.sizes[to])), error)
        return Estimate(float(hits[at] / self.sizes[at] / (hits[to] / self.sizes[to])), low, high, n)


def _divided(value: float, ends: tuple[float, float], n: int, scale: float) -> Estimate:
    return Estimate(float(value / scale), float(ends[0] / scale), float(ends[1] / scale), n)


def ranking_leads(result: RankingAudit) -> list[Lead]:
    """Return one sentence for each group whose count in the top chance does not explain, the clearest first.

    Of two groups that are all rows, the one with fewer rows in the top than its share is named: the other has the rest.
    Where no group stands out, the farthest is followed by a sentence that says so.
    """
    leads: list[Lead] = []
    for name, column in by_names(result.by_attribute).items():
        compared = {group: one for group, one in column.groups.items() if one.included}
        each = len(compared) != 2 or sum(one.n for one in compared.values()) < result.rows
        for group, one in compared.items():
            value = one.representation.value
            if each or value < 1 or (value == 1 and not leads):
                leads.append(_lead(name, group_name(group), one, result))
    if not leads:
        return [nothing_compared(one.groups for one in result.by_attribute.values())]
    leads.sort(key=lambda one: (not one.outside, -abs(math.log(max(one.difference.value, 1e-9)))))
    none = f"No group’s share of the top {result.top:,} differs measurably from its share of all rows."
    return [one for one in leads if one.outside] or [leads[0], Lead((none,))]


def _lead(name: str, group: str, one: GroupPlaces, result: RankingAudit) -> Lead:
    by = f"By {printable(name)}, " if len(result.by_attribute) > 1 else ""
    low, high = (number(end, 0) for end in one.chance)
    top = "place" if result.top == 1 else f"{result.top:,} places"
    shares = f"{percent(one.share_of_top)}% of the first {top} and {number(100 * one.share_of_rows)}%"
    rest = (
        f"representation {number(one.representation.value, 2)}, interval {ratio_span(one.representation)}. It has "
        f"{_count(one.in_top)} of these places; by chance, {low} to {high} would be expected."
    )
    return Lead(
        (by, named_group(name, group), f" holds {shares} of all rows"), rest, name, "share_of_top", None, (group,),
        (one.share_of_top.value,), one.representation, 1.0, outside=one.p_value <= 1 - result.level,
    )  # fmt: skip


def _count(value: float) -> str:
    """Return a count, which ties can make a fraction."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
