"""The command ``levelhead audit``: a file of predictions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.auditing.example import ABOUT, EXAMPLE, GROUP, LABEL, PREDICTION
from levelhead.cli.finishing import finish
from levelhead.cli.options import SCALES, TABLES, Text, Texts, conditions_of, given, opened, option

if TYPE_CHECKING:
    from rich.console import RenderableType

# The panels of --help.
COLUMNS, GROUPS, WORDS = "Which columns", "Groups", "Names of classes and groups"
OUTPUT, MORE = "Output", "Other questions and files"
FILES = ("predictions", "example", "json_file", "html_file", "fail_if")
"""Parameters of the command that are none of :func:`levelhead.audit_table`."""


# Options in the order of their panels: they are the parameters of `audit_table`.
def audit_command(
    predictions: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help=f"One row per prediction: {TABLES}. Or an evaluated run.",
        ),
    ] = None,
    label: Annotated[Text, option(COLUMNS, "Column with the true class. Without: an audit of decisions.")] = None,
    prediction: Annotated[Text, option(COLUMNS, "Column with the predicted class, or the decision.")] = None,
    groups: Annotated[Texts, option(COLUMNS, "Column with the group; repeatable.", "--group")] = None,
    score: Annotated[Text, option(COLUMNS, "Column with a score of the positive class.")] = None,
    threshold: Annotated[list[float] | None, option(COLUMNS, "Scores at or above are positive. Repeatable.")] = None,
    weight: Annotated[
        Text, option(COLUMNS, "Column with sampling weights: intervals use the effective sample size.")
    ] = None,
    cluster: Annotated[Text, option(COLUMNS, "Column with a person's id: clusters the intervals.")] = None,
    example: Annotated[bool, option(COLUMNS, "Audit a small example.", "--example")] = False,
    control: Annotated[Texts, option(GROUPS, "Stratify by this column, e.g. department. Several are crossed.")] = None,
    intersect: Annotated[bool, option(GROUPS, "Also audit intersections of group columns.", "--intersect")] = False,
    bins: Annotated[Texts, option(GROUPS, "Bin a numeric column: age=25,40 or age=quantiles:4.")] = None,
    reference: Annotated[Texts, option(GROUPS, "Group to compare with: Male, or sex=Male.")] = None,
    min_count: Annotated[int, option(GROUPS, "Smallest denominator of a rate. Default: 10.", show_default=False)] = 10,
    favourable: Annotated[
        Text, option(WORDS, "Good outcome, e.g. repaid: adds the four-fifths rule. Rates stay those of --positive.")
    ] = None,
    positive: Annotated[
        Text, option(WORDS, "Class that rates are about, e.g. default. Default: the second of two.")
    ] = None,
    label_map: Annotated[Texts, option(WORDS, "Predicted class of each label: '>50K=1,<=50K=0'.")] = None,
    ignore_label: Annotated[Text, option(WORDS, "Leave out rows with this label, e.g. -1 for no label.")] = None,
    json_file: Annotated[Path | None, option(OUTPUT, "Also write every figure as JSON (fractions).", "--json")] = None,
    html_file: Annotated[Path | None, option(OUTPUT, "Also write one standalone HTML page.", "--html")] = None,
    fail_if: Annotated[
        Texts, option(OUTPUT, "Exit 1 if this holds, e.g. 'selection_ratio < 0.8'; 3 if undecided.")
    ] = None,
    time: Annotated[Text, option(MORE, "Column of dates or periods, or `file`: how gaps change.")] = None,
    pairs: Annotated[Text, option(MORE, "Column that the two rows of a matched pair share.")] = None,
    top: Annotated[Text, option(MORE, "Ranking by the score: who is in the top 100, 10% or lowest:10%?")] = None,
    numbers: Annotated[bool, option(MORE, "Labels and predictions are numbers.", "--numbers")] = False,
    against: Annotated[Path | None, option(MORE, "Another model's file: reports changes.")] = None,
    join: Annotated[Path | None, option(MORE, "File with the groups of ids.")] = None,
    on: Annotated[Text, option(MORE, "Column of ids that match the rows of two files; or LEFT=RIGHT.")] = None,
    along: Annotated[
        Texts, option(MORE, "Numeric column, e.g. age: reports the trend of decisions. Repeatable.")
    ] = None,
    costs: Annotated[
        Text, option(MORE, "Cost of a false positive and a false negative, 1:5: cost of errors.", "--cost")
    ] = None,
    count: Annotated[Text, option(MORE, "Frequency table: column with the number of people per row.")] = None,
    scale: Annotated[str, option(MORE, SCALES)] = "auto",
) -> None:
    """Measure the gaps between groups in a file of predictions, with 95% intervals. Output files are replaced.

    Try it: levelhead audit --example. All tables stand on the page: --html.

    How many rows an audit needs: levelhead plan. Groups that are not recorded: levelhead indirect-audit.
    """
    asked = given(locals(), *FILES)
    conditions = conditions_of(fail_if)
    from levelhead.auditing.door import audit_table
    from levelhead.auditing.exclusions import refuse

    above: list[RenderableType] = []
    if example:
        refuse({"example": True, "data": predictions} | asked)
        above, predictions = _of_example(favourable), [EXAMPLE]
        asked |= {"label": LABEL, "prediction": PREDICTION, "groups": [GROUP]}
    paths = predictions or []
    table, inputs = opened(paths, [against, join], json_file, html_file, lambda: refuse({"data": paths} | asked))
    found = audit_table(table, **asked)
    finish(
        found, json_file, html_file, source="" if table is None else table.name, above=above, fail_if=conditions,
        inputs=inputs, step=STEP if found.kind == "audit" else "",
    )  # fmt: skip


STEP = "levelhead explain finds the sources of a gap; levelhead plan says how many rows detect one."
"""What to type after an audit of labels and predictions: other audits have neither scores to explain nor a rate."""


def _of_example(favourable: str | None) -> list[RenderableType]:
    """Return what is printed above the audit of the example."""
    from rich.text import Text as Line

    words = ["levelhead", "audit", str(EXAMPLE), "--label", LABEL, "--prediction", PREDICTION, "--group", GROUP]
    words += ["--favourable", favourable] if favourable else []
    return [ABOUT, "Command, also for your own file:", Line(shlex.join(words))]
