"""Rows and training seeds in one interval: what is noise of a row for one seed counts once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from levelhead.metrics.paired import Paired
from levelhead.metrics.ranking import _row_variance
from levelhead.metrics.ranking import seed_by_row as seed_by_row_of_areas
from levelhead.metrics.seeds import OverSeeds, seed_by_row

# Differences of three seeds, and how four resamples of the rows move each.
D = np.array([0.02, 0.05, 0.08])
MOVES = np.array([[0.03, -0.03, 0.01, -0.01], [0.01, -0.01, 0.03, -0.03], [0.02, 0.0, -0.02, 0.0]])


def test_the_noise_of_seed_and_row_counts_once() -> None:
    seeds = len(D)
    covariance = np.cov(MOVES, bias=True)
    v = np.trace(covariance) / seeds
    c = (covariance.sum() - np.trace(covariance)) / (seeds * (seeds - 1))
    assert (v, c) == (pytest.approx(4e-4), pytest.approx(1.0e-4, abs=1e-4))
    assert seed_by_row(MOVES) == pytest.approx(v - c)
    rows = MOVES.mean(0).var()
    assert rows == pytest.approx((v + (seeds - 1) * c) / seeds)
    s2 = 9e-4  # of 2, 5 and 8 points
    joined = OverSeeds.of([D], [seed_by_row(MOVES)]).join(rows)
    assert joined.variance == pytest.approx(rows + (s2 - (v - c)) / seeds)
    assert joined.variance == pytest.approx(c + s2 / seeds)
    # Seeds that agree better than the rows alone would let them add nothing, and take nothing away.
    alike = OverSeeds.of([D / 10], [seed_by_row(MOVES)]).join(rows)
    assert alike.variance == pytest.approx(rows)


def test_degrees_of_freedom_are_those_of_the_whole_variance_over_seeds() -> None:
    figures = np.array([0.0, 0.02, 0.04, 0.06, 0.08])  # s2 = 1e-3, and of the mean 2e-4
    joined = OverSeeds.of([figures], [5e-4]).join(1e-4)
    assert joined.variance == pytest.approx(1e-4 + 1e-4)
    assert joined.degrees_of_freedom == pytest.approx(2e-4**2 / (2e-4**2 / 4))
    assert joined.arm(0.95) == pytest.approx(stats.t.ppf(0.975, 4) * math.sqrt(2e-4))
    # Where the seeds add nothing the rows alone decide.
    assert OverSeeds.of([figures], [2e-3]).join(1e-4).degrees_of_freedom == math.inf


def test_two_seeds_do_not_vouch_for_their_own_variance() -> None:
    figures = np.array([0.0, 0.02])  # s2 / S = 1e-4, on one degree of freedom
    joined = OverSeeds.of([figures], [0.0]).join(1e-4)
    wide = (stats.norm.ppf(0.975) + stats.t.ppf(0.975, 1)) / 2
    assert joined.critical(0.05) == pytest.approx(wide)
    assert joined.arm(0.95) == pytest.approx(wide * math.sqrt(2e-4))
    assert joined.p_value(joined.arm(0.95)) == pytest.approx(0.05)
    # Two methods with two seeds each: Welch's degrees of freedom for the part of the seeds.
    both = OverSeeds.of([figures, figures], [0.0, 0.0]).join(2e-4)
    assert both.critical(0.05) == pytest.approx((stats.norm.ppf(0.975) + stats.t.ppf(0.975, 2)) / 2)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_the_p_value_is_where_the_interval_ends_at_zero(seeds: int) -> None:
    joined = OverSeeds.of([np.linspace(0, 0.1, seeds)], [1e-4]).join(3e-4)
    for level in (0.5, 0.9, 0.99):
        assert joined.p_value(joined.arm(level)) == pytest.approx(1 - level)
    assert joined.p_value(0.0) == 1.0
    assert joined.p_value(1e9) < 1e-6


def test_predictions_without_any_spread_differ_or_do_not() -> None:
    joined = OverSeeds.of([np.zeros(2)], [0.0]).join(0.0)
    assert (joined.p_value(0.0), joined.p_value(0.1), joined.arm(0.95)) == (1.0, 0.0, 0.0)


def test_the_seeds_of_areas_share_what_the_rows_do_to_all_of_them() -> None:
    rng = np.random.default_rng(0)
    shared_up, shared_down = rng.random(40), rng.random(60)
    up, down = np.stack([shared_up] * 3), np.stack([shared_down] * 3)
    assert seed_by_row_of_areas(up, down) == pytest.approx(0, abs=1e-15)
    up, down = rng.random((3, 40)), rng.random((3, 60))
    covariance = np.cov(up) / 40 + np.cov(down) / 60
    v = np.trace(covariance) / 3
    c = (covariance.sum() - np.trace(covariance)) / 6
    assert seed_by_row_of_areas(up, down) == pytest.approx(v - c)
    assert _row_variance(up.mean(0), down.mean(0))[0] == pytest.approx((v + 2 * c) / 3)


@pytest.mark.slow
def test_with_five_seeds_a_true_null_is_rejected_about_as_often_as_the_level_says() -> None:
    """benchmarks/seeds.py does this with 2,000 comparisons in each of many cells."""
    rng = np.random.default_rng(2)
    label, group = np.arange(240) % 2, np.arange(240) // 2 % 2
    rejected = 0
    for trial in range(200):
        methods = {name: np.where(rng.random((5, 240)) < 0.2, 1 - label, label) for name in ("a", "b")}
        table = Paired.build(label, group, methods, None, 0.95, 100, trial)
        rejected += table.difference("accuracy", "b", "a").p_value < 0.05
    assert 2 <= rejected <= 20
