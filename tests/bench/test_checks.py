"""What `compare` and `grid` look at before the first run, and what they say while runs end, fail or are stopped."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from made_runs import answered, rows_of, write_run
from PIL import Image
from transformers import ViTConfig, ViTModel

from command_line import run, wait_until
from levelhead.bench.checks import check_cells
from levelhead.bench.grid import Cell, Failure, compare_methods, make_cells
from levelhead.bench.running import run_all, show_results
from levelhead.runs.train import train_run
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, DataError, LevelheadError
from words import save_tiny_backbone

BASE: dict[str, Any] = {
    "data": {"name": "portraits", "train_size": 64, "validation_size": 32, "test_size": 80, "correlation": 0.5},
    "model": {"hidden_size": 16, "layers": 2, "heads": 2},
    "train": {"batch_size": 16, "device": "cpu", "threads": 1, "epochs": 1},
}


def cells_of(folder: Path, *methods: str, seeds: Iterable[int] = (0,), **sections: Any) -> list[Cell]:
    return make_cells(compare_methods({**BASE, **sections}, methods or ["erm", "jtt"], list(seeds), {}), folder)


def test_ids_of_people_that_nobody_has_are_missed_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = cells_of(tmp_path, "erm", "identities")
    with pytest.raises(ConfigError, match=r"^Variant 'identities': This method needs to know which rows belong to one"):
        check_cells(cells)
    check_cells(cells[:1])  # the other method needs none
    monkeypatch.setattr("levelhead.runs.train.prepared", lambda *wanted, **options: pytest.fail("inputs were prepared"))
    with pytest.raises(ConfigError, match="which rows belong to one"):
        train_run(cells[1].experiment, tmp_path / "run")


@pytest.mark.parametrize("what", [["--data", "utkface64", "--methods", "erm,jtt,dam"], ["finding_utkface64"]])
def test_a_wrong_data_root_is_one_error_and_leaves_nothing(
    what: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("levelhead.bench.grid.run_grid", lambda *cells, **options: pytest.fail("a run was started"))
    assert run("compare", *what, "--data-root", tmp_path / "nowhere", "--out", tmp_path / "runs") == 2
    printed = capsys.readouterr()
    (line,) = printed.err.strip().splitlines()
    assert line.startswith(f"Error: There is no folder {tmp_path / 'nowhere' / 'utkface64'}.")
    assert "--data-root" in line
    assert not printed.out
    assert not (tmp_path / "runs").exists()


def write_utkface(root: Path, columns: dict[str, list[int]]) -> None:
    (root / "utkface64").mkdir(parents=True)
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(buffer, "JPEG")
    for split in ("train", "validation", "test"):
        image = [{"bytes": buffer.getvalue(), "path": None}] * 4
        pq.write_table(
            pa.table({"image": image, "gender": [0, 1, 0, 1], **columns}), root / f"utkface64/{split}.parquet"
        )


def test_a_missing_sensitive_column_is_found_before_hours_of_training(tmp_path: Path) -> None:
    for name, columns in (("without", {}), ("with", {"race": [0, 1, 0, 1]})):
        write_utkface(tmp_path / name, columns)
        cells = cells_of(tmp_path / "runs", data={"name": "utkface64", "root": str(tmp_path / name)})
        with nullcontext() if columns else pytest.raises(DataError, match="race"):
            check_cells(cells)


@pytest.mark.parametrize("method", ["dsa", "dam+dsa"])
def test_a_method_that_changes_pixels_needs_pixels_that_a_gradient_reaches(method: str, tmp_path: Path) -> None:
    texts = {"data": {"name": "phrases"}, "model": {"backbone": str(save_tiny_backbone(tmp_path / "texts", {"a"}))}}
    with pytest.raises(ConfigError, match=rf"Variant '{re.escape(method)}': Method .* changes pixels .* reads texts"):
        check_cells(cells_of(tmp_path / "runs", "erm", method, **texts))
    config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=64, patch_size=32)
    ViTModel(config).save_pretrained(tmp_path / "pictures")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 64, "width": 64}}
    (tmp_path / "pictures" / "preprocessor_config.json").write_text(json.dumps(processor))
    model = {"backbone": str(tmp_path / "pictures")}
    with pytest.raises(ConfigError, match=r"changes pixels .* last_encoder, which freezes .*model\.mode=fine_tune"):
        check_cells(cells_of(tmp_path / "runs", "erm", method, model=model))
    with pytest.raises(ConfigError, match="changes pixels"):
        train_run(cells_of(tmp_path / "runs", method, model=model)[0].experiment, tmp_path / "run")
    check_cells(cells_of(tmp_path / "runs", "erm", "tadet", model=model))
    check_cells(cells_of(tmp_path / "runs", method, model={**model, "mode": "fine_tune"}))


def finish(cell: Cell) -> None:
    """Leave what says that a run is done."""
    cell.folder.mkdir(parents=True)
    (cell.folder / "evaluation-test.json").write_text("{}")


def test_each_thing_is_looked_at_once_and_only_for_runs_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = cells_of(tmp_path / "runs", "erm", "jtt", "group-dro", seeds=(0, 1, 2))
    looked: list[str] = []
    kind = type(cells[0].experiment.data)
    groups = kind.groups
    monkeypatch.setattr(kind, "check", lambda self: looked.append("check"))
    monkeypatch.setattr(kind, "groups", lambda self, split: looked.append(split) or groups(self, split))
    check_cells(cells)
    # The second time for the method that sees groups in training.
    assert looked == ["check", "test", "check", "test", "train"]
    for cell in cells:
        finish(cell)
    check_cells(cells)
    assert len(looked) == 5


def test_a_gpu_is_looked_for_on_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for option, value in (("device", "cuda"), ("precision", "fp16")):
        cells = cells_of(tmp_path, train={option: value})
        with pytest.raises(ConfigError, match=f"train.{option} is {value}, and torch sees no GPU here"):
            check_cells(cells)
        check_cells(cells, local=False)


def test_folders_that_cannot_take_a_run_are_refused(tmp_path: Path) -> None:
    cells = cells_of(tmp_path)
    cells[1].folder.mkdir(parents=True)
    (cells[1].folder / "holiday.jpg").touch()
    with pytest.raises(ConfigError, match="exists and is not a run folder"):
        check_cells(cells)
    (cells[1].folder / "holiday.jpg").unlink()
    with (cells[1].folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LevelheadError, match=r"Another process is working in .*jtt-"):
            check_cells(cells)
    check_cells(cells)


def told(cells: list[Cell], outcome: Any, *, terminal: bool = False, workers: int = 1) -> tuple[int, str]:
    """Return the exit status and what is printed; ``outcome(cell)`` takes the place of a run."""
    console = Terminal(file=io.StringIO(), width=100, force_terminal=terminal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("levelhead.bench.grid.LocalProcesses.__call__", lambda self, cell: outcome(cell))
        status = run_all(cells, Path("runs"), workers=workers, ray=None, console=console, again="continue like this")
    return status, console.file.getvalue()  # type: ignore[attr-defined]


def test_without_a_terminal_each_run_is_a_line(tmp_path: Path) -> None:
    cells = cells_of(tmp_path, seeds=(0, 1))
    finish(cells[0])
    status, text = told(cells, lambda cell: None)
    assert status == 0
    assert text.splitlines() == [
        "4 runs (2 variants x 2 seeds) in runs; 1 of them done.",
        "jtt trains two networks: expect at least twice the time.",
        "[2/4] jtt, seed 0: done in 0:00",
        "[3/4] erm, seed 1: done in 0:00",
        "[4/4] jtt, seed 1: done in 0:00",
    ]


def test_failures_say_which_why_and_how_to_go_on(tmp_path: Path) -> None:
    cells = cells_of(tmp_path, seeds=(0, 1))

    def outcome(cell: Cell) -> Failure | None:
        return None if cell.experiment.seed else Failure(cell, "the disk [red]is full")

    for terminal in (False, True):
        status, text = told(cells, outcome, terminal=terminal)
        assert status == 1
        assert "2 of 4 runs failed:" in text
        for cell in cells[:2]:
            assert f"{cell.row}, seed 0: FAILED after 0:00: the disk [red]is full" in text
            assert f"  {cell.row}, seed 0 ({cell.folder}): the disk [red]is full" in text
        assert text.rstrip().endswith("The other runs are kept. To try these again: continue like this")


def test_a_stop_says_what_is_kept(tmp_path: Path) -> None:
    cells = cells_of(tmp_path, seeds=(0, 1))

    def stop(cell: Cell) -> None:
        (cell.folder / "checkpoints").mkdir(parents=True)
        raise KeyboardInterrupt

    status, text = told(cells, stop)
    assert status == 130
    assert "Stopped: 0 of 4 runs are done." in text
    assert "Running, kept up to their last checkpoint: erm, seed 0" in text
    assert "To resume: continue like this" in text


def test_runs_on_different_data_are_different_tables(tmp_path: Path) -> None:
    grid = compare_methods(BASE, ["erm", "balanced"], [0], {"data.correlation": [0.0, 1.0]})
    cells = make_cells(grid, tmp_path / "runs")
    for place, cell in enumerate(cells):
        data = cell.experiment.recipe["data"]
        write_run(cell.folder, answered(rows_of(80), 0.2, place), cell.experiment.method_name, name=cell.row, data=data)
    console = Terminal(file=io.StringIO(), width=200)
    show_results(cells, tmp_path / "runs", console=console, html_file=tmp_path / "page.html", everything=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for correlation in ("0.0", "1.0"):
        assert f"“balanced, correlation {correlation}” did not measurably change" in text
    show_results(cells, tmp_path / "runs", console=console)
    brief = console.file.getvalue()[len(text) :]  # type: ignore[attr-defined]
    assert brief.count("\ncorrelation 0.0\n") == 1, "each short table says whose it is"
    assert brief.count("--all") == 2
    assert (tmp_path / "page.html").exists()


@pytest.mark.slow
@pytest.mark.long
def test_ctrl_c_stops_the_runs_and_says_how_to_go_on(tmp_path: Path) -> None:
    recipe = {**BASE, "train": {**BASE["train"], "epochs": 100_000, "checkpoint_seconds": 0.1}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    command = [sys.executable, "-m", "levelhead", "compare", "--recipe", "mine.yaml", "--seeds", "0", "--out", "out"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        # A shell starts what runs in its background with Ctrl-C ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(lambda: list((tmp_path / "out").rglob("checkpoints/*")))
    process.send_signal(signal.SIGINT)
    try:
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Stopped: 0 of 2 runs are done." in printed
    assert "Running, kept up to their last checkpoint: erm, seed 0." in printed
    assert "To resume: levelhead compare" in printed
