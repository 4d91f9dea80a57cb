"""The commands ``levelhead lm``: bias benchmarks, attention alignment and attention gaps of language models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from levelhead.cli.finishing import write_files
from levelhead.cli.lm_bench import bench_command
from levelhead.cli.options import DataRoot, HtmlFile, JsonFile
from levelhead.storage import check_outputs, read_json
from levelhead.terminal import Terminal

lm_app = typer.Typer(help="Language models: measure and reduce stereotypes.", no_args_is_help=True)
console = Terminal()


lm_app.command("bench")(bench_command)


@lm_app.command("compare")
def compare_command(
    first: Annotated[Path, typer.Argument(help="A folder of `lm bench`, e.g. of the model before.")],
    second: Annotated[Path, typer.Argument(help="Another one, e.g. of the model after.")],
    data_root: DataRoot = None,
    examples: Annotated[
        int, typer.Option(min=0, help="Write this many generations of both, side by side, into the second folder.")
    ] = 0,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Compare two models on the benchmarks in both folders: scores and paired differences, with intervals.

    Intervals of differences need the data (--data-root), because items are resampled jointly for both models. Without
    it, the stored scores are shown, and differences have no interval.

    Example: levelhead lm compare runs/lm-before runs/lm-after --data-root DATA
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=[first, second])
    from levelhead.lm.comparison import benchmarks_of, summarized, write_examples
    from levelhead.lm.page import language_model_page
    from levelhead.lm.runner import compare_runs
    from levelhead.report.terminal import drawn

    differences, notes = compare_runs(first, second, benchmarks_of(first), data_root)
    file = write_examples(first, second, data_root, count=examples) if examples else None
    summary = summarized(first, second, differences, notes, data_root)
    console.print(drawn(language_model_page(summary)))
    if file is not None:
        console.print(f"Generations side by side, for this machine alone: {escape(str(file))}", soft_wrap=True)
    kept = read_json(file)["examples"] if file is not None and html_file is not None else []
    found = {"differences": [one.to_dict() for one in differences], "notes": summary["notes"], "summary": summary}
    record = {"kind": "language models", **found}
    write_files(json_file, record, html_file, lambda: language_model_page(summary, examples=kept))
