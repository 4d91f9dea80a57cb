"""Options chosen by labels on validation; what groups would have chosen stands beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_runs import answered, rows_of, write_run

from levelhead.bench.comparison import LEAKING
from levelhead.bench.grid import compare_methods, make_cells
from levelhead.bench.tables import collect
from levelhead.bench.tuning import compare_tuned, tune
from levelhead.cli.app import main
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.folder import write_parquet
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError, DataError

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
    kept, comparison = compare_tuned(group, "erm", "val_accuracy")
    assert list(kept.rows()) == [*comparison.table.rows] == ["erm", "jtt, upweight 9"]
    assert comparison.tuning is not None
    (choice,) = comparison.tuning["choices"]
    assert (choice["chosen"], choice["candidates"]) == ("jtt, upweight 9", ("jtt, upweight 2", "jtt, upweight 9"))
    found = comparison.table.rows["jtt, upweight 9"]["equalized_odds"].estimate
    assert choice["chosen_gap"]["value"] == found.value


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
    for again in (["table", str(table), "--markdown"], ["report", str(table), "--html", str(tmp_path / "again.html")]):
        with pytest.raises(SystemExit) as ended:
            main(again)
        assert not ended.value.code
    assert "**Options**" in capsys.readouterr().out
    assert "Options chosen on validation rows" in (tmp_path / "again.html").read_text()


def test_variants_of_the_baseline_are_chosen_among_first(tmp_path: Path) -> None:
    rows = rows_of(300)
    for name, epochs, accuracy in (("erm1", 1, 0.6), ("erm2", 2, 0.8)):
        run = write_run(
            tmp_path / name, answered(rows, 0.1 * epochs, epochs), {"name": "erm"}, train={"epochs": epochs}
        )
        write_parquet(run / "predictions-validation.parquet", answered(rows, 0.1 * epochs, epochs))
        history = [{"stage": 0, "epoch": 0, "val_accuracy": accuracy}]
        metrics = {"selected_by": "val_loss", "validation": {"val_accuracy": accuracy}, "history": history}
        write_json(run / "metrics.json", metrics)
    (group,) = collect([tmp_path], "test")
    with pytest.raises(ConfigError, match="Several variants could be the baseline"):
        group.compare("erm")
    kept, comparison = compare_tuned(group, "erm", "val_accuracy")
    assert [run.folder.name for run in kept.runs] == ["erm2"]
    assert comparison.tuning is not None
    assert "epochs=2" in comparison.tuning["choices"][0]["chosen"]
    assert comparison.tuning["choices"][0]["chosen_gap"]["value"] == pytest.approx(
        comparison.table.rows[comparison.table.baseline]["equalized_odds"].estimate.value
    )


def test_the_smallest_loss_chooses_the_variant(runs: Path) -> None:
    (group,) = collect([runs], "test")
    for run in group.runs:
        metrics = read_json(run.folder / "metrics.json")
        metrics["validation"]["val_loss"] = 0.3 if getattr(run.experiment.method, "upweight", None) == 9 else 0.7
        write_json(run.folder / "metrics.json", metrics)
    assert list(tune(group, "val_loss")[0].rows()) == ["erm", "jtt, upweight 9"]


def variant(folder: Path, upweight: int, epochs: list[pd.DataFrame], accuracy: list[float], **data: Any) -> Path:
    """Write a run of JTT that kept the first of ``epochs``, which predicted alike on validation and test."""
    data = {"name": "text-csv", "folder": "texts", "file": "rows.csv", "sensitive": "group", **data}
    run = write_run(
        folder, epochs[0], {"name": "jtt", "upweight": upweight}, data=data, train={"keep_epochs": len(epochs) > 1}
    )
    write_parquet(run / "predictions-validation.parquet", epochs[0])
    history = [{"stage": 0, "epoch": at, "val_accuracy": one} for at, one in enumerate(accuracy)]
    metrics = {"selected_by": "val_loss", "validation": {"val_accuracy": accuracy[0]}, "history": history}
    write_json(run / "metrics.json", metrics)
    if len(epochs) > 1:
        columns = ["probability_no", "probability_yes"]
        every = pd.concat([one[columns].assign(epoch=at) for at, one in enumerate(epochs)])
        write_parquet(run / "predictions-test-epochs.parquet", every)
    return run


def test_the_oracle_pick_is_by_the_attribute_of_the_table(tmp_path: Path) -> None:
    rows, found = rows_of(400).assign(team=np.random.default_rng(3).choice(["x", "y"], 400)), []
    texts = pd.concat([rows.assign(split=split) for split in ("train", "validation", "test")], ignore_index=True)
    (tmp_path / "texts").mkdir()
    texts.assign(text=[f"text {n}" for n in range(len(texts))]).to_csv(tmp_path / "texts" / "rows.csv", index=False)
    for upweight, column, value in ((2, "group", "a"), (9, "team", "x")):  # whom each is wrong about
        right, wrong = answered(rows, 0.0), answered(rows, 0.5)
        frame = right.where(rows[column] != value, wrong)
        found.append(
            variant(tmp_path / f"jtt{upweight}", upweight, [frame], [0.5], root=str(tmp_path), split_column="split")
        )
        for split in ("test", "validation"):
            write_json(found[-1] / f"evaluation-{split}.json", {"run": {"attribute": "team"}, "by_attribute": {}})
    (choice,) = tune(collect(found, "test")[0], "val_accuracy")[1]
    assert choice.oracle == "jtt (upweight=2)"
    for run in found:
        file = run / "predictions-validation.parquet"
        write_parquet(file, pd.read_parquet(file).drop(columns=["group", "team"]))  # as training leaves it
    with pytest.raises(DataError, match="--split validation --join FILE --group 'team'`, as its test split"):
        tune(collect(found, "test")[0], "val_accuracy")
    for run in found:
        write_json(run / "evaluation-test.json", {"run": {"attribute": "group"}, "by_attribute": {}})
    (choice,) = tune(collect(found, "test")[0], "val_accuracy")[1]
    assert choice.oracle == "jtt (upweight=9)"


@pytest.mark.parametrize("selection", ["val_accuracy", "last", LEAKING])
def test_variants_are_ranked_by_the_epochs_that_are_selected(tmp_path: Path, selection: str) -> None:
    rows = rows_of(300)
    found = [
        variant(tmp_path / "jtt2", 2, [answered(rows, 0.3, 1), answered(rows, 0.3, 2)], [0.7, 0.7]),
        variant(tmp_path / "jtt9", 9, [answered(rows, 0.5, 3), answered(rows, 0.0, 4)], [0.5, 0.9]),
    ]
    (group,) = collect(found, "test")
    assert tune(group, "val_accuracy")[1][0].chosen == "jtt (upweight=2)"
    kept, (choice,) = tune(group, "val_accuracy", selection)
    assert list(kept.rows()) == [choice.chosen] == ["jtt (upweight=9)"]
    assert choice.oracle is None  # what the epochs predict on validation is not stored
    for run in found:
        epochs = pd.read_parquet(run / "predictions-test-epochs.parquet")
        write_parquet(run / "predictions-validation-epochs.parquet", epochs)
    assert tune(group, "val_accuracy", selection)[1][0].oracle == "jtt (upweight=9)"
    command = ["table", str(tmp_path), "--tune", "val_accuracy", "--select", selection]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--baseline", "jtt (upweight=9)", "--json", str(tmp_path / "t.json")])
    assert not ended.value.code
    (table,) = read_json(tmp_path / "t.json")["comparisons"]
    assert table["tuning"]["choices"][0]["chosen"] == "jtt (upweight=9)"
