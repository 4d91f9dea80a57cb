"""``levelhead plan``: how many rows show a gap, and what every audit says that its rows could have shown."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import run
from levelhead.storage import read_json


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
    """The whole audit, not the formula: 60 of them have a standard error of 5 points."""
    plan, rng, named = lh.plan_audit(gap=0.1, rate=0.5, shares={"a": 0.5, "b": 0.5}), np.random.default_rng(0), 0
    group = np.repeat(list(plan.rows), list(plan.rows.values()))
    for _ in range(60):
        found = (rng.random(len(group)) < np.where(group == "a", 0.5, 0.6)).astype(int)
        alarms = (rng.random(len(group)) < 0.2).astype(int)
        label = np.repeat([1, 0], len(group))
        result = lh.audit(label, np.concatenate([found, alarms]), sensitive_features=np.tile(group, 2), replicates=100)
        pair = result.more["finding"]["pair"]
        named += pair["rate"] == "true_positive_rate" and not (
            pair["difference"]["low"] <= 0 <= pair["difference"]["high"]
        )
    assert 0.7 <= named / 60 <= 0.9


def test_every_audit_says_what_its_rows_could_have_shown() -> None:
    """1,000 rows of each label in each group, rates of 20% and 80%, two comparisons."""
    label, group = [0, 1] * 2000, ["a", "a", "b", "b"] * 1000
    predicted = [0, 1, 0, 1, 0, 1, 0, 1, 1, 0] * 400
    result = lh.audit(label, predicted, sensitive_features={"sex": group}, replicates=100)
    found = {figure: one.value for _, _, figure, one in result.figures() if figure.endswith("_detectable")}
    assert found == {
        "true_positive_rate_detectable": pytest.approx(0.058951, abs=1e-6),
        "false_positive_rate_detectable": pytest.approx(0.058951, abs=1e-6),
    }


def test_rate_and_shares_come_from_earlier_rows(tmp_path: Path) -> None:
    """Half of 300 women and a quarter of 100 men are selected: 43.75% of all, three quarters of them women."""
    sex, decision = np.repeat(["f", "m"], [300, 100]), np.r_[np.arange(300) % 2, np.arange(100) % 4 == 0]
    table = pd.DataFrame({"sex": sex, "decision": decision.astype(int), "y": np.arange(400) % 3 == 0})
    table.to_csv(tmp_path / "d.csv", index=False)
    by_hand = lh.plan_audit(gap=0.05, rate=0.4375, shares={"f": 0.75, "m": 0.25})
    asked = ("--prediction", "decision", "--favourable", "1", "--group", "sex", "--gap", "5")
    assert run("plan", tmp_path / "d.csv", *asked, "--json", tmp_path / "plan.json") == 0
    assert {name: read_json(tmp_path / "plan.json")[name] for name in ("rate", "rows")} == {
        "rate": by_hand.rate, "rows": by_hand.rows
    }  # fmt: skip
    found = lh.plan_audit(table, groups=["sex"], label="y", prediction="decision", rows=100)
    positive = table[table["y"]]
    assert found.rate == pytest.approx(positive["decision"].mean())
    assert found.rows == {"f": 75, "m": 25}
    assert found.sentence.startswith("100 rows with y = True ")
