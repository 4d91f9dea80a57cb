"""The command ``levelhead postprocess``: flip decisions after training, knowing the groups."""

from __future__ import annotations

import csv
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelhead.cli.finishing import finish, made
from levelhead.cli.options import (
    ClassOfLabel,
    FiguresFile,
    HtmlFile,
    IgnoredLabel,
    ScoreColumn,
    ScoredClass,
    ScoreScale,
    Threshold,
)
from levelhead.csv_form import harmless
from levelhead.storage import check_outputs, write_atomically, write_json
from levelhead.types import ConfigError, listed

if TYPE_CHECKING:
    from levelhead.auditing.postprocess_audit import Postprocessed


class Bounded(StrEnum):
    """Which gap is bounded."""

    demographic_parity = "demographic_parity"
    equal_opportunity = "equal_opportunity"
    equalized_odds = "equalized_odds"


def postprocess_command(
    scores: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="File with one row per score: .csv, .tsv (also .gz) or .parquet. Or an evaluated run's folder. "
            "Default: the --fit file.",
        ),
    ] = None,
    score: ScoreColumn = None,
    group: Annotated[str | None, typer.Option(help="Column with the group that the rule reads.")] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column with the true class. Needed to choose the rule and to report its effect."),
    ] = None,
    validation: Annotated[
        Path | None,
        typer.Option(
            "--fit",
            "--validation",
            help="File that the rule is fitted on; FILE is the held-out set. Without FILE: a random half each. Of a "
            "run's folder, its validation split.",
        ),
    ] = None,
    rule: Annotated[
        Path | None, typer.Option(help="Write the fitted rule here, as JSON, for `levelhead apply`.")
    ] = None,
    metric: Annotated[Bounded | None, typer.Option(help="Gap to bound. Default: equalized_odds.")] = None,
    delta: Annotated[float | None, typer.Option(help="The bound, a fraction: 0.02 is 2 points. Default: 0.02.")] = None,
    threshold: Threshold = None,
    one_threshold: Annotated[
        bool, typer.Option("--one-threshold", help="One threshold for all rows: no group is read to decide.")
    ] = False,
    scale: ScoreScale = "auto",
    label_map: ClassOfLabel = None,
    ignore_label: IgnoredLabel = None,
    positive: ScoredClass = None,
    seed: Annotated[int, typer.Option(help="Seed of the random halves and of randomised decisions.")] = 0,
    id_column: Annotated[
        str | None, typer.Option("--id", help="Column with an id of each row, copied into --out.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Column with a person's id: clusters the intervals, and divides no cluster between random halves. "
            "Default for a RUN with ids: the person."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the decisions here, as csv: per row of FILE, the class before and after, and whether the "
            "rule was fitted on it."
        ),
    ] = None,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Flip the least costly decisions to bring a gap between groups within a bound. USES GROUPS.

    Bias scoring (ICLR 2024) fits a rule that reads each row's group, on rows with labels, and measures it on other
    rows: gaps and accuracy before and after, with 95% intervals. The bound is on the gap that the scores predict.
    `levelhead apply` applies the rule to new rows.

    Example: levelhead postprocess --fit valid.csv --score p --group sex --label y --rule rule.json

    --one-threshold reads groups to choose a threshold, but not to decide. For methods that see no groups: levelhead
    list methods.
    """
    from levelhead.auditing.of_run import OUTCOMES, own_predictions

    if (own_run := own_predictions(scores)) is not None:
        scores, label, score = own_run.path, label or OUTCOMES[0], score or own_run.score
        group = own_run.groups[0] if group is None and len(own_run.groups) == 1 else group
        positive, id_column = positive or own_run.positive, id_column or own_run.ids
        cluster = cluster or own_run.cluster
    if (held_out := own_predictions(validation, "validation")) is not None:
        validation = held_out.path
    halves = validation is None
    scores, validation = (validation, None) if scores is None else (scores, validation)
    outputs = {"--out": out, "--json": json_file, "--html": html_file, "--rule": rule}
    check_outputs(outputs, inputs=[scores, validation])
    if scores is None:
        raise ConfigError("A rule needs rows to fit on: add --fit FILE.")
    if one_threshold and rule is not None:
        raise ConfigError(
            "--one-threshold needs no rule to decide new rows: remove --rule, and decide by the threshold."
        )
    if halves and rule is not None and rule.exists():  # nobody's rule is lost to a slip for `levelhead apply`
        raise ConfigError(
            f"--rule {rule} exists already. To decide by it, type: levelhead apply {rule} {scores}. To fit another "
            "rule, name a new file."
        )
    if score is None or group is None:
        lacking = ", ".join(name for name, value in {"--score": score, "--group": group}.items() if value is None)
        known = f" Groups of the run: {listed(own_run.groups) or 'none'}." if own_run is not None else ""
        raise ConfigError(f"A rule needs a score and a group; missing: {lacking}.{known}")
    # Here, because importing scipy takes a second, and --help does not need it.
    from levelhead.auditing.postprocess_audit import postprocess_file

    found = postprocess_file(
        scores,
        score,
        group,
        label=label,
        validation=validation,
        id_column=id_column,
        cluster=cluster,
        metric=(metric or Bounded.equalized_odds).value,
        delta=0.02 if delta is None else delta,
        threshold=threshold,
        one_threshold=one_threshold,
        scale=scale,
        label_map=label_map,
        ignore_label=ignore_label,
        positive=positive,
        seed=seed,
    )
    if out is not None:
        write_atomically(out, partial(_write_decisions, found, id_column))
    written = [one for one in (out, rule) if one is not None]
    if rule is not None:
        write_json(rule, {**found.to_dict(), "made": made([scores, validation], scores.name)})
    finish(found, json_file, html_file, source=scores.name, written=written, inputs=[scores, validation])


def _write_decisions(found: Postprocessed, id_column: str | None, path: Path) -> None:
    """Write the class before and after the flips, and whether the rule was fitted on the row, as csv."""
    columns: dict[str, Any] = {}
    if id_column is not None and found.ids is not None:
        columns[id_column] = map(harmless, found.ids)
    classes = [harmless(one) for one in found.saved.classes]
    for name, decided in (("before", found.before), ("after", found.decisions)):
        columns[name] = (classes[one] for one in decided.astype(int))
    columns["fitted"] = found.fitted.astype(int)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(map(harmless, columns))
        writer.writerows(zip(*columns.values(), strict=True))
