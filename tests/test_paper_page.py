"""docs/paper.md: every table and figure of the paper, its state here, and commands that stand for real experiments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from levelhead.bench.grid import comparison_grid, make_cells, read_grid
from levelhead.runs.recipe import load_experiment
from test_docs import commands_in_blocks, verb_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
ITEMS = [*(f"Table {number}" for number in range(1, 8)), *(f"Figure {number}" for number in range(1, 5))]
STATES = {"small scale only", "not run", "nothing to run"}
COMMANDS = sorted(set(commands_in_blocks(PAGE)))


def section(item: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"\n## {item}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def row(item: str) -> list[str]:
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| [{item}]"))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("item", ITEMS)
def test_every_table_and_figure_has_a_state_and_a_command(item: str) -> None:
    _, shows, state, out = row(item)
    assert shows
    assert state in STATES
    assert bool(commands_in_blocks(section(item))) == (state != "nothing to run")
    assert (state == "not run") == (not out)


@pytest.mark.parametrize("item", [item for item in ITEMS if item.startswith("Table")])
def test_what_is_said_to_be_run_here_has_committed_results(item: str) -> None:
    made_by = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    first = re.sub(r"\s+", " ", commands_in_blocks(section(item))[0])
    assert (first in made_by) == (row(item)[2] == "small scale only")


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.split()[1] in ("compare", "train")])
def test_commands_stand_for_experiments_that_can_be_built(line: str, tmp_path: Path) -> None:
    """Recipes, grids, methods and keys exist, and the values fit; what a run reads is looked at when it starts."""
    command, words = verb_of(line)
    given: dict[str, Any] = command.make_context(command.name, words).params
    if command.name == "train":
        load_experiment(given["recipe"], given["settings"] or ())
        return
    if given["grid"] is not None:
        plan = read_grid(given["grid"])
    else:
        names = ("recipe", "methods", "seeds", "options", "settings")
        plan = comparison_grid(None, task=given["data"], **{name: given[name] or () for name in names if given[name]})
    assert make_cells(plan, tmp_path, data_root=tmp_path)
