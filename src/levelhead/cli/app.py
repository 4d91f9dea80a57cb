"""The command line. Each verb is thin: it reads options, calls one function, and prints."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from levelhead._version import __version__
from levelhead.cli.apply import apply_command
from levelhead.cli.audit import audit_command
from levelhead.cli.browser import app_command
from levelhead.cli.compare import compare_command, demo_command
from levelhead.cli.data import data_app, init_command
from levelhead.cli.explain import explain_command
from levelhead.cli.figure import figure_command
from levelhead.cli.gap import gap_command
from levelhead.cli.indirect import indirect_audit_command
from levelhead.cli.info import info_command
from levelhead.cli.inspect import inspect_command
from levelhead.cli.klaad import train_command as lm_train_command
from levelhead.cli.lm import lm_app
from levelhead.cli.plan import plan_command
from levelhead.cli.postprocess import postprocess_command
from levelhead.cli.predict import predict_command
from levelhead.cli.pretrain import pretrain_command
from levelhead.cli.refit import refit_command
from levelhead.cli.report import report_command
from levelhead.cli.reproduce import reproduce_command
from levelhead.cli.table import table_command
from levelhead.cli.train import evaluate_command, train_command
from levelhead.extras import MissingExtraError, explained
from levelhead.terminal import RUNNING, Terminal, spare_encodings
from levelhead.types import ConfigError, LevelheadError

app = typer.Typer(
    name="levelhead",
    help="Audit classifiers for gaps between groups, and train and compare methods that need no demographic labels.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
TRAINING, AUDITING, MORE = "Train and compare", "Audit and report", "More"
app.command("init", rich_help_panel=TRAINING)(init_command)
app.command("train", rich_help_panel=TRAINING)(train_command)
app.command("pretrain", rich_help_panel=TRAINING)(pretrain_command)
app.command("evaluate", rich_help_panel=TRAINING)(evaluate_command)
app.command("predict", rich_help_panel=TRAINING)(predict_command)
app.command("compare", rich_help_panel=TRAINING)(compare_command)
app.command("refit", rich_help_panel=TRAINING)(refit_command)
app.command("table", rich_help_panel=TRAINING)(table_command)
app.command("reproduce", rich_help_panel=TRAINING)(reproduce_command)
app.command("audit", rich_help_panel=AUDITING)(audit_command)
app.command("indirect-audit", rich_help_panel=AUDITING)(indirect_audit_command)
app.command("plan", rich_help_panel=AUDITING)(plan_command)
app.command("explain", rich_help_panel=AUDITING)(explain_command)
app.command("inspect", rich_help_panel=AUDITING)(inspect_command)
app.command("postprocess", rich_help_panel=AUDITING)(postprocess_command)
app.command("apply", rich_help_panel=AUDITING)(apply_command)
app.command("report", rich_help_panel=AUDITING)(report_command)
app.command("app", rich_help_panel=AUDITING)(app_command)
app.command("figure", rich_help_panel=AUDITING)(figure_command)
app.add_typer(lm_app, name="lm", rich_help_panel=MORE)
lm_app.command("train")(lm_train_command)
lm_app.command("gap")(gap_command)
app.add_typer(data_app, name="data", rich_help_panel=MORE)
app.command("info", rich_help_panel=MORE)(info_command)


class Kind(StrEnum):
    """What ``levelhead list`` can list."""

    methods = "methods"
    datasets = "datasets"
    recipes = "recipes"
    grids = "grids"
    selectors = "selectors"
    benchmarks = "benchmarks"


def _version(value: bool) -> None:
    if value:
        from levelhead._version import commit

        known = commit()
        Terminal().print(__version__ + ("" if known is None else f" (commit {known})"), highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("demo", rich_help_panel=MORE)(demo_command)


@app.command("list", rich_help_panel=MORE)
def list_(kind: Annotated[Kind, typer.Argument(help="What to list.")]) -> None:
    """List methods, data sets, recipes, grids, selectors or benchmarks, including those of installed packages."""
    from levelhead.cli.listing import listed_kind

    columns, rows = listed_kind(kind.value)
    drawn = Table(*columns)
    for row in rows:
        drawn.add_row(*map(escape, row))
    Terminal().print(drawn)


def _refuse_deleted_folder() -> None:
    """Raise :class:`ConfigError` where a library would end in an error of its own, or Python would not start again."""
    try:
        Path.cwd()
    except OSError:
        raise ConfigError("The current folder was deleted. Change to another, for example: cd ~") from None


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; a levelhead error is one clear sentence and exit status 2."""
    os.environ["PYTHONSAFEPATH"] = "1"  # no process that this one starts takes a module from the current folder
    spare_encodings()
    atexit.register(gc.freeze)  # else Python ends with a search for garbage in all that torch loaded: a second or two
    try:
        _refuse_deleted_folder()
        arguments = sys.argv[1:] if arguments is None else arguments
        running = RUNNING.set(arguments)
        try:
            return app(arguments)
        finally:
            RUNNING.reset(running)
    except LevelheadError as error:
        text = getattr(error, "typed", str(error))
    except ModuleNotFoundError as error:
        told = explained(error, "This command")
        if not isinstance(told, MissingExtraError):
            raise
        text = str(told)
    except OSError as error:  # a disk that is full, a folder that may not be written
        where = "" if error.filename is None else f": {error.filename}"
        text = str(LevelheadError(f"{error.strerror or error}{where}."))
    Terminal(stderr=True).print(f"[bold red]Error:[/bold red] {escape(text)}", soft_wrap=True)
    sys.exit(2)
