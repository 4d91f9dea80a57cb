"""The command ``levelhead apply``: decide new rows with a rule that ``levelhead postprocess`` fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import TABLES, FiguresFile, HtmlFile, ScoreScale
from levelhead.storage import check_outputs


def apply_command(
    rule: Annotated[Path, typer.Argument(help="Rule that `levelhead postprocess --rule` wrote.", show_default=False)],
    rows: Annotated[Path, typer.Argument(metavar="FILE", help=f"Rows to decide: {TABLES}.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the decisions here: all columns of FILE, and the class before and after."),
    ] = None,
    column: Annotated[str, typer.Option(help="Name of the column with the decision.")] = "decision",
    score: Annotated[str | None, typer.Option(help="Column with the score. Default: that of the rule.")] = None,
    group: Annotated[str | None, typer.Option(help="Column with the group. Default: that of the rule.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Column with the true class, if known: reports what the rule changed.")
    ] = None,
    scale: ScoreScale = "auto",
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Apply a fitted rule to the rows of a file. USES GROUPS.

    The rule flips decisions near the threshold, by score and group. Rows need no label. A group that the rule was not
    fitted on is an error, never a silent default.

    Example: levelhead apply rule.json new.csv --out decided.csv
    """
    from levelhead.auditing.bias_rule import SavedRule
    from levelhead.auditing.decided import check_decided, write_decided
    from levelhead.auditing.postprocess_audit import apply_rule

    check_outputs({"--out": out, "--json": json_file, "--html": html_file}, inputs=[rule, rows])
    saved = SavedRule.read(rule)
    if out is not None:
        check_decided(rows, out, column)
    found = apply_rule(saved, rows, score=score, groups=[group] if group else (), label=label, scale=scale)
    if out is not None:
        write_decided(rows, out, column, saved.classes, found.decisions, found.before)
    written = [] if out is None else [out]
    finish(found, json_file, html_file, source=rows.name, written=written, inputs=[rule, rows])
