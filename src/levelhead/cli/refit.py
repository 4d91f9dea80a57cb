"""The command ``levelhead refit``: other last layers for a finished run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from levelhead.cli.finishing import tell
from levelhead.cli.options import (
    AllTables,
    DataRoot,
    JoinedFile,
    JoinedGroup,
    MinCount,
    OnColumn,
    Tried,
    run_join,
)  # fmt: skip
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal
from levelhead.types import DataError, LevelheadError


def refit_command(
    run: Annotated[Path, typer.Argument(help="A finished run of erm (or dam).", show_default=False)],
    methods: Annotated[
        str,
        typer.Option(
            "--method",
            help="Methods that refit: afr (gamma 1; above 2 it can reverse scores), identities, few-label, bmft, dfr, "
            "decorrelation.",
        ),
    ] = "afr,few-label,dfr",
    groups: Annotated[
        Path | None,
        typer.Option(
            help="File with the groups of some validation rows, for few-label and bmft: columns row (from 0), group."
        ),
    ] = None,
    options: Tried = None,
    join: JoinedFile = None,
    on: OnColumn = None,
    group: JoinedGroup = None,
    min_count: MinCount = 10,
    data_root: DataRoot = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the new runs. Default: RUN-refit.")] = None,
    all_: AllTables = False,
) -> None:
    """Refit the last layer of a finished run with other methods, in seconds, and compare.

    Each method gets its own run folder, with the same network except for the last layer (bmft tunes others, too). It is
    refitted on the validation rows, which training has not seen.

    Example: levelhead refit runs/erm --method afr,few-label,dfr --groups groups_200.csv
    """
    out = out or run.parent / f"{run.name}-refit"
    check_outputs({}, folders={"--out": out}, inputs=[groups, join], runs=[run])
    from levelhead.bench.page import Comparisons
    from levelhead.bench.refitting import refit_cells
    from levelhead.bench.tables import collect
    from levelhead.runs.evaluate import evaluate_run
    from levelhead.runs.finished import open_finished
    from levelhead.runs.joined import required_groups
    from levelhead.runs.refit import Refitting, refit_run
    from levelhead.terminal import training_progress

    console = Terminal()
    opened, joined = open_finished(run, data_root), run_join(run, join, on, group)
    cells = refit_cells(opened, methods, out, options or (), groups=groups, join=joined)
    with training_progress(console) as progress:
        refitting = Refitting(run, data_root, progress, joined)
        why: LevelheadError | None = None
        try:
            required_groups(opened.experiment.data, "test", joined)
        except LevelheadError as error:
            why = error
        lacking: dict[str, LevelheadError] = {}
        for cell in cells:
            try:
                refit_run(refitting, cell.experiment, cell.folder, evaluate=why is None, min_count=min_count)
            except DataError as error:  # such as too few rows for one method: the others are shown
                lacking[cell.row] = error
    if len(lacking) == len(cells):
        raise next(iter(lacking.values()))
    for row, reason in lacking.items():
        console.print(f"Left out {escape(row)}: {escape(str(reason))}", soft_wrap=True, highlight=False)
    cells = [cell for cell in cells if cell.row not in lacking]
    for cell in cells:
        console.print(f"{escape(cell.row)}: {escape(str(cell.folder))}", soft_wrap=True, highlight=False)
    if why is not None:
        console.print(f"No comparison by group: {escape(str(why))}", soft_wrap=True, highlight=False)
        return
    if joined is not None or not (run / "evaluation-test.json").exists():
        evaluate_run(run, data_root=data_root, join=joined, min_count=min_count)
    (found,) = collect([run, *(cell.folder for cell in cells)], "test", min_count=min_count)
    baseline = next(name for name, runs in found.rows().items() if runs[0].folder == run)
    comparison = found.compare(baseline)
    console.print(Comparisons.of(comparison).table(all=all_))
    if not (lacking or comparison.warnings):
        tell(console, f"levelhead table {shlex.join(map(str, (run, out)))} --threshold matched")
