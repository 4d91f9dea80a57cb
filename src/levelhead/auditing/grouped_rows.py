"""Rows of a table without classes, whose groups an audit knows after the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from levelhead.auditing.options import AuditOptions, Roles, count_sentence, cut_points, groups_of
from levelhead.metrics.between import check_level
from levelhead.metrics.names import Key
from levelhead.tables.repeated import repeated
from levelhead.tables.rows import Rows
from levelhead.tables.source import Source
from levelhead.tables.tally import Tally


@dataclass(frozen=True)
class GroupedRows:
    """All rows of a table without classes, and the groups of each sensitive column and crossing.

    Attributes:
        rows: the columns of the rows, in memory.
        groups: the groups of each column, in their order.
        warnings: of groups that are written nearly alike.
        reading: says what a frequency table counts.
    """

    rows: Rows
    groups: Mapping[Key, Sequence[Key]]
    warnings: list[str]
    reading: tuple[str, ...]

    @classmethod
    def read(cls, source: Source, roles: Roles, options: AuditOptions, rows: Rows, *, one_by_one: bool = False) -> Self:
        """Read all rows of a table into ``rows``; ``one_by_one``: a row that counts several people becomes several."""
        check_level(options.level)
        cuts = cut_points(source, options.bins, roles.groups, roles.count)
        tally = Tally("", "", {name: source.title(name) for name in roles.groups}, options.intersect, frozenset(cuts))
        people = 0
        for columns in roles.batches(source, cuts):
            words: dict[str, Any] = columns
            if roles.count is not None:
                people += int(words["count"].sum())
                words = repeated(words, len(rows)) if one_by_one else words
            tally.group_columns({name: words[f"group {name}"] for name in roles.groups}, words.get("count"))
            rows.add(words)
        reading = () if roles.count is None else (count_sentence(source.called(roles.count), people),)
        groups, warnings = groups_of(tally, cuts)
        tally.refuse_ids(options.min_count)
        return cls(rows, groups, warnings, reading)
