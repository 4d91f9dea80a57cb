"""The formulas of the implied gap: worked figures, and what they must agree with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from levelhead.metrics.implied import (
    Regression,
    area_of_counts,
    gap_of,
    implied_rates,
    model_rates,
    positive_rate,
    regress,
    separation,
    threshold_for,
)

AREA, BASE, SHARE = [0.85, 0.80], [0.65, 0.25], [0.6, 0.4]


def test_implied_rates_are_those_at_the_threshold_that_keeps_the_positive_rate() -> None:
    rates = implied_rates(AREA, BASE, SHARE, 0.477532)
    assert 100 * gap_of(rates) == pytest.approx(40.9048, abs=1e-3)
    # A drawn score that is calibrated inside both groups has these rates.
    rng, d = np.random.default_rng(0), separation(AREA)
    for a in (0, 1):
        for label, found in ((1, rates.true_positive), (-1, rates.false_positive)):
            ratio = rng.normal(label * d[a] ** 2 / 2, d[a], 200_000)
            assert (ratio + special.logit(BASE[a]) > 0).mean() == pytest.approx(found[a], abs=0.005)


def test_leading_axes_are_replicates() -> None:
    area, base = np.array([AREA, [0.7, 0.9]]), np.array([BASE, [0.3, 0.6]])
    rate = np.array([0.4, 0.5])
    both = implied_rates(area, base, SHARE, rate)
    for row in (0, 1):
        alone = implied_rates(area[row], base[row], SHARE, rate[row])
        assert both.true_positive[row] == pytest.approx(alone.true_positive)
        assert gap_of(both)[row] == pytest.approx(float(gap_of(alone)))


def test_equal_groups_have_no_gap() -> None:
    assert gap_of(implied_rates([0.8, 0.8], [0.3, 0.3], SHARE, 0.4)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("area", [0.5, 0.2, 1.0, np.nan])
def test_an_area_that_the_model_cannot_hold_is_undefined(area: float) -> None:
    assert np.isnan(separation(area))


def test_thresholds_reach_every_positive_rate() -> None:
    d, offset = separation(AREA), special.logit(BASE)
    for rate in (1e-6, 0.01, 0.5, 0.99, 1 - 1e-6):
        rates = model_rates(d, offset, threshold_for(d, offset, BASE, SHARE, rate))
        assert positive_rate(rates, BASE, SHARE) == pytest.approx(rate, abs=1e-9)


def test_the_area_of_counts_is_that_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(0)
    up, down = rng.integers(1, 6, 40), rng.integers(0, 5, 60)
    counts = [np.bincount(values, minlength=6).astype(float) for values in (up, down)]
    expected = stats.mannwhitneyu(up, down).statistic / (40 * 60)
    assert area_of_counts(*counts) == pytest.approx(expected)


def test_the_regression_is_where_the_score_equations_hold() -> None:
    rng = np.random.default_rng(0)
    score, rows = rng.normal(0, 1, (3, 50)), rng.integers(0, 9, (3, 50)).astype(float)
    positives = rng.binomial(rows.astype(int), special.expit(1.5 * score + np.array([[0.5], [0], [-1]]))).astype(float)
    fit = regress(score, positives, rows, Regression(np.zeros(()), np.zeros(3)), 60)
    left = positives - rows * special.expit(fit.slope * score + fit.intercept[:, None])
    assert left.sum(-1) == pytest.approx(0, abs=1e-8)
    assert (left * score).sum() == pytest.approx(0, abs=1e-8)


def test_a_score_that_separates_the_classes_has_no_regression() -> None:
    score = np.array([[-1.0, 0.0, 1.0]])
    for positives in ([[0.0, 0, 5]], [[0.0, 2, 5]]):  # all rows separated, and all but those of one value
        fit = regress(score, np.array(positives), np.full((1, 3), 5.0), Regression(np.zeros(()), np.zeros(1)), 60)
        assert np.isnan(fit.slope)
        assert np.isnan(fit.intercept).all()
