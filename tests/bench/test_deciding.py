"""Verdicts within a margin: where the margin is from, and how often verdicts are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_runs import answered, rows_of, write_run

from command_line import run, said
from levelhead.bench.tables import collect
from levelhead.metrics.seeds import OverSeeds
from levelhead.storage import read_json
from scripts import load_script

ROOT = Path(__file__).parents[2]


def test_the_arms_of_the_two_tests_are_those_of_the_interval() -> None:
    over_seeds = OverSeeds.of([np.array([0.01, 0.03, 0.02, 0.05])], [0.0])
    arms = over_seeds.join(0.01**2)
    # At the margin that the interval of level 90% just reaches, the one-sided p-value is 5%.
    assert arms.p_value(arms.arm(0.9)) / 2 == pytest.approx(0.05)


def test_verdicts_are_within_the_margin_that_is_asked_for(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, answered(rows_of(), 0.2, at), name) for at, name in enumerate(("erm", "dam"))]
    page, record = tmp_path / "t.html", tmp_path / "t.json"
    assert run("table", *folders, "--margin", "99", "--json", record, "--html", page) == 0
    assert read_json(record)["comparisons"][0]["margin"] == 0.99
    assert collect(folders, "test")[0].margin == 0.02


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
