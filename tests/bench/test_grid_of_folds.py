"""Comparisons in folds: which runs there are, what a table makes of them, and what it refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from command_line import lines_of, wait_until
from fold_runs import BASE, ROWS, answers, fake, grid
from levelhead.bench.grid import Grid, make_cells, read_grid, remember, run_grid
from levelhead.bench.tables import collect
from levelhead.bench.tuning import tune
from levelhead.metrics.joint import joint
from levelhead.runs.folder import digest
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError, DataError


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("folds")
    assert not run_grid(make_cells(grid(), out), launch=fake)
    return out


def test_ten_folds_make_one_answer_for_every_row(done: Path) -> None:
    (group,) = collect([done], "test")
    assert {name: len(runs) for name, runs in group.rows().items()} == {"erm": 2, "dam": 2}
    comparison = group.compare("erm")
    assert comparison.rows == ROWS
    assert comparison.data["folds"] == 10
    assert "fold" not in comparison.data
    assert "): all 200 rows in 10 folds" in comparison.title
    assert comparison.cost["erm"]["seconds"] == 2.0  # of a run, not of ten
    assert comparison.areas is None
    cells = {(cell.row, cell.experiment.seed, cell.fold): cell for cell in make_cells(grid(), done)}
    of_dam = [cells["dam", 1, fold] for fold in range(10)]
    whole = pd.concat([answers(one, one.experiment.data.rows("test").numpy()) for one in of_dam]).sort_values("row")
    found = next(run for run in group.runs if run.experiment.name == "dam" and run.experiment.seed == 1)
    assert found.predictions["prediction"].tolist() == whole["prediction"].tolist()
    assert comparison.table.rows["dam"]["accuracy"].by_seed[1] == (whole["prediction"] == whole["label"]).mean()
    assert group.compare("erm", threshold="matched").positive_rate == pytest.approx(0.5, abs=0.1)


def test_options_are_chosen_by_all_folds(tmp_path: Path) -> None:
    rows = {f"jtt {weight}": {"method.name": "jtt", "method.upweight": weight} for weight in (2, 9)}
    cells = make_cells(Grid(BASE, rows, (0,), folds=3), tmp_path)
    assert not run_grid(cells, launch=fake)
    for cell in cells:  # the second variant is better in two folds of three, and worse in the first
        better = (cell.row == "jtt 9") == (cell.fold != 0)
        scores = {"selected_by": "val_loss", "history": [], "validation": {"val_accuracy": 0.8 if better else 0.7}}
        write_json(cell.folder / "metrics.json", scores)
        frame = answers(cell, cell.experiment.data.rows("validation").numpy())
        frame.to_parquet(cell.folder / "predictions-validation.parquet", index=False)
    (group,) = collect([tmp_path], "test", min_count=1)
    (choice,) = tune(group, "val_accuracy")[1]
    assert choice.chosen == "jtt 9"


def test_runs_come_seed_by_seed_and_fold_by_fold_so_that_whole_folds_are_done_first(tmp_path: Path) -> None:
    cells = make_cells(grid(3), tmp_path)
    order = [(cell.experiment.seed, cell.fold, cell.row) for cell in cells]
    assert order == [(seed, fold, row) for seed in (0, 1) for fold in range(3) for row in ("erm", "dam")]
    assert len({cell.folder for cell in cells}) == 12
    # Runs on disk are found by these names.
    assert cells[0].folder == tmp_path / "erm-ff58566b" / "seed-0-fold-0-of-3"
    assert remember(grid(3), tmp_path) == read_grid(tmp_path / "grid.yaml")
    for other in (4, None):
        with pytest.raises(ConfigError, match=r"other settings \('folds'"):
            remember(grid(other), tmp_path)


def test_a_seed_without_all_folds_is_left_out_and_named(tmp_path: Path) -> None:
    cells = make_cells(grid(3, (0,)), tmp_path)
    run_grid([cell for cell in cells if (cell.row, cell.fold) != ("dam", 2)], launch=fake)
    (group,) = collect([tmp_path], "test")
    assert list(group.rows()) == ["erm"]
    assert group.left_out == ("Left out, folds 2 are not evaluated: dam, seed 0.",)
    with pytest.raises(DataError, match="No seed of any variant has all its folds yet"):
        collect([next(cell.folder for cell in cells if cell.row == "dam")], "test")


def test_folds_of_other_rows_and_mixed_up_predictions_are_refused(tmp_path: Path) -> None:
    cells = make_cells(grid(3, (0,)), tmp_path)
    run_grid(cells, launch=fake)
    first, second = (cell.folder for cell in cells if cell.row == "erm" and cell.fold in (0, 1))
    file = second / "evaluation-test.json"
    kept = read_json(file)
    write_json(file, {"run": kept["run"] | {"pool": "other"}})
    with pytest.raises(DataError, match="holds folds of different rows"):
        collect([tmp_path], "test")
    # The predictions of fold 0 where those of fold 1 belong, with a digest that fits.
    (second / "predictions-test.parquet").write_bytes((first / "predictions-test.parquet").read_bytes())
    write_json(file, {"run": kept["run"] | {"predictions_sha256": digest(second / "predictions-test.parquet")}})
    with pytest.raises(DataError, match="do not hold every row once"):
        collect([tmp_path], "test")
    write_json(file, {"run": kept["run"]})
    with pytest.raises(DataError, match="was changed after it was evaluated"):
        collect([tmp_path], "test")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_folds_killed_with_signal_9_go_on_to_the_same_answers(tmp_path: Path) -> None:
    """The first fold is kept, and the second continues amid its training."""
    settings = "data.train_size=60 data.validation_size=60 data.test_size=60 model.hidden_size=16 model.layers=1 "
    settings += "model.heads=2 train.epochs=12 train.batch_size=8 train.threads=1 train.checkpoint_seconds=0"

    def compare(out: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "levelhead", "compare", "--data", "portraits", "--methods", "dam"]
        command += ["--folds", "2", "--seeds", "0", "--out", str(out), *(f"--set={one}" for one in settings.split())]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)

    def runs(out: Path) -> list[Path]:
        return [next(out.glob(f"*/seed-0-fold-{fold}-of-2"), out / "none") for fold in range(2)]

    process = compare(tmp_path / "cut")
    try:
        wait_until(lambda: lines_of(runs(tmp_path / "cut")[1] / "log.jsonl") > 5)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the comparison, and the run that it waits for
        process.wait()
    first, second = runs(tmp_path / "cut")
    assert (first / "evaluation-test.json").exists()
    assert not (second / "metrics.json").exists(), "the fold ended before it could be killed"
    kept = (first / "predictions-test.parquet").stat().st_mtime_ns
    assert compare(tmp_path / "cut").wait() == 0
    assert (first / "predictions-test.parquet").stat().st_mtime_ns == kept
    (group,) = collect([tmp_path / "cut"], "test")
    assert list(group.rows()) == ["dam"]
    # The second fold without a stop, in this process, because others take seconds to start.
    _, cell = make_cells(read_grid(tmp_path / "cut" / "grid.yaml"), tmp_path)
    train_run(cell.experiment, tmp_path / "whole")
    assert digest(second / "model" / "model.safetensors") == digest(tmp_path / "whole" / "model" / "model.safetensors")


def test_rows_of_one_cluster_are_drawn_together() -> None:
    rng = np.random.default_rng(0)
    people, each = 150, 4
    label = rng.integers(2, size=people).repeat(each)
    group = rng.integers(2, size=people).repeat(each)
    right = (rng.random(people) < 0.7).repeat(each)  # all four pictures of a person are right, or none
    other = (rng.random(people) < 0.7).repeat(each)
    predictions = {"erm": np.where(right, label, 1 - label)[None], "dam": np.where(other, label, 1 - label)[None]}
    clusters = np.arange(people).repeat(each)
    alone = joint(label, group, predictions, baseline="erm", positive=1)
    together = joint(label, group, predictions, baseline="erm", positive=1, clusters=clusters)
    same = joint(label, group, predictions, baseline="erm", positive=1, clusters=np.arange(people * each))

    def width(table: object, metric: str, what: str) -> float:
        estimate = getattr(table.rows["dam"][metric], what)  # type: ignore[attr-defined]
        return float(estimate.high - estimate.low)

    for metric in ("accuracy", "equalized_odds"):
        ratio = width(together, metric, "difference") / width(alone, metric, "difference")
        assert 1.7 < ratio < 2.3, metric  # four equal rows are worth one: twice the width
    assert 1.8 < width(together, "accuracy", "rows_only") / width(alone, "accuracy", "rows_only") < 2.2
    assert same.to_dict() == alone.to_dict()  # every row alone
