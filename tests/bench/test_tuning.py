"""Options chosen by labels on validation; what groups would have chosen stands beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_runs import answered, rows_of, write_run

from command_line import run
from levelhead.bench.comparison import LEAKING
from levelhead.bench.tables import RunSet, collect
from levelhead.bench.tuning import compare_tuned, tune
from levelhead.runs.folder import write_parquet
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError, DataError

DATA = {"name": "text-csv", "folder": "texts", "file": "rows.csv", "sensitive": "group"}


def variant(
    folder: Path, upweight: int | None, epochs: list[pd.DataFrame], history: list[dict[str, float]], **more: Any
) -> Path:
    """Write a run of JTT (None: of ERM) that kept the first of ``epochs``, which predicted alike on both splits."""
    method = {"name": "erm"} if upweight is None else {"name": "jtt", "upweight": upweight}
    train = {"keep_epochs": len(epochs) > 1, **more.pop("train", {})}
    several = epochs if len(epochs) > 1 else ()
    options: dict[str, Any] = {"data": {**DATA, **more.pop("data", {})}, "train": train, **more}
    one = write_run(folder, epochs[0], method, epochs=several, history=history, **options)
    write_parquet(one / "predictions-validation.parquet", epochs[0])
    return one


@pytest.fixture
def group(tmp_path: Path) -> RunSet:
    """ERM, and JTT with two weights, of which 9 has the better scores and the larger gap."""
    rows = rows_of()
    for place, upweight in enumerate((None, 2, 9)):
        scores = {"val_accuracy": 0.9, "val_loss": 0.3} if upweight == 9 else {"val_accuracy": 0.5, "val_loss": 0.7}
        for seed in (0, 1):
            frame = answered(rows, 0.2, 10 * place + seed)
            frame = frame.where((rows["group"] != "a") | (upweight != 9), answered(rows, 0.5, seed))
            variant(tmp_path / f"{place}-{seed}", upweight, [frame], [scores], seed=seed)
    (found,) = collect([tmp_path], "test")
    return found


@pytest.mark.parametrize("criterion", ["val_accuracy", "val_loss"])
def test_the_best_mean_score_is_chosen(group: RunSet, criterion: str) -> None:
    kept, (choice,) = tune(group, criterion)
    assert list(kept.rows()) == ["erm", "jtt (upweight=9)"]
    assert choice.chosen == "jtt (upweight=9)"
    assert choice.oracle == "jtt (upweight=2)"
    assert choice.candidates == ("jtt (upweight=2)", "jtt (upweight=9)")
    assert tune(replace(group, min_count=1000), criterion)[1][0].oracle is None  # there is no gap
    kept, comparison = compare_tuned(group, "erm", criterion)
    assert list(kept.rows()) == [*comparison.table.rows] == ["erm", "jtt (upweight=9)"]
    assert comparison.tuning is not None
    (told,) = comparison.tuning["choices"]
    assert (told["chosen"], told["candidates"]) == (choice.chosen, choice.candidates)
    assert told["chosen_gap"]["value"] == comparison.table.rows[choice.chosen]["equalized_odds"].estimate.value


@pytest.mark.usefixtures("group")
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, page, again = tmp_path / "table.json", tmp_path / "page.html", tmp_path / "again.html"
    assert run("table", tmp_path, "--tune", "val_loss", "--markdown", "--json", table, "--html", page) == 0
    assert "as released" not in page.read_text()
    assert "**Options**" in capsys.readouterr().out
    (comparison,) = read_json(table)["comparisons"]
    assert len(comparison["methods"]) == 2
    assert comparison["tuning"]["choices"][0]["method"] == "jtt"
    assert run("table", table, "--markdown") == run("report", table, "--html", again) == 0
    assert "**Options**" in capsys.readouterr().out
    assert all("ORACLE: by groups" in one.read_text() for one in (page, again))


def test_variants_of_the_baseline_are_chosen_among_first(tmp_path: Path) -> None:
    for epochs, accuracy in ((1, 0.6), (2, 0.8)):
        frame, scores = answered(rows_of(300), 0.1 * epochs, epochs), [{"val_accuracy": accuracy}]
        variant(tmp_path / f"erm{epochs}", None, [frame], scores, train={"epochs": epochs})
    (group,) = collect([tmp_path], "test")
    with pytest.raises(ConfigError, match="Several variants could be the baseline"):
        group.compare("erm")
    kept, comparison = compare_tuned(group, "erm", "val_accuracy")
    assert [one.folder.name for one in kept.runs] == ["erm2"]
    assert comparison.tuning is not None
    (choice,) = comparison.tuning["choices"]
    assert "epochs=2" in choice["chosen"]
    baseline = comparison.table.rows[comparison.table.baseline]
    assert choice["chosen_gap"]["value"] == pytest.approx(baseline["equalized_odds"].estimate.value)


def test_the_oracle_pick_is_by_the_attribute_of_the_table(tmp_path: Path) -> None:
    rows, found = rows_of(400).assign(team=np.random.default_rng(3).choice(["x", "y"], 400)), []
    texts = pd.concat([rows.assign(split=split) for split in ("train", "validation", "test")], ignore_index=True)
    (tmp_path / "texts").mkdir()
    texts.assign(text=[f"text {n}" for n in range(len(texts))]).to_csv(tmp_path / "texts" / "rows.csv", index=False)
    data = {"root": str(tmp_path), "split_column": "split"}
    for upweight, column, value in ((2, "group", "a"), (9, "team", "x")):  # whom each is wrong about
        frame = answered(rows, 0.0).where(rows[column] != value, answered(rows, 0.5))
        found.append(variant(tmp_path / f"jtt{upweight}", upweight, [frame], [{"val_accuracy": 0.5}], data=data))
        for split in ("test", "validation"):
            write_json(found[-1] / f"evaluation-{split}.json", {"run": {"attribute": "team"}, "by_attribute": {}})
    (choice,) = tune(collect(found, "test")[0], "val_accuracy")[1]
    assert choice.oracle == "jtt (upweight=2)"
    for one in found:
        file = one / "predictions-validation.parquet"
        write_parquet(file, pd.read_parquet(file).drop(columns=["group", "team"]))  # as training leaves it
    with pytest.raises(DataError, match="--split validation --join FILE --group 'team'`, as its test split"):
        tune(collect(found, "test")[0], "val_accuracy")
    for one in found:
        write_json(one / "evaluation-test.json", {"run": {"attribute": "group"}, "by_attribute": {}})
    (choice,) = tune(collect(found, "test")[0], "val_accuracy")[1]
    assert choice.oracle == "jtt (upweight=9)"


@pytest.mark.parametrize("selection", ["val_accuracy", "last", LEAKING])
def test_variants_are_ranked_by_the_epochs_that_are_selected(tmp_path: Path, selection: str) -> None:
    rows, found = rows_of(300), []
    for upweight, errors, accuracy in ((2, (0.3, 0.3), (0.7, 0.7)), (9, (0.5, 0.0), (0.5, 0.9))):
        epochs = [answered(rows, error, upweight + at) for at, error in enumerate(errors)]
        found.append(
            variant(tmp_path / f"jtt{upweight}", upweight, epochs, [{"val_accuracy": one} for one in accuracy])
        )
    (group,) = collect(found, "test")
    assert tune(group, "val_accuracy")[1][0].chosen == "jtt (upweight=2)"
    kept, (choice,) = tune(group, "val_accuracy", selection)
    assert list(kept.rows()) == [choice.chosen] == ["jtt (upweight=9)"]
    assert choice.oracle is None  # what the epochs predict on validation is not stored
    for one in found:
        epochs = pd.read_parquet(one / "predictions-test-epochs.parquet")
        write_parquet(one / "predictions-validation-epochs.parquet", epochs)
    assert tune(group, "val_accuracy", selection)[1][0].oracle == "jtt (upweight=9)"
    command = ["table", tmp_path, "--tune", "val_accuracy", "--select", selection, "--baseline", "jtt (upweight=9)"]
    assert run(*command, "--json", tmp_path / "t.json") == 0
    (table,) = read_json(tmp_path / "t.json")["comparisons"]
    assert table["tuning"]["choices"][0]["chosen"] == "jtt (upweight=9)"
