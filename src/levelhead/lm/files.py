"""Files that benchmarks read: UTF-8 text, also gzipped; JSON, whole or one object a line; columns of tables.

Errors name file and line, and never quote the text: benchmarks hold stereotypes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from levelhead.data.text_files import read_columns, table_header
from levelhead.storage import refuse_strange_files
from levelhead.types import DataError, reason_of


def text_of(path: Path) -> str:
    """Return the text of a file; raises :class:`~levelhead.types.DataError` that names it if it cannot be read."""
    refuse_strange_files(path)
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"There is no file {path}. Check the path.") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read ({reason_of(error)}). Is it UTF-8 text, gzipped if it ends in .gz?"
        ) from None


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number, from 1, and text of each line that is not blank; a line ends at a newline alone."""
    return ((number, line) for number, line in enumerate(text_of(path).split("\n"), start=1) if line.strip())


def json_of(text: str, where: str) -> Any:
    """Return what a JSON text holds; raises :class:`~levelhead.types.DataError` that says ``where`` it is broken."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        at = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "a number"
        raise DataError(f"{where} is not JSON ({at}). Fetch the file again.") from None


def objects_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where it stands, and the JSON object, of each line; raises :class:`~levelhead.types.DataError`."""
    for number, line in lines_of(path):
        where = f"{path}, line {number}"
        record = json_of(line, where)
        if not isinstance(record, dict):
            raise DataError(f"{where} is no JSON object.")
        yield where, record


def filled_columns(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return columns of a table, and those of ``optional`` that are there.

    Raises :class:`~levelhead.types.DataError` for a missing column, and for an empty cell of ``columns``.
    """
    found = read_columns(path, [*columns, *(name for name in table_header(path) if name in optional)])
    for name in columns:
        empty = [row for row, cell in enumerate(found[name]) if not cell.strip()]
        if empty:
            count = len(found[name])
            raise DataError(
                f"{path}: {len(empty)} of {count} rows have no {name or 'number'}, first row {empty[0]} (from 0)."
            )
    return found
