"""Groups and classes are what is written, exactly: nothing is joined, read as a number, or taken for something else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from command_line import written
from levelhead.auditing.door import audit, audit_table
from levelhead.auditing.result import AuditResult
from levelhead.metrics.names import attribute_names, by_names, group_name

SUFFIXES = [".csv", ".tsv", ".csv.gz", ".parquet", "frame"]


def audited(columns: Mapping[str, Any], groups: list[str], suffix: str, folder: Path, **options: Any) -> AuditResult:
    """Audit columns ``y`` and ``yhat``, texts all of them, written to a file or handed over as a frame of objects."""
    frame = pd.DataFrame({name: np.array(values, dtype=object) for name, values in columns.items()})
    options = {"replicates": 100, **options}
    if suffix == "frame":
        return audit(frame["y"], frame["yhat"], sensitive_features=frame[groups], **options)
    return audit_table(written(frame, folder / f"p{suffix}"), label="y", prediction="yhat", groups=groups, **options)


# ------------------------------------------------------------------------------------------------ crossings


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_crossing_keeps_groups_apart_whose_names_would_join_alike(tmp_path: Path, suffix: str) -> None:
    """("p", "q & r") and ("p & q", "r") are two groups: here with 100 points between them."""
    columns = {"y": ["1"] * 80, "yhat": ["1"] * 40 + ["0"] * 40}
    columns |= {"g": ["p"] * 40 + ["p & q"] * 40, "h": ["q & r"] * 40 + ["r"] * 40}
    result = audited(columns, ["g", "h"], suffix, tmp_path, intersect=True)
    crossing = result.by_attribute["g", "h"]
    assert set(crossing.groups) == {("p", "q & r"), ("p & q", "r")}
    assert crossing.metrics["demographic_parity"].value == 1
    written = result.to_dict()["by_attribute"]["g & h"]
    assert written["columns"] == ["g", "h"]
    assert [group["values"] for group in written["groups"].values()] == [["p", "q & r"], ["p & q", "r"]]


def test_a_column_that_is_named_like_a_crossing_stays_beside_it(tmp_path: Path) -> None:
    columns = {"y": ["1", "0"] * 40, "yhat": ["1", "0"] * 40, "g": ["a", "b"] * 40}
    columns |= {"h": ["c"] * 40 + ["d"] * 40, "g & h": ["one"] * 40 + ["two"] * 40}
    result = audited(columns, ["g", "h", "g & h"], ".csv", tmp_path, intersect=True)
    assert list(result.by_attribute) == ["g", "h", "g & h", ("g", "h", "g & h")]
    assert set(result.by_attribute["g & h"].groups) == {"one", "two"}
    assert list(result.to_dict()["by_attribute"]) == ["g", "h", "g & h", 'g & h & "g & h"']


def test_names_of_columns_and_crossings_are_never_the_same() -> None:
    assert attribute_names(["g & h", ("g", "h")]) == {"g & h": "g & h", ("g", "h"): "g & h (crossed)"}
    assert by_names({"g & h": 1, ("g", "h"): 2}) == {"g & h": 1, "g & h (crossed)": 2}
    taken = ["g & h", "g & h (crossed)", ("g", "h")]
    assert len(set(attribute_names(taken).values())) == 3
    hostile = ["a", "a & b", "& b", "b", '"', 'a"', '"a" & b', "", " ", "\\", "a &", "(missing)"]
    pairs = [(first, second) for first in hostile for second in hostile]
    assert len({group_name(pair) for pair in pairs}) == len(pairs)
    assert group_name(("f", "x")) == "f & x"


# ------------------------------------------------------------------------------------------------ values


PAIRS = [("01", "1"), ("1", "1.0"), ("1e3", "1000"), ("True", "true"), ("a", " a"), ("0", "-0")]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_groups_that_differ_in_writing_alone_stay_apart(tmp_path: Path, suffix: str) -> None:
    """Equal opportunity differs by 100 points between them, and a warning names the pair."""
    columns = {"y": ["1"] * 80, "yhat": ["1"] * 40 + ["0"] * 40}
    columns |= {f"g{at}": [first] * 40 + [second] * 40 for at, (first, second) in enumerate(PAIRS)}
    names = [f"g{at}" for at in range(len(PAIRS))]
    result = audited(columns, names, suffix, tmp_path, positive="1")
    for name, pair in zip(names, PAIRS, strict=True):
        part = result.by_attribute[name]
        assert {group: one.n for group, one in part.groups.items()} == dict.fromkeys(pair, 40)
        assert part.metrics["equal_opportunity"].value == 1
        alike = "differ only in how a number, case or blanks are written"
        assert any(text.startswith(f"{name}: ") and alike in text for text in result.warnings)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_labels_that_differ_in_writing_alone_are_one_class_or_two_as_the_map_says(tmp_path: Path, suffix: str) -> None:
    """Accuracy is 75%, and not the 100% that numbers would have, where they are two."""
    columns = {"y": ["01", "1"] * 40, "yhat": ["01", "1", "1", "1"] * 20, "g": ["a", "b"] * 40}
    result = audited(columns, ["g"], suffix, tmp_path, label_map="01=01,1=1")
    assert result.metrics["accuracy"].value == 0.75
    assert result.groups["a"].rows_by_label == {"01": 40, "1": 0}
    assert audited(columns, ["g"], suffix, tmp_path, label_map="01=1").metrics["accuracy"].value == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_positive_class_of_the_command_line_is_a_text(tmp_path: Path, suffix: str) -> None:
    """Of 9 and 10, the second class, the positive one, is 10."""
    columns = {"y": ["9", "10"] * 40, "yhat": ["9", "10"] * 40, "g": ["2", "10"] * 40}
    for given, positive in (("9", "9"), (9, "9"), (None, "10")):
        result = audited(columns, ["g"], suffix, tmp_path, positive=given)
        assert result.positive == positive
        assert list(result.groups) == ["2", "10"]


def test_numbers_compare_as_numbers_and_never_as_texts() -> None:
    label, group = np.array([0, 1] * 40), ["a", "b"] * 40
    for same in (label.astype(float), label.astype(bool), pd.Series(label, dtype="Int64"), label.astype(object)):
        assert audit(label, same, sensitive_features=group).metrics["accuracy"].value == 1
        assert audit(label, same, sensitive_features=group).positive == "1"


def test_missing_groups_keep_apart_from_a_group_of_that_name(tmp_path: Path) -> None:
    columns = {"y": ["0", "1"] * 20, "yhat": ["0", "1"] * 20, "g": ["NA", ""] * 20}
    assert list(audited(columns, ["g"], ".csv", tmp_path).groups) == ["NA", "(missing)"]


def with_columns(path: Path, names: list[str], values: list[list[str]]) -> Path:
    """Write a table that may have two columns of one name, which pandas would not."""
    if path.suffix == ".parquet":
        arrays = [pyarrow.array(column) for column in zip(*values, strict=True)]
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=names), path)
    else:
        separator = "\t" if path.suffix == ".tsv" else ","
        path.write_text("\n".join(separator.join(line) for line in [names, *values]) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_two_columns_of_one_name_that_nobody_asks_for_do_no_harm(tmp_path: Path, suffix: str) -> None:
    """Which of them is meant does not matter: none of them is read."""
    names, values = ["y", "yhat", "g", "note", "note"], [["0", "0", "a", "x", "z"], ["1", "1", "b", "y", "w"]] * 20
    path = with_columns(tmp_path / f"p{suffix}", names, values)
    assert audit_table(path, label="y", prediction="yhat", groups=["g"]).metrics["accuracy"].value == 1
