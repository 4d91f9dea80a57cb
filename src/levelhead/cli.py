"""The command line. Each verb is thin: it reads options, calls one function, and prints."""

from __future__ import annotations

import contextlib
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from levelhead import __version__
from levelhead.auditing.command import HtmlFile, SplitName, audit_command, bounds_command, certify_command
from levelhead.auditing.figure_command import figure_app
from levelhead.bench.pareto_command import pareto_command
from levelhead.features_command import features_app
from levelhead.lm.command import lm_bias_command, lm_compare_command
from levelhead.lm.gap_command import lm_gap_command
from levelhead.lm.klaad_command import klaad_command
from levelhead.model_card import card_command
from levelhead.report.command import report_command
from levelhead.storage import check_outputs, write_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, LevelheadError, visible

if TYPE_CHECKING:  # importing torch takes seconds, and an audit does not need it
    from levelhead.bench.grid import Cell, Failure

app = typer.Typer(
    name="levelhead",
    help="Fair transformers without demographics: train, evaluate, compare and audit classifiers.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
console = Terminal()
app.command("audit")(audit_command)
app.command("bounds")(bounds_command)
app.command("certify", hidden=True)(certify_command)
app.command("card")(card_command)
app.command("klaad")(klaad_command)
app.command("lm-bias")(lm_bias_command)
app.command("lm-compare")(lm_compare_command)
app.command("lm-gap")(lm_gap_command)
app.command("pareto")(pareto_command)
app.command("report")(report_command)
app.add_typer(figure_app, name="figure")
app.add_typer(features_app, name="features")

DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder that holds the data sets. Default: $LEVELHEAD_DATA, then ./data.", show_default=False),
]


class Kind(StrEnum):
    """What ``levelhead list`` can list."""

    methods = "methods"
    datasets = "datasets"
    recipes = "recipes"
    selectors = "selectors"


class Energy(StrEnum):
    """The ways to measure energy."""

    counter = "counter"
    paper_formula = "paper-formula"
    off = "off"


class ThresholdName(StrEnum):
    """The thresholds that a table can compare at."""

    own = "own"
    matched = "matched"


def _version(value: bool) -> None:
    if value:
        console.print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe (`levelhead list recipes`).")],
    data_root: DataRoot = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Overrides the recipe's seed.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override any key of the recipe, e.g. --set train.epochs=3."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/RECIPE-seedN.", show_default=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run folder where it stopped, also after kill -9.")
    ] = False,
    energy: Annotated[
        Energy, typer.Option(help="How a GPU's energy is measured: its counter, the paper's formula too, or off.")
    ] = Energy.counter,
) -> None:
    """Train one recipe with one seed into a run folder.

    The sensitive column is not read, unless the method or the selector declares that it sees groups (ORACLE).

    Example: levelhead train recipes/utkface64_dam_small.yaml --data-root DATA --seed 1
    """
    check_outputs({}, folders={"--out": out})
    from levelhead.config import load_experiment
    from levelhead.progress import training_progress
    from levelhead.runs import train_run

    experiment = load_experiment(recipe, settings or (), data_root=data_root, seed=seed)
    folder = out or Path("runs") / f"{Path(recipe).stem}-seed{experiment.seed}"
    console.quiet = os.environ.get("RANK", "0") != "0"  # of several processes one speaks
    try:
        with training_progress(console) as progress:
            metrics = train_run(experiment, folder, resume=resume, progress=progress, energy=energy.value)
    except KeyboardInterrupt:
        console.print(f"\nStopped. Go on with the same command and --resume; the run is in {folder}.")
        raise typer.Exit(130) from None
    table = Table(title=f"{escape(str(folder))}: validation, kept by {metrics['selected_by']}")
    for column in metrics["validation"]:
        table.add_column(column, justify="right")
    table.add_row(*(f"{abs(value):.4f}" for value in metrics["validation"].values()))
    console.print(table)
    console.print(f"Next: levelhead evaluate {escape(str(folder))} --split test")


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    split: Annotated[SplitName, typer.Option(help="Which split to predict.")] = SplitName.test,
    data_root: DataRoot = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the result here.", show_default=False)
    ] = None,
    html_file: HtmlFile = None,
    allow_mismatched_weights: Annotated[
        bool,
        typer.Option("--allow-mismatched-weights", help="Take a network whose weights do not fit its config.json."),
    ] = False,
) -> None:
    """Predict a split with a run's network and print its metrics by group, with intervals.

    Writes predictions-SPLIT.parquet and evaluation-SPLIT.json into the run folder.
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=[run])
    from levelhead.runs import evaluate_run, load_run, oracle_reason

    result = evaluate_run(run, split.value, data_root=data_root, allow_mismatched_weights=allow_mismatched_weights)
    reason = oracle_reason(load_run(run))
    if reason:
        console.print(f"[bold]ORACLE[/bold]: the {reason} of this run saw groups.")
    console.print(result.table())
    if json_file:
        write_json(json_file, result.to_dict())
    if html_file:
        from levelhead.report.page import command_line, write_page
        from levelhead.report.run_page import run_page

        write_page(html_file, run_page(run, split=split.value, command=command_line()))


@app.command()
def table(
    runs: Annotated[list[Path], typer.Argument(help="Evaluated run folders, or a folder of them.")],
    split: Annotated[SplitName, typer.Option(help="Which split's predictions to compare.")] = SplitName.test,
    baseline: Annotated[str, typer.Option(help="The row that the others are compared with.")] = "erm",
    select: Annotated[
        str | None,
        typer.Option(
            help="Choose epochs anew (runs with train.keep_epochs): a label-only selector, or LEAKING_equalized_odds.",
            show_default=False,
        ),
    ] = None,
    tune_by: Annotated[
        str | None,
        typer.Option(
            "--tune",
            help="Keep one row a method: the best by this label-only selector on validation.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        ThresholdName, typer.Option(help="Each run's own, or matched to the baseline's positive rate.")
    ] = ThresholdName.own,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the table here.", show_default=False)
    ] = None,
    html_file: HtmlFile = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of a drawn table.")] = False,
) -> None:
    """Compare runs over seeds: one interval for test rows and seeds together, paired differences, Holm.

    Runs of one data set and one set of hyperparameters make a row; a row's runs differ in the seed alone. A method
    that only moves its threshold moves the gaps too: --threshold matched shows what is left.
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=runs)
    from levelhead.bench.tables import collect
    from levelhead.bench.tuning import choices_section, choices_to_dict, tune

    results, pages = [], []
    for group in collect(runs, split.value):
        options: dict[str, Any] = {"selection": select, "threshold": threshold.value}
        more, picked = [], {}
        if tune_by is not None:
            chosen, choices = tune(group, tune_by)
            more = [choices_section(choices, group.compare(baseline, **options), tune_by)] if choices else []
            picked, group = {"tuning": choices_to_dict(choices, tune_by)}, chosen
        comparison = group.compare(baseline, **options)
        results.append(comparison.to_dict() | picked)
        pages.append((group, comparison, more))
        if markdown:
            text = "\n".join([comparison.markdown(), *(section.markdown() for section in more)])
            sys.stdout.write(visible(text, keep="\n") + "\n")
        else:
            for drawn in [*comparison.tables(), *(section.draw() for section in more)]:
                console.print(drawn)
            console.print("\n".join(comparison.findings()), markup=False)
    if json_file:
        write_json(json_file, {"comparisons": results})
    if html_file:
        from levelhead.report.comparison_page import compared, comparison_page
        from levelhead.report.page import command_line, write_page

        page = comparison_page([compared(*each) for each in pages], command=command_line())
        write_page(html_file, page)


Workers = Annotated[int, typer.Option(min=1, help="Runs side by side, each in a process of its own.")]
RayAddress = Annotated[
    str | None,
    typer.Option("--ray", help="Spread the runs over a Ray cluster: auto, or its address.", show_default=False),
]


@app.command()
def grid(
    grid: Annotated[str, typer.Argument(help="A YAML file with base, seeds and rows, or the name of one of ours.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs. Default: runs/GRID.", show_default=False)
    ] = None,
    data_root: DataRoot = None,
    workers: Workers = 1,
    ray: RayAddress = None,
    seed: Annotated[list[int] | None, typer.Option(help="Only these seeds; may be repeated.")] = None,
    row: Annotated[list[str] | None, typer.Option(help="Only these rows; may be repeated.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key in every row.")
    ] = None,
) -> None:
    """Train and evaluate every row and seed of a grid; the same command again does only what is missing.

    Example: levelhead grid finding_utkface64 --data-root DATA --workers 2
    """
    from levelhead.bench.grid import make_cells, read_grid, remember

    folder = out or Path("runs") / Path(grid).stem
    check_outputs({}, folders={"--out": folder})
    plan = read_grid(grid)
    make_cells(plan, folder, data_root=data_root, rows=row, seeds=seed, settings=settings or ())  # mistakes first
    plan = remember(plan, folder)
    cells = make_cells(plan, folder, data_root=data_root, seeds=seed, rows=row, settings=settings or ())
    _run_cells(cells, folder, workers, ray)


@app.command()
def compare(
    data: Annotated[
        str | None,
        typer.Option(help="A task of ours, e.g. utkface64 or portraits: its small recipe.", show_default=False),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Or any recipe: its data, model and train sections.", show_default=False)
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, e.g. erm,jtt,dam,dam+jtt (`levelhead list methods`). Default: erm,dam.", show_default=False
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, e.g. 0-4 or 0,2,5. Default: 0-2.", show_default=False)
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="KEY=VALUE,VALUE", help="Values to try, e.g. method.upweight=20,50,100."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key for every method.")
    ] = None,
    data_root: DataRoot = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs. Default: runs/DATA.", show_default=False)
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with the grid in this folder. It holds everything else; more methods, values and seeds may be "
            "given beside it.",
            show_default=False,
        ),
    ] = None,
    workers: Workers = 1,
    ray: RayAddress = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", help="When all is done, write one standalone HTML page.", show_default=False),
    ] = None,
) -> None:
    """Train methods with the same model, budget, batches and selection, over seeds and options.

    Example: levelhead compare --data utkface64 --methods erm,balanced,jtt,dam --seeds 0-4 --out runs/utk --workers 2
    """
    if resume is not None and out is not None:
        raise ConfigError("--resume names the folder to go on with: leave out --out.")
    folder = resume or out or Path("runs") / Path(data or str(recipe)).stem
    check_outputs({"--html": html_file}, folders={"--out": folder}, inputs=[recipe], runs=[folder])
    from levelhead.bench.grid import GRID, comparison_grid, make_cells, remember
    from levelhead.bench.grid import read_grid as read

    if resume is not None and not (resume / GRID).exists():
        raise ConfigError(f"{resume} holds no {GRID}: it is no folder that `compare` or `grid` made.")
    plan = comparison_grid(
        None if resume is None else read(resume / GRID),
        task=data,
        recipe=recipe,
        methods=methods,
        seeds=seeds,
        options=options or (),
        settings=settings or (),
        data_root=data_root,
    )
    make_cells(plan, folder, data_root=data_root)  # mistakes first
    plan = remember(plan, folder)
    cells = make_cells(plan, folder, data_root=data_root)
    _run_cells(cells, folder, workers, ray)
    if html_file is not None:
        from levelhead.report.command import runs_page
        from levelhead.report.page import command_line, write_page

        write_page(html_file, runs_page([folder], baseline=cells[0].row, command=command_line()))


def _run_cells(cells: list[Cell], folder: Path, workers: int, ray: str | None) -> None:
    """Run what is missing, with a bar, and say how to go on."""
    from levelhead.bench.grid import run_grid
    from levelhead.progress import counted

    done = sum(cell.done for cell in cells)
    try:
        if ray is None:
            cluster: Any = contextlib.nullcontext((None, workers))
        else:
            from levelhead.bench.ray_cluster import connected

            cluster = connected(ray, folder)
        with cluster as (launch, slots), counted(console, f"{len(cells)} runs", len(cells), done) as advance:

            def report(cell: Cell, failure: Failure | None) -> None:
                if failure is not None:
                    text = f"[bold red]failed[/bold red] {escape(str(cell.folder))}: {escape(failure.message)}"
                    console.print(text, soft_wrap=True)
                advance()

            failures = run_grid(cells, workers=slots, launch=launch, report=report)
    except KeyboardInterrupt:
        console.print("Stopped. The same command goes on from there.")
        raise typer.Exit(130) from None
    if failures:
        console.print(f"{len(failures)} of {len(cells)} runs failed; the same command tries them again.")
        raise typer.Exit(1)
    console.print(f"Next: levelhead table {escape(str(folder))} --baseline '{escape(cells[0].row)}'", soft_wrap=True)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, the pictures and the runs.")] = Path("demo"),
    seeds: Annotated[int, typer.Option(min=2, max=1000, help="Training seeds of each method.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Processes that train side by side.")] = 2,
) -> None:
    """Compare four methods on drawn portraits where it is known why a gap arises; needs no data and no internet.

    Three settings: no shortcut, a shortcut that some training rows contradict, and different base rates without a
    shortcut. Writes a page, a picture and a table. The same command continues a demo that was stopped.
    """
    check_outputs({}, folders={"--out": out})
    from levelhead.demo import run_demo

    try:
        run_demo(out, seeds=seeds, workers=workers, console=console)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


@app.command("list")
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List the methods, data sets, recipes or selectors that there are."""
    from levelhead.config import recipe_folder
    from levelhead.data import DATASETS
    from levelhead.methods import METHODS
    from levelhead.select import SELECTORS

    rows: dict[str, tuple[str, ...]]
    if kind is Kind.methods:
        columns: tuple[str, ...] = ("method", "what it does", "sees groups")
        rows = {name: (cls.summary, "ORACLE" if cls.uses_groups else "no") for name, cls in METHODS.items()}
    elif kind is Kind.selectors:
        columns = ("selector", "which checkpoint is kept", "sees groups")
        rows = {name: (rule.summary, "ORACLE" if rule.uses_groups else "no") for name, rule in SELECTORS.items()}
    elif kind is Kind.datasets:
        columns = ("data set", "task", "groups", "terms")
        rows = {name: (cls.card.task, cls.card.groups, cls.card.licence) for name, cls in DATASETS.items()}
    else:
        columns = ("recipe", "what it is")
        files = sorted(recipe_folder().glob("*.yaml"))
        rows = {file.stem: (file.read_text(encoding="utf-8").splitlines()[0].lstrip("# "),) for file in files}
    drawn = Table(*columns)
    for name, texts in rows.items():
        drawn.add_row(name, *(escape(text) for text in texts))
    console.print(drawn)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; a levelhead error is one clear sentence and exit status 2."""
    try:
        return app(arguments)
    except LevelheadError as error:
        text = str(error)
    except OSError as error:  # a disk that is full, a folder that may not be written
        where = "" if error.filename is None else f": {error.filename}"
        text = str(LevelheadError(f"{error.strerror or error}{where}."))
    Terminal(stderr=True).print(f"[bold red]Error:[/bold red] {escape(text)}", soft_wrap=True)
    sys.exit(2)
