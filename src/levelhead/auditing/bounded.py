"""Which single threshold of a score keeps a gap within a bound: chosen on half of the rows, measured on the others.

All rows get one threshold, so that no group is read to decide; groups of the first half choose it. Of the thresholds
whose gap there is within the bound, the one with the largest accuracy is taken, or with the least cost of errors where
costs are given. The other half was not looked at: its figures have the intervals of any audit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.part import Answer, Frame, Part
from levelhead.metrics import Counts, estimate, proportion
from levelhead.metrics.between import shared
from levelhead.metrics.group import RATES, FloatArray
from levelhead.metrics.names import METRICS, Key, attribute_names, group_name
from levelhead.metrics.separation import cost
from levelhead.report import blocks
from levelhead.report.record import Finding, Told
from levelhead.report.text import Record, counted, digits, level_text, number, percent, percent_interval, short
from levelhead.report.wide import Fraction
from levelhead.types import ConfigError, DataError, Estimate, in_quotes, listed, printable, quoted

BOUNDED = {
    "demographic_parity": "demographic_parity",
    "equal_opportunity": "equal_opportunity",
    "equalized_odds": "equalized_odds_worst",
}
"""Gaps that can be bounded, and which metric is meant: equalized odds is the larger of the gaps of both rates."""
TRIED = 400
"""Thresholds that are tried at most, at quantiles of the scores."""


@dataclass(frozen=True)
class AtThreshold(Finding):
    """What a threshold does on the rows that did not choose it: ``gaps`` by sensitive column."""

    threshold: float
    accuracy: Estimate
    cost: Estimate | None
    selection_rate: Estimate
    gaps: dict[str, Estimate]


@dataclass(frozen=True)
class Bounded(Told, Answer):
    """The ``chosen`` threshold beside the ``plain`` one; ``within``: "yes", "no" or "undecided" on the other rows.

    ``met``: whether the gap is within the ``bound`` on the rows that chose; else the threshold with the smallest gap.
    ``left_out``: columns without two groups of ``min_count`` rows there, which the choice does not know.
    ``not_choosing`` and ``not_measured``: by column, groups that the audit's gap compares, and that of the rows which
    chose, or of the others, does not. Groups ``not_measured`` leave ``within`` undecided, or "no" if the rest says so.
    """

    metric: str
    bound: float
    chosen: AtThreshold
    plain: AtThreshold
    met: bool
    within: str
    chosen_on: int
    measured_on: int
    level: float
    min_count: int = 1
    left_out: tuple[str, ...] = ()
    not_choosing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    not_measured: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def sentences(self) -> list[str]:
        """Say the threshold, and what it does to gap and accuracy on held-out rows."""
        bound, what = f"{100 * self.bound:g} points", METRICS[BOUNDED[self.metric]].subject
        one, other = self.chosen, self.plain
        how = "least cost" if one.cost is not None else "largest accuracy"
        rows = f"{self.chosen_on:,} rows" + (f" without {_named(self.not_choosing)}" if self.not_choosing else "")
        named, why = _named(self.not_measured, 1), "pass more, or name a smaller bound."
        rest = f", even without {named}" if named else ""
        if named:
            why = f"too few rows of {named}."
        if self.met:
            first = (
                f"Of the thresholds that keep the gap in {what} within {bound} on {rows}, "
                f"{digits(one.threshold)} has the {how}."
            )
        else:
            first = (
                f"No threshold keeps the gap in {what} within {bound} on {rows}: "
                f"{digits(one.threshold)} has the smallest gap."
            )
        verdict = {
            "yes": f"The other rows show a gap within {bound}.",
            "no": f"The other rows show a gap above {bound}{rest}: the choice did not hold.",
            "undecided": f"On the other rows that is inconclusive: {why}",
        }
        said = [first, verdict[self.within]]
        if self.left_out:
            said.append(
                f"The choice leaves out {listed(self.left_out)}: fewer than two groups have "
                f"{counted(max(1, self.min_count), 'row')} under each rate."
            )
        if named:
            few = counted(max(1, self.min_count), "row")
            said.append(f"A group needs {few} under each rate there: pass more, or lower --min-count.")
        for name, gap in one.gaps.items():
            where = f"On the {self.measured_on:,} other rows, by {printable(name)}, the gap"
            if name in self.not_measured:
                where += f" without {listed(map(in_quotes, self.not_measured[name]))}"
            if gap.defined:
                said.append(
                    f"{where} is {percent(gap)} points (interval {percent_interval(gap)}), and "
                    f"{percent(other.gaps[name])} at the threshold {digits(other.threshold)}."
                )
            else:
                said.append(f"{where} is undefined: {gap.reason}.")
        figures = f"Accuracy there is {percent(one.accuracy)}%, {percent(other.accuracy)}% before."
        if one.cost is not None and other.cost is not None:
            figures = f"Errors there cost {digits(one.cost.value)} a row, {digits(other.cost.value)} before."
        said.append(figures)
        if one.selection_rate.value in (0, 1):
            said.append(f"The threshold decides {'every' if one.selection_rate.value else 'no'} row positive.")
        return said

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the held-out figures at the chosen threshold.

        Groups that are not measured leave the upper end of a gap open, or all of it where it is not above the bound.
        """
        for name, gap in self.chosen.gaps.items():
            if name in self.not_measured and gap.defined:
                few = {name: self.not_measured[name]}
                gap = (
                    replace(gap, high=1.0)
                    if gap.low > self.bound
                    else Estimate.undefined(f"too few rows of {_named(few)} among those that measure", gap.n)
                )
            yield name, None, Fraction(f"bounded_{self.metric}"), gap
            yield name, None, Fraction("bounded_accuracy"), self.chosen.accuracy


def check_bound(bound: Any) -> tuple[str, float] | None:
    """Return a gap's name and its bound, a fraction; raise :class:`ConfigError` for anything else.

    Args:
        bound: ``{"equalized_odds": 0.05}``, or a text, ``equalized_odds=5%`` or ``0.05`` (equalized odds).
    """
    if bound is None:
        return None
    if isinstance(bound, Mapping):
        name, value = next(iter(bound.items())) if len(bound) == 1 else ("", "")
    else:
        name, _, value = str(bound).strip().rpartition("=")
        name = name.strip() or "equalized_odds"
    text = str(value).strip()
    try:
        limit = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        limit = -1.0
    if name not in BOUNDED or not 0 <= limit < 1:
        raise ConfigError(
            f"bound={quoted(bound)} names no gap and a fraction below 1. Write --bound equalized_odds=5% "
            f"(bound={{'equalized_odds': 0.05}} in Python); gaps: {listed(BOUNDED)}."
        )
    return name, limit


def _named(groups: Mapping[str, Sequence[str]], most: int = 2) -> str:
    """Name groups by column."""
    return listed([f"{in_quotes(one)} of {printable(name)}" for name, own in groups.items() for one in own], most)


@dataclass(frozen=True)
class _Rows:
    """Scores and labels (rows,), and each column's groups as places (rows,); -1: in no gap."""

    score: FloatArray
    label: NDArray[np.bool_]
    members: Mapping[str, NDArray[np.int64]]
    names: Mapping[str, Sequence[str]]

    def only(self, rows: NDArray[np.bool_]) -> _Rows:
        own = {name: one[rows] for name, one in self.members.items()}
        return _Rows(self.score[rows], self.label[rows], own, self.names)

    def tables(self, name: str | None, thresholds: FloatArray) -> NDArray[np.int64]:
        """Return counts (thresholds, groups, label, prediction); ``name`` None: of all rows as one group.

        Thresholds ascend.
        """
        shape = 1 if name is None else len(self.names[name]), 2, len(thresholds) + 1
        reached = np.searchsorted(thresholds, self.score, side="right")  # how many thresholds decide a row positive
        codes = self.label * shape[2] + reached
        if name is not None:
            inside = self.members[name] >= 0
            codes = (codes + self.members[name] * 2 * shape[2])[inside]
        below = np.bincount(codes, minlength=math.prod(shape)).reshape(shape).cumsum(-1)
        return np.moveaxis(np.stack([below[..., :-1], below[..., -1:] - below[..., :-1]], -1), 2, 0)

    def lacking(self, whole: _Rows, metric: str, min_count: int) -> dict[str, tuple[str, ...]]:
        """Return by column the groups with ``min_count`` rows under each rate in the ``whole``, and fewer here."""
        found = {}
        for name, groups in self.names.items():
            here, there = (_gaps(one.tables(name, np.zeros(1)), metric, min_count)[1] for one in (self, whole))
            least = max(1, min_count)
            few = tuple(one for one, n, of in zip(groups, here, there, strict=True) if n < least <= of)
            if few:
                found[name] = few
        return found

    def counts(self, name: str, threshold: float) -> Counts:
        return Counts(self.tables(name, np.array([threshold]))[0], tuple(self.names[name]), (0, 1))


def _gaps(tables: NDArray[np.int64], metric: str, min_count: int) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the gap at each threshold, (thresholds,), and the fewest rows under a rate of each group, (groups,).

    Groups with few rows under a rate are left out. The gap is NaN where fewer than two groups remain.
    """
    rates = [RATES[name](tables, 1) for name in METRICS[BOUNDED[metric]].rates_used]
    rows = np.min([rate.rows[0, 0] for rate in rates], axis=0)
    enough = rows >= max(1, min_count)
    if enough.sum() < 2:
        return np.full(len(tables), np.nan), rows
    gaps = [np.ptp((rate.hits / np.maximum(rate.rows, 1))[:, 0, enough], axis=1) for rate in rates]
    return np.max(gaps, axis=0), rows


def choose_threshold(
    rows: _Rows, metric: str, bound: float, plain: float, costs: tuple[float, float] | None, min_count: int
) -> tuple[float, bool, tuple[str, ...]]:
    """Return the best threshold whose gap is within the bound in every column, whether there is one, and columns.

    These have fewer than two groups with enough rows: the choice leaves them out. Of equally good thresholds it is the
    nearest to the ``plain`` one.

    Raises:
        DataError: no column can be measured.
    """
    tried = np.unique(np.append(np.quantile(rows.score, np.linspace(0, 1, TRIED), method="higher"), plain))
    found = {name: _gaps(rows.tables(name, tried), metric, min_count) for name in rows.members}
    known = {name: gap for name, (gap, _) in found.items() if not np.isnan(gap[0])}
    if not known:
        name, (_, few) = max(found.items(), key=lambda one: sorted(one[1][1], reverse=True)[1:2])
        sizes = listed([f"{group} {count:,}" for group, count in zip(rows.names[name], few, strict=True)], 5)
        raise DataError(
            f"--bound {metric} needs two groups with {counted(max(1, min_count), 'row')} under each rate in the half "
            f"of the rows that chooses a threshold ({counted(len(rows.score), 'row')}). Rows per group of "
            f"{quoted(name)}: {sizes}. Pass more rows, or lower --min-count."
        )
    gap = np.max(list(known.values()), axis=0)
    table = rows.tables(None, tried)[:, 0]
    weights = (1.0, 1.0) if costs is None else costs
    loss = table[:, 0, 1] * weights[0] + table[:, 1, 0] * weights[1]
    met = bool((gap <= bound).any())
    usable = gap <= bound if met else gap == gap.min()
    order = np.lexsort((np.abs(tried - plain), loss, ~usable))
    return float(tried[order[0]]), met, tuple(name for name in found if name not in known)


class BoundPart(Part):
    """Which threshold keeps a gap within a bound."""

    name = "bound"
    needs = ("bound", "score")
    keeps = ("label", "score", "groups")

    def find(self, frame: Frame) -> Bounded:
        """Choose a threshold on half of the rows, and measure it on the others."""
        options = frame.options
        assert options.bound is not None
        metric, bound = options.bound
        rows = _rows_of(frame)
        # Drawn for sorted rows: equal rows are interchangeable, so the order of a file changes no figure.
        order = np.lexsort((*rows.members.values(), rows.label, rows.score))
        first = np.zeros(len(order), bool)
        first[np.random.default_rng([options.seed, 2]).permutation(order)[::2]] = True
        own, other = rows.only(first), rows.only(~first)
        plain = float(frame.thresholds[0])
        threshold, met, left_out = choose_threshold(own, metric, bound, plain, options.costs, options.min_count)
        chosen, before = (_measured(other, at, metric, frame) for at in (threshold, plain))
        known = [gap for gap in chosen.gaps.values() if gap.defined]
        not_choosing, not_measured = (half.lacking(rows, metric, options.min_count) for half in (own, other))
        within = "undecided"
        if any(gap.low > bound for gap in known):
            within = "no"
        elif len(known) == len(chosen.gaps) and not not_measured and all(gap.high <= bound for gap in known):
            within = "yes"
        sizes = len(own.score), len(other.score)
        lacking = {name: few for name, few in not_choosing.items() if name not in left_out}
        return Bounded(
            metric, bound, chosen, before, met, within, *sizes, options.level, options.min_count, left_out,
            lacking, not_measured,
        )  # fmt: skip

    @classmethod
    def sections(cls, result: Record) -> list[Record]:
        """Return the section on the threshold."""
        found = result.get("bound")
        if found is None:
            return []
        level, title = level_text(found["level"]), f"Gap in {METRICS[BOUNDED[found['metric']]].subject}"
        rows = []
        for which, words in (("chosen", "Chosen"), ("plain", "Before")):
            one = found[which]
            cells = [blocks.cell(digits(one["threshold"])), blocks.figure_cell(one["accuracy"])]
            cells += [blocks.figure_cell(one["selection_rate"])]
            cells += [blocks.figure_cell(gap) for gap in one["gaps"].values()]
            rows.append((words, cells))
        heads = ["Threshold", "Score", "Accuracy", "Selection rate"]
        heads += [f"{title} by {short(name, 30)}" for name in found["chosen"]["gaps"]]
        limit = number(100 * found["bound"])
        table = blocks.table(
            f"One threshold for all, chosen on {found['chosen_on']:,} rows for a gap of at most {limit} points and "
            f"measured on {found['measured_on']:,} others, with {level} intervals",
            heads,
            rows,
            where=blocks.BOTH,
        )
        return [blocks.section("A threshold within a bound", [*blocks.said(found["sentences"]), table], rank=1)]

    @classmethod
    def brief(cls, result: Record) -> list[str]:
        """Return the threshold, whether it holds on other rows, and the columns that did not choose it."""
        found = result.get("bound")
        return [] if found is None else found["sentences"][: 3 if found.get("left_out") else 2]


def _rows_of(frame: Frame) -> _Rows:
    place = {one: at for at, one in enumerate(frame.classes)}
    codes = {value: place[frame.as_label[value]] for value in frame.rows.known["label"]}
    label = frame.rows.coded("label", codes) == frame.compared[0]
    names, members = attribute_names(frame.groups), {}
    for key, groups in frame.groups.items():
        at = {group: position for position, group in enumerate(frame.kept(key))}
        members[names[key]] = np.array([at.get(group, -1) for group in groups], np.int64)[frame.members(key)]
    texts = {names[key]: list(map(group_name, frame.kept(key))) for key in frame.groups}
    return _Rows(frame.rows.whole("score"), label, members, texts)


def _measured(rows: _Rows, threshold: float, metric: str, frame: Frame) -> AtThreshold:
    options = frame.options
    level = shared(options.level, len(rows.members))  # gaps by all columns hold together
    more: dict[str, Any] = {"level": level, "replicates": options.replicates, "seed": options.seed}
    gaps = {
        name: estimate(
            rows.counts(name, threshold), BOUNDED[metric], positive=1, min_count=options.min_count, **more
        )
        for name in rows.members
    }  # fmt: skip
    table, n = rows.tables(None, np.array([threshold]))[0, 0], len(rows.score)
    right, selected = int(np.trace(table)), int(table[:, 1].sum())
    rates = [proportion(hits, n, level=options.level) for hits in (right, selected)]
    price = None
    if options.costs is not None:
        errors = np.array([[table[0, 1], table[1, 0]]])
        found = cost(errors, np.array([n]), options.costs, 1 - options.level)
        price = Estimate(float(found[0][0]), float(found[1][0]), float(found[2][0]), n)
    return AtThreshold(threshold, rates[0], price, rates[1], gaps)
