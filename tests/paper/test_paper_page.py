"""results/paper/: written from what was published and what is in results/, and up to date."""

from __future__ import annotations

import functools
import importlib
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
