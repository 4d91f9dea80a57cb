"""The options of ``levelhead audit``, by the panels of its help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from levelhead.cli.options import SCALES, Missing

# The panels of --help. An option names its own: rich_help_panel=GROUPS.
COLUMNS, GROUPS = "Which columns", "Groups"
WORDS, OUTPUT = "Names of classes, groups and the audit", "Output"


class Adjust(StrEnum):
    """How intervals of many pairs are adjusted."""

    bonferroni = "bonferroni"
    max_t = "max-t"


def all_help(ctx: typer.Context, asked: bool) -> None:
    """Print the help with the options that ``--help`` leaves out."""
    if asked:
        for one in ctx.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        ctx.get_help()
        raise typer.Exit


def option(panel: str, text: str, *names: str, rare: bool = False, show_default: bool = False, **more: Any) -> Any:
    """Return an option of a panel; --help leaves out ``rare`` ones."""
    return typer.Option(*names, help=text, show_default=show_default, rich_help_panel=panel, hidden=rare, **more)


Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None

# What an option adds to the audit, it adds to `audit_file`'s arguments.
Predictions = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE...",
        help="One row per prediction: .csv, .tsv or .parquet files, or a glob. Or an evaluated run.",
    ),
]
Label = Annotated[Text, option(COLUMNS, "Column with the true class.")]
Prediction = Annotated[Text, option(COLUMNS, "Column with the predicted class.")]
Group = Annotated[Texts, option(COLUMNS, "Column with the group; repeatable.")]
Score = Annotated[
    Text,
    option(COLUMNS, "Column with a score of the positive class."),
]
Threshold = Annotated[
    list[float] | None,
    option(COLUMNS, "Scores at or above are positive. Repeatable."),
]
Scale = Annotated[str, option(COLUMNS, SCALES, "--scores", rare=True, show_default=True, metavar="SCALE")]
CostFalsePositive = Annotated[
    float | None, option(COLUMNS, "Cost of a false positive: adds the cost of errors by group.", rare=True)
]
CostFalseNegative = Annotated[float | None, option(COLUMNS, "Cost of a false negative.", rare=True)]
Bound = Annotated[
    Text,
    option(
        COLUMNS,
        "With --score: the threshold that keeps a gap within a bound, e.g. equalized_odds=5%, on held-out rows.",
        rare=True,
    ),
]
Time = Annotated[Text, option(COLUMNS, "Column of dates or periods, or `file`: how gaps change.")]
Rank = Annotated[Text, option(COLUMNS, "Ranking column: which groups are in the top?")]
Top = Annotated[Text, option(COLUMNS, "With --rank: size of the top: 100 or 10%.")]
LowestFirst = Annotated[
    bool, option(COLUMNS, "With --rank: the lowest value ranks first.", "--lowest-first", rare=True)
]
Weight = Annotated[
    Text, option(COLUMNS, "Column with sampling weights: intervals use the effective sample size.", rare=True)
]
Count = Annotated[Text, option(COLUMNS, "Frequency table: column with the number of people per row.", rare=True)]
Cluster = Annotated[
    Text,
    option(COLUMNS, "Column with a person's id: clusters the intervals.", rare=True),
]
Against = Annotated[Path | None, option(COLUMNS, "Another model's file: reports changes.")]
Unpaired = Annotated[bool, option(COLUMNS, "--against has other rows, e.g. an earlier month.", "--unpaired", rare=True)]
With = Annotated[
    Text,
    option(
        COLUMNS,
        "Instead of --prediction, with --without: predicted class of a model that uses the groups. Reports for which "
        "groups it is worse.",
        "--with",
        rare=True,
    ),
]
Without = Annotated[
    Text,
    option(
        COLUMNS,
        "With --with: predicted class of a model without the groups. --group age,sex takes their intersection.",
        rare=True,
    ),
]
On = Annotated[
    Text,
    option(COLUMNS, "With --against, --join: column of ids; or LEFT=RIGHT."),
]
Join = Annotated[Path | None, option(COLUMNS, "File with the groups of ids; needs --on.")]
Regression = Annotated[bool, option(COLUMNS, "Labels and predictions are numbers.", "--regression")]
Example = Annotated[bool, option(COLUMNS, "Audit a small example.", "--example")]
Control = Annotated[
    Texts,
    option(
        GROUPS,
        "Stratify by this column, e.g. department. Several are crossed.",
        rare=True,
    ),
]
Intersect = Annotated[bool, option(GROUPS, "Also audit intersections of group columns.", "--intersect")]
Bins = Annotated[Texts, option(GROUPS, "Bin a numeric column: age=25,40 or age=quantiles:4.")]
MissingGroup = Annotated[
    Missing,
    option(
        GROUPS,
        "Rows without a group: 'leave-out' of the gaps, or treat as a 'group'.",
        rare=True,
        show_default=True,
    ),
]
Reference = Annotated[Texts, option(GROUPS, "Group to compare with: Male, or sex=Male.")]
Adjustment = Annotated[
    Adjust,
    option(
        GROUPS,
        "Adjustment for many pairs; max-t accounts for pairs that share groups.",
        rare=True,
        show_default=True,
    ),
]
MinCount = Annotated[int, option(GROUPS, "Smallest denominator of a rate. Default: 10.")]
Continuous = Annotated[
    Texts,
    option(GROUPS, "Numeric column, e.g. age: reports the trend of decisions. Repeatable.", rare=True),
]
Part = Annotated[Texts, option(GROUPS, "Your own audit question: module:Class, or a name. Repeatable.", rare=True)]
Positive = Annotated[Text, option(WORDS, "Positive class. Default: the second.")]
Favourable = Annotated[Text, option(WORDS, "Favourable outcome: adds the four-fifths rule.")]
PositiveName = Annotated[
    Text, option(WORDS, "Wording of the positive class: a verb, 'earns over 50K', or a noun.", rare=True)
]
LabelMap = Annotated[Texts, option(WORDS, "Predicted class of each label: '>50K=1,<=50K=0'.", rare=True)]
Workers = Annotated[int, option(GROUPS, "Processes for several files. Default: 1.", rare=True)]
Ray = Annotated[
    Text, option(GROUPS, "Count the files on a Ray cluster: auto, or its address.", rare=True, metavar="ADDRESS")
]
Title = Annotated[Text, option(WORDS, "Title of the page.", rare=True)]
Model = Annotated[Text, option(WORDS, "Model that was audited.", rare=True)]
Author = Annotated[Text, option(WORDS, "Who made the audit.", rare=True)]
Purpose = Annotated[Text, option(WORDS, "Purpose of the model or of the audit.", rare=True)]
JsonFile = Annotated[Path | None, option(OUTPUT, "Also write every figure as JSON (fractions).", "--json")]
HtmlFile = Annotated[Path | None, option(OUTPUT, "Also write one standalone HTML page.", "--html")]
All = Annotated[bool, option(OUTPUT, "Print all tables.", "--all")]
FailIf = Annotated[Texts, option(OUTPUT, "Exit 1 if this holds, e.g. 'selection_ratio < 0.8'; 3 if undecided.")]
Junit = Annotated[Path | None, option(OUTPUT, "Also write --fail-if as JUnit XML.", rare=True)]
HelpAll = Annotated[
    bool,
    option(OUTPUT, "Show all options, including rare ones.", "--help-all", is_eager=True, callback=all_help),
]
