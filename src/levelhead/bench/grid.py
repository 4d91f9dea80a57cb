"""Grids of runs: rows (settings on top of one recipe) times seeds, on local processes.

A grid file is YAML::

    base: utkface64_erm_small          # a recipe
    seeds: [0, 1, 2, 3, 4]
    set: {train.epochs: 10}            # settings that all rows share
    rows:                              # by name as it stands in tables; each holds its own settings
      ERM: {}
      ERM, 11 layers: {model.layers: 11}

Each cell is an ordinary run folder ``<out>/<row>/seed-<seed>``, trained and evaluated in a process of its own, so
that one failure, or a kill, costs one cell. Starting the same grid again does what is missing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelhead.config import Experiment, build_experiment, find_recipe, nearest, override, read_recipe, recipe_folder
from levelhead.types import ConfigError


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    row: str
    experiment: Experiment
    folder: Path

    @property
    def done(self) -> bool:
        """Whether the run is trained and its test split evaluated."""
        return (self.folder / "evaluation-test.json").exists()


@dataclass(frozen=True)
class Failure:
    """A cell that ended in an error, and the last line it said."""

    cell: Cell
    message: str


def find_grid(grid: str | Path) -> Path:
    """Return the grid file: a path, or the name of one that comes with levelhead."""
    path = Path(grid)
    if path.is_file():
        return path
    packaged = recipe_folder() / "grids" / f"{path.name.removesuffix('.yaml')}.yaml"
    if packaged.is_file():
        return packaged
    names = sorted(file.stem for file in packaged.parent.glob("*.yaml"))
    raise ConfigError(f"There is no grid {str(grid)!r}. {nearest(path.stem, names)}")


def read_grid(
    grid: str | Path,
    out: Path,
    *,
    data_root: Path | None = None,
    seeds: Iterable[int] | None = None,
    rows: Iterable[str] | None = None,
    settings: Iterable[str] = (),
) -> list[Cell]:
    """Return the validated cells of a grid file, one seed of every row before the next seed.

    ``seeds`` and ``rows`` choose some of them; ``settings`` (``key=value``) come on top of all rows. Every mistake in
    any row is an error before the first run starts.
    """
    path = find_grid(grid)
    content = read_recipe(path)
    known = ("base", "seeds", "set", "rows")
    for key in content:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {key!r}. {nearest(str(key), known)}")
    if not isinstance(content.get("base"), str) or not isinstance(content.get("rows"), dict):
        raise ConfigError(f"{path} needs base: (a recipe) and rows: (a mapping of row names to settings).")
    chosen = list(rows or content["rows"])
    for row in chosen:
        if row not in content["rows"]:
            raise ConfigError(f"{path} has no row {row!r}. {nearest(row, content['rows'])}")
    numbers = list(content.get("seeds", [0]) if seeds is None else seeds)
    if not numbers:
        raise ConfigError(f"{path}: there are no seeds.")
    beside = path.parent / f"{content['base'].removesuffix('.yaml')}.yaml"
    base = read_recipe(beside if beside.is_file() else find_recipe(content["base"]))
    if data_root is not None:
        base["data"] = {**(base.get("data") or {}), "root": str(data_root)}
    cells = []
    for seed in numbers:
        for row in chosen:
            merged = {**(content.get("set") or {}), **(content["rows"][row] or {})}
            recipe = override(base, [*(f"{key}={json.dumps(value)}" for key, value in merged.items()), *settings])
            try:
                experiment = build_experiment(recipe | {"seed": seed, "name": row})
            except ConfigError as error:
                raise ConfigError(f"{path}, row {row!r}: {error}") from None
            slug = re.sub(r"[^a-z0-9.]+", "-", row.lower()).strip("-")
            cells.append(Cell(row, experiment, out / slug / f"seed-{seed}"))
    if len({cell.folder for cell in cells}) < len(cells):
        raise ConfigError(f"{path}: two rows have names that differ in punctuation alone, or a seed stands twice.")
    return cells


def run_grid(
    cells: Iterable[Cell],
    *,
    workers: int = 1,
    report: Callable[[Cell, Failure | None], None] = lambda cell, failure: None,
) -> list[Failure]:
    """Train and evaluate every cell that is not done; a failed cell is reported and does not stop the others.

    ``report(cell, failure)`` is called as each cell ends. Ctrl-C stops the runs; each resumes from its last checkpoint.
    """
    missing = [cell for cell in cells if not cell.done]
    running: set[subprocess.Popen[str]] = set()
    failures = []
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(_run_cell, cell, running): cell for cell in missing}
        try:
            for future in as_completed(futures):
                failure = future.result()
                if failure is not None:
                    failures.append(failure)
                report(futures[future], failure)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                process.terminate()
            raise
    return failures


def _run_cell(cell: Cell, running: set[subprocess.Popen[str]]) -> Failure | None:
    cell.folder.mkdir(parents=True, exist_ok=True)
    threads = cell.experiment.train.threads
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    message = json.dumps({"experiment": cell.experiment.to_dict(), "folder": str(cell.folder)})
    command = [sys.executable, "-m", "levelhead.bench.grid"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        running.add(process)
        _, errors = process.communicate(message)
        running.discard(process)
    if process.returncode == 0:
        return None
    said = errors.strip().splitlines() or [f"ended by signal {-process.returncode}"]
    return Failure(cell, said[-1])


def _main() -> None:
    """Train and evaluate the cell that stands on standard input."""
    from levelhead.runs import evaluate_run, train_run

    message: dict[str, Any] = json.load(sys.stdin)
    folder = Path(message["folder"])
    train_run(build_experiment(message["experiment"]), folder, resume=True)
    evaluate_run(folder)


if __name__ == "__main__":
    _main()
