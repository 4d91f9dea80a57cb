"""Means counted batch by batch, and their intervals, against SciPy and formulas written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from levelhead.metrics.moments import Moments

ROWS = np.random.default_rng(0).lognormal(0, 1, 30)


def alone(values: np.ndarray) -> Moments:
    return Moments.of(np.zeros(len(values), np.int64), 1, [values])


def test_batches_that_are_added_are_the_whole() -> None:
    codes = np.arange(30) % 3
    whole = Moments.of(codes, 3, [ROWS, -(ROWS**2)])
    parts = Moments.of(codes[:2], 3, [ROWS[:2], -(ROWS[:2] ** 2)])
    parts = parts.add(Moments.of(codes[2:], 3, [ROWS[2:], -(ROWS[2:] ** 2)]))
    for name in ("rows", "mean", "squares", "cubes"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-10)


def test_the_skewness_is_that_of_scipy() -> None:
    assert alone(ROWS).skewness(0)[0] == pytest.approx(stats.skew(ROWS, bias=False))
    assert alone(ROWS[:2]).skewness(0)[0] == 0
    assert alone(np.ones(9)).skewness(0)[0] == 0


def test_rows_that_are_symmetric_have_students_interval() -> None:
    values = np.array([-3.0, -1, 0, 1, 3])
    found = alone(values).means(0, 0.9).at(0, 5)
    expected = stats.t.interval(0.9, 4, loc=0, scale=stats.sem(values))
    assert (found.value, found.low, found.high, found.n) == (0, *map(pytest.approx, expected), 5)
    assert math.isnan(alone(np.ones(5)).means(0, 0.95).low[0])


@pytest.mark.parametrize("skewed", [False, True])
def test_a_long_tail_has_halls_end_where_it_is_farther(skewed: bool) -> None:
    found, t, error = alone(ROWS).means(0, 0.95, skewed=skewed).at(0, 30), stats.t.ppf(0.975, 29), stats.sem(ROWS)
    k = (2 if skewed else 1.25 + 2.5 / 30) * stats.skew(ROWS, bias=False) / math.sqrt(30)
    above = -3 / k * (math.cbrt(1 + k * (-t - k / 6)) - 1)
    assert above > t
    high = ROWS.mean() + above * error
    assert found.high == pytest.approx(max(high, ROWS.mean() * math.exp(t * error / ROWS.mean())) if skewed else high)
    assert found.low == pytest.approx(ROWS.mean() - t * error)  # Hall's lower end is the nearer one
    assert alone(np.abs(ROWS - 1) ** 9).means(0, 0.95, skewed=True).low[0] == 0
