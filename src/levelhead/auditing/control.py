"""Gaps within the levels of another column: how groups differ among rows that are alike in it.

A gap over all rows may come from where the groups are: in which department, with which schooling. *Within levels* of
such a column groups are compared among rows of the same level, and the differences are averaged over levels (Kamiran,
Zliobaite and Calders 2013, "Quantifying explainable discrimination", call what is left unexplained). That is a choice:
a level may itself be unequal treatment, and the gap over all rows stays what people see.

The weight of a level is its share of the rows, of weighted rows of the weights, among the levels in which both groups
have enough rows. The interval of the average is found by variance recovery (Zou and Donner, Statistics in Medicine
2008) from Newcombe's of each level; shares count as known. Over many levels of few rows it held the true average in
93.6% of 1,200 simulated audits, so that each end is never nearer than that of a normal interval with one hit and one
miss added to each cell. All averages together have their intervals adjusted (Bonferroni), and so have all levels.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.options import no_level_error, no_level_sentence
from levelhead.auditing.part import Asked, Found, Frame, Part, find_classes
from levelhead.metrics import Counts
from levelhead.metrics import group as group_metrics
from levelhead.metrics.between import Differences, clearest, differences, normal_quantile, shared
from levelhead.metrics.contrasts import pair_indices
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.names import RATE_TITLES, Key, group_name, parts_of
from levelhead.metrics.weighted import WeightedCounts
from levelhead.report import blocks
from levelhead.report.sentences import named_group
from levelhead.report.text import Record, counted, interval, joined, number, short
from levelhead.report.wide import Fraction, Pair
from levelhead.tables.bins import ordered_groups
from levelhead.tables.repeated import kept
from levelhead.tables.tally import Tally
from levelhead.types import Estimate

NAMED_PAIRS, NAMED_LEVELS = 10, 40
"""Pairs kept per rate, and strata shown in tables; the JSON has all strata."""


@dataclass(frozen=True)
class LevelCounts:
    """Rows of one sensitive column in each level, (levels, groups, classes, classes), with the names of all four.

    ``weight`` and ``square`` are the sums of weights and of squared weights of weighted rows.
    """

    attribute: str
    table: IntArray
    levels: tuple[str, ...]
    groups: tuple[str, ...]
    classes: tuple[str, ...]
    weight: FloatArray | None = None
    square: FloatArray | None = None

    @property
    def mass(self) -> IntArray | FloatArray:
        """What shares are of: weights, or rows."""
        return self.table if self.weight is None else self.weight

    def rates(self, name: str, positive: int | None) -> list[Any]:
        """Return hits, rows (effective, if weighted), real rows and mass: (levels, classes, groups)."""
        plain = group_metrics.RATES[name](self.table, positive)
        hits, rows = np.asarray(plain.hits), np.asarray(plain.rows)
        if self.weight is None or self.square is None:
            return [hits, rows, rows, rows]
        found = [
            WeightedCounts(Counts(table, self.groups, self.classes), weight, square).rate(name, positive)
            for table, weight, square in zip(self.table, self.weight, self.square, strict=True)
        ]
        worth = np.stack([one.worth for one in found])
        value = np.stack([np.where(one.rows > 0, one.value, 0.0) for one in found])
        return [value * worth, worth, rows, np.asarray(group_metrics.RATES[name](self.weight, positive).rows)]


def controlled(
    columns: Sequence[LevelCounts],
    control: str,
    *,
    positive: int | None,
    min_count: int,
    level: float,
    reference: dict[str, str],
    plain: Record | None = None,
) -> dict[str, Any]:
    """Compare groups within levels.

    Args:
        columns: the counts by level of each sensitive column, without rows that have no level or no group.
        control: the name of the column that levels are of.
        positive: as :func:`levelhead.metrics.estimate` takes it.
        min_count: smallest denominator of a rate of a group in a level.
        level: how often all averages together, and all levels together, are to hold their true differences.
        reference: the group of each column that the others are compared with; columns without one compare all pairs.
        plain: the pair that the audit names without strata, as :func:`levelhead.auditing.rates.plain_pair` returns it:
            it comes first.

    Returns:
        JSON-able: ``column``; ``pairs``, the plain one and then the largest first, each with the standardised rates of
        both groups, their ``difference`` averaged over levels, the ``plain`` one of the same rows without levels, and
        its ``levels``; ``cells`` that are left out because they have too few rows; and ``sentences``.
    """
    made = [
        one for counts in columns for one in _compared(counts, positive, min_count, reference.get(counts.attribute))
    ]
    comparisons = max(1, sum(int(one.used.any(0).sum()) for one in made))
    each = max(1, sum(int(one.used.sum()) for one in made))
    pairs: list[dict[str, Any]] = []
    named: list[dict[str, Any]] = []
    for one in made:
        found, by_level = one.averages(level, comparisons), one.by_level(level, each)
        same = [at for at in range(len(one.first)) if plain is not None and one.is_of(at, plain)]
        pairs += [
            _pair(one, int(at), found, by_level) for at in found.named(NAMED_PAIRS)
            if one.used[:, at].any() and at not in same
        ]  # fmt: skip
        named += [_pair(one, at, found, by_level) for at in same if one.used[:, at].any()]
    pairs.sort(key=lambda pair: clearest(_figure(pair)))
    cells = [
        {"attribute": counts.attribute, "level": counts.levels[k], "group": counts.groups[i], "rows": int(rows)}
        for counts in columns
        for (k, i), rows in np.ndenumerate(counts.table.sum((-2, -1)))
        if rows < min_count
    ]
    result = {"column": control, "level": level, "comparisons": comparisons, "min_count": min_count}
    found_all = {**result, "pairs": [*named, *pairs], "cells": cells}
    return {**found_all, "sentences": control_sentences(found_all, None if named else plain)}


def _figure(pair: Record) -> Estimate:
    return Estimate(pair["difference"], pair["low"], pair["high"], pair["first"]["rows"] + pair["second"]["rows"])


@dataclass(frozen=True)
class _Compared:
    """One rate of one class: its hits and rows, (levels, groups), the pairs, and the levels that each pair uses.

    Of weighted rows, ``hits`` and ``rows`` are those of the effective sample size; ``real`` are rows, ``mass`` weights.
    """

    counts: LevelCounts
    rate: str
    of_class: str
    hits: IntArray | FloatArray
    rows: IntArray | FloatArray
    real: IntArray
    mass: IntArray | FloatArray
    first: IntArray
    second: IntArray
    used: NDArray[np.bool_]
    reference: bool

    def is_of(self, at: int, plain: Record) -> bool:
        """Whether a pair is the one that the audit names without strata, in the same rate."""
        groups = {self.counts.groups[int(side[at])] for side in (self.first, self.second)}
        named = self.counts.attribute, self.rate, groups
        return named == (plain["attribute"], plain["rate"], {plain["first"], plain["second"]}) and (
            plain["class"] in (None, self.of_class)
        )

    @property
    def weights(self) -> FloatArray:
        """Share of each level for each pair, (levels, pairs); the shares of a pair sum to 1."""
        sizes = self.counts.mass.sum((-3, -2, -1))[:, None] * self.used
        return np.divide(sizes, sizes.sum(0), out=np.zeros(sizes.shape), where=sizes.sum(0) > 0)

    def by_level(self, level: float, comparisons: int) -> Differences:
        """Return the differences within each level, (levels, pairs)."""
        found = [
            differences(hits, rows, self.first, self.second, level=level, comparisons=comparisons)
            for hits, rows in zip(self.hits, self.rows, strict=True)
        ]
        return Differences(*(np.stack(part) for part in zip(*found, strict=True)))

    def averages(self, level: float, comparisons: int) -> Differences:
        """Return the differences averaged over levels, (pairs,)."""
        one, weights = self.by_level(level, comparisons), self.weights
        value = (weights * one.value).sum(0)
        share = (self.hits + 1) / (self.rows + 2)
        variance = share * (1 - share) / np.maximum(1, self.rows)
        spread = (weights**2 * (variance[:, self.first] + variance[:, self.second])).sum(0)
        reach = normal_quantile(shared(level, comparisons)) * np.sqrt(spread)
        low = value - np.maximum(reach, np.sqrt(((weights * (one.value - one.low)) ** 2).sum(0)))
        high = value + np.maximum(reach, np.sqrt(((weights * (one.high - one.value)) ** 2).sum(0)))
        return Differences(value, np.maximum(-1.0, low), np.minimum(1.0, high))


def _compared(counts: LevelCounts, positive: int | None, min_count: int, reference: str | None) -> list[_Compared]:
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    if reference is not None and reference not in counts.groups:
        return []
    first, second = pair_indices(len(counts.groups), None if reference is None else counts.groups.index(reference))
    if not len(first):
        return []
    found = []
    for name in group_metrics.RATES:
        of_rate = counts.rates(name, positive)
        for position, k in enumerate(chosen):
            hits, rows, real, mass = (one[:, position] for one in of_rate)
            enough = real >= max(1, min_count)
            used, given = enough[:, first] & enough[:, second], reference is not None
            found.append(_Compared(counts, name, counts.classes[k], hits, rows, real, mass, first, second, used, given))
    return found


def _pair(one: _Compared, at: int, found: Differences, by_level: Differences) -> dict[str, Any]:
    i, j = int(one.first[at]), int(one.second[at])
    value, low, high = (float(part[at]) for part in found)
    turned = (value > 0) == (one.rate != "false_positive_rate") and value != 0 and not one.reference
    sign = -1 if turned else 1
    if turned:
        i, j, value, low, high = j, i, -value, -high, -low
    used, weights = one.used[:, at], one.weights[:, at]
    sizes = one.counts.mass.sum((-3, -2, -1))
    # Over the same rows: levels that are left out of one side would make a difference of their own.
    plain = [_mean(one, used, k) for k in (i, j)]
    levels = []
    for k in np.flatnonzero(used):
        ends = sorted(sign * float(part[k, at]) for part in (by_level.low, by_level.high))
        levels.append(
            {
                "name": one.counts.levels[k],
                "share": float(weights[k]),
                "difference": sign * float(by_level.value[k, at]),
                "low": ends[0],
                "high": ends[1],
                "rows": [int(one.real[k, i]), int(one.real[k, j])],
            }
        )
    return {
        "attribute": one.counts.attribute,
        "rate": one.rate,
        "class": one.of_class,
        "first": _side(one, i, used, weights),
        "second": _side(one, j, used, weights),
        "difference": value,
        "low": low,
        "high": high,
        "plain": plain[0] - plain[1],
        "levels": levels,
        "left_out": [name for name, there in zip(one.counts.levels, used, strict=True) if not there],
        "covered": float(sizes[used].sum() / sizes.sum()) if sizes.any() else 0.0,
    }


def _mean(one: _Compared, used: NDArray[np.bool_], group: int) -> float:
    """Return a group's rate over the levels used, without regard to them; 0 without rows."""
    mass = one.mass[used, group]
    return (
        float((one.hits / np.where(one.rows > 0, one.rows, 1))[used, group] @ mass / mass.sum()) if mass.any() else 0.0
    )


def _side(one: _Compared, at: int, used: NDArray[np.bool_], weights: FloatArray) -> dict[str, Any]:
    rates = one.hits[used, at] / one.rows[used, at]
    rows = int(one.real[used, at].sum())
    return {"group": one.counts.groups[at], "value": float(weights[used] @ rates), "rows": rows}


def control_sentences(result: Record, lacking: Record | None = None) -> list[str]:
    """Say the first difference within levels and without them, and what it is averaged over.

    ``lacking``: the pair that the audit names without strata, where no stratum has enough rows of it.
    """
    within = f"Within strata of {short(result['column'], 60)}"
    if not result["pairs"]:
        return [
            f"{within} there is nothing to compare: no stratum has two groups with "
            f"{counted(result['min_count'], 'row')} under a rate."
        ]
    if lacking is not None:
        first, second = (named_group(lacking["attribute"], lacking[side]) for side in ("first", "second"))
        return [
            f"{within}, the {str(RATE_TITLES[lacking['rate']]).lower()} of {first} and {second} cannot be compared: no "
            f"stratum has {counted(result['min_count'], 'row')} of both under it."
        ]
    pair = result["pairs"][0]
    first, second = (named_group(pair["attribute"], pair[side]["group"]) for side in ("first", "second"))
    rates = [number(100 * pair[side]["value"]) for side in ("first", "second")]
    rate = str(RATE_TITLES[pair["rate"]]).lower()
    value, low, high = pair["difference"], pair["low"], pair["high"]
    start = (
        f"{within}, the {rate} of “{short(pair['class'], 40)}” is {rates[0]}% for {first} and {rates[1]}% for {second}"
    )
    sign = 1 if value > 0 else -1
    ends = sorted((sign * low, sign * high))
    size = f"{number(100 * abs(value))} points {'higher' if value > 0 else 'lower'}"
    span = f"interval {number(100 * ends[0])} to {number(100 * ends[1])}"
    told = (
        f"{start}: {size}, {span}{'' if ends[0] > 0 else '; inconclusive'}. Without strata, over the same rows, the "
        f"difference is {number(100 * pair['plain'], signed=True)} points."
    )
    levels = len(pair["levels"]) + len(pair["left_out"])
    over = (
        f"This averages {len(pair['levels'])} of {counted(levels, 'stratum', 'strata')} with "
        f"{number(100 * pair['covered'])}% of the rows, weighted by size."
    )
    if pair["left_out"]:
        named = [f"“{short(name, 40)}”" for name in pair["left_out"][:3]]
        if rest := len(pair["left_out"]) - 3:
            named += [f"{rest} more"] if rest > 0 else []
        few = counted(result["min_count"], "row")
        over += f" Left out, because one of the two groups has fewer than {few} there: {joined(named)}."
    if result["comparisons"] > 1:
        over += f" The interval is adjusted for {result['comparisons']:,} comparisons."
    return [told, over]


def pair_cells(pair: Record) -> tuple[str, str, str, str, str]:
    """Return the cells of a pair: rate, groups, difference within levels, its interval, difference without levels."""
    return (RATE_TITLES[pair["rate"]], _less(pair), *_points(pair), number(100 * pair["plain"], signed=True))


def level_cells(one: Record) -> tuple[str, str, str, str, str]:
    """Return the cells of a level: name, share, difference, its interval, and the rows of both groups."""
    return (short(one["name"], 40), number(100 * one["share"]), *_points(one), "{:,} and {:,}".format(*one["rows"]))


def _points(one: Record) -> tuple[str, str]:
    value, low, high = (100 * one[key] for key in ("difference", "low", "high"))
    return number(value, signed=True), interval(low, high, signed=True)


def _less(pair: Record) -> str:
    return f"{short(pair['first']['group'], 40)} minus {short(pair['second']['group'], 40)}"


class ControlFound(Found):
    """What :func:`controlled` returns."""

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the differences within levels, of each class where there are several."""
        several = len({one["class"] for one in self["pairs"]}) > 1
        for one in self["pairs"]:
            figure = f"{one['rate']}_difference_within_levels" + (f"[{one['class']}]" if several else "")
            both = Pair(one["first"]["group"], one["second"]["group"])
            yield one["attribute"], both, Fraction(figure), _figure(one)


class Control(Part):
    """Gaps within the levels of the control columns."""

    name = "control"
    needs = ("levels",)
    counted = True

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        source, roles = asked.source, asked.roles
        self.levels: Key = roles.levels if len(roles.levels) > 1 else roles.levels[0]
        keys: list[Key] = [*roles.groups, *([roles.groups] if asked.options.intersect else [])]
        titles, levels = roles.titles(source), {name: source.title(name) for name in roles.levels}
        self.tallies = {
            key: Tally(
                titles["label"],
                titles["prediction"],
                {name: source.title(name) for name in parts_of(key)} | levels,
                True,
                frozenset(asked.cuts),
            )
            for key in keys
        }

    def update(self, columns: Mapping[str, Any]) -> None:
        """Count the rows of each group and level."""
        weight = columns.get("weight")
        if weight is not None:
            if not (there := weight > 0).any():
                return
            columns = kept(columns, there)
        for tally in self.tallies.values():
            both = {name: columns.get(f"group {name}") or columns[f"level {name}"] for name in tally.groups}
            weight, count = columns.get("weight"), columns.get("count")
            tally.add(columns["label"], columns["prediction"], both, weight, count=count)

    def find(self, frame: Frame) -> Found:
        """Return what :func:`controlled` does."""
        control, options = group_name(self.levels), frame.options
        columns: list[LevelCounts] = []
        for key, tally in self.tallies.items():
            tally.refuse_ids(options.min_count)
            counts, without, positive = self._counts(frame, key, tally)
            if without and not columns:
                frame.warnings.append(no_level_sentence(control, without))
            columns.append(counts)
        found = controlled(
            columns,
            control,
            positive=positive,
            min_count=options.min_count,
            level=options.level,
            reference=frame.references,
            plain=self._plain(frame),
        )
        return ControlFound(found)

    @staticmethod
    def _plain(frame: Frame) -> Record | None:
        """Return the pair to name, whose class is called as the counts call it; None: that of all rates."""
        plain = frame.plain
        if plain is None or frame.of_class is not None:
            return plain and plain | {"class": None}
        return plain | {"class": frame.shown.get(plain["class"], plain["class"])}

    def _counts(self, frame: Frame, key: Key, tally: Tally) -> tuple[LevelCounts, int, int | None]:
        """Return the counts of a column by level, how many rows have no level, and the positive class's place."""
        as_label, as_prediction, classes, positive, _ = find_classes(tally, frame.options)
        place = {value: position for position, value in enumerate(classes)}
        levels, parts = parts_of(self.levels), len(parts_of(key))
        patterns = {
            pattern: rows
            for pattern, rows in tally.counts[(*parts_of(key), *levels)].items()
            if isinstance(pattern[2], tuple) and None not in pattern[2][parts:]  # crossings are always tuples
        }
        if not patterns:
            raise no_level_error(levels)
        crossed = [pattern[2] for pattern in patterns if isinstance(pattern[2], tuple)]
        own: list[Hashable] = [one[0] if isinstance(key, str) else one[:parts] for one in crossed]
        its: list[Hashable] = [one[parts] if len(levels) == 1 else one[parts:] for one in crossed]
        group_codes, groups = ordered_groups(own, key, self.asked.cuts)
        level_codes, there = ordered_groups(its, self.levels, self.asked.cuts)
        table = np.zeros((len(there), len(groups), len(classes), len(classes)), np.int64)
        labels = np.array([place[as_label[pattern[0]]] for pattern in patterns])
        predictions = np.array([place[as_prediction[pattern[1]]] for pattern in patterns])
        at = (level_codes, group_codes, labels, predictions)
        np.add.at(table, at, list(patterns.values()))
        weights = {}
        if given := tally.weights.get((*parts_of(key), *levels)):
            for name, sums in zip(("weight", "square"), np.array([given[one] for one in patterns]).T, strict=True):
                weights[name] = np.zeros(table.shape)
                np.add.at(weights[name], at, sums)
        compared = [at for at, group in enumerate(groups) if not frame.options.leaves_out(group)]
        counts = LevelCounts(
            frame.names[key],
            table[:, compared],
            tuple(map(group_name, there)),
            tuple(group_name(groups[at]) for at in compared),
            tuple(frame.shown.get(str(one), str(one)) for one in classes),
            **{name: one[:, compared] for name, one in weights.items()},
        )
        return counts, sum(tally.labels.values()) - sum(patterns.values()), positive

    @classmethod
    def brief(cls, result: Record) -> list[str]:
        """Return the difference within levels, beside that without."""
        return ((result.get(cls.name) or {}).get("sentences") or [])[:1]

    @classmethod
    def sections(cls, result: Record) -> list[Record]:
        """Return the section on gaps within the levels of another column."""
        control = result.get("control")
        if not control or not control["pairs"]:
            return []
        first, column = control["pairs"][0], short(control["column"], 60)
        heads = ["Pair", "Within levels", "Interval", "Without levels"]
        pairs = blocks.table(
            f"Differences of two groups within strata of {column}, averaged over strata, in points",
            heads,
            [
                (f"{rate}: {groups}", [blocks.cell(one) for one in numbers])
                for rate, groups, *numbers in map(pair_cells, control["pairs"][:NAMED_PAIRS])
            ],
            notes=[
                f"Strata are weighted by size. Intervals are adjusted for {control['comparisons']:,} comparisons "
                "(Bonferroni)."
            ],
            where=blocks.BOTH,
        )
        more = len(first["levels"]) - NAMED_LEVELS
        levels = blocks.table(
            f"{pair_cells(first)[0]} in each stratum of {column}: {pair_cells(first)[1]}, in points",
            ["Level", "Share, percent", "Difference", "Interval", "Rows"],
            [
                (name, [blocks.cell(one) for one in cells])
                for name, *cells in map(level_cells, first["levels"][:NAMED_LEVELS])
            ],
            notes=[f"{more:,} more strata are in the JSON." if more > 0 else ""],
            where=blocks.BOTH,
        )
        said = blocks.said(control["sentences"][1:])
        return [blocks.section(f"Within strata of {column}", [*said, pairs, levels], rank=1)]
