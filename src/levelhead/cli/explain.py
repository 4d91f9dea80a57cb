"""The command ``levelhead explain``: what a measured gap is made of."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import (
    TABLES,
    ClassOfLabel,
    FiguresFile,
    HtmlFile,
    IgnoredLabel,
    JoinedFile,
    LabelColumn,
    OnColumn,
    ScoreColumn,
    ScoredClass,
    ScoreScale,
    Threshold,
    given,
    opened,
)  # fmt: skip
from levelhead.types import ConfigError


def _refuse_prediction(column: str | None) -> None:
    if column is not None:
        raise ConfigError(
            "explain needs a score for each row, such as a probability: --score COLUMN. Decisions can be audited: "
            f"levelhead audit FILE --label COLUMN --prediction {shlex.quote(column)} --group COLUMN"
        )


def explain_command(
    scores: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help=f"One row per score: {TABLES}. Or an evaluated run.")
    ] = None,
    label: LabelColumn = None,
    score: ScoreColumn = None,
    prediction: Annotated[str | None, typer.Option(hidden=True, callback=_refuse_prediction)] = None,
    groups: Annotated[list[str] | None, typer.Option("--group", help="Column with the group; repeatable.")] = None,
    positive: ScoredClass = None,
    threshold: Threshold = None,
    scale: ScoreScale = "auto",
    label_map: ClassOfLabel = None,
    ignore_label: IgnoredLabel = None,
    min_count: Annotated[
        int,
        typer.Option(
            help="Smallest number of positives and of negatives per group. Smaller groups are left out with a warning."
        ),
    ] = 10,
    cluster: Annotated[
        str | None,
        typer.Option(help="Column with a person's id: clusters the intervals. Default for a RUN with ids: the person."),
    ] = None,
    join: JoinedFile = None,
    on: OnColumn = None,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Split a measured gap into its sources: base rates, the share of them that the score uses, and the rest.

    For each pair of groups: the gap in equalized odds; the gap that base rates imply for a calibrated score that ranks
    equally well; the share of the base-rate difference that the score uses; and the unexplained rest. All have 95%
    intervals. Needs no model and no GPU. Base rates are those of the labels in the file, and explain a gap without
    justifying it. Existing output files are replaced.
    """
    asked = given(locals(), "scores", "prediction", "json_file", "html_file")
    # Here, because importing pandas and scipy takes a second, and --help does not need them.
    from levelhead.auditing.exclusions import EXPLANATION, refuse
    from levelhead.auditing.explain import explain

    paths = scores or []
    table, inputs = opened(
        paths, [join], json_file, html_file, lambda: refuse({"data": paths} | asked, lacks=EXPLANATION)
    )
    finish(
        explain(table, **asked), json_file, html_file, source="" if table is None else table.name, inputs=inputs,
        step="levelhead postprocess fits a rule that reads groups; levelhead list methods shows training without them.",
    )  # fmt: skip
