"""Finished and evaluated run folders with predictions of our own choice: no network is trained for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from levelhead.runs.folder import write_parquet
from levelhead.runs.recipe import build_experiment
from levelhead.storage import write_json


def rows_of(size: int = 400, groups: tuple[str, ...] = ("a", "b"), seed: int = 0) -> pd.DataFrame:
    """Return the columns label ("no", "yes") and group of this many rows."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"label": rng.choice(["no", "yes"], size), "group": rng.choice(list(groups), size)})


def answered(rows: pd.DataFrame, error: float = 0.2, seed: int = 0) -> pd.DataFrame:
    """Return the rows with predictions, of which a share ``error`` is wrong, and probabilities that fit them."""
    wrong = np.random.default_rng([seed, 1]).random(len(rows)) < error
    yes = (rows["label"] == "yes").to_numpy() ^ wrong
    frame = rows[["label"]].assign(prediction=np.where(yes, "yes", "no"))
    frame["probability_no"], frame["probability_yes"] = np.where(yes, 0.1, 0.9), np.where(yes, 0.9, 0.1)
    return frame.assign(**{name: rows[name] for name in rows if name != "label"})


def write_run(
    folder: Path,
    predictions: pd.DataFrame,
    method: str | dict[str, Any] = "erm",
    seed: int = 0,
    *,
    epochs: Sequence[pd.DataFrame] = (),
    history: Sequence[dict[str, float]] = ({},),
    **recipe: Any,
) -> Path:
    """Write the folder of a run that predicted the test split, and return it.

    ``epochs`` are the predictions of each epoch, where they were kept; ``history`` the scores of each epoch on
    validation, of which those of the first were kept.
    """
    data = {"name": "text-csv", "folder": "texts", "file": "rows.csv", "sensitive": "group"}
    plan = {"data": data, "method": method if isinstance(method, dict) else {"name": method}, "seed": seed, **recipe}
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(build_experiment(plan).to_dict(), sort_keys=False))
    write_parquet(folder / "predictions-test.parquet", predictions)
    write_json(folder / "evaluation-test.json", {"run": {"attribute": "group"}, "by_attribute": {"group": {}}})
    every = [{"stage": 0, "epoch": epoch, **scores} for epoch, scores in enumerate(history)]
    metrics = {"selected_by": "val_loss", "oracle": None, "validation": dict(history[0]), "history": every}
    write_json(folder / "metrics.json", metrics)
    if epochs:
        frames = [one.filter(like="probability_").assign(epoch=epoch) for epoch, one in enumerate(epochs)]
        write_parquet(folder / "predictions-test-epochs.parquet", pd.concat(frames, ignore_index=True))
    write_json(folder / "environment.json", {"device": "cpu", "cpu": "a processor", "threads": 1, "packages": {}})
    write_json(folder / "cost.json", {"seconds": 1.0, "parts": 1})
    return folder
