"""Training must not see who belongs to which group: change what it must not see, demand identical weights."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from safetensors.torch import load_file

from levelhead.config import build_experiment
from levelhead.methods import METHODS
from levelhead.runs import evaluate_run, train_run
from levelhead.storage import read_json
from levelhead.types import DataError

ROWS = {"train": 48, "validation": 16, "test": 40}


def write_utkface(root: Path, sensitive: str) -> Path:
    """Write noise pictures in UTKFace's layout; ``sensitive``: kept, shuffled (with names permuted) or deleted."""
    folder = root / "utkface64"
    folder.mkdir(parents=True)
    for split, rows in ROWS.items():
        rng = np.random.default_rng(len(split))
        gender, race = rng.integers(0, 2, rows), rng.integers(0, 5, rows)
        age = rng.integers(1, 90, rows)
        names = [f"{a}_{g}_{r}_{row}.jpg" for row, (a, g, r) in enumerate(zip(age, gender, race, strict=True))]
        pictures = []
        for label in gender:
            pixels = rng.integers(0, 100, (64, 64, 3)) + 120 * label
            buffer = io.BytesIO()
            Image.fromarray(pixels.astype(np.uint8)).save(buffer, "JPEG")
            pictures.append(buffer.getvalue())
        if sensitive == "shuffled":
            order = rng.permutation(rows)
            race, age, names = race[order], age[order], [names[position] for position in order]
        columns: dict[str, Any] = {
            "image": [{"bytes": data, "path": name} for data, name in zip(pictures, names, strict=True)],
            "file": names,
            "age": age,
            "gender": gender,
            "race": race,
        }
        if sensitive == "deleted":
            columns = {
                "image": [{"bytes": data, "path": None} for data in pictures],
                "gender": gender,
            }
        pq.write_table(pa.table(columns), folder / f"{split}.parquet")
    return root


def recipe(root: Path, method: str, **train: Any) -> dict[str, Any]:
    return {
        "data": {"name": "utkface64", "root": str(root)},
        "method": {"name": method},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "threads": 1, **train},
    }


@pytest.mark.parametrize("method", [name for name, cls in METHODS.items() if not cls.uses_groups])
def test_the_sensitive_columns_and_file_names_change_nothing(method: str, tmp_path: Path) -> None:
    weights = {}
    for sensitive in ("kept", "shuffled", "deleted"):
        root = write_utkface(tmp_path / sensitive, sensitive)
        train_run(build_experiment(recipe(root, method)), tmp_path / f"run-{sensitive}")
        weights[sensitive] = load_file(tmp_path / f"run-{sensitive}" / "model" / "model.safetensors")
        card = read_json(tmp_path / f"run-{sensitive}" / "data.json")
        assert card == read_json(tmp_path / "run-kept" / "data.json")
    for sensitive in ("shuffled", "deleted"):
        assert weights[sensitive].keys() == weights["kept"].keys()
        for name, tensor in weights["kept"].items():
            assert tensor.equal(weights[sensitive][name]), f"{name} differs with the sensitive column {sensitive}"


def test_evaluation_does_look_at_groups(tmp_path: Path) -> None:
    root = write_utkface(tmp_path / "data", "kept")
    train_run(build_experiment(recipe(root, "erm")), tmp_path / "run")
    result = evaluate_run(tmp_path / "run")
    assert set(result.by_attribute)
    deleted = write_utkface(tmp_path / "deleted", "deleted")
    with pytest.raises(DataError, match="race"):
        evaluate_run(tmp_path / "run", data_root=deleted)


def test_selection_with_groups_is_named_oracle(tmp_path: Path) -> None:
    root = write_utkface(tmp_path / "data", "kept")
    experiment = build_experiment(recipe(root, "erm", select="ORACLE_val_equalized_odds"))
    metrics = train_run(experiment, tmp_path / "run")
    assert metrics["oracle"] == "selection"
    deleted = write_utkface(tmp_path / "deleted", "deleted")
    with pytest.raises(DataError, match="race"):
        train_run(build_experiment(recipe(deleted, "erm", select="ORACLE_val_equalized_odds")), tmp_path / "another")
