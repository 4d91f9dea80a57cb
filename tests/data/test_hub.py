from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drawing import picture

from levelhead.data import SPLITS
from levelhead.data.hub import Hub

datasets = pytest.importorskip("datasets")

ROWS = 24


def columns(**changes: list[Any]) -> dict[str, list[Any]]:
    return {
        "image": [{"bytes": picture(row, (30, 40)), "path": f"{row}.jpg"} for row in range(ROWS)],
        "label": ["dog", "cat", "bird"] * 8,
        "group": [row % 2 == 0 for row in range(ROWS)],
        "age": [row % 4 for row in range(ROWS)],
        **changes,
    }


def write(root: Path, splits: tuple[str, ...] = ("train", "validation", "test"), **changes: list[Any]) -> Path:
    (root / "pets").mkdir()
    for split in splits:
        pq.write_table(pa.table(columns(**changes)), root / "pets" / f"{split}.parquet")
    return root


def test_a_local_folder_of_picture_files_with_class_labels(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for row in range(20):
            file = tmp_path / "pets" / split / ("cat", "dog")[row % 2] / f"{row}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(picture(row, kind="PNG"))
    data = Hub(path=str(tmp_path / "pets"), validation_split=None, validation_share=0.4)
    examples = data.examples("test")
    assert examples.class_names == ("cat", "dog")
    assert sorted(examples.labels.tolist()) == [0] * 10 + [1] * 10
    assert len(data.examples("train").labels) + len(data.examples("validation").labels) == 20


def texts(**changes: list[Any]) -> dict[str, list[Any]]:
    return {
        "text": [f"post {row % 20} of {row % 2}" for row in range(40)],
        "reply": [f"answer {row % 10}" for row in range(40)],
        "label": [row % 2 for row in range(40)],
        "group": [f"g{row % 3}" for row in range(40)],
        "id": [f"P{row}" for row in range(40)],
        **changes,
    }


def save(folder: Path, splits: tuple[str, ...] = ("train", "validation", "test"), **changes: list[Any]) -> Path:
    datasets.DatasetDict({name: datasets.Dataset.from_dict(texts(**changes)) for name in splits}).save_to_disk(
        str(folder)
    )
    return folder


def test_texts_and_pairs(tmp_path: Path) -> None:
    save(tmp_path / "posts")
    data = Hub(root=tmp_path, path="posts", text_column="text", id_column="id", sensitive="group")
    data.check()
    examples = data.examples("test")
    assert list(examples.inputs.texts) == texts()["text"]
    assert examples.inputs.pairs is None
    assert examples.labels.tolist() == texts()["label"]
    assert list(data.ids("test")) == texts()["id"]
    assert data.groups("test")[0].names == ("g0", "g1", "g2")
    pairs = Hub(root=tmp_path, path="posts", text_column="text", pair_column="reply", sensitive=())
    assert list(pairs.examples("train").inputs.pairs) == texts()["reply"]
    assert list(pairs.inputs("train").texts) == texts()["text"]
    assert pairs.examples("train").fingerprint != data.examples("train").fingerprint


def one_set(rows: int = 40) -> Any:
    return datasets.Dataset.from_dict(texts()).select(range(rows))


def written(root: Path, **changes: list[Any]) -> Path:
    (root / "posts").mkdir()
    for split in SPLITS:
        pq.write_table(pa.table(texts(**changes)), root / "posts" / f"{split}.parquet")
    return root


def test_a_saved_dict_of_texts(tmp_path: Path) -> None:
    splits = {"train": one_set(40), "validation": one_set(20), "test": one_set(12)}
    splits["train"] = splits["train"].with_format("torch", columns=["label"])  # a format hides columns
    splits["test"] = splits["test"].select([3, 2, 1, 0])  # an order of its own
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    data = Hub(root=tmp_path, path="saved", text_column="text", id_column="id", sensitive="group")
    data.check()
    assert [len(data.examples(split).labels) for split in SPLITS] == [40, 20, 4]
    assert data.ids("test") == ["P3", "P2", "P1", "P0"]
    assert data.examples("test").labels.tolist() == [1, 0, 1, 0]
    assert Hub(path=str(tmp_path / "saved"), text_column="text").examples("test").labels.tolist() == [1, 0, 1, 0]


def test_a_saved_dict_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for row in range(ROWS):
        (tmp_path / "files" / f"{row}.jpg").write_bytes(picture(row, (30, 40)))
    pictures = [str(tmp_path / "files" / f"{row}.jpg") for row in range(ROWS)]
    table = datasets.Dataset.from_dict({**columns(), "image": pictures}).cast_column("image", datasets.Image())
    table = table.with_format("torch", columns=["age"])  # a format hides columns
    datasets.DatasetDict(dict.fromkeys(SPLITS, table)).save_to_disk(tmp_path / "saved")
    data = Hub(root=tmp_path, path="saved", sensitive="age", image_size=16)
    data.check()
    again = Hub(root=write(tmp_path), path="pets", image_size=16).examples("train")
    assert data.examples("train").fingerprint == again.fingerprint


def labelled(names: list[str], words: list[str], column: str = "label") -> Any:
    """A table of texts whose column holds class labels, in the order of ``names``."""
    rows = {
        "text": [f"{word} {row}" for row, word in enumerate(words)],
        "label": [row % 2 for row in range(len(words))],
    }
    table = datasets.Dataset.from_dict({**rows, column: [names.index(word) for word in words]})
    return table.cast_column(column, datasets.ClassLabel(names=names))


def saved(folder: Path, train: Any, others: Any, **options: Any) -> Hub:
    datasets.DatasetDict(train=train, validation=others, test=others).save_to_disk(str(folder))
    return Hub(path=str(folder), text_column="text", **options)


@pytest.mark.parametrize("column", ["label", "group"])
def test_class_labels_are_classes_groups_and_people(tmp_path: Path, column: str) -> None:
    some, words = labelled(["bad", "okay", "good"], ["okay", "bad", "good"] * 3, column), ["okay", "bad", "good"] * 3
    data = saved(tmp_path / "posts", some, some, sensitive=() if column == "label" else column)
    data.check()
    examples = data.examples("test")
    names = examples.class_names if column == "label" else data.groups("test")[0].names
    assert names == ("bad", "okay", "good")
    found = examples.labels if column == "label" else data.groups("test")[0].values
    assert [names[code] for code in found] == words
    if column == "label":
        assert examples.class_names == data.class_names()
        mapped = replace(data, label_map={"okay": "good"})
        assert mapped.examples("test").labels.tolist() == [1, 0, 1] * 3
    else:
        assert saved(tmp_path / "same", some, some, person_column="group").people("test") == words
