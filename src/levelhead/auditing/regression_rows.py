"""Rows of predicted numbers: the moments of their errors by group, and the means that groups differ in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from levelhead.auditing.engine import Quantity, independent
from levelhead.auditing.grouped_rows import GroupedRows
from levelhead.auditing.options import AuditOptions, Roles
from levelhead.metrics.between import Differences
from levelhead.metrics.counts import IntArray
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import Key
from levelhead.tables.columns import LARGEST, OF_NUMBERS, finite
from levelhead.tables.rows import Rows
from levelhead.tables.source import Source

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


class ErrorRows(GroupedRows):
    """Rows whose label and predictions are numbers."""

    @classmethod
    def of(cls, source: Source, roles: Roles, options: AuditOptions) -> ErrorRows:
        """Read all rows of a table."""
        found = cls.read(source, roles, options, Rows(roles.titles(source)))
        numbers = {"label": roles.label, "prediction": roles.prediction} | {
            f"along {name}": name for name in roles.along
        }
        for role, name in numbers.items():
            if not all((np.abs(part) <= LARGEST).all() for part in found.rows.parts[role]):
                finite(found.rows.whole(role), source.title(str(name)), OF_NUMBERS)
        return found

    def errors(self) -> tuple[Moments, dict[Key, Moments]]:
        """Return the moments of label, prediction, error and its size: of all rows, and by group of each column."""
        members = {key: self.rows.members(key, groups) for key, groups in self.groups.items()}
        whole, parts = list[Moments](), defaultdict[Key, list[Moments]](list)
        for batch in self.rows.batches():
            error, count = batch["prediction"] - batch["label"], batch.get("count")
            values = [batch["label"], batch["prediction"], error, np.abs(error)]
            whole.append(Moments.of(np.zeros(len(error), np.int64), 1, values, count))
            for key, groups in self.groups.items():
                parts[key].append(Moments.of(members[key](batch), len(groups), values, count))
        return reduce(Moments.add, whole), {key: reduce(Moments.add, each) for key, each in parts.items()}
