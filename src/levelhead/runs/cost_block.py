"""What training took, as a table of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelhead.report import blocks
from levelhead.report.text import Record
from levelhead.runs import cost_table


def cost_block(costs: dict[str, dict[str, Any]], *, head: str = "Variant", caption: str = "") -> Record:
    """Return the table of ``costs``, what :func:`levelhead.runs.cost_table.mean_cost` gave by the rows' names.

    What was not measured says so, and the notes below say why.
    """
    titles, cells, notes = cost_table.cost_table(costs)
    rows: list[tuple[object, Sequence[Record]]] = []
    for name, *texts in cells:
        drawn = [
            blocks.cell("not measured", quiet=True)
            if text in ("–", "not measured")
            else blocks.cell(*text.split("\n", 1))
            for text in texts
        ]
        rows.append((name, drawn))
    every = ", ".join(costs)
    notes = [note.replace(f"of {every}:", "of every variant:") if len(costs) > 1 else note for note in notes]
    return blocks.table(caption or "What training took, mean over seeds", [head, *titles], rows, notes=notes)
