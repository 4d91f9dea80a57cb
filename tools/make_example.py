"""Train the network of the drawn shortcut, and write what it predicts as the csv of ``levelhead audit --example``.

    python tools/make_example.py

Takes half a minute on one core and needs no data: recipe ``portraits_erm_shortcut``, seed 0, 1,000 test portraits.
Another processor may train slightly other weights, and a few predictions may then differ.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd

from levelhead.auditing.example import EXAMPLE, GROUP, LABEL, PREDICTION
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import load_experiment
from levelhead.runs.train import train_run

ROWS = 1000


def make(path: Path) -> None:
    """Write the table: hair colour, predicted hair colour, style."""
    experiment = load_experiment("portraits_erm_shortcut", [f"data.test_size={ROWS}"], seed=0)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        train_run(experiment, run)
        evaluate_run(run)
        made = pd.read_parquet(run / "predictions-test.parquet")
    short = {"dark hair": "dark", "light hair": "light"}
    table = pd.DataFrame(
        {LABEL: made["label"].map(short), PREDICTION: made["prediction"].map(short), GROUP: made["style"]}
    )
    table.to_csv(path, index=False, lineterminator="\n")


if __name__ == "__main__":
    make(EXAMPLE)
