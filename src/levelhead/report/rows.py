"""The figures of any result as rows: what its JSON keeps of them, and all that pages and terminals draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from levelhead.metrics.intervals import finite_or_none
from levelhead.metrics.names import group_name
from levelhead.report.text import Record, estimate_from_dict
from levelhead.report.wide import Fraction, Pair
from levelhead.types import Estimate

COLUMNS = ("column", "group", "figure", "value", "low", "high", "n", "reason", "fraction")
"""Of the rows in a JSON; ``pandas.DataFrame(**record["figures"])`` reads them."""
MORE = ("mark", "more", "decided")
"""What those of a comparison have beside."""


class Row(NamedTuple):
    """One figure: of a group, of a :class:`~levelhead.report.wide.Pair` of groups, or (None) of a whole column.

    ``mark`` stands beside it and ``more`` below; ``decided`` is whether a change is significant, None of what is none.
    """

    column: str
    group: str | Pair | None
    figure: str
    found: Estimate
    fraction: bool
    mark: str = ""
    more: str = ""
    decided: bool | None = None


def in_json(figures: Iterable[tuple[str, Any, str, Estimate]]) -> Record:
    """Return the figures of a result as its JSON keeps them; two groups are a list."""
    return {"columns": list(COLUMNS), "data": list(map(_written, figures))}


def _written(row: tuple[str, Any, str, Estimate]) -> list[Any]:
    column, group, figure, one = row
    who = [group.first, group.second, group.joint] if isinstance(group, Pair) else group and group_name(group)
    ends = map(finite_or_none, (one.value, one.low, one.high))
    return [column, who, str(figure), *ends, one.n, one.reason, isinstance(figure, Fraction)]


def rows_of(record: Record) -> list[Row]:
    """Return the rows of a result's JSON; none of one without figures."""
    found = record.get("figures") or {"columns": (), "data": ()}
    return [_row(dict(zip(found["columns"], one, strict=True))) for one in found["data"]]


def _row(one: Record) -> Row:
    group = Pair(*one["group"]) if isinstance(one["group"], list) else one["group"]
    more = {name: one[name] for name in MORE if name in one}
    return Row(one["column"], group, one["figure"], estimate_from_dict(one), one["fraction"], **more)


def told(record: Any) -> Iterator[str]:
    """Yield all sentences that a JSON holds, wherever they stand, in its order."""
    if isinstance(record, dict):
        yield from record.get("sentences") or ()
        yield from [record["read_as"]] if "read_as" in record else []
        for name, one in record.items():
            yield from told(one) if name != "sentences" else ()
