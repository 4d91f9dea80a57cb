"""The demonstration: a packaged grid, whose committed figures the pages show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import run
from levelhead.bench.grid import make_cells, read_grid
from levelhead.runs.recipe import flatten
from levelhead.storage import read_json

ROOT = Path(__file__).parents[1]
COMMITTED = read_json(ROOT / "results" / "portraits_demo.json")["comparisons"]


def test_it_runs_the_two_settings_that_look_the_same_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blank = lambda draws, noise, *_: (noise.transpose(0, 3, 1, 2), noise[..., 0])  # noqa: E731
    monkeypatch.setattr("levelhead.data.portraits._paint", blank)  # only groups are looked at before the first run
    ran: list[Any] = []
    monkeypatch.setattr("levelhead.bench.running.run_all", lambda cells, folder, **_: ran.extend(cells))
    monkeypatch.setattr("levelhead.bench.running.show_results", lambda cells, folder, **options: ran.append(options))
    assert run("demo", "--seeds", "2", "--out", str(tmp_path / "demo")) == 0
    *cells, shown = ran
    assert len(cells) == 2 * 4 * 2
    data = [cell.experiment.data for cell in cells]
    assert {(one.correlation, one.test_correlation) for one in data} == {(1.0, 0.0), (1.0, None)}
    assert shown["html_file"] == tmp_path / "demo" / "page.html"


def test_the_committed_figures_are_those_of_the_grid(tmp_path: Path) -> None:
    cells = make_cells(read_grid("portraits_demo"), tmp_path, seeds=[0])
    names = [(record, method) for record in COMMITTED for method in record["methods"]]
    for cell, (record, method) in zip(cells, names, strict=True):
        setting, _, name = cell.row.partition(": ")
        assert setting in record["title"].lower()
        assert method.startswith(name)
        assert record["seeds"][method] == [0, 1, 2]
        made = cell.experiment.to_dict()
        assert record["data"].items() <= made["data"].items()
        settings = flatten({part: made[part] for part in ("method", "model", "train")})
        assert record["settings"][method].items() <= settings.items()
