"""The command ``levelhead postprocess``: flip decisions after training, knowing the groups."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish, made
from levelhead.cli.options import (
    TABLES,
    ClassOfLabel,
    FiguresFile,
    HtmlFile,
    IgnoredLabel,
    JoinedFile,
    OnColumn,
    ScoreColumn,
    ScoredClass,
    ScoreScale,
    Threshold,
    given,
    opened,
)
from levelhead.storage import check_outputs, write_json
from levelhead.types import ConfigError


class Bounded(StrEnum):
    """Which gap is bounded."""

    demographic_parity = "demographic_parity"
    equal_opportunity = "equal_opportunity"
    equalized_odds = "equalized_odds"


def postprocess_command(
    scores: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help=f"One row per score: {TABLES}. Or an evaluated run.")
    ] = None,
    score: ScoreColumn = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", help="Column with the group that the rule reads.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column with the true class. Needed to choose the rule and to report its effect."),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            help="File that the rule is fitted on; FILE is then held out. Default: a random half of FILE, and of a run "
            "its validation split if this names the run."
        ),
    ] = None,
    rule: Annotated[
        Path | None, typer.Option(help="Write the fitted rule here, as JSON, for `levelhead apply`.")
    ] = None,
    metric: Annotated[Bounded, typer.Option(help="Gap to bound.")] = Bounded.equalized_odds,
    delta: Annotated[float, typer.Option(help="The bound, a fraction: 0.02 is 2 points.")] = 0.02,
    threshold: Threshold = None,
    one_threshold: Annotated[
        bool, typer.Option("--one-threshold", help="One threshold for all rows: no group is read to decide.")
    ] = False,
    scale: ScoreScale = "auto",
    label_map: ClassOfLabel = None,
    ignore_label: IgnoredLabel = None,
    positive: ScoredClass = None,
    seed: Annotated[int, typer.Option(help="Seed of the random halves and of randomised decisions.")] = 0,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Column with a person's id: clusters the intervals, and divides no cluster between random halves. "
            "Default for a RUN with ids: the person."
        ),
    ] = None,
    join: JoinedFile = None,
    on: OnColumn = None,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Flip the least costly decisions to bring a gap between groups within a bound. USES GROUPS.

    Bias scoring (ICLR 2024) fits a rule that reads each row's group, on rows with labels, and measures it on other
    rows: gaps and accuracy before and after, with 95% intervals. The bound is on the gap that the scores predict.
    `levelhead apply` applies the rule and writes the decisions.

    Example: levelhead postprocess valid.csv --score p --group sex --label y --rule rule.json

    --one-threshold reads groups to choose a threshold, but not to decide. For methods that see no groups: levelhead
    list methods.
    """
    asked = given(locals(), "scores", "rule", "json_file", "html_file")
    if one_threshold and rule is not None:
        raise ConfigError(
            "--one-threshold needs no rule to decide new rows: remove --rule, and decide by the threshold."
        )
    paths = scores or []
    if fit is None and rule is not None and rule.exists():  # nobody's rule is lost to a slip for `levelhead apply`
        raise ConfigError(
            f"--rule {rule} exists already. To decide by it, type: levelhead apply {rule} {paths[0] if paths else ''}. "
            "To fit another rule, name a new file."
        )
    # Here, because importing scipy takes a second, and --help does not need it.
    from levelhead.auditing.exclusions import RULE, refuse
    from levelhead.auditing.postprocess_audit import postprocess

    check_outputs({"--rule": rule}, inputs=[*paths, fit, join])
    table, inputs = opened(
        paths, [fit, join], json_file, html_file, lambda: refuse({"data": paths} | asked, lacks=RULE)
    )
    found = postprocess(table, **asked)
    source = "" if table is None else table.name
    written = [] if rule is None else [rule]
    if rule is not None:
        write_json(rule, {**found.to_dict(), "made": made(inputs, source)})
    finish(found, json_file, html_file, source=source, written=written, inputs=inputs)
