from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from typer.testing import CliRunner

from levelhead.bench.tables import collect
from levelhead.cli.app import app
from levelhead.models.networks import load_model
from levelhead.runs.card import model_card
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.finished import open_finished
from levelhead.runs.folder import load_run, prepare_folder, require_finished
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


def test_a_run_folder_holds_what_it_says(finished: Path) -> None:
    folder = finished / "dam-seed0"
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "config.yaml",
        "environment.json",
        "data.json",
        "log.jsonl",
        "model",
        "predictions-validation.parquet",
        "metrics.json",
        "cost.json",
        "predictions-test.parquet",
        "evaluation-test.json",
    }
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
    metrics = read_json(folder / "evaluation-test.json")["metrics"]
    assert set(metrics["accuracy"]) >= {"value", "low", "high", "n"}


def test_the_saved_network_gives_the_saved_predictions(finished: Path) -> None:
    folder = finished / "dam-seed1"
    experiment = build_experiment(recipe("dam", 1))
    inputs = experiment.data.examples("test").inputs
    with torch.no_grad():
        logits = load_model(folder / "model")(**inputs.batch(torch.arange(80))).logits
    saved = pd.read_parquet(folder / "predictions-test.parquet")["probability_light hair"]
    assert logits.softmax(-1)[:, 1].numpy() == pytest.approx(saved.to_numpy(), abs=1e-6)


def test_an_existing_run_folder_is_not_overwritten(finished: Path) -> None:
    with pytest.raises(ConfigError, match=r"erm-seed0 exists\. Add --resume"):
        train_run(build_experiment(recipe()), finished / "erm-seed0")


def test_resuming_a_finished_run_changes_nothing(finished: Path) -> None:
    folder = finished / "erm-seed0"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    train_run(build_experiment(recipe()), folder, resume=True)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_finished_run_keeps_no_checkpoints(finished: Path) -> None:
    folder = finished / "erm-seed0"
    assert not (folder / "checkpoints").exists()
    (folder / "checkpoints").mkdir()  # as if it was killed right after its end
    (folder / "checkpoints" / "stage-0.safetensors").write_text("")
    train_run(build_experiment(recipe()), folder, resume=True)
    assert not (folder / "checkpoints").exists()


def test_resuming_with_another_recipe_is_refused(finished: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.epochs: 2 then, 5 now"):
        train_run(build_experiment(recipe(epochs=5)), finished / "erm-seed0", resume=True)


def test_the_cost_of_an_attempt_with_another_recipe_is_no_part_of_a_run(tmp_path: Path) -> None:
    begun = {"parts": 1, "killed_parts": 0, "running": True, "seconds": 900.0, "energy_wh": 1.0, "cpu_energy_wh": 1.0}
    for name, epochs in (("same", 2), ("other", 3)):
        folder = tmp_path / name
        folder.mkdir()
        write_text(folder / "config.yaml", yaml.safe_dump(build_experiment(recipe(epochs=epochs)).recipe))
        write_json(folder / "cost-so-far.json", begun)
        prepare_folder(folder, build_experiment(recipe(epochs=2)), resume=False)
        assert (folder / "cost-so-far.json").exists() == (name == "same")


def test_a_first_mistake_does_not_spoil_the_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match="only 64 training rows"):
        train_run(build_experiment(recipe(batch_size=5000)), run)
    wrong = recipe()
    wrong["model"] = {**wrong["model"], "image_size": 32}
    with pytest.raises(ConfigError, match=r"pictures are 64x64 and model\.image_size is 32"):
        train_run(build_experiment(wrong), run)
    (run / ".config.yaml.123.tmp").write_text("cut sh")  # what kill -9 leaves behind
    train_run(build_experiment(recipe()), run)
    assert not (run / ".config.yaml.123.tmp").exists()


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
    with pytest.raises(DataError, match="not a run folder"):
        evaluate_run(tmp_path)
    run = tmp_path / "run"

    def stop(stage: str, done: int, total: int, text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(build_experiment(recipe()), run, progress=stop)
    with pytest.raises(DataError, match="not finished") as refused:
        evaluate_run(run)
    for refuse in (require_finished, open_finished, model_card, run_page):  # all say the same
        with pytest.raises(DataError) as again:
            refuse(run)
        assert str(again.value) == str(refused.value)
    words = shlex.split(str(refused.value).partition("first: levelhead ")[2])
    assert CliRunner().invoke(app, words).exit_code == 0  # the command in the message does what it says
    evaluate_run(run)


def test_two_processes_cannot_work_in_one_folder(tmp_path: Path) -> None:
    def second(stage: str, done: int, total: int, text: str) -> None:
        train_run(build_experiment(recipe()), tmp_path / "run", resume=True)

    with pytest.raises(LevelheadError, match="Another process is working"):
        train_run(build_experiment(recipe()), tmp_path / "run", progress=second)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_killed_with_signal_9_resumes_to_the_same_weights(tmp_path: Path) -> None:
    settings = ["data.train_size=128", "data.test_size=32", "data.validation_size=32", "model.hidden_size=16"]
    settings += ["model.layers=2", "model.heads=2", "train.epochs=20", "train.batch_size=16", "train.threads=1"]
    often = [*settings, "train.checkpoint_seconds=0"]
    command = [sys.executable, "-m", "levelhead", "train", "portraits_dam", "--out", str(tmp_path / "cut")]
    for setting in often:
        command += ["--set", setting]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    log = tmp_path / "cut" / "log.jsonl"
    try:
        for _ in range(600):
            if log.exists() and len(log.read_text().splitlines()) > 20:
                break
            time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "cut" / "metrics.json").exists(), "the run ended before it could be killed"
    # The rest in this process, because others take seconds to start.
    train_run(load_experiment("portraits_dam", settings), tmp_path / "whole")
    train_run(load_experiment("portraits_dam", often), tmp_path / "cut", resume=True)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_runs_become_one_row_a_method(finished: Path) -> None:
    (group,) = collect([finished], "test", min_count=1)
    comparison = group.compare("erm")
    assert list(comparison.seeds) == ["erm", "dam"]
    assert comparison.seeds["dam"] == [0, 1]
    text = comparison.report.to_markdown()
    assert "| dam AT CHANCE |" in text
    assert "portraits (correlation 0.5, train_size 64" in text
    value = comparison.to_dict()
    assert value["rows"] == 80
    assert value["methods"]["dam"]["equalized_odds"]["estimate"]["n"] == 80
    assert str(finished) not in json.dumps(value, default=str)


def test_options_and_training_differences_name_the_rows(finished: Path, tmp_path: Path) -> None:
    changed = recipe("dam")
    changed["method"] = {"name": "dam", "debias": {"alpha": 0.0}}
    train_run(build_experiment(changed), tmp_path / "no-alignment")
    evaluate_run(tmp_path / "no-alignment")
    (group,) = collect([finished, tmp_path / "no-alignment"], "test")
    assert set(group.compare("erm").seeds) == {"erm", "dam", "dam (debias.alpha=0.0)"}


def test_a_table_needs_evaluated_runs_and_a_baseline(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No run folder found"):
        collect([tmp_path], "test")
    with pytest.raises(DataError, match=r"not evaluated: run `levelhead evaluate .* --split validation`"):
        collect([finished], "validation")
    (group,) = collect([finished], "test")
    with pytest.raises(ConfigError, match="no run of the baseline 'jtt'"):
        group.compare("jtt")
