"""Intervals of an explained gap: Fieller's of a ratio, and those of the largest of four contrasts."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.metrics.explained import fieller, gap_estimate, quantile


def test_fiellers_ends_are_the_ratios_that_the_draws_cannot_rule_out() -> None:
    draws = np.random.default_rng(0).multivariate_normal([1.2, 2.0], [[0.04, 0.01], [0.01, 0.09]], 5000)
    found = fieller(1.2, 2.0, draws, 1.96)
    assert found is not None
    assert found[0] < 0.6 < found[1]
    for ratio in found:
        assert abs(1.2 - ratio * 2.0) / (draws[:, 0] - ratio * draws[:, 1]).std(ddof=1) == pytest.approx(1.96)
    assert fieller(1.2, 0.5, draws, 1.96) is None  # 0.5 is less than 1.96 standard errors of 0.3


def test_a_gap_is_the_mean_size_of_both_differences() -> None:
    moves = np.random.default_rng(0).normal(0, 0.02, (2000, 2))
    found = gap_estimate(np.array([0.3, -0.1]), moves, 900, 400, 0.95, "why")
    assert found.value == pytest.approx(0.2)
    assert found.n == 900
    # One contrast is far the largest: its own spread, 0.02 / sqrt 2, decides.
    assert found.low == pytest.approx(0.2 - quantile(0.95, 400) * 0.02 / 2**0.5, abs=0.002)
    near = gap_estimate(np.array([0.01, 0.0]), moves, 900, 400, 0.95, "why")
    assert near.low == 0
    moves[:150] = np.nan
    assert gap_estimate(np.array([0.3, -0.1]), moves, 900, 400, 0.95, "why").reason == "why"
    assert gap_estimate(np.array([0.3, np.nan]), moves[150:], 900, 400, 0.95, "why").reason == "why"
