"""Rows of predicted numbers, and the moments of their errors: by group, by level, and beside another model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.grouped_rows import GroupedRows
from levelhead.auditing.options import AuditOptions, Other, Roles, check_grouping
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import MISSING_GROUP, Key, parts_of
from levelhead.tables.columns import LARGEST, FloatArray, finite
from levelhead.tables.rows import Rows, Rowwise, matched
from levelhead.tables.source import Source

ADVICE = "Pass a number for every row, written like 0.25."
Name = TypeVar("Name")
Codes = tuple[Callable[[Rowwise], NDArray[Any]], int]
"""What returns the place of each row's group (rows,) of some rows, and how many groups there are."""


class ErrorRows(GroupedRows):
    """Rows whose label and predictions are numbers."""

    @classmethod
    def of(cls, source: Source, roles: Roles, options: AuditOptions) -> ErrorRows:
        """Read all rows of a table."""
        check_grouping(len(roles.groups), options.min_count, options.intersect, options.missing, fewest=2)
        found = cls.read(source, roles, options, Rows(roles.titles(source)))
        numbers = {"label": roles.label, "prediction": roles.prediction} | {
            f"along {name}": name for name in roles.along
        }
        for role, name in numbers.items():
            if not all((np.abs(part) <= LARGEST).all() for part in found.rows.parts[role]):
                finite(found.rows.whole(role), source.title(str(name)), ADVICE)
        return found

    @property
    def without_level(self) -> NDArray[np.bool_]:
        """Which of the levels are of rows without a value, (levels,)."""
        return np.array([MISSING_GROUP in parts_of(level) for level in self.levels], bool)

    def errors(self) -> tuple[Moments, dict[Key, Moments], dict[Key, Moments]]:
        """Return the moments of label, prediction, error and its size: of all rows, by group, and by level and group.

        Those by level and group of a column are (levels x groups,).
        """
        codes: dict[tuple[str, Key], Codes] = {("all", ""): (lambda batch: np.zeros(len(batch["label"]), np.int64), 1)}
        level = self.rows.members(self.control, self.levels, "level") if self.levels else None
        for key, groups in self.groups.items():
            code = self.rows.members(key, groups)
            codes["group", key] = code, len(groups)
            if level is not None:
                codes["level", key] = _crossed(level, code, len(groups)), len(self.levels) * len(groups)
        found = measured(self.rows, codes, _errors)
        by_group, by_level = (
            {key: one for (kind, key), one in found.items() if kind == wanted} for wanted in ("group", "level")
        )
        return found["all", ""], by_group, by_level

    def changes(self, roles: Roles, other: Other) -> tuple[dict[Key, Moments], list[str]]:
        """Return the moments of error and its size, and of their changes from another model, by group; and warnings."""
        rows, said = self.rows, list[str]()
        if other.source is not None:
            its = replace(roles, groups=(), levels=(), along=(), count=None, id=other.id)
            theirs = Rows(its.titles(other.source))
            for columns in its.batches(other.source, {}):
                theirs.add(columns)
            rows, said = matched(rows, theirs)
        codes = {key: (rows.members(key, groups), len(groups)) for key, groups in self.groups.items()}
        return measured(rows, codes, _changes), said


def measured(
    rows: Rows, codes: Mapping[Name, Codes], values: Callable[[Rowwise], Sequence[FloatArray]]
) -> dict[Name, Moments]:
    """Return the moments of quantities by several columns of codes; ``values`` are those of some rows, (rows,) each."""
    parts: dict[Name, list[Moments]] = defaultdict(list)
    for batch in rows.batches():
        of_batch = values(batch)
        for name, (code, groups) in codes.items():
            parts[name].append(Moments.of(code(batch), groups, of_batch, batch.get("count")))
    return {name: reduce(Moments.add, each) for name, each in parts.items()}


def _errors(batch: Rowwise) -> list[FloatArray]:
    error = batch["prediction"] - batch["label"]
    return [batch["label"], batch["prediction"], error, np.abs(error)]


def _changes(batch: Rowwise) -> list[FloatArray]:
    error, before = (batch[role] - batch["label"] for role in ("prediction", "other"))
    return [error, np.abs(error), error - before, np.abs(error) - np.abs(before)]


def _crossed(
    level: Callable[[Rowwise], NDArray[Any]], code: Callable[[Rowwise], NDArray[Any]], groups: int
) -> Callable[[Rowwise], NDArray[Any]]:
    return lambda batch: level(batch).astype(np.int64) * groups + code(batch)
