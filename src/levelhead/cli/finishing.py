"""The end of every verb with a result: write its files, print it, name the files and the next step."""

from __future__ import annotations

import datetime
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from levelhead._version import __version__, commit
from levelhead.storage import write_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from levelhead.report.gate import Condition
    from levelhead.report.result import Report
    from levelhead.report.text import Record


SCHEMA = 1
"""Version of what the JSON files hold (report/audit.schema.json): keys are only added to it."""


def made(inputs: Sequence[Path | None], source: str) -> dict[str, Any]:
    """Return tool, version, command, time (UTC; that of SOURCE_DATE_EPOCH, if set), the files read, and ``source``."""
    from levelhead.report.page import recorded_command

    known, files = commit(), []
    for path in inputs:
        if path is not None and path.is_file():  # a pipe is gone once it is read
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            files.append({"file": path.name, "bytes": path.stat().st_size, "sha256": digest})
    version = __version__ if known is None else f"{__version__} ({known})"
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    now = datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "schema": SCHEMA,
        "tool": "levelhead",
        "version": version,
        "command": recorded_command(),
        "time": now,
        "inputs": files,
        "source": source,
    }


def write_files(json_file: Path | None, record: Any, html_file: Path | None, page: Callable[[], Record]) -> None:
    """Write the JSON of a result and its page, where they are requested."""
    if json_file is not None:
        write_json(json_file, record)
    if html_file is not None:
        from levelhead.report.page import write_page

        write_page(html_file, page())


def tell(console: Console, step: str) -> None:
    """Print what to type next."""
    console.print(f"Next: {step}", markup=False, highlight=False, soft_wrap=True)


def finish(
    result: Report,
    json_file: Path | None = None,
    html_file: Path | None = None,
    *,
    source: str = "",
    above: Sequence[RenderableType] = (),
    written: Sequence[Path] = (),
    fail_if: Sequence[Condition] = (),
    inputs: Sequence[Path | None] = (),
    step: str = "",
) -> None:
    """Write a result's files before anything is printed, so that a terminal that goes away costs no result.

    Args:
        result: what was found.
        json_file: where its figures go.
        html_file: where its page goes, about ``source``.
        source: what was measured, in a word.
        above: lines that are printed before the result; a ``Text`` is a command, and stays one line.
        written: files that are written already, to be named.
        fail_if: conditions: the command ends with exit status 1 if one holds, with 3 if one is undecided.
        inputs: the files that were read: name, size and SHA-256 of each stand in JSON and page.
        step: a sentence on what to type next, printed last where there is no warning.

    Raises:
        ConfigError: a condition names no figure; the files are written all the same.
    """
    gate, wrong = None, None
    if fail_if:
        from levelhead.report.gate import check

        try:
            gate = check(result, fail_if)
        except ConfigError as error:
            wrong = error
    added: dict[str, Any] = {}
    if json_file is not None or html_file is not None:
        added = {**({"gate": gate.to_dict()} if gate else {}), "made": made(inputs, source)}
    record = {**result.to_dict(), **added} if json_file is not None else None
    write_files(json_file, record, html_file, lambda: result.page(source=source, more=added))
    console = Terminal()
    for line in (*above, result.table(), *(gate.sentences() if gate else ())):
        console.print(line, markup=False, soft_wrap=isinstance(line, Text))
    for path in (*written, json_file, html_file):
        if path is not None:
            console.print(f"Wrote {path}", markup=False)
    if step and not getattr(result, "warnings", ()):
        tell(console, step)
    if wrong is not None:
        raise wrong
    if gate is not None and gate.exit_code:
        raise typer.Exit(gate.exit_code)
