"""The tables of results/inside.md are what ``benchmarks/inside.py table`` makes of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[2]
SHOWN = {
    "portraits": ["ERM", "normalise only", "DAM (paper)", "DAM (levelhead)"],
    "utkface64": ["ERM", "DAM (paper)"],
    "celeba64_attractive": ["ERM", "DAM (paper)", "DAM (levelhead)", "few-label", "identities"],
    "celeba64_blond": ["ERM", "DAM (paper)", "few-label", "identities"],
    "hatexplain": ["ERM", "DAM (paper)"],
}


@pytest.mark.parametrize("name", SHOWN)
def test_each_line_of_the_table_is_the_files(name: str) -> None:
    table = load_script(ROOT / "benchmarks" / "inside.py").table
    made = table(ROOT / "results" / f"inside_{name}.json", SHOWN[name])
    lines = (ROOT / "results" / "inside.md").read_text(encoding="utf-8").split("\n")
    gap = lines.index(made[2])
    head, end = gap - 2, lines.index("", gap)
    assert lines[head:gap] == made[:2]
    assert end - gap > 4
    assert set(lines[gap:end]) <= set(made)
