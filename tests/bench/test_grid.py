"""Grids: cells, resuming, failures; selection of epochs and thresholds from the same runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from levelhead.bench.grid import read_grid, run_grid
from levelhead.bench.tables import LEAKING, collect
from levelhead.cli import main
from levelhead.metrics import Counts, equalized_odds
from levelhead.runs import evaluate_run, train_run
from levelhead.types import ConfigError, DataError

BASE = {
    "data": {"name": "portraits", "train_size": 64, "validation_size": 32, "test_size": 80, "correlation": 0.5},
    "method": {"name": "erm"},
    "model": {"hidden_size": 16, "layers": 2, "heads": 2},
    "train": {"batch_size": 16, "device": "cpu", "threads": 1},
}
GRID = {
    "base": "base",
    "seeds": [0, 1],
    "set": {"train.epochs": 3, "train.keep_epochs": True},
    "rows": {
        "ERM": {},
        "balanced ERM": {"method.name": "balanced"},
        "DAM, small steps": {"method.name": "dam", "train.learning_rate": 5e-5},
    },
}


def write_grid(folder: Path, **changes: object) -> Path:
    (folder / "base.yaml").write_text(yaml.safe_dump(BASE))
    (folder / "grid.yaml").write_text(yaml.safe_dump({**GRID, **changes}, sort_keys=False))
    return folder / "grid.yaml"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole grid; in this process, because starting others takes seconds each."""
    folder = tmp_path_factory.mktemp("grid")
    for cell in read_grid(write_grid(folder), folder / "runs"):
        train_run(cell.experiment, cell.folder)
        evaluate_run(cell.folder)
    return folder


def test_cells_are_validated_and_ordered_by_seed(tmp_path: Path) -> None:
    cells = read_grid(write_grid(tmp_path), tmp_path / "runs", settings=["train.epochs=2"])
    assert [(cell.row, cell.experiment.seed) for cell in cells[:4]] == [
        ("ERM", 0),
        ("balanced ERM", 0),
        ("DAM, small steps", 0),
        ("ERM", 1),
    ]
    assert cells[2].experiment.train.learning_rate == 5e-5
    assert cells[2].experiment.train.epochs == 2
    assert cells[2].folder == tmp_path / "runs" / "dam-small-steps" / "seed-0"
    assert [cell.row for cell in read_grid(tmp_path / "grid.yaml", tmp_path, rows=["ERM"], seeds=[7])] == ["ERM"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": [1]}, "unknown key 'seed'"),
        ({"rows": {"a": {"train.epoch": 3}}}, r"row 'a': Unknown key train.epoch. Did you mean 'epochs'"),
        ({"rows": {"a b": {}, "a, b": {}}}, "differ in punctuation"),
        ({"seeds": []}, "no seeds"),
        ({"base": "bse"}, "no recipe 'bse'"),
        ({"rows": ["ERM"]}, "needs base"),
    ],
)
def test_mistakes_are_found_before_any_run(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_grid(write_grid(tmp_path, **changes), tmp_path / "runs")


def test_a_finished_grid_is_left_alone(finished: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in (finished / "runs").rglob("*") if file.is_file()}
    assert run_grid(read_grid(finished / "grid.yaml", finished / "runs")) == []
    assert before == {file: file.stat().st_mtime_ns for file in (finished / "runs").rglob("*") if file.is_file()}


def test_rows_have_the_names_of_the_grid(finished: Path) -> None:
    (group,) = collect([finished / "runs"], "test")
    assert list(group.compare("ERM").seeds) == ["ERM", "balanced ERM", "DAM, small steps"]


def test_every_epoch_can_be_chosen_afterwards(finished: Path) -> None:
    run = finished / "runs" / "erm" / "seed-0"
    frame = pd.read_parquet(run / "predictions-test-epochs.parquet")
    assert frame.groupby("epoch").size().to_dict() == {0: 80, 1: 80, 2: 80}
    (group,) = collect([finished / "runs"], "test")
    kept, chosen = group.compare("ERM"), group.compare("ERM", selection="val_loss")
    for name, metrics in kept.table.rows.items():  # the runs' own rule, applied again, keeps the same epochs
        for metric, row in metrics.items():
            assert row.by_seed == chosen.table.rows[name][metric].by_seed
    assert group.compare("ERM", selection="last").title.endswith("epochs by last")


def test_the_leaking_rule_keeps_the_smallest_gap_and_is_flagged(finished: Path) -> None:
    (group,) = collect([finished / "runs"], "test")
    leaking = group.compare("ERM", selection=LEAKING)
    assert leaking.label("ERM") == "ERM LEAKING"
    assert "LEAKING" in leaking.markdown()
    frame = pd.read_parquet(finished / "runs" / "erm" / "seed-1" / "predictions-test.parquet")
    epochs = pd.read_parquet(finished / "runs" / "erm" / "seed-1" / "predictions-test-epochs.parquet")
    gaps = [
        float(
            equalized_odds(
                Counts.from_rows(
                    frame["label"].to_numpy(),
                    np.where(part["probability_light hair"] > part["probability_dark hair"], "light hair", "dark hair"),
                    frame["style"].to_numpy(),
                ).table
            )
        )
        for _, part in epochs.groupby("epoch")
    ]
    assert leaking.table.rows["ERM"]["equalized_odds"].by_seed[1] == pytest.approx(min(gaps))


def test_matched_thresholds_call_the_same_number_positive(finished: Path) -> None:
    (group,) = collect([finished / "runs"], "test")
    own, matched = group.compare("ERM"), group.compare("ERM", threshold="matched")
    assert matched.positive_rate is not None
    assert "as ERM does" in matched.title
    predictions = pd.read_parquet(finished / "runs" / "erm" / "seed-0" / "predictions-test.parquet")["prediction"]
    other = pd.read_parquet(finished / "runs" / "erm" / "seed-1" / "predictions-test.parquet")["prediction"]
    light = [(one == "light hair").mean() for one in (predictions, other)]
    assert matched.positive_rate == pytest.approx(np.mean(light))
    # The order of the scores is the same at both thresholds.
    assert own.areas is not None
    assert own.areas == matched.areas
    assert set(own.areas["ERM"]) == {"all", "angular", "round"}
    assert own.to_dict()["area_under_roc"]["balanced ERM"]["all"]["difference"]["n"] == 80


def test_a_run_without_epochs_says_what_to_do(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text((finished / "grid.yaml").read_text())
    (tmp_path / "base.yaml").write_text((finished / "base.yaml").read_text())
    cells = read_grid(
        tmp_path / "grid.yaml", tmp_path / "runs", seeds=[0], rows=["ERM"], settings=["train.keep_epochs=false"]
    )
    train_run(cells[0].experiment, cells[0].folder)
    evaluate_run(cells[0].folder)
    (group,) = collect([tmp_path / "runs"], "test")
    with pytest.raises(DataError, match=r"Train with train.keep_epochs=true"):
        group.compare("ERM", selection=LEAKING)
    (group,) = collect([finished / "runs"], "test")
    with pytest.raises(ConfigError, match=r"Unknown selection 'val_los'\. Did you mean 'val_loss'"):
        group.compare("ERM", selection="val_los")


def test_a_failed_cell_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"ERM": {}, "too fast": {"train.learning_rate": 1e30}}
    write_grid(tmp_path, rows=rows, seeds=[0])
    with pytest.raises(SystemExit) as ended:
        main(["grid", str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "runs")])
    assert ended.value.code == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "too-fast" in printed
    assert "Lower train.learning_rate" in printed
    assert "1 of 2 runs failed" in printed
    assert (tmp_path / "runs" / "erm" / "seed-0" / "evaluation-test.json").exists()


def test_a_killed_grid_goes_on(tmp_path: Path) -> None:
    grid = write_grid(tmp_path, seeds=[0], rows={"ERM": {}, "balanced": {"method.name": "balanced"}})
    command = [sys.executable, "-m", "levelhead", "grid", str(grid), "--out", str(tmp_path / "runs")]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    first = tmp_path / "runs" / "erm" / "seed-0" / "evaluation-test.json"
    for _ in range(2400):
        if first.exists():
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    written = first.stat().st_mtime_ns
    cells = read_grid(grid, tmp_path / "runs")
    assert run_grid(cells) == []
    assert all(cell.done for cell in cells)
    assert first.stat().st_mtime_ns == written


def test_unfinished_runs_are_left_out_of_a_table(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(finished / "runs" / "erm" / "seed-0", tmp_path / "erm" / "seed-0")
    begun = tmp_path / "erm" / "seed-1"
    begun.mkdir()
    (begun / "config.yaml").write_text((finished / "runs" / "erm" / "seed-1" / "config.yaml").read_text())
    (group,) = collect([tmp_path], "test")
    assert group.compare("ERM").seeds == {"ERM": [0]}
    assert f"left out, no evaluation of the test split: {begun}" in caplog.text
    with pytest.raises(DataError, match="not finished"):
        collect([begun], "test")
