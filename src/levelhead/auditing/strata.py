"""Rates within the levels of another column: averaged over strata, and compared by the engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.engine import Pair, Quantity, Side, compare
from levelhead.auditing.part import Found, Frame
from levelhead.metrics.between import Differences, differences, normal_quantile, shared
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.names import Key
from levelhead.report import wide
from levelhead.report.headline import Lead
from levelhead.report.sentences import TURNED, gap_words, named_group, turned
from levelhead.report.text import Record, counted, joined, number, short
from levelhead.report.wide import Fraction
from levelhead.types import Estimate, in_quotes, listed


@dataclass(frozen=True)
class Stratified:
    """One rate of the groups of a sensitive column in each level of another.

    Attributes:
        column: the sensitive column.
        name: of the rate.
        of_class: the class that it is of.
        levels: names of the levels.
        groups: names of the groups.
        value: the rate, (levels, groups).
        rows: the rows that it is based on, (levels, groups).
        worth: the effective number of these rows, (levels, groups).
        mass: what they weigh in an average without levels, (levels, groups).
        size: what levels weigh, (levels,): all of their rows, or the sum of their weights.
        min_count: fewest rows of a group in a level that counts.
    """

    column: str
    name: str
    of_class: str
    levels: Sequence[str]
    groups: Sequence[str]
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
        one = Quantity(
            self.column, self.name, self.groups, self.value.mean(0), self.rows.sum(0), self.apart, self.of_class,
            larger_first=self.name == "false_positive_rate", reference=reference, sides=self.sides,
        )  # fmt: skip
        return replace(one, compared=np.any(self.used(*one.pairs), axis=0))

    def sides(self, *pair: int) -> tuple[Side, Side]:
        """Return both groups with their rates averaged over levels, and their rows there."""
        used = self.used(*np.array(pair)[:, None])
        one, other = (
            Side(
                self.groups[at],
                float(self.shares(used)[:, 0] @ self.value[:, at]),
                int(self.rows[used[:, 0], at].sum()),
            )
            for at in pair
        )
        return one, other

    def by_level(self, first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        """Return the differences within each level, (levels, pairs)."""
        start = len(self.groups) * np.arange(len(self.value))[:, None]
        hits, worth = (self.value * self.worth).ravel(), self.worth.ravel()
        places = ((start + side).ravel() for side in (first, second))
        found = differences(hits, worth, *places, level=level, comparisons=comparisons)
        return Differences(*(part.reshape(len(self.value), -1) for part in found))

    def apart(self, first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        """Return the differences averaged over levels, (pairs,), with ends by variance recovery.

        An end is never nearer than a normal interval's.
        """
        one = self.by_level(first, second, level=level, comparisons=comparisons)
        used = self.used(first, second)
        weights, (value, low, high) = self.shares(used), (np.where(used, part, 0.0) for part in one)
        mean = (weights * value).sum(0)
        arms = [np.sqrt(((weights * (end - value)) ** 2).sum(0)) for end in (low, high)]
        share = (self.value * self.worth + 1) / (self.worth + 2)
        variance = share * (1 - share) / np.maximum(1, self.worth)
        spread = (weights**2 * (variance[:, first] + variance[:, second])).sum(0)
        reach = normal_quantile(shared(level, comparisons)) * np.sqrt(spread)
        lower, upper = mean - np.maximum(arms[0], reach), mean + np.maximum(arms[1], reach)
        return Differences(mean, np.maximum(-1.0, lower), np.minimum(1.0, upper))

    def record(self, pair: Pair, level: float, comparisons: int) -> dict[str, Any]:
        """Return the JSON of a pair with its levels; their intervals allow for this many ``comparisons``."""
        at = np.array([self.groups.index(side.group) for side in (pair.first, pair.second)])
        places = at[:, None]
        one, used = self.by_level(*places, level=level, comparisons=comparisons), self.used(*places)
        share, used = self.shares(used)[:, 0], used[:, 0]
        levels = [
            {
                "name": self.levels[k], "share": float(share[k]), "rows": self.rows[k, at].tolist(),
                **{name: float(part[k, 0]) for name, part in zip(("difference", "low", "high"), one, strict=True)},
            }
            for k in np.flatnonzero(used).tolist()
        ]  # fmt: skip
        # Over the same rows: levels that are left out of one side would make a difference of their own.
        means = [float(self.value[used, i] @ self.mass[used, i] / self.mass[used, i].sum()) for i in at]
        figure, named = pair.difference, pair.to_dict()
        return {name: named[name] for name in ("attribute", "rate", "class", "first", "second")} | {
            "difference": figure.value, "low": figure.low, "high": figure.high, "plain": means[0] - means[1],
            "levels": levels,
            "left_out": [name for name, there in zip(self.levels, used, strict=True) if not there],
            "covered": float(self.size[used].sum() / self.size.sum()),
        }  # fmt: skip


def controlled(strata: Sequence[Stratified], control: str, frame: Frame, plain: Lead | None) -> ControlFound:
    """Compare groups within levels.

    Args:
        strata: the figures of each sensitive column by level, without rows that have no level or no group.
        control: the name of the column that levels are of.
        frame: has the references, the favourable outcome, which sentences are about, and the ``level``: how often all
            averages together, and all levels together, are to hold their true differences.
        plain: what the audit names without strata: it comes first.

    Returns:
        JSON-able: ``column``; ``pairs``, the plain one and then the largest first, each with the standardised figures
        of both groups, their ``difference`` averaged over levels, the ``plain`` one of the same rows without levels,
        and its ``levels``; and ``sentences``.
    """
    level, quantities = frame.options.level, [one.quantity(frame.references.get(one.column)) for one in strata]
    found = compare(quantities, level=level, about=plain)
    each = sum(int(one.used(*quantity.pairs).sum()) for one, quantity in zip(strata, quantities, strict=True))
    of_pair: dict[Any, Stratified] = {(one.column, one.name, one.of_class): one for one in strata}
    pairs = [of_pair[pair.column, pair.quantity, pair.of_class].record(pair, level, each) for pair in found.pairs]
    comparisons, min_count = max(1, found.comparisons), strata[0].min_count
    result = {"column": control, "level": level, "comparisons": comparisons, "min_count": min_count}
    there = any(quantity.places(plain) for quantity in quantities)
    leads = _leads({**result, "pairs": pairs}, None if there else plain, frame.outcome)
    return ControlFound({**result, "pairs": pairs}, leads)


def _leads(result: Record, lacking: Lead | None = None, outcome: str | None = None) -> list[Lead]:
    """Say the first difference within levels and without them, and what it is averaged over.

    ``lacking``: what the audit names without strata, where no stratum has enough rows of it.
    """
    within, few = f"Within strata of {short(result['column'], 60)}", counted(result["min_count"], "row")
    if not result["pairs"]:
        return [Lead((f"{within} there is nothing to compare: no stratum has two groups with {few} to compare.",))]
    if lacking is not None:
        both = joined([named_group(lacking.column, group) for group in lacking.groups])
        reason = f"no stratum has {few} of both under it"
        return [Lead((f"{within}, the {_called(lacking.quantity)} of {both} cannot be compared: {reason}.",))]
    pair = result["pairs"][0]
    figure, rate, of_class = Estimate(pair["difference"], pair["low"], pair["high"], 0), pair["rate"], pair["class"]
    sides = [pair[side] for side in ("first", "second")]
    values, plain = [one["value"] for one in sides], pair["plain"]
    if outcome is not None:
        figure, rate, of_class = turned(figure, 0), TURNED[rate], outcome
        values, plain = [1 - value for value in values], -plain
    names = [named_group(pair["attribute"], one["group"]) for one in sides]
    first, second = (f"{number(100 * value)}% for " for value in values)
    start = f"{within}, the {_called(rate)} of “{short(of_class, 40)}” is {first}"
    told = Lead(
        (start, names[0], f" and {second}", names[1]),
        f"{gap_words(figure)}. Without strata, over the same rows, the difference is "
        f"{number(100 * plain, signed=True)} points.",
        pair["attribute"],
        rate,
        of_class,
        tuple(one["group"] for one in sides),
        tuple(values),
        figure,
        comparisons=result["comparisons"],
    )
    levels = len(pair["levels"]) + len(pair["left_out"])
    over = (
        f"This averages {len(pair['levels'])} of {counted(levels, 'stratum', 'strata')} with "
        f"{number(100 * pair['covered'])}% of the rows, weighted by size."
    )
    if pair["left_out"]:
        named = listed(map(in_quotes, pair["left_out"]), 3)
        over += f" Left out, because one of the two groups has fewer than {few} there: {named}."
    if result["comparisons"] > 1:
        over += f" The interval is adjusted for {result['comparisons']:,} comparisons."
    return [told, Lead((over,), column=told.column)]


def _called(figure: str) -> str:
    return figure.replace("_", " ")


class ControlFound(Found):
    """What :func:`controlled` returns; ``leads`` are its sentences."""

    def __init__(self, found: Record, leads: list[Lead]) -> None:
        super().__init__({**found, "sentences": [one.sentence for one in leads]})
        self.leads = leads

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the differences within levels, of each class where there are several."""
        several = len({one["class"] for one in self["pairs"]}) > 1
        for one in self["pairs"]:
            figure = f"{one['rate']}_difference_within_levels" + (f"[{one['class']}]" if several else "")
            both = wide.Pair(one["first"]["group"], one["second"]["group"])
            rows = one["first"]["rows"] + one["second"]["rows"]
            found = Estimate(one["difference"], one["low"], one["high"], rows)
            yield one["attribute"], both, Fraction(figure), found
