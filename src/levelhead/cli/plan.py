"""The command ``levelhead plan``: how many rows an audit needs, before there are data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import TABLES, FiguresFile, HtmlFile, Text, Texts, given, opened


def plan_command(
    earlier: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE...", help=f"Earlier rows, for rate and shares: {TABLES}. Or an evaluated run."),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Expected rate, e.g. 0.3 if 3 in 10 are approved.")] = None,
    gap: Annotated[
        float | None, typer.Option(help="Gap to detect, in percentage points: prints the rows needed.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Available rows of all groups: prints the detectable gap.")] = None,
    shares: Annotated[
        str, typer.Option(help="Each group's share of the rows: 0.5,0.3,0.2 or women=0.3,men=0.7.")
    ] = "0.5,0.5",
    groups: Annotated[Texts, typer.Option("--group", help="With FILE: column with the group.")] = None,
    label: Annotated[
        Text, typer.Option(help="With FILE: column with the true class. Without: selection rates.")
    ] = None,
    prediction: Annotated[
        Text, typer.Option(help="With FILE: column with the predicted class or the decision.")
    ] = None,
    favourable: Annotated[Text, typer.Option(help="With FILE: class that the rate is about.")] = None,
    comparisons: Annotated[
        int | None,
        typer.Option(help="Number of comparisons. Default: every pair, in the true and the false positive rate."),
    ] = None,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Compute how many rows an audit needs to detect a gap, or the smallest gap that a number of rows can detect.

    Count the rows in the rate's denominator: all rows for a selection rate, positive rows for a true positive rate.
    The two smallest groups determine the result: a group with 5 percent of the rows needs many more rows in total.

    levelhead plan --gap 5 --rate 0.3 --shares 0.5,0.3,0.2

    levelhead plan decisions.csv --prediction decision --favourable approved --group race --gap 5
    """
    asked = given(locals(), "earlier", "json_file", "html_file")
    if gap is not None:
        asked["gap"] = gap / 100
    table, inputs = opened(earlier or [], [], json_file, html_file)
    from levelhead.auditing.plan import plan_audit

    finish(plan_audit(table, **asked), json_file, html_file, inputs=inputs)
