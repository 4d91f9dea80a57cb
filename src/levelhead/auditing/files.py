"""Count the rows of a file of predictions without ever holding them: a batch is read, counted and forgotten.

An audit needs only how many rows share each (label, prediction, groups). That is a handful of patterns, however long
the file is.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from levelhead.types import DataError, require_columns

# What counts as missing in a label or prediction column. In a group column only an empty field does: "NA" or
# "None" may well be the name of a group.
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"]
SEPARATORS = {".csv": ",", ".tsv": "\t"}

BATCH_ROWS = 1 << 18
BATCH_BYTES = 1 << 24
# Up to so many cells, batches are counted in one array; beyond, the patterns that occur are sorted out first.
MOST_CELLS = 1 << 20

Column = tuple[NDArray[np.int64], list[Hashable]]
"""Codes of the rows of a batch, and what each code stands for; None where the field is missing."""


@dataclass(frozen=True)
class Patterns:
    """How often each combination of values occurs in a file.

    Attributes:
        values: (patterns, columns), the distinct combinations, in the order in which they were met.
        rows: (patterns,) int64, how many rows have each.
    """

    values: pd.DataFrame
    rows: NDArray[np.int64]


def count_patterns(path: Path, outcomes: Sequence[str], groups: Sequence[str] = ()) -> Patterns:
    """Count the combinations of values in columns of a file of predictions, one row a prediction.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file.
        outcomes: names of the label and prediction columns.
        groups: names of the group columns.

    Returns:
        the combinations, columns in the order asked for. Missing groups are kept as NaN.

    Raises:
        DataError: the file is missing, unreadable, empty, of an unknown kind, or lacks a column; or a label or a
            prediction is missing.
    """
    path = Path(path)
    wanted = list(dict.fromkeys([*outcomes, *groups]))
    suffix = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if not path.is_file():
        raise DataError(f"There is no file {path}. Check the path.")
    if suffix not in {*SEPARATORS, ".parquet"}:
        raise DataError(f"{path} is of an unknown kind. Pass a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file.")
    try:
        batches = _parquet(path, wanted) if suffix == ".parquet" else _text(path, wanted, SEPARATORS[suffix])
        counts = _count(path, batches, wanted, set(outcomes), suffix != ".parquet")
    except (OSError, ValueError, EOFError, pyarrow.ArrowException) as error:
        # After "Expected 3 columns, got 4" comes the text of the row, which is nobody's business here.
        said = re.sub(r"(got \d+):.*", r"\1", (str(error).splitlines() or [type(error).__name__])[0])
        raise DataError(f"{path} cannot be read as {suffix[1:]} ({said}). Is it complete and UTF-8?") from None
    if not counts:
        raise DataError(f"{path} has a header but no rows. Write one line for each prediction.")
    rows = np.fromiter(counts.values(), np.int64, len(counts))
    if suffix == ".parquet":
        # As objects: one missing value must not turn the others, whole numbers, into fractions.
        return Patterns(pd.DataFrame(list(counts), columns=wanted, dtype=object), rows)
    return Patterns(_typed(counts, wanted, set(outcomes)), rows)


def _count(
    path: Path, batches: Iterator[list[Column]], names: Sequence[str], outcomes: set[str], text: bool
) -> dict[tuple[Hashable, ...], int]:
    """Add up the patterns of all batches; refuse missing labels and predictions, naming their rows."""
    counts: dict[tuple[Hashable, ...], int] = {}
    absent = set(MISSING) if text else {None}
    missing: dict[str, int] = {}
    first: dict[str, list[int]] = {}
    start = 0
    for columns in batches:
        for name, (codes, values) in zip(names, columns, strict=True):
            empty = [code for code, value in enumerate(values) if value in absent] if name in outcomes else []
            found = (np.flatnonzero(np.isin(codes, empty)) + start + 1).tolist() if empty else []
            if found:
                missing[name] = missing.get(name, 0) + len(found)
                first[name] = [*first.get(name, []), *found[:5]][:5]
        for pattern, rows in _patterns(columns):
            counts[pattern] = counts.get(pattern, 0) + rows
        start += len(columns[0][0])
    for name, number in missing.items():
        shown = ", ".join(map(str, first[name])) + (", ..." if number > 5 else "")
        raise DataError(
            f"{path}, column {name!r}: {number} missing value{'' if number == 1 else 's'}, first in row {shown} "
            "(counted from 1, without the header). Fill them in or leave those rows out."
        )
    return counts


def _patterns(columns: list[Column]) -> Iterator[tuple[tuple[Hashable, ...], int]]:
    """Yield each combination of values in a batch, and how many rows have it."""
    sizes = [len(values) for _, values in columns]
    cells = np.prod([float(size) for size in sizes])
    if cells <= MOST_CELLS:
        flat = columns[0][0]
        for (codes, _), size in zip(columns[1:], sizes[1:], strict=True):
            flat = flat * size + codes
        counted = np.bincount(flat)
        places = np.flatnonzero(counted)
        combined, rows = np.unravel_index(places, sizes), counted[places]
    else:
        distinct, rows = np.unique(np.stack([codes for codes, _ in columns]), axis=1, return_counts=True)
        combined = tuple(distinct)
    named = [[values[code] for code in codes] for codes, (_, values) in zip(combined, columns, strict=True)]
    yield from zip(zip(*named, strict=True), rows.tolist(), strict=True)


def _parquet(path: Path, wanted: Sequence[str]) -> Iterator[list[Column]]:
    schema = pyarrow.parquet.read_schema(path)
    require_columns(list(schema.names), wanted, str(path))
    texts = [name for name in wanted if _is_text(schema.field(name).type)]
    # Text columns lie in the file as codes and are read as codes: no string is made for a row.
    with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(BATCH_ROWS, columns=list(wanted), use_threads=False):
            if batch.num_rows:
                yield [_codes(batch.column(name)) for name in wanted]


def _text(path: Path, wanted: Sequence[str], separator: str) -> Iterator[list[Column]]:
    with pyarrow.input_stream(str(path), compression="gzip" if path.suffix.lower() == ".gz" else None) as stream:
        header = pd.read_csv(io.BytesIO(_first_line(stream)), sep=separator, nrows=0) if path.stat().st_size else None
    if header is None or not len(header.columns):
        raise DataError(f"{path} is empty. Write a header line and one line for each prediction.")
    require_columns([str(name) for name in header.columns], wanted, str(path))
    # All as text: what a column holds is known only when the whole file has been seen.
    reader = pyarrow.csv.open_csv(
        str(path),
        read_options=pyarrow.csv.ReadOptions(block_size=BATCH_BYTES, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={name: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()) for name in wanted},
            strings_can_be_null=False,
            null_values=[],
        ),
    )
    with reader:
        for batch in reader:
            if batch.num_rows:
                yield [_codes(batch.column(name)) for name in wanted]


def _first_line(stream: Any) -> bytes:
    """Return what comes before the first end of line."""
    read = b""
    while b"\n" not in read and (more := stream.read(1 << 16)):
        read += more
    return read.partition(b"\n")[0]


def _is_text(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _codes(column: pyarrow.Array) -> Column:
    """Return codes (rows,) and the values behind them; a missing field has the code of None."""
    coded = column if pyarrow.types.is_dictionary(column.type) else column.dictionary_encode()
    values: list[Hashable] = [None if pd.isna(value) else value for value in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [*values, None]


def _typed(counts: dict[tuple[Hashable, ...], int], names: Sequence[str], outcomes: set[str]) -> pd.DataFrame:
    """Give text its types as pandas would, had it read the whole file: they depend on the set of values alone."""
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(names)
    writer.writerows(counts)
    written.seek(0)
    return pd.read_csv(
        written,
        low_memory=False,
        keep_default_na=False,
        skip_blank_lines=False,
        na_values={name: MISSING if name in outcomes else [""] for name in names},
    )
