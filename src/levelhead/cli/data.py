"""The commands ``levelhead init`` and ``levelhead data check``: from a table of one's own to a recipe that runs."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from levelhead.cli.finishing import tell
from levelhead.cli.options import DataRoot, Recipe, Settings
from levelhead.csv_form import harmless
from levelhead.storage import check_outputs, write_text
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, nearest, quoted

data_app = typer.Typer(help="Check a recipe's data before training.", no_args_is_help=True)


def init_command(
    path: Annotated[
        Path,
        typer.Argument(
            help="A table (csv, tsv, jsonl, parquet), a folder of tables, a folder of pictures per class, or a data "
            "set on disk (save_to_disk, Hub)."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The recipe to write. Default: the table's name, .yaml.")] = None,
    target: Annotated[str | None, typer.Option(help="Column with the class to predict.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Column with the text.")] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Column with groups, for evaluation only; repeatable.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="Method of the recipe, e.g. dam for debiased attention (`levelhead list methods`).")
    ] = "erm",
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Pretrained encoder: a name on the Hub, or a folder. Default: a small sentence encoder for texts, "
            "none "
            "for pictures."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="data.KEY=VALUE",
            help="Set an option of the data instead of guessing it: data.target=toxicity. Repeatable.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing recipe.")] = False,
) -> None:
    """Write a first, commented recipe for your own table.

    Guesses which column is the text (or the picture's file), the class, the split and the id. A column whose name
    describes people is kept out of training and used for evaluation only.

    Example: levelhead init reviews.csv
    """
    from levelhead.methods import METHODS
    from levelhead.runs.init import list_pictures, refuse_existing, write_recipe

    place = out or Path(f"{path.resolve().name.split('.')[0] or 'mine'}.yaml")
    check_outputs({"--out": place})
    refuse_existing(place, force)
    if ":" not in method and not METHODS.offers(method.removeprefix("dam+")):
        raise ConfigError(f"Unknown method {quoted(method)}. {nearest(method, METHODS)}")
    pictures = list_pictures(path) if path.is_dir() else []
    named = {"target": target, "text_column": text, "sensitive": group}
    if pictures and any(named.values()):
        raise ConfigError(
            f"{path} holds a folder of pictures per class, without columns: remove --target, --text, --group."
        )
    settings = [*(settings or ()), *(f"data.{key}={json.dumps(value)}" for key, value in named.items() if value)]
    table = place.with_suffix(".csv")
    if pictures:
        check_outputs({"--out": table})
        refuse_existing(table, force)
    recipe, guess = write_recipe(path, backbone, settings, method=method, place=place, pictures=pictures)
    if pictures:
        listing = io.StringIO()
        # A path that a spreadsheet would take for a formula has the same meaning behind ./
        cells = [
            (file if harmless(file) == file else f"./{file}", harmless(name), split) for file, name, split in pictures
        ]
        csv.writer(listing, lineterminator="\n").writerows([("file", "label", "split"), *cells])
        write_text(table, listing.getvalue())
        guess.said.append(f"Wrote {table}, which lists them.")
    write_text(place, recipe)
    console = Terminal()
    for sentence in guess.said:
        console.print(escape(sentence), soft_wrap=True)
    console.print(f"Wrote {escape(str(place))}", soft_wrap=True)
    tell(console, f"levelhead data check {shlex.quote(str(place))}")


@data_app.command("check")
def check_command(recipe: Recipe, data_root: DataRoot = None, settings: Settings = None) -> None:
    """Show a recipe's splits, classes, a few masked examples, and what training opens. Trains nothing.

    Example: levelhead data check reviews.yaml
    """
    from levelhead.data import SPLITS
    from levelhead.runs.data_check import look_at
    from levelhead.runs.recipe import load_experiment

    experiment = load_experiment(recipe, settings or (), data_root=data_root)
    console = Terminal()
    found = look_at(experiment)
    table = Table(title=escape(found.title), title_justify="left")
    table.add_column(escape(found.target), overflow="fold")
    for split in SPLITS:
        table.add_column(split, justify="right")
    for name, counts in found.counts.items():
        table.add_row(escape(name), *(f"{count:,}" for count in counts))
    table.add_section()
    table.add_row("all rows", *(f"{sum(column):,}" for column in zip(*found.counts.values(), strict=True)))
    console.print(table)
    for example in found.examples:
        console.print(escape(example), soft_wrap=True)
    for sentence in found.said:
        console.print(escape(sentence), soft_wrap=True)
    tell(console, f"levelhead train {shlex.quote(str(recipe))}")
