"""The command ``levelhead audit``: a file of predictions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.auditing.example import ABOUT, EXAMPLE, GROUP, LABEL, NAME, POSITIVE, PREDICTION
from levelhead.cli.finishing import finish
from levelhead.cli.options import SCALES, Missing, source_joined
from levelhead.storage import check_outputs
from levelhead.types import ConfigError, quoted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from levelhead.auditing.regression import RegressionAudit
    from levelhead.auditing.result import AuditResult
    from levelhead.auditing.unknown.answer import IndirectAudit
    from levelhead.tables.files import Stored

# The panels of --help. An option names its own: rich_help_panel=GROUPS.
COLUMNS, GROUPS, UNRECORDED, WORDS, PLAN, OUTPUT = (
    "Which columns",
    "Groups",
    "Where groups are not recorded, or only in part",
    "Words: what classes, groups and the audit are called",
    "Before there are data",
    "Output",
)


class Adjust(StrEnum):
    """How intervals of many pairs allow for each other."""

    bonferroni = "bonferroni"
    max_t = "max-t"


# Options in the order of their panels. What an option adds to the audit, it adds to `audit_file`'s arguments.
def audit_command(
    predictions: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="File with one prediction a row: .csv, .tsv (also .gz) or .parquet. Or an evaluated run's folder.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Column with the true class.", show_default=False, rich_help_panel=COLUMNS)
    ] = None,
    prediction: Annotated[
        str | None,
        typer.Option(
            help="Column with the predicted class, in the same words as the label.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="Column that says which group a row belongs to. Repeat it to audit several columns.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    score: Annotated[
        str | None,
        typer.Option(
            help="Column with a score of the positive class: a probability, log odds or any number that is higher for "
            "likelier positives. Adds AUC, calibration and every threshold by group; --prediction is then not needed.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(
            help="Rows with at least this score are decided positive. Repeat it to compare several; tables of groups "
            "are about the first. Default: 0.5 for probabilities, 0 for log odds.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            "--scores",
            metavar="SCALE",
            help=SCALES,
            rich_help_panel=COLUMNS,
        ),
    ] = "auto",
    weight: Annotated[
        str | None,
        typer.Option(
            help="Column that says how many rows each row stands for: rates are weighted, and intervals allow for what "
            "the rows are worth. Not with --score, --against, --continuous or --control.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Column that rows which belong together have in common, such as a person's id: intervals allow for "
            "the correlation within clusters.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="File with another model's predictions for the same rows, in columns of the same names: says which "
            "figures changed, and which groups gained and lost.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    with_: Annotated[
        str | None,
        typer.Option(
            "--with",
            help="Column with the predicted class of a model that uses the groups; takes the place of --prediction. "
            "With --without: says for which groups using them makes it worse.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            help="Column with the predicted class of a model that does not use them. --group age,sex crosses columns.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Column of ids that matches the rows of FILE with those of --against or --join; LEFT=RIGHT where the "
            "other file has another name for it. --against by default: by their order, with labels and groups checked.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    join: Annotated[
        Path | None,
        typer.Option(
            help="File with groups (or labelled groups, proxies, strata) for ids: one row an id, named by --on. Rows "
            "of FILE without one have no group.",
            show_default=False,
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    regression: Annotated[
        bool,
        typer.Option(
            "--regression",
            help="Labels and predictions are numbers, such as prices: compares mean errors in place of rates.",
            rich_help_panel=COLUMNS,
        ),
    ] = False,
    example: Annotated[
        bool,
        typer.Option(
            "--example",
            help="Audit a small file that comes with levelhead, and print the command for a file of your own.",
            rich_help_panel=COLUMNS,
        ),
    ] = False,
    control: Annotated[
        list[str] | None,
        typer.Option(
            help="Column that rows are to be alike in, such as a department: also compares groups within each of its "
            "levels, and averages over levels by shares of rows. Repeat it to cross several.",
            show_default=False,
            rich_help_panel=GROUPS,
        ),
    ] = None,
    intersect: Annotated[
        bool,
        typer.Option("--intersect", help="Also cross the group columns: sex & race and so on.", rich_help_panel=GROUPS),
    ] = False,
    bins: Annotated[
        list[str] | None,
        typer.Option(
            help="Cut a group column of numbers into ranges: age=25,40,60 or age=quantiles:4. age=values says that the "
            "numbers are codes of groups. Repeatable.",
            show_default=False,
            rich_help_panel=GROUPS,
        ),
    ] = None,
    missing: Annotated[
        Missing,
        typer.Option(
            help="What becomes of rows without a group: 'leave-out' shows them beside the others and leaves them out "
            "of the gaps, 'group' compares them as a group.",
            rich_help_panel=GROUPS,
        ),
    ] = Missing.leave_out,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="Group that the others are compared with: Male, or sex=Male. Repeatable, for several columns.",
            show_default=False,
            rich_help_panel=GROUPS,
        ),
    ] = None,
    adjust: Annotated[
        Adjust,
        typer.Option(
            help="How intervals of many pairs of groups allow for each other: 'bonferroni', or 'max-t' (max-|t|), "
            "which knows that pairs share groups and is never wider.",
            rich_help_panel=GROUPS,
        ),
    ] = Adjust.bonferroni,
    min_count: Annotated[
        int,
        typer.Option(
            help="Rows that a rate must rest on to be compared: all rows of a group, its positives or its negatives. "
            "Groups with fewer are named and left out of that gap: a few rows decide nothing.",
            rich_help_panel=GROUPS,
        ),
    ] = 10,
    continuous: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of numbers, such as an age: says how decisions change along it, without cutting it into "
            "groups. Repeat it for several.",
            show_default=False,
            rich_help_panel=GROUPS,
        ),
    ] = None,
    labelled_group: Annotated[
        str | None,
        typer.Option(
            help="Column with the group of some rows, 100 or more at random; empty in all others.",
            show_default=False,
            rich_help_panel=UNRECORDED,
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Column that tells something of the group: its probability, 0 to 1, or a guess in words. One with "
            "--labelled-group; three from different sources without. Repeatable.",
            show_default=False,
            rich_help_panel=UNRECORDED,
        ),
    ] = None,
    inclusion: Annotated[
        str | None,
        typer.Option(
            help="With --labelled-group: column with the probability with which each row was labelled, where that was "
            "not the same for all.",
            show_default=False,
            rich_help_panel=UNRECORDED,
        ),
    ] = None,
    randomized_response: Annotated[
        list[str] | None,
        typer.Option(
            help="How the answers in --group were randomised: epsilon=1.39, or flip=0.2 (the chance that another group "
            "was reported). For one of several columns: sex:epsilon=1.39. Repeatable.",
            show_default=False,
            rich_help_panel=UNRECORDED,
        ),
    ] = None,
    shares: Annotated[
        list[str] | None,
        typer.Option(
            help="Share of each group among the rows: women=0.52. Or a .csv with a line for each stratum and a column "
            "for each group. Says how large the gap could be. Repeatable.",
            show_default=False,
            rich_help_panel=UNRECORDED,
        ),
    ] = None,
    strata: Annotated[
        str | None,
        typer.Option(
            help="With --shares FILE.csv: column with the stratum of each row, such as a postcode.",
            show_default=False,
            rich_help_panel=UNRECORDED,
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(
            help="Class that selection and true positive rates are about. Default: the second of two classes in "
            "sorted order; with three or more, each class against the rest.",
            show_default=False,
            rich_help_panel=WORDS,
        ),
    ] = None,
    favourable: Annotated[
        str | None,
        typer.Option(
            help="Class that is the favourable outcome, such as 'approved': applies the four-fifths rule to it. "
            "Default: both outcomes' ratios, and no verdict.",
            show_default=False,
            rich_help_panel=WORDS,
        ),
    ] = None,
    positive_name: Annotated[
        str | None,
        typer.Option(
            help="That class in words, for sentences: a verb, as in 'earns over 50K', or a noun, as in 'light hair'.",
            show_default=False,
            rich_help_panel=WORDS,
        ),
    ] = None,
    label_map: Annotated[
        list[str] | None,
        typer.Option(
            help="Which class of the predictions each label stands for: '>50K=1,<=50K=0'. A class that holds = or a "
            "comma may stand in double quotes. Repeatable.",
            show_default=False,
            rich_help_panel=WORDS,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the page.", show_default=False, rich_help_panel=WORDS)
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model that was audited.", show_default=False, rich_help_panel=WORDS)
    ] = None,
    author: Annotated[
        str | None, typer.Option(help="Who made the audit.", show_default=False, rich_help_panel=WORDS)
    ] = None,
    purpose: Annotated[
        str | None,
        typer.Option(help="What the model is for, or why it was audited.", show_default=False, rich_help_panel=WORDS),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            help="Instead of an audit: gap=5 says how many rows show a gap of 5 points in 4 of 5 audits; rows=2000 "
            "says which gap so many rows show.",
            show_default=False,
            rich_help_panel=PLAN,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="With --plan: the rate that is compared, about, from 0 to 1.",
            show_default=False,
            rich_help_panel=PLAN,
        ),
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            help="With --plan: the groups' shares of the rows, 0.5,0.3,0.2 or women=0.3,men=0.7. Default: two halves.",
            show_default=False,
            rich_help_panel=PLAN,
        ),
    ] = None,
    comparisons: Annotated[
        int | None,
        typer.Option(
            help="With --plan: how many pairs the audit will compare. Default: every pair of these groups, in the true "
            "and in the false positive rate.",
            show_default=False,
            rich_help_panel=PLAN,
        ),
    ] = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            help="Also write every figure as JSON (fractions, not percent).",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option("--html", help="Also write one standalone HTML page.", show_default=False, rich_help_panel=OUTPUT),
    ] = None,
) -> None:
    """Measure the gaps between groups in a file of predictions, with 95% intervals.

    Needs no model and no GPU. First it says which two groups differ most, over all columns, and how sure that is.
    Fields of csv and tsv are texts, exactly as they are written: 1 and 1.0 are two classes. Existing output files are
    replaced.

    To see it on a file that comes along: levelhead audit --example

    How many rows an audit needs: levelhead audit --plan gap=5 --rate 0.3 --groups 0.5,0.3,0.2
    """
    _audit(SimpleNamespace(**locals()))


UNRECORDED_OPTIONS = ("labelled_group", "proxy", "inclusion", "randomized_response", "shares", "strata")
WORDS_OF_PAGE = ("title", "model", "author", "purpose")
NOT_WITH: dict[str, tuple[str, tuple[str, ...]]] = {
    "example": (
        "--example brings its own file and columns: leave out {}, or --example.",
        (
            "predictions", "label", "prediction", "group", "with_", "score", "weight", "cluster", "threshold",
            "against", "on", "regression",
        ),
    ),
    "unrecorded": (
        "{} needs groups that are recorded: leave it out.",
        (
            "score", "scale", "threshold", "weight", "cluster", "with_", "adjust", "against", "on", "continuous",
            "regression", "control", "intersect", "bins", "reference", "favourable", "positive_name",
            *WORDS_OF_PAGE,
        ),
    ),
    "regression": (
        "{} is about classes, not numbers: leave it out, or --regression.",
        (
            "score", "scale", "threshold", "weight", "with_", "against", "control", "reference", "adjust",
            "positive", "favourable", "positive_name", "label_map",
        ),
    ),
}  # fmt: skip
"""By kind of audit: what it says of the options that do not go with it, and these options."""
OF_CLASSES = (
    "score", "threshold", "scale", "against", "on", "weight", "cluster", "without", "positive", "intersect",
    "min_count", "bins", "reference", "label_map", "positive_name", "favourable",
)  # fmt: skip
"""Options that an audit of classes takes as they are."""
CALLED = {"predictions": "FILE", "with_": "--with", "scale": "--scores"}
PLAIN = {"scale": "auto", "adjust": Adjust.bonferroni}
"""What an option is where nobody gave it, if that is something."""


def _given(asked: SimpleNamespace, names: Sequence[str]) -> list[str]:
    """Return those options that were given, as one types them."""
    there = [name for name in names if getattr(asked, name) and getattr(asked, name) != PLAIN.get(name)]
    return [CALLED.get(name, f"--{name.replace('_', '-')}") for name in there]


def _lacking(asked: SimpleNamespace, names: Sequence[str]) -> str:
    """Say which options are missing."""
    given = _given(asked, names)
    return ", ".join(one for one in (CALLED.get(name, f"--{name}") for name in names) if one not in given)


def _refuse(asked: SimpleNamespace, kind: str) -> None:
    """Raise :class:`ConfigError` for options that do not go with this kind of audit."""
    said, names = NOT_WITH[kind]
    if clash := _given(asked, names):
        raise ConfigError(said.format(", ".join(clash)))


def _audit(asked: SimpleNamespace) -> None:
    """Audit what was asked for: the options of :func:`audit_command` by name."""
    if asked.plan is not None:
        if asked.predictions is not None or asked.example:
            raise ConfigError("--plan comes before there are data: leave out FILE and --example, or --plan.")
        check_outputs({"--json": asked.json_file, "--html": asked.html_file})
        from levelhead.auditing.plan import read_plan

        plan = read_plan(asked.plan, asked.rate, asked.groups, asked.comparisons)
        finish(plan, asked.json_file, asked.html_file)
        return
    if asked.rate is not None or asked.groups is not None or asked.comparisons is not None:
        raise ConfigError(
            "--rate, --groups and --comparisons are about a plan: add for example --plan gap=5, or leave them out."
        )
    _take_two_predictions(asked)
    _take_run(asked)
    if asked.example:
        _refuse(asked, "example")
        asked.predictions, asked.label, asked.prediction, asked.group = EXAMPLE, LABEL, PREDICTION, [GROUP]
        if asked.positive in (None, POSITIVE):
            asked.positive_name = asked.positive_name or NAME
    outputs = {"--json": asked.json_file, "--html": asked.html_file}
    check_outputs(outputs, inputs=[asked.predictions, asked.against, asked.join])
    rows, matched = _rows(asked)
    found: AuditResult | IndirectAudit | RegressionAudit
    if _given(asked, UNRECORDED_OPTIONS):
        found = _unrecorded(rows, asked)
    else:
        columns = ("predictions", "label", "prediction", "group")
        if rows is None or asked.label is None or not (asked.prediction or asked.score) or not asked.group:
            raise ConfigError(
                "An audit needs FILE, --label, --prediction (or --score) and --group; missing: "
                f"{_lacking(asked, columns)}. To see one first: levelhead audit --example"
            )
        about = {name: getattr(asked, name) for name in WORDS_OF_PAGE if getattr(asked, name)}
        found = _numbers(rows, asked, about) if asked.regression else _classes(rows, asked, about)
    above: list[RenderableType] = [matched] if matched else []
    if asked.example:
        from rich.text import Text

        words = ["levelhead", "audit", str(EXAMPLE), "--label", LABEL, "--prediction", PREDICTION, "--group", GROUP]
        words += ["--positive-name", asked.positive_name] if asked.positive_name else []
        words += ["--favourable", asked.favourable] if asked.favourable else []
        above = [ABOUT, "This is the command for it, and for a file of your own:", Text(shlex.join(words))]
    source = asked.predictions.name if asked.predictions else ""
    finish(found, asked.json_file, asked.html_file, source=source, above=above)


def _take_two_predictions(asked: SimpleNamespace) -> None:
    """Read --with and --without: two predictions in one file."""
    if asked.with_ is None and asked.without is None:
        return
    if asked.with_ is None or asked.without is None or _given(asked, ("prediction", "score", "against")):
        raise ConfigError(
            "--with and --without name the predictions of two models in one file, and go together: leave out "
            "--prediction, --score and --against."
        )
    asked.prediction = asked.with_
    if asked.group and any("," in name for name in asked.group):
        # What a model is given is the crossing: people give all of their groups at once.
        asked.group = [part for name in asked.group for part in name.split(",") if part]
        asked.intersect = len(dict.fromkeys(asked.group)) > 1


def _take_run(asked: SimpleNamespace) -> None:
    """Read the predictions of a run in place of its folder, and what it says of its columns."""
    from levelhead.auditing.of_run import OUTCOMES, own_predictions

    run = own_predictions(asked.predictions)
    if run is None:
        return
    asked.predictions, asked.label = run.file, asked.label or OUTCOMES[0]
    asked.prediction = asked.prediction if asked.prediction or asked.score else OUTCOMES[1]
    if not (asked.group or asked.labelled_group or asked.proxy or asked.shares or asked.join):
        asked.group, bins = list(run.groups), asked.bins or []
        cut = {one.rpartition("=")[0] for one in bins}
        # A data set says what its groups are, however many numbers they may be.
        asked.bins = [*bins, *(f"{name}=values" for name in asked.group if name not in cut)]
    if asked.positive is None and not asked.label_map and not asked.regression:
        asked.positive = run.positive
    if asked.on is None and asked.join is not None:
        asked.on = run.ids
    if asked.cluster is None and not asked.weight:
        asked.cluster = run.cluster


def _rows(asked: SimpleNamespace) -> tuple[Path | Stored | None, str | None]:
    """Return the file, or its rows with those of --join, and how many ids were matched."""
    if asked.join is None:
        return asked.predictions, None
    if asked.predictions is None or asked.on is None or asked.against is not None:
        raise ConfigError("--join needs FILE and --on, the column of ids in both files, and goes without --against.")
    lists = (asked.group, asked.continuous, asked.control, asked.proxy)
    columns = [asked.label, asked.prediction, asked.score, *(name for names in lists for name in names or ())]
    columns += [asked.labelled_group, asked.inclusion, asked.strata, asked.weight, asked.without, asked.cluster]
    on, asked.on = asked.on, None
    return source_joined(asked.predictions, asked.join, on, columns)


def _unrecorded(rows: Path | Stored | None, asked: SimpleNamespace) -> IndirectAudit:
    """Audit predictions whose groups are not recorded (docs/missing-attributes.md)."""
    _refuse(asked, "unrecorded")
    if asked.group and not asked.randomized_response:
        raise ConfigError(
            "--group says which group every row belongs to; then nothing is missing. Leave it out, or leave out "
            f"{', '.join(_given(asked, UNRECORDED_OPTIONS))}."
        )
    if rows is None or asked.label is None or asked.prediction is None:
        lacking = _lacking(asked, ("predictions", "label", "prediction"))
        raise ConfigError(f"An audit needs FILE, --label and --prediction; missing: {lacking}.")
    from levelhead.auditing.unknown.audit import indirect_audit_file
    from levelhead.auditing.unknown.known import read_shares
    from levelhead.auditing.unknown.privacy import read_responses

    answers = asked.randomized_response
    return indirect_audit_file(
        rows,
        asked.label,
        asked.prediction,
        labelled=asked.labelled_group,
        proxies=asked.proxy or [],
        inclusion=asked.inclusion,
        responses=read_responses(answers, asked.group or []) if answers else None,
        shares=read_shares(asked.shares, asked.strata) if asked.shares else None,
        strata=asked.strata,
        positive=asked.positive,
        label_map=asked.label_map,
    )


def _numbers(rows: Path | Stored, asked: SimpleNamespace, about: dict[str, str]) -> RegressionAudit:
    """Audit predictions of a number."""
    if asked.cluster:
        raise ConfigError(
            "--cluster is not known to --regression, whose intervals take rows for independent: average the errors "
            f"of each {quoted(asked.cluster)} first, or leave it out."
        )
    _refuse(asked, "regression")
    from levelhead.auditing.regression import regression_audit_file

    return regression_audit_file(
        rows,
        asked.label,
        asked.prediction,
        asked.group,
        continuous=asked.continuous or (),
        intersect=asked.intersect,
        min_count=asked.min_count,
        bins=asked.bins,
        missing=asked.missing.words,
        about=about,
    )


def _classes(rows: Path | Stored, asked: SimpleNamespace, about: dict[str, str]) -> AuditResult:
    """Audit predicted classes, or scores."""
    # Here, because importing pandas and scipy takes a second, and --help does not need them.
    from levelhead.auditing.audit import audit_file

    return audit_file(
        rows,
        asked.label,
        asked.prediction,
        asked.group,
        continuous=asked.continuous or (),
        control=asked.control or (),
        adjust=asked.adjust.value,
        missing=asked.missing.words,
        about=about,
        **{name: getattr(asked, name) for name in OF_CLASSES},
    )
