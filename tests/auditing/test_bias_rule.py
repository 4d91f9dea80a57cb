"""A rule as an object: what an estimator promises, what is kept, and what decides new rows."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import levelhead as lh
from command_line import run, said
from levelhead.auditing.bias_rule import measured_gap
from levelhead.auditing.postprocess import METRICS, fit_rule
from levelhead.auditing.postprocess_audit import postprocess
from levelhead.auditing.rule_page import rule_page
from levelhead.storage import read_json


def made(rows: int = 4000, seed: int = 5) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    group = chance.integers(0, 2, rows)
    probability = np.clip(chance.beta(2, 2, rows) + 0.15 * (group == 0) - 0.1 * (group == 1), 0.01, 0.99)
    label = chance.random(rows) < probability
    table = {"id": np.arange(rows), "repaid": np.where(label, "yes", "no"), "p": probability}
    return pd.DataFrame(table | {"sex": np.array(["f", "m"])[group], "note": ["=1+1", 'a "quoted", b'] * (rows // 2)})


def fit(rows: pd.DataFrame, **options: Any) -> lh.BiasRule:
    return lh.BiasRule(**options).fit(rows["p"], rows["repaid"], sensitive_features=rows["sex"])


@pytest.fixture(scope="module")
def rule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rule")
    made(2000).to_csv(folder / "valid.csv", index=False)
    columns = ("--score", "p", "--group", "sex", "--label", "repaid", "--metric", "demographic_parity")
    assert run("postprocess", folder / "valid.csv", *columns, "--rule", folder / "rule.json") == 0
    return folder / "rule.json"


# --------------------------------------------------------------------------------------------- as an estimator


@pytest.mark.parametrize("metric", METRICS)
def test_it_decides_classes_and_brings_groups_closer(metric: str) -> None:
    rows, new = made(2000), made(2000, 6)
    rule = fit(rows, metric=metric)
    decided = rule.predict(new["p"], sensitive_features=new["sex"])
    assert rule.classes_.tolist() == ["no", "yes"]
    assert set(decided) == {"no", "yes"}
    truth, group = (new["repaid"] == "yes").to_numpy(), new["sex"].to_numpy()
    before, after = (measured_gap(one, truth, group, metric) for one in (new["p"].to_numpy() >= 0.5, decided == "yes"))
    assert before > 0.2
    assert after < 0.08
    both = np.stack([1 - new["p"], new["p"]], 1)
    for columns in (both, pd.DataFrame(both)):
        assert rule.predict(columns, sensitive_features=new["sex"]).tolist() == decided.tolist()


@pytest.mark.parametrize("metric", METRICS)
def test_a_row_is_decided_alone_as_in_a_file(metric: str) -> None:
    rows = made(1500)
    rule = fit_rule(rows["p"], rows["sex"].to_numpy(), metric=metric, delta=0.02)
    whole = rule.decide(rows["p"], rows["sex"].to_numpy(), seed=4)
    alone = [rule.decide([p], [sex], seed=4)[0] for p, sex in zip(rows["p"][:200], rows["sex"][:200], strict=True)]
    assert whole[:200].tolist() == alone
    order = np.random.default_rng(0).permutation(1500)
    again = rule.decide(rows["p"].to_numpy()[order], rows["sex"].to_numpy()[order], seed=4)
    assert (again == whole[order]).all()


def test_equal_rows_are_parted_by_chance() -> None:
    """Scores of few values: what flips a part of equal rows must not flip all of them or none."""
    chance = np.random.default_rng(1)
    group = np.array(["a", "b"], object)[chance.integers(0, 2, 20_000)]
    score = np.where(group == "a", chance.choice([0.3, 0.5, 0.8], 20_000), chance.choice([0.2, 0.4, 0.6], 20_000))
    rule = fit_rule(score, group, metric="equalized_odds", delta=0.02)
    decided = rule.decide(score, group)
    shares = [decided[(group == one) & (score == value)].mean() for one in "ab" for value in set(score[group == one])]
    assert any(0.02 < share < 0.98 for share in shares)
    for weight in (score, 1 - score):
        rates = [np.average(decided[group == one], weights=weight[group == one]) for one in "ab"]
        assert abs(rates[0] - rates[1]) < 0.03


@pytest.mark.parametrize("metric", ["demographic_parity", "equal_opportunity"])
def test_the_cut_offs_of_the_page_are_those_of_the_decisions(metric: str) -> None:
    rule = fit(made(3000), metric=metric)
    for group, parts in rule.rule_.cutoffs().items():
        ((low, high, by_chance),) = parts
        assert (high, by_chance) == (1.0, False)
        assert rule.decide([low - 0.0011, low + 0.0011], [group, group]).tolist() == [False, True]
        assert f"Scores of {group} decided" in str(rule_page(rule.saved.to_dict()))
    assert "USES GROUPS" in str(rule_page(rule.saved.to_dict()))


# ------------------------------------------------------------------------------------------------------- kept


@pytest.mark.parametrize("kind", [int, bool, float, str])
def test_a_rule_that_was_saved_decides_the_same_by_classes_of_the_same_type(kind: type, tmp_path: Path) -> None:
    """A text "1" equals no label 1: accuracy would be 0 without a word."""
    rows, saved = made(600), tmp_path / "rule.json"
    y = (rows["repaid"] == "yes").astype(int).astype(kind)
    rule = fit(rows.assign(repaid=y), positive=np.asarray(y)[y.argmax()], seed=7)
    decided = rule.predict(rows["p"], sensitive_features=rows["sex"])
    rule.save(saved)
    assert read_json(saved)["rule"]["schema"] == 3
    for again in (lh.BiasRule.load(saved), pickle.loads(pickle.dumps(rule))):
        assert again.positive == again.classes_[1] == rule.classes_[1]
        found = again.predict(rows["p"], sensitive_features=rows["sex"])
        assert found.dtype == rule.classes_.dtype
        assert found.tolist() == decided.tolist()
    assert [str(one) for one in again.classes_.tolist()] == list(lh.BiasRule.load(saved).saved.classes)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    columns = ("--score", "p", "--group", "sex", "--out", tmp_path / "out.csv")
    assert run("apply", saved, tmp_path / "rows.csv", *columns) == 0
    assert pd.read_csv(tmp_path / "out.csv", dtype=str)["decision"].tolist() == decided.astype(str).tolist()


def test_a_bound_that_is_not_met_on_the_rows_fitted_on_is_said_and_kept(tmp_path: Path) -> None:
    """Scores part the labels of group a, which no calibration in log odds says: the rule takes them as they are."""
    chance = np.random.default_rng(0)
    group, y = chance.choice(["a", "b"], 2000), chance.integers(0, 2, 2000)
    p = 0.25 + 0.35 * y * np.where(group == "a", 1, 0.4) + 0.3 * chance.random(2000)
    with pytest.warns(UserWarning, match=r"labels show a gap in equalized odds of .* exceeds the bound of 2 points"):
        rule = lh.BiasRule().fit(p, y, sensitive_features=group)
    gap = measured_gap(rule.decide(p, group), y == 1, group, "equalized_odds")
    assert rule.rule_.fit_gap == gap > 0.2
    assert f"the gap is {100 * gap:.1f} points by their labels" in str(rule_page(rule.saved.to_dict()))
    rule.save(tmp_path / "rule.json")
    assert lh.BiasRule.load(tmp_path / "rule.json").rule_.fit_gap == gap
    record = read_json(tmp_path / "rule.json")
    record["rule"]["fit_gap"] = None  # as of a rule fitted without labels
    (tmp_path / "rule.json").write_text(json.dumps(record))
    assert "the gap is unknown" in str(rule_page(lh.BiasRule.load(tmp_path / "rule.json").saved.to_dict()))
    # Told what they are, the same scores meet the bound, and nothing is warned of.
    known = lh.BiasRule().fit(np.where(group == "a", 0.001 + 0.998 * y, p), y, sensitive_features=group)
    assert known.rule_.fit_gap is not None
    assert known.rule_.fit_gap <= 0.02
    pd.DataFrame({"p": p, "y": y, "g": group}).to_csv(tmp_path / "p.csv", index=False)
    found = postprocess(tmp_path / "p.csv", score="p", groups=["g"], label="y")
    own = found.fitted
    gap = measured_gap(found.decisions[own], y[own] == 1, group[own], "equalized_odds")
    assert found.saved.rule.fit_gap == found.to_dict()["rule"]["fit_gap"] == gap
    assert "That exceeds the bound of 2.0 points." in found.sentences()[0]
    assert any("exceeds the bound of 2 points" in one for one in found.warnings)


# ---------------------------------------------------------------------------------------------- levelhead apply


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_new_rows_are_decided_and_keep_all_columns(rule: Path, tmp_path: Path, kind: str) -> None:
    new = made(1000, 9).drop(columns="repaid")
    new["note"] = np.where(new["id"] % 3 == 0, "", new["note"])
    path, out = tmp_path / f"new.{kind}", tmp_path / f"decided.{kind}"
    if kind == "parquet":
        new.assign(when=pd.Timestamp("2026-01-01"), parts=pd.Series([[1, 2]] * 1000, dtype=object)).to_parquet(path)
    else:
        new.to_csv(path, index=False, sep="\t" if kind == "tsv" else ";")
    assert run("apply", rule, path, "--out", out, "--column", "granted") == 0
    if kind == "parquet":
        before, after = pd.read_parquet(path), pd.read_parquet(out)
    else:
        divider = "\t" if kind == "tsv" else ";"
        before, after = (pd.read_csv(one, sep=divider, dtype=str, keep_default_na=False) for one in (path, out))
    pd.testing.assert_frame_equal(after[list(before.columns)], before)
    assert list(after.columns) == [*before.columns, "granted", "granted_before_rule"]
    expected = lh.BiasRule.load(rule).predict(new["p"], sensitive_features=new["sex"])
    assert after["granted"].tolist() == expected.tolist()
    assert after["granted_before_rule"].tolist() == np.where(new["p"] >= 0.5, "yes", "no").tolist()
    if kind == "tsv":  # under another name it is divided as that says
        assert run("apply", rule, path, "--out", tmp_path / "new.csv", "--column", "granted") == 0
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "new.csv", dtype=str, keep_default_na=False), after)


def test_a_probability_outside_is_clipped_and_known_labels_are_measured(
    rule: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, path, out = made(200, 9), tmp_path / "new.csv", tmp_path / "out.csv"
    new.assign(p=new["p"].where(new["id"] != 3, 3.0)).to_csv(path, index=False)
    assert run("apply", rule, path, "--label", "repaid") == 0
    printed = said(capsys)
    assert "1 of 200 probability lies outside 0 to 1 and counts as 0 or 1" in printed
    assert "the gap in demographic parity changed from" in printed
    out.write_text("kept")
    new.assign(sex="x").to_csv(path, index=False)
    assert run("apply", rule, path, "--out", out) == 2
    assert out.read_text() == "kept"
