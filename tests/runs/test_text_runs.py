"""From a recipe with texts and a frozen backbone to an evaluated, bounded, served run."""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, pipeline

import levelhead as lh
from levelhead.data.phrases import vocabulary
from levelhead.models.networks import load_backbone, load_tokenizer
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import Experiment, build_experiment
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.types import DataError
from words import save_tiny_backbone


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    return build_experiment(
        {
            "data": {"name": "phrases", "train_size": 96, "validation_size": 40, "test_size": 120},
            "method": {"name": "dam"},
            "model": {"backbone": str(save_tiny_backbone(tmp_path / "backbone", vocabulary()))},
            "train": {"epochs": 2, "batch_size": 16, "learning_rate": 1e-2, "device": "cpu", "keep_epochs": True},
        }
    )


def test_a_run_on_texts_from_train_to_pipeline(experiment: Experiment, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(experiment, run)
    cost = read_json(run / "cost.json")
    assert cost["trained_parameters"] < cost["parameters"]
    assert (run / "epochs" / "stage-0-epoch-0.safetensors").stat().st_size < 4.5 * cost["trained_parameters"] + 20_000
    shutil.rmtree(tmp_path / "backbone")  # the run folder holds all it needs
    load_backbone.cache_clear()
    load_tokenizer.cache_clear()
    evaluate_run(run)
    assert (run / "predictions-test-epochs.parquet").exists()
    model, tokenizer = lh.from_pretrained(run / "model"), AutoTokenizer.from_pretrained(run / "model")
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
    assert classify("the gardener was pleased .")[0]["label"] in ("annoyed", "pleased")
    assert "levelhead" in (run / "model" / "README.md").read_text()


def test_features_in_the_loop_end_in_the_same_predictions(experiment: Experiment, tmp_path: Path) -> None:
    train_run(experiment, tmp_path / "kept")
    train_run(replace(experiment, model=replace(experiment.model, features=False)), tmp_path / "looped")
    found = [read_json(tmp_path / run / "metrics.json")["validation"] for run in ("kept", "looped")]
    kept, looped = (one["val_loss"] for one in found)
    assert kept == pytest.approx(looped, abs=0.02)  # features are kept in half precision


@pytest.mark.parametrize("features", [True, False])
def test_a_run_does_not_go_on_with_another_backbone(experiment: Experiment, tmp_path: Path, features: bool) -> None:
    experiment = replace(experiment, model=replace(experiment.model, features=features))
    experiment = replace(experiment, train=replace(experiment.train, checkpoint_seconds=0.0))

    def stop(stage: str, done: int, total: int, text: str) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(experiment, tmp_path / "run", progress=stop)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backbone = load_backbone(experiment.model.backbone, None)
    with torch.no_grad():
        backbone.embeddings.word_embeddings.weight += 0.1
    try:
        with pytest.raises(DataError, match=r"pretrained backbone .* has changed"):
            train_run(experiment, tmp_path / "run", resume=True)
    finally:
        load_backbone.cache_clear()
    train_run(experiment, tmp_path / "run", resume=True)
