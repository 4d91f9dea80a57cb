"""Read the columns of a file of predictions batch by batch, as codes: no batch outlives the next one."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from levelhead.arrays import as_decimals
from levelhead.csv_form import Form, check_quotes, form_of, suffix_of
from levelhead.spelling import shape_of
from levelhead.tables.columns import Column, FloatArray, numbers_of_column
from levelhead.tables.source import Batch, Source
from levelhead.types import ConfigError, DataError, LevelheadError, quoted, require_columns

# What counts as missing in a label or prediction column of text. In a group column only an empty field does: "NA" or
# "None" may well be the name of a group.
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"]
SEPARATORS = {".csv": ",", ".tsv": "\t"}

BATCH_ROWS = 1 << 18
SMALL_RANGE = 1 << 10
"""Whole numbers that lie as close together are their own codes: none is looked up."""
BATCH_BYTES = 1 << 24

Read = dict[str, pyarrow.Array]
Found = TypeVar("Found")


class Stored(Source):
    """Rows of predictions, whose columns may stand in one file or in two."""

    @abstractmethod
    def file_of(self, column: str) -> File:
        """Return the file that holds a column."""

    @abstractmethod
    def read(self, wanted: Sequence[str], numbers: Collection[str] = (), plain: Collection[str] = ()) -> Iterator[Read]:
        """Yield columns batch by batch: ``numbers`` of a csv as floats, ``plain`` ones as texts, others as codes."""

    def title(self, column: str) -> str:
        """Return the file and the column."""
        return f"{self.file_of(column)}, column {quoted(column)}"

    def batches(
        self,
        outcomes: Sequence[str] = (),
        words: Sequence[str] = (),
        numbers: Sequence[str] = (),
        along: Sequence[str] = (),
        cut: Collection[str] = (),
    ) -> Iterator[Batch]:
        """Yield batches of rows.

        Fields of csv and tsv files are texts, exactly as they are written: ``1``, ``01`` and ``1.0`` are three values.
        The types of a parquet file stay what they are.
        """
        numbers = list(dict.fromkeys([*numbers, *(name for name in along if name not in words)]))
        if clash := [name for name in numbers if name in (*outcomes, *words)]:
            raise DataError(
                f"Column {quoted(clash[0])} is named twice, as numbers and as a label, prediction or group. Name each "
                "once."
            )
        wanted = list(dict.fromkeys([*outcomes, *words, *numbers]))
        absent = {name: MISSING if name in outcomes else [""] for name in wanted if name not in numbers}
        missing = _Missing([*outcomes, *numbers])
        for read in self.read(wanted, numbers):
            columns = {
                name: codes_of(read[name], self.title(name), texts if self.file_of(name).is_text else ())
                for name, texts in absent.items()
            }
            for name in {*cut, *along} & columns.keys():
                if self.file_of(name).has_commas(name):
                    codes, texts = columns[name]
                    columns[name] = codes, [one.replace(",", ".") if isinstance(one, str) else one for one in texts]
            values = {name: floats_of(read[name], self.title(name)) for name in numbers}
            missing.add(columns, values, len(read[wanted[0]]))
            for name in along:
                if name in columns:
                    codes, texts = columns[name]
                    values[name] = numbers_of_column(texts, self.title(name))[codes]
            yield Batch({name: columns[name] for name in outcomes}, {name: columns[name] for name in words}, values)
        if not missing.rows:
            raise DataError(f"{self} has a header but no rows. Write one line for each prediction.")
        missing.refuse(self, numbers)


class _Missing:
    """Counts missing fields of columns that may have none, and keeps the first rows of each."""

    def __init__(self, names: Sequence[str]) -> None:
        self.rows, self.counts = 0, dict.fromkeys(names, 0)
        self.first: dict[str, list[int]] = {name: [] for name in names}

    def add(self, columns: Mapping[str, Column], numbers: Mapping[str, FloatArray], rows: int) -> None:
        for name, first in self.first.items():
            found = np.flatnonzero(~np.isfinite(numbers[name])) if name in numbers else _missing_rows(columns[name])
            self.counts[name] += len(found)
            first += (found[:5] + self.rows + 1).tolist()
        self.rows += rows

    def refuse(self, source: Source, numbers: Sequence[str]) -> None:
        for name, number in self.counts.items():
            if number:
                shown = ", ".join(map(str, self.first[name][:5])) + (", ..." if number > 5 else "")
                raise DataError(
                    f"{source.title(name)}: {number} missing{' or infinite' if name in numbers else ''} "
                    f"value{'' if number == 1 else 's'}, first in row "
                    f"{shown} (counted from 1, without the header). Fill them in or leave those rows out."
                )


class File(Stored):
    """One ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file.

    Raises:
        DataError: there is no such file, or it is of another kind.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.kind = suffix_of(self.path)
        if "\0" in str(path) or not self.path.is_file():
            raise DataError(f"There is no file {path}. Check the path.")
        if self.kind not in {*SEPARATORS, ".parquet"}:
            raise DataError(f"{path} is of an unknown kind. Pass a .csv, .tsv, .csv.gz, .tsv.gz or .parquet file.")

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def is_text(self) -> bool:
        """Whether fields are texts, and not values with types."""
        return self.kind != ".parquet"

    def file_of(self, column: str) -> File:
        """Return this file."""
        return self

    def form(self, wanted: Sequence[str] = ()) -> Form:
        """Return how a csv is written."""
        form = form_of(self.path, wanted)
        if not form.header:
            raise DataError(f"{self} is empty. Write a header line and one line for each prediction.")
        return form

    def taken(self, columns: Sequence[str]) -> list[str]:
        """Say how a csv was read that is not plain; of another file nothing."""
        if not self.is_text:
            return []
        form = self.form(columns)
        said = form.taken(SEPARATORS[self.kind], columns)
        sentences = [f"{self.name} was read as {', '.join(said)}."] if said else []
        if long := check_quotes(self.path, form):
            sentences.append(
                f"Row {long[0]:,} of {self.name} holds a text of which {long[1]:,} lines look like rows, and counts as "
                "one row: is a quotation mark missing there?"
            )
        return sentences

    def header(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the names of the columns."""
        return list(self.form(wanted).header) if self.is_text else list(self.schema().names)

    def has_commas(self, column: str) -> bool:
        """Whether a csv writes the numbers of a column with decimal commas."""
        return self.is_text and column in self.form([column]).decimal_commas

    def stores_fractions(self, column: str) -> bool:
        """Whether a parquet file stores a column as floating-point numbers."""
        names = [] if self.is_text else self.header()
        return names.count(column) == 1 and bool(pyarrow.types.is_floating(self.schema().field(column).type))

    def schema(self) -> pyarrow.Schema:
        """Return names and types of a parquet file."""
        return self._sure(lambda: pyarrow.parquet.read_schema(self.path))

    def read(self, wanted: Sequence[str], numbers: Collection[str] = (), plain: Collection[str] = ()) -> Iterator[Read]:
        """Yield columns batch by batch; each must be there once."""
        rows = self._text(wanted, numbers, plain) if self.is_text else self._parquet(wanted, numbers, plain)
        while (batch := self._sure(lambda: next(rows, None))) is not None:
            yield batch

    def _sure(self, read: Callable[[], Found]) -> Found:
        """Return what is read; whatever a library says of a damaged file becomes one sentence."""
        try:
            return read()
        except LevelheadError:
            raise
        except Exception as error:
            found = re.search(r"In CSV column #(\d+): .*conversion error to double: invalid value '(.*?)'", str(error))
            if found:
                raise no_number(self.title(self.header()[int(found[1])]), shape_of(found[2])) from None
            raise _unreadable(self.path, self.kind, error) from None

    def _parquet(self, wanted: Sequence[str], numbers: Collection[str], plain: Collection[str]) -> Iterator[Read]:
        schema = self.schema()
        require_columns(list(schema.names), wanted, str(self))
        for name in wanted:
            kind = schema.field(name).type
            if pyarrow.types.is_nested(getattr(kind, "storage_type", kind)):
                raise DataError(
                    f"{self.title(name)} holds values of the type {kind}, which cannot be compared. Name a column of "
                    "numbers, texts or truth values."
                )
        texts = [name for name in wanted if name not in {*numbers, *plain} and _is_text(schema.field(name).type)]
        # Text columns lie in the file as codes and are read as codes: no string is made for a row.
        with pyarrow.parquet.ParquetFile(self.path, read_dictionary=texts, page_checksum_verification=True) as file:
            rows = _batch_rows(file.metadata)
            for part in _row_groups(file.metadata):
                for batch in file.iter_batches(rows, row_groups=part, columns=list(wanted), use_threads=False):
                    if batch.num_rows:
                        yield {name: _simple(batch.column(name)) for name in wanted}

    def _text(self, wanted: Sequence[str], numbers: Collection[str], plain: Collection[str]) -> Iterator[Read]:
        form = self.form(wanted)
        require_columns(form.header, wanted, str(self))
        check_quotes(self.path, form)
        commas = [name for name in numbers if name in form.decimal_commas]
        text, code = pyarrow.string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        types = {
            name: text if name in {*plain, *commas} else pyarrow.float64() if name in numbers else code
            for name in wanted
        }
        reader = pyarrow.csv.open_csv(
            pyarrow.input_stream(str(self.path), compression="gzip" if self.path.suffix.lower() == ".gz" else None),
            read_options=pyarrow.csv.ReadOptions(
                block_size=BATCH_BYTES,
                use_threads=False,
                encoding=form.encoding.removesuffix("-sig"),
                skip_rows=int(form.announced),
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=form.delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=list(wanted),
                column_types=types,
                strings_can_be_null=False,
                null_values=MISSING if numbers else [],  # of numbers; texts are never null
            ),
        )
        with reader:
            for batch in reader:
                if batch.num_rows:
                    yield {
                        name: self._pointed(batch.column(name), name) if name in commas else batch.column(name)
                        for name in wanted
                    }

    def _pointed(self, column: pyarrow.Array, name: str) -> pyarrow.Array:
        """Return the numbers (rows,) of texts with decimal commas."""
        column = pyarrow.compute.utf8_trim_whitespace(column)
        absent = pyarrow.compute.is_in(column, value_set=pyarrow.array(MISSING))
        pointed = pyarrow.compute.if_else(absent, None, column)
        mixed = pyarrow.compute.match_substring(pointed, ".")
        if pyarrow.compute.any(mixed).as_py():
            first = pointed.filter(mixed)[0].as_py()
            raise DataError(
                f"{self.title(name)} holds {quoted(shape_of(first))} beside numbers with decimal commas. Write all "
                "of its numbers in one way."
            )
        return numbers_of(pyarrow.compute.replace_substring(pointed, ",", "."), self.title(name))


def source_of(path: Path | str | Stored) -> Stored:
    """Return a file of predictions, or the rows that are given.

    Raises:
        DataError: there is no such file, or it is of an unknown kind.
    """
    if not isinstance(path, (Stored, Path, str)):
        raise ConfigError(f"A file of predictions is named by its path, not by {quoted(path)}.")
    return path if isinstance(path, Stored) else File(path)


def _unreadable(path: Path, suffix: str, error: Exception) -> DataError:
    # After "Expected 3 columns, got 4" comes the text of the row, which is nobody's business here.
    said = re.sub(r"(got \d+):.*", r"\1", (str(error).splitlines() or [""])[0]) or type(error).__name__
    if "straddling" in said:
        said = f"a field of more than {BATCH_BYTES:,} bytes: is there a quotation mark that is never closed?"
    whole = "Is it complete?" if suffix == ".parquet" else "Is it complete and UTF-8?"
    return DataError(f"{path} cannot be read as {suffix[1:]} ({said}). {whole}")


def no_number(title: str, text: str) -> DataError:
    """Return the error of a column of numbers that holds something else, of a text its shape."""
    return DataError(f"{title} holds {quoted(text)}, which is no number (a: a letter, 9: a digit). Write 0.25.")


def numbers_of(column: pyarrow.Array, title: str) -> pyarrow.Array:
    """Return a column as float64, null where a field is missing; float32 becomes what it is written as.

    0.7 in float32 lies below 0.7 in float64: widened bit by bit, it would miss a threshold of 0.7.
    """
    kind = column.type
    if pyarrow.types.is_boolean(kind) or pyarrow.types.is_temporal(kind):
        raise DataError(f"{title} holds values of the type {kind}, which are no numbers.")
    try:
        return column.cast(pyarrow.string() if pyarrow.types.is_float32(kind) else kind).cast(pyarrow.float64())
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        bad = re.search(r"'(.*?)'", str(error))
        if bad is None:
            raise DataError(f"{title} holds values of the type {kind}, which are no numbers.") from None
        raise no_number(title, shape_of(bad[1])) from None


def floats_of(column: pyarrow.Array, title: str) -> FloatArray:
    """Return floats (rows,), NaN where a field is missing."""
    values: FloatArray = numbers_of(column, title).to_numpy(zero_copy_only=False)
    return values


def _simple(column: pyarrow.Array) -> pyarrow.Array:
    """Return a column of a type that can be compared and counted, without a change of its values."""
    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage
    if pyarrow.types.is_float16(column.type):
        return pyarrow.array(as_decimals(column.to_numpy(zero_copy_only=False)), mask=column.is_null().to_numpy(False))
    views = {"string_view": pyarrow.string(), "binary_view": pyarrow.binary()}
    return column.cast(views[str(column.type)]) if str(column.type) in views else column


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


def _batch_rows(metadata: pyarrow.parquet.FileMetaData) -> int:
    """Return how many rows to read at a time: fewer where rows are long, as they are before they are refused.

    Columns that nobody asks for count as well: of a damaged file, pyarrow ends the whole process where it is asked for
    the size of one column.
    """
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    longest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1.0, longest))))


def _is_text(kind: pyarrow.DataType) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def codes_of(column: pyarrow.Array, title: str, absent: Sequence[str] = ()) -> Column:
    """Return codes (rows,) and the values behind them; a missing field has the code of None."""
    if pyarrow.types.is_integer(column.type) and (close := _close_numbers(column)):
        return close
    try:
        coded = column if pyarrow.types.is_dictionary(column.type) else column.dictionary_encode()
        kinds = coded.dictionary
        floating = pyarrow.types.is_floating(kinds.type)
        if floating:
            kinds = pyarrow.compute.add(numbers_of(kinds, title), 0.0)  # 0.0 and -0.0 are one number
        values: list[Hashable] = [None if pd.isna(one) or one in absent else one for one in kinds.to_pylist()]
        codes = coded.indices.cast(pyarrow.int64())
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError) as error:
        said = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise DataError(f"{title} cannot be read ({said}). Is the file complete and its text UTF-8?") from None
    if codes.null_count:
        codes, values = codes.fill_null(len(values)), [*values, None]
    found: NDArray[np.int64] = codes.to_numpy(zero_copy_only=False)
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < len(values):
        raise DataError(f"{title} is damaged: a row refers to a value that is not there. Write the file again.")
    if floating and len(places := {value: code for code, value in enumerate(values)}) < len(values):
        found = np.array([places[value] for value in values], np.int64)[found]
    return found, values


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
