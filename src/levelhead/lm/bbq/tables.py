"""Tables of BBQ's kind in other languages (KoBBQ, JBBQ, EsBBQ, ...), by the names of their columns.

``context`` and ``question``; ``choices`` (a list, as JSON or Python writes it) or ``ans0``, ``ans1``, ``ans2``;
``label``, ``unknown`` and ``biased``: an option's number from 0, or its text. Also ``condition`` (which begins with amb
or dis), ``category``, ``template`` (drawn together in intervals) and ``id``. ``unknown``, ``condition`` and
``category`` may be values instead of columns: the text of the option, or of all rows. Without ``biased`` no bias is
scored.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path

from levelhead.data.text_files import read_columns, table_header
from levelhead.lm.base import Item
from levelhead.types import ConfigError, DataError, listed, quoted

OPTIONS = ("ans0", "ans1", "ans2")
NEEDED = ("context", "question", "label", "unknown")
KNOWN = (*NEEDED, "choices", *OPTIONS, "biased", "condition", "category", "template", "id")
VALUES = ("unknown", "condition", "category")


def columns_of(text: str) -> dict[str, str]:
    """Return names of columns of "context=C,question=Q" by what they hold."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, column = (piece.strip() for piece in part.partition("="))
        if not equals or name not in KNOWN or not column or name in found:
            raise ConfigError(f"--columns {quoted(part)}: give {listed(KNOWN)}, each once, as NAME=COLUMN.")
        found[name] = column
    return found


def read_table(path: Path, columns: str) -> list[Item]:
    """Return the items of a table, with the contents of :func:`levelhead.lm.bbq.data.read_items`.

    Raises:
        ConfigError: for columns that are not named.
        DataError: for a missing column and for a cell that is none of the options, naming the row.
    """
    named = columns_of(columns)
    there = table_header(path)
    missing = [name for name in NEEDED if name not in named]
    if missing or ("choices" not in named and not set(OPTIONS) <= named.keys()):
        raise ConfigError(f"--columns must name {listed(missing or ['choices'])}. Known: {listed(KNOWN)}.")
    kept = [column for name, column in named.items() if column in there or name not in VALUES]
    cells = read_columns(path, list(dict.fromkeys(kept)))
    rows = len(next(iter(cells.values())))
    items = [
        _item({name: cells[column][row] if column in cells else column for name, column in named.items()}, row, path)
        for row in range(rows)
    ]
    if len({item.id for item in items}) < rows:
        raise DataError(f"{path}: two rows have one id: name another column, or leave id out.")
    return items


def _item(cells: Mapping[str, str], row: int, path: Path) -> Item:
    where = f"{path}: row {row} (from 0)"
    options = _choices(cells["choices"], where) if "choices" in cells else [cells[name] for name in OPTIONS]
    if len(options) != 3 or not all(map(str.strip, options)) or not cells["context"].strip():
        raise DataError(f"{where} has no context, or not three options.")
    category, condition = cells.get("category", path.stem), cells.get("condition", "ambig").strip().lower()
    if not condition.startswith(("amb", "dis")):
        raise DataError(f"{where}: the condition {quoted(condition)} begins with neither 'amb' nor 'dis'.")
    label, unknown = (_option(cells[name], options, f"{where}: {name}") for name in ("label", "unknown"))
    biased = [_option(cells["biased"], options, f"{where}: biased")] if cells.get("biased") else []
    if condition.startswith("amb") and label != unknown:
        raise DataError(f"{where} is ambiguous, and a person is the right answer: name the column of its condition.")
    if unknown in biased:
        raise DataError(f"{where}: the biased answer is the unknown one: name a person, or leave the cell empty.")
    return Item(
        cells.get("id", f"{category}/{row}"),
        {
            "category": category,
            "part": category,
            "question_index": cells.get("template", str(row)),
            "condition": "ambig" if condition.startswith("amb") else "disambig",
            "polarity": "",
            "context": cells["context"],
            "question": cells["question"],
            "options": options,
            "label": label,
            "unknown": unknown,
            "biased": biased,
            "target": "table" if biased else "missing",
        },
    )


def _choices(cell: str, where: str) -> list[str]:
    try:
        found = ast.literal_eval(cell)  # a list of texts is one in JSON, too
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, list | tuple):
        raise DataError(f"{where}: choices are no list of texts.")
    return [str(one) for one in found]


def _option(cell: str, options: Sequence[str], where: str) -> int:
    plain = [option.strip() for option in options]
    if plain.count(cell.strip()) == 1:
        return plain.index(cell.strip())
    if cell.strip() in ("0", "1", "2"):
        return int(cell)
    raise DataError(f"{where} is none of the three options, and no number from 0 to 2.")
