"""Audits against other rows: a newer month's rates, areas and gaps beside an older one's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

import levelhead as lh
from command_line import run
from levelhead.metrics.between import differences
from levelhead.types import ConfigError, DataError


def month(seed: int, rows: int, harm: float) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    sex, label = rng.choice(["f", "m"], rows, p=[0.4, 0.6]), rng.random(rows) < 0.5
    score = 1 / (1 + np.exp(-rng.normal(label * 1.5 - harm * (sex == "f") * label)))
    return pd.DataFrame({"y": label * 1, "p": score, "sex": sex, "yhat": (score > 0.6) * 1})


def test_groups_too_small_in_the_other_table_are_named(tmp_path: Path) -> None:
    old = month(1, 600, 0.0)
    pd.concat([old[old.sex == "m"], old[old.sex == "f"][:5]]).to_csv(tmp_path / "old.csv", index=False)
    month(0, 600, 0.0).to_csv(tmp_path / "new.csv", index=False)
    found = lh.audit_file(
        tmp_path / "new.csv", "y", "yhat", ["sex"], against=tmp_path / "old.csv", unpaired=True, replicates=100
    )
    assert "sex: groups with fewer than 10 rows in old.csv are not compared: “f”." in found.warnings


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    month(0, 3000, 1.0).to_csv(tmp_path / "new.csv", index=False)
    month(1, 2500, 0.0).to_csv(tmp_path / "old.csv", index=False)
    return tmp_path / "new.csv", tmp_path / "old.csv"


def test_changes_are_those_of_two_audits(files: tuple[Path, Path]) -> None:
    found = lh.audit_file(
        files[0], "y", None, ["sex"], score="p", threshold=0.6, against=files[1], unpaired=True, replicates=100
    )
    assert found.against is None
    changes = {(one.group, one.figure): one for one in found.findings["unpaired"].by_attribute["sex"]}
    new, old = map(pd.read_csv, files)
    for group in "fm":
        own, before = (one[one.sex == group] for one in (new, old))
        area = changes[group, "area"]
        assert area.change.value == pytest.approx(roc_auc_score(own.y, own.p) - roc_auc_score(before.y, before.p))
        one, hits, rows = changes[group, "true_positive_rate"], [], []
        for table in (own, before):
            hits.append(table.yhat[table.y == 1].sum())
            rows.append((table.y == 1).sum())
        assert one.change.value == pytest.approx(hits[0] / rows[0] - hits[1] / rows[1])
        theirs = differences(np.array(hits), np.array(rows), np.array([0]), np.array([1]), level=1 - 0.05 / 8)
        assert (one.change.low, one.change.high) == pytest.approx((theirs.low[0], theirs.high[0]))
        rejected = stats.fisher_exact([[hits[0], rows[0] - hits[0]], [hits[1], rows[1] - hits[1]]]).pvalue < 0.05 / 8
        assert rejected or not one.change.excludes_zero
    assert changes["f", "true_positive_rate"].beside.high < 0
    assert "the true positive rate of “f” changed by −" in " ".join(found.findings["unpaired"].sentences())


def test_months_that_are_alike_say_so(tmp_path: Path) -> None:
    for seed, name in ((3, "a.csv"), (4, "b.csv")):
        month(seed, 1000, 0.3).to_csv(tmp_path / name, index=False)
    found = lh.audit_file(
        tmp_path / "a.csv", "y", "yhat", ["sex"], against=tmp_path / "b.csv", unpaired=True, replicates=100
    ).findings["unpaired"]
    assert found.sentences() == ["No rate of a group, and no gap, changed measurably between the two tables."]


def test_groups_of_one_month_alone_are_left_out(files: tuple[Path, Path], tmp_path: Path) -> None:
    pd.read_csv(files[1]).replace({"sex": {"f": "x"}}).to_csv(tmp_path / "other.csv", index=False)
    found = lh.audit_file(
        files[0], "y", "yhat", ["sex"], against=tmp_path / "other.csv", unpaired=True, replicates=100
    ).findings["unpaired"]
    assert {one.group for one in found.by_attribute["sex"]} == {"m"}


def test_tables_without_a_common_group_are_not_said_to_be_alike(files: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    pd.read_csv(files[1]).replace({"sex": {"f": "Female", "m": "Male"}}).to_csv(path, index=False)
    found = lh.audit_file(files[0], "y", "yhat", ["sex"], against=path, unpaired=True, replicates=100)
    said = found.findings["unpaired"].sentences()
    assert said == ["By sex, nothing was compared: no group has enough rows in both tables."]
    for where, groups in (("new.csv", "“f”, “m”"), ("other.csv", "“Female”, “Male”")):
        assert f"sex: groups that only {where} has are not compared: {groups}." in found.warnings


def test_the_command_compares_and_refuses(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    args = ["audit", files[0], "--label", "y", "--score", "p", "--group", "sex"]
    assert run(*args, "--against", files[1], "--unpaired", "--fail-if", "area_change < -0.05") == 1
    assert "By sex, the " in " ".join(capsys.readouterr().out.split())
    assert run(*args, "--against", files[1], "--unpaired", "--all") == 0
    assert "other rows, by sex" in " ".join(capsys.readouterr().out.split())
    assert run(*args, "--unpaired") == 2
    with pytest.raises(ConfigError, match="--unpaired compares with the rows of --against"):
        lh.audit_file(files[0], "y", "yhat", ["sex"], against=files[1], on="sex", unpaired=True)
    with pytest.raises(ConfigError, match="needs other rows than these"):
        lh.audit_file(files[0], "y", "yhat", ["sex"], against=str(files[0]), unpaired=True)


def decided(yes: str, no: str, rates: dict[str, float], rows: int = 400) -> pd.DataFrame:
    parts = [pd.DataFrame({"y": [yes, no] * (rows // 2), "p": yes, "g": group}) for group in rates]
    for part, rate in zip(parts, rates.values(), strict=True):
        part.loc[part.index >= round(rate * rows), "p"] = no
    return pd.concat(parts)


def test_rates_of_both_tables_are_about_the_same_class(tmp_path: Path) -> None:
    """Of three classes the old table would take the first for the positive one; the new one's is the second of two."""
    decided("deny", "approve", {"f": 0.2, "m": 0.3}).to_csv(tmp_path / "new.csv", index=False)
    old = decided("deny", "approve", {"f": 0.4, "m": 0.3})
    old.iloc[0, 0] = old.iloc[0, 1] = "pending"
    old.to_csv(tmp_path / "old.csv", index=False)
    found = lh.audit_file(tmp_path / "new.csv", "y", "p", ["g"], against=tmp_path / "old.csv", unpaired=True)
    (change,) = [
        one for one in found.findings["unpaired"].by_attribute["g"]
        if (one.group, one.figure) == ("f", "selection_rate")
    ]  # fmt: skip
    assert found.positive == "deny"
    assert (change.old, change.new) == pytest.approx((159 / 400, 0.2))


def test_a_table_without_the_class_is_refused_by_name(tmp_path: Path) -> None:
    decided("grant", "deny", {"f": 0.4, "m": 0.5}).to_csv(tmp_path / "new.csv", index=False)
    decided("deny", "deny", {"f": 0.0, "m": 0.0}).to_csv(tmp_path / "old.csv", index=False)
    with pytest.raises(DataError, match=r"old.*: The positive class 'grant' is not among the classes: deny"):
        lh.audit_file(tmp_path / "new.csv", "y", "p", ["g"], against=tmp_path / "old.csv", unpaired=True)
