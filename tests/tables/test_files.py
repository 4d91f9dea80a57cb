"""Files of predictions as people have them: how they are written is found out, said, and never loses a row."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from command_line import printed
from levelhead.auditing.door import audit_table
from levelhead.auditing.explain import explain
from levelhead.auditing.postprocess_audit import postprocess
from levelhead.auditing.result import AuditResult
from levelhead.csv_form import Form, _has_plain_marks
from levelhead.types import DataError

ROWS = 300
SMALL = list(range(7, 67))


def frame(rows: int = ROWS) -> pd.DataFrame:
    """Labels, predictions, scores, groups with letters beyond ASCII, ages and ids."""
    generator = np.random.default_rng(0)
    label = generator.integers(0, 2, rows)
    return pd.DataFrame(
        {
            "id": [f"r{row:04d}" for row in range(rows)],
            "y": label,
            "yhat": np.where(generator.random(rows) < 0.8, label, 1 - label),
            "p": (0.1 + 0.5 * label + 0.35 * generator.random(rows)).round(3),
            "größe": generator.choice(["groß", "klein"], rows),
            "age": (20 + 50 * generator.random(rows)).round(2),
        }
    )


def packed(path: Path, content: bytes) -> Path:
    """Write bytes, packed if the name says so."""
    path.write_bytes(gzip.compress(content) if path.suffix.lower() == ".gz" else content)
    return path


def written(table: pd.DataFrame, path: Path, encoding: str = "utf-8", **options: Any) -> Path:
    """Write a csv in some form."""
    return packed(path, table.to_csv(index=False, **options).encode(encoding))


def audited(path: Path, group: str = "größe", **options: Any) -> AuditResult:
    """Audit the predictions of a file by one column of groups."""
    asked = {"label": "y", "prediction": "yhat", "replicates": 100} | options
    return audit_table(path, groups=[group], **asked)


def sizes(path: Path, group: str = "größe") -> dict[str, int]:
    """Return how many rows of a file each group has."""
    return {name: one.n for name, one in audited(path, group).groups.items()}


def joined(content: bytes) -> None:
    """Audit predictions by the diagnosis that a file of such content tells."""
    Path("groups.csv").write_bytes(content)
    audited(written(frame(), Path("p.csv")), "diagnosis", join="groups.csv", on="id")


FORMS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "semicolons and decimal commas": ("p.csv", {"sep": ";", "decimal": ","}, ["by semicolons", "commas in 'p'"]),
    "tabs": ("p.csv", {"sep": "\t"}, ["separated by tabs"]),
    "vertical bars": ("p.csv", {"sep": "|"}, ["separated by vertical bars"]),
    "UTF-16": ("p.csv", {"encoding": "utf-16"}, ["UTF-16, by the mark at its beginning"]),
    "UTF-32 in gzip": ("p.csv.gz", {"encoding": "utf-32", "sep": ";"}, ["UTF-32", "semicolons"]),
    "Latin-1": ("p.csv", {"encoding": "latin-1", "sep": ";"}, ["Windows-1252 (Latin-1)", "semicolons"]),
    "Latin-1 in gzip": ("p.csv.gz", {"encoding": "latin-1"}, ["Windows-1252 (Latin-1)"]),
    "Excel": ("p.tsv", {"encoding": "utf-16", "sep": "\t", "decimal": ","}, ["UTF-16", "commas in 'p'"]),
    "quoted decimal commas": ("p.csv", {"decimal": ",", "quoting": csv.QUOTE_ALL}, ["commas in 'p'"]),
    "a mark of UTF-8": ("p.csv", {"encoding": "utf-8-sig"}, []),
}


CALLS: list[Callable[[Path], Any]] = [
    lambda one: audited(one, prediction=None, score="p", threshold=0.5, along=["age"]),
    lambda one: audit_table(
        one, label="y", prediction="yhat", groups=["größe", "age"], bins=["age=30,40.5"], weight="p", replicates=100
    ),
    lambda one: explain(one, label="y", score="p", groups=["größe"], replicates=100),
    lambda one: audit_table(one, label="p", prediction="age", groups=["größe"], numbers=True),
    lambda one: postprocess(one, score="p", groups=["größe"], label="y"),
    lambda one: audited(one, against=one, on="id"),
    lambda one: audit_table(one, label="y", prediction="yhat", labelled_group="größe", replicates=100),
]


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz", "p.xlsx"])
def test_a_file_that_is_read_whole_is_read_by_every_audit_as_parquet_is(name: str, tmp_path: Path) -> None:
    table, path, parquet = frame(), tmp_path / name, tmp_path / "p.parquet"
    table.to_parquet(parquet)
    if name == "p.xlsx":
        pytest.importorskip("openpyxl", reason="openpyxl is not installed")
        table.to_excel(path, index=False)
    else:
        table.to_json(path, orient="records", lines=True, double_precision=15)
    for call in CALLS:
        found, there = call(path).to_dict(), call(parquet).to_dict()
        for record in (found, there):
            record.pop("fitted", None)  # the hash of the file that a rule was fitted on
        assert json.dumps(found).replace(name, parquet.name) == json.dumps(there)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    """What each audit finds in a plain file of a name, once for all forms."""

    @functools.cache
    def found(name: str) -> list[dict[str, Any]]:
        path = written(frame(), tmp_path_factory.mktemp("plain") / name, sep="\t" if name == "p.tsv" else ",")
        return [call(path).to_dict() for call in CALLS]

    return found


@pytest.mark.parametrize("form", FORMS)
def test_csv_as_people_have_it_is_read_by_every_audit_and_said(
    tmp_path: Path, form: str, expected: Callable[[str], list[dict[str, Any]]]
) -> None:
    name, options, said = FORMS[form]
    path = written(frame(), tmp_path / name, **options)
    plain = expected(name)
    for number, (call, there) in enumerate(zip(CALLS, plain, strict=True)):
        found = call(path).to_dict()
        reading = " ".join(found.pop("reading", []))
        left = {"fitted", "reading"}  # "fitted": the hash of the file that a rule was fitted on
        assert {k: v for k, v in found.items() if k not in left} == {k: v for k, v in there.items() if k not in left}
        for words in said:
            assert words in reading or (number > 4 and "commas in" in words), (number, reading)


@pytest.mark.parametrize(
    ("line", "encoding"),
    [("sep=;\n", "utf-8"), ("sep=;\r\n", "utf-8-sig"), ('"sep=;"\n', "utf-16"), ("SEP=;\n", "utf-8")],
)
def test_the_line_that_excel_reads_above_the_header_is_taken(tmp_path: Path, line: str, encoding: str) -> None:
    path = written(frame(), tmp_path / "p.csv", sep=";", decimal=",")
    plain = audited(path, score="p").to_dict()
    text = path.read_bytes().decode()
    for name in ("s.csv", "s.tsv", "s.csv.gz"):
        found = audited(packed(tmp_path / name, (line + text).encode(encoding)), score="p").to_dict()
        assert "fields separated by semicolons, as its first line says" in found.pop("reading")[0]
        assert found == {key: value for key, value in plain.items() if key != "reading"}


def test_a_joined_file_is_read_as_the_first_one_is(tmp_path: Path) -> None:
    table = frame()
    path = written(table.drop(columns="größe"), tmp_path / "p.csv", sep=";", decimal=",")
    other = written(table[["id", "größe"]].sample(frac=1), tmp_path / "groups.csv", sep="\t", encoding="latin-1")
    out = tmp_path / "out.json"
    words = ["--label", "y", "--prediction", "yhat", "--group", "größe", "--json", out]
    said = printed("audit", path, *words, "--join", other, "--on", "id")
    assert "p.csv was read as fields separated by semicolons." in said
    assert "groups.csv was read as Windows-1252 (Latin-1), as it is not UTF-8, fields separated by tabs." in said
    found = json.loads(out.read_text())
    assert len(found.pop("reading")) == 3
    printed("audit", written(table, tmp_path / "whole.csv"), *words)
    whole = json.loads(out.read_text())
    assert len(found.pop("made")["inputs"]) == len(whole.pop("made")["inputs"]) + 1
    assert found == whole


@pytest.mark.parametrize("name", ["p.CSV", "p.csv.GZ", "P.Tsv.gz"])
def test_suffixes_are_read_in_any_case(tmp_path: Path, name: str) -> None:
    path = written(frame(60), tmp_path / name, sep="\t" if "Tsv" in name else ",")
    assert sum(sizes(path).values()) == 60


@pytest.mark.parametrize(
    ("header", "rows", "column", "groups"),
    [
        ("y;yhat;g", "1;1;1,5\n0;0;2,5\n", "g", {"1,5": 30, "2,5": 30}),
        ("y;yhat;g;a, b or c", "1;1;a;x\n0;0;b;y\n", "g", {"a": 30, "b": 30}),
        ("y,yhat,g;h", "1,1,a\n0,0,b\n", "g;h", {"a": 30, "b": 30}),
        ("y,yhat,g,n", '1,1,5" pipe,"a, ""b"", c"\n0,0,"x\ny",6" pipe\n', "g", {'5" pipe': 30, "x\ny": 30}),
    ],
)
def test_commas_and_quotation_marks_of_groups(
    tmp_path: Path, header: str, rows: str, column: str, groups: dict[str, int]
) -> None:
    assert sizes(packed(tmp_path / "p.csv", f"{header}\n{rows * 30}".encode()), column) == groups


# ------------------------------------------------------------------------------------------------ rows that are lost


def unclosed(table: pd.DataFrame, at: int, kind: str) -> str:
    """Return a csv with a column of notes, the one of row ``at`` (from 1) with a quotation mark that is not closed."""
    notes = [f'"note, {row}"' for row in range(len(table))] if kind == "quoted" else ["x"] * len(table)
    notes[at - 1] = '"never closed'
    if kind == "twice":
        notes[at + 40] = '"never closed either'
    if kind == "in a quoted field":
        notes[at - 1] = '"said "so", and left"'
    lines = table.to_csv(index=False).splitlines()
    return "\n".join([lines[0] + ",note", *(f"{line},{note}" for line, note in zip(lines[1:], notes, strict=True))])


@pytest.mark.parametrize(
    ("suffix", "kind"), [(".csv", "plain"), (".csv.gz", "quoted"), (".csv", "twice"), (".csv.gz", "in a quoted field")]
)
def test_a_quotation_mark_that_is_never_closed_loses_no_row(tmp_path: Path, suffix: str, kind: str) -> None:
    path = packed(tmp_path / f"p{suffix}", unclosed(frame(), 101, kind).encode())
    groups = packed(tmp_path / f"groups{suffix}", unclosed(frame()[["id", "größe"]], 101, kind).encode())
    good = written(frame()[["id", "y", "yhat"]], tmp_path / "good.csv")
    words = ["--label", "y", "--group", "größe"]
    for call in (
        ["audit", path, *words, "--prediction", "yhat"],
        ["audit", path, *words, "--score", "p"],
        ["audit", path, "--label", "p", "--prediction", "age", "--group", "größe", "--numbers"],
        ["indirect-audit", path, "--label", "y", "--prediction", "yhat", "--labelled-group", "größe"],
        ["audit", good, *words, "--prediction", "yhat", "--join", groups, "--on", "id"],
        ["explain", path, *words, "--score", "p"],
        ["postprocess", path, *words, "--score", "p"],
    ):
        with pytest.raises(DataError, match=r"row 101.*quotation mark|quotation mark.*row 101") as caught:
            printed(*call)
        assert '"never closed' not in str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_rows_between_two_marks_that_pair_by_chance_are_said(tmp_path: Path, suffix: str) -> None:
    """Row 10 opens a quotation mark and row 50 ends with one: by the rules of csv, that is one text."""
    lines = frame(100).to_csv(index=False).splitlines()
    rows = [lines[0] + ",note", *(line + ",x" for line in lines[1:])]
    rows[10], rows[50] = lines[10] + ',"a screen', lines[50] + ',5"'
    path = packed(tmp_path / f"p{suffix}", "\n".join(rows).encode())
    result = audited(path)
    said = f"Row 10 of p{suffix} holds a text of which 39 lines look like rows, and counts as one row"
    assert said in result.to_dict()["reading"][0]
    assert said in " ".join(result.text(all=True).split())
    long = frame(100).assign(note="a letter,\nof four lines,\nand no row\n, none")
    assert "reading" not in audited(written(long, path)).to_dict()


def test_marks_around_fields_of_one_line_are_found_as_pythons_reader_finds_them(tmp_path: Path) -> None:
    """Every text of up to five characters out of four: where marks are plain, no cell holds a line break."""
    plain, path = 0, tmp_path / "p.csv"
    for letters in itertools.chain.from_iterable(itertools.product('",\na', repeat=length) for length in range(1, 6)):
        path.write_text("".join(letters))
        if '"' in letters and _has_plain_marks(path, Form("utf-8", ",", ())):
            rows = csv.reader(io.StringIO("".join(letters), newline=""), strict=True)  # no error
            assert not any("\n" in cell for row in rows for cell in row)
            plain += 1
    assert plain > 100


def test_a_text_of_more_than_131072_characters_is_read(tmp_path: Path) -> None:
    assert sum(sizes(written(frame(100).assign(note="x" * 200_000), tmp_path / "p.csv")).values()) == 100


# ------------------------------------------------------------------------------------------------ types of parquet


def parquet(path: Path, **columns: Any) -> Path:
    """Write 60 rows of labels and predictions with more columns."""
    pyarrow.parquet.write_table(pyarrow.table({"y": [0, 1] * 30, "yhat": [0, 1, 1] * 20, **columns}), path)
    return path


def test_numbers_of_groups_are_compared_exactly(tmp_path: Path) -> None:
    """Two zeros are one number, and whole numbers beyond 2**53 stay apart beside missing ones."""
    for kind in ("float64", "float32", "float16"):
        values = pyarrow.array(np.array([-0.0, 0.0, 1.0] * 20, kind))
        assert sizes(parquet(tmp_path / "p.parquet", g=values), "g") == {"0.0": 40, "1.0": 20}
    path = parquet(tmp_path / "p.parquet", g=[2**53, 2**53 + 1, None] * 20)
    table = pyarrow.parquet.read_table(path).to_pandas(integer_object_nulls=True)
    for one in (path, written(table, tmp_path / "p.csv")):
        assert sizes(one, "g") == {str(2**53): 20, str(2**53 + 1): 20, "(missing)": 20}


def kinds(ids: list[int]) -> list[Any]:
    """Return ids in the types that files have them in."""
    texts = pyarrow.array(list(map(str, ids)))
    return [pyarrow.array(ids), texts, texts.dictionary_encode()]


@pytest.mark.parametrize(
    "forms",
    [
        [*kinds(SMALL), pyarrow.array(SMALL, pyarrow.float64()), pyarrow.array(SMALL, pyarrow.uint8())],
        kinds([2**53 + row for row in range(60)]),
    ],
    ids=["numbers", "beyond 2**53"],
)
def test_ids_of_different_types_match_by_what_they_say(tmp_path: Path, forms: list[Any]) -> None:
    path, other, groups = tmp_path / "p.parquet", tmp_path / "g.parquet", ["a", "b"] * 30
    for mine, theirs in itertools.product(forms, forms):
        parquet(path, key=mine)
        pyarrow.parquet.write_table(pyarrow.table({"key": theirs, "g": groups}).take(np.arange(60)[::-1]), other)
        found = audited(path, "g", join=other, on="key").to_dict()
        assert found["reading"][0].startswith("60 of 60 rows")
        assert {name: one["rows_by_label"] for name, one in found["groups"].items()} == {
            "a": {"0": 30, "1": 0},
            "b": {"0": 0, "1": 30},
        }
        audited(parquet(path, key=mine, g=groups), "g", against=parquet(other, key=mine, g=groups), on="key")
    swapped = parquet(other, key=forms[-1][::-1], g=groups)
    with pytest.raises(DataError, match="label"):  # rows are matched, and so their labels differ
        audited(path, "g", against=swapped, on="key")
