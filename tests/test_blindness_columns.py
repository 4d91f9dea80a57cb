"""What the readers for training open: every column is written down, and no declared sensitive one may be among them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from levelhead.data import DATASETS, SPLITS, celeba_folder, hatexplain, text_files, utkface_folder
from levelhead.data.folds import Fold
from test_blindness import ALL_LAYOUTS, COMPUTED, LAYOUTS, draw, sentences, write_files

# What is declared sensitive, as the file calls it, and the target; by layout, or by data set.
DECLARED: dict[tuple[str, str] | str, tuple[set[str], str]] = {
    "celeba64": ({"Male"}, "Blond_Hair"),
    "celeba": ({"Male"}, "Blond_Hair"),
    "utkface64": ({"race"}, "gender"),
    "utkface": ({"race"}, "gender"),
    "image-folder-csv": ({"group"}, "label"),
    "hatexplain": ({"target"}, "label"),
    ("hatexplain", "csv"): ({"a_women"}, "y"),
    "multinli": ({"a_negation"}, "label"),
    "text-csv": ({"group"}, "label"),
    "hub": ({"group"}, "label"),
    ("hub", "texts saved to disk"): ({"group", "id"}, "label"),
}


class Row(list[str]):
    """A row of a csv that writes down which of its cells somebody looks at."""

    def __init__(self, cells: list[str], names: list[str], opened: set[str]) -> None:
        super().__init__(cells)
        self.names, self.opened = names, opened

    def __getitem__(self, place: Any) -> Any:
        names = self.names[place]
        self.opened.update(names if isinstance(names, list) else [names])
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[str]:
        self.opened.update(self.names)
        return super().__iter__()


class Fields(dict[str, Any]):
    """A row of JSON lines that writes down which of its fields somebody looks at."""

    opened: set[str]

    def get(self, name: str, default: Any = None) -> Any:
        self.opened.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def items(self) -> Any:
        self.opened.update(self)
        return super().items()

    values = items


def leaves(value: Any) -> set[str]:
    """Return the names of the fields of a JSON document that hold something, at any depth."""
    if isinstance(value, list):
        return set().union(*map(leaves, value))
    if isinstance(value, dict):
        return {key for key in value if value[key] is not None}.union(*map(leaves, value.values()))
    return set()


@pytest.fixture(autouse=True)
def nothing_is_kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, library: None) -> None:
    """Read files anew in each test; what the hub's library reads needs it."""
    monkeypatch.setenv("LEVELHEAD_CACHE", "off")
    if "callspec" in dir(request.node) and request.node.callspec.params.get("name") == "hub":
        pytest.importorskip("datasets")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Write down the columns that levelhead.data opens, at the doors that it has: csv, lines, parquet, JSON, names."""
    found: set[str] = set()
    read_rows, load_json, column = csv.reader, json.load, celeba_folder.OwnersTable._column

    def rows(*arguments: Any, **options: Any) -> Iterator[list[str]]:
        names: list[str] = []
        for cells in read_rows(*arguments, **options):
            yield Row(cells, names, found) if names else cells
            names = names or cells

    def of_owners(self: Any, path: Path, place: int) -> Any:
        found.update([self.header()[place]] if path.stem == "list_attr_celeba" else [])
        return column(self, path, place)

    def table(file: Path, columns: list[str]) -> Any:
        found.update(columns)
        return pq.read_table(file, columns=columns)

    class Opened(pq.ParquetFile):
        def iter_batches(self, *arguments: Any, columns: list[str], **options: Any) -> Any:
            found.update(columns)
            return super().iter_batches(*arguments, columns=columns, **options)

    def document(*arguments: Any, **options: Any) -> Any:
        content = load_json(*arguments, **options)
        found.update(leaves(content))
        return content

    def pattern(column: str) -> Any:
        found.add(column)
        return field(column)

    def fields(line: str, **options: Any) -> Fields:
        row = Fields(json.loads(line, **options))
        row.opened = found
        return row

    field = utkface_folder._pattern
    monkeypatch.setattr(text_files, "json", SimpleNamespace(loads=fields))
    monkeypatch.setattr(csv, "reader", rows)
    monkeypatch.setattr(celeba_folder.OwnersTable, "_column", of_owners)
    monkeypatch.setattr(hatexplain, "json", SimpleNamespace(load=document))  # libraries read JSON of their own
    monkeypatch.setattr(utkface_folder, "_pattern", pattern)
    doors = SimpleNamespace(**vars(pq) | {"read_table": table, "ParquetFile": Opened})
    for name, module in list(sys.modules.items()):
        if name.startswith("levelhead.data.") and getattr(module, "pq", None) is pq:
            monkeypatch.setattr(module, "pq", doors)
    try:
        import datasets
    except ImportError:
        return found
    item = datasets.Dataset.__getitem__

    def of_library(self: Any, key: Any) -> Any:
        found.update(self.column_names)
        return item(self, key)

    monkeypatch.setattr(datasets.Dataset, "__getitem__", of_library)
    return found


@pytest.mark.parametrize(("name", "layout"), ALL_LAYOUTS)
def test_training_opens_no_declared_sensitive_column(name: str, layout: str, tmp_path: Path, opened: set[str]) -> None:
    data = DATASETS[name](root=tmp_path, **ALL_LAYOUTS[name, layout](tmp_path, draw("kept"), False))
    declared, target = DECLARED.get((name, layout)) or DECLARED[name]
    opened.clear()
    data.check()
    for split in SPLITS:
        data.examples(split)
    assert target in opened, "nothing was watched"
    assert not declared & opened
    if name not in COMPUTED:  # there the attribute is computed from the input
        data.groups("train")
        data.ids("train")
        assert declared <= opened, "the watch would not have noticed"


def with_people(name: str, root: Path, dealt: bool) -> dict[str, Any]:
    """Write a set with a column ``who`` of ten people, one cell of it empty; return the options of its data set."""
    rows = draw("kept")
    who = ["", *(f"p{row % 10}" for row in range(1, len(rows.label)))]
    frame = pd.DataFrame({"file": rows.name, "label": rows.label, "group": rows.group, "who": who, "split": rows.split})
    frame["text"] = [f"{text} w{row}" for row, text in enumerate(sentences(rows))]
    pictures = name == "image-folder-csv"
    write_files(root / "mine", rows.name if pictures else [], rows.picture if pictures else [])
    options: dict[str, Any] = {"person_column": "who", "test_share": 0.3, "validation_share": 0.3}
    if name == "hub":
        for split in ["train"] if dealt else SPLITS:
            frame[dealt | (frame["split"] == split)].to_parquet(root / "mine" / f"{split}.parquet")
        here: dict[str, Any] = {"validation_split": None, "test_split": None} if dealt else {}
        return options | here | {"path": "mine", "text_column": "text", "sensitive": "group"}
    frame.to_csv(root / "mine" / "labels.csv", index=False)
    options |= {"file": "labels.csv"} if name == "text-csv" else {}
    return options | {"folder": "mine"} | ({} if dealt else {"split_column": "split"})


@pytest.mark.parametrize("dealt", [True, False])
@pytest.mark.parametrize("name", ["text-csv", "image-folder-csv", "hub"])
def test_training_opens_whom_rows_are_of_only_to_deal_them_and_then_by_person(
    name: str,
    dealt: bool,
    tmp_path: Path,
    opened: set[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = DATASETS[name](root=tmp_path, **with_people(name, tmp_path, dealt))
    opened.clear()
    data.check()
    labels = {split: data.examples(split).labels for split in SPLITS}
    assert ("who" in opened) == dealt
    assert "group" not in opened
    opened.clear()
    people = {split: data.people(split) or () for split in SPLITS}
    assert "who" in opened
    assert not {"group", "label"} & opened
    assert {split: len(people[split]) for split in SPLITS} == {split: len(labels[split]) for split in SPLITS}
    found = [person for split in SPLITS for person in set(people[split])]
    assert sum("nobody is named" in person for person in found) == 1
    assert {person for person in found if "nobody" not in person} == {f"p{row}" for row in range(10)}
    assert (len(found) == len(set(found))) == dealt
    assert ("10 of the people in 'who' have rows in several splits" in caplog.text) != dealt
    folds = [Fold(data=data, folds=3, fold=fold) for fold in range(3)]
    tested = [person for fold in folds for person in set(fold.people("test") or ())]
    assert len(tested) == len(set(tested)) == 11


@pytest.mark.parametrize("name", LAYOUTS)
def test_pretraining_opens_neither_target_nor_sensitive_columns(name: str, tmp_path: Path, opened: set[str]) -> None:
    data = DATASETS[name](root=tmp_path, **LAYOUTS[name](tmp_path, draw("kept"), False))
    declared, target = DECLARED[name]
    opened.clear()
    for split in SPLITS:
        inputs = data.inputs(split)
        assert not (declared | {target}) & opened
        assert inputs.fingerprint() == data.examples(split).inputs.fingerprint()
        assert target in opened, "nothing was watched"
        opened.clear()
