"""The command ``levelhead indirect-audit``: an audit of groups that are not recorded, or only in part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import finish
from levelhead.cli.options import (
    ClassOfLabel,
    FiguresFile,
    HtmlFile,
    IgnoredLabel,
    JoinedFile,
    OnColumn,
    Text,
    Texts,
    option,
    source_joined,
)
from levelhead.storage import check_outputs
from levelhead.types import ConfigError

KNOWN, ROWS = "Information on the groups", "Which rows and classes"


def indirect_audit_command(
    predictions: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="One row per prediction: .csv, .tsv (also .gz) or .parquet. Or an evaluated run.",
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
    inclusion: Annotated[
        Text, option(KNOWN, "With --labelled-group: column with each row's probability of being labelled, if unequal.")
    ] = None,
    shares: Annotated[
        Texts, option(KNOWN, "Share of each group, women=0.52, or a .csv by stratum. Gives bounds only.")
    ] = None,
    strata: Annotated[Text, option(KNOWN, "With --shares FILE.csv: column with the stratum, e.g. a postcode.")] = None,
    randomized_response: Annotated[
        Texts, option(KNOWN, "Randomisation of the answers in --group: epsilon=1.39, flip=0.2 or sex:flip=0.2.")
    ] = None,
    group: Annotated[Texts, option(KNOWN, "With --randomized-response: column with the answers.")] = None,
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
    from levelhead.auditing.of_run import OUTCOMES, own_predictions

    if (run := own_predictions(predictions)) is not None:
        predictions, label, prediction = run.file, label or OUTCOMES[0], prediction or OUTCOMES[1]
        positive = positive if positive or label_map else run.positive
        on = run.ids if on is None and join is not None else on
    inputs = [predictions, join, *(Path(one) for one in shares or () if one.lower().endswith((".csv", ".tsv")))]
    check_outputs({"--json": json_file, "--html": html_file}, inputs=inputs)
    if prediction is None:
        raise ConfigError("Name the column with the predicted class, or the decision: --prediction.")
    if group and not randomized_response:
        raise ConfigError("--group gives every row's group: use levelhead audit, or remove it.")
    if join is not None and on is None:
        raise ConfigError("--join needs --on, the column of ids in both files.")
    from levelhead.auditing.unknown.audit import indirect_audit_file
    from levelhead.auditing.unknown.known import read_probabilities, read_shares
    from levelhead.auditing.unknown.privacy import read_responses
    from levelhead.report.gate import Condition

    conditions = [Condition.parse(one) for one in fail_if or ()]
    probabilities = read_probabilities(proxy_probabilities) if proxy_probabilities else {}
    columns = [label, prediction, labelled_group, inclusion, strata, *(proxy or ()), *(group or ())]
    rows = source_joined(predictions, join, on, [*columns, *probabilities.values()])
    found = indirect_audit_file(
        rows,
        label,
        prediction,
        labelled=labelled_group,
        proxy_probabilities=probabilities,
        proxies=proxy or [],
        inclusion=inclusion,
        responses=read_responses(randomized_response, group or []) if randomized_response else None,
        shares=read_shares(shares, strata) if shares else None,
        strata=strata,
        positive=positive,
        label_map=label_map,
        ignore_label=ignore_label,
    )
    finish(found, json_file, html_file, source=predictions.name, fail_if=conditions, inputs=inputs)
