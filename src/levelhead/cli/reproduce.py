"""The command ``levelhead reproduce``: the paper's tables and figures, one by one or all."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from levelhead.cli.compare import RayAddress, Settings, Workers
from levelhead.cli.options import DataRoot
from levelhead.storage import check_outputs, data_home
from levelhead.terminal import Terminal
from levelhead.types import ConfigError

if TYPE_CHECKING:  # importing torch takes seconds, and --help does not need it
    from levelhead.paper.reproduce import Plan


class ScaleName(StrEnum):
    """How large: a small network on two cores, or the paper's."""

    small = "small"
    paper = "paper"


class ProtocolName(StrEnum):
    """Who chooses epochs: labels alone, or the gap on the test rows, as the released notebooks do."""

    label_only = "label-only"
    as_released = "as-released"


def reproduce_command(
    what: Annotated[
        str, typer.Argument(help="list, all, table1 to table7, or figure2 to figure4.", show_default=False)
    ],
    data_root: DataRoot = None,
    scale: Annotated[ScaleName, typer.Option(help="Small networks, or the paper's size.")] = ScaleName.small,
    protocol: Annotated[
        ProtocolName,
        typer.Option(help="Epochs by labels alone, or as released: by the gap on the test rows, marked LEAKING."),
    ] = ProtocolName.label_only,
    seeds: Annotated[str | None, typer.Option(help="Seeds, e.g. 0-2. Default: those of each grid.")] = None,
    rows: Annotated[list[str] | None, typer.Option("--row", help="Only this variant; may be repeated.")] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="Pretrained network for tables 3 to 6 (with all: 3, 4, 6): a folder or a Hub name."),
    ] = None,
    settings: Settings = None,
    out: Annotated[Path, typer.Option(help="Folder of runs and results; all scales.")] = Path("runs/paper"),
    workers: Workers = 1,
    ray: RayAddress = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only time a few steps of each run, and print the expected time.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Rehearse on synthetic data with tiny networks. Gives no result.")
    ] = False,
) -> None:
    """Run the experiments behind a table or figure of the paper, and show the published figures beside yours.

    Tables share runs, and finished runs are not trained again, also after kill -9. Each table shows the effect of
    choosing epochs by the test rows, as the released notebooks do.

    Examples: levelhead reproduce list; levelhead reproduce table2 --data-root DATA --workers 2
    """
    if what == "list":
        console = Terminal()
        console.print(_listed(data_home(data_root), out))
        console.print("levelhead reproduce NAME --data-root DATA; with --plan it times the runs on this machine.")
        return
    from levelhead.bench.grid import parse_seeds
    from levelhead.paper.items import find_item
    from levelhead.paper.reproduce import Options, check_plan, make_plan, run_plans, runnable
    from levelhead.report.page import command_line

    check_outputs({}, folders={"--out": out})
    if what == "all" and rows:
        raise ConfigError("--row selects variants of one table: name that table instead of all.")
    options = Options(
        out,
        scale.value,
        protocol.value,
        data_root,
        None if seeds is None else tuple(parse_seeds(seeds)),
        tuple(settings or ()),
        backbone,
        quick,
        tuple(rows or ()),
    )
    console = Terminal()
    if what == "all":
        plans = runnable(options, console)
    else:
        plans = [make_plan(find_item(what), options)]
        check_plan(plans[0], options, local=ray is None)
    if plan:
        _show_times(plans, workers, console)
        return
    again = command_line() or "the same command"
    status = run_plans(plans, options, workers=workers, ray=ray, console=console, again=again)
    if status:
        raise typer.Exit(status)


def _listed(root: Path, out: Path) -> Table:
    """Return what there is to run: what each item needs and costs, what was committed of it, and what ``out`` holds."""
    from levelhead.paper.items import ITEMS, SOURCES

    drawn = Table.grid(padding=(0, 2))
    for item in ITEMS.values():
        names = dict.fromkeys(name for sources in item.data.values() for name in sources)
        data = [f"{name}/ ({'found' if SOURCES[name].is_below(root) else f'not in {root}'})" for name in names]
        own = [path for scale in item.grids if (path := out / scale / f"{item.name}.json").exists()]
        lines = [
            item.shows,
            f"data: {' or '.join(data)}",
            "cost: " + "; ".join(f"{scale} scale: {cost}" for scale, cost in item.cost.items()),
            f"committed: {', '.join(f'results/{name}' for name in item.results) or 'nothing yet'}",
            f"yours: {', '.join(map(str, own)) or 'not run'}",
        ]
        drawn.add_row(f"[bold]{item.name}[/bold]", escape("\n".join([*lines, ""])))
    return drawn


def _show_times(plans: Sequence[Plan], workers: int, console: Terminal) -> None:
    from levelhead.bench.timing import predicted
    from levelhead.paper.reproduce import distinct
    from levelhead.report.text import counted

    cells = distinct(plans)
    seconds = predicted(cells, console)
    drawn = Table("name", "runs", "to do", "minutes")
    seen: set[Path] = set()
    for plan in sorted(plans, key=lambda plan: plan.item.order):
        folders = {cell.folder for cell in plan.cells}
        new = [folder for folder in folders - seen if folder in seconds]
        total = sum(seconds[folder] for folder in new) / 60 / workers
        drawn.add_row(plan.item.name, str(len(folders)), str(len(new)), f"{total:,.1f}")
        seen |= folders
    drawn.caption = f"predicted from a few steps a run, for {workers} at a time; a run that two items share counts once"
    console.print(drawn)
    console.print(f"In all: {sum(seconds.values()) / 60 / workers:,.1f} minutes.", highlight=False)
    failing = len({cell.folder for cell in cells if not cell.done} - seconds.keys())
    if failing:
        console.print(f"{counted(failing, 'run')} not counted: see above what fails.", highlight=False)
        raise typer.Exit(1)
