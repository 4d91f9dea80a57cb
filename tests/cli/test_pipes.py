"""A pipe where a file should be is one sentence at once: whoever opened it would wait for it without end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import run
from levelhead.data.hub import Hub
from levelhead.lm.perplexity import Perplexity
from levelhead.lm.stereoset.data import read_stereoset, read_terms
from levelhead.loading import load_config
from levelhead.types import DataError

pytestmark = pytest.mark.timeout(60)


def saved(folder: Path) -> Hub:
    (folder / "state.json").write_text("{}")
    return Hub(path=str(folder))


READERS: dict[str, Callable[[Path], Any]] = {
    "terms": read_terms,
    "documents": lambda path: Perplexity(file=path).read(None),
    "documents.gz": lambda path: Perplexity(file=path).read(None),
    "triplets.json": read_stereoset,
    "set/data-00000-of-00001.arrow": lambda path: saved(path.parent).check(),
    "model/config.json": lambda path: load_config("--model", str(path.parent)),
    "model/model.safetensors": lambda path: load_config("--model", str(path.parent)),
}


@pytest.mark.parametrize("name", READERS)
def test_no_reader_waits_for_a_pipe(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=r"is a pipe, a socket or a device, not a file|is no file"):
        READERS[name](tmp_path / name)


PARTS = ("config.yaml", "predictions-test.parquet", "evaluation-test.json", "cost.json", "model/model.safetensors")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    "line", [("table", "run"), ("evaluate", "run"), ("report", "run", "--html", "x.html")], ids=str
)
def test_no_command_waits_for_a_pipe_in_a_run_folder(
    part: str,
    line: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in {*PARTS, "metrics.json"} - {part}:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_text(
            "data: {name: portraits}\nmethod: {name: erm}\n" if name == "config.yaml" else "{}"
        )
    (tmp_path / "run" / part).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / "run" / part)
    assert run(*line) == 2
    assert "is a pipe" in capsys.readouterr().err.replace("\n", " ") or part == "config.yaml"
