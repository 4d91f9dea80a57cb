"""Changes of areas under the ROC curve between two scores on the same rows, beside DeLong's sums written out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from levelhead.auditing.score_changes import area_changes
from levelhead.report.gate import Condition, check


def delong(label: np.ndarray, old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """Return the difference of the areas and its variance, pair by pair (DeLong, DeLong and Clarke-Pearson 1988)."""
    placed = []
    for score in (old, new):
        up, down = score[label][:, None], score[~label]
        kernel = (up > down) + 0.5 * (up == down)
        placed.append((kernel.mean(1), kernel.mean(0)))
    ten, one = (placed[1][side] - placed[0][side] for side in (0, 1))
    return float(ten.mean()), float(ten.var(ddof=1) / len(ten) + one.var(ddof=1) / len(one))


def drawn(seed: int, rows: int = 160) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    label, group = rng.random(rows) < 0.4, rng.integers(0, 2, rows)
    old = np.round(rng.normal(label * 1.0), int(rng.integers(1, 8)))
    return label, group, old, np.round(old + rng.normal(label * 0.5, 0.7), 3)


@pytest.mark.parametrize("seed", range(30))
def test_changes_are_delongs(seed: int) -> None:
    label, group, old, new = drawn(seed)
    found = area_changes(label, (old, new), group, ["a", "b"], np.ones(2, bool), min_count=10, level=0.95)
    for at, name in enumerate("ab"):
        rows = group == at
        value, variance = delong(label[rows], old[rows], new[rows])
        one, error = found[name].change, 0.05 / 4
        assert one.value == pytest.approx(value, abs=1e-12)
        few = min((rows & label).sum(), (rows & ~label).sum())
        reach = (one.high - one.value) / variance**0.5
        assert 0.999 * stats.norm.isf(error) <= reach <= 1.001 * stats.t.isf(error, few - 1)


def test_two_files_are_matched_and_the_change_is_told(folder_of_its_own: None) -> None:
    rng = np.random.default_rng(0)
    label, sex = rng.random(1000) < 0.4, rng.choice(["f", "m"], 1000)
    old = 1 / (1 + np.exp(-rng.normal(label * 1.0)))
    new = np.clip(old + 0.3 * label * (sex == "m"), 0, 1)
    table = pd.DataFrame({"id": np.arange(1000), "y": label * 1, "p": new, "sex": sex, "month": np.arange(1000) % 4})
    table.to_csv("new.csv", index=False)
    other = table.assign(p=old)[["id", "y", "p", "sex"]].sample(frac=1, random_state=1)[:990]
    other.to_csv("old.csv", index=False)
    options = {"against": "old.csv", "on": "id", "replicates": 100}
    result = lh.audit_table("new.csv", label="y", groups=["sex"], score="p", time="month", **options)
    areas, there = result.against.by_attribute["sex"].areas, np.isin(np.arange(1000), other["id"])
    for group, one in areas.items():
        rows = there & (sex == group)
        assert one.change.value == pytest.approx(delong(label[rows], old[rows], new[rows])[0], abs=1e-12)
    assert areas["m"].change.excludes_zero
    assert areas["f"].change.value == 0
    assert any("By sex, the AUC of m changed from" in said for said in result.against.sentences())
    assert check(result, [Condition.parse("area_change < 0")]).answer == "undecided"
    assert "AUC, change" in result.to_html()
    assert "larger part of the equalized-odds gap changed" in " ".join(result.text().split())


def test_groups_that_are_small_have_no_change() -> None:
    label, group, old, new = drawn(1)
    kept = np.ones(2, bool)
    assert area_changes(label, (old, new), group, ["a", "b"], kept, min_count=500, level=0.95) == {}
    assert area_changes(label, (old, new), group, ["a", "b"], ~kept, min_count=10, level=0.95) == {}
