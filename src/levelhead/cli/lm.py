"""The commands ``levelhead lm``: bias benchmarks, attention alignment and attention gaps of language models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelhead.cli.finishing import write_files
from levelhead.cli.lm_bench import bench_command
from levelhead.cli.options import DataRoot, HtmlFile, JsonFile
from levelhead.storage import check_outputs
from levelhead.terminal import Terminal

lm_app = typer.Typer(help="Language models: measure and reduce stereotypes.", no_args_is_help=True)
console = Terminal()


lm_app.command("bench")(bench_command)


@lm_app.command("compare")
def compare_command(
    first: Annotated[Path, typer.Argument(help="A folder of `lm bench`, e.g. of the model before.")],
    second: Annotated[Path, typer.Argument(help="Another one, e.g. of the model after.")],
    data_root: DataRoot = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Compare two models on the benchmarks in both folders: scores and paired differences, with intervals.

    Answers are scored again, so give the data (--data-root): items are resampled jointly for both models.

    Example: levelhead lm compare runs/lm-before runs/lm-after --data-root DATA
    """
    check_outputs({"--json": json_file, "--html": html_file}, runs=[first, second])
    from levelhead.lm.comparison import comparison_summary
    from levelhead.lm.page import language_model_page
    from levelhead.report.terminal import drawn

    summary = comparison_summary(first, second, data_root)
    console.print(drawn(language_model_page(summary)))
    write_files(json_file, summary, html_file, lambda: language_model_page(summary))
