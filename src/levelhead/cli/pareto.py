"""The command ``levelhead figure pareto``: runs in the plane of accuracy and gap, with the baseline's FACT line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import write_files
from levelhead.cli.options import FiguresFile, HtmlFile, MinCount, Missing, MissingGroups, Runs, SplitName
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal
from levelhead.types import LevelheadError

_COLUMNS = "accuracy, balanced_accuracy, worst_group_accuracy, demographic_parity, equal_opportunity or equalized_odds"


def pareto_command(
    runs: Runs,
    out: Annotated[
        Path,
        typer.Option(help="The picture, .png or .svg. Runs on several data sets: numbered, pareto-1.png and so on."),
    ] = Path("pareto.png"),
    split: Annotated[SplitName, typer.Option(help="Which split's predictions to compare.")] = SplitName.test,
    baseline: Annotated[str, typer.Option(help="The variant whose FACT line is drawn.")] = "erm",
    x: Annotated[str, typer.Option("--x", help=f"Column of the x axis: {_COLUMNS}.")] = "equalized_odds",
    y: Annotated[str, typer.Option("--y", help="Column of the y axis: another of them.")] = "accuracy",
    no_frontier: Annotated[
        bool, typer.Option("--no-frontier", help="Leave out the FACT line (ORACLE: it sees groups).")
    ] = False,
    min_count: MinCount = 10,
    missing: MissingGroups = Missing.leave_out,
    json_file: FiguresFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Plot accuracy against a gap: a mark per variant, intervals, the Pareto set, the FACT line of the baseline.

    The FACT line is the best that post-processing of the baseline's predictions by group could reach on these test
    rows. It needs the columns accuracy and equalized_odds, and two classes. Existing files are replaced.

    Example: levelhead figure pareto runs/utk --out pareto.png
    """
    outputs = {"--json": json_file, "--html": html_file}
    check_outputs({"--out": out} | outputs, runs=runs)
    # Here, because importing torch takes seconds.
    from levelhead.bench.page import Comparisons, compared
    from levelhead.bench.pareto import baseline_frontier, check_picture, draw_pareto, has_frontier, pareto_to_dict
    from levelhead.bench.tables import collect

    check_picture(out, x, y)
    console = Terminal()
    groups = collect(runs, split.value, min_count=min_count, missing=missing.words)
    pictures = [out] if len(groups) == 1 else [out.with_stem(f"{out.stem}-{n + 1}") for n in range(len(groups))]
    check_outputs({f"--out, picture {path.name}": path for path in pictures} | outputs, runs=runs)
    results, written, pages = [], [], []
    for path, group in zip(pictures, groups, strict=True):
        comparison = group.compare(baseline)
        console.print("\n".join(comparison.cautions), markup=False, end="\n" if comparison.cautions else "")
        frontier = None
        if not no_frontier and has_frontier(x, y):
            try:
                frontier = baseline_frontier(group, comparison)
            except LevelheadError as error:
                console.print(f"No FACT line: {error}", markup=False)
        elif not no_frontier:
            console.print("No FACT line: it belongs to the columns accuracy and equalized_odds.")
        draw_pareto(comparison, path, x=x, y=y, frontier=frontier)
        written.append((path, comparison.title))
        results.append(pareto_to_dict(comparison, x=x, y=y, frontier=frontier))
        pages.append((group, comparison))
    shown = [compared(*pair, fact_line=not no_frontier) for pair in pages] if html_file is not None else []
    write_files(json_file, {"pictures": results}, html_file, Comparisons(shown).page)
    named = [(path, what) for path, what in ((json_file, "the numbers"), (html_file, "the page")) if path is not None]
    for path, what in (*written, *named):
        console.print(f"Wrote {path}: {what}", markup=False, soft_wrap=True)
