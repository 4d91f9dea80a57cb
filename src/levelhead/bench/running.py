"""Run a grid and tell how it goes: a bar on a terminal, a line a run elsewhere; then the table, or what failed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from levelhead.auditing.options import MIN_COUNT
from levelhead.bench import grid
from levelhead.bench.grid import GRID, Cell, Failure, Launcher
from levelhead.bench.of_runs import compared
from levelhead.bench.page import Comparisons, print_each
from levelhead.bench.tables import collect
from levelhead.data.folds import Fold
from levelhead.report import text
from levelhead.terminal import counted, spent


def run_all(
    cells: Sequence[Cell],
    folder: Path,
    *,
    workers: int,
    ray: str | None,
    console: Console,
    again: str,
    launch: Launcher | None = None,
) -> int:
    """Run what is missing and return the exit status: 0, 1 if a run failed, 130 if Ctrl-C stopped them.

    ``again`` is the command that continues after a failure or a stop. ``workers`` runs go side by side on this machine,
    or as many as the Ray cluster ``ray`` has processors. ``launch`` trains a run in another way than as a
    process of this machine.
    """
    missing = [cell for cell in cells if not cell.done]
    _announce(cells, missing, folder, console)
    failures: list[Failure] = []
    try:
        with (
            _cluster(ray, folder, min(workers, max(1, len(missing)))) as (elsewhere, slots),
            _told(cells, missing, slots, console) as report,
        ):
            failures = grid.run_grid(cells, workers=slots, launch=elsewhere or launch, report=report)
    except KeyboardInterrupt:
        _tell_of_stop(cells, missing, console, again)
        return 130
    if not failures:
        return 0
    console.print(f"\n{len(failures)} of {len(cells)} runs failed:", highlight=False)
    for failure in failures:
        _line(console, f"  {_name(failure.cell)} ({failure.cell.folder}): {failure.message}")
    _line(console, f"The other runs are kept. To try these again: {again}")
    return 1


def show_results(
    cells: Sequence[Cell],
    folder: Path,
    *,
    console: Console,
    html_file: Path | None = None,
    min_count: int = MIN_COUNT,
    everything: bool = False,
) -> None:
    """Print the tables of finished runs, and write the page if ``html_file`` is given.

    Runs on different data are different tables; in each, the first row of the grid is the baseline. What fits a
    screen is printed, or ``everything``.
    """
    groups = collect([cell.folder for cell in cells], "test", min_count=min_count)
    rows = list(dict.fromkeys(cell.row for cell in cells))
    comparisons = [group.compare(next(row for row in rows if row in group.rows())) for group in groups]
    print_each([Comparisons.of(one) for one in comparisons], console, everything)
    if html_file is not None:
        from levelhead.report.page import write_page

        every = [compared(*each) for each in zip(groups, comparisons, strict=True)]
        write_page(html_file, Comparisons(every).page())
        _line(console, f"Wrote {html_file}")
    _line(console, f"Wrote {folder}: {len(cells)} runs, and {GRID}, which remembers them.")


def _name(cell: Cell) -> str:
    data = cell.experiment.data
    fold = f", fold {data.fold + 1} of {data.folds}" if isinstance(data, Fold) else ""
    return f"{cell.row}, seed {cell.experiment.seed}{fold}"


def _line(console: Console, line: str) -> None:
    console.print(escape(line), soft_wrap=True, highlight=False)


def _announce(cells: Sequence[Cell], missing: Sequence[Cell], folder: Path, console: Console) -> None:
    """Say how many runs there are."""
    rows, seeds = {cell.row for cell in cells}, {cell.experiment.seed for cell in cells}
    done = "" if len(missing) == len(cells) else f"; {len(cells) - len(missing) if missing else 'all'} of them done"
    times = f"{text.counted(len(rows), 'variant')} x {text.counted(len(seeds), 'seed')}"
    folds = {cell.experiment.data.folds for cell in cells if isinstance(cell.experiment.data, Fold)}
    times += "".join(f" x {count} folds" for count in folds)
    _line(console, f"{text.counted(len(cells), 'run')} ({times}) in {folder}{done}.")
    twice = dict.fromkeys(cell.row for cell in missing if cell.experiment.method.trains_twice)
    if twice:
        _line(
            console,
            f"{text.joined([*twice])} train{'s' * (len(twice) == 1)} two networks: expect at least twice the time.",
        )
    if missing and len(missing) == len(cells):
        _line(console, "To know the time before training, add --plan.")


@contextlib.contextmanager
def _cluster(ray: str | None, folder: Path, workers: int) -> Iterator[tuple[Any, int]]:
    if ray is None:
        yield None, workers
        return
    from levelhead.bench.ray_cluster import connected

    with connected(ray, folder) as cluster:
        yield cluster


@contextlib.contextmanager
def _told(
    cells: Sequence[Cell], missing: Sequence[Cell], slots: int, console: Console
) -> Iterator[Callable[[Cell, Failure | None, float], None]]:
    """Yield what is called as each run ends. On a terminal a bar moves, and only failures are lines."""
    ended, began = len(cells) - len(missing), time.monotonic()

    def foretell() -> None:
        left = (len(missing) / slots - 1) * (time.monotonic() - began)
        if ended == len(cells) - len(missing) + 1 and left >= 60:
            _line(console, f"About {spent(left)} left at the pace of the first run; other methods may take longer.")

    def line(cell: Cell, failure: Failure | None, seconds: float) -> None:
        nonlocal ended
        ended += 1
        minutes, rest = divmod(round(seconds), 60)
        outcome = f"done in {minutes}:{rest:02d}" if failure is None else f"FAILED after {minutes}:{rest:02d}"
        reason = "" if failure is None else f": {failure.message}"
        _line(console, f"[{ended}/{len(cells)}] {_name(cell)}: {outcome}{reason}")
        foretell()

    if not console.is_terminal:
        yield line
        return
    with counted(console, f"{len(cells)} runs", len(cells), ended) as advance:

        def moved(cell: Cell, failure: Failure | None, seconds: float) -> None:
            if failure is not None:
                line(cell, failure, seconds)
            advance()

        yield moved


def _tell_of_stop(cells: Sequence[Cell], missing: Sequence[Cell], console: Console, again: str) -> None:
    under_way = [_name(cell) for cell in missing if not cell.done and (cell.folder / "checkpoints").exists()]
    done = sum(cell.done for cell in cells)
    _line(console, f"\nStopped: {done} of {len(cells)} runs are done.")
    if under_way:
        _line(console, f"Running, kept up to their last checkpoint: {'; '.join(under_way)}.")
    _line(console, f"To resume: {again}")
