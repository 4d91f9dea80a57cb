"""What a model's errors cost in each group, where the user says what a false positive and a false negative cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from levelhead.auditing.part import Answer, Frame, Part
from levelhead.metrics.between import Differences, difference_of
from levelhead.metrics.names import Key, by_names, group_name
from levelhead.metrics.separation import cost
from levelhead.report import blocks
from levelhead.report.record import Finding, Told
from levelhead.report.text import Record, digits, estimate_from_dict, level_text, short, span
from levelhead.types import ConfigError, Estimate, in_quotes, printable


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
                        f"{in_quotes(group_name(group))}, {digits(abs(one.difference.value))} {more} than of "
                        f"{in_quotes(column.reference)} (interval {digits(ends[0])} to {digits(ends[1])})."
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
        at, kept = frame.compared[0], {key: set(frame.kept(key)) for key in frame.groups}
        errors, sizes, usable = {}, {}, {}
        for key, counts in frame.counts.items():
            table = counts.table
            chosen = np.arange(table.shape[1]) == at
            missed = table[:, at][:, ~chosen].sum(-1)
            errors[key] = np.stack([table[:, ~chosen][:, :, at].sum(-1), missed], -1)
            sizes[key] = table.sum((1, 2))
            usable[key] = [
                place for place, group in enumerate(frame.groups[key])
                if group in kept[key] and sizes[key][place] >= max(1, options.min_count)
            ]  # fmt: skip
        comparisons = max(1, sum(max(0, len(one) - 1) for one in usable.values()))
        found = {}
        for key, groups in frame.groups.items():
            names = [group_name(group) for group in groups]
            to = max(usable[key], key=lambda place: sizes[key][place], default=None)
            to = names.index(group_name(frame.reference[key])) if key in frame.reference else to
            rows = np.maximum(1, sizes[key])
            single = Differences(*cost(errors[key], rows, options.costs, 1 - options.level))
            together = Differences(*cost(errors[key], rows, options.costs, (1 - options.level) / comparisons))
            figures = {}
            for place, group in enumerate(groups):
                n = int(sizes[key][place])
                own = single.at(place, n) if n else Estimate.undefined("no rows")
                beside = None
                if place != to and place in usable[key] and to in usable[key]:
                    beside = difference_of(together.at(place, n), together.at(to, sizes[key][to]))
                figures[group] = GroupCost(own, beside)
            found[key] = ColumnCosts(figures, None if to is None else names[to])
        key = next(iter(errors))
        whole = cost(errors[key].sum(0)[None], sizes[key].sum()[None], options.costs, 1 - options.level)
        overall = Differences(*whole).at(0, sizes[key].sum())
        return Costs(*options.costs, overall, found, options.level, comparisons)

    @classmethod
    def column_sections(cls, name: str, result: Record) -> list[Record]:
        """Return the section on the costs by one sensitive column."""
        whole = result.get("costs")
        if whole is None or name not in whole["by_attribute"]:
            return []
        own, rows = whole["by_attribute"][name], []
        for group, one in own["groups"].items():
            figure, beside = estimate_from_dict(one["cost"]), one["difference"]
            difference = blocks.no_cell() if beside is None else _cell(estimate_from_dict(beside))
            rows.append((group, [blocks.cell(f"{figure.n:,}"), _cell(figure), difference]))
        level = level_text(whole["level"])
        table = blocks.table(
            f"Cost of errors per row by {short(name)}, with {level} intervals",
            ["Group", "Rows", "Cost a row", (f"More than {short(own['reference'])}", "Intervals hold together.")],
            rows,
            notes=[
                f"A false positive costs {digits(whole['false_positive'])}, a false negative "
                f"{digits(whole['false_negative'])}. All rows: {digits(estimate_from_dict(whole['overall']).value)}."
            ],
            where=blocks.BOTH,
        )
        return [blocks.section("What errors cost", [*blocks.said(whole["sentences"]), table], rank=4)]


def _cell(figure: Estimate) -> Record:
    return blocks.cell(digits(figure.value), span(figure)) if figure.defined else blocks.undefined_cell(figure.reason)
