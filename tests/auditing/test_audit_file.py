"""Files are audited batch by batch, with the figures that all rows at once would give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest

from command_line import written
from levelhead import audit, audit_table
from levelhead.tables import files, tally
from levelhead.tables.files import codes_of
from levelhead.types import DataError


def rows(kind: str, size: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    values = {
        "text": ["no", "yes"],
        "whole": [0, 1],
        "truth": [False, True],
        "fraction": [0.0, 1.0],
        "classes": ["a", "b", "c"],
    }[kind]
    group = rng.choice(np.array(["x", "y", "None", "NA", 'with, comma and "quote"'], dtype=object), size)
    number = rng.integers(0, 3, size).astype(float)
    number[::17] = np.nan
    label, predicted = rng.choice(values, size), rng.choice(values, size)
    return pd.DataFrame({"id": np.arange(size), "y": label, "yhat": predicted, "group": group, "number": number})


@pytest.mark.parametrize("cells", [1, 1 << 20], ids=["sorted", "counted"])
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv.gz"])
@pytest.mark.parametrize("kind", ["text", "whole", "truth", "fraction", "classes"])
def test_batches_give_the_figures_of_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, suffix: str, cells: int
) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 37)
    monkeypatch.setattr(files, "BATCH_BYTES", 700)
    monkeypatch.setattr(tally, "MOST_COUNTED_CELLS", cells)
    frame, path = rows(kind), tmp_path / f"p{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path, row_group_size=100)
    else:
        frame.to_csv(path, sep="\t" if "tsv" in suffix else ",", index=False)
    options = {"intersect": True, "min_count": 5}
    whole = audit(frame["y"], frame["yhat"], sensitive_features=frame[["group", "number"]], **options).to_dict()
    streamed = audit_table(path, label="y", prediction="yhat", groups=["group", "number"], **options).to_dict()
    assert streamed == whole
    assert whole["groups"]["None"]["n"] > 5


def test_fields_are_texts_in_every_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BATCH_BYTES", 700)
    path = tmp_path / "p.csv"
    path.write_text("y,yhat,g\n" + "1,1,01\n0,0,1\n" * 300 + "2.5,0,1.0\n")
    result = audit_table(path, label="y", prediction="yhat", groups=["g"])
    assert {name: group.n for name, group in result.groups.items()} == {"01": 300, "1": 300, "1.0": 1}
    assert result.groups["01"].rows_by_label == {"0": 0, "1": 300, "2.5": 0}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_missing_labels_name_column_and_rows_across_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(files, "BATCH_ROWS", 50)
    monkeypatch.setattr(files, "BATCH_BYTES", 700)
    frame = rows("text")
    frame.loc[[3, 60, 61, 62, 63, 390], "yhat"] = None
    path = written(frame, tmp_path / f"p{suffix}")
    with pytest.raises(DataError, match=r"'yhat': 6 missing values, first in row 4, 61, 62, 63, 64, \.\.\. \(counted"):
        audit_table(path, label="y", prediction="yhat", groups=["group"])


@pytest.mark.parametrize("kind", ["int8", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("values", [[0, 1, 1], [3, 3, 3], [100, 7, 7, 9], [5, None, 4], [], "far"])
def test_whole_numbers_stand_for_themselves(kind: str, values: list[int | None] | str) -> None:
    if values == "far":
        info = np.iinfo(kind)
        values = [int(info.min), int(info.max), 0]
    codes, names = codes_of(pyarrow.array(values, pyarrow.type_for_alias(kind)), "The column")
    assert [names[code] for code in codes.tolist()] == values
    assert len(set(names)) == len(names)
    assert set(names) == set(values)
    assert all(name is None or type(name) is int for name in names)
