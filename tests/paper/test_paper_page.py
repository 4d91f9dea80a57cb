"""results/paper/: written from what was published and what is in results/, and up to date."""

from __future__ import annotations

import functools
import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from levelhead.paper.items import ITEMS
from levelhead.storage import write_json
from scripts import load_script

ROOT = Path(__file__).parents[2]
OVERVIEW = (ROOT / "results" / "paper" / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_script(ROOT / "tools" / "paper_pages.py")


def test_the_pages_are_what_the_tool_writes(tool: ModuleType) -> None:
    stale = [str(path) for path, text in tool.pages().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run python tools/paper_pages.py"


@pytest.mark.parametrize("name", list(ITEMS))
def test_every_item_has_a_page(name: str) -> None:
    assert f"]({name}.md)" in OVERVIEW
    text = (ROOT / "results" / "paper" / f"{name}.md").read_text(encoding="utf-8")
    assert f"levelhead reproduce {name} --data-root DATA" in text
    for grids in ITEMS[name].grids.values():
        for grid in grids:
            assert (ROOT / "recipes" / "paper" / f"{grid}.yaml").exists() or name == "table5"


def test_what_is_said_to_be_run_has_a_committed_result(tool: ModuleType) -> None:
    for item in ITEMS.values():
        assert (tool.state(item) != "not run") == tool.result_file(item).exists()
        assert ("at the paper's size" in tool.state(item)) == tool.result_file(item, "paper").exists()
        assert all((ROOT / "results" / name).exists() for name in item.results)


def test_in_table_2_the_choice_of_epochs_alone_moves_erm_by_more_than_the_published_gain(tool: ModuleType) -> None:
    """The overview says so; the interval's nearer end, too, is beyond the published difference."""
    ends = re.search(r"\[(\S+), (\S+)\]", tool.by_selection(ITEMS["table2"]))
    assert ends
    assert float(ends[2]) < float(tool.published_difference(ITEMS["table2"]).split()[0]) < 0


@pytest.mark.parametrize(
    ("file", "grid", "row", "figure"),
    [
        ("finding_utkface64", None, "DAM, preset released-vision", "difference"),
        ("finding_utkface64", None, "DAM", "difference"),
        ("finding_utkface64", None, "ERM, 11 layers", "difference"),
        ("finding_utkface64", None, "ERM, learning rate / 10", "difference"),
        ("paper_figure2_small", "figure2_small", "ARL, 2 layers", "gain"),
        ("paper_figure2_small", "figure2_small", "ARL, 6 layers", "gain"),
        ("paper_table1_small", "table1_small", "ERM", "by_selection_alone"),
        ("paper_table2_small", "table2_small", "ERM", "by_selection_alone"),
    ],
)
def test_effects_of_what_differs_from_the_text_are_those_of_the_files(
    tool: ModuleType, file: str, grid: str | None, row: str, figure: str
) -> None:
    text = (ROOT / "results" / "paper" / "README.md").read_text(encoding="utf-8")
    table = text.split("## What differs from the paper's text")[1].split("## A day with a GPU")[0]
    record = json.loads((ROOT / "results" / f"{file}.json").read_text(encoding="utf-8"))
    if grid is None:
        found = record["comparisons"]["own"]["methods"][row]["equalized_odds"]["difference"]
    elif figure == "gain":
        found = record["grids"][grid]["gains"][row]["equalized_odds"]
    else:
        found = record["grids"][grid]["published"][row]["equalized_odds"][figure]
    assert any(f"`{file}.json`" in line and tool.interval(found, signed=True) in line for line in table.splitlines())


def test_gains_of_a_result_stand_in_the_overview_each_kind_by_itself(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained whole and the last encoder alone are each compared with the ERM of their kind."""
    known = {"value": -0.012, "low": -0.03, "high": 0.01}
    gains = {"DRO-FT": known, "DAM-FT": known, "DRO-LE": known}
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    for more, stands in (
        ({"DAM-LE": known}, "; LE levelhead -1.2 [-3.0, +1.0]"),
        ({"DAM-LE": known | {"value": None}}, ""),
        ({"DAM-LE": known | {"value": None}, "DAM (paper)-LE": known}, "; LE paper -1.2 [-3.0, +1.0]"),
    ):
        tool.read.cache_clear()
        grid = {"gains": {row: {"equalized_odds": gain} for row, gain in (gains | more).items()}}
        write_json(tmp_path / "results" / "paper_table6_paper.json", {"grids": {"any": grid}})
        assert tool.measured(ITEMS["table6"], "paper") == f"FT levelhead -1.2 [-3.0, +1.0]{stands}"


def test_rows_that_joined_a_grid_later_are_named_as_not_run_and_change_no_command(tool: ModuleType) -> None:
    item = ITEMS["table7"]
    record = tool.read(tool.result_file(item))
    assert tool.made_with(item, record) == ""
    (grid,) = record["grids"].values()
    assert tool.not_in("table7_small", grid) == []
    earlier = {row: figures for row, figures in grid["published"].items() if not row.startswith("DAM (paper)")}
    left = tool.not_in("table7_small", grid | {"published": earlier})
    assert set(left) == set(grid["published"]) - set(earlier)


def test_seeds_and_rows_of_the_grid_are_not_named_as_options(tool: ModuleType) -> None:
    item = ITEMS["table1"]
    record = tool.read(tool.result_file(item))
    assert tool.made_with(item, record) == ""
    (name,) = record["grids"]
    label_only = record["grids"][name]["label_only"] | {"seeds": {"ERM": [0, 1], "DAM (levelhead)": [0]}}
    assert tool.made_with(item, {"grids": {name: record["grids"][name] | {"label_only": label_only}}}) == (
        " with `--seeds 0,1`"
    )


def test_the_functions_named_for_the_method_are_in_their_files() -> None:
    page = ROOT / "docs" / "method-in-code.md"
    text = page.read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| (`.+`) \| \[(\w+)\.py\]\((.+)\) \|$", text, flags=re.M)
    assert len(rows) >= 15
    assert all(f"quation {number}" in text for number in (2, 5, 6, 7))
    for names, module, link in rows:
        file = (page.parent / link).resolve()
        assert file.name == f"{module}.py"
        room = importlib.import_module(f"levelhead.{file.parent.name}.{module}")
        for name in re.findall(r"`(.+?)`", names):
            assert callable(functools.reduce(getattr, name.split("."), room)), name
