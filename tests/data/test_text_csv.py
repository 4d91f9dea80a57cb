from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from levelhead.data import SPLITS
from levelhead.data.text_csv import TextCsv
from levelhead.data.text_files import read_columns
from levelhead.data.texts import Texts

ROWS = 40
COLUMNS: dict[str, list[Any]] = {
    "text": [f"a lamp, number {row}" for row in range(ROWS)],
    "question": [f'is it "on" {row}?' for row in range(ROWS)],
    "label": ["10", "9", "-1", "2.5"] * 10,
    "mood": ["glad", "cross"] * 20,
    "group": [f"g{row % 3}" for row in range(ROWS)],
    "site": [row % 2 for row in range(ROWS)],
    "part": ["train"] * 20 + ["Dev"] * 10 + ["test"] * 10,
}


def write(root: Path, *without: str, name: str = "texts.csv", **changes: list[Any]) -> Path:
    (root / "mine").mkdir(parents=True, exist_ok=True)
    columns = {column: values for column, values in {**COLUMNS, **changes}.items() if column not in without}
    separator = "\t" if ".tsv" in name else ","
    pd.DataFrame(columns).to_csv(root / "mine" / name, index=False, sep=separator)
    return root


def mine(root: Path, **options: Any) -> TextCsv:
    return TextCsv(root=root, **{"folder": "mine", "file": "texts.csv", "split_column": "part", **options})


def texts_of(data: TextCsv, split: Any) -> Texts:
    inputs = data.examples(split).inputs
    assert isinstance(inputs, Texts)
    return inputs


@pytest.mark.parametrize("name", ["texts.csv", "texts.csv.gz", "texts.tsv", "texts.tsv.gz"])
def test_texts_classes_and_groups_come_from_one_table(tmp_path: Path, name: str) -> None:
    data = mine(write(tmp_path, name=name), file=name, pair_column="question", sensitive=("group", "site"))
    data.check()
    examples = data.examples("validation")
    assert texts_of(data, "validation").texts == COLUMNS["text"][20:30]
    assert texts_of(data, "validation").pairs == COLUMNS["question"][20:30]
    assert examples.class_names == ("-1", "2.5", "9", "10")  # by number, not by text
    assert examples.labels.tolist() == [3, 2, 0, 1] * 2 + [3, 2]
    group, site = data.groups("validation")
    assert group.names == ("g0", "g1", "g2")
    assert group.values.tolist() == [row % 3 for row in range(20, 30)]
    assert site.names == ("0", "1")
    assert [len(data.examples(split).labels) for split in SPLITS] == [20, 10, 10]


@pytest.mark.parametrize("length", [131_073, 1_000_000])
def test_a_text_of_more_than_131072_characters_is_read(tmp_path: Path, length: int) -> None:
    table = pd.DataFrame({"text": [f"{row} " + "x" * length for row in range(30)], "label": [0, 1] * 15})
    (tmp_path / "own").mkdir()
    table.to_csv(tmp_path / "own" / "t.csv", index=False)
    assert read_columns(tmp_path / "own" / "t.csv", ["text"])["text"] == table["text"].tolist()
    TextCsv(root=tmp_path, folder="own", file="t.csv", sensitive=()).examples("train")


@pytest.mark.parametrize("names", [("train.csv", "val.csv", "test.csv"), ("train.tsv.gz", "dev.csv.gz", "test.tsv")])
def test_one_file_a_split(tmp_path: Path, names: tuple[str, str, str]) -> None:
    parts = {split: slice(10 * place, 10 * place + 10) for place, split in enumerate(SPLITS)}
    for name, part in zip(names, parts.values(), strict=True):
        write(tmp_path, "part", name=name, **{column: values[part] for column, values in COLUMNS.items()})
    # A class that training never sees keeps its code.
    write(tmp_path, "part", name=names[2], **{**{c: v[30:] for c, v in COLUMNS.items()}, "label": ["9", "30"] * 5})
    data = TextCsv(root=tmp_path, folder="mine")
    data.check()
    for split, part in list(parts.items())[:2]:
        assert texts_of(data, split).texts == COLUMNS["text"][part]
        assert data.groups(split)[0].values.tolist() == [int(name[1:]) for name in COLUMNS["group"][part]]
        assert data.examples(split).class_names == ("-1", "2.5", "9", "10", "30")
    assert data.examples("test").labels.tolist() == [2, 4] * 5


def test_without_a_split_column_rows_are_dealt_by_their_text(tmp_path: Path) -> None:
    root = write(tmp_path, text=[f"lamp {row // 2}" for row in range(ROWS)])
    options: dict[str, Any] = {"split_column": None, "validation_share": 0.3, "test_share": 0.3}
    dealt = [mine(root, **options, split_seed=seed).examples("train").fingerprint for seed in (0, 0, 1)]
    assert dealt[0] == dealt[1] != dealt[2]
    texts = [texts_of(mine(root, **options), split).texts for split in SPLITS]
    assert sum(map(len, texts)) == ROWS
    assert not set(texts[0]) & set(texts[1]) | set(texts[0]) & set(texts[2]) | set(texts[1]) & set(texts[2])
    groups = [len(mine(root, **options).groups(split)[0].values) for split in SPLITS]
    assert groups == [len(part) for part in texts]
    write(tmp_path, text=[f"lamp {row // 2}" for row in range(ROWS)], label=["1", "2"] * 20, group=["g"] * ROWS)
    assert [texts_of(mine(root, **options), split).texts for split in SPLITS] == texts


def test_a_set_without_the_sensitive_column_is_trained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = mine(write(tmp_path)).examples("train")
    data = replace(mine(write(tmp_path, "group")), sensitive="sex")
    data.check()
    assert "texts.csv has no column 'sex' (data.sensitive): training does not need it, evaluation" in caplog.text
    assert data.examples("train").fingerprint == whole.fingerprint
    assert replace(data, sensitive="group").groups("train") == ()  # the default, which need not be there


def changed(name: str, row: int, value: Any) -> dict[str, list[Any]]:
    values = list(COLUMNS[name])
    values[row] = value
    return {name: values}


def test_values_are_read_to_the_letter(tmp_path: Path) -> None:
    names = ["1", "01", " 1", "1.0", "a, b", 'say "c"', "two\nlines", "plain"]
    data = mine(write(tmp_path, label=["01", "1"] * 20, group=names * 5))
    data = replace(data, label_map={"01": "01", "1": "1"})
    assert data.examples("train").class_names == ("01", "1")
    (group,) = data.groups("train")
    assert [group.names[value] for value in group.values.tolist()] == (names * 5)[:20]


def test_a_byte_order_mark_and_commas_at_the_end_move_nothing(tmp_path: Path) -> None:
    expected = mine(write(tmp_path)).examples("train").fingerprint
    file = tmp_path / "mine" / "texts.csv"
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([header, "", *(f"{row},," for row in rows)]), encoding="utf-8-sig")
    assert mine(tmp_path).examples("train").fingerprint == expected
