"""Rows of predicted numbers: the moments of their errors by group and by level, and the means that groups differ in.

Within levels groups are compared as their rates are (:mod:`levelhead.auditing.control`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.engine import Quantity, independent
from levelhead.auditing.grouped_rows import GroupedRows
from levelhead.auditing.options import AuditOptions, Roles, check_grouping
from levelhead.auditing.strata import Stratified
from levelhead.metrics.between import Differences
from levelhead.metrics.counts import IntArray
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import MISSING_GROUP, Key, group_name, parts_of
from levelhead.tables.columns import LARGEST, FloatArray, finite
from levelhead.tables.rows import Rows, Rowwise
from levelhead.tables.source import Source

ADVICE = "Pass a number for every row, written like 0.25."
Name = TypeVar("Name")
Codes = tuple[Callable[[Rowwise], NDArray[Any]], int]
"""What returns the place of each row's group (rows,) of some rows, and how many groups there are."""


QUANTITIES = {
    "mean_error": "Mean error",
    "mean_absolute_error": "Mean absolute error",
    "mean_prediction": "Mean prediction",
}
"""Quantities that groups are compared in, in order of importance."""
PLACES = {"mean_prediction": 1, "mean_error": 2, "mean_absolute_error": 3}
"""Of the quantities among label, prediction, error and its size."""


@dataclass(frozen=True)
class Column:
    """The groups of a sensitive column or crossing that are compared: their names, and their places among all groups.

    ``reference``: the group that the others are compared with.
    """

    name: str
    groups: Sequence[str]
    kept: IntArray
    reference: str | None = None

    def means(self, moments: Moments) -> list[Quantity]:
        """Return the means of the compared groups, from the moments of all."""
        found = []
        for rank, name in enumerate(QUANTITIES):
            mean, rows = moments.mean[PLACES[name]][self.kept], moments.rows[self.kept]
            apart = independent(partial(self._compared, figures_of(moments, name)))
            found.append(Quantity(self.name, name, self.groups, mean, rows, apart, reference=self.reference, rank=rank))
        return found

    def _compared(self, figures: Callable[[float], Differences], level: float) -> Differences:
        return Differences(*(part[self.kept] for part in figures(level)))


def figures_of(moments: Moments, name: str) -> Callable[[float], Differences]:
    """Return the means of a quantity, with intervals at a level."""
    return partial(moments.means, PLACES[name], skewed=name == "mean_absolute_error")


@dataclass(frozen=True, kw_only=True)
class MeanStrata(Stratified):
    """A mean in each level; ``figures`` are those of (levels x groups,) at the level of one interval."""

    figures: Callable[[float], Differences]

    @classmethod
    def of(
        cls, column: Column, moments: Moments, levels: Mapping[Key, bool], groups: int, min_count: int
    ) -> list[MeanStrata]:
        """Return the means of the compared groups of a column within levels.

        Args:
            column: the groups that are compared.
            moments: those of (levels x groups,).
            levels: each level, and whether it counts.
            groups: how many there are, also those that are not compared.
            min_count: fewest rows of a group in a level.
        """
        used = np.array(list(levels.values()))

        def table(cells: Any) -> Any:
            return np.reshape(cells, (-1, groups))[used][:, column.kept]

        names = [group_name(level) for level, counts in levels.items() if counts]
        size, rows, found = moments.rows.reshape(-1, groups)[used].sum(1), table(moments.rows), []
        for rank, name in enumerate(QUANTITIES):
            mean, figures = table(moments.mean[PLACES[name]]), figures_of(moments, name)

            def tabled(level: float, own: Callable[[float], Differences] = figures) -> Differences:
                return Differences(*map(table, own(level)))

            known = rows * ~np.isnan(tabled(0.5).low)  # rows that are all alike have no interval
            found.append(
                cls(
                    column.name, name, None, names, column.groups, mean, known, rows, size, rows, min_count, rank,
                    figures=tabled,
                )
            )  # fmt: skip
        return found

    def by_level(self, first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
        """Return the differences within each level, (levels, pairs)."""
        start = len(self.groups) * np.arange(len(self.levels))[:, None]
        apart = independent(lambda at: Differences(*(part.ravel() for part in self.figures(at))))
        found = apart((start + first).ravel(), (start + second).ravel(), level=level, comparisons=comparisons)
        return Differences(*(part.reshape(len(self.levels), -1) for part in found))


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


def _crossed(
    level: Callable[[Rowwise], NDArray[Any]], code: Callable[[Rowwise], NDArray[Any]], groups: int
) -> Callable[[Rowwise], NDArray[Any]]:
    return lambda batch: level(batch).astype(np.int64) * groups + code(batch)
