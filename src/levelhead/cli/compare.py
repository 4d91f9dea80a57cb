"""The command ``levelhead compare``: train and evaluate methods over seeds and options, and show the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelhead.cli.options import AllTables, DataRoot, MinCount, Tried
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, quoted

if TYPE_CHECKING:  # importing torch takes seconds, and --help does not need it
    from levelhead.bench.grid import Grid

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key for every method.")
]
Workers = Annotated[int, typer.Option(min=1, help="Parallel runs, one process each.")]
RayAddress = Annotated[
    str | None, typer.Option("--ray", help="Spread the runs over a Ray cluster: auto, or its address.")
]


def compare_command(
    grid: Annotated[
        str | None,
        typer.Argument(
            help="A grid: a YAML file, a built-in name (`levelhead list grids`), or the folder of a comparison to "
            "finish. Else give --data or --recipe, and --methods."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data set, e.g. utkface64, portraits or module:Class.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Or any recipe: uses its data, model and train sections.")] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, e.g. erm,jtt,dam,dam+jtt (`levelhead list methods`). Default: erm,dam.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, e.g. 0-4 or 0,2,5. Default: 0-2, or those of GRID.")] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Number of cross-validation folds, split by person where ids are known. Each fold is the test "
            "split once, so all rows count."
        ),
    ] = None,
    plan_only: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="Train nothing: print the expected time and the smallest detectable difference, from finished runs "
            "in --out if any.",
        ),
    ] = False,
    options: Tried = None,
    settings: Settings = None,
    only: Annotated[list[str] | None, typer.Option("--row", help="Only this variant of GRID. Repeatable.")] = None,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs. Default: runs/DATA or runs/GRID.")] = None,
    workers: Workers = 1,
    ray: RayAddress = None,
    min_count: MinCount = 10,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="At the end, write one standalone HTML page.")
    ] = None,
    all_: AllTables = False,
) -> None:
    """Train and evaluate methods with the same model, budget, batches and selection, over seeds, and show the table.

    Everything is checked before the first run starts. The same command resumes, also after kill -9: finished runs are
    kept.

    Example: levelhead compare --data utkface64 --methods erm,balanced,jtt,dam --seeds 0-4 --out runs/utk --workers 2
    """
    from levelhead.bench.grid import GRID, comparison_grid, parse_seeds
    from levelhead.runs.recipe import is_file

    begun = grid is not None and is_file(Path(grid) / GRID)
    folder = out or (Path(str(grid)) if begun else Path("runs") / Path(grid or data or str(recipe)).stem)
    check_outputs({"--html": html_file}, folders={"--out": folder}, inputs=[recipe], runs=[folder])
    chosen: list[int] | None = None
    if grid is not None:
        named = {"--data": data, "--recipe": recipe, "--methods": methods, "--try": options}
        chosen = None if seeds is None else parse_seeds(seeds)
        plan = _grid_of_file(grid, named | ({"--set": settings} if begun else {}), folds, chosen or ())
        plan = plan.with_settings(settings or ())
    elif only:
        raise ConfigError("--row selects variants of a GRID: name one, or use --methods.")
    else:
        plan = comparison_grid(
            data=data,
            recipe=recipe,
            methods=methods,
            seeds=seeds,
            options=options or (),
            settings=settings or (),
            data_root=data_root,
            folds=folds,
        )
    more: dict[str, Any] = {"data_root": data_root, "everything": all_, "rows": only}
    run_comparison(plan, folder, workers, ray, html_file, plan_only, min_count, seeds=chosen, **more)


def _grid_of_file(grid: str, named: Mapping[str, object], folds: int | None, seeds: Sequence[int]) -> Grid:
    """Read a grid, with more ``seeds``, and refuse the options ``named`` that say what it says."""
    from levelhead.bench.grid import read_grid

    if given := [name for name, value in named.items() if value is not None]:
        raise ConfigError(f"The grid {quoted(grid)} defines the comparison: remove {', '.join(given)}.")
    plan = read_grid(grid)
    seeds = tuple(sorted({*plan.seeds, *seeds}))
    return replace(plan, seeds=seeds, folds=plan.folds if folds is None else folds)


def demo_command(
    out: Annotated[Path, typer.Option(help="Folder of the runs and the page.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=2, max=1000, help="Training seeds of each method.")] = 3,
) -> None:
    """Compare four methods on synthetic portraits with a known cause of the gap. Needs no data and no internet.

    Two settings of the grid portraits_demo look the same in training. In one, style is a shortcut: it predicts hair
    colour in the training pictures alone. In the other, it predicts hair colour in the test pictures, too. Writes
    page.html. The same command continues a stopped demo.
    """
    from levelhead.bench.grid import read_grid

    page = out / "page.html"
    check_outputs({"--out page.html": page}, folders={"--out": out}, runs=[out])
    plan = read_grid("portraits_demo")
    rows = [row for row in plan.rows if row.startswith(("shortcut", "base rates"))]
    run_comparison(plan, out, 2, None, page, rows=rows, seeds=range(seeds), everything=False)


def run_comparison(
    plan: Grid,
    folder: Path,
    workers: int,
    ray: str | None,
    html_file: Path | None = None,
    plan_only: bool = False,
    min_count: int = 10,
    *,
    rows: Sequence[str] | None,
    seeds: Sequence[int] | None,
    everything: bool,
    data_root: Path | None = None,
) -> None:
    """Check everything, remember the grid in ``folder``, run what is missing of it, and show the table."""
    from levelhead.bench.checks import check_cells
    from levelhead.bench.grid import joined, make_cells, remember
    from levelhead.bench.running import run_all, show_results
    from levelhead.report.page import command_line

    plan = joined(plan, folder)
    cells = make_cells(plan, folder, data_root=data_root, seeds=seeds, rows=rows)
    check_cells(cells, local=ray is None)
    if plan_only:
        from levelhead.bench.planning import show_plan

        show_plan(cells, workers=workers, console=Terminal(), min_count=min_count)
        return
    remember(plan, folder)
    again = command_line() or "the same command"
    console = Terminal()
    if status := run_all(cells, folder, workers=workers, ray=ray, console=console, again=again):
        raise typer.Exit(status)
    show_results(cells, folder, console=console, html_file=html_file, everything=everything, min_count=min_count)
