"""The page of the ladder says what the committed aggregate says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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


def test_the_sentences_before_the_table_say_what_the_table_says() -> None:
    page = " ".join((ROOT / "results" / "ladder.md").read_text(encoding="utf-8").split())
    lines = [line for line in ladder.gains(read_json(RESULT)).splitlines() if line.startswith("| ")]
    rows = {line.split(" | ")[0][2:]: line.strip("| ").split(" | ") for line in lines}
    for name, words in (
        ("identities", "reduces the gap by a median of {share}%**. The reduction is decided on {smaller} of 14"),
        ("identities", "median difference is {over} points, decided on {decided} of 14 tasks"),
        ("identities, shuffled", "with shuffled ids, reduces it by {share}%"),
        ("few-label, 200 rows", "200 group labels reduce the gap by {share}%"),
        ("few-label, 200 rows", "{over} points more than their placebo"),
        ("colour planes", "reduces the gap by {share}%, {over} points more"),
        ("a random direction, removed", "reduces the gap by a median of {share}%, decided on {smaller} of 15"),
    ):
        _, share, over, smaller, decided, *_ = rows[name]
        found = {"share": share.strip("-+%"), "over": over.strip("-"), "smaller": smaller.split(" / ")[0]}
        assert words.format(**found, decided=decided) in page, name
    assert f"Each of {read_json(RESULT)['settings_tried']} variants per task was stopped" in page
    few, ids = (beyond_budget(name) for name in ("few-label, 200 rows", "identities"))
    assert f"lost more than half a point on {few[0]} of 15 tasks, identities on {ids[0]} of 14" in page
    assert f"though decidedly on {few[1]} and {ids[1]}" in page


def beyond_budget(name: str) -> tuple[int, int]:
    """Return on how many tasks a variant loses more accuracy than the budget, and on how many its interval says so."""
    tasks = read_json(RESULT)["tasks"].values()
    found = [one for task in tasks for one in task["variants"] if one["within_budget"] and one["name"] == name]
    lost, sure = (sum(one["accuracy"][end] < -ladder.BUDGET for one in found) for end in ("value", "high"))
    return lost, sure


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
    page = (ROOT / "results" / "ladder.md").read_text()
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


def test_the_direction_that_tells_a_signal_is_found_inside_the_classes() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(4000) % 2
    features = rng.normal(size=(4000, 4)) * np.array([1.0, 2, 3, 4])
    signal = features[:, 2] / 3 + 5 * labels  # which the class tells as well
    held = ladder.HeldOut(features, labels, np.zeros((2, 4)), np.zeros(2))
    direction = ladder.telling(held, signal)[:, 0]
    assert direction == pytest.approx([0, 0, 1 / 1.1, 0], abs=0.03)


def test_a_gain_over_the_placebo_is_of_the_same_people() -> None:
    gaps = np.array([-0.05, -0.06, -0.04, -0.05])
    found = {
        ("few-label, 50 rows", 3, True): [(gaps, gaps)],
        (ladder.REMOVED_DIRECTION, 0, True): [(gaps, gaps + 0.03)],
        ("noise on the score", 0, True): [(gaps, gaps)],
    }
    over = ladder.over_placebo("few-label, 50 rows", True, found)["over_placebo"]
    assert over["placebo"] == ladder.REMOVED_DIRECTION
    assert [over[end] for end in ("value", "low", "high")] == pytest.approx([-0.03] * 3)
    assert ladder.over_placebo("noise on the score", True, found) == {}
    assert ladder.over_placebo("few-label, 50 rows", False, found) == {}


def test_an_area_is_turned_to_at_least_a_half() -> None:
    groups = np.array([0, 0, 1, 1])
    assert ladder._area(np.array([3.0, 2, 1, 0]), groups) == 1
    assert ladder._area(np.array([0.0, 2, 1, 3]), groups) == pytest.approx(0.75)


def test_fewer_people_bring_all_their_rows() -> None:
    people = np.array([0, 0, 1, 1, 1, 2, 3, 3])
    train = ladder.PeopleRows(np.arange(8.0)[:, None], np.zeros(8, int), people)
    some = ladder.some_people(train, 2, np.random.default_rng(1))
    assert len(np.unique(some.people)) == 2
    assert 2 not in some.people, "one row tells nothing of what stays the same"
    assert all((some.people == each).sum() == (people == each).sum() for each in np.unique(some.people))
