"""Simulated coverage: headlines of benchmarks/coverage.py in short, what was recorded, and that all of it runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from levelhead import audit
from scripts import load_script

ROOT = Path(__file__).parents[2]
package = sys.modules.get("coverage")
coverage = load_script(ROOT / "benchmarks" / "coverage.py")
if package is None:
    del sys.modules["coverage"]
else:
    sys.modules["coverage"] = package  # that which measures tests


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, coverage.SPREAD])
@pytest.mark.parametrize("design", coverage.HEADLINES)
@pytest.mark.long
def test_headlines_are_false_in_few_audits_and_intervals_hold(design: str, spread: float) -> None:
    """40 audits a cell: more than 5 false headlines, or missed intervals, have a chance of 1 in 70 where 5% err."""
    (one,) = coverage.simulated(coverage.headline_design(design, spread), 40, 1)
    assert one["coverage"] >= 1 - 5 / 40
    assert spread or one["named"] <= 5 / 40


def test_the_designs_are_those_that_were_named_and_every_record_holds() -> None:
    records = json.loads((ROOT / "results" / "coverage.json").read_text(encoding="utf-8"))["headlines"]
    assert {one["design"] for one in records} == set(coverage.HEADLINES)
    assert all(one["trials"] >= 1000 for one in records)
    assert not [one for one in records if coverage.missed_headline(one)]
    for sizes, *rates in coverage.HEADLINES.values():
        assert len(sizes) == 6 or (10 <= len(sizes) <= 60 and max(sizes) / min(sizes) > 600)
        assert max(rates[1:]) <= 0.05 or len(sizes) == 6


def test_a_simulated_headline_is_that_of_an_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation compares pairs alone: an audit of the same rows must name one in the same trials."""
    design, tables = "10 groups of 12 to 12,000", []
    draw = coverage.Cell.draw

    def kept(cell: object, rng: np.random.Generator) -> np.ndarray:
        tables.append(draw(cell, rng))
        return tables[-1]

    monkeypatch.setattr(coverage.Cell, "draw", kept)
    headlines = coverage.headline_design(design, 3 * coverage.SPREAD / 4)
    once = headlines.start(np.random.default_rng((5, *headlines.seed)))
    simulated = np.mean([once(trial)[0] for trial in range(12)])
    named = 0
    for trial, table in enumerate(tables):
        group, label, prediction = (np.repeat(at, table.ravel()) for at in np.indices(table.shape).reshape(3, -1))
        groups = np.array([f"group {one}" for one in range(len(table))])[group]
        found = audit(label, prediction, sensitive_features=groups, seed=trial, replicates=100)
        difference = found.more["finding"]["pair"]["difference"]
        named += not difference["low"] <= 0 <= difference["high"]
    assert named / len(tables) == pytest.approx(simulated)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # one audit may have an undefined figure, of which there is no mean
def test_a_design_of_each_kind_runs() -> None:
    kinds = {(key, design.name.split()[0]): design for key, of in coverage.SERIES.items() for design in of()}
    for design in kinds.values():
        assert coverage.simulated(design, 1, 0), design.name
