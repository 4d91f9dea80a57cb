"""Rows of predicted numbers, counted batch by batch: moments of errors by group, by level, and of changes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.options import AuditOptions, Roles, check_grouping, cut_points
from levelhead.auditing.regression_beside import OtherNumbers, crossed_with, has_level
from levelhead.metrics.between import check_level
from levelhead.metrics.moments import GroupMoments, Moments
from levelhead.metrics.names import Key
from levelhead.tables.bins import Cuts
from levelhead.tables.columns import Column, FloatArray, finite
from levelhead.tables.files import Stored
from levelhead.tables.repeated import kept
from levelhead.tables.source import Source
from levelhead.tables.tally import Tally

ADVICE = "Pass a number for every row, written like 0.25."


def read_rows(source: Source, roles: Roles, options: AuditOptions) -> ErrorRows:
    """Count all rows of a table, whose label and predictions are numbers."""
    check_grouping(len(roles.groups), options.min_count, options.intersect, options.missing, fewest=2)
    check_level(options.level)
    its, other = options.other, None
    if its is not None and isinstance(its.source, Stored):
        other = OtherNumbers(its.source, str(roles.label), str(roles.prediction), its.id)
    cuts = cut_points(source, options.bins, [*roles.groups, *roles.levels], roles.count)
    rows = ErrorRows(roles, options, other, cuts, source)
    rows.read()
    for tally in (rows.tally, rows.levels):
        tally.refuse_ids(options.min_count)
    return rows


class ErrorRows:
    """All rows so far, and what is held of columns of numbers.

    The moments by group are those of label, prediction, error and its size.
    """

    def __init__(
        self,
        roles: Roles,
        options: AuditOptions,
        other: OtherNumbers | None,
        cuts: Mapping[str, Cuts],
        source: Source,
    ) -> None:
        self.roles, self.options, self.other, self.cuts, self.source = roles, options, other, cuts, source
        self.tally, self.levels = (
            Tally("", "", {name: source.title(name) for name in names}, crossed, frozenset(cuts))
            for names, crossed in ((roles.groups, options.intersect), (roles.levels, len(roles.levels) > 1))
        )
        self.of_groups, self.within, self.changed = (defaultdict[Key, GroupMoments](GroupMoments) for _ in range(3))
        self.whole = GroupMoments()
        self.ends = [math.inf, -math.inf]
        self.numbers: dict[str, list[FloatArray]] = defaultdict(list)

    def read(self) -> None:
        """Add all rows of the table."""
        roles, source = self.roles, self.source
        answers = {"label": roles.label, "prediction": roles.prediction, "other": roles.other}
        given = [role for role, name in answers.items() if name is not None]
        for batch in roles.batches(source, self.cuts):
            columns: dict[str, Any] = dict(batch)
            if self.other is not None:
                title = "" if roles.id is None else self.source.title(roles.id)
                columns["other"] = self.other.of(columns["label"], columns.get("id"), columns.get("count"), title)
            if "count" in columns and not columns["count"].all():
                columns = kept(columns, columns["count"] > 0)
            if not len(columns["label"]):
                continue
            for name in roles.along:
                if name in (*roles.groups, *roles.levels):
                    finite(columns[f"along {name}"], source.title(name), ADVICE)
            # A missing number is an error of the reader's after the last batch, which names the first rows.
            if all(np.isfinite(columns[role]).all() for role in (*given, *(f"along {name}" for name in roles.along))):
                for role in ("label", "prediction"):
                    finite(columns[role], source.title(str(answers[role])), ADVICE)
                self.add(columns)

    def add(self, columns: Mapping[str, Any]) -> None:
        """Add a batch of rows by their roles."""
        roles, count = self.roles, columns.get("count")
        label, prediction = columns["label"], columns["prediction"]
        every, error = np.ones(len(label), bool), prediction - label
        values = [label, prediction, error, np.abs(error)]
        groups = self.tally.group_columns({name: columns[f"group {name}"] for name in roles.groups}, count)
        asks: list[tuple[Mapping[Key, GroupMoments], Mapping[Key, Column], list[FloatArray], NDArray[np.bool_]]] = [
            (self.of_groups, groups, values, every)
        ]
        if roles.levels:
            crossed = self.levels.group_columns({name: columns[f"level {name}"] for name in roles.levels})
            level = list(crossed.values())[-1]
            there = has_level(level)
            crossing = {key: crossed_with(column, level, there) for key, column in groups.items()}
            asks.append((self.within, crossing, [one[there] for one in values], there))
        its = columns.get("other")
        if its is not None:
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
        for role, one in ({"": error} | {name: columns[f"along {name}"] for name in roles.along}).items():
            if roles.along:
                self.numbers[role].append(one if count is None else np.repeat(one, count))
