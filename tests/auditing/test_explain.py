"""What a gap is made of: drawn scores whose shares are known, hostile input, and what the command writes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import special

from as_tables import explain_columns
from command_line import run, written
from levelhead import explain
from levelhead.metrics.implied import gap_of, implied_rates, model_rates, positive_rate, separation

AREA, BASE, SHARE = (0.85, 0.80), (0.65, 0.25), (0.6, 0.4)
FIGURES = ("measured", "implied", "rho", "predicted", "rest")


def drawn(
    rows: int, rho: float = 1, seed: int = 0, base: tuple[float, float] = BASE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, log odds and groups of the model, the share ``rho`` of the base rates used."""
    rng = np.random.default_rng(seed)
    group = (rng.random(rows) >= SHARE[0]).astype(int)
    label = rng.random(rows) < np.array(base)[group]
    d = separation(AREA)[group]
    own, common = special.logit(np.array(base))[group], special.logit(np.dot(SHARE, base))
    score = rng.normal(np.where(label, 1, -1) * d**2 / 2, d) + rho * own + (1 - rho) * common
    return label.astype(int), score, np.array(["a", "b"], dtype=object)[group]


def truth(rho: float, base: tuple[float, float] = BASE) -> dict[str, float]:
    common = special.logit(np.dot(SHARE, base))
    rates = model_rates(separation(AREA), rho * special.logit(base) + (1 - rho) * common, 0.0)
    implied = implied_rates(AREA, base, SHARE, positive_rate(rates, base, SHARE))
    gap = float(gap_of(rates))
    return {"measured": gap, "implied": float(gap_of(implied)), "rho": rho, "predicted": gap, "rest": 0.0}


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0, 1.5])
def test_the_share_and_the_gaps_of_drawn_scores_are_found(rho: float) -> None:
    label, score, group = drawn(40_000, rho)
    pair = explain_columns(label, score, sensitive_features=group).pairs[0]
    for name, value in truth(rho).items():
        figure = getattr(pair, name)
        assert figure.value == pytest.approx(value, abs=0.05 if name == "rho" else 0.015)
        assert figure.low - 0.005 <= value <= figure.high + 0.005
        assert figure.high - figure.low < 0.1


def test_rows_without_a_group_are_left_out_as_an_audit_leaves_them_out() -> None:
    label, score, group = drawn(2_000)
    alone = explain_columns(label, score, sensitive_features=group)
    more = [*group, *[None] * 500]
    found = explain_columns([*label, *[0, 1] * 250], [*score, *[-5.0] * 500], sensitive_features=more)
    assert found.warnings == ["group: 500 rows without a group are not compared."]
    assert found.pairs == alone.pairs


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("rho", "seed"), [(1.0, 1), (0.4, 2)])
def test_intervals_cover_what_they_estimate(rho: float, seed: int) -> None:
    trials, expected = 300, truth(rho)
    hits = dict.fromkeys(expected, 0)
    for trial in range(trials):
        label, score, group = drawn(2000, rho, 1000 * seed + trial)
        pair = explain_columns(label, score, sensitive_features=group, scale="log-odds", replicates=300).pairs[0]
        for name, value in expected.items():
            figure = getattr(pair, name)
            hits[name] += figure.low <= value <= figure.high
    for name in ("implied", "rho", "predicted", "rest"):
        assert hits[name] / trials >= 0.93, (name, hits[name] / trials)


def test_figures_of_the_same_scores_written_otherwise() -> None:
    label, score, group = drawn(3000)
    found = explain_columns(label, score, sensitive_features=group)
    turned = explain_columns(label[::-1], score[::-1], sensitive_features=group[::-1])
    assert turned.to_dict() == found.to_dict()
    chances = explain_columns(label, special.expit(score), sensitive_features=group)
    assert (found.to_dict()["scale"], chances.to_dict()["scale"]) == ("log-odds", "probability")
    own = found.pairs[0]
    for name in FIGURES:
        assert getattr(chances.pairs[0], name).value == pytest.approx(getattr(own, name).value, abs=1e-6)
    scaled = explain_columns(label, score * 40, sensitive_features=group).pairs[0]
    assert (scaled.rho.value, scaled.predicted.value) == pytest.approx((own.rho.value, own.predicted.value), abs=1e-6)
    tied = explain_columns(label, np.round(special.expit(score), 1), sensitive_features=group).pairs[0]
    assert tied.rho.value == pytest.approx(1, abs=0.25)
    assert tied.implied.value == pytest.approx(0.409, abs=0.06)


@pytest.mark.parametrize(("digits", "told"), [(1, True), (3, False)])
def test_probabilities_rounded_to_0_and_1_are_told(digits: int, told: bool) -> None:
    chance = np.random.default_rng(0)
    label, group = chance.integers(0, 2, 2_000), np.repeat(["a", "b"], 1_000)
    odds = chance.normal(np.where(label, 2, -2), 2)
    found = explain_columns(label, special.expit(odds).round(digits), sensitive_features=group, replicates=100)
    assert any("biases the share that the score uses" in said for said in found.warnings) is told


def test_several_groups_give_every_pair_and_several_columns_each_their_own() -> None:
    label, score, group = drawn(1200)
    three = np.where(np.arange(1200) % 3 == 0, "c", group)
    result = explain_columns(label, score, sensitive_features={"sex": group, "three": three})
    assert [pair.groups for pair in result.by_attribute["three"].pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [pair.groups for pair in result.pairs] == [("a", "b")]
    starts = [one for one in result.sentences() if "the equalized-odds gap is" in one]
    assert [", the clearest of 3 by three (intervals adjusted for all)." in one for one in starts] == [False, True]
    kept = np.flatnonzero(three != "c")
    alone = explain_columns(label[kept], score[kept], sensitive_features=group[kept], level=1 - 0.05 / 3).pairs[0]
    assert result.by_attribute["three"].pairs[0].measured == alone.measured
    assert "more sentences: --html" in result.text()
    assert len(result.text().splitlines()) <= 20


def test_the_share_is_undefined_where_base_rates_do_not_differ() -> None:
    label, score, group = drawn(1500, base=(0.4, 0.4))
    result = explain_columns(label, score, sensitive_features=group)
    rho = result.pairs[0].rho
    assert math.isnan(rho.value)
    assert "do not differ measurably" in str(rho.reason)
    assert result.pairs[0].implied.low == 0
    assert any("is undefined" in sentence for sentence in result.sentences())


def test_no_gap_is_implied_where_a_group_is_ranked_at_chance() -> None:
    """Group b is ranked at chance: no gap is implied for its pair."""
    label, score, group = drawn(1500)
    chance = np.random.default_rng(4)
    score = np.where(group == "b", chance.normal(size=len(score)) + 1e-2 * label, score)
    result = explain_columns(label, score, sensitive_features=group)
    assert not result.pairs[0].implied.defined


def test_a_shortcut_uses_more_than_the_base_rates() -> None:
    label, score, group = drawn(6000, 2.0)
    result = explain_columns(label, score, sensitive_features=group)
    assert result.pairs[0].rho.low > 1
    assert any("more than base rates explain" in sentence for sentence in result.sentences())


def test_a_score_of_another_shape_leaves_a_rest_and_says_so() -> None:
    label, score, group = drawn(6000)
    rng = np.random.default_rng(5)
    odd = np.where(label == 1, rng.normal(0.2, 0.1, 6000), rng.normal(-2, 4, 6000))  # positives alike, negatives not
    score = np.where(group == "b", odd, score)
    result = explain_columns(label, score, sensitive_features=group)
    rest = result.pairs[0].rest
    assert rest.low > 0 or rest.high < 0
    assert "is unexplained" in result.sentences()[1]
    assert result.pairs[0].rho.defined
    assert "if the score used another share" not in result.text(all=True)
    shown = " ".join(str(result).split())
    assert f"{100 * result.pairs[0].rho.value:.0f}" not in shown
    assert "The formula does not fit these scores: it predicts a gap of" in shown
    assert "So neither the share of base rates that the score uses nor a method is named." in result.sentences()[2]


def test_groups_of_few_rows_of_one_class_or_perfect_order_are_undefined_with_a_reason() -> None:
    label, score, group = drawn(1000)
    extra_label = np.array([1] * 30 + [0, 1] * 4 + [0, 1] * 20)
    extra_score = np.concatenate([np.linspace(-1, 1, 38), np.tile([-2.0, 2.0], 20)])
    extra_group = np.array(["only"] * 30 + ["few"] * 8 + ["sure"] * 40, dtype=object)
    result = explain_columns(
        np.concatenate([label, extra_label]),
        np.concatenate([score, extra_score]),
        sensitive_features=np.concatenate([group, extra_group]),
    )
    reasons = {pair.groups: pair.implied.reason for pair in result.pairs}
    assert set(reasons) == {("a", "b"), ("a", "sure"), ("b", "sure")}
    assert reasons["a", "b"] is None
    assert "perfectly" in str(reasons["a", "sure"])
    few, only = (said for said in result.warnings if "is left out" in said)
    assert ("4 rows" in few, "no rows without label “1”" in only) == (True, True)
    assert not result.groups["only"].included
    json.dumps(result.to_dict(), allow_nan=False)
    assert "undefined" in result.text(all=True)


def test_a_score_that_points_the_wrong_way_is_undefined_with_a_reason() -> None:
    label, score, group = drawn(1000)
    pair = explain_columns(label, -score, sensitive_features=group).pairs[0]
    assert pair.measured.defined
    assert "does not rank the classes" in str(pair.implied.reason)
    rng = np.random.default_rng(0)
    noise = explain_columns(label, rng.normal(size=1000), sensitive_features=group).pairs[0]
    assert not noise.predicted.defined
    assert noise.predicted.reason


def test_one_group_alone_three_classes_and_probabilities_of_0_and_1() -> None:
    label, score, group = drawn(600)
    alone = explain_columns(label, score, sensitive_features=["x"] * 600)
    assert alone.pairs == ()
    assert any("fewer than two groups are large enough" in warning for warning in alone.warnings)
    assert alone.text(all=True)
    words = np.where(label == 1, "yes", np.where(np.arange(600) % 2, "no", "maybe"))
    assert explain_columns(words, score, sensitive_features=group, positive="yes").pairs[0].rho.defined
    probability = special.expit(score)
    probability[probability > 0.97] = 1.0
    sure = explain_columns(label, probability, sensitive_features=group)
    assert any("of 600 probabilities lie within" in warning for warning in sure.warnings)
    assert sure.pairs[0].measured.defined


def write(path: Path, rows: int = 900) -> pd.DataFrame:
    label, score, group = drawn(rows)
    table = pd.DataFrame({"y": label, "p": special.expit(score), "sex": group})
    written(table, path)
    return table


@pytest.mark.parametrize("name", ["p.parquet", "p.csv.gz"])
def test_a_file_gives_what_its_rows_give(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write(tmp_path / name)
    monkeypatch.setattr("levelhead.tables.files.BATCH_ROWS", 101)
    monkeypatch.setattr("levelhead.tables.files.BATCH_BYTES", 3000)
    read = explain(tmp_path / name, label="y", score="p", groups=["sex"]).to_dict()
    whole = explain_columns(table["y"], table["p"], sensitive_features=table[["sex"]]).to_dict()
    assert read["by_attribute"] == whole["by_attribute"]


def test_the_page_shows_what_the_command_really_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    exec(compile(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], "explain.md", "exec"), {})
    assert run("explain", "scores.csv", "--label", "y", "--score", "p", "--group", "sex") == 0
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert f"```\n{printed}\n```" in text


def test_copies_of_rows_explain_no_more_surely_than_the_rows() -> None:
    chance = np.random.default_rng(0)
    group = chance.integers(0, 2, 1000)
    label = (chance.random(1000) < np.where(group == 1, 0.65, 0.25)).astype(int)
    score = chance.normal(np.where(label == 1, 1, -1), 1.4) + np.where(group == 1, 0.6, -1.1)
    who = np.repeat(np.arange(1000), 5)
    plain = explain_columns(label, score, sensitive_features=group)
    by_person = explain_columns(label[who], score[who], sensitive_features=group[who], cluster=who)
    by_row = explain_columns(label[who], score[who], sensitive_features=group[who])
    for name in ("implied", "rho", "predicted", "rest"):
        one, own, wrong = (getattr(found.pairs[0], name) for found in (plain, by_person, by_row))
        assert own.value == pytest.approx(one.value)
        assert own.high - own.low == pytest.approx(one.high - one.low, rel=0.12)
        assert wrong.high - wrong.low < 0.6 * (one.high - one.low)
    measured = [found.pairs[0].measured for found in (plain, by_person)]
    assert measured[1].high - measured[1].low >= measured[0].high - measured[0].low
    for name, part in plain.by_attribute["group"].groups.items():
        own = by_person.by_attribute["group"].groups[name]
        for figure in ("base_rate", "area", "true_positive_rate", "false_positive_rate"):
            one, other = getattr(part, figure), getattr(own, figure)
            assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.06)
    assert "Intervals are clustered by cluster: 5,000 rows in 1,000 clusters." in by_person.warnings


def test_base_rates_do_not_explain_a_gap_that_runs_against_them() -> None:
    label, score, group = drawn(4000, -1)
    found = explain_columns(label, score, sensitive_features=group, scale="log-odds", replicates=200)
    assert found.pairs[0].rho.high < 0
    assert any("runs against the base rates" in one for one in found.sentences())
