"""The command ``levelhead figure``: a run's queries, keys and attention by group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import FiguresFile, HtmlFile, Run
from levelhead.storage import check_outputs


def figure_command(
    run: Run,
    head: Annotated[int, typer.Option(help="Attention head, from 0.")] = 0,
    dimension: Annotated[int, typer.Option(help="Dimension within the head, from 0.")] = 0,
    token: Annotated[int, typer.Option(help="Token whose key is drawn; 0 is the CLS token.")] = 10,
    attribute: Annotated[
        str | None, typer.Option(help="Sensitive attribute to group by. Default: the data set's first.")
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that holds the data sets. Default: the run's own.")
    ] = None,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Draw a run's queries, keys and attention over patches by group (the paper's figures 3 and 4).

    One dimension of the readout query and of a token's key is an example: the table shows the same statistic for all
    dimensions, and for shuffled groups. A debiased run is drawn before and after debiasing. `--html` has the pictures.
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=[run])
    from levelhead.inspecting.figures import attention_figures

    found = attention_figures(
        run, data_root=data_root, attribute=attribute, head=head, dimension=dimension, token=token
    )
    finish(found, json_file, html_file, source=run.resolve().name)
