"""Audits of 30 drawn tables beside fairlearn, scikit-learn, SciPy, statsmodels, and DeLong's sums written out."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate
from scipy import stats
from sklearn.metrics import brier_score_loss, roc_auc_score

import levelhead as lh
from levelhead.metrics import holm
from levelhead.metrics.between import mover, wilson
from levelhead.metrics.scores import ScoreCounts, areas

TABLES, CLOSE = range(30), 1e-9
GROUPS, PERIODS, TOP = ("a", "b", "c"), 6, 40


@cache
def drawn(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(300, 900))
    frame = pd.DataFrame({"group": rng.choice(GROUPS, rows, p=[0.5, 0.3, 0.2]), "time": rng.integers(0, PERIODS, rows)})
    base = dict(zip(GROUPS, rng.uniform(0.3, 0.7, 3), strict=True))
    frame["y"] = (rng.random(rows) < frame.group.map(base)).astype(int)
    for name in ("score", "other"):
        noise = rng.normal(0, rng.uniform(0.1, 0.4), rows)
        frame[name] = np.round((0.3 + 0.4 * frame.y + noise).clip(0, 1), int(rng.integers(1, 4)))
    return frame.assign(yes=(frame.score >= 0.5).astype(int), other_yes=(frame.other >= 0.5).astype(int))


@cache
def audited(seed: int) -> Any:
    frame, options = drawn(seed), {"reference": "a", "replicates": 100}
    return lh.audit(frame.y, frame.yes, scores=frame.score, sensitive_features=frame[["group"]], **options)


@cache
def decided(seed: int) -> Any:
    frame = drawn(seed)
    return lh.audit(
        None,
        frame.yes,
        sensitive_features=frame[["group"]],
        favourable=1,
        reference="a",
        time=frame.time,
        min_count=1,
        replicates=100,
    )


def delong(label: pd.Series, score: pd.Series) -> tuple[float, float]:
    """Area and its variance from the placement of each row among all rows of the other class."""
    up, down = score[label == 1].to_numpy()[:, None], score[label == 0].to_numpy()
    kernel = (up > down) + 0.5 * (up == down)
    ten, one = kernel.mean(1), kernel.mean(0)
    return float(kernel.mean()), float(ten.var(ddof=1) / len(ten) + one.var(ddof=1) / len(one))


@pytest.mark.parametrize("seed", TABLES)
def test_rates_differences_and_ratios_are_fairlearns(seed: int) -> None:
    frame, found = drawn(seed), audited(seed)
    rates = {one.__name__: one for one in (true_positive_rate, false_positive_rate, selection_rate)}
    theirs = MetricFrame(metrics=rates, y_true=frame.y, y_pred=frame.yes, sensitive_features=frame.group)
    for group, by in theirs.by_group.iterrows():
        own = found.by_attribute["group"].groups[group].rates
        assert {name: own[name].value for name in rates} == pytest.approx(by.to_dict(), abs=CLOSE)
    apart = theirs.difference(method="between_groups")
    gaps = {"selection_rate": "demographic_parity", "true_positive_rate": "equal_opportunity"}
    for rate, gap in gaps.items():
        assert found.by_attribute["group"].metrics[gap].value == pytest.approx(apart[rate], abs=CLOSE)
    alone, share = decided(seed).by_attribute["group"], theirs.by_group.selection_rate
    assert alone.demographic_parity.value == pytest.approx(apart["selection_rate"], abs=CLOSE)
    for group in "bc":
        assert alone.groups[group].difference.value == pytest.approx(share[group] - share["a"], abs=CLOSE)
        for ours in (alone, found.rates["group"]):
            assert ours.groups[group].selection_ratio.value == pytest.approx(share[group] / share["a"], abs=CLOSE)


@pytest.mark.parametrize("seed", TABLES)
def test_scores_are_scikit_learns_and_scipys_and_their_variance_delongs(seed: int) -> None:
    frame, found = drawn(seed), audited(seed).scores.by_attribute["group"]
    variances = areas(ScoreCounts.from_rows(frame.y == 1, frame.score, frame.group.map(GROUPS.index), 3)).variance
    for at, (name, rows) in enumerate(frame.groupby("group")):
        one, area = found.groups[name], roc_auc_score(rows.y, rows.score)
        assert one.area.value == pytest.approx(area, abs=CLOSE)
        assert (area, variances[at, at]) == pytest.approx(delong(rows.y, rows.score), abs=CLOSE)
        assert one.gini.value == pytest.approx(2 * area - 1, abs=CLOSE)
        assert one.brier.value == pytest.approx(brier_score_loss(rows.y, rows.score), abs=CLOSE)
        apart = stats.ks_2samp(rows.score[rows.y == 1], rows.score[rows.y == 0]).statistic
        assert one.kolmogorov_smirnov.value == pytest.approx(apart, abs=CLOSE)


@pytest.mark.parametrize("seed", TABLES)
def test_exact_tests_are_scipys(seed: int) -> None:
    frame, found = drawn(seed), decided(seed).by_attribute["group"].groups
    hits, rows = (frame.groupby("group").yes.agg(one) for one in ("sum", "size"))
    for group in "bc":
        table = [[hits[one], rows[one] - hits[one]] for one in (group, "a")]
        tails = [stats.fisher_exact(table, one).pvalue for one in ("less", "greater")]
        assert found[group].p_value == pytest.approx(min(1, 2 * min(1, 2 * min(tails))), abs=CLOSE)
    place = frame.score.rank(method="first")
    ranked = lh.audit(None, scores=place, sensitive_features=frame[["group"]], top=TOP).by_attribute["group"]
    top = (place > len(frame) - TOP).groupby(frame.group).mean()
    assert ranked.reference == top.idxmax()
    for group, one in ranked.groups.items():
        own = frame.group == group
        assert one.representation.value == pytest.approx(top[group] * len(frame) / TOP, abs=CLOSE)
        if one.selection_ratio is not None:
            assert one.selection_ratio.value == pytest.approx(top[group] / top.max(), abs=CLOSE)
        hits, law = (place[own] > len(frame) - TOP).sum(), stats.hypergeom(len(frame), own.sum(), TOP)
        assert one.in_top == hits
        assert one.p_value == pytest.approx(min(1, 3 * 2 * min(law.cdf(hits), law.sf(hits - 1))), abs=CLOSE)


@pytest.mark.parametrize("seed", TABLES)
def test_intervals_of_proportions_and_trends_are_statsmodels(seed: int) -> None:
    sm = pytest.importorskip("statsmodels.api", reason="statsmodels is not installed")
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    frame = drawn(seed)
    by = frame.groupby(["time", "group"]).yes.agg(["sum", "size"]).unstack()
    all_hits, all_rows = (by[one].to_numpy() for one in ("sum", "size"))
    hits, rows = all_hits.sum(0), all_rows.sum(0)
    low, high = wilson(hits, rows, 0.95)
    theirs = proportion.proportion_confint(hits, rows, method="wilson")
    assert np.stack([low, high]) == pytest.approx(np.stack(theirs), abs=CLOSE)
    ends = mover(*(one for at in (0, 1) for one in (hits[at] / rows[at], (low[at], high[at]))))
    theirs = proportion.confint_proportions_2indep(hits[0], rows[0], hits[1], rows[1], method="newcomb", compare="diff")
    assert ends == pytest.approx(theirs, abs=CLOSE)
    slopes = {one.group: one.slope for one in decided(seed).over_time.by_attribute["group"]}
    for at in (1, 2):
        x, n = all_hits[:, [at, 0]], all_rows[:, [at, 0]]
        steady = (x.sum(0) + 0.5) / (n.sum(0) + 1)
        weight = 1 / (steady * (1 - steady) / n).sum(1)
        gap = x[:, 0] / n[:, 0] - x[:, 1] / n[:, 1]
        fitted = sm.WLS(gap, sm.add_constant(np.arange(PERIODS, dtype=float)), weights=weight).fit()
        assert slopes[GROUPS[at]].value == pytest.approx(fitted.params[1], abs=CLOSE)


def test_mcnemar_and_holm_are_statsmodels() -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables", reason="statsmodels is not installed")
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p_values = []
    for seed in TABLES[::5]:
        frame = drawn(seed)
        options = {"against": frame.other_yes, "replicates": 100}
        found = lh.audit(frame.y, frame.yes, sensitive_features=frame[["group"]], **options).against
        cells = 2 * (frame.yes != frame.y) + (frame.other_yes != frame.y)
        for group, kinds in cells.groupby(frame.group):
            right = np.bincount(kinds, minlength=4).reshape(2, 2)
            p_values.append(float(tables.mcnemar(right, exact=True).pvalue))
            own = found.by_attribute["group"].groups[group]
            assert own.rates["accuracy"].p_value == pytest.approx(p_values[-1], abs=CLOSE), seed
    assert holm(p_values) == pytest.approx(multitest.multipletests(p_values, method="holm")[1], abs=CLOSE)
