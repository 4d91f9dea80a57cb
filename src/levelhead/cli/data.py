"""The commands ``levelhead init`` and ``levelhead data check``: from a table of one's own to a recipe that runs."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from levelhead.cli.options import DataRoot, Recipe, Settings
from levelhead.csv_form import harmless
from levelhead.storage import check_outputs, write_text
from levelhead.terminal import Terminal

data_app = typer.Typer(help="Look at a recipe's data before training.", no_args_is_help=True)


def init_command(
    path: Annotated[
        Path,
        typer.Argument(
            help="A table (csv, tsv, jsonl, parquet), a folder of tables, a folder of pictures per class, or a data "
            "set on disk (save_to_disk, Hub)."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="The recipe to write. Default: the table's name, .yaml.")] = None,
    backbone: Annotated[
        str, typer.Option(help="Pretrained text encoder: a name on the Hub, or a folder.")
    ] = "sentence-transformers/all-MiniLM-L6-v2",
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
    """Write a first recipe for a table of your own, with comments.

    Guesses which column is the text (or the picture's file), the class, the split and the id. A column whose name says
    something of people is left out of training, and named for evaluation.

    Example: levelhead init reviews.csv
    """
    from levelhead.runs.init import (
        list_pictures,
        picture_recipe,
        refuse_existing,
        told_options,
        with_options,
        write_recipe,
    )
    from levelhead.runs.recipe import load_experiment

    target = out or Path(f"{path.resolve().name.split('.')[0] or 'mine'}.yaml")
    check_outputs({"--out": target})
    refuse_existing(target, force)
    pictures = list_pictures(path) if path.is_dir() else []
    if pictures:
        table = target.with_suffix(".csv")
        check_outputs({"--out": table})
        refuse_existing(table, force)
        text, guess = picture_recipe(path, pictures, table, target.stem)
        text = with_options(text, told_options(settings or ()))
        lines = io.StringIO()
        # A path that a spreadsheet would take for a formula has the same meaning behind ./
        cells = [
            (file if harmless(file) == file else f"./{file}", harmless(name), split) for file, name, split in pictures
        ]
        csv.writer(lines, lineterminator="\n").writerows([("file", "label", "split"), *cells])
        write_text(table, lines.getvalue())
        guess.said.append(f"Wrote {table}, which lists them.")
    else:
        text, guess = write_recipe(path, backbone, settings or ())
    write_text(target, text)
    load_experiment(target)
    console = Terminal()
    for sentence in guess.said:
        console.print(escape(sentence), soft_wrap=True)
    console.print(f"Wrote {escape(str(target))}. Read it, then: levelhead data check {escape(str(target))}")


@data_app.command("check")
def check_command(
    recipe: Recipe,
    data_root: DataRoot = None,
    settings: Settings = None,
) -> None:
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
    console.print(f"Next: levelhead train {escape(recipe)}", soft_wrap=True)
