"""Rows of predicted numbers, counted batch by batch: moments of errors by group, by level, and of changes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.finding import Reference
from levelhead.auditing.options import check_grouping, check_levels, cut_points
from levelhead.auditing.regression_beside import OtherNumbers, crossed_with, has_level, texts_of
from levelhead.metrics.between import check_level
from levelhead.metrics.moments import GroupMoments, Moments
from levelhead.metrics.names import Key
from levelhead.tables.bins import Bins, Cuts
from levelhead.tables.columns import Column, FloatArray, finite
from levelhead.tables.repeated import kept, whole_counts
from levelhead.tables.source import Source, gathered
from levelhead.tables.tally import Tally

ADVICE = "Pass a number for every row, written like 0.25."


@dataclass(frozen=True)
class NumbersAsked:
    """Columns and options, as :func:`levelhead.regression_audit` describes them; ``other``: of another model."""

    label: str
    prediction: str
    groups: tuple[str, ...]
    along: tuple[str, ...]
    intersect: bool
    min_count: int
    level: float
    missing: str
    reference: Reference
    levels: tuple[str, ...] = ()
    count: str | None = None
    other: str | OtherNumbers | None = None
    id: str | None = None

    def check(self) -> None:
        """Raise an error for an option that is out of range."""
        check_grouping(len(self.groups), self.min_count, self.intersect, self.missing, fewest=2)
        check_levels(self.levels, self.groups)
        check_level(self.level)


def read_rows(source: Source, asked: NumbersAsked, bins: Bins | Sequence[str] | None) -> ErrorRows:
    """Count all rows of a table."""
    asked.check()
    cuts = cut_points(source, bins, [*asked.groups, *asked.levels], asked.count)
    return gathered(source, partial(ErrorRows, asked, cuts), ErrorRows.read)


class ErrorRows:
    """All rows so far, and what is held of columns of numbers.

    The moments by group are those of label, prediction, error and its size.
    """

    def __init__(self, asked: NumbersAsked, cuts: Mapping[str, Cuts], source: Source) -> None:
        self.asked, self.cuts, self.source, self.level = asked, cuts, source, asked.level
        self.tally, self.levels = (
            Tally("", "", {name: source.title(name) for name in names}, crossed, frozenset(cuts))
            for names, crossed in ((asked.groups, asked.intersect), (asked.levels, len(asked.levels) > 1))
        )
        self.of_groups, self.within, self.changed = (defaultdict[Key, GroupMoments](GroupMoments) for _ in range(3))
        self.whole = GroupMoments()
        self.ends = [math.inf, -math.inf]
        self.numbers: dict[str, list[FloatArray]] = defaultdict(list)

    def read(self, source: Source) -> None:
        """Add all rows of a table."""
        asked = self.asked
        along, beside = asked.along, asked.other if isinstance(asked.other, str) else None
        named = (asked.label, asked.prediction, asked.count, beside)
        numbers = list(dict.fromkeys(name for name in named if name is not None))
        words, before = list(dict.fromkeys([*asked.groups, *asked.levels])), 0
        for batch in source.batches([asked.id] if asked.id else [], words, numbers, along, self.cuts):
            columns: dict[str, Any] = {f"word {name}": column for name, column in batch.words.items()}
            columns |= {f"number {name}": one for name, one in batch.numbers.items()}
            if asked.id is not None:
                columns["id"] = texts_of(batch.outcomes[asked.id])
            if asked.count is not None:
                count = whole_counts(batch.numbers[asked.count], source.title(asked.count), before)
                before += len(count)
                columns = kept({**columns, "count": count}, count > 0)
            for name in along:
                if name in batch.words:
                    finite(columns[f"number {name}"], source.title(name), ADVICE)
            # A missing number is an error of the reader's after the last batch, which names the first rows.
            if all(np.isfinite(batch.numbers[name]).all() for name in (*numbers, *along)):
                for name in (asked.label, asked.prediction):
                    finite(columns[f"number {name}"], source.title(name), ADVICE)
                if len(columns[f"number {asked.label}"]):
                    self.add(columns)

    def add(self, columns: Mapping[str, Any]) -> None:
        """Add a batch of rows: numbers, words, ids and counts."""
        asked, count = self.asked, columns.get("count")
        label, prediction = (columns[f"number {name}"] for name in (asked.label, asked.prediction))
        every, error = np.ones(len(label), bool), prediction - label
        values = [label, prediction, error, np.abs(error)]
        words = {
            name: self.cuts[name].cut(columns[f"word {name}"], self.source.title(name))
            if name in self.cuts
            else columns[f"word {name}"]
            for name in dict.fromkeys([*asked.groups, *asked.levels])
        }
        groups = self.tally.group_columns({name: words[name] for name in asked.groups})
        asks: list[tuple[Mapping[Key, GroupMoments], Mapping[Key, Column], list[FloatArray], NDArray[np.bool_]]] = [
            (self.of_groups, groups, values, every)
        ]
        if asked.levels:
            level = list(self.levels.group_columns({name: words[name] for name in asked.levels}).values())[-1]
            there = has_level(level)
            crossing = {key: crossed_with(column, level, there) for key, column in groups.items()}
            asks.append((self.within, crossing, [one[there] for one in values], there))
        if asked.other is not None:
            its = columns[f"number {asked.other}"] if isinstance(asked.other, str) else asked.other.of(
                label, columns.get("id")
            )  # fmt: skip
            there = np.isfinite(its)
            its = its[there] - label[there]
            own = [error[there], np.abs(error[there])]
            of_both = {key: (codes[there], members) for key, (codes, members) in groups.items()}
            asks.append((self.changed, of_both, [*own, own[0] - its, own[1] - np.abs(its)], there))
        for found, by_key, measured, there in asks:
            weight = None if count is None else count[there]
            for key, (codes, members) in by_key.items():
                found[key].add(members, Moments.of(codes, len(members), measured, weight))
        self.whole.add([None], Moments.of(np.zeros(len(label), np.int64), 1, values, count))
        self.ends = [min(self.ends[0], float(prediction.min())), max(self.ends[1], float(prediction.max()))]
        for name in asked.along:
            for role, one in ((name, columns[f"number {name}"]), ("", error)):
                if role or name == asked.along[0]:
                    self.numbers[role].append(one if count is None else np.repeat(one, count))

    def merge(self, other: ErrorRows) -> None:
        """Add the rows of another table."""
        self.tally.merge(other.tally)
        self.levels.merge(other.levels)
        for mine, its in (
            (self.of_groups, other.of_groups),
            (self.within, other.within),
            (self.changed, other.changed),
        ):
            for key, moments in its.items():
                mine[key].merge(moments)
        self.whole.merge(other.whole)
        self.ends = [min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])]
        for name, parts in other.numbers.items():
            self.numbers[name].extend(parts)
