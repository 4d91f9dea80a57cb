"""How figures changed from another table, of other rows: a newer month, or another site.

Rows of the two tables are independent. Rates have Newcombe's interval of a difference; areas under the ROC curve, and
differences between groups, combine their intervals by variance recovery (:mod:`levelhead.metrics.between`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from levelhead.auditing.options import AuditOptions, Roles
from levelhead.auditing.part import Answer, Frame, Part
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics.between import Differences, difference_of, differences, mover, shared
from levelhead.metrics.names import RATE_TITLES, Key, by_names, group_name
from levelhead.metrics.scores import ScoreCounts, area_interval, areas
from levelhead.report import blocks
from levelhead.report.record import Finding, Told
from levelhead.report.text import Record, counted, level_text, number, percent_interval, short
from levelhead.report.wide import Fraction
from levelhead.types import Estimate, in_quotes, listed, printable

TITLES = RATE_TITLES | {"area": "AUC"}
RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
NONE = "No rate of a group, and no gap, changed measurably between the two tables."


@dataclass(frozen=True)
class FigureChange(Finding):
    """One figure of one group in the ``old`` and the ``new`` table, and its ``change``.

    ``beside`` is the change less that of the largest group, which has None: how the gap between the two changed.
    """

    group: str
    figure: str
    old: float
    new: float
    change: Estimate
    beside: Estimate | None = None


@dataclass(frozen=True)
class Unpaired(Told, Answer):
    """All changes by sensitive column; intervals hold together over ``comparisons``."""

    old: str
    new: str
    by_attribute: dict[Key, tuple[FigureChange, ...]]
    comparisons: int
    level: float

    def sentences(self) -> list[str]:
        """Return the changes that are decided, of gaps first."""
        gaps, single = [], []
        for name, found in by_names(self.by_attribute).items():
            for one in found:
                what = f"By {printable(name)}, the {_lower(one.figure)} of {in_quotes(one.group)}"
                if one.beside is not None and one.beside.excludes_zero:
                    gaps.append(
                        f"{what} changed by {number(100 * one.beside.value, signed=True)} points relative to the "
                        f"largest group (interval {percent_interval(one.beside, signed=True)})."
                    )
                if one.change.excludes_zero:
                    single.append(
                        f"{what} went from {number(100 * one.old)}% to {number(100 * one.new)}% (interval of the "
                        f"change {percent_interval(one.change, signed=True)})."
                    )
        named = by_names(self.by_attribute)
        empty = [
            f"By {printable(name)}, nothing was compared: no group has enough rows in both tables."
            for name, found in named.items()
            if not found
        ]
        none = [] if len(empty) == len(named) else [NONE]
        return [*([*gaps, *single] or none), *empty]

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield each change."""
        for name, found in by_names(self.by_attribute).items():
            for one in found:
                yield name, one.group, Fraction(f"{one.figure}_change"), one.change
                if one.beside is not None:
                    yield name, one.group, Fraction(f"{one.figure}_change_beside"), one.beside


def _lower(figure: str) -> str:
    return "AUC" if figure == "area" else TITLES[figure].lower()


class OtherRows(Part):
    """Changes from a table of other rows."""

    name = "unpaired"
    needs = ("other",)
    keeps = ("label", "score", "prediction", "groups")

    @classmethod
    def lacks(cls, roles: Roles, options: AuditOptions) -> list[str]:
        """Return what it needs and is not there: another table, said to be of other rows."""
        return super().lacks(roles, options) or ([] if options.other and options.other.unpaired else ["other rows"])

    @classmethod
    def brief(cls, result: Record) -> list[str]:
        """Return the first change that is decided, or that none is."""
        return ((result.get(cls.name) or {}).get("sentences") or [])[:1]

    def find(self, frame: Frame) -> Unpaired:
        """Compare the groups that both tables have."""
        other, level = frame.options.other, frame.options.level
        assert other is not None
        assert frame.other_rows is not None  # run() read them
        old, asked = frame.other_rows, []
        for key in frame.groups:
            names = [group_name(one) for one in frame.kept(key)]
            there = [group_name(one) for one in old.kept(key)] if key in old.groups else []
            asked.append((key, [one for one in names if one in there]))
            alone = [[one for one in own if one not in both] for own, both in ((there, names), (names, there))]
            frame.warnings.extend(
                f"{printable(frame.names[key])}: groups that only {printable(where)} has are not compared: "
                f"{listed(map(in_quotes, lonely))}."
                for where, lonely in zip(other.names, alone, strict=True)
                if lonely
            )
        kinds = 3 if frame.of_class is not None else 1
        comparisons = max(1, sum(len(names) for _, names in asked) * (kinds + (frame.scale is not None)))
        strict, found = shared(level, comparisons), {}
        for key, names in asked:
            tables = [_tables(one, key, names) for one in (frame, old)]
            sizes = tables[0]["accuracy"][1]
            changes: list[FigureChange] = []
            for rate in ("accuracy",) if kinds == 1 else RATES:
                hits, rows = (np.concatenate([one[rate][side] for one in tables]) for side in (0, 1))
                enough = np.all(rows.reshape(2, -1) >= max(1, frame.options.min_count), axis=0)
                at = np.arange(len(names))
                one = differences(hits, np.maximum(rows, 1), at, at + len(names), level=strict)
                value = (hits / np.maximum(rows, 1)).reshape(2, -1)
                changes += _changes(rate, names, value, one, np.asarray(enough), rows.reshape(2, -1).sum(0), sizes)
            if frame.scale is not None:
                changes += _area_changes(frame, old, key, names, strict, sizes)
            found[key] = tuple(changes)
            told, least = {one.group for one in changes}, max(1, frame.options.min_count)
            if few := [one for one, size in zip(names, sizes, strict=True) if size >= least and one not in told]:
                frame.warnings.append(
                    f"{printable(frame.names[key])}: groups with fewer than {counted(least, 'row')} in "
                    f"{printable(other.names[0])} are not compared: {listed(map(in_quotes, few))}."
                )
        return Unpaired(*other.names, found, comparisons, level)

    @classmethod
    def column_sections(cls, name: str, result: Record) -> list[Record]:
        """Return the section on the changes by one sensitive column."""
        whole = result.get("unpaired")
        if whole is None or not whole["by_attribute"].get(name):
            return []
        rows = []
        for one in whole["by_attribute"][name]:
            beside = blocks.no_cell() if one["beside"] is None else blocks.figure_cell(one["beside"], signed=True)
            cells = [blocks.cell(number(100 * one[side])) for side in ("old", "new")]
            head = f"{short(one['group'], 60)}: {_lower(one['figure'])}"
            rows.append((head, [*cells, blocks.figure_cell(one["change"], signed=True), beside]))
        heads: list[str | tuple[str, str]] = ["Group and figure", "Old", "New"]
        heads += [("Change, points", f"New minus old, with simultaneous {level_text(whole['level'])} intervals.")]
        heads += [("Beside the largest group", "The change minus that of the largest group, in points.")]
        table = blocks.table(
            f"{short(whole['new'])} (new) beside {short(whole['old'])} (old), other rows, by {short(name)}, percent",
            heads, rows, where=blocks.BOTH,
        )  # fmt: skip
        first = name == next(iter(whole["by_attribute"]))
        said = blocks.said(whole["sentences"], most=6, more="changes") if first else []
        return [blocks.section("Other rows: what changed", [*said, table], rank=3)]


def _tables(frame: Frame, key: Key, names: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return hits and rows of each rate of some groups."""
    counts = frame.counts[key]
    table = counts.table[[list(counts.groups).index(name) for name in names]]
    rows, at = table.sum((1, 2)), frame.compared[0]
    hits, own = table[:, :, at].sum(1), table[:, at]
    return {
        "accuracy": (np.trace(table, axis1=1, axis2=2), rows),
        "selection_rate": (hits, rows),
        "true_positive_rate": (own[:, at], own.sum(-1)),
        "false_positive_rate": (hits - own[:, at], rows - own.sum(-1)),
    }


def _changes(
    figure: str,
    names: Sequence[str],
    value: np.ndarray,
    change: Differences,
    enough: np.ndarray,
    n: np.ndarray,
    sizes: np.ndarray,
) -> list[FigureChange]:
    """Return the changes of a figure, (2, groups) new and old, of the groups with ``enough`` rows in both tables."""
    kept = np.flatnonzero(enough)
    if not len(kept):
        return []
    to = int(kept[np.argmax(sizes[kept])])
    found = []
    for at in kept.tolist():
        beside = None
        if at != to:
            beside = difference_of(change.at(at, n[at]), change.at(to, n[to]))
        one = change.at(at, n[at])
        found.append(FigureChange(names[at], figure, float(value[1, at]), float(value[0, at]), one, beside))
    return found


def _area_changes(
    new: Frame, old: Frame, key: Key, names: Sequence[str], level: float, sizes: np.ndarray
) -> list[FigureChange]:
    """Return the changes of the areas under the ROC curve."""
    sides: list[Any] = []
    for frame in (new, old):
        rows, there = frame.rows, frame.groups[key]
        assert isinstance(rows, ScoreRows)
        counts = ScoreCounts.from_batches(functools.partial(rows.parted, frame.label, key, there), len(there))
        one, size = areas(counts), counts.sizes
        places = [list(map(group_name, there)).index(name) for name in names]
        value, variance, freedom = (np.diagonal(part)[places] for part in one)
        ends = area_interval(value, variance, freedom, size[places, 1], size[places, 0], level)
        enough = (size[places] >= new.options.min_count).all(-1) & ~np.isnan(ends[0])
        sides.append((value, ends, enough, size[places].sum(-1)))
    (value, ends, enough, n), (before, its, also, m) = sides
    low, high = mover(value, ends, before, its)
    change = Differences(value - before, np.maximum(-1.0, low), np.minimum(1.0, high))
    return _changes("area", names, np.stack([value, before]), change, enough & also, n + m, sizes)
