"""The command ``levelhead audit``: a file of predictions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from levelhead.auditing.example import ABOUT, EXAMPLE, GROUP, LABEL, NAME, POSITIVE, PREDICTION
from levelhead.cli import audit_options as option
from levelhead.cli.finishing import finish
from levelhead.cli.following import after_audit, words_of
from levelhead.cli.options import Missing, source_joined
from levelhead.storage import check_outputs, is_run
from levelhead.types import ConfigError, quoted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from levelhead.auditing.decisions import DecisionAudit
    from levelhead.auditing.ranking import RankingAudit
    from levelhead.auditing.regression import RegressionAudit
    from levelhead.auditing.result import AuditResult
    from levelhead.report.gate import Condition
    from levelhead.tables.files import Stored


# Options in the order of their panels.
def audit_command(
    predictions: option.Predictions = None,
    label: option.Label = None,
    prediction: option.Prediction = None,
    group: option.Group = None,
    score: option.Score = None,
    threshold: option.Threshold = None,
    scale: option.Scale = "auto",
    cost_false_positive: option.CostFalsePositive = None,
    cost_false_negative: option.CostFalseNegative = None,
    bound: option.Bound = None,
    time: option.Time = None,
    rank: option.Rank = None,
    top: option.Top = None,
    lowest_first: option.LowestFirst = False,
    weight: option.Weight = None,
    count: option.Count = None,
    cluster: option.Cluster = None,
    against: option.Against = None,
    unpaired: option.Unpaired = False,
    with_: option.With = None,
    without: option.Without = None,
    on: option.On = None,
    join: option.Join = None,
    regression: option.Regression = False,
    example: option.Example = False,
    control: option.Control = None,
    intersect: option.Intersect = False,
    bins: option.Bins = None,
    missing: option.MissingGroup = Missing.leave_out,
    reference: option.Reference = None,
    adjust: option.Adjustment = option.Adjust.bonferroni,
    min_count: option.MinCount = 10,
    continuous: option.Continuous = None,
    part: option.Part = None,
    positive: option.Positive = None,
    favourable: option.Favourable = None,
    positive_name: option.PositiveName = None,
    label_map: option.LabelMap = None,
    workers: option.Workers = 1,
    ray: option.Ray = None,
    title: option.Title = None,
    model: option.Model = None,
    author: option.Author = None,
    purpose: option.Purpose = None,
    json_file: option.JsonFile = None,
    html_file: option.HtmlFile = None,
    all_: option.All = False,
    fail_if: option.FailIf = None,
    junit: option.Junit = None,
    help_all: option.HelpAll = False,
) -> None:
    """Measure the gaps between groups in a file of predictions, with 95% intervals. Output files are replaced.

    Try it: levelhead audit --example. Weights, clusters, strata, words and more: levelhead audit --help-all.

    Decisions without outcomes: --favourable and no --label. Rankings: --rank. How many rows an audit needs: levelhead
    plan. Groups that are not recorded: levelhead indirect-audit.
    """
    _audit(SimpleNamespace(**locals()))


WORDS_OF_PAGE = ("title", "model", "author", "purpose")
CLASSES_ALONE = (
    "scale",
    "threshold",
    "weight",
    "with_",
    "against",
    "control",
    "adjust",
    "part",
    "positive_name",
    "time",
    "unpaired",
    "bound",
    "cost_false_positive",
    "cost_false_negative",
)
NOT_WITH: dict[str, tuple[str, tuple[str, ...]]] = {
    "example": (
        "--example has its own file and columns: remove {}, or --example.",
        (
            "predictions", "label", "prediction", "group", "with_", "score", "weight", "cluster", "threshold",
            "against", "on", "regression", "workers", "ray",
        ),
    ),
    "decisions": (
        "{} needs outcomes: name their column with --label, or leave it out.",
        (
            *(name for name in CLASSES_ALONE if name != "time"), "score", "cluster", "on", "continuous", "regression",
            "positive", "label_map",
        ),
    ),
    "ranking": (
        "--rank reads no outcomes and no classes: remove {}.",
        ("label", "prediction", "score", *CLASSES_ALONE, "cluster", "on", "continuous", "regression", "positive",
         "favourable", "label_map", "workers", "ray"),
    ),
    "regression": (
        "{} applies to classes, not numbers: remove it, or --regression.",
        (
            "score", *(name for name in CLASSES_ALONE if name not in ("against", "control")), "positive", "favourable",
            "label_map",
        ),
    ),
}  # fmt: skip
"""By kind of audit: the error for incompatible options, and these options."""
OF_CLASSES = (
    "bound", "score", "threshold", "scale", "against", "on", "weight", "count", "cluster", "without", "time",
    "unpaired", "positive", "intersect",
    "min_count", "bins", "reference", "label_map", "positive_name", "favourable",
)  # fmt: skip
"""Options that an audit of classes takes as they are."""
CALLED = {"predictions": "FILE", "with_": "--with", "scale": "--scores"}
PLAIN = {"scale": "auto", "adjust": option.Adjust.bonferroni, "workers": 1}
"""Defaults of options that have one."""


def _given(asked: SimpleNamespace, names: Sequence[str]) -> list[str]:
    """Return those options that were given, as one types them."""
    values = {name: getattr(asked, name) for name in names}
    # A number of 0 is given, and False is none.
    there = [one for one, value in values.items() if value is not False and (value or value == 0)]
    there = [name for name in there if values[name] != PLAIN.get(name)]
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
    """Audit what was requested: the options of :func:`audit_command` by name."""
    if asked.junit is not None and not asked.fail_if:
        raise ConfigError("--junit writes the conditions of --fail-if: add one, or leave it out.")
    conditions = _conditions(asked.fail_if or ())
    _take_two_predictions(asked)
    _take_files(asked)
    _take_run(asked)
    if asked.example:
        _refuse(asked, "example")
        asked.predictions, asked.label, asked.prediction, asked.group = EXAMPLE, LABEL, PREDICTION, [GROUP]
        asked.files = [EXAMPLE]
        if asked.positive in (None, POSITIVE):
            asked.positive_name = asked.positive_name or NAME
    outputs = {"--json": asked.json_file, "--html": asked.html_file, "--junit": asked.junit}
    inputs = [*asked.files, asked.against, asked.join]
    check_outputs(outputs, inputs=inputs)
    rows, matched = _rows(asked)
    found: AuditResult | DecisionAudit | RankingAudit | RegressionAudit
    about = {name: getattr(asked, name) for name in WORDS_OF_PAGE if getattr(asked, name)}
    if asked.rank is not None or asked.top is not None or asked.lowest_first:
        found = _ranking(rows, asked, about)
    elif rows is not None and asked.label is None and asked.prediction and asked.group and asked.favourable:
        found = _decisions(rows, asked, about)
    else:
        columns = ("predictions", "label", "prediction", "group")
        if rows is None or asked.label is None or not (asked.prediction or asked.score) or not asked.group:
            raise ConfigError(
                "An audit needs FILE, --label, --prediction (or --score) and --group; missing: "
                f"{_lacking(asked, columns)}. Decisions without outcomes need --favourable instead of --label. Try "
                "first: levelhead audit --example"
            )
        found = _numbers(rows, asked, about) if asked.regression else _classes(rows, asked, about)
    above: list[RenderableType] = [matched] if matched else []
    if asked.example:
        from rich.text import Text

        words = ["levelhead", "audit", str(EXAMPLE), "--label", LABEL, "--prediction", PREDICTION, "--group", GROUP]
        words += ["--positive-name", asked.positive_name] if asked.positive_name else []
        words += ["--favourable", asked.favourable] if asked.favourable else []
        above = [ABOUT, "Command, also for your own file:", Text(shlex.join(words))]
    source = asked.predictions.name if asked.predictions else ""
    finish(
        found, asked.json_file, asked.html_file, source=source, above=above, fail_if=conditions, junit=asked.junit,
        everything=asked.all_, inputs=inputs,
        step=after_audit(found.to_dict(), _explained(asked), page=asked.html_file is not None),
    )  # fmt: skip


def _explained(asked: SimpleNamespace) -> list[object]:
    """Return the words of the command that explains the gap; none without scores, or with options it does not have."""
    lacking = ("join", "weight", "count", "control", "regression", "rank", "against", "without", "bins", "workers")
    if (
        not asked.score
        or len(asked.files) != 1
        or asked.scale == "other"
        or _given(asked, lacking)
        or len(asked.threshold or []) > 1
    ):
        return []
    words = ["explain", asked.files[0], "--label", asked.label, "--score", asked.score]
    words += [word for name in asked.group for word in ("--group", name)]
    names = {"--positive": "positive", "--favourable": "favourable", "--label-map": "label_map"}
    names |= {"--threshold": "threshold", "--scores": "scale", "--cluster": "cluster", "--min-count": "min_count"}
    return words + words_of({option: getattr(asked, name) for option, name in names.items()})


def _conditions(texts: Sequence[str]) -> list[Condition]:
    """Read --fail-if, before any work."""
    if not texts:
        return []
    from levelhead.report.gate import Condition

    return [Condition.parse(text) for text in texts]


def _take_two_predictions(asked: SimpleNamespace) -> None:
    """Read --with and --without: two predictions in one file."""
    if asked.with_ is None and asked.without is None:
        return
    if asked.with_ is None or asked.without is None or _given(asked, ("prediction", "score", "against")):
        raise ConfigError(
            "--with and --without go together and replace --prediction, --score and --against: remove those."
        )
    asked.prediction = asked.with_
    if asked.group and any("," in name for name in asked.group):
        # What a model is given is the crossing: people give all of their groups at once.
        asked.group = [part for name in asked.group for part in name.split(",") if part]
        asked.intersect = len(dict.fromkeys(asked.group)) > 1


def _take_files(asked: SimpleNamespace) -> None:
    """Read FILE: a path stays one; several, a glob and a folder are the rows of ``asked.files``."""
    asked.files = given = asked.predictions or []
    asked.predictions = given[0] if given else None
    several = len(given) > 1 or any(path.is_dir() or set("*?[") & set(str(path)) for path in given)
    if several and (runs := [path for path in given if is_run(path)]) and len(given) > 1:
        raise ConfigError(f"{runs[0]} is a run; audit runs one at a time.")
    if given and not is_run(given[0]) and (several or asked.workers != 1 or asked.ray):
        from levelhead.tables.files import source_of

        asked.predictions = source_of(given, asked.workers, asked.ray)
        asked.files = [file.path for file in asked.predictions.pieces()]


def _take_run(asked: SimpleNamespace) -> None:
    """Read the predictions of a run instead of its folder, and what it says of its columns."""
    from levelhead.auditing.of_run import OUTCOMES, own_predictions

    run = own_predictions(asked.predictions) if isinstance(asked.predictions, Path) else None
    if run is None:
        return
    asked.predictions, asked.files, asked.label = run.file, [run.file], asked.label or OUTCOMES[0]
    asked.prediction = asked.prediction if asked.prediction or asked.score else OUTCOMES[1]
    if not (asked.group or asked.join):
        asked.group, bins = list(run.groups), asked.bins or []
        cut = {one.rpartition("=")[0] for one in bins}
        # A data set says what its groups are, of any number numbers they may be.
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
    if clash := _given(asked, ("workers", "ray")):
        raise ConfigError(f"--join makes one table, which one process counts: leave out {', '.join(clash)}.")
    lists = (asked.group, asked.continuous, asked.control)
    columns = [
        asked.label,
        asked.prediction,
        asked.score,
        asked.rank,
        *(name for names in lists for name in names or ()),
    ]
    columns += [
        asked.weight,
        asked.count,
        asked.without,
        asked.cluster,
        asked.time,
    ]
    on, asked.on = asked.on, None
    return source_joined(asked.predictions, asked.join, on, columns)


def _decisions(rows: Path | Stored, asked: SimpleNamespace, about: dict[str, str]) -> DecisionAudit:
    """Audit decisions without outcomes."""
    _refuse(asked, "decisions")
    from levelhead.auditing.decisions import audit_decisions_file

    return audit_decisions_file(
        rows,
        asked.prediction,
        asked.group,
        missing=asked.missing.words,
        about=about,
        **{
            name: getattr(asked, name)
            for name in ("favourable", "reference", "intersect", "min_count", "bins", "count", "time")
        },
    )


def _ranking(rows: Path | Stored | None, asked: SimpleNamespace, about: dict[str, str]) -> RankingAudit:
    """Audit who is in the first places."""
    if rows is None or not asked.rank or not asked.top or not asked.group:
        lacking = _lacking(asked, ("predictions", "rank", "top", "group"))
        raise ConfigError(f"An audit of a ranking needs FILE, --rank, --top and --group; missing: {lacking}.")
    _refuse(asked, "ranking")
    from levelhead.auditing.ranking import audit_ranking_file

    same = ("top", "lowest_first", "reference", "intersect", "min_count", "bins", "count")
    return audit_ranking_file(
        rows,
        asked.rank,
        asked.group,
        missing=asked.missing.words,
        about=about,
        **{name: getattr(asked, name) for name in same},
    )


def _numbers(rows: Path | Stored, asked: SimpleNamespace, about: dict[str, str]) -> RegressionAudit:
    """Audit predictions of a number."""
    if asked.cluster:
        raise ConfigError(
            f"--regression has no --cluster: average the errors of each {quoted(asked.cluster)} first, or remove it."
        )
    _refuse(asked, "regression")
    from levelhead.auditing.regression import regression_audit_file

    return regression_audit_file(
        rows,
        asked.label,
        asked.prediction,
        asked.group,
        continuous=asked.continuous or (),
        control=asked.control or (),
        missing=asked.missing.words,
        about=about,
        **{
            name: getattr(asked, name)
            for name in ("intersect", "min_count", "bins", "reference", "against", "on", "count")
        },
    )


def _classes(rows: Path | Stored, asked: SimpleNamespace, about: dict[str, str]) -> AuditResult:
    """Audit predicted classes, or scores."""
    costs = {
        name: getattr(asked, f"cost_{name}")
        for name in ("false_positive", "false_negative")
        if getattr(asked, f"cost_{name}") is not None
    }
    # Here, because importing pandas and scipy takes a second, and --help does not need them.
    from levelhead.auditing.audit import audit_file

    return audit_file(
        rows,
        asked.label,
        asked.prediction,
        asked.group,
        continuous=asked.continuous or (),
        control=asked.control or (),
        parts=asked.part or (),
        adjust=asked.adjust.value,
        missing=asked.missing.words,
        about=about,
        costs=costs or None,
        **{name: getattr(asked, name) for name in OF_CLASSES},
    )
