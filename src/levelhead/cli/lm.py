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
    models: Annotated[
        list[Path],
        typer.Argument(help="Folders of `lm bench`, or samples_*.jsonl of lm-evaluation-harness; two or more differ."),
    ],
    cluster: Annotated[str, typer.Option(help="Logs: documents equal in this field are one cluster.")] = "",
    by: Annotated[str, typer.Option(help="Logs: field with a document's category.")] = "",
    data_root: DataRoot = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
) -> None:
    """Compare language models: scores, paired differences adjusted for their number, and ranks.

    Answers are scored again over the items that all models have answered, so give the data (--data-root).

    Example: levelhead lm compare runs/lm-a runs/lm-b runs/lm-c --data-root DATA
    """
    runs, logs = ([path for path in models if path.is_dir() is folder] for folder in (True, False))
    check_outputs({"--json": json_file, "--html": html_file}, runs=runs, inputs=logs)
    from levelhead.lm.comparison import comparison_summary
    from levelhead.lm.page import language_model_page
    from levelhead.report.terminal import drawn

    summary = comparison_summary(models, data_root, cluster=cluster, by=by)
    console.print(drawn(language_model_page(summary), everything=False))
    write_files(json_file, summary, html_file, lambda: language_model_page(summary))
