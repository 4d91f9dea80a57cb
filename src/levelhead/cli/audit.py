"""The commands ``levelhead audit`` (a file of predictions) and ``levelhead figure bounds`` (the attention of a run)."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.auditing.example import ABOUT, EXAMPLE, GROUP, LABEL, NAME, POSITIVE, PREDICTION
from levelhead.cli.finishing import finish
from levelhead.cli.options import SCALES, HtmlFile, Missing, SplitName, source_joined
from levelhead.storage import check_outputs
from levelhead.types import ConfigError, quoted

if TYPE_CHECKING:
    from rich.console import RenderableType

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
    gedi: Annotated[
        int | None,
        typer.Option(
            help="With --continuous: also the Generalized Disparate Impact of this degree, 1 to 10, beside its mean "
            "over shuffled rows.",
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
    if plan is not None:
        if predictions is not None or example:
            raise ConfigError("--plan comes before there are data: leave out FILE and --example, or --plan.")
        _plan(plan, rate, groups, comparisons, json_file, html_file)
        return
    if rate is not None or groups is not None or comparisons is not None:
        raise ConfigError(
            "--rate, --groups and --comparisons are about a plan: add for example --plan gap=5, or leave them out."
        )
    if with_ is not None or without is not None:
        if with_ is None or without is None or prediction is not None or score is not None or against is not None:
            raise ConfigError(
                "--with and --without name the predictions of two models in one file, and go together: leave out "
                "--prediction, --score and --against."
            )
        prediction = with_
        if group and any("," in name for name in group):
            # What a model is given is the crossing: people give all of their groups at once.
            group = [part for name in group for part in name.split(",") if part]
            intersect = len(dict.fromkeys(group)) > 1
    from levelhead.auditing.of_run import OUTCOMES, own_predictions

    if (own_run := own_predictions(predictions)) is not None:
        predictions, label = own_run.file, label or OUTCOMES[0]
        prediction = prediction if prediction or score else OUTCOMES[1]
        if not (group or labelled_group or proxy or shares or join):
            group = list(own_run.groups)
            # A data set says what its groups are, however many numbers they may be.
            bins = [*(bins or []), *(f"{name}=values" for name in group if not _binned(name, bins))]
        positive = own_run.positive if positive is None and not label_map and not regression else positive
        on = own_run.ids if on is None and join is not None else on
        cluster = own_run.cluster if cluster is None and not weight else cluster
    given = {"FILE": predictions, "--label": label, "--prediction": prediction, "--group": group}
    if example:
        own = given | {
            "--with": with_,
            "--score": score,
            "--weight": weight,
            "--cluster": cluster,
            "--threshold": threshold,
            "--against": against,
            "--on": on,
            "--regression": regression or None,
        }
        if named := [name for name, value in own.items() if value is not None]:
            raise ConfigError(f"--example brings its own file and columns: leave out {', '.join(named)}, or --example.")
        predictions, label, prediction, group = EXAMPLE, LABEL, PREDICTION, [GROUP]
        if positive in (None, POSITIVE):
            positive_name = positive_name or NAME
    check_outputs({"--json": json_file, "--html": html_file}, inputs=[predictions, against, join])
    source = predictions.name if predictions else ""
    matched = None
    rows: Path | Stored | None = predictions
    if join is not None:
        if predictions is None or on is None or against is not None:
            raise ConfigError(
                "--join needs FILE and --on, the column of ids in both files, and goes without --against."
            )

        columns = [
            label,
            prediction,
            score,
            *(group or []),
            *(continuous or []),
            *(control or []),
            labelled_group,
            *(proxy or []),
        ]
        columns += [inclusion, strata, weight, without, cluster]
        rows, matched = source_joined(predictions, join, on, columns)
        on = None
    unrecorded = {
        "--labelled-group": labelled_group,
        "--proxy": proxy,
        "--inclusion": inclusion,
        "--randomized-response": randomized_response,
        "--shares": shares,
        "--strata": strata,
    }
    if any(unrecorded.values()):
        others: dict[str, object] = {
            "--score": score,
            "--scores": scale != "auto",
            "--threshold": threshold,
            "--weight": weight,
            "--cluster": cluster,
            "--with": with_,
            "--adjust": adjust is not Adjust.bonferroni,
            "--against": against,
            "--on": on,
            "--continuous": continuous,
            "--regression": regression,
            "--gedi": gedi,
            "--control": control,
            "--intersect": intersect,
            "--bins": bins,
            "--reference": reference,
            "--favourable": favourable,
            "--positive-name": positive_name,
            "--title": title,
            "--model": model,
            "--author": author,
            "--purpose": purpose,
        }
        if clash := [name for name, value in others.items() if value]:
            raise ConfigError(f"{', '.join(clash)} needs groups that are recorded: leave it out.")
        if group and not randomized_response:
            raise ConfigError(
                "--group says which group every row belongs to; then nothing is missing. Leave it out, or leave out "
                f"{', '.join(name for name, value in unrecorded.items() if value)}."
            )
        if rows is None or label is None or prediction is None:
            lacking = [name for name, value in list(given.items())[:3] if value is None]
            raise ConfigError(f"An audit needs FILE, --label and --prediction; missing: {', '.join(lacking)}.")
        _unrecorded(
            rows, label, prediction, group or [], labelled_group, proxy or [], inclusion,
            randomized_response or [], shares or [], strata, positive, label_map, json_file, html_file, source, matched,
        )  # fmt: skip
        return
    if rows is None or label is None or not (prediction or score) or not group:
        lacking = [name for name, value in given.items() if not value]
        raise ConfigError(
            f"An audit needs FILE, --label, --prediction (or --score) and --group; missing: {', '.join(lacking)}. To "
            "see one first: levelhead audit --example"
        )
    said = {"title": title, "model": model, "author": author, "purpose": purpose}
    about = {name: text for name, text in said.items() if text}
    if regression:
        others = {
            "--score": score,
            "--scores": scale != "auto",
            "--threshold": threshold,
            "--weight": weight,
            "--with": with_,
            "--against": against,
            "--gedi": gedi,
            "--control": control,
            "--reference": reference,
            "--adjust": adjust is not Adjust.bonferroni,
            "--positive": positive,
            "--favourable": favourable,
            "--positive-name": positive_name,
            "--label-map": label_map,
        }
        if cluster:
            raise ConfigError(
                "--cluster is not known to --regression, whose intervals take rows for independent: average the errors "
                f"of each {quoted(cluster)} first, or leave it out."
            )
        if clash := [name for name, value in others.items() if value]:
            raise ConfigError(f"{', '.join(clash)} is about classes, not numbers: leave it out, or --regression.")
        assert prediction is not None  # or a score was named
        from levelhead.auditing.regression import regression_audit_file

        numbers = regression_audit_file(
            rows,
            label,
            prediction,
            group,
            continuous=continuous or (),
            intersect=intersect,
            min_count=min_count,
            bins=bins,
            missing=missing.words,
            about=about,
        )
        finish(numbers, json_file, html_file, source=source, above=[matched] if matched else [])
        return
    # Here, because importing pandas and scipy takes a second, and --help does not need them.
    from levelhead.auditing.audit import audit_file

    result = audit_file(
        rows,
        label,
        prediction,
        group,
        score=score,
        threshold=threshold,
        scale=scale,
        against=against,
        on=on,
        continuous=continuous or (),
        gedi=gedi,
        weight=weight,
        cluster=cluster,
        control=control or (),
        without=without,
        adjust=adjust.value,
        positive=positive,
        intersect=intersect,
        min_count=min_count,
        bins=bins,
        missing=missing.words,
        reference=reference,
        label_map=label_map,
        positive_name=positive_name,
        favourable=favourable,
        about=about,
    )
    above: list[RenderableType] = [matched] if matched else []
    if example:
        from rich.text import Text

        words = ["levelhead", "audit", str(EXAMPLE), "--label", LABEL, "--prediction", PREDICTION, "--group", GROUP]
        words += ["--positive-name", positive_name] if positive_name else []
        words += ["--favourable", favourable] if favourable else []
        above = [ABOUT, "This is the command for it, and for a file of your own:", Text(shlex.join(words))]
    finish(result, json_file, html_file, source=source, above=above)


def _binned(name: str, bins: list[str] | None) -> bool:
    return any(one.rpartition("=")[0] == name for one in bins or ())


def _unrecorded(
    predictions: Path | Stored,
    label: str,
    prediction: str,
    group: list[str],
    labelled_group: str | None,
    proxy: list[str],
    inclusion: str | None,
    randomized_response: list[str],
    shares: list[str],
    strata: str | None,
    positive: str | None,
    label_map: list[str] | None,
    json_file: Path | None,
    html_file: Path | None,
    source: str,
    matched: str | None,
) -> None:
    """Audit predictions whose groups are not recorded (docs/missing-attributes.md)."""
    from levelhead.auditing.missing.audit import indirect_audit_file
    from levelhead.auditing.missing.known import read_shares
    from levelhead.auditing.missing.responses import read_responses

    result = indirect_audit_file(
        predictions,
        label,
        prediction,
        labelled=labelled_group,
        proxies=proxy,
        inclusion=inclusion,
        responses=read_responses(randomized_response, group) if randomized_response else None,
        shares=read_shares(shares, strata) if shares else None,
        strata=strata,
        positive=positive,
        label_map=label_map,
    )
    finish(result, json_file, html_file, source=source, above=[matched] if matched else [])


def _plan(
    asked: str,
    rate: float | None,
    groups: str | None,
    comparisons: int | None,
    json_file: Path | None,
    html_file: Path | None,
) -> None:
    """Print how many rows an audit needs, or what so many rows can show."""
    check_outputs({"--json": json_file, "--html": html_file})
    from levelhead.auditing.plan import read_plan

    finish(read_plan(asked, rate, groups, comparisons), json_file, html_file)


def bounds_command(
    run: Annotated[Path, typer.Argument(help="A finished run folder.", show_default=False)],
    split: Annotated[SplitName, typer.Option(help="Which split to measure on.")] = SplitName.test,
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder that holds the data sets. Default: that of the run.", show_default=False),
    ] = None,
    attribute: Annotated[
        str | None,
        typer.Option(
            help="Sensitive attribute, where the data set has several. Default: the first.", show_default=False
        ),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write every figure as JSON.", show_default=False)
    ] = None,
    html_file: HtmlFile = None,
) -> None:
    """Measure group gaps of a run's attention logits, beside every proved bound on them.

    The bounds are about logits of the last attention layer, not about predictions, and certify nothing. Keys with fewer
    than 30 rows of a group are left out. Writes nothing into the run folder.
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=[run])
    # Here, because importing torch takes seconds and an audit of a file does not need it.
    from levelhead.inspecting.bounds import bounds_of_run

    finish(bounds_of_run(run, split.value, data_root=data_root, attribute=attribute), json_file, html_file)
