"""One table in the forms that people have: the same texts and labels come out, and what was guessed is said."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet
import pytest

from levelhead.data import SPLITS, table_set
from levelhead.data.text_csv import TextCsv
from levelhead.data.text_files import read_columns, table_header

FRAME = pd.DataFrame(
    {
        "text": [f"Lämpchen; Nummer {row}, an" for row in range(40)],
        "label": [row % 2 for row in range(40)],
        "group": [None if row == 3 else f"é{row % 3}" for row in range(40)],
        "part": ["train"] * 20 + ["validation"] * 10 + ["test"] * 10,
    }
)


def csv_as(encoding: str, separator: str = ",", above: str = "") -> Callable[[Path], None]:
    def write(path: Path) -> None:
        FRAME.to_csv(path, index=False, encoding=encoding, sep=separator)
        if above:
            path.write_bytes((above + path.read_bytes().decode(encoding)).encode(encoding))

    return write


def as_json(path: Path) -> None:
    rows = [
        json.dumps({name: value for name, value in row.items() if value is not None})
        for row in FRAME.to_dict("records")
    ]
    text = "\n".join([*rows, ""]).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def as_parquet(path: Path) -> None:
    FRAME.to_parquet(path, index=False)


@pytest.mark.parametrize(
    ("name", "write", "said"),
    [
        ("a.csv", csv_as("utf-8"), ""),
        ("a.csv", csv_as("utf-8-sig", ";"), "has no commas in its header: fields are separated by semicolons"),
        ("a.csv", csv_as("utf-16", ";", "sep=;\n"), "fields are separated by semicolons, as its first line says"),
        ("a.tsv", csv_as("utf-8", ",", "sep=,\r\n"), "fields are separated by commas, as its first line says"),
        ("a.csv", csv_as("utf-8", "\t"), "has no commas in its header: fields are separated by tabs"),
        ("a.csv", csv_as("latin-1"), "is not UTF-8. It is read as Windows-1252 (Latin-1)"),
        ("a.csv", csv_as("latin-1", ";"), "is not UTF-8. It is read as Windows-1252 (Latin-1)"),
        ("a.csv", csv_as("utf-16", ";"), "is read as UTF-16, by the mark at its beginning"),
        ("a.csv.gz", csv_as("utf-32"), "is read as UTF-32, by the mark at its beginning"),
        ("a.tsv", csv_as("cp1252", "\t"), "is not UTF-8. It is read as Windows-1252 (Latin-1)"),
        ("a.jsonl", as_json, ""),
        ("a.jsonl.gz", as_json, ""),
        ("a.parquet", as_parquet, ""),
    ],
)
def test_every_form_gives_the_same_rows(
    name: str, write: Callable[[Path], None], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    csv_as("utf-8")(tmp_path / "plain.csv")
    write(tmp_path / name)
    plain, other = (TextCsv(folder=str(tmp_path), file=file, split_column="part") for file in ("plain.csv", name))
    caplog.clear()
    other.check()
    assert table_header(tmp_path / name) == list(FRAME)
    for split in ("train", "test"):
        assert other.examples(split).fingerprint == plain.examples(split).fingerprint
    assert other.groups("test")[0].names == ("é0", "é1", "é2")
    assert (other.groups("train")[0].values == -1).nonzero().ravel().tolist() == [3]  # row 4 has no group
    if said:
        assert sum(said in record.message for record in caplog.records) == 1  # once, however often it is read
    else:
        assert not caplog.records


def test_a_blank_line_is_no_row_and_a_quoted_empty_cell_is_one(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text('\ntext\na\n""\n\nb\n\n')
    assert read_columns(tmp_path / "one.csv", ["text"]) == {"text": ["a", "", "b"]}
    (tmp_path / "two.csv").write_text("text,id\na,1\n\nb,2\n \n")
    assert read_columns(tmp_path / "two.csv", ["text"]) == {"text": ["a", "b"]}


def in_parts(folder: Path, names: list[str], suffix: str = ".parquet") -> Path:
    """Write the 20 training rows into files of equal size, the validation and test rows into one each."""
    rows = FRAME[FRAME["part"] == "train"]
    size = len(rows) // len(names)
    write = {".parquet": pd.DataFrame.to_parquet, ".csv": pd.DataFrame.to_csv}[suffix]
    for place, name in enumerate(names):
        file = folder / f"{name}{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        write(rows.iloc[place * size : (place + 1) * size], file, index=False)
    for part in ("validation", "test"):
        write(FRAME[FRAME["part"] == part], folder / f"{part}{suffix}", index=False)
    return folder


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize(
    "names",
    [
        ["train-00000-of-00002", "train-00001-of-00002"],
        ["train-00001-of-00002", "train-00002-of-00002"],
        ["train/a", "train/b"],
        ["train/part-0", "train/part-1", "train/part-2", "train/part-3"],
    ],
)
def test_a_split_in_parts_is_read_as_one(names: list[str], suffix: str, tmp_path: Path) -> None:
    csv_as("utf-8")(tmp_path / "plain.csv")
    in_parts(tmp_path / "parts", names, suffix)
    whole = TextCsv(folder=str(tmp_path), file="plain.csv", split_column="part")
    parts = TextCsv(folder=str(tmp_path / "parts"))
    parts.check()
    for split in ("train", "validation", "test"):
        assert parts.examples(split).fingerprint == whole.examples(split).fingerprint
    assert parts.groups("test")[0].names == whole.groups("test")[0].names
    assert (parts.groups("train")[0].values == -1).nonzero().ravel().tolist() == [3]  # row 4 has no group


def test_columns_that_are_not_asked_for_are_not_held(tmp_path: Path) -> None:
    wide = pd.DataFrame(
        {"text": ["a b"] * 2000, "label": [0, 1] * 1000, "bytes": [f"{row:09d}" * 2000 for row in range(2000)]}
    )
    wide.to_parquet(tmp_path / "a.parquet", row_group_size=250)
    wide.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    del wide
    for name in ("a.parquet", "a.jsonl"):
        before = pyarrow.total_allocated_bytes()
        tracemalloc.start()
        found = read_columns(tmp_path / name, ["text", "label"])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(found["text"]) == 2000
        assert peak < 10_000_000  # of the 36 MB that the file holds
        assert pyarrow.total_allocated_bytes() - before < 5_000_000


def test_types_become_texts_as_python_writes_them(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [True, False], "b": [1.0, 2.5], "c": [7, 8], "d": ["01", None]})
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text('{"a": true, "b": 1.0, "c": 7, "d": "01"}\n\n{"a": false, "b": 2.5, "c": 8}\n')
    expected = {"a": ["True", "False"], "b": ["1.0", "2.5"], "c": ["7", "8"], "d": ["01", ""]}
    for name in ("a.parquet", "a.jsonl"):
        assert read_columns(tmp_path / name, ["a", "b", "c", "d"]) == expected


def test_damage_is_found_wherever_chunks_end(tmp_path: Path) -> None:
    """A letter of two bytes across the border of what is read at once is whole."""
    path = tmp_path / "a.csv"
    for before in range(60, 70):
        rows = b"text\n" + (b"a" * 63 + b"\n") * ((1 << 14) - 1) + b"a" * before
        path.write_bytes(rows + "é\n".encode())
        assert read_columns(path, ["text"])["text"][-1] == "a" * before + "é"
    path.write_bytes(rows + "é\n".encode()[:1] + b"\n")
    assert read_columns(path, ["text"])["text"][-1] == "a" * before + "Ã"  # one letter of Latin-1


def test_rows_of_a_split_in_parts_are_counted_over_all_of_them(tmp_path: Path) -> None:
    in_parts(tmp_path / "parts", ["train/a", "train/b"])
    data = TextCsv(folder=str(tmp_path / "parts"))
    for split in SPLITS:  # no two rows of a split have one number: groups are joined by it
        count = len(data.examples(split).labels)
        assert list(data.ids(split)) == [str(row + 1) for row in range(count)]


def test_parts_are_read_by_number_and_notes_are_left_out(tmp_path: Path) -> None:
    rows = FRAME[FRAME["part"] == "train"]
    whole = in_parts(tmp_path / "whole", ["train"])
    (whole / "train").mkdir()
    (whole / "train" / "notes.md").write_text("a folder without tables holds no part")
    in_parts(tmp_path / "parts", ["train/x"])
    train = tmp_path / "parts" / "train"
    (train / "x.parquet").unlink()
    for number in range(20):  # by name, 10 would stand before 2; the last two hold no row
        part = rows.iloc[number : number + 1] if number < 18 else rows[:0]
        (rows.iloc[17:20] if number == 17 else part).to_parquet(train / f"part-{number}-of-20.parquet", index=False)
    for name in ("_metadata.parquet", "._part-3-of-20.parquet", "_SUCCESS", "part-3-of-20.parquet.crc"):
        (train / name).write_text("a note")
    data = TextCsv(folder=str(tmp_path / "parts"))
    data.check()
    assert data.examples("train").fingerprint == TextCsv(folder=str(whole)).examples("train").fingerprint


def test_texts_of_other_splits_stay_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, bool]] = []

    def spy(path: Path, columns: list[str], **options: Any) -> dict[str, list[str]]:
        opened.append((path.parent.name if path.parent.name == "train" else path.stem, "text" in columns))
        return read_columns(path, columns, **options)

    monkeypatch.setattr(table_set, "read_columns", spy)
    in_parts(tmp_path / "parts", ["train/a", "train/b"])
    TextCsv(folder=str(tmp_path / "parts")).examples("test")
    assert opened == [("train", False), ("train", False), ("validation", False), ("test", True)]


def test_hostile_names_of_columns_open_no_other_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["x y"] * 8, "a.b": ["secret"] * 8, "label": [0, 1] * 4, "label.list": ["hidden"] * 8})
    frame["nested"] = [{"a": "deep"}] * 8
    frame.to_parquet(tmp_path / "a.parquet")
    assert read_columns(tmp_path / "a.parquet", ["a", "label"]) == {"a": ["x y"] * 8, "label": ["0", "1"] * 4}
    assert read_columns(tmp_path / "a.parquet", ["a.b"]) == {"a.b": ["secret"] * 8}
