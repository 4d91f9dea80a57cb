"""Run the grids that represent tables and figures of the paper, and write what came out beside what was published.

All items of one scale share their runs: two grids that ask for the same recipe and seed train it once. What is
finished is never trained again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.markup import escape

from levelhead.bench.checks import check_cells
from levelhead.bench.grid import Cell, Failure, Grid, complete, make_cells, read_grid
from levelhead.bench.of_runs import compared
from levelhead.bench.page import Comparisons
from levelhead.bench.running import run_all
from levelhead.inspecting.figures import attention_figures
from levelhead.paper.items import ITEMS, SOURCES, Item, Scale
from levelhead.paper.published import published
from levelhead.paper.rehearsal import rehearsed
from levelhead.paper.results import Protocol, Reproduction, reproduction
from levelhead.report.page import write_page
from levelhead.report.terminal import drawn_blocks
from levelhead.runs.options import assign, section
from levelhead.storage import data_home, write_json
from levelhead.types import ConfigError, DataError, LevelheadError, listed, quoted

RUNS = "runs"


@dataclass(frozen=True)
class Options:
    """What is requested, for all items alike.

    ``quick`` rehearses on synthetic data, which gives no result. ``rows`` are the only variants wanted (empty: all).
    ``backbone`` takes the place of the grids' pretrained network; ``settings`` (``key=value``) come on top of all rows.
    """

    out: Path
    scale: Scale = "small"
    protocol: Protocol = "label-only"
    data_root: Path | None = None
    seeds: tuple[int, ...] | None = None
    settings: tuple[str, ...] = ()
    backbone: str | None = None
    quick: bool = False
    rows: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where runs and results of this scale lie. A rehearsal's lie elsewhere: nobody takes one for the other."""
        return self.out / (self.scale + "-quick" * self.quick)


@dataclass(frozen=True)
class Plan:
    """An item with the runs that it needs: ``grids`` maps names of grids to their cells."""

    item: Item
    grids: Mapping[str, Sequence[Cell]]

    @property
    def cells(self) -> list[Cell]:
        """All cells of all grids."""
        return [cell for cells in self.grids.values() for cell in cells]


def make_plan(item: Item, options: Options) -> Plan:
    """Return the runs that ``item`` needs, or raise :class:`~levelhead.types.ConfigError` for impossible options."""
    grids = {}
    for name in item.grids[options.scale]:
        grid = _grid(name, item, options)
        cells = make_cells(
            grid,
            options.folder / RUNS,
            data_root=None if options.quick else options.data_root,
            seeds=_seeds(item, grid, options),
            rows=options.rows or item.rows or None,
        )
        grids[name] = [_shared(cell, options.folder / RUNS) for cell in cells]
        rows: dict[Path, str] = {}
        for cell in grids[name]:
            if rows.setdefault(cell.folder, cell.row) != cell.row:
                raise ConfigError(
                    f"{item.title}: with these settings {quoted(rows[cell.folder])} and {quoted(cell.row)} are the "
                    "same run. Leave out the --set that makes them so."
                )
    return Plan(item, grids)


def _grid(name: str, item: Item, options: Options) -> Grid:
    grid = read_grid(name)
    shared = dict(grid.shared)
    if options.backbone is not None and "backbone" in section(grid.base, "model"):
        shared.pop("model.backbone", None)
        grid = replace(grid, base=assign(grid.base, "model.backbone", options.backbone))
    base, source = grid.base, item.source(options.scale, None if options.quick else data_home(options.data_root))
    if source != item.source(options.scale):  # the same task, on the owners' files
        base = assign(base, "data.name", source)
    grid = replace(grid, base=base, shared=shared)
    return (rehearsed(grid, options.folder) if options.quick else grid).with_settings(options.settings)


def _seeds(item: Item, grid: Grid, options: Options) -> tuple[int, ...]:
    seeds = options.seeds or (grid.seeds[:1] if options.quick else grid.seeds)
    return seeds[:1] if item.rows else seeds  # the figures show one network each


def _shared(cell: Cell, runs: Path) -> Cell:
    """Return the cell in a folder that does not depend on the row's name: other grids find it there."""
    digest = cell.folder.parent.name.rpartition("-")[2]
    folder = runs / f"{cell.experiment.method_name}-{digest}" / cell.folder.name
    return Cell(cell.row, replace(cell.experiment, name=""), folder)


def distinct(plans: Iterable[Plan]) -> list[Cell]:
    """Return every run once, the most informative first: seed by seed, in each the items by their order."""
    cells: dict[Path, Cell] = {}
    for plan in sorted(plans, key=lambda plan: plan.item.order):
        for cell in plan.cells:
            cells.setdefault(cell.folder, cell)
    first = min((cell.experiment.seed for cell in cells.values()), default=0)
    return sorted(cells.values(), key=lambda cell: (cell.experiment.seed != first, cell.experiment.seed))


def check_plan(plan: Plan, options: Options, *, local: bool = True) -> None:
    """Raise the first mistake that would make a run fail; for missing data, saying which files go where."""
    try:
        for experiment in {str(cell.experiment.data): cell.experiment for cell in plan.cells if not cell.done}.values():
            experiment.data.check()
    except DataError as error:
        raise DataError(f"{plan.item.title}: {error} {needs(plan.item, options.scale)}") from None
    try:
        check_cells([cell for cell in plan.cells if not cell.done], local=local)
    except ConfigError as error:
        first = plan.item.first.get(options.scale)
        raise (ConfigError(f"{error} {first}") if first and "backbone" in str(error) else error) from None


def needs(item: Item, scale: Scale) -> str:
    """Return a sentence that says which files an item needs, in which folder, and on whose page they are."""
    sources = [SOURCES[name] for name in item.data[scale]]
    return (
        f"{item.title} needs the folder {', or '.join(map(str, sources))}. The owners' page: {sources[0].owner}. Name "
        "the folder above it with --data-root. Without data, --quick shows on synthetic data what will be written."
    )


def run_plans(
    plans: Sequence[Plan], options: Options, *, workers: int, ray: str | None, console: Console, again: str
) -> int:
    """Run what is missing and write what there is; return the exit status."""
    status = run_all(
        distinct(plans),
        options.folder,
        workers=workers,
        ray=ray,
        console=console,
        again=again,
        launch=train_here if options.quick and ray is None else None,
    )
    for plan in plans:
        try:
            written = write_item(plan, options, console)
        except LevelheadError as error:
            if len(plans) == 1:
                raise
            _say(console, f"{plan.item.title} cannot be written: {error}")
            status = status or 1
            continue
        if not written:
            _say(console, f"{plan.item.title}: nothing to show yet.")
    return status


def train_here(cell: Cell) -> Failure | None:
    """Train and evaluate a cell in this process: to start another takes longer than a tiny training."""
    try:
        complete(cell.experiment, cell.folder)
    except LevelheadError as error:
        return Failure(cell, str(error))
    return None


def write_item(plan: Plan, options: Options, console: Console) -> list[Path]:
    """Write and show what an item's finished runs say; return the files, none if no run is finished."""
    item, written = plan.item, []
    if item.drawing in ("qk", "attention"):
        return _draw_networks(plan, options, console)
    found: dict[str, Reproduction] = {}
    for grid, cells in plan.grids.items():
        backbone = item.grids[options.scale][grid]
        title = ", ".join([item.title, *([backbone] if backbone else []), f"{options.scale} scale"])
        one = reproduction(cells, published(item.name, backbone), options.protocol, title)
        if one is not None:
            found[grid] = one
    if not found:
        return []
    stem = options.folder / (item.name if options.protocol == "label-only" else f"{item.name}-{options.protocol}")
    trial = "A TRIAL: it shows what will be written, and no result." if options.quick else ""
    data = plan.cells[0].experiment.data_name  # --set may have named other data than the item's
    reason = item.reason(options.scale, data)
    record: dict[str, Any] = {"item": item.name, "scale": options.scale, "protocol": options.protocol}
    record |= {"trial": options.quick, "reasons": reason, "grids": {}}
    _say(console, f"\n{item.title}: {item.shows}. {trial}")
    pages = []
    for grid, one in found.items():
        sections, findings = one.sections(), one.findings(reason)
        record["grids"][grid] = one.to_dict()
        console.print(Group(*drawn_blocks(sections[:2])))
        console.print("\n".join(findings), markup=False, soft_wrap=True)
        for number, (runs, alike) in enumerate(one.kinds):
            title = one.title if len(one.kinds) == 1 else f"{one.title}: {', '.join(alike.table.rows)}"
            first = item.drawing == "pareto"
            beside = () if number else sections
            pages.append(compared(runs, alike, beside, title=title, plane_first=first))
    write_json(stem.with_suffix(".json"), record)
    report = Comparisons(
        pages,
        title=f"{item.title} of the paper, {options.scale} scale",
        cautions=[each for each in (trial, f"Published figures differ for reasons such as: {reason}.") if each],
    )
    write_page(stem.with_suffix(".html"), report.page())
    written += [stem.with_suffix(ending) for ending in (".html", ".json")]
    _say(console, f"Wrote {', '.join(map(str, written))}.")
    return written


def _draw_networks(plan: Plan, options: Options, console: Console) -> list[Path]:
    """Draw the finished networks of an item, a page each."""
    written, record = [], {}
    for cell in plan.cells:
        if not cell.done:
            continue
        found = attention_figures(cell.folder, data_root=None if options.quick else options.data_root)
        found = replace(found, source=replace(found.source, method=cell.row))  # two rows may be of one method
        row = "-".join(re.findall(r"\w+", cell.row.lower()))
        written.append(options.folder / f"{plan.item.name}-{row}.html")
        write_page(written[-1], found.page())
        record[cell.row] = found.to_dict()
    if not written:
        return []
    written.append(options.folder / f"{plan.item.name}.json")
    write_json(written[-1], {"item": plan.item.name, "trial": options.quick, "networks": record})
    _say(console, f"\n{plan.item.title}: {plan.item.shows}.")
    _say(console, f"Wrote {', '.join(map(str, written))}.")
    return written


def runnable(options: Options, console: Console) -> list[Plan]:
    """Return the plans of all items whose data are there; say what is missing for the others.

    Raises:
        ConfigError: no item can be run.
    """
    plans, absent = [], []
    for item in sorted(ITEMS.values(), key=lambda item: item.order):
        # A pretrained network that is named for all is one that reads texts.
        chosen = replace(options, backbone=None) if item.name == "table5" else options
        try:
            plan = make_plan(item, chosen)
            check_plan(plan, chosen)
            plans.append(plan)
        except LevelheadError as error:
            absent.append(item.title)
            _say(console, f"Left out: {error}")
    if not plans:
        raise ConfigError(f"None of {listed(absent)} can be run: see above what each needs.")
    return plans


def _say(console: Console, text: str) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)
