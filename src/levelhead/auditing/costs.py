"""What a model's errors cost in each group, where the user says what a false positive and a false negative cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from levelhead.auditing.engine import independent
from levelhead.auditing.part import Answer, Frame, Part
from levelhead.metrics.counts import IntArray
from levelhead.metrics.names import Key, by_names, group_name
from levelhead.metrics.separation import cost
from levelhead.report.record import Finding, Told
from levelhead.report.sentences import named_group
from levelhead.report.text import digits
from levelhead.types import ConfigError, Estimate, printable


@dataclass(frozen=True)
class GroupCost(Finding):
    """One group: cost a row, and how much more than in the reference; None for the reference and groups left out."""

    cost: Estimate
    difference: Estimate | None = None


@dataclass(frozen=True)
class ColumnCosts(Finding):
    """One sensitive column; the reference is the one that was named, or the largest group."""

    groups: dict[Key, GroupCost]
    reference: str | None


@dataclass(frozen=True)
class Costs(Told, Answer):
    """Expected cost of errors, in the unit of ``false_positive`` and ``false_negative``; ``overall``: of all rows."""

    false_positive: float
    false_negative: float
    overall: Estimate
    by_attribute: dict[Key, ColumnCosts]
    level: float
    comparisons: int

    def sentences(self) -> list[str]:
        """Return one sentence for each group whose errors measurably cost more or less than the reference's."""
        said, empty, named = [], [], by_names(self.by_attribute)
        for name, column in named.items():
            if all(one.difference is None for one in column.groups.values()):
                empty.append(f"By {printable(name)}, no error costs were compared: two groups need enough rows.")
            for group, one in column.groups.items():
                if one.difference is not None and one.difference.excludes_zero:
                    more = "more" if one.difference.value > 0 else "less"
                    ends = sorted((abs(one.difference.low), abs(one.difference.high)))
                    said.append(
                        f"By {printable(name)}, errors cost {digits(one.cost.value)} a row of "
                        f"{named_group(name, group_name(group))}, {digits(abs(one.difference.value))} {more} than of "
                        f"{named_group(name, str(column.reference))} (interval {digits(ends[0])} to {digits(ends[1])})."
                    )
        if not said and len(empty) < len(named):
            said.append("No group’s error cost differs measurably from that of its reference.")
        return [*said, *empty]

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield each group's cost and difference."""
        for name, part in by_names(self.by_attribute).items():
            for group, one in part.groups.items():
                yield name, group, "cost", one.cost
                if one.difference is not None:
                    yield name, group, "cost_difference", one.difference


class CostPart(Part):
    """What errors cost by group."""

    name = "costs"
    needs = ("costs",)

    def find(self, frame: Frame) -> Costs:
        """Return the costs; of classes that are set against the rest there must be one."""
        options = frame.options
        if frame.of_class is None:
            raise ConfigError("Costs are about one class: name it with --positive (positive= in Python).")
        assert options.costs is not None
        errors, usable, to, found = {}, {}, {}, {}
        for key, counts in frame.counts.items():
            errors[key] = _errors(counts.table, frame.compared[0])
            usable[key] = options.compared(frame.groups[key], counts.group_sizes)
            largest = max(usable[key], key=lambda at: counts.group_sizes[at], default=None)
            to[key] = list(frame.groups[key]).index(frame.reference[key]) if key in frame.reference else largest
        comparisons = max(1, sum(max(0, len(one) - 1) for one in usable.values()))
        for key, groups in frame.groups.items():
            sizes, figures = (
                frame.counts[key].group_sizes,
                partial(cost, errors[key], frame.counts[key].group_sizes, options.costs),
            )
            own, other, beside = figures(options.level), to[key], {}
            others = np.array([at for at in usable[key] if at != other], np.int64)
            if other in usable[key]:
                apart = independent(figures)(
                    others, np.full_like(others, other), level=options.level, comparisons=comparisons
                )
                beside = {at: apart.at(place, sizes[[at, other]].sum()) for place, at in enumerate(others.tolist())}
            of_group = {group: GroupCost(own.at(at, sizes[at]), beside.get(at)) for at, group in enumerate(groups)}
            found[key] = ColumnCosts(of_group, None if other is None else group_name(groups[other]))
        first = next(iter(frame.counts))
        rows = frame.counts[first].group_sizes.sum()
        overall = cost(errors[first].sum(0)[None], rows[None], options.costs, options.level).at(0, rows)
        return Costs(*options.costs, overall, found, options.level, comparisons)


def _errors(table: IntArray, chosen: int) -> IntArray:
    """Return the false positives and false negatives of a class in each group, (groups, 2)."""
    wrong, missed = np.delete(table[:, :, chosen], chosen, 1), np.delete(table[:, chosen], chosen, 1)
    return np.stack([wrong.sum(1), missed.sum(1)], -1)
