from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from command_line import lines_of, run, wait_until
from levelhead.bench.page import Comparisons
from levelhead.bench.tables import collect
from levelhead.models.networks import load_model
from levelhead.runs.card import model_card
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.finished import open_finished
from levelhead.runs.folder import load_run, require_finished, work_of
from levelhead.runs.page import run_page
from levelhead.runs.recipe import build_experiment, load_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json, write_text
from levelhead.types import ConfigError, DataError, LevelheadError

PORTRAITS = {"name": "portraits", "train_size": 64, "validation_size": 32, "test_size": 80, "correlation": 0.5}


def recipe(method: str = "erm", seed: int = 0, **train: Any) -> dict[str, Any]:
    return {
        "data": PORTRAITS,
        "method": {"name": method},
        "model": {"hidden_size": 16, "layers": 2, "heads": 2},
        "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "threads": 1, **train},
        "seed": seed,
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods, two seeds, trained and evaluated."""
    folder = tmp_path_factory.mktemp("runs")
    for method in ("erm", "dam"):
        for seed in (0, 1):
            train_run(build_experiment(recipe(method, seed)), folder / f"{method}-seed{seed}")
            evaluate_run(folder / f"{method}-seed{seed}")
    return folder


FILES = """
config.yaml environment.json data.json log.jsonl model predictions-validation.parquet metrics.json cost.json
predictions-test.parquet evaluation-test.json
"""


def test_a_run_folder_holds_what_it_says(finished: Path) -> None:
    folder = finished / "dam-seed0"
    assert {path.name for path in folder.iterdir()} >= {*FILES.split()}
    assert not (folder / "checkpoints").exists()
    validation = pd.read_parquet(folder / "predictions-validation.parquet")
    assert list(validation) == ["label", "prediction", "probability_dark hair", "probability_light hair"]
    assert len(validation) == 32
    test = pd.read_parquet(folder / "predictions-test.parquet")
    assert "style" in test
    cost = read_json(folder / "cost.json")
    assert cost["steps"] == 8
    assert cost["seconds"] > 0
    assert cost["process_peak_memory_mib"] > 10
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert {"loss", "task", "align"} <= rows[0].keys()
    metrics = read_json(folder / "metrics.json")
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    assert losses == [row["val_loss"] for row in metrics["history"]]
    right = [row[f"probability_{row['label']}"] for _, row in validation.iterrows()]
    assert metrics["validation"]["val_loss"] == pytest.approx(-np.log(right).mean(), rel=1e-4)
    assert read_json(folder / "evaluation-test.json")["metrics"]["accuracy"].keys() >= {"value", "low", "high", "n"}
    # The saved network gives the saved predictions.
    inputs = build_experiment(recipe("dam")).data.examples("test").inputs
    with torch.no_grad():
        logits = load_model(folder / "model")(**inputs.batch(torch.arange(80))).logits
    saved = test["probability_light hair"].to_numpy()
    assert logits.softmax(-1)[:, 1].numpy() == pytest.approx(saved, abs=1e-6)


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    folder = finished / "erm-seed0"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    (folder / "checkpoints").mkdir()  # as if it was killed right after its end
    (folder / "checkpoints" / "stage-0.safetensors").write_text("")
    train_run(build_experiment(recipe()), folder, resume=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not (folder / "checkpoints").exists()


def test_the_cost_of_an_attempt_with_another_recipe_is_no_part_of_a_run(tmp_path: Path) -> None:
    begun = {"parts": 1, "killed_parts": 0, "running": True, "seconds": 900.0, "energy_wh": 1.0}
    for name, epochs in (("same", 2), ("other", 3)):
        folder = tmp_path / name
        folder.mkdir()
        write_text(folder / "config.yaml", yaml.safe_dump(build_experiment(recipe(epochs=epochs)).recipe))
        write_json(folder / "cost-so-far.json", begun)
        work_of(folder).begin(build_experiment(recipe(epochs=2)).recipe, resume=False)
        assert (folder / "cost-so-far.json").exists() == (name == "same")


def test_a_first_mistake_does_not_spoil_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with pytest.raises(ConfigError, match="only 64 training rows"):
        train_run(build_experiment(recipe(batch_size=5000)), folder)
    assert list(tmp_path.iterdir()) == []
    folder.mkdir(parents=True)
    (folder / ".config.yaml.123.tmp").write_text("cut sh")  # what kill -9 leaves behind
    train_run(build_experiment(recipe()), folder)
    assert not (folder / ".config.yaml.123.tmp").exists()


def test_the_data_root_is_taken_as_it_is(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "my set #2"
    root.mkdir()
    evaluate_run(finished / "erm-seed0", data_root=root)
    assert load_run(finished / "erm-seed0", root).data.root == root


def test_one_seed_is_never_called_decided(finished: Path) -> None:
    (group,) = collect([finished / "erm-seed0", finished / "erm-seed1", finished / "dam-seed0"], "test")
    comparison = group.compare("erm")
    assert "test rows alone where there is one seed: dam" in comparison.sources
    (alone,) = collect([finished / "erm-seed0", finished / "dam-seed0"], "test")
    assert alone.compare("erm").sources == "test rows alone, one seed each"
    for metric in ("accuracy", "demographic_parity"):
        (difference,) = comparison.differences(metric)
        assert not difference.decided
        assert difference.estimate.reason is not None
        assert difference.estimate.reason.startswith(("one seed", "no interval"))


def test_an_unfinished_run_cannot_be_evaluated(tmp_path: Path) -> None:
    folder, said = tmp_path / "run", set()

    def stop(stage: str, done: int, total: int, text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(build_experiment(recipe()), folder, progress=stop)
    for refuse in (evaluate_run, require_finished, open_finished, model_card, run_page):
        with pytest.raises(DataError, match="not finished") as refused:
            refuse(folder)
        said.add(str(refused.value))
    (message,) = said  # all say the same, and the command in it does what it says
    assert run(*shlex.split(message.partition("first: levelhead ")[2])) == 0
    evaluate_run(folder)


def test_two_processes_cannot_work_in_one_folder(tmp_path: Path) -> None:
    def second(stage: str, done: int, total: int, text: str) -> None:
        train_run(build_experiment(recipe()), tmp_path / "run", resume=True)

    with pytest.raises(LevelheadError, match="Another process is working"):
        train_run(build_experiment(recipe()), tmp_path / "run", progress=second)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_killed_with_signal_9_resumes_to_the_same_weights(tmp_path: Path) -> None:
    settings = "data.train_size=128 data.test_size=32 data.validation_size=32 model.hidden_size=16 model.layers=2 "
    settings += "model.heads=2 train.epochs=20 train.batch_size=16 train.threads=1"
    often = [*settings.split(), "train.checkpoint_seconds=0"]
    command = [sys.executable, "-m", "levelhead", "train", "portraits_dam", "--out", str(tmp_path / "cut")]
    process = subprocess.Popen([*command, *(f"--set={one}" for one in often)], stdout=subprocess.DEVNULL)
    log = tmp_path / "cut" / "log.jsonl"
    try:
        wait_until(lambda: lines_of(log) > 20)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "cut" / "metrics.json").exists(), "the run ended before it could be killed"
    # The rest in this process, because others take seconds to start.
    train_run(load_experiment("portraits_dam", settings.split()), tmp_path / "whole")
    train_run(load_experiment("portraits_dam", often), tmp_path / "cut", resume=True)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_runs_become_one_row_a_method_and_its_options(finished: Path, tmp_path: Path) -> None:
    (group,) = collect([finished], "test", min_count=1)
    comparison = group.compare("erm")
    assert list(comparison.seeds) == ["erm", "dam"]
    assert comparison.seeds["dam"] == [0, 1]
    text = Comparisons.of(comparison).to_markdown()
    assert "| dam AT CHANCE |" in text
    assert r"portraits (correlation 0.5, train\_size 64" in text
    value = comparison.to_dict()
    assert value["rows"] == 80
    assert value["methods"]["dam"]["equalized_odds"]["estimate"]["n"] == 80
    assert str(finished) not in json.dumps(value, default=str)
    changed = tmp_path / "no-alignment"
    train_run(build_experiment(recipe() | {"method": {"name": "dam", "debias": {"alpha": 0.0}}}), changed)
    evaluate_run(changed)
    (group,) = collect([finished, changed], "test")
    assert set(group.compare("erm").seeds) == {"erm", "dam", "dam (debias.alpha=0.0)"}
