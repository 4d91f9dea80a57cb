"""Hostile files: each audit ends in a result that adds up, or in one line that says what is wrong.

Every case has a number and is drawn from it alone, so that a failure can be repeated.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import string
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from shares import attempt, cases

from levelhead.auditing.door import audit_table
from levelhead.auditing.result import AuditResult

pytestmark = pytest.mark.slow

NAMES = [
    "a", "b", "A", "a ", " a", "", " ", "NA", "None", "nan", "null", "(missing)", "a & b", "&", "& b", '"', "'", ",",
    "\t", "\n", "a\r\nb", "\0", "a\0b", "\ufeff", "\ufeffa", "\u202eabc", "\u2028", "\x1b[31mred", "\x07", ";",
    "[bold]x[/bold]", "[/]", "<script>alert(1)</script>", "{{ 7 * 7 }}", "%s", "=1+1", "\u00e9", "e\u0301", "\u0410",
    "1", "01", "1.0", "1e3", "1000", "+1", "-0", "0", ".5", "1_000", "\uff11", "0x1", "inf", "True", "true",
    "\N{GRINNING FACE}" * 9, "x" * 5_000, "9" * 500, "1e999999", "metrics", "all", "__class__", "\\", "\\n", "a]b[c",
    "a" * 79 + "\n", "\U000e0001",
]  # fmt: skip
POOLS = [["0", "1"], ["no", "yes"], ["a", "b", "c"], ["True", "False"], ["1"], ["9", "10"]]


class Case:
    """One drawn input."""

    def __init__(self, number: int) -> None:
        self.draw = random.Random(number)
        self.rows = self.draw.choice([0, 1, 2, 9, 40, 40, 40, 40, 40, 120, 120, 120])
        self.columns = self._columns()

    def name(self) -> str:
        if self.draw.random() < 0.6:
            return self.draw.choice(["y", "yhat", "g", "h", "g & h"])
        if self.draw.random() < 0.7:
            return self.draw.choice(NAMES)
        return "".join(self.draw.choices(string.printable, k=self.draw.randint(1, 12)))

    def texts(self, few: bool = True) -> list[str]:
        """Draw a column: mostly a few values, now and then ids, scores or numbers in several writings."""
        kind = self.draw.random()
        if kind < 0.06:
            return [f"id {row}" for row in range(self.rows)]
        if kind < 0.12:
            return [self.draw.choice(["0", "1", repr(self.draw.random())]) for _ in range(self.rows)]
        if kind < 0.2:
            pool = ["1", "01", "1.0", "0", "0.0", "-0"]
        elif few and kind < 0.75:
            pool = self.draw.choice(POOLS)
        else:
            pool = self.draw.choices(NAMES, k=self.draw.randint(1, 6))
        return self.draw.choices(pool, k=self.rows)

    def _columns(self) -> dict[str, list[str]]:
        label = self.texts()
        if self.draw.random() < 0.6:
            label = self.draw.choices(self.draw.choice(POOLS), k=self.rows)
        kind = self.draw.random()
        if kind < 0.75:  # predictions that are often right, in the labels' words
            predicted = [value if self.draw.random() < 0.8 else self.draw.choice(label) for value in label]
        elif kind < 0.85:
            predicted = [value + self.draw.choice(["", ".0", " "]) for value in label]
        else:
            predicted = self.texts()
        columns = {"y": label, "yhat": predicted, "g": self.texts(), "h": self.texts(False), "g & h": self.texts()}
        return {self.name() if self.draw.random() < 0.1 else name: values for name, values in columns.items()}

    def asked(self) -> tuple[str, str, list[str]]:
        """Draw the columns to ask for; they need not be there."""
        names = list(self.columns)
        while len(names) < 3:
            names.append(self.name())
        if self.draw.random() < 0.05:
            names[self.draw.randrange(len(names))] = self.name()
        return names[0], names[1], names[2 : 2 + self.draw.randint(1, 3)]

    def options(self, columns: int) -> dict[str, Any]:
        return {
            "intersect": self.draw.random() < (0.4 if columns > 1 else 0.03),
            # Comparing dozens of groups of one row each takes seconds; other tests time it.
            "min_count": self.draw.choice([1, 5, 10] if self.rows <= 9 else [3, 10]),
            "positive": self.draw.choice(["1", "yes", "a", 1]) if self.draw.random() < 0.1 else None,
        }


# ------------------------------------------------------------------------------------------------ files


def plain(case: Case, separator: str) -> bytes:
    written = io.StringIO(newline="")
    quoting = case.draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    end = case.draw.choice(["\n", "\n", "\r\n", "\r"])
    writer = csv.writer(written, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerow(case.columns)
    writer.writerows(zip(*case.columns.values(), strict=True))
    return written.getvalue().encode()


def twice(case: Case, separator: str) -> bytes:
    """Return a table with a column that is there twice."""
    header, _, rest = plain(case, separator).partition(b"\n")
    again = case.draw.choice(header.split(separator.encode()))
    return header + separator.encode() + again + b"\n" + rest


def changed(case: Case, separator: str) -> bytes:
    """Return a table of which a few bytes were changed, lost or added."""
    content = bytearray(plain(case, separator))
    for _ in range(case.draw.randint(1, 5)):
        place = case.draw.randrange(len(content) + 1)
        content[place : place + case.draw.choice([0, 1, 1, 30])] = case.draw.choice(
            [b"", b"\0", b'"', b"\xff", b"\n", b",,,", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\t", b'"\n"', b"\r"]
        )
    return bytes(content)


def write_table(case: Case, folder: Path) -> Path:
    """Write a csv or tsv file, perhaps compressed, perhaps cut short."""
    separator = case.draw.choice([",", ",", "\t"])
    content = case.draw.choice([plain, plain, plain, twice, changed])(case, separator)
    suffix = ".csv" if separator == "," else ".tsv"
    if case.draw.random() < 0.2:
        content, suffix = gzip.compress(content), suffix + ".gz"
        if case.draw.random() < 0.4:
            content = content[: case.draw.randrange(len(content))]
    path = folder / f"p{suffix}"
    path.write_bytes(content)
    return path


def typed(case: Case, values: list[str]) -> pyarrow.Array:
    """Return a parquet column of some type."""
    number = [case.draw.randint(0, 2) for _ in values]
    makers: list[Callable[[], pyarrow.Array]] = [
        lambda: pyarrow.array(number, pyarrow.int8()),
        lambda: pyarrow.array([float(n) if n else None for n in number], pyarrow.float64()),
        lambda: pyarrow.array([case.draw.choice([0.0, 1.0, np.nan, np.inf, -0.0]) for _ in number], pyarrow.float32()),
        lambda: pyarrow.array([bool(n) for n in number]),
        lambda: pyarrow.array(values, pyarrow.large_string()),
        lambda: pyarrow.array(values).dictionary_encode(),
        lambda: pyarrow.array([n if n else None for n in number]).dictionary_encode(),
        lambda: pyarrow.array([value.encode() for value in values], pyarrow.binary()),
        lambda: pyarrow.array([Decimal(n) for n in number], pyarrow.decimal128(9, 2)),
        lambda: pyarrow.array([date(2000, 1, 1 + n) for n in number]),
        lambda: pyarrow.array([datetime(1 + 4999 * n, 1, 1) for n in number], pyarrow.timestamp("us")),
        lambda: pyarrow.array(number, pyarrow.duration("ns")),
        lambda: pyarrow.array(number, pyarrow.int64()).cast(pyarrow.timestamp("s")),
        lambda: pyarrow.array([[n] for n in number], pyarrow.list_(pyarrow.int64())),
        lambda: pyarrow.array([{"g": n} for n in number], pyarrow.struct([("g", pyarrow.int64())])),
        lambda: pyarrow.nulls(len(values)),
        lambda: pyarrow.array(values, pyarrow.string_view()),
    ]
    return case.draw.choice(makers)()


def write_parquet(case: Case, folder: Path) -> Path:
    """Write a parquet file of some types, perhaps with a column twice, perhaps cut short."""
    arrays = [
        pyarrow.array(values, pyarrow.string()) if case.draw.random() < 0.9 else typed(case, values)
        for values in case.columns.values()
    ]
    names = list(case.columns)
    if case.draw.random() < 0.1:
        names[-1] = names[0]
    path = folder / "p.parquet"
    table = pyarrow.Table.from_arrays(arrays, names=names)
    try:
        pyarrow.parquet.write_table(table, path, row_group_size=case.draw.choice([7, 1000]))
    except pyarrow.ArrowNotImplementedError:  # a type that this version of the library cannot write
        pyarrow.parquet.write_table(table.select([]), path)
    if case.draw.random() < 0.15:
        content = path.read_bytes()
        path.write_bytes(content[: case.draw.randrange(len(content))])
    return path


# ------------------------------------------------------------------------------------------------ what must hold


def check_result(result: AuditResult) -> None:
    """Rows add up for every column, names are unique, and every form of the result can be made."""
    record = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert len(record["by_attribute"]) == len(result.by_attribute)
    sizes = set()
    for part in record["by_attribute"].values():
        values = [tuple(group["values"]) for group in part["groups"].values()]
        assert len(set(values)) == len(values) <= 1000
        for group in part["groups"].values():
            assert sum(group["rows_by_label"].values()) == group["n"]
        sizes.add(sum(group["n"] for group in part["groups"].values()))
    assert len(sizes) == 1
    assert result.text(all=True)


def run_case(number: int, folder: Path) -> str:
    """Run one case; return how it ended."""
    case = Case(number)
    kind = case.draw.choice(["table", "table", "parquet"])
    path = write_table(case, folder) if kind == "table" else write_parquet(case, folder)
    before, (label, prediction, groups) = path.read_bytes(), case.asked()
    options = case.options(len(groups))
    result, said = attempt(
        f"case {number}",
        lambda: audit_table(path, label=label, prediction=prediction, groups=groups, replicates=100, **options),
    )
    if not said:
        check_result(result)
    assert path.read_bytes() == before
    assert list(folder.iterdir()) == [path]
    path.unlink()
    return f"{kind} {'refused' if said else 'result'}"


def test_hostile_inputs_end_in_a_result_or_in_one_line(tmp_path: Path) -> None:
    endings = set()
    for number in cases(750, 5):
        try:
            endings.add(run_case(number, tmp_path))
        except BaseException as error:
            error.add_note(f"case {number}")
            raise
    for kind in ("table", "parquet"):  # a fuzz whose cases all fail at the first check would show nothing
        assert {f"{kind} result", f"{kind} refused"} <= endings
