"""Trends of differences and control charts, beside NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from levelhead.metrics.trend import trend


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(20, 400, (int(rng.integers(3, 20)), 2))
    return rng.binomial(rows, rng.uniform(0.1, 0.9, 2)), rows


@pytest.mark.parametrize("seed", range(30))
def test_the_line_is_numpys_and_the_interval_no_narrower(seed: int) -> None:
    hits, rows = drawn(seed)
    found, share = trend(hits, rows), (hits.sum(0) + 0.5) / (rows.sum(0) + 1)
    gap, at = hits[:, 0] / rows[:, 0] - hits[:, 1] / rows[:, 1], np.arange(len(hits))
    weight = 1 / (share * (1 - share) / rows).sum(1)
    line, covariance = np.polyfit(at, gap, 1, w=weight**0.5, cov="unscaled")
    error = covariance[0, 0] ** 0.5
    assert found.slope.value == pytest.approx(line[0], abs=1e-10)
    assert found.line == pytest.approx(np.polyval(line, at[[0, -1]]), abs=1e-10)
    assert found.slope.high - found.slope.value >= 1.9599 * error
    assert (found.slope.excludes_zero, found.p_value < 0.05) in ((True, True), (False, False))


@pytest.mark.parametrize("seed", range(20))
def test_beside_a_known_rate_the_test_is_cochrans_and_armitages(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(200, 400, 8)
    hits = rng.binomial(rows, 0.4)
    known = np.full(8, 10**15)
    found = trend(np.stack([hits, known * 2 // 5], 1), np.stack([rows, known], 1))
    # N times the squared correlation of period and outcome over all rows.
    period = np.repeat(np.arange(8), rows)
    outcome = np.concatenate([np.arange(n) < x for n, x in zip(rows, hits, strict=True)])
    theirs = stats.chi2.sf(len(period) * stats.pearsonr(period, outcome).statistic ** 2, 1)
    assert found.p_value >= theirs - 0.003
    if found.scatter >= 0.05:
        assert found.p_value == pytest.approx(theirs, abs=0.02)


def test_a_step_is_found_in_the_period_in_which_it_is() -> None:
    rows = np.full((12, 2), 1000)
    hits = np.stack([np.where(np.arange(12) < 7, 300, 150), np.full(12, 300)], 1)
    found = trend(hits, rows)
    assert np.flatnonzero(found.outside)[0] == 7
    assert np.isnan(found.limits[:, 0]).all()
    assert found.scatter < 0.05  # a step is no line


def test_few_periods_have_no_trend() -> None:
    one = trend(np.array([[5, 5]]), np.array([[20, 20]]))
    assert not one.outside.any()
    assert one.slope.reason == "fewer than 3 periods"
    two = trend(np.array([[0, 100], [100, 100]]), np.array([[100, 100], [100, 100]]))
    assert two.outside.tolist() == [False, True]


def test_rates_of_zero_and_one_are_no_trend() -> None:
    found = trend(np.array([[0, 10]] * 6), np.array([[10, 10]] * 6))
    assert (found.slope.value, found.outside.any()) == (pytest.approx(0, abs=1e-12), False)
    assert found.slope.low < 0 < found.slope.high
