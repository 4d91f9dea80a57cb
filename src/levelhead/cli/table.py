"""The command ``levelhead table``: finished runs, compared."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from levelhead.cli.finishing import write_files
from levelhead.cli.options import (
    AllTables,
    HtmlFile,
    JsonFile,
    MinCount,
    Missing,
    MissingGroups,
    SplitName,
)
from levelhead.storage import as_written, check_outputs, read_json, write_text
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, visible

if TYPE_CHECKING:  # importing pandas takes a second, and --help does not need it
    from levelhead.bench.page import Comparisons


class ThresholdName(StrEnum):
    """The thresholds that a table can compare at."""

    own = "own"
    matched = "matched"


def table_command(
    context: typer.Context,
    runs: Annotated[
        list[Path], typer.Argument(help="Evaluated run folders, or a folder of them; or files of an earlier --json.")
    ],
    split: Annotated[SplitName, typer.Option(help="Which split's predictions to compare.")] = SplitName.test,
    baseline: Annotated[str, typer.Option(help="The variant that the others are compared with.")] = "erm",
    select: Annotated[
        str | None,
        typer.Option(
            help="Select epochs again (runs with train.keep_epochs): a label-only selector, or LEAKING_equalized_odds."
        ),
    ] = None,
    tune_by: Annotated[
        str | None,
        typer.Option("--tune", help="Keep the best variant per method by this label-only selector on validation."),
    ] = None,
    threshold: Annotated[
        ThresholdName, typer.Option(help="Each run's own, or matched to the baseline's positive rate.")
    ] = ThresholdName.own,
    margin: Annotated[float, typer.Option(help="Equivalence margin, in points.")] = 2.0,
    min_count: MinCount = 10,
    missing: MissingGroups = Missing.leave_out,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    latex_file: Annotated[Path | None, typer.Option("--latex", help="Also write LaTeX tables (booktabs) here.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of a drawn table.")] = False,
    all_: AllTables = False,
) -> None:
    """Compare runs over seeds: one interval for test rows and seeds together, paired differences, Holm.

    Runs that differ only in the seed form a variant. A method that only moves its threshold also changes the gaps:
    --threshold matched removes that effect. A file that --json wrote can be shown without its runs and without torch.
    """
    stored = [one for one in runs if one.suffix.lower() == ".json" and not one.is_dir()]
    check_outputs({"--json": json_file, "--html": html_file, "--latex": latex_file}, inputs=stored, runs=runs)
    if stored:
        _show_stored(context, runs, html_file, latex_file, markdown, all_)
        return
    from levelhead.bench.of_runs import compared
    from levelhead.bench.page import Comparisons
    from levelhead.bench.tables import collect
    from levelhead.bench.tuning import compare_tuned

    options: dict[str, Any] = {"selection": select, "threshold": threshold.value}
    groups = collect(runs, split.value, min_count=min_count, missing=missing.words, margin=margin / 100)
    found = [
        (group, group.compare(baseline, **options))
        if tune_by is None
        else compare_tuned(group, baseline, tune_by, **options)
        for group in groups
    ]
    reports = [Comparisons.of(comparison) for _, comparison in found]
    _print(reports, markdown, all_ or tune_by is not None)
    record = {"kind": "comparison", "comparisons": [comparison.to_dict() for _, comparison in found]}
    write_files(json_file, record, html_file, lambda: Comparisons([compared(*each) for each in found]).page())
    _write_latex(reports, latex_file)


def _write_latex(reports: list[Comparisons], latex_file: Path | None) -> None:
    if latex_file:
        write_text(latex_file, "\n".join(one.to_latex() for one in reports))


def _print(reports: list[Comparisons], markdown: bool, everything: bool) -> None:
    if not markdown:
        from levelhead.bench.page import print_each

        print_each(reports, Terminal(), everything)
    for report in reports if markdown else ():
        sys.stdout.write(visible(report.to_markdown(), keep="\n") + "\n")


def _show_stored(
    context: typer.Context,
    files: list[Path],
    html_file: Path | None,
    latex_file: Path | None,
    markdown: bool,
    everything: bool,
) -> None:
    """Show what ``--json`` wrote as it stands there; other options would need the runs."""
    kept = {"runs", "html_file", "latex_file", "markdown", "all_"}
    given = {
        name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    if given - kept or any(one.suffix.lower() != ".json" for one in files):
        raise ConfigError(
            "A stored table is shown as it is: pass .json files alone, with --all, --html, --latex or --markdown. "
            "Other options need the run folders."
        )
    from levelhead.bench.page import Comparisons, stored_comparisons

    reports = []
    for file in files:
        with as_written(file):
            reports += [Comparisons([one]) for one in stored_comparisons(read_json(file), file.name).every]
    _print(reports, markdown, everything)
    write_files(None, None, html_file, Comparisons([compared for one in reports for compared in one.every]).page)
    _write_latex(reports, latex_file)
