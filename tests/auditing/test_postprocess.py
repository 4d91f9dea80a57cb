"""Bias scoring: the worked figures, the linear program it solves, what is measured, and what is refused."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, sparse

from command_line import evaluated_run
from levelhead.auditing.bias_rule import choose_rule, measured_gap
from levelhead.auditing.postprocess import METRICS, FittedRule, fit_rule, rates_of, solve_rates
from levelhead.auditing.postprocess_audit import postprocess_file, reversals
from levelhead.cli.app import main
from levelhead.storage import read_json
from levelhead.types import DataError

PROBABILITY = np.array([0.9, 0.8, 0.7, 0.6, 0.55, 0.45, 0.4, 0.3, 0.2, 0.1])
IN_GROUP = np.array([0.2, 0.3, 0.2, 0.6, 0.4, 0.7, 0.8, 0.6, 0.9, 0.7])
"""Probability of the second group for each row, whose share is 0.54."""


def worked() -> tuple[np.ndarray, np.ndarray, float]:
    """Return what each flip takes off the gap, its cost, and the gap, of the worked figures."""
    adds = (1 - IN_GROUP) / 0.46 - IN_GROUP / 0.54
    decided = PROBABILITY >= 0.5
    return np.where(decided, 1, -1) * adds, np.abs(2 * PROBABILITY - 1), float(adds[decided].sum() / 10)


def made(rows: int = 4000, groups: int = 2, seed: int = 5) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    group = chance.integers(0, groups, rows)
    probability = np.clip(chance.beta(2, 2, rows) + 0.15 * (group == 0) - 0.1 * (group == 1), 0.01, 0.99)
    label = (chance.random(rows) < probability).astype(int)
    return pd.DataFrame({"y": label, "p": probability, "g": np.array(["a", "b", "c"])[group]})


def test_scores_and_flips_as_worked_by_hand() -> None:
    flips, cost, gap = worked()
    assert gap == pytest.approx(0.402576, abs=1e-6)
    scores = [1.7110, 1.6103, 3.4219, -1.2077, 5.6361, 6.4412, 5.2335, 0.6039, 2.4155, 0.8052]
    assert flips / cost == pytest.approx(scores, abs=1e-4)
    order = np.argsort(-flips / cost)[:4]
    assert order.tolist() == [5, 4, 6, 2]
    assert gap - np.cumsum(flips[order]) / 10 == pytest.approx([0.3382, 0.2818, 0.1771, 0.0403], abs=1e-4)
    assert np.cumsum(cost[order]) / 10 == pytest.approx([0.01, 0.02, 0.04, 0.08])


@pytest.mark.parametrize(
    ("delta", "flipped", "whole", "partly", "price"),
    [(0.3, [4, 5], [5], (4, 0.6771), 0.016771), (0.1, [2, 4, 5, 6], [4, 5, 6], (2, 0.5635), 0.062541)],
)
def test_the_dual_finds_the_linear_program(
    delta: float, flipped: list[int], whole: list[int], partly: tuple[int, float], price: float
) -> None:
    flips, cost, gap = worked()
    program = optimize.linprog(cost / 10, A_ub=-flips[None] / 10, b_ub=[delta - gap], bounds=(0, 1))
    assert program.fun == pytest.approx(price, abs=1e-6)
    assert program.x[partly[0]] == pytest.approx(partly[1], abs=1e-4)
    assert program.x[whole] == pytest.approx(1)
    decided = PROBABILITY >= 0.5
    adds = np.stack([(1 - IN_GROUP) / 0.46, IN_GROUP / 0.54])
    signed = sparse.csr_array(np.where(decided, 1, -1) * adds)
    price, other = solve_rates(signed, cost, adds[:, decided].sum(1) / 10, [None, None], delta)
    assert price == pytest.approx(-other)
    multiplier = price * (1 + 1e-7)
    # A row is flipped whole or not at all: the one that the program splits is flipped, which keeps the bound.
    assert np.flatnonzero(flips * multiplier > cost).tolist() == flipped
    assert abs(gap - flips[flipped].sum() / 10) <= delta


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("groups", [2, 3])
def test_rules_cost_what_the_program_costs_and_keep_the_bound(metric: str, groups: int) -> None:
    rows = made(900, groups)
    rule = fit_rule(rows["p"], rows["g"].to_numpy(), metric=metric, delta=0.05)
    codes = np.unique(rows["g"], return_inverse=True)[1]
    cost, plain = rule.costs(rows["p"].to_numpy(), codes, 0)
    rates = rates_of(rows["p"].to_numpy(), codes, rule.shares).toarray()
    keys = list(rule.shares)
    flips = np.stack([rates[keys.index((a, one))] - rates[keys.index((b, one))] for a, b, one in rule.pairs], axis=1)
    flips = flips * np.where(plain, 1, -1)[:, None]
    gaps = (flips * np.where(plain, 1, -1)[:, None])[plain].sum(0) / len(rows)
    program = optimize.linprog(
        cost / len(rows),
        A_ub=np.concatenate([flips.T, -flips.T]) / len(rows),
        b_ub=np.concatenate([gaps + 0.05, 0.05 - gaps]),
        bounds=(0, 1),
    )
    flipped = rule.decide(rows["p"], rows["g"].to_numpy()) ^ plain
    assert cost[flipped].sum() / len(rows) == pytest.approx(program.fun, abs=1e-3)
    assert np.abs(gaps - flips[flipped].sum(0) / len(rows)).max() < 0.05 + 0.012  # of a row or two


@pytest.mark.parametrize("metric", METRICS)
def test_ten_groups_take_seconds_and_keep_the_bound(metric: str) -> None:
    chance = np.random.default_rng(0)
    group = chance.integers(0, 10, 20_000)
    probability = np.clip(chance.beta(2, 2, 20_000) + 0.02 * (group - 5), 0.01, 0.99)
    names = np.array([f"g{one}" for one in range(10)], object)[group]
    begun = time.process_time()
    rule = fit_rule(probability, names, metric=metric, delta=0.02)
    assert time.process_time() - begun < 10  # it was minutes
    decided = rule.decide(probability, names)
    weights = {"demographic_parity": [np.ones(20_000)], "equal_opportunity": [probability]}
    for weight in weights.get(metric, [probability, 1 - probability]):
        rates = [np.average(decided[group == one], weights=weight[group == one]) for one in range(10)]
        assert max(rates) - min(rates) < 0.023


def test_a_gap_within_the_bound_flips_nothing() -> None:
    rows = made(500)
    rule = fit_rule(rows["p"], rows["g"].to_numpy(), metric="demographic_parity", delta=0.9)
    assert (rule.decide(rows["p"], rows["g"].to_numpy()) == (rows["p"] >= 0.5)).all()


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("groups", [2, 3])
def test_another_threshold_does_not_turn_the_gap_around(threshold: float, groups: int) -> None:
    """Between it and 0.5 flips gain accuracy. They must not all cost the same, or all are flipped at once."""
    rows = made(5000, groups)
    group = rows["g"].to_numpy()
    rule = fit_rule(rows["p"], group, metric="demographic_parity", delta=0.01, threshold=threshold)
    decided = rule.decide(rows["p"], group)
    assert measured_gap(decided, decided, group, "demographic_parity") == pytest.approx(0.01, abs=1e-3)
    assert measured_gap(rows["p"] >= threshold, decided, group, "demographic_parity") > 0.1


def test_flips_that_cost_nothing_go_from_the_threshold_on() -> None:
    """Group b's probabilities are too low, so that a whole range of its rows gains accuracy by a flip."""
    rows = made(5000)
    group, given = rows["g"].to_numpy(), rows["p"].to_numpy()
    rule = fit_rule(given, group, metric="demographic_parity", delta=0.01, lines={"b": (2.0, 1.0)})
    decided = rule.decide(given, group)
    changed = given[(decided != (given >= 0.5)) & (group == "b")]
    assert measured_gap(decided, decided, group, "demographic_parity") == pytest.approx(0.01, abs=1e-3)
    assert changed.max() < 0.5
    assert set(rule.cutoffs()) == {"a", "b"}
    assert [len(parts) for parts in rule.cutoffs().values()] == [1, 1]


@pytest.mark.parametrize("metric", METRICS)
def test_a_sample_of_many_rows_keeps_the_bound(metric: str) -> None:
    rows = made(130_000)
    group, given = rows["g"].to_numpy(), rows["p"].to_numpy()
    decided = fit_rule(given, group, metric=metric, delta=0.01).decide(given, group)
    weights = {"demographic_parity": [given * 0 + 1], "equal_opportunity": [given]}.get(metric, [given, 1 - given])
    gaps = [
        np.ptp([np.average(decided[group == one], weights=weight[group == one]) for one in "ab"]) for weight in weights
    ]
    assert max(gaps) == pytest.approx(0.01, abs=1e-3)


def test_a_bound_that_no_flips_meet_is_missed_by_as_little_as_can_be() -> None:
    """Equal probabilities in a group keep its true and false positive rates equal; the shifts keep them apart."""
    group = np.array(["a"] * 50 + ["b"] * 50)
    rule = fit_rule(np.full(100, 0.5), group, delta=0.0, shift={(0, 1): 0.2, (0, 0): -0.2})
    assert np.isfinite(rule.multipliers).all()
    assert rule.decide(np.full(100, 0.5), group).shape == (100,)


def test_equalized_odds_is_one_program_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables took up to 3,000 programs and ten seconds."""
    programs = []
    solve = optimize.linprog
    monkeypatch.setattr(optimize, "linprog", lambda *args, **options: programs.append(1) or solve(*args, **options))
    rows = made(1000)
    choose_rule(
        rows["p"].to_numpy(), rows["g"].to_numpy(), rows["y"] == 1, metric="equalized_odds", delta=0.01, threshold=0.5
    )
    assert len(programs) == 10


def test_certain_decisions_and_equal_probabilities_do_not_break_it() -> None:
    group = np.array(["a", "b"] * 100)
    probability = np.where(group == "a", 0.5, 0.0)
    rule = fit_rule(probability, group, metric="demographic_parity", delta=0.0)
    decided = rule.decide(probability, group)
    assert abs(decided[group == "a"].mean() - decided[group == "b"].mean()) in (0, 1)


def test_a_rule_is_what_its_record_says() -> None:
    rows = made(400)
    rule = fit_rule(rows["p"], rows["g"].to_numpy(), delta=0.05)
    again = FittedRule.from_dict(json.loads(json.dumps(rule.to_dict())))
    assert (again.decide(rows["p"], rows["g"].to_numpy()) == rule.decide(rows["p"], rows["g"].to_numpy())).all()
    assert rule.to_dict()["uses_groups"] is True


@pytest.mark.parametrize("metric", METRICS)
def test_the_gap_falls_on_rows_that_were_not_used(tmp_path: Path, metric: str) -> None:
    made(8000).to_csv(tmp_path / "p.csv", index=False)
    found = postprocess_file(tmp_path / "p.csv", "p", "g", label="y", metric=metric, delta=0.02)
    assert found.audit is not None
    changes = found.audit.by_attribute["g"].metrics
    change = changes["equalized_odds_worst" if metric == "equalized_odds" else metric]
    assert change.old > 0.2
    assert change.new < 0.09
    assert change.difference.high < 0
    assert changes["accuracy"].difference.value < 0
    assert found.fitted_on + found.measured_on == 8000


def test_probabilities_that_are_off_in_one_group_are_calibrated_first(tmp_path: Path) -> None:
    rows = made(12_000)
    rows["p"] = np.where(rows["g"] == "a", rows["p"] ** 2, rows["p"])
    rows[:6000].to_csv(tmp_path / "validation.csv", index=False)
    rows[6000:].to_csv(tmp_path / "p.csv", index=False)
    found = postprocess_file(
        tmp_path / "p.csv", "p", "g", label="y", validation=tmp_path / "validation.csv", metric="equal_opportunity"
    )
    decided, label = found.decisions, rows["y"][6000:].to_numpy() == 1
    group = rows["g"][6000:].to_numpy()
    assert measured_gap(decided, label, group, "equal_opportunity") < 0.07
    assert (found.fitted_on, found.measured_on) == (6000, 6000)


def test_what_the_command_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made().to_csv(tmp_path / "p.csv", index=False)
    options = ["--score", "p", "--group", "g", "--label", "y", "--metric", "demographic_parity", "--delta", ".02"]
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "postprocess",
                str(tmp_path / "p.csv"),
                *options,
                "--out",
                str(tmp_path / "out.csv"),
                "--json",
                str(tmp_path / "p.json"),
            ]
        )
    assert not ended.value.code
    said = " ".join(capsys.readouterr().out.split())
    assert "USES GROUPS: this rule reads each row's group to decide." in said
    assert "rows that the rule was not fitted on, the measured gap in demographic parity changed from" in said
    assert "Accuracy changed from" in said
    out = pd.read_csv(tmp_path / "out.csv")
    assert list(out.columns) == ["before", "after", "fitted"]
    assert len(out) == 4000
    record: dict[str, Any] = read_json(tmp_path / "p.json")
    assert record["flipped"] == (out["before"] != out["after"]).sum()
    assert record["rule"]["uses_groups"] is True


def command(*options: Any) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*(() if options[0] == "apply" else ("postprocess",)), *map(str, options)])
    return int(ended.value.code or 0)


def named_rows(rows: int, seed: int) -> pd.DataFrame:
    found = made(rows, seed=seed)
    return found.assign(y=np.where(found["y"] == 1, "paid", "late"), loan=[f"L{row:05}" for row in range(rows)])


def test_a_rule_decides_new_rows_without_labels_and_writes_ids_and_class_names(tmp_path: Path) -> None:
    named_rows(3000, 1).to_csv(tmp_path / "old.csv", index=False)
    named_rows(800, 2).drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
    columns = ("--score", "p", "--group", "g", "--id", "loan")
    rule = tmp_path / "rule.json"
    old, new = tmp_path / "old-out.csv", tmp_path / "new-out.csv"
    assert command(tmp_path / "old.csv", *columns, "--label", "y", "--json", rule, "--out", old) == 0
    assert list(pd.read_csv(old).columns) == ["loan", "before", "after", "fitted"]
    assert command("apply", rule, tmp_path / "new.csv", "--out", new) == 0
    decided, rows = pd.read_csv(new), pd.read_csv(tmp_path / "new.csv")
    assert list(decided.columns) == [*rows, "decision", "decision_before_rule"]
    assert decided["loan"].tolist() == [f"L{row:05}" for row in range(800)]
    assert set(decided["decision"]) | set(decided["decision_before_rule"]) == {"late", "paid"}
    assert (decided["decision"] != decided["decision_before_rule"]).any()
    expected = FittedRule.from_dict(read_json(rule)["rule"]).decide(rows["p"], rows["g"].to_numpy())
    assert (decided["decision"] == np.where(expected, "paid", "late")).all()


@pytest.mark.parametrize(("rows", "shown"), [(18_000, False), (22_000, True)])
def test_many_rows_have_a_progress_bar(
    rows: int, shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made(rows).to_csv(tmp_path / "p.csv", index=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    line = [str(tmp_path / "p.csv"), "--label", "y", "--score", "p", "--group", "g", "--metric", "demographic_parity"]
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["postprocess", *line])
    assert ("Trying bounds" in capsys.readouterr().err) == shown


def test_a_bound_of_almost_nothing_ends_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(600).to_csv(tmp_path / "p.csv", index=False)
    began = time.process_time()
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["postprocess", str(tmp_path / "p.csv"), "--label", "y", "--score", "p", "--group", "g", "--delta=1e-320"])
    assert time.process_time() - began < 10
    assert "Traceback" not in capsys.readouterr().err


def test_no_cell_of_the_decisions_is_a_formula(tmp_path: Path) -> None:
    """A spreadsheet runs what begins with one of these signs."""
    table = named_rows(400, 1)
    ids = ["=HYPERLINK(1)", "@SUM(1)", "+cmd", "-cmd", " =1+1", "\t=1", "-5", "+1.5e3", "a=b"]
    table["=id"] = [f"{ids[row % 9]}" for row in range(400)]
    table["y"] = np.where(table["y"] == "paid", "=paid", "late")
    table.to_csv(tmp_path / "p.csv", index=False)
    out = tmp_path / "out.csv"
    assert command(tmp_path / "p.csv", "--score", "p", "--group", "g", "--label", "y", "--id", "=id", "--out", out) == 0
    with out.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["'=id", "before", "after", "fitted"]
    assert [row[0] for row in rows[:9]] == [f"'{one}" for one in ids[:6]] + ids[6:]
    assert {cell for row in rows for cell in row[1:3]} == {"'=paid", "late"}


def test_rows_that_a_rule_was_fitted_on_are_marked_and_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named_rows(3000, 1).to_csv(tmp_path / "old.csv", index=False)
    columns = ("--score", "p", "--group", "g", "--label", "y")
    rule, first, again = tmp_path / "rule.json", tmp_path / "first.csv", tmp_path / "again.csv"
    assert command(tmp_path / "old.csv", *columns, "--json", rule, "--out", first) == 0
    capsys.readouterr()
    assert command("apply", rule, tmp_path / "old.csv", "--out", again, "--label", "y") == 0
    marks = pd.read_csv(first)["fitted"]
    assert 1400 < marks.sum() < 1600
    assert marks.tolist() == pd.read_csv(again)["decision_fitted"].tolist()
    said = " ".join(capsys.readouterr().out.split())
    assert (
        f"The rule was fitted on {marks.sum():,} of these rows, by the file's SHA-256: measured gaps leave them out."
        in said
    )
    found = postprocess_file(tmp_path / "old.csv", "p", "g", label="y", rule=rule)
    assert (found.fitted_on, found.measured_on) == (marks.sum(), 3000 - marks.sum())
    named_rows(3000, 1).to_csv(tmp_path / "valid.csv", index=False)
    named_rows(900, 2).to_csv(tmp_path / "test.csv", index=False)
    whole = tmp_path / "whole.json"
    assert command(tmp_path / "test.csv", "--fit", tmp_path / "valid.csv", *columns, "--rule", whole) == 0
    found = postprocess_file(tmp_path / "valid.csv", "p", "g", label="y", rule=whole)
    assert found.warnings == ["The rule was fitted on all of these rows: expect larger gaps on new ones."]
    assert found.sentences()[0].startswith("On 3,000 rows that the rule was fitted on, the measured gap in ")
    alone = postprocess_file(tmp_path / "old.csv", "p", "g")
    assert alone.fitted.all()
    assert "It was fitted on these rows; the gap can be larger on new ones." in alone.sentences()


def test_an_id_column_that_is_not_there_is_named_before_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(400).to_csv(tmp_path / "p.csv", index=False)
    fit = "levelhead.auditing.postprocess_audit.choose_rule"
    monkeypatch.setattr(fit, lambda *_, **__: pytest.fail("fitted too early"))
    with pytest.raises(DataError, match="lone"):
        postprocess_file(tmp_path / "p.csv", "p", "g", label="y", id_column="lone")


def test_a_rule_remembers_which_class_each_label_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule, words = tmp_path / "rule.json", {0: "late", 1: "paid"}
    fit, new = made(800), made(400, seed=9)
    fit.assign(y=fit["y"].map(words)).to_csv(tmp_path / "fit.csv", index=False)
    new.assign(y=new["y"].map(words)).to_csv(tmp_path / "new.csv", index=False)
    new.to_csv(tmp_path / "numbers.csv", index=False)
    options = ["--score", "p", "--group", "g", "--label", "y", "--metric", "demographic_parity"]
    mapped = ["--label-map", "paid=1,late=0", "--positive", "1", "--rule", rule]
    assert command("--fit", tmp_path / "fit.csv", *options, *mapped) == 0
    assert read_json(rule)["label_map"] == {"paid": "1", "late": "0"}
    capsys.readouterr()
    said = []
    for name in ("new.csv", "numbers.csv"):  # labels may be the classes already
        assert command("apply", rule, tmp_path / name, "--label", "y") == 0
        said.append(capsys.readouterr().out.replace(name, ""))
    assert said[0] == said[1]
    assert "Accuracy changed from" in said[0]


@pytest.mark.parametrize(
    "change",
    [
        {"rule": 1},
        {"rule": None},
        {"classes": "x"},
        {"fitted": 3},
        {"multipliers": [1.0, 2.0, 3.0]},
        {"multipliers": [float("nan")]},
        {"pairs": [[0, 7, None]]},
        {"pairs": [[0, 1, 1]]},
        {"metric": "fairness"},
        {"groups": ["a", "a"]},
        {"lines": []},
        {"fit_gap": "much"},
        {"fit_gap": float("inf")},
    ],
)
def test_a_file_that_is_no_rule_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    made(400).to_csv(tmp_path / "p.csv", index=False)
    record = postprocess_file(tmp_path / "p.csv", "p", "g", metric="demographic_parity").to_dict()
    inside = not set(change) <= set(record)
    record = {**record, "rule": {**record["rule"], **change}} if inside else {**record, **change}
    (tmp_path / "rule.json").write_text(json.dumps(record))
    with pytest.raises(DataError, match=r"rule\.json holds no rule"):
        postprocess_file(tmp_path / "p.csv", "p", "g", rule=tmp_path / "rule.json")


def test_a_gap_that_changed_its_sign_is_said() -> None:
    """Before 3 of 4 and 1 of 4 are selected, after 1 of 4 and 2 of 4: from +50 points to -25."""
    before, after = np.array([1, 1, 1, 0, 1, 0, 0, 0], bool), np.array([1, 0, 0, 0, 1, 1, 0, 0], bool)
    group = np.array(["a"] * 4 + ["b"] * 4, object)
    (found,) = reversals("demographic_parity", before, after, None, group, 1)
    assert (found.groups, found.before, found.after) == (("a", "b"), 0.5, -0.25)
    assert found.sentence() == (
        "The gap changed its sign: the selection rate of “a” was 50.0 points above that of “b”, and is now 25.0 points "
        "below it."
    )
    assert reversals("demographic_parity", before, before, None, group, 1) == []
    assert reversals("demographic_parity", before, after, None, group, 5) == []
    assert reversals("equal_opportunity", before, after, None, group, 1) == []
    label = np.array([1, 1, 0, 0, 1, 1, 0, 0], bool)
    rates = [(one.label, one.before, one.after) for one in reversals("equalized_odds", before, after, label, group, 1)]
    assert rates == [(1, 0.5, -0.5)]  # 2 of 2 and 1 of 2, then 1 of 2 and 2 of 2; false positives: from 1 of 2 to 0


@pytest.mark.parametrize("metric", ["equal_opportunity", "equalized_odds"])
def test_a_rate_that_a_group_lacks_is_no_gap_of_0(metric: str) -> None:
    group = np.array(["a"] * 40 + ["b"] * 40, object)
    label = np.r_[np.arange(40) % 2 == 0, np.full(40, metric == "equalized_odds")]
    score = np.linspace(0.1, 0.9, 80)
    assert np.isnan(measured_gap(score > 0.5, label, group, metric))


@pytest.mark.parametrize("metric", ["equal_opportunity", "equalized_odds"])
def test_no_rule_is_chosen_that_is_worse_than_none_on_the_rows_it_is_chosen_on(metric: str) -> None:
    """All decisions are right: both rates are equal, though by the probabilities they should differ between groups."""
    chance = np.random.default_rng(0)
    member = np.arange(600) % 10
    label = chance.random(600) < 0.1 + 0.08 * member
    probability = np.where(label, 0.5 + 0.4 * chance.random(600), 0.5 - 0.4 * chance.random(600) - 1e-9)
    group = np.array([f"g{one}" for one in range(10)], object)[member]
    rule = choose_rule(probability, group, label, metric=metric, delta=0.02, threshold=0.5)
    assert measured_gap(rule.decide(probability, group), label, group, metric) == 0
    assert (rule.decide(probability, group) == label).all()


def test_groups_that_the_measured_gap_leaves_out_are_named(tmp_path: Path) -> None:
    """Group c has 28 rows: about 7 of each label are measured."""
    few = pd.DataFrame({"y": [0, 1] * 14, "p": np.linspace(0.05, 0.3, 28), "g": "c"})
    pd.concat([made(2000), few]).to_csv(tmp_path / "p.csv", index=False)
    fitted = postprocess_file(tmp_path / "p.csv", "p", "g", label="y")
    applied = postprocess_file(tmp_path / "p.csv", "p", "g", label="y", rule=fitted.saved)
    for found in (fitted, applied):
        said = [one for one in found.to_dict()["warnings"] if one.startswith("g: group “c” has ")]
        assert said
        assert all("fewer than 10, and is left out of" in one and "equalized odds" in one for one in said)
    assert not postprocess_file(tmp_path / "p.csv", "p", "g", label="y", min_count=2).warnings


def test_without_labels_nothing_is_claimed(tmp_path: Path) -> None:
    made(500).drop(columns="y").to_csv(tmp_path / "p.csv", index=False)
    found = postprocess_file(tmp_path / "p.csv", "p", "g")
    assert found.audit is None
    assert found.sentences()[-1] == "Its effect on gaps and accuracy needs labels: add --label."


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--positive", "0"], "--positive needs --label"),
        (["--label-map", "1=yes,0=no"], "--label-map needs --label"),
        (["--positive", "0", "--label-map", "1=yes"], "--positive and --label-map need --label"),
    ],
)
def test_classes_without_labels_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str], said: str
) -> None:
    made(400).drop(columns="y").to_csv(tmp_path / "p.csv", index=False)
    out = tmp_path / "out.csv"
    options = ["--score", "p", "--group", "g", "--metric", "demographic_parity", "--out", str(out)]
    with pytest.raises(SystemExit):
        main(["postprocess", str(tmp_path / "p.csv"), *options, *typed])
    assert said in capsys.readouterr().err
    assert not out.exists()


def test_no_person_is_on_both_sides_and_intervals_take_people_together(tmp_path: Path) -> None:
    rows = pd.concat([made(400).assign(person=[f"p{at}" for at in range(400)])] * 4)  # in four blocks
    path, rule = tmp_path / "p.csv", tmp_path / "rule.json"
    rows.to_csv(path, index=False)
    options: dict[str, Any] = {"label": "y", "metric": "demographic_parity"}
    found = postprocess_file(path, "p", "g", cluster="person", **options)
    sides = rows.assign(fitted=found.fitted).groupby("person")["fitted"].nunique()
    assert (sides == 1).all()
    assert not found.repeated
    said = (
        "Intervals are clustered by person: 1,600 rows in 400 clusters, and no cluster is divided between the halves."
    )
    assert said in found.sentences()
    alone = postprocess_file(path, "p", "g", **options)
    assert found.audit is not None
    assert alone.audit is not None
    wide, narrow = (one.by_attribute["g"].metrics["accuracy"].difference for one in (found.audit, alone.audit))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    rule.write_text(json.dumps(found.to_dict()))
    again = postprocess_file(path, "p", "g", label="y", rule=rule)
    assert (again.fitted == found.fitted).all()
    assert "Intervals are clustered by person: 1,600 rows in 400 clusters." in again.sentences()
    made(200, seed=6).to_csv(tmp_path / "new.csv", index=False)  # without people
    assert not postprocess_file(tmp_path / "new.csv", "p", "g", label="y", rule=rule).clustered


def test_people_of_one_row_each_change_nothing(tmp_path: Path) -> None:
    made(400).assign(person=range(400)).to_csv(tmp_path / "p.csv", index=False)
    one, other = (
        postprocess_file(tmp_path / "p.csv", "p", "g", label="y", metric="demographic_parity", cluster=cluster)
        for cluster in ("person", None)
    )
    assert one.sentences() == other.sentences()
    assert (one.fitted == other.fitted).all()


def test_a_runs_clusters_are_those_of_its_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = evaluated_run(tmp_path / "run", clusters=250)
    assert command(run, "--metric", "demographic_parity") == 0
    assert "600 rows in 250 clusters" in " ".join(capsys.readouterr().out.split())


def test_demographic_parity_is_as_good_as_fairlearns_thresholds() -> None:
    """At a bound of 0 both shift thresholds by group; fairlearn's optimum mixes two of them at random."""
    postprocessing = pytest.importorskip("fairlearn.postprocessing", reason="fairlearn is not installed")
    base = pytest.importorskip("sklearn.base", reason="scikit-learn is not installed")
    rows = made(6000)
    label, group = rows["y"].to_numpy(), rows["g"].to_numpy()

    class Given(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[name-defined]
        """A fitted model whose scores are the given probabilities."""

        def fit(self, features: Any, labels: Any) -> Given:
            self.classes_ = np.unique(labels)
            return self

        def predict(self, features: Any) -> Any:
            return np.asarray(features)[:, 0]

    thresholds = postprocessing.ThresholdOptimizer(
        estimator=Given(), constraints="demographic_parity", predict_method="predict", grid_size=1000
    )
    features = rows[["p"]].to_numpy()
    thresholds.fit(features, label, sensitive_features=group)
    theirs = np.asarray(thresholds.predict(features, sensitive_features=group, random_state=0)) == 1
    rule = fit_rule(rows["p"], group, metric="demographic_parity", delta=0.0)
    ours = rule.decide(rows["p"], group)
    truth = label == 1
    assert measured_gap(ours, truth, group, "demographic_parity") < 0.002
    assert (ours == truth).mean() == pytest.approx((theirs == truth).mean(), abs=0.01)


def people(rows: int = 4000) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows that choose a threshold, and others."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": draw.choice(["f", "m"], rows), "y": draw.integers(0, 2, rows)})
    frame["s"] = 1 / (1 + np.exp(-draw.normal(2 * frame.y - 1 - (frame.sex == "f"))))
    ordered, places = frame.sort_values(["s", "y", "sex"]), np.random.default_rng([0, 2]).permutation(rows)
    return ordered.iloc[places[::2]], ordered.iloc[places[1::2]]


@pytest.mark.parametrize(
    ("metric", "delta", "before", "threshold", "gaps", "accuracies"),
    [
        ("equalized_odds", 0.1, 0.5, 0.9044988998032123, (0.4036762503743636, 0.09886942198262953), (0.7765, 0.5375)),
        ("demographic_parity", 0.1, 0.5, 0.8544334549908967, (0.26197170982414, 0.09585170114163), (0.7765, 0.5735)),
        ("equal_opportunity", 0.1, 0.5, 0.22364257843870347, (0.40367625037436, 0.10759209344115), (0.7765, 0.7495)),
        ("equalized_odds", 0.0, 0.5, 0.009339538574420651, (0.4036762503743636, 0.005928853754940677), (0.7765, 0.492)),
        ("equalized_odds", 0.1, 0.2, 0.038391113208977305, (0.3252278698502955, 0.0970806462797309), (0.736, 0.524)),
    ],
)  # fmt: skip
def test_one_threshold_is_the_best_within_the_bound_and_is_measured_on_other_rows(
    metric: str, delta: float, before: float, threshold: float, gaps: tuple[float, ...], accuracies: tuple[float, ...],
    tmp_path: Path,
) -> None:  # fmt: skip
    for name, part in zip(("fit", "held"), people(), strict=True):
        part.to_parquet(tmp_path / f"{name}.parquet")
    options: dict[str, Any] = {"label": "y", "validation": tmp_path / "fit.parquet", "one_threshold": True}
    found = postprocess_file(
        tmp_path / "held.parquet", "s", "sex", metric=metric, delta=delta, threshold=before, **options
    )
    assert found.audit is not None
    changes = found.audit.by_attribute["sex"].metrics
    gap = changes["equalized_odds_worst" if metric == "equalized_odds" else metric]
    assert (found.threshold, found.one_threshold) == (before, threshold)
    assert (gap.old, gap.new) == pytest.approx(gaps, abs=1e-12)
    assert (changes["accuracy"].old, changes["accuracy"].new) == accuracies
    held = people()[1]
    assert (found.decisions == (held.s >= threshold)).all()
    assert (found.before == (held.s >= before)).all()
    assert found.to_dict()["rule"]["uses_groups"] is False
    assert "USES GROUPS" not in found.text(all=True) + found.to_html()


@pytest.mark.parametrize("metric", METRICS)
def test_no_threshold_within_the_bound_costs_less(metric: str) -> None:
    frame, draw = people(800)[0], np.random.default_rng(1)
    group, label, score = draw.choice(["f", "m", "x"], len(frame)), frame.y.to_numpy() == 1, frame.s.to_numpy()
    found = choose_rule(score, group, label, metric=metric, delta=0.1, threshold=0.5, one_threshold=True)
    every = [(measured_gap(score >= at, label, group, metric), ((score >= at) == label).mean()) for at in score]
    assert found.fit_gap == pytest.approx(measured_gap(score >= found.threshold, label, group, metric))
    assert found.fit_gap <= 0.1
    assert ((score >= found.threshold) == label).mean() >= max(right for gap, right in every if gap <= 0.1)


def test_the_command_chooses_one_threshold_and_reads_no_group_to_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people()[0].to_csv(tmp_path / "p.csv", index=False)
    line = ["postprocess", str(tmp_path / "p.csv"), "--label", "y", "--score", "s", "--group", "sex", "--one-threshold"]
    line += ["--delta", "0.1", "--json", str(tmp_path / "a.json"), "--out", str(tmp_path / "out.csv")]
    with pytest.raises(SystemExit) as leaving:
        main(line)
    assert leaving.value.code == 0
    assert "no group is read to decide" in " ".join(capsys.readouterr().out.split())
    record, decided = read_json(tmp_path / "a.json"), pd.read_csv(tmp_path / "out.csv")
    assert (decided.after == (people()[0].s.to_numpy() >= record["one_threshold"])).all()
    assert (decided.before == (people()[0].s.to_numpy() >= record["threshold"])).all()
    with pytest.raises(DataError, match="holds no rule"):
        postprocess_file(tmp_path / "p.csv", "s", "sex", rule=tmp_path / "a.json")
