"""How a csv, tsv or JSON lines file is written: encoding, delimiter, quotation marks, decimal commas.

Both readers use it, that of data sets and that of audits, so that they read the same files and refuse the same ones.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import functools
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from levelhead.storage import refuse_strange_files
from levelhead.types import DataError, LevelheadError, listed, quoted, reason_of

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
MARKS = {  # UTF-32 first, whose mark begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
NOT_WINDOWS = bytes([0x81, 0x8D, 0x8F, 0x90, 0x9D])  # mean nothing in Windows-1252
LONGEST_FIELD = 1 << 24
"""Characters of one field; a longer one is most often a quotation mark that is never closed."""
SAMPLE = 1 << 20  # characters at the beginning that may be the header
NUMBERS = 1 << 17  # characters at the beginning that show how numbers are written
BLOCK = 1 << 22
MISSING = ("", "na", "n/a", "nan", "null", "none", "<na>")
FORMULA = ("=", "+", "-", "@", "\t", "\r", *"\uff1d\uff0b\uff0d\uff20")
"""What begins a cell that a spreadsheet takes for a formula, which may run a program; full-width forms too."""
ANNOUNCED = re.compile(r'"?sep=([,;\t|])"?(\r\n|\n|\r)', re.IGNORECASE)
"""The line that Excel reads, and some programs write, above the header."""
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+", re.ASCII)


@dataclass(frozen=True)
class Form:
    """How a csv file is written: its ``header``, and the columns whose numbers have ``decimal_commas``.

    ``announced`` says that a line above the header, such as ``sep=;``, names the delimiter.
    """

    encoding: str
    delimiter: str
    header: tuple[str, ...]
    decimal_commas: tuple[str, ...] = ()
    announced: bool = False

    def taken(self, expected: str, columns: Iterable[str]) -> list[str]:
        """Say what was taken for granted in reading ``columns``, as parts of a sentence; of a plain file nothing."""
        commas = [name for name in dict.fromkeys(columns) if name in self.decimal_commas]
        said = []
        if self.encoding in ("utf-16", "utf-32"):
            said.append(f"{self.encoding.upper()}, by the mark at its beginning")
        if self.encoding == "cp1252":
            said.append("Windows-1252 (Latin-1), as it is not UTF-8")
        if self.announced or self.delimiter != expected:
            as_said = ", as its first line says" if self.announced else ""
            said.append(f"fields separated by {DELIMITERS[self.delimiter]}{as_said}")
        if commas:
            said.append(f"decimal commas in {listed(map(quoted, commas), 5)}")
        return said


def refuse_irregular(path: Path) -> None:
    """Raise :class:`~levelhead.types.DataError` unless ``path`` is a regular file."""
    if not path.exists():
        raise DataError(f"There is no file {path}. Check the path.")
    refuse_strange_files(path)
    if not path.is_file():
        raise DataError(f"{path} is not a regular file. Put a table there, or name another file.")


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's name in lower case, without ``.gz``."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


@contextlib.contextmanager
def opened(path: Path, advice: str) -> Iterator[IO[bytes]]:
    """Open a file, also a packed one; what cannot be read is an error that ends with ``advice``."""
    try:
        with cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb") as raw:
            yield raw
    except (ValueError, csv.Error, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({reason_of(error)}). {advice}") from None


@contextlib.contextmanager
def whole(path: Path, advice: str) -> Iterator[None]:
    """Turn what a library says of a damaged parquet file, which may be any error, into one that ends in ``advice``."""
    try:
        yield
    except LevelheadError:
        raise
    except Exception as error:
        said = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise DataError(f"{path} is not a readable parquet file ({said}){advice}") from None


def encoding_of(path: Path) -> str:
    """Return the encoding of a file: by the mark at the beginning, else UTF-8, else Windows-1252.

    Windows-1252 holds Latin-1's letters. A file that is UTF-8 in part is a damaged one.

    Raises:
        DataError: the file is in none of these encodings, or cannot be read.
    """
    about = path.stat()
    return _encoding_of(path, about.st_mtime_ns, about.st_size)


@functools.lru_cache(maxsize=64)
def _encoding_of(path: Path, changed: int, size: int) -> str:
    decoder, letters = codecs.getincrementaldecoder("utf-8")(), False
    with opened(path, "Is it whole?") as raw:
        chunk = raw.read(BLOCK)
        for mark, encoding in MARKS.items():
            if chunk.startswith(mark):
                return encoding
        if b"\0" in chunk[:4]:
            raise DataError(f"{path} looks like UTF-16 without the mark at its beginning. Save it as UTF-8.")
        while chunk:
            following = raw.read(BLOCK)
            if not chunk.isascii() or decoder.getstate()[0]:  # what is ASCII is not decoded: ten times faster
                try:
                    letters |= not decoder.decode(chunk, not following).isascii()
                except UnicodeDecodeError as error:
                    if letters or not error.object[: error.start].isascii():
                        raise DataError(
                            f"{path} is UTF-8 at first and then is not: it is damaged, or made of two files in two "
                            "encodings. Save it as UTF-8."
                        ) from None
                    return _windows(path, itertools.chain([error.object, following], _blocks(raw)))
            chunk = following
    return "utf-8"


def _blocks(raw: IO[bytes]) -> Iterator[bytes]:
    """Yield what is left of a file."""
    return iter(lambda: raw.read(BLOCK), b"")


def _windows(path: Path, blocks: Iterable[bytes]) -> str:
    """Return Windows-1252 if the blocks of a file may be in it."""
    if any({0, *NOT_WINDOWS} & set(block) for block in blocks):
        raise DataError(f"{path} is neither UTF-8 nor Latin-1. Save it as UTF-8.")
    return "cp1252"


def form_of(path: Path, wanted: Iterable[str] = ()) -> Form:
    """Find out how a csv or tsv file is written.

    Fields of a tsv file are divided by tabs. Those of a csv file are divided by what gives all ``wanted`` columns;
    else by commas, unless the header has none and has semicolons, tabs or vertical bars. A first line such as ``sep=;``
    names the divider, and is no header.

    Raises:
        DataError: the file is empty, cannot be read, has a header of more than 1 MiB, or is in an unknown encoding.
    """
    about = path.stat()
    return _form_of(path, about.st_mtime_ns, about.st_size, tuple(dict.fromkeys(wanted)))


@functools.lru_cache(maxsize=64)
def _form_of(path: Path, changed: int, size: int, wanted: tuple[str, ...]) -> Form:
    encoding = encoding_of(path)
    with opened(path, "Is it UTF-8 with a header?") as raw, io.TextIOWrapper(raw, encoding, newline="") as text:
        sample = text.read(SAMPLE)
        whole = not text.read(1)
    announced = ANNOUNCED.match(sample)
    sample = sample[announced.end() :] if announced else sample
    dividers = [announced[1]] if announced else ["\t"] if suffix_of(path) == ".tsv" else DELIMITERS
    headers = {one: _header(sample, one) for one in dividers}
    delimiter, header = next(iter(headers.items()))
    if len(headers) > 1:
        fitting = [one for one, names in headers.items() if wanted and set(wanted) <= set(names)]
        most = max(headers, key=lambda one: len(headers[one]))
        delimiter = fitting[0] if fitting else "," if len(headers[","]) > 1 or len(headers[most]) < 2 else most
        header = headers[delimiter]
    if not whole and sum(map(len, header)) + len(header) >= SAMPLE:
        raise DataError(f"{path} has a header of more than {SAMPLE:,} bytes. Is it a table?")
    commas = tuple(_decimal_commas(sample, delimiter, whole))
    return Form(encoding, delimiter, tuple(header), commas, announced is not None)


def _header(sample: str, delimiter: str) -> list[str]:
    """Return the names of the columns, as they are written; none of an empty file."""
    return next(_lines(sample, delimiter), [])


def _lines(sample: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the fields of each line that is not blank, up to one that cannot be read."""
    widen()
    with contextlib.suppress(csv.Error):
        for line in csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter):
            if len(line) > 1 or "".join(line).strip():
                yield line


def _decimal_commas(sample: str, delimiter: str, whole: bool) -> Iterator[str]:
    """Yield the columns of which every number in the sample has a decimal comma or is a whole number.

    ``1,234`` alone may be a thousand, and makes no column one of decimal commas.
    """
    whole, sample = whole and len(sample) <= NUMBERS, sample[:NUMBERS]
    if "," not in sample or (delimiter == "," and '"' not in sample):
        return
    rows = list(_lines(sample, delimiter))[: None if whole else -1]  # the last one may be cut short
    for at, name in enumerate(rows[0] if rows else []):
        cells = {row[at].strip() for row in rows[1:] if at < len(row)}
        numbers = {cell for cell in cells if cell.lower() not in MISSING}
        commas = {cell for cell in numbers if COMMA.fullmatch(cell)}
        if any(not THOUSANDS.fullmatch(cell) for cell in commas) and all(map(WHOLE.fullmatch, numbers - commas)):
            yield name


def widen() -> None:
    """Let Python's csv reader take fields of :data:`LONGEST_FIELD`; of itself it stops at 131,072 characters."""
    if csv.field_size_limit() < LONGEST_FIELD:
        csv.field_size_limit(LONGEST_FIELD)


def records(path: Path, form: Form, advice: str) -> Iterator[list[str]]:
    """Yield the fields of each row, with the header and without blank lines; a lone ``""`` is an empty cell.

    Raises:
        DataError: the file cannot be read, or a quotation mark is never closed or has text behind it.
    """
    widen()
    row, alone = 0, len(form.header) == 1
    with opened(path, advice) as raw, io.TextIOWrapper(raw, form.encoding, newline="") as text:
        if form.announced:
            text.readline()
        lines = csv.reader(text, delimiter=form.delimiter, strict=True)
        try:
            for line in lines:
                if len(line) > 1 or "".join(line).strip() or (line and alone and row):  # "" is a row, not a blank line
                    yield line
                    row += 1
        except csv.Error as error:
            where = f"row {row:,}" if row else "the header"
            raise DataError(
                f"{path} cannot be read as {suffix_of(path)[1:]}: a quotation mark in {where} is never closed, or has "
                f"text behind it ({error}). Inside a text, write each mark twice. {advice}"
            ) from None


def check_quotes(path: Path, form: Form) -> tuple[int, int] | None:
    """Raise :class:`~levelhead.types.DataError` where a quotation mark is never closed: it would swallow rows.

    A mark opens a field where it is the field's first character; others are part of the text.

    Returns:
        the number of the first row (from 1) with a text whose lines look like rows of the table, and how many do: a
        later mark may have closed it by chance. None: there is no such row.
    """
    about = path.stat()
    return _checked(path, about.st_mtime_ns, about.st_size, form)


@functools.lru_cache(maxsize=64)
def _checked(path: Path, changed: int, size: int, form: Form) -> tuple[int, int] | None:
    if _has_plain_marks(path, form):
        return None
    found, width = None, len(form.header)
    for row, cells in enumerate(records(path, form, "Rows are counted from 1, without the header.")):
        for cell in cells if found is None and width > 2 else ():
            lines = cell.split("\n")[1:-1]  # the first and the last one are parts of rows
            if len(lines) > 1 and {len(line) for line in csv.reader(lines, delimiter=form.delimiter)} == {width}:
                found = row, len(lines)
    return found


def _has_plain_marks(path: Path, form: Form) -> bool:
    """Whether every quotation mark is one of a pair around a field of one line; else a slower reader has to look."""
    import numpy as np  # here, as commands that write csv need no such library

    if form.encoding in ("utf-16", "utf-32"):
        return False
    ends = np.zeros(256, bool)
    ends[list(form.delimiter.encode() + b'\r\n"')] = True
    with opened(path, "Is it whole?") as raw:
        if form.encoding == "utf-8-sig":
            raw.read(len(codecs.BOM_UTF8))
        for block in _blocks(raw):
            around = np.frombuffer(b"\n" + block + raw.readline(BLOCK) + b"\n", np.uint8)
            marks, breaks = np.flatnonzero(around == 34), np.flatnonzero(around == 10)
            opens, closes = marks[::2], marks[1::2]
            if len(opens) > len(closes) or not (ends[around[opens - 1]] & ends[around[closes + 1]]).all():
                return False
            if (np.searchsorted(breaks, opens) < np.searchsorted(breaks, closes)).any():
                return False
    return True


def harmless(cell: object) -> str:
    """Return a cell as a text that no spreadsheet takes for a formula: with an apostrophe before one; numbers stay."""
    text = str(cell)
    if not text.lstrip(" \n").startswith(FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
