"""The command ``levelhead report``: one page of whatever a path holds, and what the verbs with ``--html`` share."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from levelhead.storage import as_written, check_outputs, read_json
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, DataError

if TYPE_CHECKING:  # importing pandas and torch takes seconds, and --help does not need them
    from levelhead.report.text import Record


def report_command(
    source: Annotated[
        Path,
        typer.Argument(
            help="A folder of a run, of several, or of `lm bench`; or JSON that another command wrote.",
            show_default=False,
        ),
    ],
    html_file: Annotated[Path | None, typer.Option("--html", help="Write the page here.")] = None,
    card: Annotated[
        bool,
        typer.Option(
            "--card", help="Write the model card of a run into its model folder, ready for the Hugging Face Hub."
        ),
    ] = False,
) -> None:
    """Write one standalone HTML page for a run, a comparison, an audit, or language models.

    The page loads nothing and runs no script: it can be mailed, archived and printed. Its first line is the finding
    with its uncertainty. For other options, such as another baseline, use `levelhead table --html`.

    The model card covers loading, training data, use of groups, measurements with intervals, cost and limits. Training
    and evaluation also write it; an existing card is replaced.

    Example: levelhead report runs/utkface64 --html page.html
    """
    if html_file is None and not card:
        raise ConfigError("Choose an output: --html FILE for a page, or --card for a run's model card.")
    check_outputs({"--html": html_file}, inputs=[source], runs=[source])
    if card:
        from levelhead.runs.card import CARD, write_card

        check_outputs({"The card": source / CARD})
        Terminal().print(f"Wrote {write_card(source)}", markup=False, soft_wrap=True)
    if html_file is None:
        return
    from levelhead.report.page import recorded_command, write_page

    page = page_of(source, command=recorded_command())
    write_page(html_file, page)
    console = Terminal()
    console.print(page["finding"], markup=False)
    console.print(f"Wrote {html_file}", markup=False, soft_wrap=True)


PAGES = {
    "attention": "inspecting.page:attention_page",
    "attention gap": "lm.page:gap_page",
    "comparison": "bench.page:comparisons_page",
    "inspection": "inspecting.page:inspection_page",
    "language models": "lm.page:language_model_page",
    "plan": "auditing.plan:plan_page",
    "rule": "auditing.rule_page:rule_page",
    "scores": "lm.page:bench_page",
    "two models": "own.page:two_models_page",
}
"""By the ``kind`` of a JSON, the function that makes its page where that is not ``one_page``; it takes the JSON,
``source`` and ``command``."""
WITHOUT_KIND = {"comparison": ("comparisons", list), "scores": ("parts", dict)}
"""The key, and its type, of a JSON without a ``kind``: those of results/, and scores in a folder of lm bench."""


def kind_of(record: Record) -> str | None:
    """Return the kind of result that a JSON holds; None for what has no page."""
    from levelhead.report.one_page import KINDS

    if "kind" in record:
        return kind if isinstance(kind := record["kind"], str) and kind in KINDS.keys() | PAGES else None
    return next((kind for kind, (key, of) in WITHOUT_KIND.items() if isinstance(record.get(key), of)), None)


def page_of(source: Path, *, command: str = "") -> Record:
    """Recognise what a path holds, and summarise it.

    Raises:
        DataError: the path is missing or holds nothing that a page can be made of; the text says what can.
    """
    if not source.exists():
        raise DataError(f"{source} does not exist. Give a run folder, a folder of runs, or a JSON of levelhead.")
    with as_written(source):
        return _page_of(source, command)


def _page_of(source: Path, command: str) -> Record:
    if source.is_dir():
        return _page_of_folder(source) | {"command": command}
    if source.suffix.lower() != ".json":
        raise DataError(
            f"{source} is no JSON. For a file of predictions use `levelhead audit {source} --label L --prediction P "
            "--group G --html PAGE`."
        )
    record = read_json(source)
    kind = kind_of(record) if isinstance(record, dict) else None
    if kind is not None:
        from levelhead.report.result import made_page

        module, _, name = PAGES.get(kind, "report.one_page:one_page").partition(":")
        about = record.get("made", {}).get("source", source.name)  # what was measured, and not what holds the figures
        return made_page(getattr(importlib.import_module(f"levelhead.{module}"), name), record, about, command)
    raise DataError(f"{source} is not the JSON of a result: give what `audit` or another verb wrote with --json.")


def _page_of_folder(folder: Path) -> Record:
    if (folder / "config.yaml").exists():
        from levelhead.runs.page import run_page

        return run_page(folder)
    if scores := sorted(folder.glob("scores-*.json")):
        from levelhead.lm.page import scores_page

        records = [read_json(path) for path in scores]
        for path, record in zip(scores, records, strict=True):
            if not isinstance(record, dict) or not {"benchmark", "overall", "parts"} <= record.keys():
                raise DataError(f"{path} is not what `lm bench` writes: delete it, and run `lm bench` again.")
        return scores_page(records, name=str(records[0].get("model") or folder.name))
    return runs_page([folder])


def runs_page(folders: Sequence[Path]) -> Record:
    """Compare the evaluated runs in folders on their test rows, and summarise: one part for each data set."""
    from levelhead.bench.of_runs import compared
    from levelhead.bench.page import Comparisons
    from levelhead.bench.tables import collect

    groups = collect(folders, "test")
    return Comparisons([compared(group, group.compare("erm")) for group in groups]).page()
