"""Tables of texts, one column at a time: csv, tsv and JSON lines, also gzipped, parquet, and what folders hold."""

from __future__ import annotations

import functools
import io
import itertools
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from levelhead.arrays import as_printed, values_of
from levelhead.csv_form import DELIMITERS, encoding_of, form_of, opened, records, refuse_irregular, suffix_of, whole
from levelhead.types import DataError, refuse_duplicates, require_columns

NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
ANY_SUFFIXES = (*TABLE_SUFFIXES, ".jsonl", ".jsonl.gz", ".parquet")
PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{1,6})-of-(?P<count>\d{1,6})(?P<suffix>(\.[a-z]+)+)")
BATCH_ROWS = 16_384
AGAIN = "; write or fetch it again."

logger = logging.getLogger(__name__)


def table_files(folder: Path, *stems: str, suffixes: Sequence[str] = TABLE_SUFFIXES) -> list[Path]:
    """Return the table in ``folder`` that bears one of the names, or the parts that it was written in, in order.

    Parts are ``train-00000-of-00002.parquet`` and so on (from 0 or from 1), or all tables in a folder ``train``.
    Nothing, parts that are not all there, and two of these ways side by side are errors: rows would be missing or
    counted twice.
    """
    names = [stem + suffix for stem in stems for suffix in suffixes]
    ways = [[folder / name] for name in names if (folder / name).is_file()]
    ways.append(_parts_of([one for one in _tables(folder, suffixes) if one.name.startswith(stems)], stems))
    for tables in (_tables(folder / stem, suffixes) for stem in stems):
        parts = _parts_of(tables)
        ways += [parts, [one for one in tables if one not in parts]]
    return _only_way(folder, [way for way in ways if way], stems, suffixes)


def is_saved(folder: Path) -> bool:
    """Return whether ``save_to_disk`` of the library datasets wrote a folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def _only_way(folder: Path, ways: list[list[Path]], stems: Sequence[str], suffixes: Sequence[str]) -> list[Path]:
    """Return the files of the one way that a table is written in."""
    if not ways:
        there = ", ".join(sorted(file.name for file in folder.iterdir())) or "nothing"
        others = f" (or {', '.join(suffixes[1:])})" if len(suffixes) > 1 else ""
        raise DataError(f"{folder} has no {stems[0]}{suffixes[0]}{others}; it holds {there}.")
    if len(ways) > 1:
        found = " and ".join(str(way[0].relative_to(folder)) for way in ways)
        raise DataError(f"{folder} holds {found}; leave one of them there.")
    return ways[0]


def _tables(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the tables in a folder, if there is one, by name; without a writer's notes, which begin with . or _."""
    found = [one for one in (folder.iterdir() if folder.is_dir() else ()) if one.name[0] not in "._"]
    return sorted(one for one in found if one.name.endswith(tuple(suffixes)) and one.is_file())


def _parts_of(files: Sequence[Path], stems: Sequence[str] | None = None) -> list[Path]:
    """Return the parts of a table among files by their numbers; not all of one table is an error. None: any stem."""
    matches = {one: match for one in files if (match := PART.fullmatch(one.name))}
    found = {one: match for one, match in matches.items() if stems is None or match["stem"] in stems}
    if not found:
        return []
    counts = {(match["stem"], int(match["count"]), match["suffix"]) for match in found.values()}
    numbers = sorted(int(match["number"]) for match in found.values())
    name, expected, _ = max(counts)
    if len(counts) > 1 or numbers not in (list(range(expected)), list(range(1, expected + 1))):
        raise DataError(
            f"{files[0].parent} does not hold all parts of {name}: it holds {len(found)} of {expected}, "
            f"{', '.join(one.name for one in [*found][:5])}. Fetch the others."
        )
    return sorted(found, key=lambda one: int(found[one]["number"]))


def find_layout(folder: Path, layouts: Mapping[str, Sequence[str]], wanted: str | None) -> str:
    """Return which layout a folder holds: the one ``wanted``, or the only one of which a file pattern is there."""
    found = [name for name, patterns in layouts.items() if any(any(folder.glob(pattern)) for pattern in patterns)]
    if wanted is None and len(found) == 1:
        return found[0]
    if wanted in found:
        return str(wanted)
    known = "; ".join(f"{name}: {' or '.join(patterns)}" for name, patterns in layouts.items())
    raise DataError(
        f"{folder} holds {' and '.join(found) or 'no known layout'}; known are {known}. Set data.layout to one that is "
        "there."
    )


def table_header(path: Path) -> list[str]:
    """Return the names of a table's columns; reads the first line alone, of JSON lines all of them."""
    if suffix_of(path) == ".parquet":
        return [one.name for one in _parquet_fields(path)]
    if suffix_of(path) == ".jsonl":
        return list(dict.fromkeys(name for row in _json_rows(path) for name in row))
    return _first(_lines(path), path)


def read_columns(
    path: Path, columns: Sequence[str], *, part: bool = False, count: int | None = None
) -> dict[str, list[str]]:
    """Return some columns of a table as texts, in row order, to the letter; a missing cell is an empty text.

    A table without rows is an error, unless it is a ``part`` of one. ``count``: of the first rows alone.
    Numbers and truth values of JSON lines and parquet become texts as Python writes them.
    """
    kinds = {".parquet": _parquet_columns, ".jsonl": _json_columns}
    found = kinds.get(suffix_of(path), _csv_columns)(path, columns, count)
    if not part and not next(iter(found.values()), []):
        raise DataError(f"{path} has a header but no rows.")
    return found


def first_rows(path: Path, count: int) -> dict[str, list[str]]:
    """Return the columns of the first ``count`` rows of a table as texts, by name.

    Columns of parquet that hold lists, records or bytes are left out: they are neither texts nor classes.
    """
    names = table_header(path)
    if suffix_of(path) == ".parquet":
        kinds = {one.name: one.type for one in _parquet_fields(path)}
        names = [one for one in names if not (pa.types.is_nested(kinds[one]) or "binary" in str(kinds[one]))]
    return read_columns(path, names, part=True, count=count)


def _first(lines: Iterator[list[str]], path: Path) -> list[str]:
    header = next(lines, None)
    if header is None:
        raise DataError(f"{path} has neither a header nor rows.")
    return header


def _csv_columns(path: Path, columns: Sequence[str], count: int | None) -> dict[str, list[str]]:
    """Return columns of a csv file as texts; a row may end before some of them."""
    lines = _lines(path)
    there = _first(lines, path)
    require_columns(there, columns, str(path))
    places = [there.index(name) for name in columns]
    rows = [[line[at] if at < len(line) else "" for at in places] for line in itertools.islice(lines, count)]
    return {name: [row[position] for row in rows] for position, name in enumerate(columns)}


def _lines(path: Path) -> Iterator[list[str]]:
    """Yield the header's fields, then those of each row; blank lines are left out.

    A row may have fewer fields than the header, or end with empty ones. More fields are an error, because a comma in a
    text without quotes has moved the rest. So are two columns of one name.
    """
    refuse_irregular(path)
    form = form_of(path)
    kind = DELIMITERS[form.delimiter]
    if form.announced:
        say_once("%s: fields are separated by %s, as its first line says.", path, kind)
    elif form.delimiter != ("\t" if suffix_of(path) == ".tsv" else ","):
        say_once("%s has no commas in its header: fields are separated by %s.", path, kind)
    _say_encoding(path, form.encoding)
    width = row = 0
    advice = f"Is it UTF-8 with a header and {kind}, and a text that begins with a quote in quotes?"
    for line in records(path, form, advice):
        if width and any(line[width:]):
            raise DataError(
                f"{path}: row {row} has {len(line)} fields and the header {width}. Put quotes around a text "
                f"that holds {kind}."
            )
        if not width:
            refuse_duplicates(line, [name for name in line if name], str(path))
        width, row = width or len(line), row + 1
        yield line


def _say_encoding(path: Path, encoding: str) -> None:
    if encoding in ("utf-16", "utf-32"):
        say_once("%s is read as %s, by the mark at its beginning.", path, encoding.upper())
    if encoding == "cp1252":
        say_once(
            "%s is not UTF-8. It is read as Windows-1252 (Latin-1); if letters look wrong, save it as UTF-8.", path
        )


@functools.lru_cache(maxsize=64)
def say_once(text: str, *of: object) -> None:
    """Log a warning once, not for each split that it is true of."""
    logger.warning(text, *of)


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows as they are; of a row's fields none is looked at."""
    refuse_irregular(path)
    rows = 0
    encoding = encoding_of(path)
    _say_encoding(path, encoding)
    advice = "Is it UTF-8 with one JSON object per line?"
    with opened(path, advice) as raw, io.TextIOWrapper(raw, encoding) as text:
        for number, line in enumerate(text, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line, object_pairs_hook=_object)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}, line {number}, is no JSON object: {error}.") from None
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}, is no JSON object with a field for each column.")
            rows += 1
            yield row
    if not rows:
        raise DataError(f"{path} has neither a header nor rows.")


def _json_columns(path: Path, columns: Sequence[str], count: int | None) -> dict[str, list[str]]:
    """Return columns of JSON lines as texts; a field that a row lacks is empty."""
    names: dict[str, None] = {}
    found: dict[str, list[str]] = {name: [] for name in columns}
    for row in _json_rows(path):
        names.update(dict.fromkeys(row))
        for name, values in found.items():
            values.append(as_text(row.get(name)))
    require_columns(list(names), columns, str(path))
    return {name: values[:count] for name, values in found.items()}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a name stands there twice, among {', '.join(names)[:200]}")
    return dict(pairs)


def as_text(value: Any) -> str:
    """Return a cell of a table with types as Python writes it, and a missing one as an empty text."""
    return "" if value is None else value if isinstance(value, str) else str(value)


def cells_of(column: pa.Array, title: str = "A column") -> list[str]:
    """Return a column (rows,) as texts; a float32 as it is printed, so that 0.7 reaches a threshold of 0.7."""
    return list(map(as_text, values_of(as_printed(column), title)))


def _parquet_fields(path: Path) -> list[pa.Field]:
    """Return the fields of a parquet file with their types."""
    refuse_irregular(path)
    with whole(path, AGAIN):
        fields = list(pq.read_schema(path))
    names = [one.name for one in fields]
    refuse_duplicates(names, names, str(path))
    return fields


def _parquet_columns(path: Path, columns: Sequence[str], count: int | None) -> dict[str, list[str]]:
    """Return columns of a parquet file as texts, and no others; no more row groups are read than ``count`` needs."""
    require_columns([one.name for one in _parquet_fields(path)], columns, str(path))
    found: dict[str, list[str]] = {name: [] for name in columns}
    with whole(path, AGAIN), pq.ParquetFile(path) as file:
        # Batch by batch: beside the texts themselves little is held, of any size the file.
        batches = file.iter_batches(count or BATCH_ROWS, columns=list(found))
        for batch in itertools.islice(batches, count and 1):
            for name, values in found.items():
                values += cells_of(batch.column(name), f"{path}, column {name!r},")
    return found
