"""A user's own csv of short texts, runs on it, and the recipe of a short run on portraits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from levelhead.data.phrases import vocabulary
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from words import save_tiny_backbone

WORDS = sorted(word for word in vocabulary() if word.isalpha())
FOUR = ["north", "north", "south", "south"]
RECIPE: dict[str, Any] = {
    "data": {"name": "portraits", "train_size": 96, "validation_size": 120, "test_size": 300},
    "method": {"name": "erm"},
    "model": {"hidden_size": 16, "layers": 1, "heads": 2},
    "train": {"epochs": 1, "batch_size": 16, "device": "cpu", "threads": 1},
}


def write_own(folder: Path) -> Path:
    """Write a csv of 160 short texts, each with an id, a label and no group, and beside its folder a backbone."""
    generator = np.random.default_rng(0)
    texts = [" ".join([*generator.choice(WORDS, 6), "pleased" if row % 2 else "annoyed"]) for row in range(160)]
    table = {"letter": [f"L{row:03d}" for row in range(160)], "message": texts, "outcome": ["no", "yes"] * 80}
    folder.mkdir()
    pd.DataFrame(table).to_csv(folder / "letters.csv", index=False)
    save_tiny_backbone(folder.parent / "backbone", vocabulary())
    return folder


def letters(own: Path, times: int = 1, **columns: object) -> pd.DataFrame:
    """Write the csv of letters anew with more columns, so many times as long that groups have rows; return it."""
    frame = pd.concat([pd.read_csv(own / "letters.csv")] * times, ignore_index=True)
    if times > 1:
        frame["letter"] = [f"L{row:03d}" for row in range(len(frame))]
        frame["message"] = [f"{text} {row}" for row, text in enumerate(frame["message"])]
    frame = frame.assign(**columns)  # type: ignore[arg-type]
    frame.to_csv(own / "letters.csv", index=False)
    return frame


def recipe(own: Path, method: str = "dam", **data: object) -> dict[str, Any]:
    columns = {"folder": str(own), "file": "letters.csv", "text_column": "message", "target": "outcome"}
    return {
        "data": {"name": "text-csv", **columns, **data},
        "method": {"name": method},
        "model": {"backbone": str(own.parent / "backbone")},
        "train": {"epochs": 2, "batch_size": 16, "learning_rate": 1e-2, "device": "cpu"},
    }


def trained_on(own: Path, method: str = "erm", *, train: dict[str, Any] | None = None, **data: object) -> Path:
    """Train a run beside the folder of the data, and return its folder."""
    plan = recipe(own, method, **data)
    train_run(build_experiment(plan | {"train": plan["train"] | (train or {})}), own.parent / "run")
    return own.parent / "run"
