"""``levelhead lm bench --samples``: logs of lm-evaluation-harness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from levelhead.cli.finishing import write_files
from levelhead.terminal import Terminal


def score_samples(
    samples: Sequence[Path], cluster: str, by: str, json_file: Path | None, html_file: Path | None, console: Terminal
) -> None:
    """Score logs, compare their models, print, and write what is requested."""
    from levelhead.lm.page import samples_page
    from levelhead.lm.samples import read_log, samples_summary
    from levelhead.report.terminal import drawn

    record = samples_summary([read_log(path, cluster=cluster, by=by) for path in samples])
    console.print(drawn(samples_page(record)))
    write_files(json_file, record, html_file, lambda: samples_page(record))
    if html_file is not None:
        console.print(f"Wrote {escape(str(html_file))}", soft_wrap=True)
