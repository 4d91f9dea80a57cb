"""What no audit can be about (ids, scores, texts) is refused within seconds and little memory, with a way out."""

from __future__ import annotations

import resource
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

from levelhead.auditing.audit import audit, audit_file
from levelhead.metrics import Counts
from levelhead.tables import files
from levelhead.types import DataError

ROWS = 100_000
SUFFIXES = [".csv", ".tsv.gz", ".parquet", "frame"]


@pytest.fixture(autouse=True)
def within_seconds() -> Iterator[None]:
    """Reading 100,000 rows takes a tenth of a second; a busy machine may take longer."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 8


def refused(frame: pd.DataFrame, groups: list[str], suffix: str, folder: Path, **options: Any) -> str:
    if suffix == "frame":
        with pytest.raises(DataError) as caught:
            audit(frame["y"], frame["yhat"], sensitive_features=frame[groups], **options)
    else:
        path = folder / f"p{suffix}"
        frame.to_parquet(path) if suffix == ".parquet" else frame.to_csv(
            path, index=False, sep="\t" if "tsv" in suffix else ","
        )
        with pytest.raises(DataError) as caught:
            audit_file(path, "y", "yhat", groups, **options)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 500
    return text


def table(**columns: Any) -> pd.DataFrame:
    base = np.arange(ROWS) % 2
    return pd.DataFrame({"y": base, "yhat": base, "g": np.where(base, "a", "b"), **columns})


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["id", "score"])
def test_a_group_column_of_ids_or_scores_is_refused_by_name(tmp_path: Path, suffix: str, kind: str) -> None:
    values = {"id": [f"row {i}" for i in range(ROWS)], "score": np.random.default_rng(0).random(ROWS)}
    said = refused(table(who=values[kind]), ["g", "who"], suffix, tmp_path)
    if kind == "id":
        assert "'who' has more than 1,000 different groups. Is this an id or a score?" in said
    else:
        assert "'who' has more than 20 different numbers: is this" in said
        assert "is this an age, an id, a probability? Use --bins who=25,40,60 or who=quantiles:4" in said


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("column", ["y", "yhat"])
def test_more_than_200_classes_are_refused(tmp_path: Path, suffix: str, column: str) -> None:
    said = refused(table(**{column: np.arange(ROWS) % 1000}), ["g"], suffix, tmp_path)
    assert "has more than 200 different values: is this" in said
    assert "is this an id or a score?" in said
    assert repr(column) in said if suffix != "frame" else {"y": "label", "yhat": "prediction"}[column] in said


def test_labels_and_predictions_share_the_200_classes() -> None:
    label = np.arange(300) % 150
    with pytest.raises(DataError, match="have more than 200 different values together"):
        audit(label, label + 100, sensitive_features=np.arange(300) % 2)


def test_as_many_groups_and_classes_as_are_allowed_are_counted() -> None:
    many, few = np.arange(20_000), np.arange(20_000) % 2
    groups = {"g": many % 1000}
    assert len(audit(few, few, sensitive_features=groups, bins={"g": "values"}, replicates=100).groups) == 1000
    result = audit(many % 200, many % 200, sensitive_features=few, replicates=100, positive=0)
    assert len(result.groups["0"].rows_by_label) == 200


def test_a_column_is_refused_before_the_file_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BATCH_BYTES", 1 << 16)
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
    few = frame.head(3000)
    assert len(audit(few["y"], few["yhat"], sensitive_features=few[["b", "c", "d"]], replicates=100).by_attribute) == 3


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


def test_a_table_of_counts_has_an_end() -> None:
    rows = np.arange(20_000)
    with pytest.raises(DataError, match=r"A table of 10,000 groups and 20,000 classes is too large"):
        Counts.from_rows(rows, rows, rows // 2)


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
def test_a_field_of_20_megabytes_is_refused(tmp_path: Path, suffix: str, column: str, text: str) -> None:
    frame = table().head(100).astype(str).astype(object)
    frame.loc[3, column] = text * (20_000_000 // len(text))
    said = refused(frame, ["g"], suffix, tmp_path)
    assert "more than 20,000 characters: is this a column of texts?" in said


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet"])
def test_a_long_field_that_nobody_asks_for_does_no_harm(tmp_path: Path, suffix: str) -> None:
    frame, path = table(text="short").head(100), tmp_path / f"p{suffix}"
    frame.loc[3, "text"] = "x" * 5_000_000
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in suffix else ",")
    assert audit_file(path, "y", "yhat", ["g"]).metrics["accuracy"].value == 1


def test_many_long_fields_of_a_parquet_file_are_not_read_at_once(tmp_path: Path) -> None:
    """20 fields of 5 MB each, in a small file."""
    path, pair = tmp_path / "p.parquet", ["a", "b"] * 10
    long = pyarrow.array("x" * 5_000_000 + str(row) for row in range(20))
    table = pyarrow.table({"y": pair, "yhat": pair, "g": long})
    pyarrow.parquet.write_table(table, path, compression="zstd")
    read = []
    plain = pyarrow.parquet.ParquetFile.iter_batches
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pyarrow.parquet.ParquetFile,
            "iter_batches",
            lambda file, rows, **options: read.append(rows) or plain(file, rows, **options),
        )
        with pytest.raises(DataError, match="is this a column of texts"):
            audit_file(path, "y", "yhat", ["g"])
    assert read[0] < 10


def test_a_quotation_mark_that_is_never_closed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('y,yhat,g\n1,1,"' + "x,y\n" * 15_000_000)
    with pytest.raises(DataError, match="is there a quotation mark that is never closed"):
        audit_file(path, "y", "yhat", ["g"])


def test_a_header_without_an_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("y,yhat,g," + ",".join(f"c{i}" for i in range(1_000_000)) + "\n1,1,a\n")
    with pytest.raises(DataError, match="has a header of more than 1,048,576 bytes"):
        audit_file(path, "y", "yhat", ["g"])
    path.write_text("y,yhat,g," + "x" * 20_000_000)
    with pytest.raises(DataError, match="has a header of more than 1,048,576 bytes"):
        audit_file(path, "y", "yhat", ["g"])


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
    assert "score" in said
    zero, one = ("0", "1") if suffix == "frame" or suffix == ".parquet" else ("'0'", "'1'")
    assert "Name the column with --score instead of --prediction (in Python scores=), or write" in said
    assert f"write {one} where the score is at least a threshold (0.5 for a probability, 0 for a logit)" in said
    assert f"and {zero} elsewhere" in said


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rounded_scores_are_told_from_classes(tmp_path: Path, suffix: str) -> None:
    """Eleven values in all: the share of distinct values is small, but most of them are no label."""
    said = refused(table(yhat=np.arange(ROWS) % 11 / 10), ["g"], suffix, tmp_path)
    assert "hold 9 numbers that no label is, such as " in said
    assert "classes, not scores" in said


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_percentages_and_ids_are_told_from_classes(tmp_path: Path, suffix: str) -> None:
    said = refused(table(yhat=np.arange(ROWS) % 101), ["g"], suffix, tmp_path)
    assert "99 different predictions are none of the 2 labels" in said
    assert "are the predictions ids or scores?" in said


def test_scores_are_refused_before_memory_is_taken() -> None:
    """The count table of 100,000 scores would have 10 billion cells for each group."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    label = np.arange(ROWS) % 2
    with pytest.raises(DataError, match="score"):
        audit(label, scores(ROWS), sensitive_features=label)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


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
