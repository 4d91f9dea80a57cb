"""The command ``levelhead plan``: how many rows an audit needs, before there are data."""

from __future__ import annotations

from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import FiguresFile, HtmlFile
from levelhead.storage import check_outputs


def plan_command(
    rate: Annotated[
        float,
        typer.Option(help="Expected rate, e.g. 0.3 if 3 in 10 are approved.", show_default=False),
    ],
    gap: Annotated[
        float | None, typer.Option(help="Gap to detect, in percentage points: prints the rows needed.")
    ] = None,
    rows: Annotated[float | None, typer.Option(help="Available rows of all groups: prints the detectable gap.")] = None,
    shares: Annotated[
        str, typer.Option(help="Each group's share of the rows: 0.5,0.3,0.2 or women=0.3,men=0.7.")
    ] = "0.5,0.5",
    comparisons: Annotated[
        int | None,
        typer.Option(help="Number of comparisons. Default: every pair, in the true and the false positive rate."),
    ] = None,
    power: Annotated[float, typer.Option(help="Power: probability of detecting a gap of this size.")] = 0.8,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Compute how many rows an audit needs to detect a gap, or the smallest gap that a number of rows can detect.

    Count the rows in the rate's denominator: all rows for a selection rate, positive rows for a true positive rate.
    The two smallest groups determine the result: a group with 5 percent of the rows needs many more rows in total.

    levelhead plan --gap 5 --rate 0.3 --shares 0.5,0.3,0.2

    levelhead plan --rows 2000 --rate 0.3
    """
    check_outputs({"--json": json_file, "--html": html_file})
    from levelhead.auditing.plan import read_plan

    finish(read_plan(gap, rows, rate, shares, comparisons, power), json_file, html_file)
