"""Scores by group: the worked figures, what equals what, hostile input, and how often intervals hold the truth."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import levelhead as lh
from levelhead.auditing.options import AuditOptions
from levelhead.auditing.scale import Scale
from levelhead.auditing.scores import _Column, band, score_sentences
from levelhead.metrics.between import mover
from levelhead.metrics.contrasts import Contrasts, Enough
from levelhead.metrics.scores import (
    ScoreCounts,
    area_interval,
    areas,
    calibration_lines,
    calibration_p,
    residuals,
)
from levelhead.report import render
from levelhead.report.one_page import one_page

WORKED_SCORE = np.array([0.9, 0.8, 0.35, 0.6, 0.7, 0.2, 0.35, 0.1, 0.5, 0.9, 0.4, 0.3, 0.6, 0.2])
WORKED_LABEL = np.array([1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0], bool)
WORKED_GROUP = np.array([0] * 8 + [1] * 6)


def made(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """Return rows whose scores order women less well than men."""
    chance = np.random.default_rng(seed)
    sex = chance.choice(["f", "m"], rows, p=[0.4, 0.6])
    label = (chance.random(rows) < 0.4).astype(int)
    signal = chance.normal(np.where(label == 1, 1, -1) * np.where(sex == "m", 1.0, 0.4), 1)
    return pd.DataFrame({"y": label, "p": 1 / (1 + np.exp(-signal)), "sex": sex})


def scored(label: Any, score: Any, **options: Any) -> Any:
    """Return the scores' part of an audit."""
    return lh.audit(label, scores=score, **options).scores


def test_areas_as_worked_by_hand() -> None:
    found = areas(ScoreCounts.from_rows(WORKED_LABEL, WORKED_SCORE, WORKED_GROUP, 2))
    assert found.value == pytest.approx(np.array([[0.84375, 0.875], [0.833333, 0.777778]]), abs=1e-6)
    assert np.diag(found.variance) == pytest.approx([0.022786, 0.061728], abs=1e-6)
    assert found.value[1, 1] - found.value[0, 0] == pytest.approx(-0.065972, abs=1e-6)
    assert np.diag(found.variance).sum() ** 0.5 == pytest.approx(0.290714, abs=1e-6)


@pytest.mark.parametrize("rows", [12, 60, 400])
@pytest.mark.parametrize("mean", [0.02, 0.3, 0.9])
def test_calibration_has_the_p_value_of_a_sum_of_unequal_coins(rows: int, mean: float) -> None:
    """The exact law of the number of positives is a convolution of the rows' own; twice its smaller tail."""
    chance = np.random.default_rng(rows)
    score = chance.beta(2 * mean, 2 * (1 - mean), rows)
    law = np.ones(1)
    for one in score:
        law = np.convolve(law, [1 - one, one])
    above, below = law[::-1].cumsum()[::-1], law.cumsum()
    for positives in range(rows + 1):
        exact = min(1.0, 2 * min(above[positives], below[positives]))
        if 1e-6 < exact < 0.5:
            label = np.arange(rows) < positives
            counts = ScoreCounts.from_rows(label, score, np.zeros(rows, int), 1)
            assert calibration_p(counts, 0) == pytest.approx(exact, rel=0.1)


def test_scores_of_0_and_1_cannot_err_and_are_never_undefined() -> None:
    def p_of(label: list[int], score: list[float]) -> float:
        rows = np.array(label, bool), np.array(score, float), np.zeros(len(label), int)
        return calibration_p(ScoreCounts.from_rows(*rows, 1), 0)

    assert p_of([1, 1], [0.0, 0.5]) == 0
    assert p_of([0, 0], [1.0, 0.5]) == 0
    assert p_of([1, 0], [1.0, 0.0]) == 1
    assert p_of([1] * 50, [1e-300] * 50) == 0
    assert 0 <= p_of([0] * 1000, [1e-9] * 1000) <= 1


@pytest.mark.parametrize("sizes", [np.geomspace(40, 1_000, 12).astype(int), np.array([6_000, *(60,) * 5])])
def test_no_group_is_called_miscalibrated_by_chance(sizes: np.ndarray) -> None:
    """Calibrated scores of a rare class: the group with the largest residual was named in 55 of 100 audits."""
    chance, named = np.random.default_rng(1), 0
    group = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(40):
        score = np.clip(chance.beta(2, 8, len(group)), 1e-6, 1).round(3)
        label = chance.random(len(group)) < score
        counts = ScoreCounts.from_rows(label, score, group, len(sizes))
        keys = [f"g{at}" for at in range(len(sizes))]
        scale = Scale("probability", len(group), 0, 0.0, 1.0)
        column = _Column(counts, keys, np.ones(len(sizes), bool), scale, AuditOptions(min_count=5))
        found = column._groups((counts.sizes >= 5).all(-1))
        named += any(one.miscalibrated is not None for one in found.values())
    assert named <= 4


@pytest.mark.parametrize(("shift", "said"), [(0.08, "low"), (-0.08, "high")])
def test_a_group_whose_scores_are_off_is_named_with_an_interval_for_all_groups(shift: float, said: str) -> None:
    chance = np.random.default_rng(0)
    score, sex = chance.uniform(0.1, 0.8, 4000), chance.choice(["f", "m"], 4000)
    label = chance.random(4000) < score + shift * (sex == "f")
    part = scored(label, score, sensitive_features={"sex": sex}, replicates=100).by_attribute["sex"]
    named = part.groups["f"].miscalibrated
    assert named is not None
    assert named.high - named.low > part.groups["f"].residual.high - part.groups["f"].residual.low
    assert part.groups["m"].miscalibrated is None
    assert any(one.startswith(f"For f the score is too {said} by ") for one in score_sentences("sex", part))


def test_residuals_as_worked_by_hand() -> None:
    score = np.array([0.1, 0.2, 0.3, 0.6, 0.7, 0.9, 0.4, 0.8])
    label = np.array([0, 0, 1, 1, 0, 1, 0, 1], bool)
    mean, variance = residuals(ScoreCounts.from_rows(label, score, np.repeat([0, 1], 4), 2))
    assert mean == pytest.approx([0.2, -0.2])
    assert variance**0.5 == pytest.approx([0.212132, 0.212132], abs=1e-6)


def test_areas_agree_with_counting_pairs() -> None:
    chance = np.random.default_rng(1)
    score, label = chance.normal(size=300).round(1), chance.random(300) < 0.4  # with ties
    group = chance.integers(0, 3, 300)
    found = areas(ScoreCounts.from_rows(label, score, group, 3)).value
    for g, h in itertools.product(range(3), repeat=2):
        positives, negatives = score[label & (group == g)], score[~label & (group == h)]
        pairs = (positives[:, None] > negatives) + 0.5 * (positives[:, None] == negatives)
        assert found[g, h] == pytest.approx(pairs.mean())


def test_binned_figures_are_those_of_every_score() -> None:
    chance = np.random.default_rng(2)
    score = chance.random(40_000)
    label, group = chance.random(40_000) < score, chance.integers(0, 3, 40_000)
    exact = ScoreCounts.from_rows(label, score, group, 3)
    binned = ScoreCounts.from_rows(label, score, group, 3, [0.5, 0.123456], most_bins=2000)
    assert exact.exact
    assert not binned.exact
    assert len(binned.edges) < 8000
    assert areas(binned).value == pytest.approx(areas(exact).value, abs=2e-5)
    assert areas(binned).variance == pytest.approx(areas(exact).variance, rel=1e-4)
    for one, other in zip(residuals(binned), residuals(exact), strict=True):
        assert one == pytest.approx(other, rel=1e-9)
    assert np.array_equal(binned.tables([0.5, 0.123456]), exact.tables([0.5, 0.123456]))
    assert calibration_lines(binned).slope == pytest.approx(calibration_lines(exact).slope, abs=1e-4)


@pytest.mark.parametrize("groups", [1, 3, 127, 128, 200])
def test_rows_in_batches_are_counted_as_all_at_once(groups: int) -> None:
    chance = np.random.default_rng(3)
    score, group = chance.normal(size=3000), chance.integers(0, groups, 3000)
    label = chance.random(3000) < 0.4
    whole = ScoreCounts.from_rows(label, score, group, groups, [0.5], most_bins=500)
    cuts = [0, 0, 1, 700, 2999, 3000]  # an empty batch and one of a single row among them

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for first, last in itertools.pairwise(cuts):
            yield label[first:last], score[first:last], group[first:last].astype(np.int16)

    found = ScoreCounts.from_batches(batches, groups, [0.5], most_bins=500)
    for name in ("edges", "rows", "sums", "squares"):
        assert np.array_equal(getattr(found, name), getattr(whole, name)), name
    for g, k in itertools.product(range(groups), range(2)):
        assert found.rows[g, k].sum() == ((group == g) & (label == k)).sum()


def test_scores_of_few_values_are_never_binned() -> None:
    score = np.tile(np.linspace(0, 1, 101), 1000)
    label, group = np.arange(len(score)) % 3 == 0, np.zeros(len(score), int)
    counts = ScoreCounts.from_rows(label, score, group, 1, most_bins=1000)
    assert counts.exact
    assert len(counts.edges) == 101


def test_slope_and_intercept_are_those_of_the_logistic_regression() -> None:
    chance = np.random.default_rng(4)
    log_odds = chance.normal(0, 1.5, 50_000)
    label = chance.random(50_000) < 1 / (1 + np.exp(-(0.5 * log_odds + 0.3)))
    score = 1 / (1 + np.exp(-log_odds))
    found = calibration_lines(ScoreCounts.from_rows(label, score, np.zeros(50_000, int), 1))
    assert found.slope[0] == pytest.approx(0.5, abs=4 * found.slope_error[0])
    flat = calibration_lines(ScoreCounts.from_rows(label, np.full(50_000, 0.3), np.zeros(50_000, int), 1))
    assert np.isnan(flat.slope[0])
    base = label.mean()
    assert flat.intercept[0] == pytest.approx(np.log(base / (1 - base)) - np.log(0.3 / 0.7), abs=1e-6)


def test_no_area_has_an_interval_of_no_width() -> None:
    one = np.array(1.0)
    low, high = area_interval(one, np.array(0.0), np.array(np.inf), np.array(20), np.array(300), 0.95)
    assert low == pytest.approx(0.025 ** (1 / 20))
    assert high == 1
    low, high = area_interval(one, np.array(0.0), np.array(np.inf), np.array(4), np.array(300), 0.95)
    assert np.isnan(low)
    assert np.isnan(high)


@pytest.mark.parametrize(("distance", "base"), [((2.0, 2.0), 0.3), ((3.0, 2.5), 0.15)])
def test_intervals_of_area_differences_hold_the_truth(distance: tuple[float, float], base: float) -> None:
    chance = np.random.default_rng(5)
    truth = np.diff(stats.norm.cdf(np.array(distance) / 2**0.5))[0]
    group, held, tried = np.repeat([0, 1], [500, 60]), 0, 0
    for _ in range(400):
        label = chance.random(560) < base
        score = chance.normal(label * np.array(distance)[group])
        counts = ScoreCounts.from_rows(label, score, group, 2)
        found, sizes = areas(counts), counts.sizes
        value, variance, freedom = (np.diag(one) for one in found)
        low, high = area_interval(value, variance, freedom, sizes[:, 1], sizes[:, 0], 0.95)
        if np.isnan(low).any():
            continue
        ends = mover(value[1], (low[1], high[1]), value[0], (low[0], high[0]))
        tried, held = tried + 1, held + bool(ends[0] <= truth <= ends[1])
    assert tried > 350
    assert held / tried > 0.92  # 95% with a standard error of 1.1%


@pytest.mark.parametrize("name", ["demographic_parity", "equal_opportunity", "equalized_odds"])
def test_the_band_of_a_gap_holds_the_truth_at_each_threshold(name: str) -> None:
    chance = np.random.default_rng(6)
    for gap in (0.0, 0.1):
        rates = np.array([[0.2, 0.6], [0.2 + gap, 0.6 + gap], [0.2, 0.6]])[:, :, None]  # groups, labels
        positive = chance.binomial(np.full((600, 3, 2, 1), 70), rates)[..., 0]
        tables = np.stack([70 - positive, positive], -1)
        enough = Enough.of(tables[0], 1, 10)
        found = band(name, Contrasts(tables, 1, enough, smooth=False), Contrasts(tables, 1, enough), 0.95)
        held = (found[1] <= gap + 1e-12) & (gap <= found[2])
        assert held.mean() > 0.93


def test_decisions_at_the_threshold_are_audited_as_predictions_would_be() -> None:
    rows, near = made(), 1 / 3

    def predicted(threshold: float, **options: Any) -> lh.AuditResult:
        decided = (rows["p"] >= threshold).astype(int)
        return lh.audit(rows["y"], decided, sensitive_features=rows["sex"], replicates=100, **options)

    given: dict[str, Any] = {"threshold": [near, 0.6, 0.333333], "min_count": 5}
    result = lh.audit(rows["y"], scores=rows["p"], sensitive_features=rows["sex"], replicates=100, **given)
    plain, later = predicted(near, min_count=5), predicted(0.6, min_count=5)
    assert (result.metrics, result.groups) == (plain.metrics, plain.groups)
    found = result.scores
    assert found is not None
    assert found.thresholds == tuple(given["threshold"])
    assert any("at threshold 0.6, the larger part" in one for one in result.sentences()[:3])
    for name in ("demographic_parity", "equalized_odds"):
        assert found.by_attribute["sex"].at[0.6][name] == later.metrics[name]
    names = {name for *_, name, _ in found.figures() if name.startswith("demographic_parity@0.3")}
    assert "Equal opportunity gap at 0." in result.text(all=True)
    assert names == {"demographic_parity@0.333333"}  # of the others; the first is the audit's own
    curve = found.by_attribute["sex"].curves["demographic_parity"]
    for at in (10, 50, 90):
        gap = predicted(curve.thresholds[at], min_count=5).metrics["demographic_parity"]
        assert curve.values[at] == pytest.approx(gap.value)


def test_a_reference_names_the_pairs_of_areas_and_a_decided_pair_is_said_first() -> None:
    """Groups t and u are tiny: the largest difference is one of theirs and undecided; that of a and b is decided."""
    chance = np.random.default_rng(1)
    group = np.repeat(["a", "b", "t", "u"], [3000, 3000, 24, 24])
    label = np.arange(len(group)) % 2
    score = chance.normal(np.select([group == "a", group == "t"], [1.2, 0.3], 0.8) * label)
    options: dict[str, Any] = {"threshold": 0, "sensitive_features": {"g": group}, "replicates": 100}
    part = scored(label, score, **options).by_attribute["g"]
    widest = max(part.pairs, key=lambda pair: abs(pair.area.value))
    assert widest.area.low < 0 < widest.area.high
    assert part.area_gap.value == pytest.approx(abs(widest.area.value))
    decided = [not pair.area.low <= 0 <= pair.area.high for pair in part.pairs]
    assert decided == sorted(decided, reverse=True)
    assert decided[0]
    assert part.pairs[0].groups == ("a", "b")
    assert " points higher, interval " in score_sentences("g", part)[0]
    named = scored(label, score, reference="b", **options).by_attribute["g"]
    assert [pair.groups[1] for pair in named.pairs] == ["b", "b", "b"]
    assert named.area_gap == part.area_gap
    of = {frozenset(pair.groups): pair.area for pair in part.pairs}
    for pair in named.pairs:  # three comparisons are allowed for, not six
        assert pair.area.high - pair.area.low < of[frozenset(pair.groups)].high - of[frozenset(pair.groups)].low


def test_log_odds_a_constant_score_and_a_threshold_out_of_reach() -> None:
    rows = made()
    options: dict[str, Any] = {"sensitive_features": rows["sex"], "replicates": 100}
    odds = lh.audit(rows["y"], scores=np.log(rows["p"] / (1 - rows["p"])), **options)
    assert odds.scores is not None
    assert odds.scores.thresholds == (0.0,)
    group = odds.scores.by_attribute["sex"].groups["f"]
    assert group.area.defined
    assert group.residual.reason == "the scores are not probabilities: some lie outside 0 to 1"
    assert "calibrated in each group" not in render(one_page(odds.to_dict()))
    flat = lh.audit(rows["y"], scores=np.full(len(rows), 0.3), **options)
    assert "Every score is 0.3: the scores carry no order." in flat.warnings
    json.dumps(flat.to_dict(), allow_nan=False)
    high = lh.audit(rows["y"], scores=rows["p"], threshold=2, **options)
    assert any("At threshold 2 no row is decided positive" in warning for warning in high.warnings)


def test_groups_too_small_to_compare_say_so() -> None:
    rows = made(200)
    rows.loc[:3, "sex"] = "x"
    part = scored(rows["y"], rows["p"], sensitive_features=rows["sex"]).by_attribute["sex"]
    assert not part.groups["x"].included
    assert not part.groups["x"].area.defined
    assert "fewer than 5 positives or negatives" in str(part.groups["x"].area.reason)
    alone = lh.audit(rows["y"], scores=rows["p"], sensitive_features=["all"] * 200)
    assert alone.scores is not None
    assert not alone.scores.by_attribute["group"].area_gap.defined
    assert "AUCs cannot be compared: fewer than two groups have 10 positives" in " ".join(str(alone).split())
    json.dumps(alone.to_dict(), allow_nan=False)
    rows.loc[4:100, "sex"] = "z"
    beside = lh.audit(rows["y"], scores=rows["p"], sensitive_features=rows["sex"], reference="x")
    assert "AUCs cannot be compared: the reference group has too few" in " ".join(str(beside).split())


def test_many_groups_and_many_rows_stay_cheap() -> None:
    chance, rows = np.random.default_rng(9), 5_000
    groups = {"g": chance.integers(0, 40, rows).astype(str)}
    part = scored(
        chance.integers(0, 2, rows), chance.random(rows), sensitive_features=groups, bins={"g": "values"}
    ).by_attribute["g"]
    assert 10 <= len(part.pairs) <= 12
    assert part.area_gap.low <= part.area_gap.value <= part.area_gap.high
    assert part.curves == {}
