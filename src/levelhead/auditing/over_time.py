"""Whether gaps change over time: the difference of each group to a reference in each period, its trend and its limits.

The reference is the group that the user names, or the reference of the ratios of the favourable outcome, whose choice
by all periods together says nothing of a change, or else the largest group. Two periods have no trend: the change of
each rate and of each difference is measured instead. Arithmetic: :mod:`levelhead.metrics.trend`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from levelhead.auditing.options import AuditOptions
from levelhead.auditing.part import Answer, Frame, Part
from levelhead.metrics import trend as trends
from levelhead.metrics.between import Differences, clearest
from levelhead.metrics.counts import IntArray
from levelhead.metrics.names import RATE_TITLES, Key, attribute_names, by_names, group_name
from levelhead.report.headline import Lead, Leading
from levelhead.report.record import Finding
from levelhead.report.sentences import TURNED, change_lead, group_change_lead, named_group, turned
from levelhead.report.text import counted, joined, number, percent_ends
from levelhead.report.wide import Fraction, GapSlope, Pair
from levelhead.tables.files import FILE
from levelhead.tables.periods import months, ordered, places_of
from levelhead.tables.rows import Rows
from levelhead.tables.vocabulary import alike
from levelhead.types import DataError, Estimate, in_quotes, listed, printable

MOST_PERIODS = 200
"""Most periods that are compared."""
Cells = Mapping[str, tuple[IntArray, IntArray]]
"""By rate, hits and rows, (periods, groups) each."""


@dataclass(frozen=True)
class PeriodGap(Finding):
    """One period: the group's rate less the reference's; between ``low`` and ``high`` it is like the earlier ones.

    ``rates`` are the group's and the reference's.
    """

    period: str
    difference: Estimate
    low: float
    high: float
    outside: bool
    rates: tuple[float, float]


@dataclass(frozen=True)
class GapTrend(Finding):
    """One rate of one group beside the reference, over the periods in which both have enough rows.

    ``slope`` is the change of the difference from a period to the next, ``line`` the fitted difference in the first and
    the last one, and ``p_value`` adjusted for all trends. ``first_outside`` is the first period outside its limits.
    """

    group: str
    reference: str
    rate: str
    gaps: tuple[PeriodGap, ...]
    slope: Estimate
    line: tuple[float, float]
    p_value: float
    first_outside: str | None


@dataclass(frozen=True)
class RateChange(Finding):
    """One rate of one group in the ``first`` and the ``last`` of two periods, and its ``change``."""

    group: str
    rate: str
    first: float
    last: float
    change: Estimate


@dataclass(frozen=True)
class OverTime(Leading, Answer):
    """What changes over the ``periods`` of a ``column``: the trends of each sensitive column, the clearest first.

    ``changes`` are those of each group's rates, by sensitive column, where there are two periods. ``causes`` says why
    sensitive columns have no trend: one clause for each of them. ``turned``: sentences are about the rates of the other
    one of two classes, the favourable outcome.
    """

    column: str
    periods: tuple[str, ...]
    by_attribute: dict[Key, tuple[GapTrend, ...]]
    comparisons: int
    level: float
    causes: Mapping[Key, str] = field(default_factory=dict)
    changes: Mapping[Key, tuple[RateChange, ...]] = field(default_factory=dict)
    turned: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        own = {
            name: {
                "sentences": [one.sentence for one in self.leads_of(name)],
                "trends": [one.to_dict() for one in found],
                "changes": [one.to_dict() for one in self.changes_of(name)],
            }
            for name, found in by_names(self.by_attribute).items()
        }
        found = super().to_dict() | {"by_attribute": own}
        del found["causes"], found["changes"], found["turned"]  # sentences and sensitive columns have them
        return found

    def changes_of(self, name: str) -> tuple[RateChange, ...]:
        """Return the changes of the rates of one sensitive column; without two periods, none."""
        return by_names(self.changes).get(name, ())

    @property
    def leads(self) -> list[Lead]:
        """The trends and the periods that stand out, or why there are none: each cause once."""
        columns, causes = attribute_names(self.by_attribute), dict[str, list[str]]()
        found = {key: self.leads_of(name) for key, name in columns.items()}
        for key, cause in self.causes.items():
            if not found[key]:
                causes.setdefault(cause, []).append(printable(columns[key]))
        what = "change" if len(self.periods) == 2 else "trend"
        over = counted(len(self.periods), "period")
        none = [
            Lead((f"By {joined(names)}, no {what} over {over} was measured: {cause}.",))
            for cause, names in causes.items()
        ]
        return [*itertools.chain(*found.values()), *none]

    def leads_of(self, name: str) -> list[Lead]:
        """Return what is said of one sensitive column; nothing where no gap was compared."""
        found, changes = by_names(self.by_attribute)[name], self.changes_of(name)
        two, periods = len(self.periods) == 2, self.periods
        if self.turned:
            found, changes = tuple(map(_of_other, found)), tuple(map(_change_of_other, changes))
        leads = [_trend_lead(name, one, periods) for one in found if one.slope.excludes_zero]
        leads += [
            group_change_lead(name, one.group, one.rate, one.first, one.last, one.change, periods=periods)
            for one in changes
            if one.change.excludes_zero
        ]
        leads += [_outside_lead(name, one) for one in found if one.first_outside is not None]
        known = [one for one in found if one.slope.defined]
        if leads or not known:
            return leads
        what = "no rate and no gap" if two else "no gap"
        none = f"By {printable(name)}, {what} changes measurably over {len(self.periods)} periods."
        arms = [(one.slope.high - one.slope.low) / 2 for one in known]
        low, high = (number(100 * end(arms), 2) for end in (min, max))
        span = low if low == high else f"{low} to {high}"
        unit = "points" if two else "points per period"
        missed = Lead((f"Changes of a gap below {span} {unit} cannot be detected with this many rows.",), column=name)
        return [replace(_about(name, known[0]), pieces=(none,)), missed]

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield each slope, and each difference with its period."""
        for name, found in by_names(self.by_attribute).items():
            for one in found:
                both = Pair(one.group, one.reference)
                yield name, both, GapSlope(f"{one.rate}_slope", one.line), one.slope
                for gap in one.gaps:
                    yield name, both, Fraction(f"{one.rate}_difference[{gap.period}]"), gap.difference
            for changed in self.changes_of(name):
                yield name, changed.group, Fraction(f"{changed.rate}_change"), changed.change


def _of_other(one: GapTrend) -> GapTrend:
    """Return a trend as that of the other class's rate, which is one less."""
    gaps = tuple(
        PeriodGap(gap.period, turned(gap.difference, 0), -gap.high, -gap.low, gap.outside, _of_rest(gap.rates))
        for gap in one.gaps
    )
    line = (-one.line[0], -one.line[1])
    return replace(one, rate=TURNED[one.rate], gaps=gaps, slope=turned(one.slope, 0), line=line)


def _change_of_other(one: RateChange) -> RateChange:
    first, last = _of_rest((one.first, one.last))
    return RateChange(one.group, TURNED[one.rate], first, last, turned(one.change, 0))


def _of_rest(rates: tuple[float, float]) -> tuple[float, float]:
    return 1 - rates[0], 1 - rates[1]


def _subject(name: str, one: GapTrend, what: str) -> tuple[str, ...]:
    start, both = f"By {printable(name)}, the {RATE_TITLES[one.rate].lower()} of ", (one.group, one.reference)
    first, second = (named_group(name, group) for group in both)
    return start, first, " minus that of ", second, what


def _about(name: str, one: GapTrend) -> Lead:
    """Return what a sentence on a trend is about, without its words."""
    groups, figure = (one.group, one.reference), one.slope
    return Lead((), "", name, one.rate, None, groups, one.line, figure)


def _trend_lead(name: str, one: GapTrend, periods: Sequence[str]) -> Lead:
    (first, last), way = one.line, "grows" if abs(one.line[1]) > abs(one.line[0]) else "shrinks"
    about = _about(name, one)
    if len(periods) == 2:
        more: dict[str, Any] = {"unit": " points", "periods": periods, "end": f"; the gap {way}"}
        said = change_lead(_subject(name, one, ""), first, last, one.slope, **more)
        return replace(about, pieces=said.pieces, rest=said.rest)
    size = f"{number(100 * one.slope.value, 2, signed=True)} points per period"
    rest = (
        f"interval {percent_ends(one.slope, 2, signed=True)}. The fitted line runs from "
        f"{number(100 * first, signed=True)} points in {printable(one.gaps[0].period)} to "
        f"{number(100 * last, signed=True)} in {printable(one.gaps[-1].period)}: the gap {way}."
    )
    return replace(about, pieces=_subject(name, one, f" changes by {size}"), rest=rest)


def _outside_lead(name: str, one: GapTrend) -> Lead:
    gap = next(gap for gap in one.gaps if gap.outside)
    rest = (
        f"{number(100 * gap.difference.value, signed=True)} points, limits {number(100 * gap.low, signed=True)} to "
        f"{number(100 * gap.high, signed=True)}."
    )
    pieces = _subject(name, one, f" first leaves its control limits in {printable(gap.period)}")
    return replace(_about(name, one), pieces=pieces, rest=rest, values=gap.rates, outside=True)


def rate_changes(
    cells: Cells, groups: Sequence[Key], least: int, level: float, comparisons: int
) -> tuple[RateChange, ...]:
    """Return how the rates of groups with enough rows in both of two periods change, those that are decided first."""
    found = []
    for rate, (hits, rows) in cells.items():
        change, share = trends.changes(hits, rows, level=level, comparisons=comparisons), hits / np.maximum(rows, 1)
        for at in np.flatnonzero((rows >= least).all(0)).tolist():
            name, (first, last) = group_name(groups[at]), share[:, at].tolist()
            found.append(RateChange(name, rate, first, last, change.at(at, int(rows[:, at].sum()))))
    return tuple(sorted(found, key=lambda one: clearest(one.change)))


def over_time(
    cells: Mapping[Key, Cells],
    groups: Mapping[Key, Sequence[Key]],
    reference: Mapping[Key, Key],
    *,
    column: str,
    periods: Sequence[str],
    known: bool,
    options: AuditOptions,
) -> OverTime:
    """Compare groups in each period.

    Args:
        cells: hits and rows of each rate, by sensitive column.
        groups: the groups of each, in the order of the cells; those that are compared.
        reference: the named reference of columns that have one; else it is the largest group.
        column: the name of the column of periods.
        periods: in the order of time.
        known: whether that order is known: else there is no trend.
        options: ``min_count``, the smallest denominator of a rate of a group in a period, and ``level``.
    """
    level, two, least = options.level, len(periods) == 2, max(1, options.min_count)
    asked: list[tuple[Key, int, int, str, np.ndarray]] = []
    for key, rates in cells.items() if known else ():
        sizes = next(iter(rates.values()))[1].sum(0)
        named = [group_name(one) for one in groups[key]]
        if key in reference and group_name(reference[key]) not in named:
            continue
        to = named.index(group_name(reference[key])) if key in reference else int(np.argmax(sizes)) if named else 0
        for rate, (_, rows) in rates.items():
            for at in range(len(named)):
                used = np.all(rows[:, [at, to]] >= least, axis=1)
                if at != to and (used.all() if two else used.any()):
                    asked.append((key, at, to, rate, used))
    comparisons = sum(int(used.sum() > 1) for *_, used in asked)
    if two:
        comparisons = sum(int((rows >= least).all(0).sum()) for rates in cells.values() for _, rows in rates.values())
    comparisons = max(1, comparisons)
    found: dict[Key, list[GapTrend]] = {key: [] for key in cells}
    time = np.array(places_of(periods))
    for key, at, to, rate, used in asked:
        hits, rows = (table[used][:, [at, to]] for table in cells[key][rate])
        if two:
            one = trends.change(hits, rows, level=level, comparisons=comparisons)
        else:
            one = trends.trend(hits, rows, at=time[used], level=level, comparisons=comparisons)
        each, there = Differences(*one.gaps), [period for period, kept in zip(periods, used, strict=True) if kept]
        rest = zip(rows.sum(1), one.limits.T.tolist(), one.outside.tolist(), (hits / rows).tolist(), strict=True)
        gaps = tuple(
            PeriodGap(period, each.at(place, n), low, high, out, (own, other))
            for place, (period, (n, (low, high), out, (own, other))) in enumerate(zip(there, rest, strict=True))
        )
        first = next((gap.period for gap in gaps if gap.outside), None)
        names = (group_name(groups[key][at]), group_name(groups[key][to]))
        found[key].append(GapTrend(*names, rate, gaps, one.slope, one.line, one.p_value, first))
    for trends_of in found.values():
        trends_of.sort(key=lambda one: (not one.slope.excludes_zero, one.first_outside is None, *clearest(one.slope)))
    by_attribute = {key: tuple(trend) for key, trend in found.items()}
    unknown = f"the order of {_some(periods)} is not known. Write dates as 2024-03-31, or numbers"
    if len(periods) == 1:
        unknown = f"all rows are of the period {in_quotes(periods[0])}"
    causes = {
        key: _cause(groups[key], reference.get(key), trend, options.min_count, two)
        if len(periods) > 1 and known
        else unknown
        for key, trend in by_attribute.items()
        if not any(one.slope.defined for one in trend)
    }
    changed = {key: rate_changes(cells[key], groups[key], least, level, comparisons) for key in cells if two and known}
    return OverTime(column, tuple(periods), by_attribute, comparisons, level, causes=causes, changes=changed)


def _cause(groups: Sequence[Key], reference: Key | None, found: Sequence[GapTrend], min_count: int, two: bool) -> str:
    """Say why no gap of a sensitive column has a trend."""
    named = [group_name(one) for one in groups]
    if len(named) < 2:
        return "there are fewer than two groups"
    to = "the largest group" if reference is None else f"the reference group {in_quotes(group_name(reference))}"
    few = f"fewer than {trends.FEWEST} periods have" if found else "no period has"
    if two:
        few = "not both periods have"
    return f"{few} {counted(max(1, min_count), 'row')} of both {to} and another group"


class Time(Part):
    """How gaps change over the periods of a column."""

    name = "over_time"
    needs = ("time",)
    keeps = ("label", "prediction", "score", "time", "groups")

    def find(self, frame: Frame) -> OverTime:
        """Return the trends; with several classes, of the accuracy alone."""
        rows, source, options = frame.rows, self.asked.source, frame.options
        column = source.called(str(self.asked.roles.time))
        periods, known, at = self._periods(rows, column)
        whole = {role: rows.whole(role) for role in rows.parts}
        compared = {key: frame.kept(key) for key in frame.groups}
        rates, cells = _rates(frame), {}
        for key, there in frame.groups.items():
            place = {group: position for position, group in enumerate(compared[key])}
            members = rows.members(key, there)(whole)
            member = np.array([place.get(group, -1) for group in there], np.int64)[members]
            shape = len(periods), len(compared[key])
            cells[key] = {
                rate: (_counted(at, member, used & hit, shape), _counted(at, member, used, shape))
                for rate, (used, hit) in rates.items()
            }
        reference = {**frame.ratios_to, **frame.reference}
        found = over_time(cells, compared, reference, column=column, periods=periods, known=known, options=options)
        found = replace(found, turned=frame.outcome is not None)
        frame.warnings.extend([*alike(printable(column), "periods", periods), *_few(found, frame)])
        return found

    def _periods(self, rows: Rows, column: str) -> tuple[list[str], bool, IntArray]:
        """Return the periods, whether their order is that of time, and the place of each row's, (rows,)."""
        named: dict[Any, str] = {one: str(one) for one in rows.known["time"]}
        named |= months(named.values())
        periods, known = ordered(list(dict.fromkeys(named.values())))
        if len(periods) > MOST_PERIODS:
            raise DataError(
                f"{self.asked.source.title(str(self.asked.roles.time))} has {len(periods):,} periods, more than "
                f"{MOST_PERIODS}. Write dates as 2024-03-31, which are counted by month, or pass a column of months or "
                "quarters."
            )
        known = known or len(periods) == 1 or (len(periods) == 2 and column == FILE)  # files are named in their order
        return periods, known, rows.coded("time", {one: periods.index(period) for one, period in named.items()})


def _few(found: OverTime, frame: Frame) -> Iterator[str]:
    """Name the groups without a change, which have too few rows in one of two periods."""
    rows = counted(max(1, frame.options.min_count), "row")
    for key, changes in found.changes.items():
        known = {one.group for one in changes}
        if few := [in_quotes(name) for name in map(group_name, frame.kept(key)) if name not in known]:
            column = printable(frame.names[key])
            yield f"{column}: groups without {rows} in both periods are not compared: {listed(few)}."


def _some(periods: Sequence[str]) -> str:
    names = [in_quotes(one, 30) for one in periods]
    return ", ".join(names if len(names) <= 5 else [*names[:3], "…", names[-1]])


def _counted(at: IntArray, member: IntArray, chosen: np.ndarray, shape: tuple[int, int]) -> IntArray:
    used = chosen & (member >= 0)
    return np.bincount(at[used] * shape[1] + member[used], minlength=shape[0] * shape[1]).reshape(shape)


def _rates(frame: Frame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, by rate, which rows it is of and which of them are hits, (rows,) bool each."""
    rows, place = frame.rows, {one: at for at, one in enumerate(frame.classes)}
    if frame.asked.roles.label is None:
        decided = frame.decided()
        return {"selection_rate": (np.ones(len(decided), bool), decided)}
    label = rows.coded("label", {value: place[frame.as_label[value]] for value in rows.known["label"]})
    every = np.ones(len(label), bool)
    if frame.of_class is None:
        predicted = rows.coded("prediction", {value: place[one] for value, one in frame.as_prediction.items()})
        return {"accuracy": (every, predicted == label)}
    selected, positive = frame.decided(), label == frame.compared[0]
    return {
        "selection_rate": (every, selected),
        "true_positive_rate": (positive, selected),
        "false_positive_rate": (~positive, selected),
    }
