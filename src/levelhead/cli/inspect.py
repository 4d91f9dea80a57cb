"""The command ``levelhead inspect``: what a run's attention, vectors and answers know of a group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import DataRoot, FiguresFile, HtmlFile, SplitName
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal, training_progress


def inspect_command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Finished runs of one method: seeds or folds.", show_default=False),
    ],
    against: Annotated[
        list[Path] | None, typer.Option(metavar="RUN", help="A run of another method to compare with. Repeatable.")
    ] = None,
    split: Annotated[SplitName, typer.Option(help="Which split to run the network on.")] = SplitName.test,
    attribute: Annotated[
        str | None, typer.Option(help="Sensitive attribute to group by. Default: the data set's first.")
    ] = None,
    pair: Annotated[
        tuple[str, str] | None, typer.Option(metavar="GROUP GROUP", help="The two groups. Default: the two largest.")
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Largest number of rows per run, drawn at random.")] = 2000,
    permutations: Annotated[
        int, typer.Option(help="Permutations of the groups, for p-values: at least 19, with several runs at least 39.")
    ] = 200,
    data_root: DataRoot = None,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Measure how much a run's attention, vectors and predictions reveal about a group.

    From the last layer's attention to the gap: whether attention differs between groups, how well a probe predicts the
    group from queries, keys, values and logits, whether predictions use it, and whether attention explains them
    equally well for both groups. Each figure has an interval, or a chance level and a p-value. Several runs are
    pooled. Existing output files are replaced.
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=[*runs, *(against or [])])
    from levelhead.inspecting.inspect import inspect_runs

    with training_progress(Terminal(stderr=True)) as progress:
        result = inspect_runs(
            runs,
            against or [],
            split=split.value,
            data_root=data_root,
            attribute=attribute,
            pair=pair,
            max_rows=max_rows,
            permutations=permutations,
            progress=progress,
        )
    finish(result, json_file, html_file, source=runs[0].resolve().name)
