"""What tests of commands share: run one, and read what it printed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from levelhead.cli.app import app, main


def _verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _verbs(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


VERBS = dict(_verbs(typer.main.get_command(app)))
"""Every command of the app by its words, such as ``lm bench``."""


def run(*arguments: object) -> int:
    """Return the exit status of a command."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def printed(*words: object) -> str:
    """Return what a command that succeeds prints, on one line; its error is raised."""
    answer = CliRunner().invoke(app, list(map(str, words)))
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    assert answer.exit_code == 0, answer.output
    return " ".join(answer.output.split())


def wait_until(happened: Callable[[], object], seconds: float = 240) -> None:
    """Return as soon as ``happened()`` is true, or after so many seconds."""
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)


def lines_of(log: Path) -> int:
    """Return how many lines a file has that may not be there yet."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def evaluated_run(folder: Path, clusters: int | None = None) -> Path:
    """Return the folder of a run of 600 rows of two classes, as an evaluation leaves it; ``clusters`` of rows."""
    folder.mkdir()
    chance, rows = np.random.default_rng(5), 600
    label = chance.integers(0, 2, rows)
    score = np.clip(0.3 * label + 0.7 * chance.random(rows), 0.01, 0.99)
    table = {
        "id": [f"i{at}" for at in range(rows)],
        "label": label.astype(str),
        "prediction": (score > 0.5).astype(int).astype(str),
        "probability_0": 1 - score,
        "probability_1": score,
        "sex": chance.choice(["f", "m"], rows),
        "age": chance.integers(20, 60, rows),
        "dept": chance.choice(["x", "y"], rows),
        "cluster": np.arange(rows) % (clusters or rows),
    }
    pd.DataFrame(table).to_parquet(folder / "predictions-test.parquet")
    record = {"run": {}, "by_attribute": {"sex": {}}, "clusters": {"column": "person"} if clusters else None}
    (folder / "evaluation-test.json").write_text(json.dumps(record))
    (folder / "metrics.json").write_text("{}")
    (folder / "config.yaml").write_text("train: {}\n")
    return folder


def written(rows: pd.DataFrame, path: Path | str) -> Path:
    """Write rows as the name of the file says, and return its path."""
    path = Path(path)
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    else:
        rows.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was printed since the last look, on one line."""
    printed = capsys.readouterr()
    return " ".join((printed.out + printed.err).split())
