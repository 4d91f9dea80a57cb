"""Read the columns of a file of predictions batch by batch, as codes: no batch outlives the next one."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Hashable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from levelhead.auditing.tally import Column
from levelhead.types import DataError, quoted, require_columns

# What counts as missing in a label or prediction column of text. In a group column only an empty field does: "NA" or
# "None" may well be the name of a group.
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"]
SEPARATORS = {".csv": ",", ".tsv": "\t"}

FloatArray = NDArray[np.float64]

BATCH_ROWS = 1 << 18
SMALL_RANGE = 1 << 10
"""Whole numbers that lie as close together are their own codes: none is looked up."""
BATCH_BYTES = 1 << 24
LONGEST_HEADER = 1 << 20


def read_batches(path: Path, outcomes: Sequence[str], groups: Sequence[str]) -> Iterator[dict[str, Column]]:
    """Yield batches of rows of a file of predictions, one row a prediction, and nothing but the columns asked for.

    Fields of csv and tsv files are texts, exactly as they are written: ``1``, ``01`` and ``1.0`` are three values.
    The types of a parquet file stay what they are.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file.
        outcomes: names of the label and prediction columns.
        groups: names of the group columns.

    Yields:
        the columns by name.

    Raises:
        DataError: the file is missing, unreadable, empty, of an unknown kind, or lacks a column or has it twice; or,
            after the last batch, a label or a prediction is missing.
    """
    for columns, _ in read_batches_with_numbers(path, outcomes, groups, []):
        yield columns


def read_batches_with_numbers(
    path: Path, outcomes: Sequence[str], groups: Sequence[str], numbers: Sequence[str]
) -> Iterator[tuple[dict[str, Column], dict[str, FloatArray]]]:
    """Yield what :func:`read_batches` does and, beside it, the columns ``numbers`` as floating-point numbers.

    Raises:
        DataError: as there, and where a field of these columns is no number or, after the last batch, is missing.
            Infinite numbers and NaN count as missing.
    """
    if clash := [name for name in numbers if name in (*outcomes, *groups)]:
        raise DataError(
            f"Column {quoted(clash[0])} is named twice, as numbers and as a label, prediction or group. Name each once."
        )
    wanted = list(dict.fromkeys([*outcomes, *groups, *numbers]))
    suffix = Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    missing: dict[str, list[int]] = {name: [] for name in (*outcomes, *numbers)}
    counts = dict.fromkeys(missing, 0)
    start = 0
    try:
        if not path.is_file():
            raise DataError(f"There is no file {path}. Check the path.")
        if suffix not in {*SEPARATORS, ".parquet"}:
            raise DataError(f"{path} is of an unknown kind. Pass a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file.")
        absent = {name: MISSING if name in outcomes else [""] for name in wanted if name not in numbers}
        for batch in (
            _parquet(path, wanted, numbers) if suffix == ".parquet" else _text(path, wanted, absent, SEPARATORS[suffix])
        ):
            columns = {name: _codes(batch[name], absent[name] if suffix != ".parquet" else ()) for name in absent}
            values = {name: _numbers(batch[name], f"{path}, column {quoted(name)}") for name in numbers}
            for name in missing:
                found = np.flatnonzero(~np.isfinite(values[name])) if name in values else _missing_rows(columns[name])
                counts[name] += len(found)
                missing[name] += (found[:5] + start + 1).tolist()
            yield columns, values
            start += len(batch[wanted[0]])
    except pyarrow.ArrowInvalid as error:
        if not (bad := re.search(r"conversion error to double: invalid value '(.*?)'", str(error))):
            raise _unreadable(path, suffix, error) from None
        raise _no_number(f"{path}, column {' or '.join(map(quoted, numbers))}", bad[1]) from None
    except (OSError, ValueError, EOFError, OverflowError, csv.Error, pyarrow.ArrowException) as error:
        raise _unreadable(path, suffix, error) from None
    if not start:
        raise _no_rows(path)
    for name, number in counts.items():
        if number:
            shown = ", ".join(map(str, missing[name][:5])) + (", ..." if number > 5 else "")
            raise DataError(
                f"{path}, column {quoted(name)}: {number} missing{' or infinite' if name in numbers else ''} "
                f"value{'' if number == 1 else 's'}, first in row "
                f"{shown} (counted from 1, without the header). Fill them in or leave those rows out."
            )


def _unreadable(path: Path, suffix: str, error: Exception) -> DataError:
    # After "Expected 3 columns, got 4" comes the text of the row, which is nobody's business here.
    said = re.sub(r"(got \d+):.*", r"\1", (str(error).splitlines() or [type(error).__name__])[0])
    if "straddling" in said:
        said = f"a field of more than {BATCH_BYTES:,} bytes: is there a quotation mark that is never closed?"
    return DataError(f"{path} cannot be read as {suffix[1:]} ({said}). Is it complete and UTF-8?")


def _no_number(title: str, text: str) -> DataError:
    return DataError(f"{title} holds {quoted(text)}, which is no number. Pass numbers, written like 0.25.")


def _numbers(column: pyarrow.Array, title: str) -> FloatArray:
    """Return floats (rows,), NaN where a field is missing."""
    kind = column.type
    if pyarrow.types.is_boolean(kind) or pyarrow.types.is_temporal(kind):
        raise _no_number(title, str(kind))
    try:
        values = column.cast(pyarrow.float64())
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        bad = re.search(r"'(.*?)'", str(error))
        raise _no_number(title, bad[1] if bad else str(kind)) from None
    return values.to_numpy(zero_copy_only=False)


def _parquet(path: Path, wanted: Sequence[str], numbers: Sequence[str]) -> Iterator[dict[str, pyarrow.Array]]:
    schema = pyarrow.parquet.read_schema(path)
    require_columns(list(schema.names), wanted, str(path))
    texts = [name for name in wanted if name not in numbers and _is_text(schema.field(name).type)]
    # Text columns lie in the file as codes and are read as codes: no string is made for a row.
    with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
        rows = _batch_rows(file.metadata, wanted)
        for part in _row_groups(file.metadata):
            for batch in file.iter_batches(rows, row_groups=part, columns=list(wanted), use_threads=False):
                if batch.num_rows:
                    yield {name: batch.column(name) for name in wanted}


def _row_groups(metadata: pyarrow.parquet.FileMetaData) -> Iterator[list[int]]:
    """Yield the row groups that are opened at a time: a reader keeps what it has read of all of its groups."""
    part: list[int] = []
    rows = 0
    for at in range(metadata.num_row_groups):
        part.append(at)
        rows += metadata.row_group(at).num_rows
        if rows >= BATCH_ROWS:
            yield part
            part, rows = [], 0
    if part:
        yield part


def _batch_rows(metadata: pyarrow.parquet.FileMetaData, wanted: Sequence[str]) -> int:
    """Return how many rows to read at a time: fewer where fields are long, as they are before they are refused."""
    longest = 1.0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in wanted:
                longest = max(longest, column.total_uncompressed_size / max(1, column.num_values))
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / longest)))


def _text(
    path: Path, wanted: Sequence[str], texts: Collection[str], separator: str
) -> Iterator[dict[str, pyarrow.Array]]:
    """Read csv; columns that are not ``texts`` are numbers."""
    require_columns(_header(path, separator), wanted, str(path))
    reader = pyarrow.csv.open_csv(
        str(path),
        read_options=pyarrow.csv.ReadOptions(block_size=BATCH_BYTES, use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=list(wanted),
            column_types={
                name: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()) if name in texts else pyarrow.float64()
                for name in wanted
            },
            strings_can_be_null=False,
            null_values=[] if len(texts) == len(wanted) else MISSING,  # of numbers; texts are never null
        ),
    )
    with reader:
        for batch in reader:
            if batch.num_rows:
                yield {name: batch.column(name) for name in wanted}


def _header(path: Path, separator: str) -> list[str]:
    """Return the names of the columns, as they are written."""
    with pyarrow.input_stream(str(path), compression="gzip" if path.suffix.lower() == ".gz" else None) as stream:
        read = stream.read(LONGEST_HEADER)
        ends = len(read) < LONGEST_HEADER
    text = io.StringIO(codecs.getincrementaldecoder("utf-8-sig")().decode(read, final=ends), newline="")
    header = next((line for line in csv.reader(text, delimiter=separator) if line), None)
    if header is None and ends:
        raise DataError(f"{path} is empty. Write a header line and one line for each prediction.")
    if header is None or not text.read(1):
        if ends:
            raise _no_rows(path)
        raise DataError(f"{path} has a header of more than {LONGEST_HEADER:,} bytes. Is it a table of predictions?")
    return header


def _no_rows(path: Path) -> DataError:
    return DataError(f"{path} has a header but no rows. Write one line for each prediction.")


def _is_text(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _codes(column: pyarrow.Array, absent: Sequence[str] = ()) -> Column:
    """Return codes (rows,) and the values behind them; a missing field has the code of None."""
    if pyarrow.types.is_integer(column.type) and (close := _close_numbers(column)):
        return close
    coded = column if pyarrow.types.is_dictionary(column.type) else column.dictionary_encode()
    values: list[Hashable] = [
        None if pd.isna(value) or value in absent else value for value in coded.dictionary.to_pylist()
    ]
    codes = coded.indices.cast(pyarrow.int64())
    if codes.null_count:
        codes, values = codes.fill_null(len(values)), [*values, None]
    return codes.to_numpy(zero_copy_only=False), values


def _close_numbers(column: pyarrow.Array) -> Column | None:
    """Take whole numbers for their own codes, which is ten times faster than a table of them; None if far apart."""
    if column.null_count or not len(column):
        return None
    ends = pyarrow.compute.min_max(column)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if high - low >= SMALL_RANGE or max(-low, high) >= 1 << 62:
        return None
    codes = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    codes = codes - low if low else codes
    values: list[Hashable] = list(range(low, high + 1))
    if len(values) > 2:  # with two, both occur
        rows = np.bincount(codes, minlength=len(values))
        if not rows.all():
            codes = (np.cumsum(rows > 0) - 1)[codes]
            values = [value for value, count in zip(values, rows.tolist(), strict=True) if count]
    return codes, values


def _missing_rows(column: Column) -> NDArray[np.int64]:
    codes, values = column
    absent = [code for code, value in enumerate(values) if value is None]
    return np.flatnonzero(np.isin(codes, absent)) if absent else np.empty(0, np.int64)
