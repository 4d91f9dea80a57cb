"""The tables of a page as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from levelhead.report.text import Record, cell_lines


def markdown(tables: Iterable[Record]) -> str:
    """Return tables, of :func:`levelhead.report.blocks.table`, each with its caption above and its notes below."""
    return "\n".join(map(_table, tables))


def _table(table: Record) -> str:
    head = [column["title"] for column in table["columns"]]
    lines = [f"**{table['caption']}**", "", _row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    lines += [_row([row["head"], *(" ".join(cell_lines(cell)) for cell in row["cells"])]) for row in table["rows"]]
    return "\n".join([*lines, "", *(f"- {note}" for note in table["notes"]), ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
