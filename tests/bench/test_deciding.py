"""Verdicts within a margin: where the margin is from, and how often verdicts are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import run, said
from fold_runs import fake
from levelhead.bench.grid import Grid, remember
from levelhead.bench.tables import collect
from levelhead.metrics.seeds import OverSeeds
from levelhead.storage import read_json
from levelhead.types import ConfigError
from scripts import load_script

ROOT = Path(__file__).parents[2]


def test_the_arms_of_the_two_tests_are_those_of_the_interval() -> None:
    over_seeds = OverSeeds.of([np.array([0.01, 0.03, 0.02, 0.05])], [0.0])
    arms = over_seeds.join(0.01**2)
    # At the margin that the interval of level 90% just reaches, the one-sided p-value is 5%.
    assert arms.p_value(arms.arm(0.9)) / 2 == pytest.approx(0.05)


def test_a_grid_file_holds_the_margin(tmp_path: Path) -> None:
    plan = Grid({"data": {"name": "portraits"}}, {"erm": {"method.name": "erm"}}, margin=1.5)
    assert remember(plan, tmp_path).margin == 1.5
    with pytest.raises(ConfigError, match=r"other settings \('margin'"):
        remember(Grid(plan.base, plan.rows), tmp_path)
    for margin in (0, 100, True, "2"):
        with pytest.raises(ConfigError, match="it must be a number of points between 0 and 100"):
            Grid(plan.base, plan.rows, margin=margin)  # type: ignore[arg-type]


def test_the_margin_of_a_comparison_is_that_of_its_table_and_of_its_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("levelhead.bench.grid.LocalProcesses.__call__", lambda self, cell: fake(cell))
    sizes = [f"--set=data.{split}_size=60" for split in ("train", "validation", "test")]
    command = ["compare", "--data", "portraits", "--methods", "erm,dam", "--seeds", "0-1", "--folds", "2", *sizes]
    assert run(*command, "--margin", "99", "--out", "runs/out", "--html", "c.html") == 0
    assert run("table", "runs/out", "--json", "t.json") == run("report", "runs/out", "--html", "r.html") == 0
    assert {read_json(Path("t.json"))["comparisons"][0][key] for key in ("margin", "level")} == {0.99, 0.95}
    for page in ("c.html", "r.html"):
        assert "(within 99.0 points)" in Path(page).read_text(encoding="utf-8")
    assert collect([Path("runs/out")], "test", margin=0.05)[0].margin == 0.05
    assert collect(sorted(Path("runs/out").glob("*/seed-*")), "test")[0].margin == 0.02


def test_a_result_that_was_looked_at_before_its_end_is_shown_with_its_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = ROOT / "results" / "decide_utkface64_paper.json"
    assert read_json(file)["looks"]
    assert run("table", str(file)) == 0
    assert "95.88% intervals" in said(capsys)


def test_the_page_on_deciding_says_what_was_simulated() -> None:
    cells = [one for one in read_json(ROOT / "results" / "deciding.json")["cells"] if one["what"] != "stopped"]
    page = (ROOT / "docs" / "deciding.md").read_text()

    def of(key: str, what: str) -> list[float]:
        return [one[key] for one in cells if one["what"] == what]

    shown = {
        "a difference as large as the margin called equal within it": of("margin_called_smaller", "equal"),
        "four rows per person: a true null rejected": of("rejected", "people"),
        "four rows per person: the interval holds a true difference": of("held", "people"),
    }
    for title, values in shown.items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {title}"))
        assert line.endswith(f"| {100 * min(values):.1f} to {100 * max(values):.1f} |")
    load_script(ROOT / "benchmarks" / "seeds.py")  # which it takes its simulation from
    deciding = load_script(ROOT / "benchmarks" / "deciding.py")
    assert deciding.failures(cells) == []
    assert {cell["trials"] for cell in cells} == {1000}
