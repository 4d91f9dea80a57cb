"""Grids: cells, resuming, failures; selection of epochs and thresholds from the same runs."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from rich.console import Console

from command_line import run, said, wait_until
from levelhead.bench import grid as grid_module
from levelhead.bench.checks import check_cells
from levelhead.bench.comparison import LEAKING
from levelhead.bench.grid import (
    Cell,
    Failure,
    LocalProcesses,
    compare_methods,
    complete,
    make_cells,
    order_of,
    parse_methods,
    parse_options,
    parse_seeds,
    read_grid,
    remember,
    run_grid,
)
from levelhead.bench.page import Comparisons
from levelhead.bench.running import run_all
from levelhead.bench.tables import collect
from levelhead.metrics import Counts
from levelhead.metrics.contrasts import measured
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


def cells_of(file: Path, *settings: str, **chosen: Any) -> list[Cell]:
    return make_cells(read_grid(file).with_settings(settings), file.parent / "runs", **chosen)


def folder_of(root: Path, row: str, seed: int = 0) -> Path:
    (folder,) = root.glob(f"runs/{row}-????????/seed-{seed}")
    return folder


def write_grid(folder: Path, **changes: object) -> Path:
    (folder / "base.yaml").write_text(yaml.safe_dump(BASE))
    (folder / "grid.yaml").write_text(yaml.safe_dump({**GRID, **changes}, sort_keys=False))
    return folder / "grid.yaml"


def times(root: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in (root / "runs").rglob("*") if file.is_file()}


def change_config(run: Path, **changes: object) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | changes))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole grid; in this process, because starting others takes seconds each."""
    folder = tmp_path_factory.mktemp("grid")
    for cell in cells_of(write_grid(folder)):
        complete(cell.experiment, cell.folder)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """A finished grid that a test may change."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_cells_are_validated_and_ordered_by_seed(tmp_path: Path) -> None:
    cells = cells_of(write_grid(tmp_path), "train.epochs=2")
    names = ["ERM", "balanced ERM", "DAM, small steps"]
    assert [(cell.row, cell.experiment.seed) for cell in cells] == [(name, seed) for seed in (0, 1) for name in names]
    assert cells[2].experiment.train.learning_rate == 5e-5
    assert cells[2].experiment.train.epochs == 2
    assert cells[2].folder.name == "seed-0"
    assert cells[2].folder.parent.name.startswith("dam-small-steps-")
    assert cells[2].folder.parent == cells[5].folder.parent
    assert [cell.row for cell in cells_of(tmp_path / "grid.yaml", rows=["ERM"], seeds=[7])] == ["ERM"]
    # Other settings are another folder; where the data lies does not matter.
    assert cells_of(tmp_path / "grid.yaml")[2].folder.parent != cells[2].folder.parent
    moved = cells_of(tmp_path / "grid.yaml", "train.epochs=2", data_root=tmp_path)
    assert [cell.folder for cell in moved] == [cell.folder for cell in cells]
    names = ["ä", "ö", "größe", "文", "a_b", "a"]  # in any script
    cells = cells_of(write_grid(tmp_path, rows={name: {} for name in [*names, "😀 1"]}), seeds=[0])
    assert [cell.row for cell in cells] == [*names, "😀 1"]
    folders = [cell.folder.parent.name.rpartition("-")[0] for cell in cells]
    assert folders[:6] == ["ä", "ö", "größe", "文", "a-b", "a"]


def test_a_finished_grid_is_left_alone_and_names_its_rows(finished: Path) -> None:
    before = times(finished)
    assert run_grid(cells_of(finished / "grid.yaml")) == []
    assert before == times(finished)
    (group,) = collect([finished / "runs"], "test")
    assert list(group.compare("ERM").seeds) == ["ERM", "balanced ERM", "DAM, small steps"]


def test_every_epoch_can_be_chosen_afterwards(finished: Path) -> None:
    one = folder_of(finished, "erm")
    frame = pd.read_parquet(one / "predictions-test-epochs.parquet")
    assert frame.groupby("epoch").size().to_dict() == {0: 80, 1: 80, 2: 80}
    assert not list(one.glob("*epochs")), "weights of every epoch would fill the disk"
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
    assert "LEAKING" in Comparisons.of(leaking).to_markdown()
    one = folder_of(finished, "erm", 1)
    labels, style = pd.read_parquet(one / "predictions-test.parquet")[["label", "style"]].to_numpy().T
    gaps = []
    for _, part in pd.read_parquet(one / "predictions-test-epochs.parquet").groupby("epoch"):
        light = part["probability_light hair"] > part["probability_dark hair"]
        counts = Counts.from_rows(labels, np.where(light, "light hair", "dark hair"), style)
        gaps.append(float(measured(counts.table, "equalized_odds")))
    assert leaking.table.rows["ERM"]["equalized_odds"].by_seed[1] == pytest.approx(min(gaps))


def test_matched_thresholds_call_the_same_number_positive(finished: Path) -> None:
    (group,) = collect([finished / "runs"], "test")
    own, matched = group.compare("ERM"), group.compare("ERM", threshold="matched")
    assert matched.positive_rate is not None
    assert "as ERM does" in matched.title
    called = [pd.read_parquet(folder_of(finished, "erm", seed) / "predictions-test.parquet") for seed in (0, 1)]
    light = [(one["prediction"] == "light hair").mean() for one in called]
    assert matched.positive_rate == pytest.approx(np.mean(light))
    # The order of the scores is the same at both thresholds.
    assert own.areas is not None
    assert own.areas == matched.areas
    assert set(own.areas["ERM"]) == {"all", "angular", "round"}
    assert own.to_dict()["area_under_roc"]["balanced ERM"]["all"]["difference"]["n"] == 80


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Train in this process the variants that are added to the set, because starting another takes seconds."""
    names: set[str] = set()
    start = LocalProcesses.__call__

    def train(self: LocalProcesses, cell: Cell) -> Failure | None:
        return complete(cell.experiment, cell.folder) if cell.row in names else start(self, cell)

    monkeypatch.setattr(LocalProcesses, "__call__", train)
    return names


def test_an_unexpected_error_leaves_its_traceback_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: object) -> subprocess.Popen[str]:
        code = "import sys; sys.stdin.read(); raise ZeroDivisionError('here')"  # in place of a run, which takes seconds
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stderr=pipe, text=True)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("levelhead.bench.grid._started", start)
    write_grid(tmp_path)
    assert run("compare", "--recipe", "base.yaml", "--seeds", "0", "--methods", "erm", "--out", "runs") == 1
    (file,) = Path("runs").rglob("*-error.txt")
    assert "line 1, in <module>" in file.read_text()
    printed = said(capsys)
    assert f"ZeroDivisionError: here (where: {file})" in printed
    assert "To try these again: levelhead compare --recipe base.yaml" in printed


@pytest.mark.parametrize(("workers", "said", "threads"), [(1, None, 0), (2, None, 4), (16, None, 1), (2, "3", 0)])
def test_runs_side_by_side_share_the_processors(monkeypatch, workers, said, threads) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if said:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert LocalProcesses(1, workers).threads == threads


def test_a_mistake_is_one_line_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_grid(tmp_path, rows={"too fast": {"train.learning_rate": 1e30}}, seeds=[0])
    (cell,) = cells_of(tmp_path / "grid.yaml")
    monkeypatch.setattr("levelhead.training.processes.begin_worker", lambda: None)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order_of(cell))))
    with pytest.raises(SystemExit, match=r"^.*Lower train\.learning_rate"):
        grid_module._main()


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_grid_leaves_no_run_behind_and_goes_on(tmp_path: Path, in_this_process: set[str]) -> None:
    rows = {"ERM": {}, "long": {"train.epochs": 100_000}, "balanced": {"method.name": "balanced"}}
    grid = write_grid(tmp_path, seeds=[0], rows=rows)
    command = [sys.executable, "-m", "levelhead", "compare", str(grid), "--out", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
    first, log = cells_of(grid)[0].folder / "evaluation-test.json", cells_of(grid)[1].folder / "log.jsonl"
    wait_until(log.exists)
    process.kill()
    process.wait()
    written, before = first.stat().st_mtime_ns, ""
    for _ in range(100):
        if (now := log.read_text()) == before:
            break
        before = now
        time.sleep(0.5)
    else:
        pytest.fail("the run went on without its grid")
    cells = cells_of(grid, rows=["ERM", "balanced"])
    in_this_process.add("balanced")
    assert run_grid(cells) == []
    assert all(cell.done for cell in cells)
    assert first.stat().st_mtime_ns == written


def test_compare_makes_a_row_for_every_method_and_option() -> None:
    options = parse_options(["method.upweight=20,50", "train.learning_rate=1e-3"])
    grid = compare_methods(BASE, parse_methods("erm, jtt,dam+jtt"), parse_seeds("0-2,5"), options)
    assert grid.seeds == (0, 1, 2, 5)
    rates = [f"{name}, upweight {weight}, learning_rate 1e-3" for name in ("jtt", "dam+jtt") for weight in (20, 50)]
    assert list(grid.rows) == ["erm, learning_rate 1e-3", *rates]
    # An option of the method under debiased attention is reached by its own name.
    assert [cell.experiment.method.base.upweight for cell in make_cells(grid, Path("nowhere"))[3:5]] == [20, 50]  # type: ignore[attr-defined]
    (cell,) = make_cells(compare_methods(BASE, ["dam+jtt"], [0], {"method.base.upweight": [7]}), Path("nowhere"))
    assert cell.experiment.method.base.upweight == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(("workers", "minutes"), [(1, 25), (2, 10)])
def test_the_time_left_is_that_of_runs_side_by_side(
    workers: int, minutes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, console = compare_methods(BASE, ["erm"], range(6), {}), Console(file=io.StringIO(), width=200)
    cells = make_cells(grid, tmp_path)
    clock = iter([0.0, *[300.0] * 20])
    monkeypatch.setattr("levelhead.bench.running.time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(grid_module, "run_grid", lambda cells, report, **_: report(cells[0], None, 300.0) or [])
    run_all(cells, tmp_path, workers=workers, ray=None, console=console, again="again")
    assert f"About {minutes} minutes left" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_folder_holds_one_grid_that_may_grow(tmp_path: Path) -> None:
    first = remember(compare_methods(BASE, ["erm"], [0, 1], {}), tmp_path)
    grown = remember(compare_methods(BASE, ["jtt"], [2], {}), tmp_path)
    assert list(grown.rows) == ["erm", "jtt"]
    assert grown.seeds == (0, 1, 2)
    assert read_grid(tmp_path / "grid.yaml") == grown
    assert first.base == grown.base


def test_compare_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], in_this_process: set[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    in_this_process.update(("erm", "dro"))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(BASE))
    out, page = tmp_path / "runs", tmp_path / "page.html"
    command = ("--recipe", tmp_path / "mine.yaml", "--seeds", "0", "--set", "train.epochs=1", "--methods", "erm,dro")
    assert run("compare", *command, "--out", out, "--html", page) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("[1/2] erm, seed 0: done in ") for line in lines)
    text = "\n".join(lines)
    for words, there in (("AT CHANCE", True), ("change", True), ("changes in points", False)):
        assert (words in text) == there
    assert lines[-2:] == [f"Wrote {page}", f"Wrote {out}: 2 runs, and grid.yaml, which remembers them."]
    assert page.read_text().startswith("<!doctype html>")
    before = times(tmp_path)
    assert run("compare", out) == 0
    assert before == times(tmp_path)


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, in which `compare` has begun, and no run is ever started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("levelhead.bench.running.run_all", lambda cells, folder, **options: 0)
    monkeypatch.setattr("levelhead.bench.running.show_results", lambda cells, folder, **options: None)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(BASE))
    assert run("compare", "--recipe", "mine.yaml", "--methods", "erm,jtt", "--seeds", "0", "--out", ".") == 0
    return tmp_path


@pytest.mark.parametrize(
    ("options", "rows", "seeds"),
    [
        (["."], [], (0,)),
        ([".", "--seeds", "1-2"], [], (0, 1, 2)),
        (["--recipe", "mine.yaml", "--methods", "dro", "--seeds", "0", "--out", "."], ["dro"], (0,)),
        (["grid.yaml", "--out", "."], [], (0,)),
    ],
)
@pytest.mark.usefixtures("compared")
def test_a_folder_that_is_named_again_may_grow(options: list[str], rows: list[str], seeds: tuple[int, ...]) -> None:
    assert run("compare", *options) == 0
    grid = read_grid("grid.yaml")
    assert (list(grid.rows), grid.seeds) == (["erm", "jtt", *rows], seeds)


def test_what_contradicts_a_folder_leaves_it_as_it_is(compared: Path) -> None:
    before = (compared / "grid.yaml").read_text()
    for changed in ([], ["--set", "train.epochs=3"]):
        base = ["--recipe", "mine.yaml", "--out", "."] if changed else ["."]
        assert run("compare", *base, "--methods", "dro", *changed) == 2
    assert (compared / "grid.yaml").read_text() == before


def test_a_folder_remembers_what_was_set_on_top_of_a_grid(compared: Path) -> None:
    assert run("compare", "grid.yaml", "--out", "other", "--set", "train.epochs=3") == 0
    assert [row["train.epochs"] for row in read_grid("other").rows.values()] == [3, 3]


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


def test_changes_by_hand_are_noticed(copy: Path) -> None:
    one = folder_of(copy, "erm")
    metrics = read_json(one / "metrics.json")
    metrics["history"][0]["val_loss"] = None  # an undefined score is never preferred
    write_json(one / "metrics.json", metrics)
    (group,) = collect([one], "test")
    assert group.compare("ERM", selection="val_loss").selection == "val_loss"
    frame = pd.read_parquet(one / "predictions-test.parquet")
    frame["style"] = frame["style"].to_numpy()[::-1]
    frame.to_parquet(one / "predictions-test.parquet")
    with pytest.raises(DataError, match="changed after it was evaluated"):
        collect([one], "test")
    evaluation = read_json(one / "evaluation-test.json")
    del evaluation["run"]["predictions_sha256"]
    write_json(one / "evaluation-test.json", evaluation)
    with pytest.raises(DataError, match="different rows or groups"):
        collect([folder_of(copy, "erm", 1), one], "test")
    change_config(one, train={**BASE["train"], "epochs": 99, "keep_epochs": True})
    with pytest.raises(ConfigError, match=r"Variant 'ERM': .* with other settings .*train.epochs: 99 then, 3 now"):
        cells_of(copy / "grid.yaml")


def test_the_exact_name_is_the_baseline_and_two_are_refused(copy: Path) -> None:
    for folder in copy.glob("runs/balanced-erm-*/seed-*"):
        change_config(folder, name="ERM balanced")
    (group,) = collect([copy / "runs"], "test")
    assert group.compare("erm").table.baseline == "ERM"
    for folder in copy.glob("runs/erm-*/seed-*"):
        change_config(folder, name="ERM plain")
    (group,) = collect([copy / "runs"], "test")
    with pytest.raises(ConfigError, match=r"Several variants could be the baseline 'erm'"):
        group.compare("erm")


def test_a_worker_that_ends_without_a_result_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cells_of(write_grid(tmp_path, seeds=[0], rows={"ERM": {}}))
    monkeypatch.setattr(sys, "executable", shutil.which("true"))  # a process that exits with 0 at once
    (failure,) = run_grid(cells)
    assert failure.message == "ended perfectly and without a result"


def test_two_variants_that_are_the_same_run_are_refused_before_any(tmp_path: Path) -> None:
    file = write_grid(tmp_path, rows={"a": {}, "b": {"train.weight_decay": 0.01}, "c": {"train.epochs": 5}})
    with pytest.raises(ConfigError, match="The variants 'a' and 'b' are the same run"):
        check_cells(cells_of(file))
    check_cells(cells_of(file, rows=["a", "c"]))
