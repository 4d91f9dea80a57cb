"""The command ``levelhead indirect-audit``: an audit of groups that are not recorded, or only in part."""

from __future__ import annotations

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
    OnColumn,
    Text,
    Texts,
    conditions_of,
    given,
    opened,
    option,
)

KNOWN, ROWS = "Information on the groups", "Which rows and classes"
KNOWN_BY = ("labelled_group", "proxy", "proxy_probabilities", "shares", "randomized_response")


def indirect_audit_command(
    predictions: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=f"One row per prediction: {TABLES}. Or an evaluated run.",
            show_default=False,
        ),
    ],
    prediction: Annotated[Text, option(ROWS, "Column with the predicted class, or the decision.")] = None,
    label: Annotated[Text, option(ROWS, "Column with the true class. Without: selection rates.")] = None,
    positive: Annotated[Text, option(ROWS, "Class that rates are about. Default: the second of two.")] = None,
    proxy_probabilities: Annotated[
        Texts,
        option(
            KNOWN, "Column with each group's probability, such as BISG's: white=p_w,black=p_b. Bounds and an estimate."
        ),
    ] = None,
    labelled_group: Annotated[Text, option(KNOWN, "Column with the group of some rows, at least 100.")] = None,
    proxy: Annotated[
        Texts, option(KNOWN, "Proxy column of the group; with --labelled-group one is enough, else three.")
    ] = None,
    shares: Annotated[Texts, option(KNOWN, "Share of each group, women=0.52. Gives bounds only.")] = None,
    randomized_response: Annotated[
        Text, option(KNOWN, "Randomisation of the answers in --group: epsilon=1.39 or flip=0.2.")
    ] = None,
    groups: Annotated[Texts, option(KNOWN, "With --randomized-response: column with the answers.", "--group")] = None,
    join: JoinedFile = None,
    on: OnColumn = None,
    label_map: ClassOfLabel = None,
    ignore_label: IgnoredLabel = None,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
    fail_if: Annotated[Texts, typer.Option(help="Exit with 1 if this holds, with 3 if it is undecided.")] = None,
) -> None:
    """Measure or bound gaps between groups that are not recorded, or only for some rows. No group is guessed.

    Every answer names its assumption. Examples:

    levelhead indirect-audit loans.csv --prediction approved --proxy-probabilities white=p_w,black=p_b,other=p_o

    levelhead indirect-audit preds.csv --label y --prediction yhat --labelled-group sex --proxy p_female

    levelhead indirect-audit preds.csv --label y --prediction yhat --shares women=0.52
    """
    asked = given(locals(), "predictions", "json_file", "html_file", "fail_if")
    from levelhead.auditing.door import audit_table
    from levelhead.auditing.exclusions import refuse
    from levelhead.auditing.unknown.known import refuse_nothing

    conditions = conditions_of(fail_if)
    known = {name: asked.get(name) for name in KNOWN_BY}

    def check() -> None:
        refuse_nothing(known)
        refuse({"data": True} | asked)

    table, inputs = opened([predictions], [join], json_file, html_file, check)
    refuse_nothing(known)  # about a run, which is not checked before
    assert table is not None
    found = audit_table(table, **asked)
    finish(found, json_file, html_file, source=table.name, fail_if=conditions, inputs=inputs)
