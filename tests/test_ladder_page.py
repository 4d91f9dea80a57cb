"""The page of the ladder says what the committed aggregate says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from levelhead.storage import read_json
from scripts import load_script

ROOT = Path(__file__).parent.parent
ladder = load_script(ROOT / "benchmarks" / "ladder.py")
RESULT = ROOT / "results" / "ladder_small.json"


def test_the_tables_are_those_of_the_aggregate() -> None:
    tables = ladder.tables(read_json(RESULT))
    assert "| Attractive, attractive, its own |" in tables
    page = (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8")
    assert tables in page, "run python benchmarks/ladder.py table --json results/ladder_small.json"


def test_the_tasks_are_those_of_the_rule() -> None:
    """They were chosen by the hashes of their names, before any was run."""
    import hashlib

    record = read_json(RESULT)
    others = [name.removesuffix(" on attractive") for name in record["explained"] if name.endswith(" on attractive")]
    chosen = sorted(others, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[: ladder.CHOSEN]
    refitted = {name.removesuffix(" on attractive") for name in record["tasks"] if name.endswith(" on attractive")}
    assert refitted == set(chosen)
    assert not refitted & set(ladder.OWN)


def test_accuracy_and_gap_of_counts() -> None:
    # class 0: group 0 has 6 right and 2 wrong, group 1 has 3 and 1; class 1: 4 wrong and 4 right, 1 and 3.
    accuracy, gap = ladder.figures(np.array([6.0, 2, 3, 1, 4, 4, 1, 3]))
    assert accuracy == pytest.approx(16 / 24)
    assert gap == pytest.approx((0 + 0.25) / 2)


def test_the_budget_ends_the_way_to_another_layer() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(2000) % 2
    features = rng.normal(size=(2000, 3))
    features[:, 0] += 2 * labels
    held = ladder.HeldOut(features, labels, np.array([[-1.0, 0, 0], [1.0, 0, 0]]), np.array([1.0, -1.0]))
    other = (np.array([[0.0, -1, 0], [0.0, 1, 0]]), np.zeros(2))
    part = ladder.within_budget(held, other)
    before, after = (ladder.score(layer, features) > 0 for layer in ((held.weight, held.bias), part))
    assert abs(part[0][1, 1]) > 0.05
    assert (before == labels).mean() - (after == labels).mean() < 0.02
    assert ladder.within_budget(held, (2 * held.weight, 2 * held.bias))[0] == pytest.approx(held.weight)


def test_the_figures_on_texts_are_those_of_the_results() -> None:
    page = (ROOT / "docs" / "ladder.md").read_text()
    names = {
        "AFR, gamma 0 (class-balanced)": "afr, gamma 0",
        "AFR, gamma 2": "afr, gamma 2",
        "few-label, 200 rows": "few-label",
        "decorrelation (ORACLE)": "decorrelation",
        "DFR (ORACLE)": "dfr",
    }
    lines = page.split("## Measured on texts")[1].splitlines()
    for column, task in enumerate(("hatexplain", "multinli"), start=2):
        (record,) = read_json(ROOT / "results" / f"ladder_{task}.json")["comparisons"]
        for title, method in names.items():
            cell = next(line for line in lines if line.startswith(f"| {title} |")).split("|")[column]
            gap, accuracy = (record["methods"][method][name]["difference"] for name in ("equalized_odds", "accuracy"))
            value, low, high = (100 * gap[end] for end in ("value", "low", "high"))
            assert f"{value:+.1f} [{low:+.1f}, {high:+.1f}]" in cell.replace("*", ""), (task, title)
            assert f"({100 * accuracy['value']:+.1f})" in cell, (task, title)
