"""The command ``levelhead explain``: what a measured gap is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import (
    AllTables,
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
    source_joined,
)  # fmt: skip
from levelhead.storage import check_outputs
from levelhead.types import ConfigError


def explain_command(
    scores: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="File with one row per score: .csv, .tsv (also .gz) or .parquet."),
    ] = None,
    label: LabelColumn = None,
    score: ScoreColumn = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Column with the group; repeatable."),
    ] = None,
    positive: ScoredClass = None,
    favourable: Annotated[
        str | None,
        typer.Option(help="Favourable outcome: a class, or a name for decisions at or above the threshold."),
    ] = None,
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
    all_: AllTables = False,
) -> None:
    """Split a measured gap into its sources: base rates, the share of them that the score uses, and the rest.

    For each pair of groups: the gap in equalized odds; the gap that base rates imply for a calibrated score that ranks
    equally well; the share of the base-rate difference that the score uses; and the unexplained rest. All have 95%
    intervals. Needs no model and no GPU. Base rates are those of the labels in the file, and explain a gap without
    justifying it. Existing output files are replaced.
    """
    check_outputs({"--json": json_file, "--html": html_file}, inputs=[scores, join])
    from levelhead.auditing.of_run import OUTCOMES, own_predictions

    if (own_run := own_predictions(scores)) is not None:
        scores, label, score = own_run.file, label or OUTCOMES[0], score or own_run.score
        group = group or (None if join else list(own_run.groups))
        cluster = cluster or own_run.cluster
        positive, on = own_run.positive if positive is None else positive, on or (own_run.ids if join else None)
    given = {"FILE": scores, "--label": label, "--score": score, "--group": group}
    if scores is None or label is None or score is None or not group:
        missing = [name for name, value in given.items() if not value]
        raise ConfigError(
            f"An explanation needs FILE, --label, --score and --group; missing: {', '.join(missing)}. For example: "
            "levelhead explain predictions.csv --label y --score p --group sex"
        )
    if (join is None) != (on is None):
        raise ConfigError("--join and --on go together: a file with groups, and the column of ids.")
    rows = source_joined(scores, join, on, [label, score, *group, cluster])
    # Here, because importing pandas and scipy takes a second, and --help does not need them.
    from levelhead.auditing.explain import explain_file

    group = list(dict.fromkeys(group))
    result = explain_file(
        rows, label, score, group, positive=positive, threshold=threshold, scale=scale, min_count=min_count,
        cluster=cluster, label_map=label_map, favourable=favourable,
        ignore_label=ignore_label,
    )  # fmt: skip
    finish(
        result, json_file, html_file, source=scores.name, inputs=[scores, join], everything=all_,
        step="levelhead postprocess fits a rule that reads groups; levelhead list methods shows training without them.",
    )  # fmt: skip
