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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.engine import Pair, Quantity, Side, compare
from levelhead.auditing.options import no_level_error, no_level_sentence
from levelhead.auditing.part import Asked, Found, Frame, Part, find_classes
from levelhead.auditing.weights import weighted_counts
from levelhead.metrics import Counts
from levelhead.metrics import group as group_metrics
from levelhead.metrics.between import Differences, differences, normal_quantile, shared
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.names import RATE_TITLES, Key, group_name, parts_of
from levelhead.metrics.weighted import WeightedCounts
from levelhead.report import wide
from levelhead.report.sentences import gap_words, named_group
from levelhead.report.text import Record, counted, number, short
from levelhead.report.wide import Fraction
from levelhead.tables.bins import ordered_groups
from levelhead.tables.repeated import kept
from levelhead.tables.tally import Tally
from levelhead.types import Estimate, in_quotes, listed


@dataclass(frozen=True)
class LevelCounts:
    """Rows of one sensitive column in each level, with the names of both.

    ``counts`` has a group for each level and group, those of the first level first.
    """

    attribute: str
    counts: WeightedCounts
    levels: tuple[str, ...]
    groups: tuple[str, ...]

    def by_level(self, cells: NDArray[Any]) -> NDArray[Any]:
        """Return figures of the counts' groups (levels * groups,) as (levels, groups)."""
        return np.asarray(cells).reshape(len(self.levels), len(self.groups))


def controlled(
    columns: Sequence[LevelCounts],
    control: str,
    *,
    positive: int | None,
    min_count: int,
    level: float,
    reference: Mapping[str, str],
    plain: Pair | None = None,
) -> dict[str, Any]:
    """Compare groups within levels.

    Args:
        columns: the counts by level of each sensitive column, without rows that have no level or no group.
        control: the name of the column that levels are of.
        positive: as :func:`levelhead.metrics.estimate` takes it.
        min_count: smallest denominator of a rate of a group in a level.
        level: how often all averages together, and all levels together, are to hold their true differences.
        reference: the group of each column that the others are compared with; columns without one compare all pairs.
        plain: the pair that the audit names without strata: it comes first.

    Returns:
        JSON-able: ``column``; ``pairs``, the plain one and then the largest first, each with the standardised rates of
        both groups, their ``difference`` averaged over levels, the ``plain`` one of the same rows without levels, and
        its ``levels``; ``cells`` that are left out because they have too few rows; and ``sentences``.
    """
    strata = [one for counts in columns for one in stratified(counts, positive, min_count)]
    quantities = [one.quantity(reference.get(one.counts.attribute)) for one in strata]
    found = compare(quantities, level=level, about=plain)
    each = sum(int(one.used(*quantity.pairs).sum()) for one, quantity in zip(strata, quantities, strict=True))
    of_pair: dict[Any, Stratified] = {(one.counts.attribute, one.rate, one.of_class): one for one in strata}
    pairs = [of_pair[pair.column, pair.quantity, pair.of_class].record(pair, level, each) for pair in found.pairs]
    cells = [
        {"attribute": counts.attribute, "level": counts.levels[k], "group": counts.groups[i], "rows": int(rows)}
        for counts in columns
        for (k, i), rows in np.ndenumerate(counts.by_level(counts.counts.counts.group_sizes))
        if rows < min_count
    ]
    comparisons = max(1, found.comparisons)
    result = {"column": control, "level": level, "comparisons": comparisons, "min_count": min_count}
    there = any(quantity.places(plain) for quantity in quantities)
    told = control_sentences({**result, "pairs": pairs}, None if there else plain)
    return {**result, "pairs": pairs, "cells": cells, "sentences": told}


@dataclass(frozen=True)
class Stratified:
    """One rate of one class in each level: its ``value``, ``rows``, their effective number and mass, (levels, groups).

    ``mass`` is the number of rows, of weighted rows the sum of their weights; ``size`` (levels,) that of all rows.
    """

    counts: LevelCounts
    rate: str
    of_class: str
    value: FloatArray
    rows: IntArray
    worth: FloatArray
    mass: FloatArray
    size: FloatArray
    min_count: int

    def used(self, first: IntArray, second: IntArray) -> NDArray[np.bool_]:
        """Say in which levels both groups of each pair have enough rows, (levels, pairs)."""
        enough = self.rows >= max(1, self.min_count)
        return np.asarray(enough[:, first] & enough[:, second])

    def shares(self, used: NDArray[np.bool_]) -> FloatArray:
        """Return the share of each level for each pair, (levels, pairs); the shares of a pair sum to 1."""
        sizes = self.size[:, None] * used
        return np.divide(sizes, sizes.sum(0), out=np.zeros(sizes.shape), where=sizes.sum(0) > 0)

    def quantity(self, reference: str | None) -> Quantity:
        """Return the rate as the engine compares it: pairs that no level has enough rows of are left out."""
        groups = self.counts.groups
        one = Quantity(
            self.counts.attribute, self.rate, groups, self.value.mean(0), self.rows.sum(0), self.apart, self.of_class,
            larger_first=self.rate == "false_positive_rate", reference=reference, sides=self.sides,
        )  # fmt: skip
        return replace(one, compared=np.any(self.used(*one.pairs), axis=0))

    def sides(self, *pair: int) -> tuple[Side, Side]:
        """Return both groups with their rates averaged over levels, and their rows there."""
        used = self.used(*np.array(pair)[:, None])
        one, other = (
            Side(
                self.counts.groups[at],
                float(self.shares(used)[:, 0] @ self.value[:, at]),
                int(self.rows[used[:, 0], at].sum()),
            )
            for at in pair
        )
        return one, other

    def by_level(self, first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        """Return the differences within each level, (levels, pairs)."""
        start = len(self.counts.groups) * np.arange(len(self.value))[:, None]
        hits, worth = (self.value * self.worth).ravel(), self.worth.ravel()
        places = ((start + side).ravel() for side in (first, second))
        found = differences(hits, worth, *places, level=level, comparisons=comparisons)
        return Differences(*(part.reshape(len(self.value), -1) for part in found))

    def apart(self, first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        """Return the differences averaged over levels, (pairs,)."""
        one = self.by_level(first, second, level=level, comparisons=comparisons)
        weights = self.shares(self.used(first, second))
        value = (weights * one.value).sum(0)
        share = (self.value * self.worth + 1) / (self.worth + 2)
        variance = share * (1 - share) / np.maximum(1, self.worth)
        spread = (weights**2 * (variance[:, first] + variance[:, second])).sum(0)
        reach = normal_quantile(shared(level, comparisons)) * np.sqrt(spread)
        low = value - np.maximum(reach, np.sqrt(((weights * (one.value - one.low)) ** 2).sum(0)))
        high = value + np.maximum(reach, np.sqrt(((weights * (one.high - one.value)) ** 2).sum(0)))
        return Differences(value, np.maximum(-1.0, low), np.minimum(1.0, high))

    def record(self, pair: Pair, level: float, comparisons: int) -> dict[str, Any]:
        """Return the JSON of a pair with its levels; their intervals allow for this many ``comparisons``."""
        at = np.array([self.counts.groups.index(side.group) for side in (pair.first, pair.second)])
        places = at[:, None]
        one, used = self.by_level(*places, level=level, comparisons=comparisons), self.used(*places)
        share, used = self.shares(used)[:, 0], used[:, 0]
        levels = [
            {
                "name": self.counts.levels[k], "share": float(share[k]), "rows": self.rows[k, at].tolist(),
                **{name: float(part[k, 0]) for name, part in zip(("difference", "low", "high"), one, strict=True)},
            }
            for k in np.flatnonzero(used)
        ]  # fmt: skip
        # Over the same rows: levels that are left out of one side would make a difference of their own.
        means = [float(self.value[used, i] @ self.mass[used, i] / self.mass[used, i].sum()) for i in at]
        figure, named = pair.difference, pair.to_dict()
        return {name: named[name] for name in ("attribute", "rate", "class", "first", "second")} | {
            "difference": figure.value, "low": figure.low, "high": figure.high, "plain": means[0] - means[1],
            "levels": levels,
            "left_out": [name for name, there in zip(self.counts.levels, used, strict=True) if not there],
            "covered": float(self.size[used].sum() / self.size.sum()),
        }  # fmt: skip


def stratified(counts: LevelCounts, positive: int | None, min_count: int) -> list[Stratified]:
    """Return every rate of every class that is compared, by level."""
    found, whole = [], counts.counts
    names, size = whole.counts.classes, counts.by_level(whole.weight.sum((-2, -1))).sum(-1)
    for name, of_table in group_metrics.RATES.items():
        rate, mass = whole.rate(name, positive), of_table(whole.weight, positive).rows
        for position, k in enumerate(group_metrics.classes_compared(len(names), positive)):
            value, rows, worth, own = (
                counts.by_level(one[position]) for one in (np.nan_to_num(rate.value), rate.rows, rate.worth, mass)
            )
            found.append(Stratified(counts, name, str(names[k]), value, rows, worth, own, size, min_count))
    return found


def _of(parts: tuple[Hashable, ...], key: Key) -> Hashable:
    """Return the parts of a crossing that belong to a column, or to a crossing."""
    return parts[0] if isinstance(key, str) else parts


def control_sentences(result: Record, lacking: Pair | None = None) -> list[str]:
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
        first, second = (named_group(lacking.column, side.group) for side in (lacking.first, lacking.second))
        rate = str(RATE_TITLES[lacking.quantity]).lower()
        return [
            f"{within}, the {rate} of {first} and {second} cannot be compared: no stratum has "
            f"{counted(result['min_count'], 'row')} of both under it."
        ]
    pair = result["pairs"][0]
    first, second = (named_group(pair["attribute"], pair[side]["group"]) for side in ("first", "second"))
    shares = [f"{number(100 * pair[side]['value'])}%" for side in ("first", "second")]
    rate = str(RATE_TITLES[pair["rate"]]).lower()
    figure = Estimate(pair["difference"], pair["low"], pair["high"], 0)
    told = (
        f"{within}, the {rate} of “{short(pair['class'], 40)}” is {shares[0]} for {first} and {shares[1]} for "
        f"{second}: {gap_words(figure)}. Without strata, over the same rows, the difference is "
        f"{number(100 * pair['plain'], signed=True)} points."
    )
    levels = len(pair["levels"]) + len(pair["left_out"])
    over = (
        f"This averages {len(pair['levels'])} of {counted(levels, 'stratum', 'strata')} with "
        f"{number(100 * pair['covered'])}% of the rows, weighted by size."
    )
    if pair["left_out"]:
        few, named = counted(result["min_count"], "row"), listed(map(in_quotes, pair["left_out"]), 3)
        over += f" Left out, because one of the two groups has fewer than {few} there: {named}."
    if result["comparisons"] > 1:
        over += f" The interval is adjusted for {result['comparisons']:,} comparisons."
    return [told, over]


class ControlFound(Found):
    """What :func:`controlled` returns."""

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the differences within levels, of each class where there are several."""
        several = len({one["class"] for one in self["pairs"]}) > 1
        for one in self["pairs"]:
            figure = f"{one['rate']}_difference_within_levels" + (f"[{one['class']}]" if several else "")
            both = wide.Pair(one["first"]["group"], one["second"]["group"])
            rows = one["first"]["rows"] + one["second"]["rows"]
            yield one["attribute"], both, Fraction(figure), Estimate(one["difference"], one["low"], one["high"], rows)


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
    def _plain(frame: Frame) -> Pair | None:
        """Return the pair to name, whose class is called as the counts call it; None: that of all rates."""
        plain = frame.plain
        if plain is None or frame.of_class is not None:
            return plain and replace(plain, of_class=None)
        return replace(plain, of_class=frame.shown.get(str(plain.of_class), plain.of_class))

    def _counts(self, frame: Frame, key: Key, tally: Tally) -> tuple[LevelCounts, int, int | None]:
        """Return the counts of a column by level, how many rows have no level, and the positive class's place."""
        as_label, as_prediction, classes, positive, _ = find_classes(tally, frame.options)
        rows, parts = tally.counts[(*parts_of(key), *parts_of(self.levels))], len(parts_of(key))
        patterns = [one for one in rows if isinstance(one[2], tuple) and None not in one[2][parts:]]
        if not patterns:
            raise no_level_error(parts_of(self.levels))
        crossed = [one[2] for one in patterns if isinstance(one[2], tuple)]  # crossings are always tuples
        group_codes, groups = ordered_groups([_of(one[:parts], key) for one in crossed], key, self.asked.cuts)
        levels = [_of(one[parts:], self.levels) for one in crossed]
        level_codes, there = ordered_groups(levels, self.levels, self.asked.cuts)
        compared = [at for at, group in enumerate(groups) if not frame.options.leaves_out(group)]
        used = np.isin(group_codes, compared)
        place = {value: position for position, value in enumerate(classes)}
        codes = (
            (level_codes * len(compared) + np.searchsorted(compared, group_codes))[used],
            np.array([place[as_label[pattern[0]]] for pattern in patterns])[used],
            np.array([place[as_prediction[pattern[1]]] for pattern in patterns])[used],
        )
        names = [group_name(groups[at]) for at in compared]
        cells = [(level, group) for level in there for group in names]
        shown = [frame.shown.get(str(one), str(one)) for one in classes]
        number = np.array([rows[one] for one in patterns])[used]
        counts = Counts.from_codes(*codes, cells, shown, number)
        given = tally.weights.get((*parts_of(key), *parts_of(self.levels)))
        sums = None if given is None else np.array([given[one] for one in patterns])[used]
        weighted = weighted_counts(counts, codes, sums)
        whole = LevelCounts(frame.names[key], weighted, tuple(map(group_name, there)), tuple(names))
        return whole, sum(tally.labels.values()) - sum(rows[one] for one in patterns), positive

    @classmethod
    def brief(cls, result: Record) -> list[str]:
        """Return the difference within levels, beside that without."""
        return ((result.get(cls.name) or {}).get("sentences") or [])[:1]
