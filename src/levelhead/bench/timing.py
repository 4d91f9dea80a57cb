"""How long runs will take, from a few steps of each."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape

from levelhead.bench.grid import Cell
from levelhead.runs.folder import REHEARSAL
from levelhead.runs.train import train_run
from levelhead.storage import read_json
from levelhead.training.lab import STAGE
from levelhead.training.processes import forget_training
from levelhead.types import LevelheadError

DRY_RUN_STEPS = 20
SLOW_STEP = 0.5
"""Seconds per step above which three steps suffice."""


def predicted(cells: Sequence[Cell], console: Console) -> dict[Path, float]:
    """Return the seconds that each missing run will take, from a few steps of each of its stages.

    Of runs that differ in the seed or the fold alone one is timed. A method whose later stages depend on what an
    earlier one learns, such as JTT, is judged by what a training of those few steps gives: it may well be quicker. A
    run that fails within these steps is named, and absent.
    """
    missing = [cell for cell in cells if not cell.done]
    known: dict[Path, float] = {}
    for number, cell in enumerate({cell.folder.parent: cell for cell in missing}.values(), 1):
        console.print(escape(f"Timing a few steps: {cell.row} ({number})"), soft_wrap=True, highlight=False)
        try:
            known[cell.folder.parent] = _time(cell)
        except (LevelheadError, torch.OutOfMemoryError) as error:
            console.print(escape(f"{cell.row} fails: {error}"), soft_wrap=True, highlight=False)
    return {cell.folder: known[cell.folder.parent] for cell in missing if cell.folder.parent in known}


def _time(cell: Cell) -> float:
    """Return the seconds that a run will take: by a few steps where a step is slow, else by :data:`DRY_RUN_STEPS`."""
    step, seconds, _ = _timed(cell, 3)
    if step > SLOW_STEP:
        return seconds
    _, seconds, preparing = _timed(cell, DRY_RUN_STEPS)
    return seconds + preparing  # each run reads again what is kept of the data; what had to be made first is made now


def _timed(cell: Cell, steps: int) -> tuple[float, float, float]:
    """Train ``steps`` steps of each stage in a folder that is thrown away.

    Returns:
        seconds of the slowest kind of step, of a whole run without reading its data, and of reading them.
    """
    durations: dict[str, list[float]] = defaultdict(list)
    last: dict[str, float] = {}

    def watch(what: str, done: int, total: int, text: str) -> None:
        now = time.monotonic()
        if what in last:  # the first step also warms up
            durations[what].append(now - last[what])
        last[what] = now

    experiment = replace(cell.experiment, train=replace(cell.experiment.train, max_steps=steps, keep_epochs=False))
    place = Path(tempfile.mkdtemp(prefix="levelhead-dry-run-"))
    try:
        began = time.monotonic()
        train_run(experiment, place / "run", progress=watch, energy="off")
        whole = time.monotonic() - began
        cost, whole_run = (read_json(place / "run" / name) for name in ("cost.json", REHEARSAL))
        rows = read_json(place / "run" / "data.json")["validation"]["rows"]
        if cell.experiment.train.keep_epochs:  # each predicts the test split
            rows += len(experiment.data.examples("test").labels)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        forget_training()  # the next recipe may have another precision
    wanted: dict[str, int] = whole_run["steps"]
    step = {what: statistics.median(durations[what]) if durations[what] else whole for what in wanted}
    preparing = cost["preparing_seconds"]
    if cell.experiment.train.max_steps is not None:  # no longer than what was just timed
        return max(step.values()), whole - preparing, preparing
    training = sum(number * step[what] for what, number in wanted.items())
    stages = [what for what in wanted if what.startswith(STAGE)]
    prediction = 0.4 * step[stages[-1]] * rows / experiment.train.batch_size  # a forward pass without a backward one
    other = max(0.0, whole - sum(sum(durations[what]) for what in wanted) - preparing)
    other += whole_run["left_out_seconds"]
    return max(step.values()), float(training + whole_run["epochs"] * prediction + other), preparing
