"""The simulated coverage of intervals of rankings, periods and scores, as results/coverage.json holds it."""

from __future__ import annotations

import json
from pathlib import Path

from scripts import load_script

ROOT = Path(__file__).resolve().parents[2]
coverage = load_script(ROOT / "benchmarks" / "coverage_scores.py")


def test_every_cell_was_simulated_and_holds() -> None:
    records = json.loads((ROOT / "results" / "coverage.json").read_text(encoding="utf-8"))["more"]
    found = {(one["design"], one["figure"]): one for one in records}
    for make, *arguments in coverage.DESIGNS:
        for figure in make(*arguments)[0]:
            design = make.title(*arguments)
            one = found[design, figure]
            assert one["trials"] >= 1000
            assert one["coverage"] >= (0.945 if figure.startswith(coverage.NO_HEADLINE) else 0.94), (design, figure)
