"""What each data set gives stays as it was measured, so that runs resume: fingerprints, names, groups, ids and people.

``PYTHONPATH=src:tests:tests/data python tests/data/test_same_sets.py`` writes sets.txt anew.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import test_celeba_folder
import test_hatexplain
import test_hub
import test_image_folder_csv
import test_multinli
import test_parquet
import test_text_csv
import test_utkface_folder

from levelhead.data import DATASETS, SPLITS, DataSet

KNOWN = Path(__file__).with_name("sets.txt")


def faces(root: Path) -> None:
    test_utkface_folder.write(root, [row // 4 % 5 for row in range(120)])


def people(row_count: int) -> list[Any]:
    return [None if row % 5 == 0 else f"P{row // 2}" for row in range(row_count)]


def posts(root: Path) -> None:
    test_text_csv.write(root, who=people(test_text_csv.ROWS))


def pets(root: Path) -> None:
    test_image_folder_csv.write(root, who=people(test_image_folder_csv.ROWS))


def hub(root: Path) -> None:
    test_hub.write(root, ("train",), who=people(test_hub.ROWS))
    test_hub.save(root / "posts")


def hatexplain(form: Callable[..., Path]) -> Callable[[Path], object]:
    return lambda root: form(root, *() if form is test_hatexplain.write_csv else (test_hatexplain.corpus(),))


SHARES = {"validation_share": 0.3, "test_share": 0.3}
DEALT = {"split_column": None, **SHARES}
OWN = {"folder": "mine", "file": "texts.csv", **DEALT}
PEOPLE = {"person_column": "who", "id_column": "question"}
ONE = {"path": "pets", "validation_split": None, "test_split": None, **SHARES}
SETS: dict[str, tuple[str, Callable[[Path], object], dict[str, Any]]] = {
    "celeba64": ("celeba64", test_parquet.celeba, {}),
    "celeba64 by another": ("celeba64", test_parquet.celeba, {"target": "Male", "sensitive": "Blond_Hair"}),
    "celeba": ("celeba", test_celeba_folder.write, {"sensitive": ("Male", "Smiling")}),
    "celeba as csv": ("celeba", lambda root: test_celeba_folder.write(root, kind="csv"), {"target": "Smiling"}),
    "utkface64": ("utkface64", test_parquet.utkface, {}),
    "utkface64 by race": ("utkface64", test_parquet.utkface, {"sensitive": "race"}),
    "utkface64 of white": ("utkface64", test_parquet.utkface, {"target": "white", "sensitive": "gender"}),
    "utkface": ("utkface", faces, {"sensitive": "race", "image_size": 16, "split_seed": 1}),
    "utkface of white": ("utkface", faces, {"target": "white", "sensitive": "gender", **SHARES, "test_share": 0.4}),
    "hub pictures": ("hub", hub, {**ONE, "sensitive": ("group", "age"), "image_size": 16}),
    "hub pictures of people": ("hub", hub, {**ONE, "target": "group", "sensitive": "age", "person_column": "who"}),
    "hub texts": ("hub", hub, {"path": "posts", "text_column": "text", "sensitive": "group", "id_column": "id"}),
    "image-folder-csv": ("image-folder-csv", pets, {"folder": "pets", "split_column": "part", "image_size": 16}),
    "image-folder-csv dealt": ("image-folder-csv", pets, {"folder": "pets", "sensitive": "site", **DEALT}),
    "hatexplain of the owners": ("hatexplain", hatexplain(test_hatexplain.write_owners), {}),
    "hatexplain as csv": ("hatexplain", hatexplain(test_hatexplain.write_csv), {}),
    "multinli of the owners": ("multinli", test_multinli.write_owners, {"dev": "both"}),
    "multinli of the hub": ("multinli", test_multinli.write_hub, {"dev": "mismatched"}),
    "multinli as csv": ("multinli", test_multinli.write_csv, {}),
    "text-csv": ("text-csv", posts, {**OWN, "split_column": "part"}),
    "text-csv dealt": ("text-csv", posts, {**OWN, "pair_column": "question", "sensitive": ("site", "group")}),
    "text-csv of people": (
        "text-csv",
        posts,
        {**OWN, "target": "mood", "person_column": "who", "id_column": "question"},
    ),
    "text-csv of numbers": ("text-csv", posts, {**OWN, "threshold": 0, "ignore_label": "9"}),
}


def mark(values: Any) -> str:
    """Return a short hash of a list, and its length."""
    if values is None:
        return "-"
    values = list(values)
    return f"{len(values)}:{hashlib.blake2b(repr(values).encode(), digest_size=6).hexdigest()}"


def told(name: str, data: DataSet) -> Iterator[str]:
    """Yield what a data set gives of each split, a line each."""
    for split in SPLITS:
        found = data.examples(split)
        yield f"{name}, {split}: {found.fingerprint} {mark(found.labels.tolist())} {', '.join(found.class_names)}"
        yield f"  inputs {data.inputs(split).fingerprint()} {mark(data.inputs(split).keys())}"
        yield f"  {data.id_name} {mark(data.ids(split))} people {mark(data.people(split))}"
        if name == "hatexplain as csv" and split == "train":  # this layout has none of training rows
            continue
        for one in data.groups(split):
            yield f"  {one.attribute} {mark(one.values.tolist())} {', '.join(one.names)}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SETS)
def test_a_set_is_what_it_was(name: str, tmp_path: Path) -> None:
    kind, write, options = SETS[name]
    write(tmp_path)
    assert "\n".join(told(name, DATASETS[kind](root=tmp_path, **options))) in KNOWN.read_text(encoding="utf-8")


if __name__ == "__main__":
    os.environ["LEVELHEAD_CACHE"] = "off"
    with tempfile.TemporaryDirectory() as home, KNOWN.open("w", encoding="utf-8") as file:
        for place, (name, (kind, write, options)) in enumerate(SETS.items()):
            root = Path(home) / str(place)
            root.mkdir()
            write(root)
            file.writelines(f"{line}\n" for line in told(name, DATASETS[kind](root=root, **options)))
