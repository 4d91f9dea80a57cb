"""The page of the ladder says what the committed aggregate says."""

from __future__ import annotations

from pathlib import Path

from levelhead.storage import read_json
from scripts import load_script

ROOT = Path(__file__).parents[2]
ladder = load_script(ROOT / "benchmarks" / "ladder.py")
RESULT = ROOT / "results" / "ladder_small.json"


def test_the_tables_are_those_of_the_aggregate() -> None:
    page = (ROOT / "results" / "ladder_small.md").read_text(encoding="utf-8")
    for draw in (ladder.gains, ladder.composition):
        tables = draw(read_json(RESULT))
        assert "Attractive" in tables
        assert tables in page, "run python benchmarks/ladder.py table --json results/ladder_small.json"
