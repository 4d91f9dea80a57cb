"""The commands ``levelhead train`` and ``levelhead evaluate``: one run."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from levelhead.cli.finishing import tell, write_files
from levelhead.cli.options import (  # fmt: skip
    ClusterOfRun,
    DataRoot,
    HtmlFile,
    JoinedFile,
    JoinedGroup,
    JsonFile,
    MinCount,
    Missing,
    MissingGroups,
    OnColumn,
    Recipe,
    Resume,
    Run,
    Seed,
    Settings,
    SplitName,
    run_join,
)
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal
from levelhead.types import ConfigError


def train_command(
    recipe: Recipe,
    data_root: DataRoot = None,
    seed: Seed = None,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: runs/RECIPE-seedN.")] = None,
    resume: Resume = False,
) -> None:
    """Train one recipe with one seed into a run folder.

    The sensitive column is not read, unless the method or the selector declares that it sees groups (ORACLE).

    Example: levelhead train recipes/utkface64_dam_small.yaml --data-root DATA --seed 1
    """
    check_outputs({}, folders={"--out": out})
    from levelhead.runs.recipe import load_experiment
    from levelhead.runs.train import train_run
    from levelhead.terminal import training_progress

    experiment = load_experiment(recipe, settings or (), data_root=data_root, seed=seed)
    folder = out or Path("runs") / f"{Path(recipe).stem}-seed{experiment.seed}"
    console = Terminal()
    console.quiet = os.environ.get("RANK", "0") != "0"  # of several processes one speaks
    try:
        with training_progress(console) as progress:
            metrics = train_run(experiment, folder, resume=resume, progress=progress)
    except KeyboardInterrupt:
        console.print(f"\nStopped. Resume with the same command and --resume; the run is in {folder}.")
        raise typer.Exit(130) from None
    table = Table(title=f"{escape(folder.name)}: validation, kept by {metrics['selected_by']}")
    for column in metrics["validation"]:
        table.add_column(column, justify="right")
    table.add_row(*(f"{abs(value):.4f}" for value in metrics["validation"].values()))
    console.print(table)
    tell(console, f"levelhead evaluate {shlex.quote(str(folder))} --split test")


def evaluate_command(
    run: Run,
    split: Annotated[SplitName, typer.Option(help="Which split to predict.")] = SplitName.test,
    data_root: DataRoot = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Other data, e.g. --set data.file=other.csv; needs --out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the new figures, with --set. The run keeps its own.")
    ] = None,
    cluster: ClusterOfRun = None,
    join: JoinedFile = None,
    on: OnColumn = None,
    group: JoinedGroup = None,
    min_count: MinCount = 10,
    missing: MissingGroups = Missing.leave_out,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Predict a split with a run's network and print its metrics by group, with intervals.

    Writes predictions-SPLIT.parquet and evaluation-SPLIT.json into the run folder.

    Example: levelhead evaluate runs/mine --set data.sensitive=region --out by-region
    """
    check_outputs({"--json": json_file, "--html": html_file}, folders={"--out": out}, runs=[run])
    if out is not None and html_file:
        raise ConfigError(
            f"--html shows a run with its own figures. For those of --out: levelhead audit "
            f"{out}/predictions-{split.value}.parquet --label label --prediction prediction --group COLUMN --html FILE."
        )
    from levelhead.runs.evaluate import evaluate_run
    from levelhead.runs.folder import load_run
    from levelhead.runs.page import run_page

    joined = run_join(run, join, on, group)

    console = Terminal()
    result = evaluate_run(
        run,
        split.value,
        data_root=data_root,
        settings=settings or (),
        out=out,
        cluster=cluster,
        min_count=min_count,
        missing=missing.words,
        join=joined,
    )
    reason = load_run(run).oracle
    if reason:
        console.print(f"[bold]ORACLE[/bold]: the {reason} of this run saw groups.")
    console.print(result.table(all=True))
    write_files(json_file, result.to_dict(), html_file, lambda: run_page(run, split=split.value))
    if out is None and split is SplitName.test and not result.to_dict()["warnings"]:
        tell(console, f"levelhead audit {shlex.quote(str(run))}")
