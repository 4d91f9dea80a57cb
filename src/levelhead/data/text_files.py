"""Tables of texts, one column at a time: csv and tsv, also gzipped, and what the text data sets' folders hold."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from levelhead.types import DataError, refuse_duplicates, require_columns

NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")


def table_file(folder: Path, *stems: str, suffixes: Sequence[str] = TABLE_SUFFIXES) -> Path:
    """Return the one table in ``folder`` that bears one of the names; none, or more than one, is an error."""
    found = [folder / (stem + suffix) for stem in stems for suffix in suffixes if (folder / (stem + suffix)).is_file()]
    if not found:
        there = ", ".join(sorted(file.name for file in folder.iterdir())) or "nothing"
        raise DataError(f"{folder} has no {stems[0]}{suffixes[0]} (or {', '.join(suffixes[1:])}); it holds {there}.")
    if len(found) > 1:
        raise DataError(f"{folder} holds {' and '.join(file.name for file in found)}; leave one of them there.")
    return found[0]


def find_layout(folder: Path, layouts: Mapping[str, Sequence[str]], wanted: str | None) -> str:
    """Return which layout a folder holds: the one ``wanted``, or the only one of which a file pattern is there."""
    found = [name for name, patterns in layouts.items() if any(any(folder.glob(pattern)) for pattern in patterns)]
    if wanted is not None:
        if wanted not in found:
            raise DataError(
                f"{folder} does not hold the layout {wanted!r} (data.layout): there is no "
                f"{' or '.join(layouts[wanted])}."
            )
        return wanted
    if not found:
        known = "; ".join(f"{name}: {' or '.join(patterns)}" for name, patterns in layouts.items())
        raise DataError(f"{folder} holds none of the known layouts ({known}). Fetch one of them.")
    if len(found) > 1:
        raise DataError(f"{folder} holds more than one layout: {', '.join(found)}. Set data.layout to one of them.")
    return found[0]


def table_header(path: Path) -> list[str]:
    """Return the names of a table's columns; reads the first line alone."""
    header = next(_lines(path), None)
    if header is None:
        raise DataError(f"{path} has neither a header nor rows.")
    return header


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, list[str]]:
    """Return some columns of a table as texts, in row order, to the letter; a missing cell is an empty text."""
    lines = _lines(path)
    there = next(lines, None)
    if there is None:
        raise DataError(f"{path} has neither a header nor rows.")
    require_columns(there, columns, str(path))
    places = [there.index(name) for name in columns]
    rows = [[line[at] if at < len(line) else "" for at in places] for line in lines]
    if not rows:
        raise DataError(f"{path} has a header but no rows.")
    return {name: [row[position] for row in rows] for position, name in enumerate(columns)}


def refuse_mixed_numbers(values: Iterable[str], column: str, where: object) -> None:
    """Raise :class:`~levelhead.types.DataError` if a column of labels holds one number written in two ways.

    ``1`` and ``1.0`` are most often one class that a library has written anew. ``01`` is no number but a code.
    """
    known: dict[float, str] = {}
    for value in sorted(value for value in set(values) if NUMBER.fullmatch(value)):
        other = known.setdefault(float(value), value)
        if other != value:
            raise DataError(
                f"{where}: {column!r} holds {other!r} and {value!r}, one number written in two ways. Write it in one."
            )


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield the header's fields, then those of each row; blank lines are left out.

    A row may have fewer fields than the header, or end with empty ones. More fields are an error, because a comma in a
    text without quotes has moved the rest. So are two columns of one name.
    """
    kind, delimiter = ("tabs", "\t") if path.name.removesuffix(".gz").endswith(".tsv") else ("commas", ",")
    if path.exists() and not path.is_file():  # a pipe would be waited for, without end
        raise DataError(f"{path} is not a regular file. Put a table there, or name another file.")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as raw:
            file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            width = row = 0
            for line in csv.reader(file, delimiter=delimiter, strict=True):
                if len(line) < 2 and not "".join(line).strip():
                    continue
                if width and any(line[width:]):
                    raise DataError(
                        f"{path}: row {row} has {len(line)} fields and the header {width}. Put quotes around a text "
                        f"that holds {kind}."
                    )
                if not width:
                    refuse_duplicates(line, [name for name in line if name], str(path))
                width, row = width or len(line), row + 1
                yield line
    except FileNotFoundError:
        raise DataError(f"There is no file {path}. Check the path.") from None
    except (ValueError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read ({error}). Is it UTF-8 with a header and {kind}, and a text that begins with a "
            "quote in quotes?"
        ) from None
