"""Recipes, run folders, checkpoints and models that earlier versions wrote are read, and give what they gave.

``tools/make_fixtures.py`` wrote them, with drawn pictures only; each folder is named for the version that did.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import levelhead as lh
from levelhead.bench.tables import collect
from levelhead.cli.app import app
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.folder import load_run
from levelhead.runs.recipe import build_experiment, read_recipe
from levelhead.runs.train import train_run
from levelhead.storage import read_json

VERSIONS = sorted((Path(__file__).parent / "fixtures").iterdir())


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what one version wrote."""
    return Path(shutil.copytree(request.param, tmp_path / "old"))


def test_old_recipes_are_read(old: Path) -> None:
    experiment = build_experiment(read_recipe(old / "recipe.yaml"))
    assert experiment.train.batch_size == 16


def test_an_old_run_gives_its_old_predictions(old: Path) -> None:
    folders = sorted((old / "runs").glob("*/seed-*"))
    assert len(folders) == 4
    for folder in folders:
        before = pd.read_parquet(folder / "predictions-test.parquet")
        evaluate_run(folder)
        pd.testing.assert_frame_equal(pd.read_parquet(folder / "predictions-test.parquet"), before, atol=1e-5)


def test_the_table_of_old_runs_has_the_old_values(old: Path) -> None:
    before = read_json(old / "table.json")["comparisons"][0]["methods"]
    after = collect([old / "runs"], "test", min_count=1)[0].compare("erm").to_dict()["methods"]
    assert after.keys() == before.keys()
    for method, metrics in before.items():
        for name, figure in metrics.items():
            assert after[method][name]["by_seed"] == pytest.approx(figure["by_seed"])


def test_an_old_grid_has_nothing_left_to_do(old: Path) -> None:
    before = {file: file.read_bytes() for file in (old / "runs").rglob("*") if file.is_file()}
    result = CliRunner().invoke(app, ["compare", "--resume", str(old / "runs")])
    assert result.exit_code == 0, result.output
    assert "4 runs (2 variants x 2 seeds)" in result.output
    assert "all of them done" in result.output
    assert {file: file.read_bytes() for file in before} == before


def test_an_old_interrupted_training_ends_in_the_weights_it_would_have_had(old: Path) -> None:
    cut = old / "interrupted"
    train_run(load_run(cut), cut, resume=True)
    expected = load_file(old / "whole.safetensors")
    found = load_file(cut / "model" / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        # Standardising removes a bias of queries and keys, and a softmax over keys one of keys: such a gradient is
        # rounding alone, of which AdamW makes whole steps, and the running mean follows the bias.
        near = 1e-3 if name.endswith(("key.bias", "query.bias", "key.mean", "query.mean")) else 1e-5
        assert torch.allclose(found[name], tensor, atol=near), name


@pytest.mark.parametrize("name", ["attached", "attached-all-rows", "attached-notebook"])
def test_old_models_give_their_old_logits(old: Path, name: str) -> None:
    example = load_file(old / f"{name}.safetensors")
    model = lh.from_pretrained(old / name).eval()
    with torch.no_grad():
        found = model(pixel_values=example["pictures"]).logits
    assert torch.allclose(found, example["logits"], atol=1e-6)
