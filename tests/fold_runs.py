"""Comparisons in folds whose runs take no training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import yaml

from levelhead.bench.grid import Cell, Failure, Grid
from levelhead.data.folds import Fold
from levelhead.runs.folder import digest
from levelhead.storage import write_json
from levelhead.training.work import CONFIG

ROWS = 200
BASE = {"data": {"name": "portraits", "train_size": 120, "validation_size": 40, "test_size": 40}}


def grid(folds: int | None = 10, seeds: tuple[int, ...] = (0, 1)) -> Grid:
    rows = {"erm": {"method.name": "erm"}, "dam": {"method.name": "dam"}}
    return Grid(BASE, rows, seeds, folds=folds)


def answers(cell: Cell, rows: np.ndarray) -> pd.DataFrame:
    """What a run might say of ``rows``: labels and groups are theirs, answers are the run's own."""
    rng = np.random.default_rng([cell.experiment.seed, *cell.row.encode(), cell.fold or 0])
    labels = np.where(rows % 2, "yes", "no")
    p = np.clip(0.5 + 0.3 * (rows % 2 - 0.5) + 0.2 * rng.standard_normal(len(rows)), 0.01, 0.99)
    table = {"label": labels, "prediction": np.where(p > 0.5, "yes", "no"), "probability_no": 1 - p}
    table |= {"probability_yes": p, "style": np.where(rows // 2 % 2, "a", "b"), "row": rows, "cluster": rows // 4}
    return pd.DataFrame(table)


def fake(cell: Cell) -> Failure | None:
    """Write what a trained and evaluated fold leaves, which takes no training."""
    data, folder = cell.experiment.data, cell.folder
    assert isinstance(data, Fold)
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(yaml.safe_dump(cell.experiment.to_dict(), sort_keys=False))
    answers(cell, data.rows("test").numpy()).to_parquet(folder / "predictions-test.parquet", index=False)
    write_json(folder / "environment.json", {"packages": {}})
    write_json(folder / "metrics.json", {})
    write_json(folder / "cost.json", {"seconds": 2.0})
    about = {"split": "test", "attribute": "style", "folds": data.folds, "fold": data.fold}
    about["pool"] = data.pool.fingerprint
    about["predictions_sha256"] = digest(folder / "predictions-test.parquet")
    write_json(folder / "evaluation-test.json", {"run": about})
    return None
