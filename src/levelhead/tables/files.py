"""Read the columns of a file of predictions batch by batch, as codes: no batch outlives the next one."""

from __future__ import annotations

import glob
import itertools
import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from levelhead.arrays import as_decimals, as_printed, check_path, values_of
from levelhead.csv_form import Form, check_quotes, form_of, suffix_of
from levelhead.extras import explained
from levelhead.spelling import shape_of
from levelhead.tables.columns import Column, FloatArray, numbers_of_column, occurring
from levelhead.tables.source import Batch, Source, Wanted
from levelhead.types import ConfigError, DataError, LevelheadError, printable, quoted, require_columns

# What counts as missing in a label or prediction column of text. In a group column only an empty field does: "NA" or
# "None" may well be the name of a group.
MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>"]
SEPARATORS = {".csv": ",", ".tsv": "\t"}

FILE = "file"
"""Column that the names of several files are, where none has a column of this name."""
BATCH_ROWS = 1 << 18
SMALL_RANGE = 1 << 10
"""Whole numbers that lie as close together are their own codes: none is looked up."""
BATCH_BYTES = 1 << 22
"""Read of a csv at a time; Arrow reads up to 32 such blocks ahead. Rows of a parquet file may take four times this."""

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

    def batches(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield batches of rows.

        Fields of csv and tsv files are texts, exactly as they are written: ``1``, ``01`` and ``1.0`` are three values.
        The types of a parquet file stay what they are.
        """
        outcomes, words, numbers, along, cut = wanted
        numbers = list(dict.fromkeys([*numbers, *(name for name in along if name not in words)]))
        if clash := [name for name in numbers if name in (*outcomes, *words)]:
            raise DataError(
                f"Column {quoted(clash[0])} is named twice, as numbers and as a label, prediction or group. Name each "
                "once."
            )
        every = list(dict.fromkeys([*outcomes, *words, *numbers]))
        absent = {name: MISSING if name in outcomes else [""] for name in every if name not in numbers}
        missing = _Missing([*outcomes, *numbers])
        for read in self.read(every, numbers):
            columns = {
                name: codes_of(read[name], self.title(name), texts if self.file_of(name).is_text else ())
                for name, texts in absent.items()
            }
            for name in {*cut, *along} & columns.keys():
                if self.file_of(name).has_commas(name):
                    codes, texts = columns[name]
                    columns[name] = codes, [one.replace(",", ".") if isinstance(one, str) else one for one in texts]
            values = {name: floats_of(read[name], self.title(name)) for name in numbers}
            missing.add(columns, values, len(read[every[0]]))
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
    """One file: ``.csv`` and ``.tsv`` (also ``.gz``) and ``.parquet`` are read batch by batch, others whole (LOADERS).

    Args:
        path: the file.
        beside: columns that are not in it and have one value in all of its rows, as the folders of a partitioned data
            set name them.

    Raises:
        DataError: there is no such file, or it is of another kind.
    """

    def __init__(self, path: Path | str, beside: Mapping[str, str | int | None] | None = None) -> None:
        self.path, self.beside = Path(path), dict(beside or {})
        self.kind = suffix_of(self.path)
        if "\0" in str(path) or not self.path.is_file():
            raise DataError(f"There is no file {path}. Check the path.")
        if self.kind not in {*SEPARATORS, ".parquet", *LOADERS}:
            raise DataError(
                f"{path} is of an unknown kind. Pass a .csv, .tsv, .jsonl (each also .gz), .parquet or .xlsx file."
            )

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def is_text(self) -> bool:
        """Whether fields are texts, and not values with types."""
        return self.kind in SEPARATORS

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
        return [*(self.form(wanted).header if self.is_text else self.schema().names), *self.beside]

    def has_commas(self, column: str) -> bool:
        """Whether a csv writes the numbers of a column with decimal commas."""
        return self.is_text and column in self.form([column]).decimal_commas

    def stores_fractions(self, column: str) -> bool:
        """Whether a parquet file stores a column as floating-point numbers."""
        names = [] if self.is_text or column in self.beside else self.header()
        return names.count(column) == 1 and bool(pyarrow.types.is_floating(self.schema().field(column).type))

    def schema(self) -> pyarrow.Schema:
        """Return names and types of a parquet file."""
        return self.sure(lambda: pyarrow.parquet.read_schema(self.path))

    def read(self, wanted: Sequence[str], numbers: Collection[str] = (), plain: Collection[str] = ()) -> Iterator[Read]:
        """Yield columns batch by batch; each must be there once."""
        own = [name for name in wanted if name not in self.beside] or self.header()[:1]
        rows = self._batches(own, numbers, plain)
        while (batch := self.sure(lambda: next(rows, None))) is not None:
            for name in self.beside.keys() & set(wanted):
                kind = pyarrow.string() if self.beside[name] is None else None
                batch[name] = pyarrow.repeat(pyarrow.scalar(self.beside[name], kind), len(batch[own[0]]))
            yield batch

    def _batches(self, wanted: Sequence[str], numbers: Collection[str], plain: Collection[str]) -> Iterator[Read]:
        """Yield the columns that are in the file itself."""
        return self._text(wanted, numbers, plain) if self.is_text else self._parquet(wanted, numbers, plain)

    @property
    def has_rows(self) -> bool:
        """Whether it holds a row; of a damaged file, too, which an error names where it is read."""
        if not self.is_text:
            return bool(self.sure(lambda: pyarrow.parquet.read_metadata(self.path)).num_rows)
        first = self._text(self.form().header[:1], (), ())
        return self.sure(lambda: next(first, None)) is not None

    def sure(self, read: Callable[[], Found]) -> Found:
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
        text, code = pyarrow.string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        types = {name: text if name in plain else pyarrow.float64() if name in numbers else code for name in wanted}
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
                decimal_point="," if set(numbers) & set(form.decimal_commas) else ".",
            ),
        )
        with reader:
            for batch in reader:
                if batch.num_rows:
                    yield {name: batch.column(name) for name in wanted}


class Frame(File):
    """A data frame in memory: of pandas, or of any library that gives its columns to Arrow, such as polars.

    Args:
        frame: the frame.
        file: the file that it was read from, whole.
    """

    def __init__(self, frame: Any, file: File | None = None) -> None:
        self.kind, self.beside, self.file = ".parquet", {} if file is None else file.beside, file
        self._frame = frame if isinstance(frame, (pd.DataFrame, pyarrow.Table)) else pyarrow.table(frame)
        self._rows, self._read = len(self._frame), dict[str, pyarrow.Array]()
        if file is not None:
            self.path = file.path

    def __str__(self) -> str:
        return "The table" if self.file is None else str(self.file)

    @property
    def name(self) -> str:
        """What a page calls it."""
        return "this table" if self.file is None else self.file.name

    def header(self, wanted: Sequence[str] = ()) -> list[str]:
        """Return the names of the columns."""
        columns = self._frame.columns if isinstance(self._frame, pd.DataFrame) else self._frame.column_names
        return [*map(str, columns), *self.beside]

    def stores_fractions(self, column: str) -> bool:
        """Whether a column holds floating-point numbers."""
        there = column in self.header() and column not in self.beside
        return there and bool(pyarrow.types.is_floating(self._column(column).type))

    @property
    def has_rows(self) -> bool:
        """Whether it holds a row."""
        return self._rows > 0

    def _batches(self, wanted: Sequence[str], numbers: Collection[str], plain: Collection[str]) -> Iterator[Read]:
        require_columns(self.header(), wanted, str(self))
        for start in range(0, self._rows, BATCH_ROWS):
            yield {name: self._column(name).slice(start, BATCH_ROWS) for name in wanted}

    def _column(self, name: str) -> pyarrow.Array:
        """Return a column (rows,), which is brought to Arrow once."""
        if name not in self._read:
            place = self.header().index(name)
            try:
                found = (
                    pyarrow.array(self._frame.iloc[:, place], from_pandas=True)
                    if isinstance(self._frame, pd.DataFrame)
                    else self._frame.column(place)
                )
            except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
                raise DataError(
                    f"{self.title(name)} holds values of several types. Bring them to one, as in .astype(str)."
                ) from None
            found = found.combine_chunks() if isinstance(found, pyarrow.ChunkedArray) else found
            self._read[name] = _simple(found)
        return self._read[name]


def _lines_of_json(path: Path) -> pyarrow.Table:
    packed = "gzip" if path.suffix.lower() == ".gz" else None
    return pyarrow.json.read_json(pyarrow.input_stream(str(path), compression=packed))


def _sheet(path: Path) -> pd.DataFrame:
    """Return the first sheet of a workbook; only an empty cell is a missing value."""
    try:
        return pd.read_excel(path, engine="openpyxl", dtype=object, keep_default_na=False, na_values=[""])
    except ImportError:
        raise explained(ModuleNotFoundError(name="openpyxl"), str(path)) from None


LOADERS: dict[str, Callable[[Path], Any]] = {".jsonl": _lines_of_json, ".xlsx": _sheet}
"""How files are read that are read whole."""


def table_at(path: Path | str, beside: Mapping[str, str | int | None] | None = None) -> File:
    """Return the table of a path, with columns ``beside`` it; raises :class:`DataError` as :class:`File`."""
    file = File(path, beside)
    return Frame(file.sure(lambda: LOADERS[file.kind](file.path)), file) if file.kind in LOADERS else file


class Files(Stored):
    """The rows of several files with the same columns, one file behind the other; files without rows are passed over.

    Args:
        files: at least one.
        called: what errors and pages call them; None: by the first.
    """

    def __init__(self, files: Sequence[File], called: str | None = None) -> None:
        self.label = f"{files[0]} and {len(files) - 1:,} more" if called is None else called
        self.files = [one for one in files if one.has_rows] or list(files[:1])
        if len({one.is_text for one in files}) > 1:
            raise ConfigError(
                "Fields of csv and tsv files are text; values of the other files have types. Pass one kind of file."
            )

    def __str__(self) -> str:
        return self.label

    @property
    def name(self) -> str:
        """The end of what they are called."""
        return Path(self.label).name

    def title(self, column: str) -> str:
        """Return the files and the column."""
        return f"{self}, column {quoted(column)}"

    def file_of(self, column: str) -> File:
        """Return the first file."""
        return self.files[0]

    def read(self, wanted: Sequence[str], numbers: Collection[str] = (), plain: Collection[str] = ()) -> Iterator[Read]:
        """Yield columns of all files batch by batch."""
        return itertools.chain.from_iterable(one.read(wanted, numbers, plain) for one in self.files)

    def batches(self, wanted: Wanted) -> Iterator[Batch]:
        """Yield batches of the rows of all files; a missing value is an error at the end of its file."""
        return itertools.chain.from_iterable(one.batches(wanted) for one in self.files)

    def taken(self, columns: Sequence[str]) -> list[str]:
        """Say how the first files were read that are not plain."""
        said = [sentence for one in self.files for sentence in one.taken(columns)]
        return said[:3] + ([f"{len(said) - 3:,} more such sentences on other files."] if len(said) > 3 else [])


def source_of(path: Any) -> Stored:
    """Return the rows of a data frame, of a file of predictions, of several, or those that are given.

    Args:
        path: a frame of pandas, polars or Arrow; or a file, a glob such as ``2024-*.parquet``, a folder of parquet
            files (the names of its folders may be values, ``state=CA``), or several of these.

    Raises:
        DataError: there is no such file, or it is of an unknown kind.
        ConfigError: the files are of two kinds, or one is named twice.
    """
    if isinstance(path, Stored):
        return path
    one_column = hasattr(path, "dtype")  # of pandas or polars, which also speak Arrow
    if isinstance(path, (pd.DataFrame, pyarrow.Table)) or (hasattr(path, "__arrow_c_stream__") and not one_column):
        return Frame(path)
    if isinstance(path, (Path, str)):
        found = _files_of(path)
        return found[0] if len(found) == 1 else Files(found, str(path))
    if isinstance(path, Sequence) and path and all(isinstance(one, (Path, str)) for one in path):
        found = [file for one in path for file in _files_of(one)]
        times = Counter(file.path.resolve() for file in found)
        if twice := next((file.path for file in found if times[file.path.resolve()] > 1), None):
            raise ConfigError(f"{twice} is named twice, so its rows would count twice. Name each file once.")
        return found[0] if len(found) == 1 else Files(found)
    raise ConfigError(f"{quoted(path)} is no table: pass a data frame, or the path of a file.")


def by_file(source: Stored, column: str | None) -> Stored:
    """Return a table with a column :data:`FILE` of the names of its files, if ``column`` is it and no file has one."""
    if column != FILE or not isinstance(source, Files) or len(source.files) < 2 or FILE in source.files[0].header():
        return source
    paths = [one.path.absolute() for one in source.files]
    top = Path(os.path.commonpath(paths))
    names = [_without_suffix(str(one.relative_to(top))) for one in paths]
    if same := [one for one, times in Counter(names).items() if times > 1]:
        raise ConfigError(
            f"Two files would be the period {quoted(same[0])}: their names differ in the suffix alone. Rename one, or "
            "leave it out."
        )
    files = [table_at(one.path, {**one.beside, FILE: name}) for one, name in zip(source.files, names, strict=True)]
    return Files(files, source.label)


def _without_suffix(name: str) -> str:
    """Return a file's name without its kind: other points belong to the name, as in ``2024.01.csv``."""
    return re.sub(r"\.(csv|tsv|jsonl|parquet|xlsx)(\.gz)?$", "", name, flags=re.IGNORECASE)


def _files_of(path: Path | str) -> list[File]:
    """Return the file of a path, or those of a glob or a folder, in the order of their names."""
    check_path("The name of a table", path)
    text = str(path)
    if not Path(path).is_dir():
        if any(sign in text for sign in "*?[") and not Path(path).exists():
            if not (found := sorted(glob.glob(text, recursive=True))):  # noqa: PTH207  (of absolute paths, too)
                raise DataError(f"No file matches {printable(text)}. Check the path.")
            return [file for one in found for file in _files_of(one)]
        return [table_at(path)]
    # What begins with "_" or "." is written beside data sets, and is none of them.
    inside = [
        one
        for one in sorted(Path(path).rglob("*.parquet"))
        if not set("_.") & {part[0] for part in one.relative_to(path).parts}
    ]
    if not inside:
        raise DataError(
            f"The folder {printable(text)} has no .parquet file. Pass files, or a glob: '{printable(text)}/*.csv'."
        )
    options = pyarrow.dataset.FileSystemFactoryOptions(
        partition_base_dir=text, partitioning=pyarrow.dataset.HivePartitioning.discover()
    )
    try:
        found = pyarrow.dataset.FileSystemDatasetFactory(
            pyarrow.fs.LocalFileSystem(), [str(one) for one in inside], pyarrow.dataset.ParquetFileFormat(), options
        ).finish()
        parts = {one.path: one.partition_expression for one in found.get_fragments()}
        return [File(one, pyarrow.dataset.get_partition_keys(parts[str(one)])) for one in inside]
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(Path(path), ".parquet", error) from None


def _unreadable(path: Path, suffix: str, error: Exception) -> DataError:
    # After "Expected 3 columns, got 4" comes the text of the row, which is nobody's business here.
    said = re.sub(r"(got \d+):.*", r"\1", (str(error).splitlines() or [""])[0]) or type(error).__name__
    if "straddling" in said:
        said = f"a field of more than {BATCH_BYTES:,} bytes: is there a quotation mark that is never closed?"
    whole = "Is it complete and UTF-8?" if suffix in SEPARATORS else "Is it complete?"
    return DataError(f"{path} cannot be read as {suffix[1:]} ({said}). {whole}")


def no_number(title: str, text: str) -> DataError:
    """Return the error of a column of numbers that holds something else, of a text its shape."""
    return DataError(
        f"{title} holds {quoted(text)}, which is no number (a: a letter, 9: a digit). Write all numbers in one way, "
        "such as 0.25."
    )


def numbers_of(column: pyarrow.Array, title: str) -> pyarrow.Array:
    """Return a column as float64, null where a field is missing; float32 becomes what it is written as.

    0.7 in float32 lies below 0.7 in float64: widened bit by bit, it would miss a threshold of 0.7.
    """
    kind = column.type
    if pyarrow.types.is_boolean(kind) or pyarrow.types.is_temporal(kind):
        raise DataError(f"{title} holds values of the type {kind}, which are no numbers.")
    try:
        return as_printed(column).cast(pyarrow.float64())
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

    Columns that nobody asks for count as well: of a damaged file, pyarrow ends the whole process where it is requested
    the size of one column.
    """
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    longest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
    return max(1, min(BATCH_ROWS, int(4 * BATCH_BYTES / max(1.0, longest))))


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
        values: list[Hashable] = [None if pd.isna(one) or one in absent else one for one in values_of(kinds, title)]
        codes = coded.indices.cast(pyarrow.int64())
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError) as error:
        said = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise DataError(f"{title} cannot be read ({said}). Name a column of numbers or of texts in UTF-8.") from None
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
    codes = column.to_numpy(zero_copy_only=False).astype(np.int64) - low
    return occurring((codes, list(range(low, high + 1))))[:2]


def _missing_rows(column: Column) -> NDArray[np.int64]:
    codes, values = column
    absent = [code for code, value in enumerate(values) if value is None]
    return np.flatnonzero(np.isin(codes, absent)) if absent else np.empty(0, np.int64)
