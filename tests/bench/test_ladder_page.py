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
