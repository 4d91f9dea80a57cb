"""Bias scoring: the worked figures, the linear program it solves, and what is measured."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, sparse

from command_line import evaluated_run, run, said
from levelhead.auditing.bias_rule import choose_rule, measured_gap
from levelhead.auditing.postprocess import METRICS, fit_rule, rates_of, solve_rates
from levelhead.auditing.postprocess_audit import Postprocessed, apply_rule, postprocess

PROBABILITY = np.array([0.9, 0.8, 0.7, 0.6, 0.55, 0.45, 0.4, 0.3, 0.2, 0.1])
IN_GROUP = np.array([0.2, 0.3, 0.2, 0.6, 0.4, 0.7, 0.8, 0.6, 0.9, 0.7])
"""Probability of the second group for each row, whose share is 0.54."""
COLUMNS = ("--score", "p", "--group", "g", "--label", "y")


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


def ruled(folder: Path, rows: pd.DataFrame, **options: Any) -> Postprocessed:
    """Return what a rule does to rows, which are written to a file."""
    rows.to_csv(folder / "p.csv", index=False)
    return postprocess(folder / "p.csv", score="p", groups=["g"], **{"label": "y", **options})


def applied(folder: Path, rows: pd.DataFrame, rule: Any) -> Postprocessed:
    """Return what a fitted rule does to rows with labels, which are written to another file."""
    rows.to_csv(folder / "new.csv", index=False)
    return apply_rule(rule, folder / "new.csv", label="y")


def rates_by_group(decided: Any, group: np.ndarray, weight: Any = None) -> list[float]:
    weight = np.ones(len(group)) if weight is None else np.asarray(weight)
    members = [group == one for one in np.unique(group)]
    return [float(np.average(np.asarray(decided)[own], weights=weight[own])) for own in members]


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
    pairs = [(one, other) for one, (a, label) in enumerate(keys) for other, key in enumerate(keys)
             if key[1] == label and a < key[0]]  # fmt: skip
    flips = np.stack([rates[one] - rates[other] for one, other in pairs], axis=1)
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
@pytest.mark.parametrize(("rows", "groups", "delta", "within"), [(20_000, 10, 0.02, 0.003), (120_000, 2, 0.01, 0.001)])
def test_many_groups_and_a_sample_of_many_rows_keep_the_bound_within_seconds(
    metric: str, rows: int, groups: int, delta: float, within: float
) -> None:
    chance = np.random.default_rng(0)
    group = chance.integers(0, groups, rows)
    probability = np.clip(chance.beta(2, 2, rows) + 0.2 * (group / groups - 0.5), 0.01, 0.99)
    begun = time.process_time()
    decided = fit_rule(probability, group, metric=metric, delta=delta).decide(probability, group)
    assert time.process_time() - begun < 10  # it was minutes
    weights = {"demographic_parity": [np.ones(rows)], "equal_opportunity": [probability]}
    for weight in weights.get(metric, [probability, 1 - probability]):
        assert np.ptp(rates_by_group(decided, group, weight)) < delta + within


def test_bounds_that_are_met_before_and_those_that_no_flips_meet() -> None:
    """Equal probabilities in a group keep its true and false positive rates equal; the shifts keep them apart."""
    rows = made(500)
    rule = fit_rule(rows["p"], rows["g"].to_numpy(), metric="demographic_parity", delta=0.9)
    assert (rule.decide(rows["p"], rows["g"].to_numpy()) == (rows["p"] >= 0.5)).all()
    group = np.array(["a", "b"] * 50)
    rule = fit_rule(np.full(100, 0.5), group, delta=0.0, shift={(0, 1): 0.2, (0, 0): -0.2})
    assert np.isfinite(list(rule.prices.values())).all()
    assert rule.decide(np.full(100, 0.5), group).shape == (100,)
    sure = np.where(group == "a", 0.5, 0.0)
    decided = fit_rule(sure, group, metric="demographic_parity", delta=0.0).decide(sure, group)
    assert np.ptp(rates_by_group(decided, group)) in (0, 1)


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
def test_the_gap_falls_on_rows_that_were_not_used(tmp_path: Path, metric: str) -> None:
    found = ruled(tmp_path, made(8000), metric=metric, delta=0.02)
    assert found.audit is not None
    changes = found.audit.by_attribute["g"].metrics
    change = changes["equalized_odds_worst" if metric == "equalized_odds" else metric]
    assert change.old > 0.2
    assert change.new < 0.09
    assert change.difference.high < 0
    assert changes["accuracy"].difference.value < 0
    assert found.saved.rows + found.measured_on == 8000


def test_probabilities_that_are_off_in_one_group_are_calibrated_first(tmp_path: Path) -> None:
    rows = made(12_000)
    rows["p"] = np.where(rows["g"] == "a", rows["p"] ** 2, rows["p"])
    rows[:6000].to_csv(tmp_path / "validation.csv", index=False)
    found = ruled(tmp_path, rows[6000:], fit=tmp_path / "validation.csv", metric="equal_opportunity")
    group, label = rows["g"][6000:].to_numpy(), rows["y"][6000:].to_numpy() == 1
    assert measured_gap(found.decisions, label, group, "equal_opportunity") < 0.07
    assert (found.saved.rows, found.measured_on) == (6000, 6000)


def test_a_rule_is_fitted_on_any_table(tmp_path: Path) -> None:
    rows = made(400).assign(id=range(400))
    rows.to_parquet(tmp_path / "whole.parquet")
    for at in (0, 1):
        rows[200 * at : 200 * (at + 1)].to_parquet(tmp_path / f"part{at}.parquet")
    parts = [tmp_path / f"part{at}.parquet" for at in (0, 1)]
    alone, groups = rows.drop(columns="g"), rows[["id", "g"]].sample(frac=1, random_state=0)
    asked: dict[str, Any] = {"label": "y", "score": "p", "groups": ["g"], "metric": "demographic_parity"}
    expected = postprocess(tmp_path / "whole.parquet", **asked)
    for table in (rows, parts, str(tmp_path / "part*.parquet")):
        assert postprocess(table, **asked).sentences() == expected.sentences()
    joined = postprocess(alone, join=groups, on="id", **asked)
    assert joined.sentences() == expected.sentences()
    assert any("matched an id" in one for one in joined.reading)
    for other in (rows, parts):
        assert (apply_rule(expected.saved, other, groups=["g"]).decisions == expected.decisions).all()


def test_rows_that_a_rule_was_fitted_on_are_decided_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ruled(tmp_path, made(1000, seed=1))
    (tmp_path / "rule.json").write_text(json.dumps(found.to_dict()))
    out = tmp_path / "again.csv"
    assert run("apply", tmp_path / "rule.json", tmp_path / "p.csv", "--out", out) == 0
    assert "The rule was fitted on rows of this file" in said(capsys)
    assert pd.read_csv(out)["decision"].tolist() == found.decisions.astype(int).tolist()
    assert run("apply", tmp_path / "rule.json", tmp_path / "p.csv", "--label", "y") == 2
    assert "`levelhead postprocess` measured it on others" in said(capsys)
    alone = ruled(tmp_path, made(1000, seed=1), label=None)
    assert alone.fitted.all()
    assert alone.audit is None  # golden: rule_without_labels


def test_a_rule_remembers_which_class_each_label_means(tmp_path: Path) -> None:
    fit, new = made(400), made(200, seed=9)
    words = [one.assign(y=one["y"].map({0: "late", 1: "paid"})) for one in (fit, new)]
    mapped = {"label_map": {"paid": "1", "late": "0"}, "positive": "1", "metric": "demographic_parity"}
    saved = ruled(tmp_path, words[0], **mapped).saved
    assert saved.label_map == {"paid": "1", "late": "0"}
    in_words, in_numbers = (applied(tmp_path, rows, saved) for rows in (words[1], new))  # these are classes already
    assert in_words.sentences() == in_numbers.sentences()
    assert in_words.audit is not None


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
    rows = pd.concat([made(1000), few])
    fitted = ruled(tmp_path, rows)
    for found in (fitted, applied(tmp_path, rows[:-10], fitted.saved)):
        told = [one for one in found.to_dict()["warnings"] if one.startswith("g: group “c” has ")]
        assert told
        assert all("fewer than 10, and is left out of" in one and "equalized odds" in one for one in told)
    assert not [one for one in ruled(tmp_path, rows, min_count=2).warnings if "is left out" in one]


def test_no_person_is_on_both_sides_and_intervals_take_people_together(tmp_path: Path) -> None:
    options: dict[str, Any] = {"metric": "demographic_parity", "cluster": "person"}
    people = made(400).assign(person=[f"p{at}" for at in range(400)])
    rows = pd.concat([people] * 4)  # in four blocks
    found, alone = ruled(tmp_path, rows, **options), ruled(tmp_path, rows, metric="demographic_parity")
    sides = rows.assign(fitted=found.fitted).groupby("person")["fitted"].nunique()
    assert (sides == 1).all()
    assert not found.hints
    assert any("1,600 rows in 400 clusters" in one and "between the halves" in one for one in found.sentences())
    assert found.audit is not None
    assert alone.audit is not None
    wide, narrow = (one.by_attribute["g"].metrics["accuracy"].difference for one in (found.audit, alone.audit))
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
    again = applied(tmp_path, rows[::-1], found.saved)
    assert "Intervals are clustered by person: 1,600 rows in 400 clusters." in again.sentences()
    assert not applied(tmp_path, made(200, seed=6), found.saved).clustered  # without people
    one, other = (ruled(tmp_path, people, **(options | {"cluster": cluster})) for cluster in ("person", None))
    assert one.sentences() == other.sentences()
    assert (one.fitted == other.fitted).all()


def test_a_runs_clusters_are_those_of_its_rule(tmp_path: Path) -> None:
    folder, figures = evaluated_run(tmp_path / "run", clusters=250), tmp_path / "rule.json"
    assert run("postprocess", folder, "--metric", "demographic_parity", "--json", figures) == 0
    assert "600 rows in 250 clusters" in figures.read_text()


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
    frame = pd.DataFrame({"g": draw.choice(["f", "m"], rows), "y": draw.integers(0, 2, rows)})
    frame["p"] = 1 / (1 + np.exp(-draw.normal(2 * frame.y - 1 - (frame.g == "f"))))
    ordered, places = frame.sort_values(["p", "y", "g"]), np.random.default_rng([0, 2]).permutation(rows)
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
    fit, held = people()
    fit.to_csv(tmp_path / "fit.csv", index=False)
    options: dict[str, Any] = {"metric": metric, "delta": delta, "threshold": before, "one_threshold": True}
    found = ruled(tmp_path, held, fit=tmp_path / "fit.csv", **options)
    assert found.audit is not None
    changes = found.audit.by_attribute["g"].metrics
    gap = changes["equalized_odds_worst" if metric == "equalized_odds" else metric]
    assert (found.threshold, found.one_threshold) == (before, pytest.approx(threshold, abs=1e-15))
    assert (gap.old, gap.new) == pytest.approx(gaps, abs=1e-12)
    assert (changes["accuracy"].old, changes["accuracy"].new) == accuracies
    assert (found.decisions == (held.p >= found.one_threshold)).all()
    assert (found.before == (held.p >= before)).all()
    share = found.decisions.mean()
    assert any("hardly distinguishes them" in one for one in found.sentences()) == (max(share, 1 - share) >= 0.95)
    assert found.to_dict()["rule"]["uses_groups"] is False
    assert "USES GROUPS" not in found.text(all=True) + found.to_html()


@pytest.mark.parametrize("metric", METRICS)
def test_no_threshold_within_the_bound_costs_less(metric: str) -> None:
    frame, draw = people(800)[0], np.random.default_rng(1)
    group, label, score = draw.choice(["f", "m", "x"], len(frame)), frame.y.to_numpy() == 1, frame.p.to_numpy()
    found = choose_rule(score, group, label, metric=metric, delta=0.1, threshold=0.5, one_threshold=True)
    every = [(measured_gap(score >= at, label, group, metric), ((score >= at) == label).mean()) for at in score]
    assert found.fit_gap == pytest.approx(measured_gap(score >= found.threshold, label, group, metric))
    assert found.fit_gap <= 0.1
    assert ((score >= found.threshold) == label).mean() >= max(right for gap, right in every if gap <= 0.1)
