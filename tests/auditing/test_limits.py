"""What no audit can be about (ids, scores, texts) is refused within seconds and little memory, with a way out."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from command_line import written
from levelhead.auditing.door import audit, audit_table
from levelhead.metrics import Counts
from levelhead.tables import files
from levelhead.types import DataError

ROWS = 20_000
SUFFIXES = [".csv", ".tsv.gz", ".parquet", "frame"]


@pytest.fixture(autouse=True)
def within_seconds() -> Iterator[None]:
    """Reading these rows takes a fraction of a second; a busy machine may take longer."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 8


def refused(frame: pd.DataFrame, groups: list[str], suffix: str, folder: Path, **options: Any) -> str:
    path = None if suffix == "frame" else written(frame, folder / f"p{suffix}")

    def asked() -> object:
        if path is None:
            return audit(frame["y"], frame["yhat"], sensitive_features=frame[groups], **options)
        return audit_table(path, label="y", prediction="yhat", groups=groups, **options)

    with pytest.raises(DataError) as caught:
        asked()
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 500
    return text


def table(**columns: Any) -> pd.DataFrame:
    base = np.arange(ROWS) % 2
    return pd.DataFrame({"y": base, "yhat": base, "g": np.where(base, "a", "b"), **columns})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_group_column_of_ids_or_scores_is_refused_by_name(tmp_path: Path, suffix: str) -> None:
    ids, chances = [f"row {i}" for i in range(ROWS)], np.random.default_rng(0).random(ROWS)
    said = refused(table(who=ids), ["g", "who"], suffix, tmp_path)
    assert "'who' has more than 1,000 different groups. Is this an id or a score?" in said
    said = refused(table(who=chances), ["g", "who"], suffix, tmp_path)
    assert "'who' has more than 20 different numbers: is this an age, an id, a probability?" in said


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("column", ["y", "yhat"])
def test_more_than_200_classes_are_refused(tmp_path: Path, suffix: str, column: str) -> None:
    said = refused(table(**{column: np.arange(ROWS) % 1000}), ["g"], suffix, tmp_path)
    assert "has more than 200 different values: is this" in said
    assert "is this an id or a score?" in said
    assert repr(column) in said if suffix != "frame" else {"y": "label", "yhat": "prediction"}[column] in said


def test_many_small_groups_beside_two_large_ones_are_groups() -> None:
    """Neither are few small ones ids, nor many that min_count lets be compared."""
    y, ids = np.arange(400) % 2, np.array([f"person-{row // 2:03}" for row in range(400)])
    with pytest.raises(DataError, match="'id' has 200 different groups, and no two of them have 10 rows"):
        audit(y, y, sensitive_features={"id": ids})
    large = np.where(np.arange(400) > 60, y, ids)
    assert len(audit(y, y, sensitive_features=large, replicates=100).groups) > 30
    assert audit(y[:40], y[:40], sensitive_features=ids[:40], replicates=100)
    assert audit(y, y, sensitive_features=ids, min_count=2, replicates=100)


def test_as_many_groups_and_classes_as_are_allowed_are_counted() -> None:
    many, few = np.arange(5_000), np.arange(5_000) % 2
    groups = {"g": np.where(many < 4_900, many % 1000, few)}  # two of them have 10 rows
    assert len(audit(few, few, sensitive_features=groups, bins={"g": "values"}, replicates=100).groups) == 1000
    result = audit(many % 200, many % 200, sensitive_features=few, replicates=100, positive=0)
    assert len(result.groups["0"].rows_by_label) == 200


def test_a_column_is_refused_before_the_file_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH_BYTES", 1 << 14)
    read: list[int] = []
    plain = files.codes_of
    monkeypatch.setattr(files, "codes_of", lambda *given: read.append(len(given[0])) or plain(*given))
    refused(table(who=np.arange(ROWS)), ["who"], ".csv", tmp_path)
    assert 0 < sum(read) < ROWS / 2


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_wide_crossing_is_refused_by_its_columns(tmp_path: Path, suffix: str) -> None:
    """Three columns of 30 groups are 27,000 crossings; per column can be audited."""
    rng = np.random.default_rng(0)
    frame = table(**{name: [f"{name}{value}" for value in rng.integers(0, 30, ROWS)] for name in "bcd"})
    said = refused(frame, ["b", "c", "d"], suffix, tmp_path, intersect=True)
    assert "The crossing of 'b', 'c', 'd' has more than 1,000 different groups" in said
    assert "Cross fewer columns" in said


@pytest.mark.slow
def test_a_crossing_of_many_columns_takes_little_memory() -> None:
    """Eight columns of 1,000 groups each, of which no crossing comes twice: within 500 MB, import and all."""
    code = (
        "import numpy as np; from levelhead import audit\n"
        "from levelhead.types import DataError\n"
        "rng = np.random.default_rng(0); rows = 200_000; y = rng.integers(0, 2, rows)\n"
        "columns = {f'c{i}': rng.integers(0, 1000, rows) for i in range(8)}\n"
        "try: audit(y, y, sensitive_features=columns, intersect=True, bins=dict.fromkeys(columns, 'values'))\n"
        "except DataError as error: print(error)\n"
        # Not getrusage: its maximum counts in what the parent held when the child was started.
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, peak = done.stdout.splitlines()
    assert "has more than 1,000 different groups" in said
    assert int(peak) < 500_000


def test_groups_and_classes_are_limited_together() -> None:
    """200 groups by 150 classes by 150 predicted classes would be resampled a thousand times: 36 gigabytes."""
    rows = np.arange(60_000)
    with pytest.raises(DataError, match="has 200 groups, and there are 150 classes: that is too much to compare"):
        audit(rows % 150, rows % 150, sensitive_features={"g": rows // 7 % 200}, bins={"g": "values"})
    with pytest.raises(DataError, match=r"A table of 10,000 groups and 20,000 classes is too large"):
        Counts.from_rows(rows[:20_000], rows[:20_000], rows[:20_000] // 2)


@pytest.mark.parametrize(
    ("suffix", "column", "text"),
    [
        (".csv", "y", "x"),
        (".csv", "g", "line\n"),
        (".tsv.gz", "yhat", "x"),
        (".parquet", "yhat", "x"),
        (".parquet", "g", "line\n"),
        ("frame", "g", "x"),
    ],
)
def test_a_field_of_4_megabytes_is_refused_and_one_that_nobody_asks_for_is_none(
    tmp_path: Path, suffix: str, column: str, text: str
) -> None:
    frame = table(text="short").head(100).astype(str).astype(object)
    long = frame.copy()
    long.loc[3, column] = text * (4_000_000 // len(text))
    assert "more than 20,000 characters: is this a column of texts?" in refused(long, ["g"], suffix, tmp_path)
    if suffix != "frame":
        frame.loc[3, "text"] = text * (4_000_000 // len(text))
        path = written(frame, tmp_path / f"p{suffix}")
        assert (
            audit_table(path, label="y", prediction="yhat", groups=["g"], replicates=100).metrics["accuracy"].value == 1
        )


def test_many_long_fields_of_a_parquet_file_are_not_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 fields of 2 MB each, in a small file."""
    path, pair, read = tmp_path / "p.parquet", ["a", "b"] * 10, []
    long = pyarrow.array("x" * 2_000_000 + str(row) for row in range(20))
    pyarrow.parquet.write_table(pyarrow.table({"y": pair, "yhat": pair, "g": long}), path, compression="zstd")
    plain = pyarrow.parquet.ParquetFile.iter_batches

    def counted(file: Any, rows: int, **options: Any) -> Any:
        read.append(rows)
        return plain(file, rows, **options)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", counted)
    with pytest.raises(DataError, match="is this a column of texts"):
        audit_table(path, label="y", prediction="yhat", groups=["g"])
    assert read[0] < 20


@pytest.mark.parametrize(
    ("start", "rest", "said"),
    [
        ('y,yhat,g\n1,1,"', "x,y\n" * 5_000_000, "a quotation mark in row 1 is never closed"),
        ("y,yhat,g,", "c,d," * 500_000 + "\n1,1,a\n", "has a header of more than 1,048,576 bytes"),
        ("y,yhat,g,", "x" * 4_000_000, "has a header of more than 1,048,576 bytes"),
    ],
    ids=["quotation", "header", "line"],
)
def test_what_has_no_end_is_named(tmp_path: Path, start: str, rest: str, said: str) -> None:
    (tmp_path / "p.csv").write_text(start + rest)
    with pytest.raises(DataError, match=said):
        audit_table(tmp_path / "p.csv", label="y", prediction="yhat", groups=["g"])


# ------------------------------------------------------------------------------------------------ scores


def scores(rows: int) -> np.ndarray:
    """Probabilities of which one is exactly 0 and one exactly 1, and so look like classes."""
    values = np.random.default_rng(0).random(rows)
    values[:2] = 0, 1
    return values


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [20, 150, ROWS])
def test_scores_are_told_from_classes_although_some_are_0_or_1(tmp_path: Path, suffix: str, rows: int) -> None:
    said = refused(table().head(rows).assign(yhat=scores(rows)), ["g"], suffix, tmp_path)
    assert "Scores are named with --score instead of --prediction" in said


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rounded_scores_percentages_and_ids_are_told_from_classes(tmp_path: Path, suffix: str) -> None:
    """Eleven values in all: the share of distinct values is small, but most of them are no label."""
    said = refused(table(yhat=np.arange(ROWS) % 11 / 10), ["g"], suffix, tmp_path)
    assert "hold 9 numbers that no label is, such as " in said
    said = refused(table(yhat=np.arange(ROWS) % 101), ["g"], suffix, tmp_path)
    assert "99 different predictions are none of the 2 labels" in said


@pytest.mark.parametrize("make", [np.float32, str, object])
def test_classes_that_are_fractions_are_no_scores(make: Callable) -> None:
    """Ratings in half steps: a rating that is predicted and never given is a warning, as any other class is."""
    ratings = np.arange(0, 5, 0.5)
    label = np.resize(ratings[1:], 90)
    predicted = label.copy()
    predicted[:3] = 0
    result = audit(label.astype(make), predicted.astype(make), sensitive_features=["a", "b", "c"] * 30, replicates=100)
    assert any("3 predictions have values that no label has: " in text for text in result.warnings)
    assert len(result.groups["a"].rows_by_label) == 10
