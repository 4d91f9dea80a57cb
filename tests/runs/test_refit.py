"""Other last layers for a finished run: the same as training again, kept features, the command, refusals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from own_csv import RECIPE
from safetensors.torch import load_file

from command_line import run, said
from levelhead.bench.grid import compare_methods, make_cells, remember, run_grid
from levelhead.bench.refitting import refit_cells
from levelhead.bench.tables import collect
from levelhead.data import DATASETS
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.finished import open_finished
from levelhead.runs.recipe import build_experiment
from levelhead.runs.refit import Refitting, refit_run
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.types import DataError
from tiny import slow_but

BASE = {key: value for key, value in RECIPE.items() if key != "method"}
Portraits = DATASETS["portraits"]
OPTIONS: dict[str, dict[str, Any]] = {
    "afr": {"holdout": 0},
    "identities": {"fewest_people": 5},
    "few-label": {"rows": 60},
    "bmft": {"rows": 60, "rate": 0.1},
    "dfr": {"smallest_group": 4},
    "decorrelation": {},
}


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A run that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def recipe(name: str) -> dict[str, Any]:
    return RECIPE | {"method": {"name": name, **OPTIONS[name]}}


@pytest.mark.parametrize("name", slow_but(["few-label"], OPTIONS))
def test_a_refit_gives_what_training_the_method_gives(
    name: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"train": 96, "validation": 120}
    of_three = {split: [f"{split} {row // 3}" for row in range(size)] for split, size in sizes.items()}
    monkeypatch.setattr(Portraits, "people", lambda self, split: of_three.get(split))
    experiment = build_experiment(recipe(name))
    refit_run(Refitting(finished), experiment, tmp_path / "refit")
    train_run(experiment, tmp_path / "trained")
    evaluate_run(tmp_path / "trained")
    found, expected = (load_file(tmp_path / kind / "model" / "model.safetensors") for kind in ("refit", "trained"))
    for weight, tensor in expected.items():
        assert torch.allclose(found[weight], tensor, atol=1e-4), weight
    frames = [pd.read_parquet(tmp_path / kind / "predictions-test.parquet") for kind in ("refit", "trained")]
    columns = list(frames[0].filter(like="probability_"))
    assert np.allclose(frames[0][columns], frames[1][columns], atol=1e-4)
    metrics = [read_json(tmp_path / kind / "metrics.json") for kind in ("refit", "trained")]
    for key in ("oracle", "told", "selected_by"):
        assert metrics[0][key] == metrics[1][key]
    cost = read_json(tmp_path / "refit" / "cost.json")
    assert cost["seconds"] > read_json(finished / "cost.json")["seconds"]
    assert cost["refit_seconds"] < 10
    assert cost["forward_passes"] == pytest.approx(read_json(tmp_path / "trained" / "cost.json")["forward_passes"])
    (group,) = collect([finished, tmp_path / "refit"], "test")
    label = group.compare("erm").label(list(group.compare("erm").table.rows)[1])
    marks = {"few-label": "FEW GROUPS 60", "bmft": "FEW GROUPS 60", "identities": "IDENTITIES", "afr": "afr"}
    assert marks.get(name, "ORACLE") in label


def test_what_the_last_layer_gets_is_computed_once_and_damage_is_noticed(copy: Path) -> None:
    kept = copy / "last-layer-validation.safetensors"
    kept.unlink(missing_ok=True)
    first = Refitting(copy).inputs("validation").features
    written = kept.stat().st_mtime_ns
    again = Refitting(copy)
    assert torch.equal(again.inputs("validation").features, first)
    assert kept.stat().st_mtime_ns == written
    logits = again.logits(again.model, "validation")
    expected = pd.read_parquet(copy / "predictions-validation.parquet").filter(like="probability_").to_numpy()
    assert np.allclose(logits.softmax(-1), expected, atol=1e-5)
    kept.write_bytes(kept.read_bytes()[:100])
    assert torch.equal(Refitting(copy).inputs("validation").features, first)


def test_rows_that_have_changed_since_the_training_are_not_refitted_on(copy: Path, tmp_path: Path) -> None:
    data = read_json(copy / "data.json")
    write_json(copy / "data.json", {**data, "validation": {**data["validation"], "fingerprint": "of other rows"}})
    with pytest.raises(DataError, match="validation rows have changed since"):
        refit_run(Refitting(copy), build_experiment(recipe("decorrelation")), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow  # two processes that import torch
@pytest.mark.long
def test_a_grid_refits_the_run_that_it_trains_anyway(tmp_path: Path) -> None:
    methods = ["few-label", "erm", "afr", "dam", "dam+few-label"]
    grid = compare_methods(BASE, methods, [0], {"method.rows": [60]})
    by_row = {cell.row: cell for cell in make_cells(remember(grid, tmp_path), tmp_path)}
    few, debiased = by_row["few-label, rows 60"], by_row["dam+few-label, rows 60"]
    assert few.refitted == by_row["erm"].folder
    assert debiased.refitted == by_row["dam"].folder
    assert by_row["afr"].refitted is None  # its first training leaves rows out
    wanted = [few, by_row["erm"]]
    assert run_grid(wanted) == []
    assert all(cell.done for cell in wanted)
    assert (by_row["erm"].folder / "last-layer-test.safetensors").exists()
    assert not (few.folder / "checkpoints").exists()


def test_a_grid_refits_a_run_that_an_earlier_comparison_left(tmp_path: Path) -> None:
    grid = compare_methods(BASE, ["few-label", "erm"], [0], {"method.rows": [60]})

    def refitted() -> Path | None:
        (few,) = make_cells(grid, tmp_path, rows=["few-label, rows 60"])
        return few.refitted

    assert refitted() is None
    (erm,) = make_cells(grid, tmp_path, rows=["erm"])
    erm.folder.mkdir(parents=True)
    (erm.folder / "config.yaml").write_text(yaml.safe_dump(erm.experiment.to_dict()))
    assert refitted() is None  # it is not finished
    (erm.folder / "evaluation-test.json").write_text("{}")
    assert refitted() == erm.folder


def test_the_command(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "groups_60.csv", tmp_path / "out"
    file.write_text("row,group\n" + "".join(f"{row},{'ab'[row % 3 == 0]}\n" for row in range(60)))
    options = ("--method", "afr,few-label", "--groups", file, "--try", "method.gamma=0", "--out", out)
    assert run("refit", finished, *options) == 0
    printed = said(capsys)
    assert "afr, gamma 0" in printed
    assert "Accuracy, change" in printed
    (folder,) = out.glob("few-label-*/seed-0")
    assert read_json(folder / "metrics.json")["told"] == "FEW GROUPS of groups_60.csv"
    assert yaml.safe_load((folder / "config.yaml").read_text())["method"]["groups"] == str(file)
    assert run("refit", finished, *options) == 0  # again: the same folders, written again


def test_the_file_of_groups_never_opens_the_sensitive_column(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "few.csv"
    file.write_text("row,group\n" + "".join(f"{row},{row % 2}\n" for row in range(40)))
    (cell,) = refit_cells(open_finished(copy), "few-label", tmp_path / "out", groups=file)
    monkeypatch.setattr(Portraits, "groups", lambda *_: pytest.fail("the sensitive column was opened"))
    refit_run(Refitting(copy), cell.experiment, cell.folder, evaluate=False)
    assert (cell.folder / "metrics.json").exists()
    assert not (cell.folder / "evaluation-test.json").exists()


def test_debiased_attention_stays_under_the_new_last_layer(tmp_path: Path) -> None:
    folder = tmp_path / "dam"
    train_run(build_experiment(RECIPE | {"method": {"name": "dam", "debias": {"alpha": 0.5}}}), folder)
    (cell,) = refit_cells(open_finished(folder), "decorrelation", tmp_path / "out")
    assert cell.row == "dam+decorrelation"
    assert cell.experiment.method.debias.alpha == 0.5  # type: ignore[attr-defined]
    refit_run(Refitting(folder), cell.experiment, cell.folder)
    before, after = (load_file(one / "model" / "model.safetensors") for one in (folder, cell.folder))
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[name])}
    assert changed == {"classifier.weight", "classifier.bias"}


def test_a_method_that_has_too_few_rows_is_named_and_the_others_are_shown(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ("refit", finished, "--try", "method.smallest_group=60", "--out", out, "--method")
    assert run(*command, "dfr") == 2
    assert "at least 60 are needed" in said(capsys)
    assert run(*command, "afr,dfr") == 0
    printed = said(capsys)
    assert "Left out dfr, smallest_group 60: The smallest class of a group has" in printed
    assert "Accuracy, change" in printed
    assert [one.parent.name.partition("-")[0] for one in out.glob("*/seed-0")] == ["afr"]
