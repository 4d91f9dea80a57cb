"""The tables of a page as Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from levelhead.report.text import Record, in_one_line
from levelhead.types import visible


def markdown(tables: Iterable[Record]) -> str:
    """Return tables, of :func:`levelhead.report.blocks.table`, each with its caption above and its notes below."""
    return "\n".join(map(_table, tables))


def _table(table: Record) -> str:
    head = [column["title"] for column in table["columns"]]
    rows = [[row["head"], *map(in_one_line, row["cells"])] for row in table["rows"]]
    first, *others = (list(map(escaped, row)) for row in [head, *rows])
    notes = [f"- {escaped(note)}" for note in table["notes"]]
    return "\n".join([f"**{escaped(table['caption'])}**", "", markdown_table(first, others), "", *notes, ""])


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Draw a Markdown table of cells that are escaped already; all but the first column to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(value: object) -> str:
    """Escape anything for one line of Markdown: no markup, no HTML, no line break, no link comes through."""
    line = html.escape(visible(" ".join(str(value).split())), quote=False)
    line = re.sub(r"([\\`*_{}\[\]#|~!])", r"\\\1", line)
    return re.sub(r":(?=//)|(?<=www)\.|@", lambda match: f"&#{ord(match[0])};", line, flags=re.IGNORECASE)
