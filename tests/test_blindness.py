"""Training must not see who belongs to which group: change what it must not see, demand identical weights."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from levelhead.data import DATASETS
from levelhead.methods import METHODS
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import ConfigError, DataError
from tiny import slow_but
from words import save_tiny_backbone

ROWS = {"train": 48, "validation": 64, "test": 40}


@dataclass
class Rows:
    """All rows of a small set, split by split: what training may see, and what it must not."""

    split: list[str]
    picture: list[bytes]
    label: list[int]
    group: list[int]
    name: list[str]


def draw(sensitive: str) -> Rows:
    """Draw noise pictures; ``sensitive``: groups and names are kept, shuffled, or (the groups) to be deleted."""
    rng = np.random.default_rng(7)
    split = [name for name, rows in ROWS.items() for _ in range(rows)]
    label, group = rng.integers(0, 2, len(split)), rng.integers(0, 5, len(split))
    pictures = []
    for value in label:
        buffer = io.BytesIO()
        Image.fromarray((rng.integers(0, 100, (64, 64, 3)) + 120 * value).astype(np.uint8)).save(buffer, "JPEG")
        pictures.append(buffer.getvalue())
    names = [f"{value}-{row}.jpg" for row, value in enumerate(group)]
    if sensitive == "shuffled":
        order = rng.permutation(len(split))
        group, names = group[order], [names[position] for position in order]
    if sensitive == "deleted":
        names = [f"{row:03d}.jpg" for row in range(len(split))]
    return Rows(split, pictures, label.tolist(), group.tolist(), names)


def write_files(folder: Path, names: list[str], pictures: list[bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in zip(names, pictures, strict=True):
        (folder / name).write_bytes(content)


def write_parquet(folder: Path, rows: Rows, columns: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    image = [{"bytes": content, "path": name} for content, name in zip(rows.picture, rows.name, strict=True)]
    table = pa.table({"image": image, **columns})
    for split in ROWS:
        pq.write_table(table.filter(pa.array([name == split for name in rows.split])), folder / f"{split}.parquet")


def celeba64(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    groups = {} if deleted else {"Male": [value == 0 for value in rows.group]}
    write_parquet(root / "celeba64", rows, {"Blond_Hair": [value == 1 for value in rows.label], **groups})
    return {}


def celeba(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    write_files(root / "celeba" / "img_align_celeba", rows.name, rows.picture)
    lines, partition = [str(len(rows.name)), "Blond_Hair" if deleted else "Blond_Hair Male"], []
    for name, split, label, group in zip(rows.name, rows.split, rows.label, rows.group, strict=True):
        lines.append(f"{name} {2 * label - 1}" + ("" if deleted else f" {1 if group == 0 else -1}"))
        partition.append(f"{name} {list(ROWS).index(split)}")
    (root / "celeba" / "list_attr_celeba.txt").write_text("\n".join(lines))
    (root / "celeba" / "list_eval_partition.txt").write_text("\n".join(partition))
    return {}


def utkface64(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    write_parquet(root / "utkface64", rows, {"gender": rows.label, **({} if deleted else {"race": rows.group})})
    return {}


def utkface(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    # The fields cannot be left out of a name: deleted ones say the same for all.
    fields = [("1", "0") if deleted else (str(20 + group), str(group)) for group in rows.group]
    names = [
        f"{age}_{label}_{race}_{20170000 + row // 3}{row:04d}.jpg"
        for row, ((age, race), label) in enumerate(zip(fields, rows.label, strict=True))
    ]
    write_files(root / "utkface", names, rows.picture)
    return {}


def hub(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    groups = {} if deleted else {"group": [f"g{value}" for value in rows.group]}
    write_parquet(root / "faces", rows, {"label": rows.label, **groups})
    return {"path": "faces", "sensitive": "group"}


def image_folder_csv(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    write_files(root / "faces", rows.name, rows.picture)
    columns: dict[str, Any] = {"file": rows.name, "label": rows.label, "split": rows.split, "group": rows.group}
    if deleted:
        del columns["group"]
    pd.DataFrame(columns).to_csv(root / "faces" / "labels.csv", index=False)
    return {"folder": "faces", "split_column": "split"}


Layout = Callable[[Path, Rows, bool], dict[str, Any]]
LAYOUTS: dict[str, Layout] = {
    "celeba64": celeba64,
    "celeba": celeba,
    "utkface64": utkface64,
    "utkface": utkface,
    "hub": hub,
    "image-folder-csv": image_folder_csv,
}


def sentences(rows: Rows) -> list[str]:
    """Return a short text a row; one word of it tells the label, none the group."""
    return [f"the lamp is {('off', 'on')[label]} w{row % 7}" for row, label in enumerate(rows.label)]


def hatexplain_records(rows: Rows, deleted: bool) -> list[dict[str, Any]]:
    """Return posts with three annotators' labels and named communities; those of group 0 target women."""
    records = []
    for name, text, label, group in zip(rows.name, sentences(rows), rows.label, rows.group, strict=True):
        named = [["Women"], ["Women"], ["None"]] if group == 0 else [["Club"], ["Other"], ["Women"]]
        notes = [
            {"label": ("normal", "offensive")[label], "annotator_id": place}
            | ({} if deleted else {"target": named[place]})
            for place in range(3)
        ]
        records.append({"post_id": name, "annotators": notes, "rationales": [], "post_tokens": text.split()})
    return records


def hatexplain_owners(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    (root / "hatexplain").mkdir(parents=True)
    posts = {record["post_id"]: record for record in hatexplain_records(rows, deleted)}
    parts = {"train": "train", "val": "validation", "test": "test"}
    divisions = {
        name: [post for post, split in zip(rows.name, rows.split, strict=True) if split == part]
        for name, part in parts.items()
    }
    (root / "hatexplain" / "dataset.json").write_text(json.dumps(posts))
    (root / "hatexplain" / "post_id_divisions.json").write_text(json.dumps(divisions))
    return {}


def write_tables(folder: Path, rows: Rows, names: dict[str, str], columns: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    frame = pd.DataFrame(columns)
    for name, split in names.items():
        frame[[part == split for part in rows.split]].to_csv(folder / f"{name}.csv.gz", index=False)


def hatexplain_csv(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    women = {} if deleted else {"a_women": [int(group == 0) for group in rows.group]}
    columns = {"post_id": rows.name, "text": sentences(rows), "y": rows.label, **women}
    write_tables(root / "hatexplain", rows, {"train": "train", "val": "validation", "test": "test"}, columns)
    return {}


def multinli(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    groups = {} if deleted else {"a_negation": rows.group, "genre": rows.name}
    labels = [("neutral", "entailment")[label] for label in rows.label]
    premises = [f"the room w{row % 7} w{row // 7} w{row}" for row in range(len(labels))]
    columns = {"premise": premises, "hypothesis": sentences(rows), "label": labels, **groups}
    write_tables(root / "multinli", rows, {"train": "train", "val": "test"}, columns)
    return {}


def table_of(rows: Rows, deleted: bool, **more: Any) -> pd.DataFrame:
    """Return texts with their labels and groups, and columns that a layout has besides."""
    columns = {"text": sentences(rows), "label": rows.label} | more
    return pd.DataFrame(columns | ({} if deleted else {"group": rows.group}))


def numbered(rows: Rows) -> list[str]:
    """Return texts of which no two are alike: where rows are dealt, equal ones would go together."""
    return [f"{text} w{row}" for row, text in enumerate(sentences(rows))]


def mine(root: Path) -> Path:
    (root / "mine").mkdir(parents=True)
    return root / "mine"


def one_file(name: str, write: Callable[[pd.DataFrame, Path], object]) -> Layout:
    def layout(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
        write(table_of(rows, deleted, id=rows.name, split=rows.split), mine(root) / name)
        return {"folder": "mine", "file": name, "split_column": "split"}

    return layout


def dealt_csv(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    table_of(rows, deleted, text=numbered(rows)).to_csv(mine(root) / "a.tsv", index=False, sep="\t")
    return {"folder": "mine", "file": "a.tsv"}


def three_csv(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    frame = table_of(rows, deleted)
    write_tables(root / "mine", rows, {"train": "train", "dev": "validation", "test": "test"}, dict(frame))
    return {"folder": "mine"}


def parts(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    frame, folder = table_of(rows, deleted), mine(root)
    for split in ROWS:
        some = frame[[name == split for name in rows.split]]
        half = len(some) // 2
        for place, part in enumerate((some[:half], some[half:])):
            part.to_parquet(folder / f"{split}-{place:05d}-of-00002.parquet")
    return {"folder": "mine"}


def hub_texts(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    parts(root, rows, deleted)
    return {"path": "mine", "text_column": "text", "sensitive": "group"}


def saved_texts(root: Path, rows: Rows, deleted: bool) -> dict[str, Any]:
    import datasets

    frame = table_of(rows, deleted, text=numbered(rows), id=rows.name).astype({} if deleted else {"group": str})
    datasets.Dataset.from_pandas(frame).save_to_disk(str(root / "mine"))
    options: dict[str, Any] = {"validation_split": None, "test_split": None, "validation_share": 0.3, "test_share": 0.3}
    return {"path": "mine", "text_column": "text", "sensitive": "group", "id_column": "id", **options}


TEXT_LAYOUTS: dict[tuple[str, str], Layout] = {
    ("hatexplain", "owners"): hatexplain_owners,
    ("hatexplain", "csv"): hatexplain_csv,
    ("multinli", "csv"): multinli,
    ("text-csv", "one file"): one_file("a.csv", lambda frame, file: frame.to_csv(file, index=False)),
    ("text-csv", "one file, dealt"): dealt_csv,
    ("text-csv", "a file a split"): three_csv,
    ("text-csv", "parquet"): one_file("a.parquet", pd.DataFrame.to_parquet),
    ("text-csv", "JSON lines"): one_file("a.jsonl", partial(pd.DataFrame.to_json, orient="records", lines=True)),
    ("text-csv", "in parts"): parts,
    ("hub", "texts"): hub_texts,
    ("hub", "texts saved to disk"): saved_texts,
}
ALL_LAYOUTS = {(name, ""): layout for name, layout in LAYOUTS.items()} | TEXT_LAYOUTS
COMPUTED = {"multinli"}  # the attribute is computed from the input: there is no column to exchange


def recipe(root: Path, method: str, data: str = "utkface64", **train: Any) -> dict[str, Any]:
    return {
        "data": {"name": data, "root": str(root)},
        "method": {"name": method, **OPTIONS.get(method, {})},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "threads": 1, **train},
    }


def faces(root: Path, sensitive: str) -> Path:
    """Write noise pictures as utkface64 has them; ``sensitive``: kept, shuffled (with names permuted) or deleted."""
    utkface64(root, draw(sensitive), sensitive == "deleted")
    return root


def trained(plan: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the metrics and the weights of a run."""
    return train_run(build_experiment(plan), folder), load_file(folder / "model" / "model.safetensors")


def assert_equal(weights: dict[str, dict[str, torch.Tensor]], *names: str) -> None:
    """Assert that runs have weights that are equal bit by bit."""
    first, *others = (weights[name] for name in names or weights)
    for other in others:
        assert first.keys() == other.keys()
        for name, tensor in first.items():
            assert tensor.equal(other[name]), f"{name} differs"


# JTT trains this many times more on what it missed; the others need this many rows of each group, or a view.
OPTIONS: dict[str, dict[str, Any]] = {
    "jtt": {"upweight": 3},
    "few-label": {"rows": 60},
    "bmft": {"rows": 60},
    "identities": {"fewest_people": 10},
    "dfr": {"smallest_group": 2},
    "xrm": {"single_part": "keep"},  # the classes are easy, and nothing contradicts the rest
    **{method: {"view": {"kind": "chroma"}} for method in ("poe", "learned-mixin", "view-reweight")},
}
BLIND = [name for name, cls in METHODS.items() if not cls().group_splits and not cls.uses_people]


@pytest.mark.parametrize("method", slow_but(("erm", "dam", "jtt"), BLIND))
def test_the_sensitive_columns_and_file_names_change_nothing(method: str, tmp_path: Path) -> None:
    weights = {}
    for sensitive in ("kept", "shuffled", "deleted"):
        run = tmp_path / f"run-{sensitive}"
        _, weights[sensitive] = trained(recipe(faces(tmp_path / sensitive, sensitive), method), run)
        assert read_json(run / "data.json") == read_json(tmp_path / "run-kept" / "data.json")
    assert_equal(weights)


@pytest.mark.parametrize("method", [name for name, cls in METHODS.items() if cls().group_splits])
def test_a_method_that_declares_it_does_see_the_sensitive_column(method: str, tmp_path: Path) -> None:
    """Otherwise it would be marked ORACLE for nothing. A column that is not there is named before any training."""
    weights = {}
    for sensitive in ("kept", "shuffled"):
        plan = recipe(faces(tmp_path / sensitive, sensitive), method)
        metrics, weights[sensitive] = trained(plan, tmp_path / f"run-{sensitive}")
        assert (metrics["told"] or metrics["oracle"]) == (
            "FEW GROUPS 60" if method in ("few-label", "bmft") else "method"
        )
    assert any(not value.equal(weights["shuffled"][tensor]) for tensor, value in weights["kept"].items())
    with pytest.raises(DataError, match="race"):
        train_run(build_experiment(recipe(faces(tmp_path / "deleted", "deleted"), method)), tmp_path / "run-deleted")
    assert not (tmp_path / "run-deleted" / "checkpoints").exists()


def test_identities_sees_whom_rows_are_of_and_no_group(tmp_path: Path) -> None:
    """Groups kept, shuffled or deleted give the same weights; other ids give others; without ids nothing is trained."""
    weights, folder = {}, tmp_path / "kept"
    plan = recipe(folder, "identities", "celeba64")
    for sensitive in ("kept", "shuffled", "deleted"):
        celeba64(tmp_path / sensitive, draw(sensitive), sensitive == "deleted")
        put_people(tmp_path / sensitive / "celeba64", "people")
        run = tmp_path / f"run-{sensitive}"
        metrics, weights[sensitive] = trained(recipe(tmp_path / sensitive, "identities", "celeba64"), run)
        assert (metrics["told"], metrics["oracle"]) == ("IDENTITIES", None)
    assert_equal(weights)
    put_people(folder / "celeba64", "others")
    _, others = trained(plan, tmp_path / "run-others")
    assert any(not value.equal(others[tensor]) for tensor, value in weights["kept"].items())
    put_people(folder / "celeba64", "in both")
    with pytest.raises(DataError, match="16 people are in both the training and the validation split"):
        train_run(build_experiment(plan), tmp_path / "run-both")
    put_people(folder / "celeba64", "nobody")
    with pytest.raises(ConfigError, match=r"data\.person_column"):
        train_run(build_experiment(plan), tmp_path / "run-none")
    assert not (tmp_path / "run-none" / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["Young", "people"])
def test_a_contrast_within_another_variable_sees_that_and_no_group(condition: str, tmp_path: Path) -> None:
    weights = {}
    for case in ("kept", "shuffled", "deleted", "others"):
        celeba64(tmp_path / case, draw("kept" if case == "others" else case), case == "deleted")
        put_people(tmp_path / case / "celeba64", "others" if case == "others" else "people")
        plan = recipe(tmp_path / case, "ccl-k", "celeba64")
        plan["method"]["condition"] = condition
        metrics, weights[case] = trained(plan, tmp_path / f"run-{case}")
        assert (metrics["told"], metrics["oracle"]) == ("IDENTITIES" if condition == "people" else None, None)
    assert_equal(weights, "kept", "shuffled", "deleted")
    assert any(not value.equal(weights["others"][tensor]) for tensor, value in weights["kept"].items())


def put_people(folder: Path, ids: str) -> None:
    """Write celeb_id into the files: three rows a person, other triples, people who are in all splits, or none.

    Young, another label, goes with the ids.
    """
    for number, split in enumerate(ROWS):
        table = pq.read_table(folder / f"{split}.parquet")
        table = table.drop_columns([one for one in ("celeb_id", "Young") if one in table.column_names])
        people = np.arange(table.num_rows) // 3 if ids != "others" else np.arange(table.num_rows) % 16
        if ids != "in both":
            people += 1000 * number
        if ids != "nobody":
            table = table.append_column("celeb_id", pa.array(people))
        table = table.append_column("Young", pa.array(people // 3 % 2 == 0))
        pq.write_table(table, folder / f"{split}.parquet")


def test_every_data_set_that_is_read_has_a_layout_here() -> None:
    assert {name for name, _ in ALL_LAYOUTS} == set(DATASETS) - {"portraits", "phrases"}


@pytest.mark.parametrize(("name", "layout"), ALL_LAYOUTS)
def test_no_data_set_lets_training_see_groups_or_names(
    name: str,
    layout: str,
    library: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if name == "hub":
        pytest.importorskip("datasets")
    model = {}
    if layout:
        words = {f"w{row}" for row in range(sum(ROWS.values()))} | {"the", "lamp", "room", "is", "off", "on"}
        backbone = save_tiny_backbone(tmp_path / "backbone", words)
        model = {"model": {"backbone": str(backbone), "mode": "fine_tune"}}
    weights, cards, groups = {}, [], {}
    for sensitive in ("kept", "shuffled", "deleted"):
        root, run = tmp_path / sensitive, tmp_path / f"run-{sensitive}"
        plan = recipe(root, "erm", name, epochs=1) | model
        plan["data"] |= ALL_LAYOUTS[name, layout](root, draw(sensitive), sensitive == "deleted")
        caplog.clear()
        with monkeypatch.context() as blind:
            blind.setattr(DATASETS[name], "groups", lambda *_: pytest.fail("training requested groups"))
            _, weights[sensitive] = trained(plan, run)
        # UTKFace's names always hold the field, and a table without the column `group` is one without groups; the
        # other layouts say at once what an evaluation would miss.
        warned = [record.message for record in caplog.records if "evaluation does" in record.message]
        silent = {"utkface", "image-folder-csv", "text-csv", *COMPUTED}
        assert len(warned) == (sensitive == "deleted" and name not in silent)
        cards.append(read_json(run / "data.json"))
        if sensitive != "deleted":
            groups[sensitive] = build_experiment(plan).data.groups("train")[0].values
    assert groups["kept"].equal(groups["shuffled"]) == (name in COMPUTED)  # else the test would show nothing
    assert cards == [cards[0]] * 3
    assert_equal(weights)


def test_evaluation_and_selection_with_groups_do_look_at_them(tmp_path: Path) -> None:
    kept, deleted = faces(tmp_path / "data", "kept"), faces(tmp_path / "deleted", "deleted")
    oracle = "ORACLE_val_equalized_odds"
    metrics = train_run(build_experiment(recipe(kept, "erm", select=oracle)), tmp_path / "run")
    assert metrics["oracle"] == "selection"
    assert set(evaluate_run(tmp_path / "run").by_attribute)
    with pytest.raises(DataError, match="race"):
        evaluate_run(tmp_path / "run", data_root=deleted)
    with pytest.raises(DataError, match="race"):
        train_run(build_experiment(recipe(deleted, "erm", select=oracle)), tmp_path / "another")
