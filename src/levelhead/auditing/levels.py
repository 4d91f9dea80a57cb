"""Add gaps within the levels of a control column to an audit (:mod:`levelhead.auditing.control` has the statistics)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np

from levelhead.auditing.control import LevelCounts, controlled
from levelhead.auditing.figures import find_classes
from levelhead.auditing.options import AuditOptions
from levelhead.auditing.result import AuditResult
from levelhead.metrics.names import Key, attribute_names, group_name, parts_of
from levelhead.report.text import counted
from levelhead.tables.bins import Cuts, ordered_groups
from levelhead.tables.tally import Tally
from levelhead.types import DataError, listed, printable


def control_tallies(
    outcomes: tuple[str, str],
    groups: Mapping[str, str],
    levels: Mapping[str, str],
    intersect: bool,
    numbered: frozenset[str],
) -> dict[Key, Tally]:
    """Return a tally of each sensitive column, and of their crossing, crossed with the levels; none without levels."""
    if not levels:
        return {}
    keys: list[Key] = [*groups, *([tuple(groups)] if intersect else [])]
    return {
        key: Tally(*outcomes, {name: groups[name] for name in parts_of(key)} | dict(levels), True, numbered)
        for key in keys
    }


def add_control(
    result: AuditResult,
    tallies: Mapping[Key, Tally],
    levels: tuple[str, ...],
    options: AuditOptions,
    cuts: Mapping[str, Cuts],
) -> AuditResult:
    """Add the gaps within the levels of the control columns."""
    names, warnings = attribute_names(result.by_attribute), list(result.warnings)
    columns: list[LevelCounts] = []
    for key, tally in tallies.items():
        as_label, as_prediction, classes, positive, _ = find_classes(tally, options)
        place = {value: position for position, value in enumerate(classes)}
        parts = len(parts_of(key))
        patterns = {
            pattern: rows
            for pattern, rows in tally.counts[(*parts_of(key), *levels)].items()
            if isinstance(pattern[2], tuple) and None not in pattern[2][parts:]  # crossings are always tuples
        }
        without = sum(tally.labels.values()) - sum(patterns.values())
        if without and not columns:
            warnings.append(
                f"{printable(group_name(levels if len(levels) > 1 else levels[0]))}: {counted(without, 'row')} "
                f"{'has' if without == 1 else 'have'} no level and {'is' if without == 1 else 'are'} left out of what "
                "is compared within levels."
            )
        if not patterns:
            raise DataError(f"No row has a level of {listed(levels)}. Name another control column, or leave it out.")
        crossed = [pattern[2] for pattern in patterns if isinstance(pattern[2], tuple)]
        own: list[Hashable] = [one[0] if isinstance(key, str) else one[:parts] for one in crossed]
        its: list[Hashable] = [one[parts] if len(levels) == 1 else one[parts:] for one in crossed]
        group_codes, groups = ordered_groups(own, key, cuts)
        level_codes, there = ordered_groups(its, levels[0] if len(levels) == 1 else levels, cuts)
        table = np.zeros((len(there), len(groups), len(classes), len(classes)), np.int64)
        labels = np.array([place[as_label[pattern[0]]] for pattern in patterns])
        predictions = np.array([place[as_prediction[pattern[1]]] for pattern in patterns])
        np.add.at(table, (level_codes, group_codes, labels, predictions), list(patterns.values()))
        kept = [at for at, group in enumerate(groups) if not options.leaves_out(group)]
        columns.append(
            LevelCounts(
                names[key],
                table[:, kept],
                tuple(map(group_name, there)),
                tuple(group_name(groups[at]) for at in kept),
                tuple(map(str, classes)),
            )
        )
    found = controlled(
        columns,
        group_name(levels if len(levels) > 1 else levels[0]),
        positive=positive,
        min_count=options.min_count,
        level=options.level,
        reference=result.more.get("reference", {}),
    )
    return replace(result, warnings=warnings, more={**result.more, "control": found})
