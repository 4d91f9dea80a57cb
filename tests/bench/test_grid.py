"""Grids: cells, resuming, failures; selection of epochs and thresholds from the same runs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from levelhead.bench.checks import check_cells
from levelhead.bench.comparison import LEAKING
from levelhead.bench.grid import (
    Cell,
    Failure,
    LocalProcesses,
    compare_methods,
    comparison_grid,
    complete,
    make_cells,
    parse_methods,
    parse_options,
    parse_seeds,
    read_grid,
    remember,
    run_grid,
)
from levelhead.bench.tables import collect
from levelhead.cli.app import main
from levelhead.metrics import Counts, equalized_odds
from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.train import train_run
from levelhead.storage import read_json, write_json
from levelhead.types import ConfigError, DataError

BASE: dict[str, Any] = {
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


def cells_of(file: Path, **chosen: Any) -> list[Cell]:
    return make_cells(read_grid(file), file.parent / "runs", **chosen)


def folder_of(root: Path, row: str, seed: int = 0) -> Path:
    (folder,) = root.glob(f"runs/{row}-????????/seed-{seed}")
    return folder


def write_grid(folder: Path, **changes: object) -> Path:
    (folder / "base.yaml").write_text(yaml.safe_dump(BASE))
    (folder / "grid.yaml").write_text(yaml.safe_dump({**GRID, **changes}, sort_keys=False))
    return folder / "grid.yaml"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole grid; in this process, because starting others takes seconds each."""
    folder = tmp_path_factory.mktemp("grid")
    for cell in cells_of(write_grid(folder)):
        complete(cell.experiment, cell.folder)
    return folder


def test_cells_are_validated_and_ordered_by_seed(tmp_path: Path) -> None:
    cells = cells_of(write_grid(tmp_path), settings=["train.epochs=2"])
    assert [(cell.row, cell.experiment.seed) for cell in cells[:4]] == [
        ("ERM", 0),
        ("balanced ERM", 0),
        ("DAM, small steps", 0),
        ("ERM", 1),
    ]
    assert cells[2].experiment.train.learning_rate == 5e-5
    assert cells[2].experiment.train.epochs == 2
    assert cells[2].folder.name == "seed-0"
    assert cells[2].folder.parent.name.startswith("dam-small-steps-")
    assert cells[2].folder.parent == cells[5].folder.parent
    assert [cell.row for cell in cells_of(tmp_path / "grid.yaml", rows=["ERM"], seeds=[7])] == ["ERM"]
    # Other settings are another folder; where the data lies does not matter.
    assert cells_of(tmp_path / "grid.yaml")[2].folder.parent != cells[2].folder.parent
    moved = cells_of(tmp_path / "grid.yaml", settings=["train.epochs=2"], data_root=tmp_path)
    assert [cell.folder for cell in moved] == [cell.folder for cell in cells]
    with pytest.raises(ConfigError, match=r"no variant 'EMR'. Did you mean 'ERM'"):
        cells_of(tmp_path / "grid.yaml", rows=["EMR"])


def test_variants_are_named_in_any_script(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))
    names = ["ä", "ö", "größe", "文", "a_b", "a"]
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump({**GRID, "rows": {name: {} for name in names}}))
    folders = [cell.folder.parent.name.rpartition("-")[0] for cell in cells_of(tmp_path / "grid.yaml", seeds=[0])]
    assert sorted(folders) == sorted(["ä", "ö", "größe", "文", "a-b", "a"])


def test_two_variants_that_are_the_same_run_are_refused_before_any(tmp_path: Path) -> None:
    file = write_grid(tmp_path, rows={"a": {}, "b": {"train.weight_decay": 0.01}, "c": {"train.epochs": 5}})
    with pytest.raises(ConfigError, match="The variants 'a' and 'b' are the same run"):
        check_cells(cells_of(file))
    check_cells(cells_of(file, rows=["a", "c"]))


def test_a_finished_grid_is_left_alone(finished: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in (finished / "runs").rglob("*") if file.is_file()}
    assert run_grid(cells_of(finished / "grid.yaml")) == []
    assert before == {file: file.stat().st_mtime_ns for file in (finished / "runs").rglob("*") if file.is_file()}


def test_rows_have_the_names_of_the_grid(finished: Path) -> None:
    (group,) = collect([finished / "runs"], "test")
    assert list(group.compare("ERM").seeds) == ["ERM", "balanced ERM", "DAM, small steps"]


def test_every_epoch_can_be_chosen_afterwards(finished: Path) -> None:
    run = folder_of(finished, "erm")
    frame = pd.read_parquet(run / "predictions-test-epochs.parquet")
    assert frame.groupby("epoch").size().to_dict() == {0: 80, 1: 80, 2: 80}
    assert not list(run.glob("*epochs")), "weights of every epoch would fill the disk"
    (group,) = collect([finished / "runs"], "test", min_count=1)
    kept, chosen = group.compare("ERM"), group.compare("ERM", selection="val_loss")
    for name, metrics in kept.table.rows.items():  # the runs' own rule, applied again, keeps the same epochs
        for metric, row in metrics.items():
            assert row.by_seed == chosen.table.rows[name][metric].by_seed
    assert group.compare("ERM", selection="last").title.endswith("epochs by last")


def test_the_leaking_rule_keeps_the_smallest_gap_and_is_flagged(finished: Path) -> None:
    (group,) = collect([finished / "runs"], "test", min_count=1)
    leaking = group.compare("ERM", selection=LEAKING)
    assert leaking.label("ERM") == "ERM LEAKING AT CHANCE"
    assert "LEAKING" in leaking.report.to_markdown()
    frame = pd.read_parquet(folder_of(finished, "erm", 1) / "predictions-test.parquet")
    epochs = pd.read_parquet(folder_of(finished, "erm", 1) / "predictions-test-epochs.parquet")
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
    predictions = pd.read_parquet(folder_of(finished, "erm") / "predictions-test.parquet")["prediction"]
    other = pd.read_parquet(folder_of(finished, "erm", 1) / "predictions-test.parquet")["prediction"]
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
    cells = cells_of(tmp_path / "grid.yaml", seeds=[0], rows=["ERM"], settings=["train.keep_epochs=false"])
    train_run(cells[0].experiment, cells[0].folder)
    evaluate_run(cells[0].folder)
    (group,) = collect([tmp_path / "runs"], "test")
    with pytest.raises(DataError, match=r"no predictions of each epoch .* Train with train.keep_epochs=true"):
        group.compare("ERM", selection=LEAKING)
    (group,) = collect([finished / "runs"], "test")
    with pytest.raises(ConfigError, match=r"Unknown selection 'val_los'\. Did you mean 'val_loss'"):
        group.compare("ERM", selection="val_los")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Train in this process the variants that are added to the set, because starting another takes seconds."""
    names: set[str] = set()
    start = LocalProcesses.__call__

    def train(self: LocalProcesses, cell: Cell) -> Failure | None:
        if cell.row not in names:
            return start(self, cell)
        train_run(cell.experiment, cell.folder, resume=True)
        evaluate_run(cell.folder)
        return None

    monkeypatch.setattr(LocalProcesses, "__call__", train)
    return names


def test_the_next_process_starts_while_one_works_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[str]] = []

    def start(folder: str | None, threads: int) -> subprocess.Popen[str]:
        code = "import json, sys; json.load(sys.stdin)"
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([sys.executable, "-c", code], cwd=folder, text=True, **pipes))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr("levelhead.bench.grid._started", start)
    monkeypatch.setattr("levelhead.bench.grid.is_done", lambda _: True)
    order = {"experiment": {"train": {"threads": 1}}, "started_in": str(tmp_path)}
    processes = LocalProcesses(3)
    assert processes.run(order, tmp_path / "a") is None
    assert len(started) == 2
    started[1].kill()
    started[1].wait()
    assert processes.run(order, tmp_path / "b") is None  # one that ended meanwhile is replaced
    assert processes.run({**order, "experiment": {"train": {"threads": None}}}, tmp_path / "c") is None
    processes.stop()
    assert len(started) == 5  # two for 1 thread were killed or never needed
    assert all(one.returncode is not None for one in started)


@pytest.mark.slow
def test_a_failed_cell_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], in_this_process: set[str]
) -> None:
    in_this_process.add("ERM")
    rows = {"too fast": {"train.learning_rate": 1e30}, "ERM": {}}
    write_grid(tmp_path, rows=rows, seeds=[0])
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "runs")])
    assert ended.value.code == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "too-fast" in printed
    assert "Lower train.learning_rate" in printed
    assert "1 of 2 runs failed" in printed
    assert (folder_of(tmp_path, "erm") / "evaluation-test.json").exists()


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_grid_goes_on(tmp_path: Path, in_this_process: set[str]) -> None:
    grid = write_grid(tmp_path, seeds=[0], rows={"ERM": {}, "balanced": {"method.name": "balanced"}})
    command = [sys.executable, "-m", "levelhead", "compare", str(grid), "--out", str(tmp_path / "runs")]
    process = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    first = cells_of(grid)[0].folder / "evaluation-test.json"
    for _ in range(2400):
        if first.exists():
            break
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    written = first.stat().st_mtime_ns
    cells = cells_of(grid)
    in_this_process.update(cell.row for cell in cells)
    assert run_grid(cells) == []
    assert all(cell.done for cell in cells)
    assert first.stat().st_mtime_ns == written


def test_unfinished_runs_are_left_out_of_a_table_that_says_so(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(folder_of(finished, "erm"), tmp_path / "erm" / "seed-0")
    begun = tmp_path / "erm" / "seed-1"
    begun.mkdir()
    (begun / "config.yaml").write_text((folder_of(finished, "erm", 1) / "config.yaml").read_text())
    (group,) = collect([tmp_path], "test")
    comparison = group.compare("ERM")
    assert comparison.seeds == {"ERM": [0]}
    assert comparison.warnings[-1] == f"Left out, no evaluation of the test split: {begun}."
    with pytest.raises(DataError, match="not finished"):
        collect([begun], "test")


def test_compare_makes_a_row_for_every_method_and_option() -> None:
    options = parse_options(["method.upweight=20,50", "train.learning_rate=1e-3"])
    grid = compare_methods(BASE, parse_methods("erm, jtt,dam+jtt"), parse_seeds("0-2,5"), options)
    assert grid.seeds == (0, 1, 2, 5)
    assert list(grid.rows) == [
        "erm, learning_rate 1e-3",
        "jtt, upweight 20, learning_rate 1e-3",
        "jtt, upweight 50, learning_rate 1e-3",
        "dam+jtt, upweight 20, learning_rate 1e-3",
        "dam+jtt, upweight 50, learning_rate 1e-3",
    ]
    # An option of the method under debiased attention is reached by its own name.
    assert [cell.experiment.method.base.upweight for cell in make_cells(grid, Path("nowhere"))[3:5]] == [20, 50]  # type: ignore[attr-defined]
    under_base = compare_methods(BASE, ["dam+jtt"], [0], parse_options(["method.base.upweight=7"]))
    (cell,) = make_cells(under_base, Path("nowhere"))
    assert cell.experiment.method.base.upweight == 7  # type: ignore[attr-defined]
    for wrong, message in (
        (lambda: parse_methods("erm,jt"), "Unknown method 'jt'. Did you mean 'jtt'"),
        (lambda: parse_seeds("0-x"), "whole numbers"),
        (lambda: parse_seeds("0,4-2"), "4-2 counts down. Write 2-4"),
        (lambda: parse_seeds("0-1,1"), "has seed 1 twice"),
        (lambda: make_cells(grid, Path("nowhere"), seeds=[0, 1, 1]), "Seed 1 is chosen twice"),
        (lambda: make_cells(under_base, Path("nowhere"), rows=[*under_base.rows] * 2), "is chosen twice"),
        (lambda: parse_options(["method.upweight"]), "key=value,value"),
        (lambda: compare_methods(BASE, ["erm"], [0], {"method.upweight": [1]}), "None of the methods erm has"),
    ):
        with pytest.raises(ConfigError, match=message):
            wrong()


def test_a_folder_holds_one_grid_that_may_grow(tmp_path: Path) -> None:
    first = remember(compare_methods(BASE, ["erm"], [0, 1], {}), tmp_path)
    grown = remember(compare_methods(BASE, ["jtt"], [2], {}), tmp_path)
    assert list(grown.rows) == ["erm", "jtt"]
    assert grown.seeds == (0, 1, 2)
    assert read_grid(tmp_path / "grid.yaml") == grown
    other = {**BASE, "train": {**BASE["train"], "batch_size": 8}}
    with pytest.raises(ConfigError, match=r"holds a grid with other settings \('train.batch_size'"):
        remember(compare_methods(other, ["erm"], [0], {}), tmp_path)
    assert first.base == grown.base


def test_compare_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], in_this_process: set[str]
) -> None:
    in_this_process.update(("erm", "dro"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(BASE))
    out = str(tmp_path / "runs")
    common = ["compare", "--recipe", str(tmp_path / "mine.yaml"), "--seeds", "0", "--out", out]
    with pytest.raises(SystemExit) as ended:
        main([*common, "--methods", "erm,dro", "--set", "train.epochs=1"])
    assert ended.value.code == 0
    before = {file: file.stat().st_mtime_ns for file in Path(out).rglob("evaluation-test.json")}
    assert len(before) == 2
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--resume", out])
    assert ended.value.code == 0
    assert before == {file: file.stat().st_mtime_ns for file in Path(out).rglob("evaluation-test.json")}
    with pytest.raises(SystemExit):
        main([*common, "--methods", "erm", "--set", "train.epochs=2"])
    assert "holds a grid with other settings" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", "--resume", str(tmp_path)])
    assert "it was not made by `levelhead compare`" in capsys.readouterr().err


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `compare` began, and no run is ever started."""
    monkeypatch.setattr("levelhead.bench.running.run_all", lambda cells, folder, **options: 0)
    monkeypatch.setattr("levelhead.bench.running.show_results", lambda cells, folder, **options: None)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(BASE))
    assert compare("--recipe", tmp_path / "mine.yaml", "--methods", "erm,jtt", "--seeds", "0", "--out", tmp_path) == 0
    return tmp_path


def compare(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["compare", *map(str, arguments)])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("options", "rows", "seeds"),
    [
        ([], ["erm", "jtt"], (0,)),
        (["--seeds", "1-2"], ["erm", "jtt"], (0, 1, 2)),
        (["--methods", "dam+jtt,erm"], ["erm", "jtt", "dam+jtt"], (0,)),
        (["--try", "method.upweight=7,9"], ["erm", "jtt", "jtt, upweight 7", "jtt, upweight 9"], (0,)),
        (["--methods", "dam+jtt", "--try", "method.upweight=7"], ["erm", "jtt", "dam+jtt, upweight 7"], (0,)),
        (["--set", "model.layers=2"], ["erm", "jtt"], (0,)),  # as it is
        (["--recipe", "mine.yaml", "--methods", "dro"], ["erm", "jtt", "dro"], (0,)),
    ],
)
def test_what_is_given_beside_resume_is_added(
    options: list[str], rows: list[str], seeds: tuple[int, ...], compared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(compared)
    assert compare("--resume", compared, *options) == 0
    grid = read_grid(compared / "grid.yaml")
    assert (list(grid.rows), grid.seeds) == (rows, seeds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "train.epochs=3"], "holds a grid with other settings ('train.epochs')"),
        (["--data", "utkface64"], "holds a grid with other settings ('data."),
        (["--out", "elsewhere"], "is the folder to resume: leave out --out"),
        (["--methods", "jt"], "Unknown method 'jt'"),
        (["--methods", ","], "--methods names no method"),
        (["--try", "method.upweigth=7"], "None of the methods erm, jtt has the option method.upweigth"),
        (["--try", "a=1", "--try", "a=2"], "--try names 'a' twice"),
        (["--set", "method.upweight=7"], "set options of methods with --try"),
        (["--set", "seed=7"], "a grid sets its own seeds and names"),
        (["--seeds", "0-99999"], "more than 2,000 seeds"),
        (["--seeds", "9223372036854775808"], "A seed of the grid is 9223372036854775808; it must be"),
    ],
)
def test_what_contradicts_a_folder_that_is_resumed_is_refused(
    options: list[str], message: str, compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (compared / "grid.yaml").read_text()
    assert compare("--resume", compared, *options) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert message in said
    assert (compared / "grid.yaml").read_text() == before


def test_a_setting_of_one_method_is_not_dropped_from_a_new_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ("--data", "portraits", "--methods", "erm,jtt", "--set", "method.upweight=7", "--out", tmp_path / "runs")
    assert compare(*line) == 2
    assert "with --try, which names the variants: --try method.upweight=VALUE" in capsys.readouterr().err


def test_a_grid_that_others_made_gets_more_seeds(tmp_path: Path) -> None:
    write_grid(tmp_path)
    before = read_grid(tmp_path / "grid.yaml")
    more = comparison_grid(before, seeds="2-3", settings=["train.batch_size=16"])
    assert (more.rows, more.seeds, more.shared, more.base) == (before.rows, (2, 3), before.shared, before.base)


def test_values_of_a_row_are_taken_as_they_are(tmp_path: Path) -> None:
    rows = {"😀 1": {"data.style": "x"}, "two": {"train.epochs=9": 1}}
    write_grid(tmp_path, rows={"😀 1": {}})
    assert cells_of(tmp_path / "grid.yaml")[0].row == "😀 1"
    write_grid(tmp_path, rows=rows | {"😀 1": {}})
    with pytest.raises(ConfigError, match=r"Variant 'two': Unknown key train\.epochs=9"):
        cells_of(tmp_path / "grid.yaml")


def test_changes_by_hand_are_noticed(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    run = folder_of(tmp_path / "copy", "erm")
    frame = pd.read_parquet(run / "predictions-test.parquet")
    frame.loc[0, "prediction"] = frame["prediction"].unique()[-1]
    frame.iloc[::-1].to_parquet(run / "predictions-test.parquet")
    with pytest.raises(DataError, match="changed after it was evaluated"):
        collect([run], "test")
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["train"]["epochs"] = 99
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match=r"Variant 'ERM': The recipe differs .*train.epochs: 99 then, 3 now"):
        cells_of(tmp_path / "copy" / "grid.yaml")


def test_the_exact_name_is_the_baseline_and_two_are_refused(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(finished / "runs", copy)
    for folder in copy.glob("balanced-erm-*/seed-*"):
        config = yaml.safe_load((folder / "config.yaml").read_text())
        (folder / "config.yaml").write_text(yaml.safe_dump(config | {"name": "ERM balanced"}))
    (group,) = collect([copy], "test")
    assert group.compare("erm").table.baseline == "ERM"
    for folder in copy.glob("erm-*/seed-*"):
        config = yaml.safe_load((folder / "config.yaml").read_text())
        (folder / "config.yaml").write_text(yaml.safe_dump(config | {"name": "ERM plain"}))
    (group,) = collect([copy], "test")
    with pytest.raises(ConfigError, match=r"Several variants could be the baseline 'erm'"):
        group.compare("erm")


def test_runs_evaluated_on_other_groups_are_not_merged(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "other"
    shutil.copytree(folder_of(finished, "erm", 1), run)
    frame = pd.read_parquet(run / "predictions-test.parquet")
    frame["style"] = frame["style"].to_numpy()[::-1]
    frame.to_parquet(run / "predictions-test.parquet")
    evaluation = read_json(run / "evaluation-test.json")
    del evaluation["run"]["predictions_sha256"]
    write_json(run / "evaluation-test.json", evaluation)
    with pytest.raises(DataError, match="different rows or groups"):
        collect([folder_of(finished, "erm"), run], "test")


def test_an_undefined_score_is_never_preferred(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder_of(finished, "erm"), run)
    metrics = read_json(run / "metrics.json")
    metrics["history"][0]["val_loss"] = None
    write_json(run / "metrics.json", metrics)
    (group,) = collect([run], "test")
    assert group.compare("ERM", selection="val_loss").selection == "val_loss"


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_grid_leaves_no_run_behind(tmp_path: Path) -> None:
    grid = write_grid(tmp_path, seeds=[0], rows={"long": {"train.epochs": 100_000}})
    command = [sys.executable, "-m", "levelhead", "compare", str(grid), "--out", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log = cells_of(grid)[0].folder / "log.jsonl"
    for _ in range(2400):
        if log.exists():
            break
        time.sleep(0.1)
    process.kill()
    process.wait()
    for _ in range(100):
        before = log.read_text()
        time.sleep(0.5)
        if log.read_text() == before:
            return
    pytest.fail("the run went on without its grid")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["methods_utkface64", "--methods", "erm"], "defines the comparison: remove --methods"),
        (["methods_utkface64", "--try", "method.upweight=2", "--data", "utkface64"], "remove --data, --try"),
        (["FOLDER"], "holds a comparison: add --resume to finish it"),
        (["FOLDER", "--resume", "--out", "other"], "is the folder to resume: leave out --out"),
        (["--resume"], "--resume needs the folder of a comparison: levelhead compare FOLDER --resume"),
        (["nowhere", "--resume"], "--resume. There is no folder 'nowhere'"),
        (["--resume", "--out", "nowhere"], "nowhere holds no grid.yaml"),
        (["--data", "portraits", "--row", "dam"], "--row selects variants of a GRID"),
        ([], "Nothing to compare: give --data (a built-in task), --recipe or a GRID, or a folder with --resume"),
    ],
)
def test_what_is_compared_is_said_once(
    compared: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(*(compared if word == "FOLDER" else word for word in words)) == 2
    assert said in capsys.readouterr().err


def test_the_command_that_resumes_names_the_folder_of_the_data(compared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid, shown = compared.parent / "again.yaml", []
    grid.write_text(yaml.safe_dump({"base": BASE, "rows": {"erm": {"method.name": "erm"}}}))
    monkeypatch.setattr("levelhead.bench.running.run_all", lambda *_, again, **options: shown.append(again) or 0)
    root = compared / "root of data"
    assert compare(grid, "--data-root", root, "--out", compared / "out") == 0
    assert shown == [f"levelhead compare {compared / 'out'} --resume --data-root '{root}'"]
    assert compare(compared / "out", "--resume", "--data-root", root) == 0
    assert shown[0] == shown[1]


def test_seeds_are_no_values_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--data", "portraits", "--try", "seed=1,2", "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "sets seed: a grid lists its seeds under seeds: (--seeds)" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_worker_that_ends_without_a_result_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_grid(tmp_path, seeds=[0], rows={"ERM": {}})
    cells = cells_of(tmp_path / "grid.yaml")
    monkeypatch.setattr(sys, "executable", shutil.which("true"))  # a process that exits with 0 at once
    (failure,) = run_grid(cells)
    assert failure.message == "ended perfectly and without a result"
