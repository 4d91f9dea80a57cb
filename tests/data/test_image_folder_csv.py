from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from drawing import picture

from levelhead.data import SPLITS
from levelhead.data.image_folder_csv import ImageFolderCsv
from levelhead.runs.recipe import build_experiment

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


def test_a_row_less_leaves_the_split_of_all_others(tmp_path: Path) -> None:
    options: dict[str, Any] = {"root": write(tmp_path), "folder": "pets", "validation_share": 0.3, "test_share": 0.3}
    before = {split: ImageFolderCsv(**options).ids(split) for split in SPLITS}
    assert sum(map(len, before.values())) == ROWS
    assert ImageFolderCsv(**options, split_seed=1).ids("train") != before["train"]
    table = pd.read_csv(tmp_path / "pets" / "labels.csv")
    table.drop(index=1).sample(frac=1, random_state=0).to_csv(tmp_path / "pets" / "labels.csv", index=False)
    for split in SPLITS:
        assert {*before[split]} - {*ImageFolderCsv(**options).ids(split)} <= {table["file"][1]}


def test_paths_of_their_own(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "pets" / "labels.csv").rename(tmp_path / "elsewhere.csv")
    for csv in (str(tmp_path / "elsewhere.csv"), "../elsewhere.csv"):
        data = ImageFolderCsv(folder=str(tmp_path / "pets"), csv=csv, split_column="part")
        assert len(data.examples("train").labels) == 20


def test_the_recipes_of_the_documentation_are_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    recipes = [yaml.safe_load(block.partition("```")[0]) for block in text.split("```yaml")[1:]]
    assert {recipe["data"]["name"] for recipe in recipes} == {"hub", "image-folder-csv"}
    for recipe in recipes:
        build_experiment({"method": {"name": "erm"}, **recipe})


def changed(name: str, row: int, value: Any) -> dict[str, list[Any]]:
    values = list(COLUMNS[name])
    values[row] = value
    return {name: values}


def rewrite(root: Path, lines: list[str]) -> ImageFolderCsv:
    (write(root) / "pets" / "labels.csv").write_text("\n".join(["file,label,group,site,part", *lines]) + "\n")
    return ImageFolderCsv(root=root, folder="pets", split_column="part")
