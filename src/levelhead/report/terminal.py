"""A page as a terminal shows it: the finding first, then tables and sentences that fit the width; no picture."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from levelhead.report.text import Record, cell_lines, counted, in_one_line

MOST_CAUTIONS = 10
"""Most warnings printed; JSON and page have all."""
HEIGHT, SENTENCES = 20, 5
"""Lines of a brief output, which leave four of 24 for the next step and the prompt, and those of its sentences."""
NARROWEST = 18
"""Cells that are left to the names of a table's rows before its columns are divided over several tables."""


def drawn(page: Record, *, everything: bool = True) -> Group:
    """Return what ``rich`` prints of a page: ``everything``, or its ``brief``, if it has one."""
    if page.get("brief") and not everything:
        return Group(_Brief(page))
    sentences = [page["finding"], *page["lines"], *page["reading"]]
    return Group(
        *(Text(one, style="" if at else "bold") for at, one in enumerate(sentences) if one),
        *drawn_blocks([block for part in page["parts"] for block in part["blocks"]], said=sentences),
        *warning_lines(page["cautions"]),
    )


def warning_lines(warnings: Sequence[str]) -> list[Text]:
    """Return the first warnings, and how many more there are."""
    shown = [Text(f"Warning: {warning}") for warning in warnings[:MOST_CAUTIONS]]
    if rest := len(warnings) - len(shown):
        shown.append(Text(f"And {counted(rest, 'more warning')} like these: in the JSON and on the page."))
    return shown


def drawn_blocks(blocks: Sequence[Record], said: Sequence[str] = ()) -> list[RenderableType]:
    """Return tables and sentences; a sentence that stands in several blocks, or in ``said``, stands here once."""
    shown: list[RenderableType] = []
    before = set(said)
    for block in blocks:
        if block["type"] == "table":
            shown += ["", DrawnTable(block)]
        texts = {"table": block.get("notes"), "list": block.get("items")}.get(block["type"]) or []
        shown += [Text(text) for text in texts if text not in before]
        before.update(texts)
    return shown


class Column(NamedTuple):
    """A column as it is printed: its title and cells, each with lines; ``words`` may be broken, figures not."""

    title: str
    cells: list[str]
    words: bool

    @property
    def least(self) -> int:
        """The fewest cells that figures and the words of the title need."""
        lines = [line for cell in self.cells for line in cell.split("\n")]
        natural = max(map(cell_len, lines), default=1)
        return max(min(natural, NARROWEST) if self.words else natural, *map(cell_len, self.title.split()), 1)

    @property
    def natural(self) -> int:
        """The cells that all lines need."""
        return max(map(cell_len, [self.title, *(line for cell in self.cells for line in cell.split("\n"))]), default=1)


class _Brief:
    """The finding in a few lines, one table with as many rows as the screen has room for, and what is not shown."""

    def __init__(self, page: Record) -> None:
        self.page, self.brief = page, page["brief"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the console's width, in :data:`HEIGHT` lines where the least takes no more."""

        def tall(shown: Sequence[RenderableType]) -> int:
            return sum(len(console.render_lines(one, options)) for one in shown)

        block, notes = self.brief["table"], [*map(Text, self.brief["notes"])]
        said = [self.page["finding"], *self.brief["lines"]]
        warnings = warning_lines(self.page["cautions"])[: len(self.page["cautions"])]
        height = math.inf if console.file is sys.stdout and not console.is_terminal else HEIGHT  # a pipe has none
        lines: list[RenderableType] = []
        places: set[int] = set()

        def table(above: list[RenderableType], more: Collection[int]) -> list[RenderableType]:
            rows = [block["rows"][at] for at in sorted(places | {*more})]
            return [*above, *([DrawnTable(block | {"rows": rows})] if rows else [])]

        def fits(shown: Sequence[RenderableType]) -> bool:
            return tall([*shown, *warnings[:1]]) < height  # the first warning always has room

        for line, named in zip(said, [*self.brief["named"], *[()] * len(said)], strict=False):
            longer = [*lines, Text(line, style="" if lines else "bold")]
            if lines and not (tall(longer) <= SENTENCES and fits(table(longer, named))):
                break
            lines, places = longer, places | {*named}
        for at in self.brief["ranked"]:
            if places and height < math.inf and not fits([*table(lines, [at]), *notes]):
                break
            places.add(at)
        shown, warned = table(lines, ()), 0
        for note in notes:
            shown += [note] if fits([*shown, note]) else []
        for warning in warnings:
            if warned and tall([*shown, warning]) >= height:
                break
            shown, warned = [*shown, warning], warned + 1
        hidden = len(said) - len(lines)
        yield from [*shown, *map(Text, self.page["reading"])]
        yield Text(
            self._more(len(block["rows"]) - len(places), hidden, len(self.page["cautions"]) - warned), style="dim"
        )

    def _more(self, rows: int, sentences: int, warnings: int) -> str:
        """Say what is left out, and how to see it."""
        parts = [(f"more {self.brief['row']}", rows), ("more sentence", sentences), ("more warning", warnings)]
        named = [counted(count, what) for what, count in parts if count]
        return f"{', '.join(named) or 'More figures'}: {self.brief['option']}."


class DrawnTable:
    """A table of a page. Intervals stand beside their figures where all fit the width, else below them.

    Where not even that fits, the columns are divided over several tables.
    """

    def __init__(self, block: Record) -> None:
        self.block = block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for the console's width."""
        width, block = options.max_width, self.block
        yield Text(block["caption"], style="italic")
        parts: list[list[Column]] = []
        for broken in (in_one_line, _below):
            parts = _divided(self._columns(broken), width)
            if len(parts) == 1:
                break
        for at, columns in enumerate(parts):
            yield from [""] * bool(at)
            yield _table(columns, width)

    def _columns(self, broken: Callable[[Record], str]) -> list[Column]:
        block = self.block
        rows = [[{"text": f"{row['head']}\n{row['note']}".strip(), "sub": []}, *row["cells"]] for row in block["rows"]]
        return [
            Column(column["title"], [broken(row[at]) for row in rows], at == 0 or at in block["text_columns"])
            for at, column in enumerate(block["columns"])
        ]


def _below(cell: Record) -> str:
    return "\n".join(cell_lines(cell))


def _divided(columns: list[Column], width: int) -> list[list[Column]]:
    """Divide columns over tables that fit the width, each with the first column."""
    head, *others = columns
    parts: list[list[Column]] = [[head]]
    for column in others:
        if len(parts[-1]) > 1 and _space([*parts[-1], column]) > width:
            parts.append([head])
        parts[-1].append(column)
    return parts


def _space(columns: Sequence[Column]) -> int:
    return sum(column.least for column in columns) + 2 * len(columns)


def _table(columns: list[Column], width: int) -> Table:
    """Draw columns: each has what it needs at least, and words have what is left before titles do."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    left = max(0, width - _space(columns))
    widths = [column.least for column in columns]
    for at in (at for at, column in enumerate(columns) if column.words):
        more = min(left, columns[at].natural - widths[at])
        widths[at], left = widths[at] + more, left - more
    heights = [len(wrap(column.title, wide)) for column, wide in zip(columns, widths, strict=True)]
    while left and max(heights) > 1:
        at = heights.index(max(heights))
        widths[at], left = widths[at] + 1, left - 1
        heights[at] = len(wrap(columns[at].title, widths[at]))
    for column, wide in zip(columns, widths, strict=True):
        justify = "left" if column.words else "right"
        table.add_column(Text(column.title), width=wide, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table
