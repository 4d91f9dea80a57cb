"""``levelhead plan``: how many rows show a gap, and what every audit says that its rows could have shown."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import levelhead as lh
from levelhead.cli.app import main


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    with pytest.raises(SystemExit) as leaving:
        main(["plan", *arguments])
    assert leaving.value.code == status
    printed = capsys.readouterr()
    return " ".join((printed.out if status == 0 else printed.err).split())


def test_the_command_prints_the_rows_of_each_group(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    text = shown(capsys, "--gap", "5", "--rate", "0.3", "--shares", "0.5,0.3,0.2", "--json", str(file))
    assert text.startswith(
        "9,053 rows detect a gap of 5.0 points between any two of 3 groups in 80 of 100 audits, at a rate of 30%."
    )
    assert "│ group 3 │ 20.0% │ 1,811 │" in text
    plan = json.loads(file.read_text())
    assert plan["rows"] == {"group 1": 4526, "group 2": 2716, "group 3": 1811}
    assert plan["total"] == 9053


def test_names_and_rows_instead_of_a_gap(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--rows", "9053", "--rate", "0.3", "--shares", "women=0.5,men=0.3,others=0.2")
    assert "9,053 rows detect a gap of 5.0 points between any two of 3 groups" in text
    assert "│ women │ 50.0% │ 4,526 │" in text
    assert "8 rows are too few to detect any gap" in shown(capsys, "--rows", "8", "--rate", "0.5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gap", "5"], "Missing option '--rate'"),
        (["--rate", "0.3"], "give --gap 5 (points) or --rows 2000"),
        (["--gap", "5", "--rows", "9", "--rate", "0.3"], "give --gap 5 (points) or --rows 2000"),
        (["--gap", "nan", "--rate", "0.3"], "A gap of nan points"),
        (["--rows", "inf", "--rate", "0.3"], "is not a number of rows"),
        (["--gap", "0", "--rate", "0.3"], "give one above 0"),
        (["--gap", "80", "--rate", "0.5"], "A gap of 80 points does not fit a rate of 50%"),
        (["--gap", "5", "--rate", "30"], "rate=30 is not between 0 and 1"),
        (["--gap", "5", "--rate", "0.3", "--shares", "0.5,0.3"], "together they must be 1, not 0.8"),
        (["--gap", "5", "--rate", "0.3", "--shares", "1"], "2 to 1,000 groups, and there are 1"),
        (["--gap", "5", "--rate", "0.3", "--shares", "a,b"], "--shares is 'a,b'"),
        (["--gap", "5", "--rate", "0.3", "--shares", "-0.5,1.5"], "each must be above 0"),
        (["--rows", "1.5", "--rate", "0.3"], "is not a number of rows"),
        (["--rows", "1", "--rate", "0.3"], "too few for 2 groups"),
        (["--gap", "5", "--rate", "0.3", "--comparisons", "0"], "comparisons=0 is not between 1 and"),
        (["--gap", "1e-7", "--rate", "0.3"], "needs more than 1,000,000,000,000 rows"),
        (["--gap", "1e-320", "--rate", "0.3"], "needs more than 1,000,000,000,000 rows"),
        (["--gap", "5", "--rate", "0.3", "--shares", "a=1e-300,b=1"], "needs more than 1,000,000,000,000 rows"),
    ],
)
def test_plans_that_cannot_be_read(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in shown(capsys, *arguments, status=2)


def test_a_plan_in_python() -> None:
    plan = lh.plan_audit(gap=0.1, rate=0.5, groups={"a": 0.5, "b": 0.5})
    assert set(plan.rows) == {"a", "b"}
    assert str(plan).startswith(f"{plan.total:,} rows detect a gap of 10.0 points between the two groups")
    smaller = lh.plan_audit(gap=0.1, rate=0.5, groups={"a": 0.5, "b": 0.5}, power=0.5)
    assert smaller.total < plan.total


def test_a_plan_is_for_the_comparisons_that_the_audit_will_make() -> None:
    """One column of two groups is compared in two rates; an audit says the same number, and decides by it."""
    plan = lh.plan_audit(gap=0.05, rate=0.3)
    assert plan.comparisons == 2
    assert lh.plan_audit(gap=0.05, rate=0.3, comparisons=2) == plan
    assert plan.total == 3414
    label, sex, race = (np.resize(one, 600) for one in ([0, 1], list("aabb"), list("cde")))
    result = lh.audit(label, label, sensitive_features={"sex": sex}, replicates=100)
    assert result.more["finding"]["comparisons"] == plan.comparisons
    both = lh.audit(label, label, sensitive_features={"race": race, "sex": sex}, replicates=100)
    several = lh.plan_audit(gap=0.05, rate=0.3, comparisons=both.more["finding"]["comparisons"])
    assert several.comparisons == 8
    assert several.total > plan.total


def test_planned_audits_name_the_gap_in_four_of_five() -> None:
    """The whole audit, not the formula: 200 of them have a standard error of 2.8 points."""
    plan, rng, named = lh.plan_audit(gap=0.1, rate=0.5, groups={"a": 0.5, "b": 0.5}), np.random.default_rng(0), 0
    group = np.repeat(list(plan.rows), list(plan.rows.values()))
    for _ in range(200):
        found = (rng.random(len(group)) < np.where(group == "a", 0.5, 0.6)).astype(int)
        alarms = (rng.random(len(group)) < 0.2).astype(int)
        label = np.repeat([1, 0], len(group))
        result = lh.audit(label, np.concatenate([found, alarms]), sensitive_features=np.tile(group, 2), replicates=100)
        pair = result.more["finding"]["pair"]
        named += (
            pair["rate"] == "true_positive_rate" and not pair["difference"]["low"] <= 0 <= pair["difference"]["high"]
        )
    assert 0.74 <= named / 200 <= 0.88


def test_every_audit_says_what_its_rows_could_have_shown() -> None:
    label, group = [0, 1] * 2000, ["a", "a", "b", "b"] * 1000
    predicted = [0, 1, 0, 1, 0, 1, 0, 1, 1, 0] * 400
    result = lh.audit(label, predicted, sensitive_features={"sex": group}, replicates=100)
    text = " ".join(result.text(all=True).split())
    # 1,000 rows of each label in each group, rates of 20% and 80%, two comparisons.
    assert (
        "sex: with this many rows, an audit detects gaps of 5.9 points in the true positive rate and 5.9 points in "
        "the false positive rate in 80 of 100 cases. Smaller gaps may exist."
    ) in text


def test_a_plan_says_that_an_audit_leaves_out_groups_of_few_rows() -> None:
    assert "an audit leaves out groups of fewer than 10 rows" in lh.plan_audit(rows=10, rate=0).sentence
    assert "leaves out" not in lh.plan_audit(rows=40, rate=0).sentence
