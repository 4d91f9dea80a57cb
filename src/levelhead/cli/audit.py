"""The command ``levelhead audit``: a file of predictions."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.auditing.example import ABOUT, EXAMPLE, GROUP, LABEL, PREDICTION
from levelhead.cli.finishing import finish
from levelhead.cli.options import SCALES, Missing, Text, Texts, option, rare, source_joined
from levelhead.storage import check_outputs, is_run
from levelhead.types import ConfigError, quoted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from levelhead.report.gate import Condition
    from levelhead.report.result import Report
    from levelhead.tables.files import Stored


# The panels of --help.
COLUMNS, GROUPS = "Which columns", "Groups"
WORDS, OUTPUT = "Names of classes, groups and the audit", "Output"


def all_help(ctx: typer.Context, asked: bool) -> None:
    """Print the help with the options that ``--help`` leaves out."""
    if asked:
        for one in ctx.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        ctx.get_help()
        raise typer.Exit


# Options in the order of their panels. What an option adds to the audit, it adds to `audit_file`'s arguments.
def audit_command(
    predictions: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE...",
            help="One row per prediction: .csv, .tsv or .parquet files, or a glob. Or an evaluated run.",
        ),
    ] = None,
    label: Annotated[Text, option(COLUMNS, "Column with the true class.")] = None,
    prediction: Annotated[Text, option(COLUMNS, "Column with the predicted class.")] = None,
    group: Annotated[Texts, option(COLUMNS, "Column with the group; repeatable.")] = None,
    score: Annotated[Text, option(COLUMNS, "Column with a score of the positive class.")] = None,
    threshold: Annotated[list[float] | None, option(COLUMNS, "Scores at or above are positive. Repeatable.")] = None,
    scale: Annotated[str, rare(COLUMNS, SCALES, "--scores", metavar="SCALE")] = "auto",
    cost_false_positive: Annotated[
        float | None, rare(COLUMNS, "Cost of a false positive: adds the cost of errors by group.")
    ] = None,
    cost_false_negative: Annotated[float | None, rare(COLUMNS, "Cost of a false negative.")] = None,
    time: Annotated[Text, option(COLUMNS, "Column of dates or periods, or `file`: how gaps change.")] = None,
    rank: Annotated[Text, option(COLUMNS, "Ranking column: which groups are in the top?")] = None,
    top: Annotated[Text, option(COLUMNS, "With --rank: size of the top: 100 or 10%.")] = None,
    lowest_first: Annotated[
        bool, rare(COLUMNS, "With --rank: the lowest value ranks first.", "--lowest-first")
    ] = False,
    weight: Annotated[
        Text, rare(COLUMNS, "Column with sampling weights: intervals use the effective sample size.")
    ] = None,
    count: Annotated[Text, rare(COLUMNS, "Frequency table: column with the number of people per row.")] = None,
    cluster: Annotated[Text, rare(COLUMNS, "Column with a person's id: clusters the intervals.")] = None,
    against: Annotated[Path | None, option(COLUMNS, "Another model's file: reports changes.")] = None,
    on: Annotated[Text, option(COLUMNS, "With --against, --join: column of ids; or LEFT=RIGHT.")] = None,
    join: Annotated[Path | None, option(COLUMNS, "File with the groups of ids; needs --on.")] = None,
    regression: Annotated[bool, option(COLUMNS, "Labels and predictions are numbers.", "--regression")] = False,
    example: Annotated[bool, option(COLUMNS, "Audit a small example.", "--example")] = False,
    control: Annotated[Texts, rare(GROUPS, "Stratify by this column, e.g. department. Several are crossed.")] = None,
    intersect: Annotated[bool, option(GROUPS, "Also audit intersections of group columns.", "--intersect")] = False,
    bins: Annotated[Texts, option(GROUPS, "Bin a numeric column: age=25,40 or age=quantiles:4.")] = None,
    missing: Annotated[
        Missing, rare(GROUPS, "Rows without a group: 'leave-out' of the gaps, or treat as a 'group'.")
    ] = Missing.leave_out,
    reference: Annotated[Texts, option(GROUPS, "Group to compare with: Male, or sex=Male.")] = None,
    min_count: Annotated[int, option(GROUPS, "Smallest denominator of a rate. Default: 10.", show_default=False)] = 10,
    continuous: Annotated[
        Texts, rare(GROUPS, "Numeric column, e.g. age: reports the trend of decisions. Repeatable.")
    ] = None,
    positive: Annotated[Text, option(WORDS, "Positive class. Default: the second.")] = None,
    favourable: Annotated[Text, option(WORDS, "Favourable outcome: adds the four-fifths rule.")] = None,
    label_map: Annotated[Texts, rare(WORDS, "Predicted class of each label: '>50K=1,<=50K=0'.")] = None,
    ignore_label: Annotated[Text, rare(WORDS, "Leave out rows with this label, e.g. -1 for no label.")] = None,
    title: Annotated[Text, rare(WORDS, "Title of the page.")] = None,
    model: Annotated[Text, rare(WORDS, "Model that was audited.")] = None,
    json_file: Annotated[Path | None, option(OUTPUT, "Also write every figure as JSON (fractions).", "--json")] = None,
    html_file: Annotated[Path | None, option(OUTPUT, "Also write one standalone HTML page.", "--html")] = None,
    all_: Annotated[bool, option(OUTPUT, "Print all tables.", "--all")] = False,
    fail_if: Annotated[
        Texts, option(OUTPUT, "Exit 1 if this holds, e.g. 'selection_ratio < 0.8'; 3 if undecided.")
    ] = None,
    junit: Annotated[Path | None, rare(OUTPUT, "Also write --fail-if as JUnit XML.")] = None,
    help_all: Annotated[
        bool, option(OUTPUT, "Show all options, including rare ones.", "--help-all", is_eager=True, callback=all_help)
    ] = False,
) -> None:
    """Measure the gaps between groups in a file of predictions, with 95% intervals. Output files are replaced.

    Try it: levelhead audit --example. Weights, clusters, strata, words and more: levelhead audit --help-all.

    Decisions without outcomes: --favourable and no --label. Rankings: --rank. How many rows an audit needs: levelhead
    plan. Groups that are not recorded: levelhead indirect-audit.
    """
    _audit(SimpleNamespace(**locals()))


SHARED = ("reference", "intersect", "min_count", "bins", "count")
"""Options that every audit takes as they are."""
CLASSES_ALONE = (
    "scale", "threshold", "weight", "against", "control", "time",
    "cost_false_positive", "cost_false_negative", "ignore_label",
)  # fmt: skip
OF_EXAMPLE = (
    "predictions", "label", "prediction", "group", "score", "weight", "cluster", "threshold", "against", "on",
    "regression",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of audit: the function that does it, the columns and the options that it takes, and what it refuses."""

    function: str
    columns: tuple[str, ...]
    takes: tuple[str, ...]
    error: str = ""
    refused: tuple[str, ...] = ()


DECISIONS = Kind(
    "decisions:audit_decisions_file", ("prediction", "group"), (*SHARED, "favourable", "time"),
    "{} needs outcomes: name their column with --label, or leave it out. For selection rates alone, --label takes a "
    "copy of the decisions.",
    (*(name for name in CLASSES_ALONE if name != "time"), "score", "cluster", "on", "continuous", "regression",
     "positive", "label_map"),
)  # fmt: skip
RANKING = Kind(
    "ranking:audit_ranking_file", ("rank", "group"), (*SHARED, "top", "lowest_first"),
    "--rank reads no outcomes and no classes: remove {}.",
    ("label", "prediction", "score", *CLASSES_ALONE, "cluster", "on", "continuous", "regression", "positive",
     "favourable", "label_map"),
)  # fmt: skip
NUMBERS = Kind(
    "regression:regression_audit_file", ("label", "prediction", "group"),
    (*SHARED, "continuous", "control", "against", "on"),
    "{} applies to classes, not numbers: remove it, or --regression.",
    ("score", *(name for name in CLASSES_ALONE if name not in ("against", "control")), "positive", "favourable",
     "label_map"),
)  # fmt: skip
CLASSES = Kind(
    "audit:audit_file", ("label", "prediction", "group"),
    (*SHARED, "continuous", "control", "score", "threshold", "scale", "against", "on", "weight", "cluster",
     "time", "positive", "label_map", "ignore_label", "favourable"),
)  # fmt: skip

TAKES_NO_CLUSTERS = (
    "continuous", "control", "time", "cost_false_positive", "cost_false_negative",
    "count", "regression", "rank",
)  # fmt: skip
"""Options of audits whose intervals would ignore clusters."""
CALLED = {"predictions": "FILE", "scale": "--scores"}


def _given(asked: SimpleNamespace, names: Sequence[str]) -> list[str]:
    """Return those options that were given, as one types them."""
    values = {name: getattr(asked, name) for name in names}
    # A number of 0 is given, and False is none.
    there = [one for one, value in values.items() if value is not False and (value or value == 0)]
    there = [name for name in there if (name, values[name]) != ("scale", "auto")]
    return [CALLED.get(name, f"--{name.replace('_', '-')}") for name in there]


def _lacking(asked: SimpleNamespace, names: Sequence[str]) -> str:
    """Say which options are missing."""
    given = _given(asked, names)
    return ", ".join(one for one in (CALLED.get(name, f"--{name}") for name in names) if one not in given)


def _refuse(asked: SimpleNamespace, error: str, names: Sequence[str]) -> None:
    """Raise :class:`ConfigError` for options that do not go with this kind of audit."""
    if clash := _given(asked, names):
        raise ConfigError(error.format(", ".join(clash)))


def _audit(asked: SimpleNamespace) -> None:
    """Audit what was requested: the options of :func:`audit_command` by name."""
    if asked.junit is not None and not asked.fail_if:
        raise ConfigError("--junit writes the conditions of --fail-if: add one, or leave it out.")
    conditions = _conditions(asked.fail_if or ())
    _take_files(asked)
    _take_run(asked)
    if asked.example:
        _refuse(asked, "--example has its own file and columns: remove {}, or --example.", OF_EXAMPLE)
        asked.predictions, asked.label, asked.prediction, asked.group = EXAMPLE, LABEL, PREDICTION, [GROUP]
        asked.files = [EXAMPLE]
    outputs = {"--json": asked.json_file, "--html": asked.html_file, "--junit": asked.junit}
    inputs = [*asked.files, asked.against, asked.join]
    check_outputs(outputs, inputs=inputs)
    rows = _rows(asked)
    found = _measured(rows, asked, _kind(rows, asked))
    above: list[RenderableType] = []
    if asked.example:
        from rich.text import Text

        words = ["levelhead", "audit", str(EXAMPLE), "--label", LABEL, "--prediction", PREDICTION, "--group", GROUP]
        words += ["--favourable", asked.favourable] if asked.favourable else []
        above = [ABOUT, "Command, also for your own file:", Text(shlex.join(words))]
    source = asked.predictions.name if asked.predictions else ""
    finish(
        found, asked.json_file, asked.html_file, source=source, above=above, fail_if=conditions, junit=asked.junit,
        everything=asked.all_, inputs=inputs,
        step="levelhead explain finds the sources of a gap; levelhead plan says how many rows detect one.",
    )  # fmt: skip


def _conditions(texts: Sequence[str]) -> list[Condition]:
    """Read --fail-if, before any work."""
    if not texts:
        return []
    from levelhead.report.gate import Condition

    return [Condition.parse(text) for text in texts]


def _take_files(asked: SimpleNamespace) -> None:
    """Read FILE: a path stays one; several, a glob and a folder are the rows of ``asked.files``."""
    asked.files = given = asked.predictions or []
    asked.predictions = given[0] if given else None
    several = len(given) > 1 or any(path.is_dir() or set("*?[") & set(str(path)) for path in given)
    if several and (runs := [path for path in given if is_run(path)]) and len(given) > 1:
        raise ConfigError(f"{runs[0]} is a run; audit runs one at a time.")
    if given and not is_run(given[0]) and several:
        from levelhead.tables.files import source_of

        asked.predictions = source_of(given)
        asked.files = [file.path for file in getattr(asked.predictions, "files", [asked.predictions])]


def _take_run(asked: SimpleNamespace) -> None:
    """Read the predictions of a run instead of its folder, and what it says of its columns."""
    from levelhead.auditing.of_run import OUTCOMES, own_predictions

    run = own_predictions(asked.predictions) if isinstance(asked.predictions, Path) else None
    if run is None:
        return
    folder, ranked = asked.predictions, asked.rank is not None or asked.top is not None or asked.lowest_first
    asked.predictions, asked.files = run.file, [run.file]
    if not ranked:
        asked.label = asked.label or OUTCOMES[0]
        asked.prediction = asked.prediction if asked.prediction or asked.score else OUTCOMES[1]
    if not (asked.group or asked.join):
        asked.group, bins = list(run.groups), asked.bins or []
        cut = {one.rpartition("=")[0] for one in bins}
        # A data set says what its groups are, of any number numbers they may be.
        asked.bins = [*bins, *(f"{name}=values" for name in asked.group if name not in cut)]
    if asked.positive is None and not (asked.label_map or asked.regression or ranked):
        asked.positive = run.positive
    if asked.on is None and asked.join is not None:
        asked.on = run.ids
    if asked.cluster is None and not asked.weight and run.cluster is not None:
        if clash := _given(asked, TAKES_NO_CLUSTERS):
            raise ConfigError(
                f"The rows of {folder} come in clusters, such as several of one person, which {', '.join(clash)} "
                f"cannot take into account. For intervals that are too narrow, audit {run.file} (columns "
                f"{' and '.join(OUTCOMES)}) with the same options."
            )
        asked.cluster = run.cluster


def _rows(asked: SimpleNamespace) -> Path | Stored | None:
    """Return the file, or its rows with those of --join."""
    if asked.join is None:
        return asked.predictions
    if asked.predictions is None or asked.on is None or asked.against is not None:
        raise ConfigError("--join needs FILE and --on, the column of ids in both files, and goes without --against.")
    lists = [*(asked.group or ()), *(asked.continuous or ()), *(asked.control or ())]
    columns = [asked.label, asked.prediction, asked.score, asked.rank, *lists]
    columns += [asked.weight, asked.count, asked.cluster, asked.time]
    on, asked.on = asked.on, None
    return source_joined(asked.predictions, asked.join, on, columns)


def _kind(rows: Path | Stored | None, asked: SimpleNamespace) -> Kind:
    """Return what is audited, or raise an error for what it lacks."""
    if asked.rank is not None or asked.top is not None or asked.lowest_first:
        if rows is None or not asked.rank or not asked.top or not asked.group:
            lacking = _lacking(asked, ("predictions", "rank", "top", "group"))
            raise ConfigError(f"An audit of a ranking needs FILE, --rank, --top and --group; missing: {lacking}.")
        return RANKING
    if rows is not None and asked.label is None and asked.prediction and asked.group and asked.favourable:
        return DECISIONS
    if rows is None or asked.label is None or not (asked.prediction or asked.score) or not asked.group:
        raise ConfigError(
            "An audit needs FILE, --label, --prediction (or --score) and --group; missing: "
            f"{_lacking(asked, ('predictions', 'label', 'prediction', 'group'))}. Decisions without outcomes need "
            "--favourable instead of --label. Try first: levelhead audit --example"
        )
    if asked.regression and asked.cluster:
        raise ConfigError(
            f"--regression has no --cluster: average the errors of each {quoted(asked.cluster)} first, or remove it."
        )
    return NUMBERS if asked.regression else CLASSES


def _measured(rows: Path | Stored | None, asked: SimpleNamespace, kind: Kind) -> Report:
    """Return the audit."""
    _refuse(asked, kind.error, kind.refused)
    options = {name: getattr(asked, name) for name in kind.takes} | {"missing": asked.missing.words}
    options |= {name: options[name] or () for name in ("continuous", "control") if name in options}
    options["about"] = {name: getattr(asked, name) for name in ("title", "model") if getattr(asked, name)}
    if kind is CLASSES:
        costs = {name: getattr(asked, f"cost_{name}") for name in ("false_positive", "false_negative")}
        costs = {name: cost for name, cost in costs.items() if cost is not None}
        options["costs"] = costs or None
    module, _, name = kind.function.partition(":")
    function = getattr(importlib.import_module(f"levelhead.auditing.{module}"), name)
    found: Report = function(rows, *(getattr(asked, column) for column in kind.columns), **options)
    return found
