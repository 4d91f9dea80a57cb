"""Changes of areas under the ROC curve between two scores on the same rows, beside DeLong's sums written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from command_line import run
from levelhead.auditing.score_changes import area_changes


def delong(label: np.ndarray, old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """Return the difference of the areas and its variance, pair by pair (DeLong, DeLong and Clarke-Pearson 1988)."""
    placed = []
    for score in (old, new):
        up, down = score[label], score[~label]
        kernel = np.array([[(x > y) + 0.5 * (x == y) for y in down] for x in up])
        placed.append((kernel.mean(1), kernel.mean(0)))
    ten, one = (placed[1][side] - placed[0][side] for side in (0, 1))
    return float(ten.mean()), float(ten.var(ddof=1) / len(ten) + one.var(ddof=1) / len(one))


def drawn(seed: int, rows: int = 160) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    label, group = rng.random(rows) < 0.4, rng.integers(0, 2, rows)
    old = np.round(rng.normal(label * 1.0), int(rng.integers(1, 8)))
    return label, group, old, np.round(old + rng.normal(label * 0.5, 0.7), 3)


@pytest.mark.parametrize("seed", range(100))
def test_changes_are_delongs(seed: int) -> None:
    label, group, old, new = drawn(seed)
    found = area_changes(label, (old, new), group, ["a", "b"], np.ones(2, bool), min_count=10, level=0.95)
    for at, name in enumerate("ab"):
        rows = group == at
        value, variance = delong(label[rows], old[rows], new[rows])
        one = found[name].change
        assert one.value == pytest.approx(value, abs=1e-12)
        assert one.high - one.value >= stats.norm.ppf(1 - 0.05 / 4) * variance**0.5 * 0.999
        assert one.high - one.value <= stats.t.ppf(
            1 - 0.05 / 4, min((rows & label).sum(), (rows & ~label).sum()) - 1
        ) * (variance**0.5 * 1.001)
    other = next(one for one in found.values() if one.beside is not None)
    apart = found["a"].change.value - found["b"].change.value
    assert abs(other.beside.value) == pytest.approx(abs(apart))


def test_two_files_are_matched_and_the_change_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    label, sex = rng.random(2000) < 0.4, rng.choice(["f", "m"], 2000)
    old = 1 / (1 + np.exp(-rng.normal(label * 1.0)))
    new = np.clip(old + 0.3 * label * (sex == "m"), 0, 1)
    table = pd.DataFrame({"id": np.arange(2000), "y": label * 1, "p": new, "sex": sex, "month": np.arange(2000) % 4})
    table.to_csv(tmp_path / "new.csv", index=False)
    other = table.assign(p=old)[["id", "y", "p", "sex"]].sample(frac=1, random_state=1)
    other[:1990].to_csv(tmp_path / "old.csv", index=False)
    found = lh.audit_file(
        tmp_path / "new.csv", "y", None, ["sex"], score="p", against=tmp_path / "old.csv", on="id", time="month",
        replicates=100,
    )  # fmt: skip
    areas = found.against.by_attribute["sex"].areas
    there = np.isin(np.arange(2000), other["id"][:1990])
    for group, one in areas.items():
        rows = there & (sex == group)
        assert one.change.value == pytest.approx(delong(label[rows], old[rows], new[rows])[0], abs=1e-12)
    assert areas["m"].change.excludes_zero
    assert areas["f"].change.value == 0
    assert any("For group “m” of sex the AUC changed from" in said for said in found.against.sentences())
    args = ["audit", tmp_path / "new.csv", "--against", tmp_path / "old.csv", "--on", "id", "--label", "y"]
    args += ["--score", "p", "--group", "sex", "--html", tmp_path / "x.html"]
    assert run(*args, "--fail-if", "area_change < 0") != 2
    assert "AUC of both scores on the same rows" in (tmp_path / "x.html").read_text()
    assert "Equalized odds gap by sex: change " in capsys.readouterr().out
    assert run(*args, "--all") == 0
    assert "AUC of both scores on the same rows" in capsys.readouterr().out


def test_groups_that_are_small_have_no_change() -> None:
    label, group, old, new = drawn(1)
    kept = np.ones(2, bool)
    assert area_changes(label, (old, new), group, ["a", "b"], kept, min_count=500, level=0.95) == {}
    assert area_changes(label, (old, new), group, ["a", "b"], ~kept, min_count=10, level=0.95) == {}
