"""Options chosen by labels on validation; what groups would have chosen stands beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from levelhead.bench.grid import compare_methods, make_cells
from levelhead.bench.tables import collect
from levelhead.bench.tuning import choices_table, tune
from levelhead.cli.app import main
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError

BASE: dict[str, Any] = {
    "data": {"name": "portraits", "train_size": 64, "validation_size": 32, "test_size": 80, "correlation": 0.5},
    "model": {"hidden_size": 16, "layers": 2, "heads": 2},
    "train": {"epochs": 2, "batch_size": 16, "device": "cpu", "threads": 1},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ERM, and JTT with two weights."""
    folder = tmp_path_factory.mktemp("tuning")
    for cell in make_cells(compare_methods(BASE, ["erm", "jtt"], [0, 1], {"method.upweight": [2, 9]}), folder):
        train_run(cell.experiment, cell.folder)
        evaluate_run(cell.folder)
    return folder


def test_the_best_mean_score_is_chosen(runs: Path) -> None:
    (group,) = collect([runs], "test", min_count=1)
    for wanted in (2, 9):
        for run in group.runs:
            metrics = read_json(run.folder / "metrics.json")
            upweight = getattr(run.experiment.method, "upweight", None)
            metrics["validation"]["val_accuracy"] = 0.9 if upweight == wanted else 0.5
            write_json(run.folder / "metrics.json", metrics)
        kept, choices = tune(group, "val_accuracy")
        assert tune(replace(group, min_count=1000), "val_accuracy")[1][0].oracle is None  # there is no gap
        assert list(kept.rows()) == ["erm", f"jtt, upweight {wanted}"]
        (choice,) = choices
        assert choice.chosen == f"jtt, upweight {wanted}"
        assert choice.oracle in choice.candidates == ("jtt, upweight 2", "jtt, upweight 9")
    table = choices_table(choices, group.compare("erm"), "val_accuracy")
    assert "ORACLE" in str(table["columns"])


def test_only_label_only_rules_choose(runs: Path) -> None:
    (group,) = collect([runs], "test")
    with pytest.raises(ConfigError, match="cannot be chosen by 'ORACLE_val_equalized_odds'"):
        tune(group, "ORACLE_val_equalized_odds")


def test_from_the_command_line(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, page = tmp_path / "table.json", tmp_path / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["table", str(runs), "--tune", "val_loss", "--markdown", "--json", str(table), "--html", str(page)])
    assert ended.value.code == 0
    assert "Options chosen on validation rows" in page.read_text()
    assert "as released" not in page.read_text()
    assert "**Options**" in capsys.readouterr().out
    (comparison,) = read_json(tmp_path / "table.json")["comparisons"]
    assert len(comparison["methods"]) == 2
    assert comparison["tuning"]["choices"][0]["method"] == "jtt"


@pytest.mark.parametrize("sign", [1, -1])
def test_losses_of_old_files_and_of_new_ones_choose_the_same_variant(runs: Path, sign: int) -> None:
    (group,) = collect([runs], "test")
    for run in group.runs:
        metrics = read_json(run.folder / "metrics.json")
        metrics["validation"]["val_loss"] = sign * (
            0.3 if getattr(run.experiment.method, "upweight", None) == 9 else 0.7
        )
        write_json(run.folder / "metrics.json", metrics)
    assert list(tune(group, "val_loss")[0].rows()) == ["erm", "jtt, upweight 9"]
