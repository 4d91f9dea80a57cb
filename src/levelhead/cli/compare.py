"""The command ``levelhead compare``: train and evaluate methods over seeds and options, and show the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelhead.cli.options import AllTables, DataRoot, FewGroups, MinCount, Tried
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
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Finish the comparison in the folder GRID or --out; --methods, --try and --seeds may add to it.",
    ),
]


def compare_command(
    grid: Annotated[
        str | None,
        typer.Argument(
            help="A grid: a YAML file, a built-in name (`levelhead list grids`), or with --resume a comparison's "
            "folder. Else give --data or --recipe, and --methods."
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
    few_groups: FewGroups = None,
    settings: Settings = None,
    only: Annotated[list[str] | None, typer.Option("--row", help="Only this variant of GRID. Repeatable.")] = None,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs. Default: runs/DATA or runs/GRID.")] = None,
    resume: Resume = False,
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
    options = [*(options or ())]
    if few_groups is not None:
        options.append(f"method.rows={few_groups}")
    from levelhead.bench.grid import GRID, comparison_grid, parse_seeds, read_grid

    folder, begun = _folders(grid, out, resume, data or str(recipe))
    check_outputs({"--html": html_file}, folders={"--out": folder}, inputs=[recipe], runs=[folder])
    chosen: list[int] | None = None
    if grid is not None and begun is None:
        named = {"--data": data, "--recipe": recipe, "--methods": methods, "--try": options or None}
        plan, chosen = _grid_of_file(grid, named, folds), None if seeds is None else parse_seeds(seeds)
    else:
        if only:
            raise ConfigError("--row selects variants of a GRID: name one, or use --methods.")
        plan = comparison_grid(
            None if begun is None else read_grid(begun / GRID),
            data=data,
            recipe=recipe,
            methods=methods,
            seeds=seeds,
            options=options,
            settings=settings or (),
            data_root=data_root,
            folds=folds,
        )
        settings = None
    more: dict[str, Any] = {"data_root": data_root, "settings": settings or (), "everything": all_, "rows": only}
    run_comparison(plan, folder, workers, ray, html_file, plan_only, min_count, seeds=chosen, **more)


def _folders(grid: str | None, out: Path | None, resume: bool, named: str) -> tuple[Path, Path | None]:
    """Return the folder of the runs, and the one that holds a comparison which was begun."""
    from levelhead.bench.grid import GRID

    begun = None if grid is None else Path(grid)
    folder = out or Path("runs") / Path(grid or named).stem
    if begun is not None and ((begun / GRID).exists() or (resume and begun.is_dir())):
        if not resume:
            raise ConfigError(f"{begun} holds a comparison: add --resume to finish it.")
        if out is not None:
            raise ConfigError(f"{begun} is the folder to resume: leave out --out.")
        folder = begun
    else:
        begun = out if resume else None
    if resume and begun is None:
        none = "" if grid is None or Path(grid).exists() else f" There is no folder {quoted(grid)}."
        raise ConfigError(f"--resume needs the folder of a comparison: levelhead compare FOLDER --resume.{none}")
    if begun is not None and not (begun / GRID).exists():
        raise ConfigError(f"{begun} holds no {GRID}: it was not made by `levelhead compare`.")
    return folder, begun


def _grid_of_file(grid: str, named: Mapping[str, object], folds: int | None) -> Grid:
    """Read a grid, and refuse the options ``named`` that say what it says."""
    from levelhead.bench.grid import read_grid

    if given := [name for name, value in named.items() if value is not None]:
        raise ConfigError(f"The grid {quoted(grid)} defines the comparison: remove {', '.join(given)}.")
    plan = read_grid(grid)
    return plan if folds is None else replace(plan, folds=folds)


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
    options: dict[str, Any] = {"everything": False, "data_root": None, "settings": ()}
    run_comparison(plan, out, 2, None, page, rows=rows, seeds=range(seeds), **options)


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
    **options: Any,
) -> None:
    """Check everything, remember the grid in ``folder``, run what is missing of it, and show the table."""
    from levelhead.bench.checks import check_cells
    from levelhead.bench.grid import joined, make_cells, remember
    from levelhead.bench.running import run_all, show_results
    from levelhead.report.page import command_line

    plan = joined(plan, folder)
    cells = make_cells(plan, folder, rows=rows, seeds=seeds, **options)
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
