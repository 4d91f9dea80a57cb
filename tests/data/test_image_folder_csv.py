from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from drawing import picture

from levelhead.data import SPLITS, ImageFolderCsv, table_set
from levelhead.runs.recipe import build_experiment
from levelhead.types import DataError

ROWS = 40
COLUMNS: dict[str, list[Any]] = {
    "file": [f"{row // 10}/{row}.png" for row in range(ROWS)],
    "label": ["10", "9", "dog", "cat"] * 10,
    "group": [f"g{row % 3}" for row in range(ROWS)],
    "site": [row % 2 for row in range(ROWS)],
    "part": ["train"] * 20 + ["Val"] * 10 + ["test"] * 10,
}


def write(root: Path, *without: str, **changes: list[Any]) -> Path:
    for row in range(ROWS):
        file = root / "pets" / f"{row // 10}/{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(picture(row, (30, 40), "PNG"))
    columns = {name: values for name, values in {**COLUMNS, **changes}.items() if name not in without}
    pd.DataFrame(columns).to_csv(root / "pets" / "labels.csv", index=False)
    return root


def test_splits_classes_and_groups_come_from_the_csv(tmp_path: Path) -> None:
    data = ImageFolderCsv(
        root=write(tmp_path), folder="pets", sensitive=("group", "site"), split_column="part", image_size=16
    )
    data.check()
    examples = data.examples("validation")
    assert examples.inputs.batch(torch.arange(10))["pixel_values"].shape == (10, 3, 16, 16)
    assert examples.class_names == ("10", "9", "cat", "dog")
    assert examples.labels.tolist() == [0, 1, 3, 2] * 2 + [0, 1]
    group, site = data.groups("validation")
    assert group.names == ("g0", "g1", "g2")
    assert group.values.tolist() == [row % 3 for row in range(20, 30)]
    assert site.names == ("0", "1")
    assert [len(data.examples(split).labels) for split in SPLITS] == [20, 10, 10]


def test_a_row_less_leaves_the_split_of_all_others(tmp_path: Path) -> None:
    options: dict[str, Any] = {"root": write(tmp_path), "folder": "pets", "validation_share": 0.3, "test_share": 0.3}
    before = {split: ImageFolderCsv(**options).ids(split) for split in SPLITS}
    table = pd.read_csv(tmp_path / "pets" / "labels.csv")
    table.drop(index=1).sample(frac=1, random_state=0).to_csv(tmp_path / "pets" / "labels.csv", index=False)
    for split in SPLITS:
        assert {*before[split]} - {*ImageFolderCsv(**options).ids(split)} <= {table["file"][1]}


def test_without_a_split_column_rows_are_dealt_by_file_and_seed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"root": write(tmp_path), "folder": "pets", "validation_share": 0.3, "test_share": 0.3}
    dealt = [ImageFolderCsv(**options, split_seed=seed).examples("train").fingerprint for seed in (0, 0, 1)]
    assert dealt[0] == dealt[1] != dealt[2]
    sizes = [len(ImageFolderCsv(**options).examples(split).labels) for split in SPLITS]
    assert sum(sizes) == ROWS
    write(tmp_path, label=COLUMNS["label"][::-1], group=["g0", "g1"] * 20)
    assert [len(ImageFolderCsv(**options).groups(split)[0].values) for split in SPLITS] == sizes


def test_a_csv_is_a_test_set_as_a_whole(tmp_path: Path) -> None:
    data = ImageFolderCsv(root=write(tmp_path), folder="pets", test_share=1)
    assert len(data.examples("test").labels) == ROWS
    with pytest.raises(DataError, match="no rows remain for training"):
        data.examples("train")


def test_paths_of_their_own(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "pets" / "labels.csv").rename(tmp_path / "elsewhere.csv")
    for csv in (str(tmp_path / "elsewhere.csv"), "../elsewhere.csv"):
        data = ImageFolderCsv(folder=str(tmp_path / "pets"), csv=csv, split_column="part")
        assert len(data.examples("train").labels) == 20


def test_a_recipe_builds_it(tmp_path: Path) -> None:
    options = {"name": "image-folder-csv", "folder": "pets", "sensitive": ["group", "site"], "split_column": None}
    experiment = build_experiment({"data": options, "method": {"name": "erm"}})
    assert experiment.data == ImageFolderCsv(folder="pets", sensitive=("group", "site"))
    assert build_experiment(experiment.to_dict()) == experiment


def test_the_recipes_of_the_documentation_are_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    recipes = [yaml.safe_load(block.partition("```")[0]) for block in text.split("```yaml")[1:]]
    assert {recipe["data"]["name"] for recipe in recipes} == {"hub", "image-folder-csv"}
    for recipe in recipes:
        build_experiment({"method": {"name": "erm"}, **recipe})


def test_examples_do_not_open_the_sensitive_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened: list[list[str]] = []
    read = table_set.read_columns

    def spy(path: Path, columns: Sequence[str], **more: Any) -> dict[str, list[str]]:
        opened.append(list(columns))
        return read(path, columns, **more)

    monkeypatch.setattr(table_set, "read_columns", spy)
    whole = ImageFolderCsv(root=write(tmp_path), folder="pets", split_column="part").examples("train")
    assert opened == [["label", "file", "part"]]
    data = ImageFolderCsv(root=write(tmp_path, "group"), folder="pets", split_column="part", sensitive="sex")
    data.check()
    assert "labels.csv has no column 'sex' (data.sensitive): training does not need it, evaluation" in caplog.text
    assert data.examples("train").fingerprint == whole.fingerprint
    with pytest.raises(DataError, match="has no column 'sex'"):
        data.groups("train")
    unnamed = replace(data, sensitive="group")  # the default, which need not be there
    assert unnamed.groups("train") == ()
    assert unnamed.ids("train") == replace(data, sensitive=()).ids("train")


def changed(name: str, row: int, value: Any) -> dict[str, list[Any]]:
    values = list(COLUMNS[name])
    values[row] = value
    return {name: values}


def test_an_empty_sensitive_cell_matters_to_groups_of_its_split_alone(tmp_path: Path) -> None:
    data = ImageFolderCsv(root=write(tmp_path, **changed("group", 31, "")), folder="pets", split_column="part")
    assert len(data.examples("test").labels) == len(data.groups("train")[0].values) // 2
    with pytest.raises(DataError, match="1 of 10 rows of the test split have no group in 'group'"):
        data.require_groups("test")


def rewrite(root: Path, lines: list[str]) -> ImageFolderCsv:
    (write(root) / "pets" / "labels.csv").write_text("\n".join(["file,label,group,site,part", *lines]) + "\n")
    return ImageFolderCsv(root=root, folder="pets", split_column="part")


def test_a_comma_at_the_end_of_each_row_moves_no_column(tmp_path: Path) -> None:
    expected = ImageFolderCsv(root=write(tmp_path), folder="pets", split_column="part")
    before = expected.examples("train"), expected.groups("train")[0]
    rows = zip(*COLUMNS.values(), strict=True)
    data = rewrite(tmp_path, [",".join(map(str, row)) + "," for row in rows])
    data.check()
    assert data.examples("train").class_names == before[0].class_names == ("10", "9", "cat", "dog")
    assert data.examples("train").fingerprint == before[0].fingerprint
    assert data.groups("train")[0].names == before[1].names
    assert torch.equal(data.groups("train")[0].values, before[1].values)


def test_quoted_texts_may_hold_commas_quotes_and_new_lines(tmp_path: Path) -> None:
    # pandas writes the quotes; a blank line between rows is none of them
    names = ["a, b", 'say "c"', "two\nlines", "plain"]
    write(tmp_path, group=names * 10)
    file = tmp_path / "pets" / "labels.csv"
    header, _, rest = file.read_text().partition("\n")
    file.write_bytes(b"\xef\xbb\xbf" + f"{header}\n\n{rest}".encode())
    data = ImageFolderCsv(root=tmp_path, folder="pets", split_column="part")
    data.check()
    assert len(data.examples("train").labels) == 20
    (group,) = data.groups("train")
    assert [group.names[value] for value in group.values.tolist()] == names * 5


def test_values_are_read_to_the_letter(tmp_path: Path) -> None:
    write(tmp_path, label=["01", "1"] * 20, group=["1", "01", " 1", "1.0"] * 10)
    data = ImageFolderCsv(root=tmp_path, folder="pets", split_column="part", label_map={"01": "01", "1": "1"})
    assert data.examples("train").class_names == ("01", "1")
    assert data.groups("train")[0].names == (" 1", "01", "1", "1.0")


def test_one_class_in_two_spellings_is_refused_and_groups_are_two(tmp_path: Path) -> None:
    values = ["1", "2", "1.0", "2"] * 10
    data = ImageFolderCsv(root=write(tmp_path, label=values, group=values), folder="pets")
    with pytest.raises(DataError, match=r"'label' holds '1' and '1\.0', one number written in two ways"):
        data.examples("train")
    assert data.groups("train")[0].names == ("1", "1.0", "2")
