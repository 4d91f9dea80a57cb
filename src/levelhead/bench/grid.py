"""Grids of runs: rows (settings on top of one recipe) times seeds, on local processes or a Ray cluster.

A grid file is YAML::

    base: utkface64_erm_small          # a recipe: its name, its path, or its content
    seeds: [0, 1, 2, 3, 4]
    set: {train.epochs: 10}            # settings that all rows share
    rows:                              # by name as it stands in tables; each holds its own settings
      ERM: {}
      ERM, 11 layers: {model.layers: 11}

Each cell is an ordinary run folder ``<out>/<row>-<hash of its recipe>/seed-<seed>``, trained and evaluated in a process
of its own, so that one failure, or a kill, costs one cell. ``<out>/grid.yaml`` remembers the grid; starting it again
does what is missing and touches nothing that is done.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from levelhead.data.folds import FEWEST, MOST, Fold, check_whole
from levelhead.methods import METHODS
from levelhead.plain_yaml import read_yaml
from levelhead.runs.folder import work_of
from levelhead.runs.options import assign, override, read_setting, section
from levelhead.runs.recipe import (
    Experiment,
    build_experiment,
    check_row_name,
    data_recipe,
    find_recipe,
    is_file,
    read_recipe,
    recipe_folder,
)
from levelhead.runs.refit import training_of
from levelhead.storage import write_text
from levelhead.training.work import flatten
from levelhead.types import ConfigError, LevelheadError, check_seed, listed, nearest, printable, quoted

GRID = "grid.yaml"
MOST_RUNS = 2000


@dataclass(frozen=True)
class Grid:
    """What is run: ``base`` is a recipe's content; ``rows`` maps names to settings, ``shared`` holds those of all.

    With ``folds`` every seed of a row is this many runs, one for each :class:`~levelhead.data.Fold` of all rows.
    """

    base: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    seeds: tuple[int, ...] = (0,)
    shared: dict[str, Any] = field(default_factory=dict)
    folds: int | None = None

    def __post_init__(self) -> None:
        if not self.seeds or len(set(map(str, self.seeds))) < len(self.seeds):
            raise ConfigError(f"A grid needs distinct seeds; got {listed(self.seeds, 20) or 'none'}.")
        for seed in self.seeds:
            check_seed(seed, "A seed of the grid")
        slugs = [_slug(check_row_name(row)) for row in self.rows]
        if not slugs or len(set(slugs)) < len(slugs) or not all(slug.strip(".") for slug in slugs):
            raise ConfigError(
                f"A grid needs variants whose names differ in letters or digits; got {listed(self.rows, 20) or 'none'}."
            )
        if self.folds is not None:
            check_whole("folds", self.folds, FEWEST, MOST)
        if len(self.rows) * len(self.seeds) * (self.folds or 1) > MOST_RUNS:
            folds = f", {len(self.seeds):,} seeds and {self.folds} folds" if self.folds else ""
            raise ConfigError(
                f"A grid of {len(self.rows):,} variants{folds or f' and {len(self.seeds):,} seeds'} is more than "
                f"{MOST_RUNS:,} runs: split it."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a grid file."""
        more = {} if self.folds is None else {"folds": self.folds}
        return {"base": self.base, "seeds": list(self.seeds), **more, "set": self.shared, "rows": self.rows}

    def with_settings(self, settings: Iterable[str]) -> Grid:
        """Return the grid with settings such as ``train.epochs=3`` on top of every row."""
        made = dict(map(read_setting, settings))
        return replace(self, rows={row: own | made for row, own in self.rows.items()})


@dataclass(frozen=True)
class Cell:
    """One run of a grid; ``refitted`` is the folder of the run whose last layer it refits, None if it is trained."""

    row: str
    experiment: Experiment
    folder: Path
    refitted: Path | None = None

    @property
    def fold(self) -> int | None:
        """Which fold of all rows it predicts; None where the data set's own splits are used."""
        data = self.experiment.data
        return data.fold if isinstance(data, Fold) else None

    @property
    def done(self) -> bool:
        """Whether the run is trained and its test split evaluated."""
        return is_done(self.folder)


def is_done(folder: Path) -> bool:
    """Whether a run folder holds a run that is trained and evaluated on the test split."""
    return (folder / "evaluation-test.json").exists()


@dataclass(frozen=True)
class Failure:
    """A cell that ended in an error, and the last line it said."""

    cell: Cell
    message: str


def _slug(row: str) -> str:
    """Return a row's name as a folder's: letters and digits of any script, and points."""
    return re.sub(r"[^\w.]+|_", "-", unicodedata.normalize("NFC", row.lower())).strip("-")


def grid_files() -> list[Path]:
    """Return the grids that come with levelhead: those of its own comparisons, and those of the paper's tables."""
    return sorted(file for folder in ("grids", "paper") for file in (recipe_folder() / folder).glob("*.yaml"))


def find_grid(grid: str | Path) -> Path:
    """Return the grid file: a path, that in a comparison's folder, or the name of one that comes with levelhead."""
    path = Path(grid)
    for file in (path, path / GRID):
        if is_file(file):
            return file
    packaged = {file.stem: file for file in grid_files()}
    if (stem := path.name.removesuffix(".yaml")) in packaged:
        return packaged[stem]
    names = sorted(packaged)
    raise ConfigError(f"{quoted(str(grid))} is no grid, and no comparison's folder. {nearest(path.stem, names)}")


def read_grid(grid: str | Path, *, running: bool = True) -> Grid:
    """Read a grid file, or raise :class:`ConfigError` that names it; ``running`` says that its classes will be made."""
    path = find_grid(grid)
    content = read_recipe(path, running=running)
    known = ("base", "seeds", "folds", "set", "rows")
    for key in content:
        if key not in known:
            raise ConfigError(f"{path}: unknown key {quoted(key)}. {nearest(str(key), known)}")
    base, rows = content.get("base"), content.get("rows")
    if not isinstance(base, str | dict) or not isinstance(rows, dict):
        raise ConfigError(
            f"{path} needs base: (a recipe) and rows: (a mapping from the names of variants to their settings)."
        )
    if isinstance(base, str):
        beside = path.parent / f"{base.removesuffix('.yaml')}.yaml"
        base = read_recipe(beside if is_file(beside) else find_recipe(base), running=running)
    seeds, shared = content.get("seeds", [0]), content.get("set") or {}
    mappings = {"set": shared, **{f"variant {quoted(row)}": settings or {} for row, settings in rows.items()}}
    for what, settings in mappings.items():
        if not isinstance(settings, dict):
            raise ConfigError(f"{path}: {what} must be a mapping of settings, not {quoted(settings)}.")
    if not isinstance(seeds, list):
        raise ConfigError(f"{path}: seeds must be a list of whole numbers, such as [0, 1, 2], not {quoted(seeds)}.")
    try:
        named = {row: settings or {} for row, settings in rows.items()}
        return Grid(base, named, tuple(seeds), shared, content.get("folds"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def comparison_grid(
    *,
    data: str | None = None,
    recipe: str | None = None,
    methods: str | None = None,
    seeds: str | None = None,
    options: Sequence[str] = (),
    settings: Sequence[str] = (),
    data_root: Path | None = None,
    folds: int | None = None,
) -> Grid:
    """Return the grid that the options of ``levelhead compare`` ask for, of a data set or of a recipe.

    Raises :class:`ConfigError` for options that cannot be right.
    """
    if (data is None) == (recipe is None):
        raise ConfigError("Give one of --data, --recipe, a GRID, or the folder of a comparison.")
    for setting in settings:
        key = setting.partition("=")[0].strip()
        if key in ("seed", "name"):
            raise ConfigError(f"--set {quoted(setting)}: a grid sets its own seeds and names.")
        if key.partition(".")[0] == "method":
            raise ConfigError(
                f"--set {quoted(key)}: set options of methods with --try, which names the variants: --try "
                f"{printable(key)}=VALUE"
            )
    base = data_recipe(str(data)) if recipe is None else read_recipe(find_recipe(recipe), running=True)
    base = override(base, settings)
    if data_root is not None:
        base = assign(base, "data.root", str(data_root.absolute()))
    chosen = parse_seeds("0-2" if seeds is None else seeds)
    made = compare_methods(
        base, parse_methods("erm,dam" if methods is None else methods), chosen, parse_options(options)
    )
    return replace(made, folds=folds)


def compare_methods(
    base: dict[str, Any], methods: Sequence[str], seeds: Sequence[int], options: Mapping[str, Sequence[Any]]
) -> Grid:
    """Return the grid that compares methods on one recipe.

    ``options`` maps dotted keys to the values to try. A ``method.`` key makes a row for each of its values in the
    methods that have the option, for themselves or, as in dam+jtt, for the method under debiased attention; any other
    key does so for every method.
    """
    rows: dict[str, dict[str, Any]] = {}
    used: set[str] = set()
    offered: set[str] = set()
    for method in methods:
        known = flatten(build_experiment({"data": base.get("data"), "method": {"name": method}}).recipe["method"])
        keys = {key: place for key in options if (place := _place_of(key, known)) is not None}
        used.update(keys)
        offered.update(f"method.{key}" for key in known if key != "name")
        for values in itertools.product(*(options[key] for key in keys)):
            chosen = dict(zip(keys, values, strict=True))
            name = ", ".join([method, *(f"{key.rpartition('.')[2]} {value}" for key, value in chosen.items())])
            rows[name] = {"method.name": method} | {keys[key]: value for key, value in chosen.items()}
            if len(rows) * len(seeds) > MOST_RUNS:
                raise ConfigError(f"These methods, values and seeds make more than {MOST_RUNS:,} runs: try fewer.")
    for key in options:
        if key not in used:
            near = nearest(key, sorted(offered))
            raise ConfigError(f"No method of {listed(methods)} has the option {printable(key)}. {near}")
    return Grid({key: value for key, value in base.items() if key != "method"}, rows, tuple(seeds))


def _place_of(key: str, known: Mapping[str, Any]) -> str | None:
    """Return the key under which a method has an option, its own or that of its base; None if it has none."""
    key = key.strip()
    option = key.removeprefix("method.")
    if option == key or option in known:
        return key
    return f"method.base.{option}" if f"base.{option}" in known else None


def parse_methods(text: str) -> list[str]:
    """Split ``erm,dam+jtt`` and check every name."""
    methods = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not methods:
        raise ConfigError("--methods names no method. Give some, e.g. --methods erm,dam")
    for method in methods:
        for name in method.split("+"):
            if name not in METHODS:
                raise ConfigError(f"Unknown method {quoted(name)}. {nearest(name, METHODS)}")
    return methods


def parse_seeds(text: str) -> list[int]:
    """Read ``0-4`` or ``0,2,5``."""
    seeds: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,19})(?:-([0-9]{1,19}))?\s*", part)
        if ends is None:
            raise ConfigError(f"--seeds {quoted(text)} is not a list of whole numbers such as 0-4 or 0,2,5.")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first:
            raise ConfigError(f"--seeds {quoted(text)}: {first}-{last} counts down. Write {last}-{first}.")
        if last - first >= MOST_RUNS:
            raise ConfigError(f"--seeds {quoted(text)} is more than {MOST_RUNS:,} seeds.")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


def parse_options(settings: Iterable[str]) -> dict[str, list[Any]]:
    """Read ``key=value,value`` into the values of each key."""
    options: dict[str, list[Any]] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        where = f"--try {quoted(setting)}"
        values = [read_yaml(value, where) for value in text.split(",") if value.strip()]
        if not equals or not key.strip() or not values:
            raise ConfigError(f"{where} is not of the form key=value,value, e.g. method.upweight=20,50.")
        if key.strip() in options:
            raise ConfigError(f"--try names {quoted(key.strip())} twice: give all its values in one.")
        options[key.strip()] = values
    return options


def joined(grid: Grid, out: Path) -> Grid:
    """Return the grid joined with the one that ``out`` holds, if it holds one; nothing is written.

    More seeds and more rows may come; a base, a shared setting or a row that differs from what the folder began with
    is another grid, and :class:`ConfigError`.
    """
    file = out / GRID
    if file.exists():
        before = read_grid(file)
        old, new = ({**flatten(one.base), **flatten({"set": one.shared})} for one in (before, grid))
        changed = [
            key for key in sorted(old.keys() | new.keys()) if key != "data.root" and old.get(key) != new.get(key)
        ]
        changed += [row for row, settings in grid.rows.items() if before.rows.get(row, settings) != settings]
        changed += ["folds"] * (before.folds != grid.folds)
        if changed:
            raise ConfigError(
                f"{out} holds a grid with other settings ({', '.join(map(quoted, changed[:20]))}). Choose another "
                f"--out, or finish it: levelhead compare {out}"
            )
        seeds = tuple(sorted({*before.seeds, *grid.seeds}))
        grid = replace(grid, rows=before.rows | grid.rows, seeds=seeds)
    return grid


def remember(grid: Grid, out: Path) -> Grid:
    """Write the grid into ``out``, :func:`joined` with the existing one, and return it."""
    grid, file = joined(grid, out), out / GRID
    if not file.exists() or read_grid(file) != grid:
        write_text(file, yaml.safe_dump(grid.to_dict(), sort_keys=False))
    return grid


def make_cells(
    grid: Grid,
    out: Path,
    *,
    data_root: Path | None = None,
    seeds: Iterable[int] | None = None,
    rows: Iterable[str] | None = None,
) -> list[Cell]:
    """Return the validated cells, one seed of every row before the next seed.

    ``seeds`` and ``rows`` choose some of them. Every mistake in any row, and a finished cell whose folder was changed
    by hand, is an error before the first run starts.
    """
    for where, own in {"set": grid.shared, **{f"variant {quoted(row)}": one for row, one in grid.rows.items()}}.items():
        for key in own:
            if (name := str(key).strip()) in ("seed", "name"):
                raise ConfigError(
                    f"The grid's {where} sets {name}: a grid lists its seeds under seeds: (--seeds) and names "
                    "variants by their key. Remove it."
                )
    chosen = list(dict.fromkeys(rows or grid.rows))
    for row in chosen:
        if row not in grid.rows:
            raise ConfigError(f"The grid has no variant {quoted(row)}. {nearest(row, grid.rows)}")
    order = dict.fromkeys(grid.seeds if seeds is None else seeds)
    for seed in order:
        check_seed(seed, "A seed of the grid")
    places = [(seed, fold) for seed in order for fold in ([None] if grid.folds is None else range(grid.folds))]
    cells = [_make_cell(grid, row, seed, fold, out, data_root) for seed, fold in places for row in chosen]
    trained = {training_of(cell.experiment): cell.folder for cell in cells if cell.experiment.method.refits is None}
    refits = [cell for cell in cells if cell.experiment.method.refits is not None]
    if any(training_of(cell.experiment) not in trained for cell in refits):
        # Variants that are not chosen now may have been trained before.
        for row in [row for row in grid.rows if row not in chosen]:
            for seed, fold in places:
                with suppress(ConfigError):  # its mistakes matter when it is chosen
                    other = _make_cell(grid, row, seed, fold, out, data_root)
                    if other.done and other.experiment.method.refits is None:
                        trained.setdefault(training_of(other.experiment), other.folder)
    return [
        replace(cell, refitted=trained.get(training_of(cell.experiment))) if cell.experiment.method.refits else cell
        for cell in cells
    ]


def _make_cell(grid: Grid, row: str, seed: int, fold: int | None, out: Path, data_root: Path | None) -> Cell:
    """Return one run of a variant; ``fold`` is None where the data set's own splits are used."""
    recipe = grid.base
    for key, value in {**grid.shared, **grid.rows[row]}.items():
        # As --set would read it, which takes 5e-05 for a text, so that both find the same folder.
        recipe = assign(recipe, key, read_yaml(json.dumps(value), f"Variant {quoted(row)}, {quoted(key)}"))
    data = section(recipe, "data")
    root = data.get("root") if data_root is None else str(data_root)
    # Of the recipe as written, not of every default: a later version with one more option finds the cell again.
    text = json.dumps(flatten(recipe | {"data": {k: v for k, v in data.items() if k != "root"}}), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    located = data if root is None else {**data, "root": root}
    parts = {} if fold is None else {"folds": grid.folds, "fold": fold}
    place = f"seed-{seed}" if fold is None else f"seed-{seed}-fold-{fold}-of-{grid.folds}"
    try:
        experiment = build_experiment(recipe | {"data": {**located, **parts}, "seed": seed, "name": row})
        folder = out / f"{_slug(row)}-{digest}" / place
        work_of(folder).refuse_changes(experiment.recipe)
    except ConfigError as error:
        raise ConfigError(f"Variant {quoted(row)}: {error}") from None
    return Cell(row, experiment, folder)


Launcher = Callable[[Cell], Failure | None]
"""Trains and evaluates one cell, wherever that is."""


def run_grid(
    cells: Iterable[Cell],
    *,
    workers: int = 1,
    launch: Launcher | None = None,
    report: Callable[[Cell, Failure | None, float], None] = lambda cell, failure, seconds: None,
) -> list[Failure]:
    """Train and evaluate every cell that is not done; a failed cell is reported and does not stop the others.

    ``workers`` cells are under way at a time, each a local process unless ``launch`` says otherwise. ``report(cell,
    failure, seconds)`` is called as each cell ends. Ctrl-C stops the runs; each resumes from its last checkpoint.
    """
    missing = [cell for cell in cells if not cell.done]
    failures = []
    for refits in (False, True):  # what is refitted must be trained before
        now = [cell for cell in missing if (cell.refitted is not None) is refits]
        start = launch or LocalProcesses(len(now), workers)

        def timed(cell: Cell, start: Launcher = start) -> tuple[Failure | None, float]:
            began = time.monotonic()
            return start(cell), time.monotonic() - began

        with ThreadPoolExecutor(workers) as pool:
            futures = {pool.submit(timed, cell): cell for cell in now}
            try:
                for future in as_completed(futures):
                    failure, seconds = future.result()
                    failures += [] if failure is None else [failure]
                    report(futures[future], failure, seconds)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            finally:
                if isinstance(start, LocalProcesses):
                    start.stop()
    return failures


def order_of(cell: Cell) -> dict[str, Any]:
    """Return what a process needs to train and evaluate ``cell``, as JSON can hold it."""
    refitted = None if cell.refitted is None else str(cell.refitted)
    places = {"folder": str(cell.folder), "refitted": refitted, "started_in": str(Path.cwd())}
    return {"experiment": cell.experiment.recipe, **places}


class LocalProcesses:
    """Launches each of ``cells`` in a process of its own on this machine.

    While one works, the next already starts: importing takes seconds, as long as many a refit. ``workers`` that go side
    by side share the processors, unless the recipe or ``OMP_NUM_THREADS`` says how many threads a run has.
    """

    def __init__(self, cells: int = 1, workers: int = 1) -> None:
        alone = workers == 1 or "OMP_NUM_THREADS" in os.environ
        self.threads = 0 if alone else max(1, (os.cpu_count() or 1) // workers)
        self._left, self._lock = cells, threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._next: dict[tuple[str | None, int], subprocess.Popen[str]] = {}

    def __call__(self, cell: Cell) -> Failure | None:
        """Train and evaluate ``cell``; return its failure, if it failed."""
        failure = self.run(order_of(cell), cell.folder)
        return None if failure is None else Failure(cell, failure)

    def run(self, order: dict[str, Any], folder: Path) -> str | None:
        """Do what :func:`order_of` says in a process of its own; return the last line of its failure, if it failed."""
        place = order["started_in"] if Path(order["started_in"]).is_dir() else None
        kind = place, int(order["experiment"]["train"]["threads"] or self.threads)
        with self._lock:
            process = self._next.pop(kind, None)
            if process is not None and process.poll() is not None:  # killed meanwhile
                process.communicate()
                process = None
            process = process or _started(*kind)
            self._running.add(process)
            self._left -= 1
            if self._left > 0 and kind not in self._next:
                self._next[kind] = _started(*kind)
        with process:
            _, errors = process.communicate(json.dumps(order))
        self._running.discard(process)
        trace = folder.with_name(f"{folder.name}-error.txt")
        if process.returncode == 0:
            trace.unlink(missing_ok=True)
            return None if is_done(folder) else "ended perfectly and without a result"
        said = (errors.strip().splitlines() or ["it said nothing"])[-1]
        if "Traceback" in errors:  # a mistake in a method of the user's own, say: the last line is not enough
            write_text(trace, errors)
            said = f"{said} (where: {trace})"
        # A killed process had no time to say why; what it said last is about something else.
        return f"ended by signal {-process.returncode}" if process.returncode < 0 else said

    def stop(self) -> None:
        """End what is running, and what was to run next."""
        for process in [*self._running, *self._next.values()]:
            process.terminate()
        for process in self._next.values():
            process.communicate()


def _started(folder: str | None, threads: int) -> subprocess.Popen[str]:
    """Start a process that waits for its order on standard input; 0 threads: as many as torch takes."""
    return subprocess.Popen(
        [sys.executable, "-m", "levelhead.bench.grid"],
        cwd=folder,
        # No module is taken from the current folder.
        env=os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads else {}) | {"PYTHONSAFEPATH": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def complete(experiment: Experiment, folder: Path) -> None:
    """Train what is left of a run, and evaluate it; of epochs that were kept, their predictions stay."""
    from levelhead.runs.evaluate import evaluate_run
    from levelhead.runs.train import train_run
    from levelhead.training.checkpoint import forget_epochs

    train_run(experiment, folder, resume=True)
    evaluate_run(folder)
    forget_epochs(folder)


def _main() -> None:
    """Train and evaluate the cell that stands on standard input; say a mistake in one line."""
    # What the order needs is imported before it comes.
    from levelhead.runs import evaluate, train  # noqa: F401
    from levelhead.runs.refit import Refitting, refit_run
    from levelhead.training.processes import begin_worker

    begin_worker()
    message: dict[str, Any] = json.load(sys.stdin)
    experiment, folder, refitted = build_experiment(message["experiment"]), Path(message["folder"]), message["refitted"]
    try:
        if refitted is not None:
            refit_run(Refitting(Path(refitted), experiment.data.root), experiment, folder)
            return
        complete(experiment, folder)
    except LevelheadError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main()
