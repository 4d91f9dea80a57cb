"""Bounds of gaps against linear programs, grids and worked figures."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from levelhead.metrics.signed import rate_gap, rows_of
from levelhead.metrics.worst_case import bracket, by_shares, opportunity_bounds, parity_bounds

Array = NDArray[np.float64]
CLOSE = 1e-6


@pytest.mark.parametrize(
    ("rate", "shares", "expected"),
    [
        (0.3, (0.2, 0.8), 0.875),
        (0.3, (0.5, 0.5), 0.6),
        (0.05, (0.2, 0.8), 0.25),
        (0.12, (0.3, 0.3, 0.4), 0.4),
        (0.5, (0.1, 0.6, 0.3), 1),
    ],
)
def test_bounds_from_shares(rate: float, shares: tuple[float, ...], expected: float) -> None:
    assert parity_bounds(rate, shares)[..., 1].max(where=~np.eye(len(shares), dtype=bool), initial=-1) == pytest.approx(
        expected, abs=CLOSE
    )


def test_bounds_from_shares_have_two_ends() -> None:
    np.testing.assert_allclose(parity_bounds(0.3, (0.2, 0.8))[0, 1], [-0.375, 0.875], atol=CLOSE)


def strata() -> tuple[Array, Array, Array]:
    return np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.8]), np.array([0.1, 0.4, 0.9])


def test_bounds_from_strata_and_the_bracket() -> None:
    weight, rate, one = strata()
    shares = np.stack([1 - one, one], -1)
    np.testing.assert_allclose(parity_bounds(rate, shares, weight)[1, 0], [-0.015385, 0.819780], atol=CLOSE)
    np.testing.assert_allclose(parity_bounds(weight @ rate, weight @ shares)[1, 0], [-0.630769, 0.907692], atol=CLOSE)
    bins = 1e6 * weight[:, None, None] * np.stack([1 - rate, rate], -1)[..., None] * one[:, None, None] ** np.arange(3)
    weighted, linear = bracket(bins.sum(0), bins, replicates=20)
    assert weighted.value == pytest.approx(0.309890, abs=CLOSE)
    assert linear.value == pytest.approx(0.762162, abs=CLOSE)
    counts = np.zeros((2, 2, 2))
    for share, selected, probability in zip(weight, rate, one, strict=True):
        counts[int(probability >= 0.5), 1] += share * np.array([1 - selected, selected])
    assert rate_gap(rows_of(counts, "demographic_parity")) == pytest.approx(0.4875, abs=CLOSE)


@pytest.mark.parametrize(("share", "expected"), [(0.2, (-1, 0.5)), (0.5, (-1, 1))])
def test_bounds_of_equal_opportunity(share: float, expected: tuple[float, float]) -> None:
    assert opportunity_bounds([[0.5, 0.1], [0.1, 0.3]], share) == pytest.approx(expected, abs=CLOSE)


def test_bounds_of_equal_opportunity_over_strata_and_within_positives() -> None:
    cells = [[[0.5, 0.1], [0.1, 0.3]], [[0.2, 0.1], [0.3, 0.4]]]
    found = opportunity_bounds(cells, [0.3, 0.8], [0.6, 0.4])
    assert found == pytest.approx((-0.692308, 0.894737), abs=CLOSE)
    np.testing.assert_allclose(parity_bounds(0.75, (0.8, 0.2))[1, 0], [-0.9375, 0.3125], atol=CLOSE)


def test_bounds_of_rows_hold_those_of_probabilities() -> None:
    found = by_shares([[400, 100], [100, 200]], (0.8, 0.2))
    assert found["demographic_parity"][1, 0].high == pytest.approx(parity_bounds(0.375, (0.8, 0.2))[1, 0, 1])
    for by_pair in found.values():
        figure = by_pair[1, 0]
        assert figure.reach_low <= figure.low <= figure.high <= figure.reach_high


def parity_by_program(rate: Array, shares: Array, weight: Array, a: int, b: int) -> tuple[float, float]:
    """The extremes of f_a - f_b over all P(group, prediction | stratum) with the known margins."""
    strata, groups = shares.shape
    total = weight @ shares
    cost = np.zeros((strata, groups, 2))
    cost[:, a, 1], cost[:, b, 1] = weight / total[a], -weight / total[b]
    rows, values = [], []
    for z in range(strata):
        for k in range(groups):
            one = np.zeros_like(cost)
            one[z, k] = 1
            rows.append(one.ravel())
            values.append(shares[z, k])
        one = np.zeros_like(cost)
        one[z, :, 1] = 1
        rows.append(one.ravel())
        values.append(rate[z])
    ends = [
        optimize.linprog(sign * cost.ravel(), A_eq=np.array(rows), b_eq=values, bounds=(0, 1)).fun * sign
        for sign in (1, -1)
    ]
    return ends[0], ends[1]


@pytest.mark.parametrize("groups", [2, 3])
def test_parity_bounds_are_those_of_a_linear_program(groups: int) -> None:
    rng = np.random.default_rng(groups)
    for _ in range(30):
        strata = int(rng.integers(1, 5))
        rate, shares = rng.random(strata), rng.dirichlet(np.ones(groups), strata)
        weight = rng.dirichlet(np.ones(strata))
        found = parity_bounds(rate, shares, weight)[0, 1]
        np.testing.assert_allclose(found, parity_by_program(rate, shares, weight, 0, 1), atol=1e-7)


def test_opportunity_bounds_are_those_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    steps = np.linspace(0, 1, 41)
    for _ in range(8):
        cells, share = rng.dirichlet(np.ones(4), 2).reshape(2, 2, 2), rng.random(2)
        weight = rng.dirichlet(np.ones(2))
        hit, miss, negative = cells[:, 1, 1], cells[:, 1, 0], cells[:, 0].sum(-1)
        options = []
        for z in range(2):
            u, v = np.meshgrid(steps * hit[z], steps * miss[z])
            left = share[z] - u - v  # what the group has among the negatives
            ok = (left >= -1e-12) & (left <= negative[z] + 1e-12)
            options.append(weight[z] * np.stack([u[ok], v[ok]], -1))
        both = options[0][:, None] + options[1][None]
        mine, missed = both[..., 0], both[..., 1]
        other, rest = weight @ hit - mine, weight @ (hit + miss) - mine - missed
        keep = (mine + missed > 1e-9) & (rest > 1e-9)
        gap = mine[keep] / (mine + missed)[keep] - other[keep] / rest[keep]
        low, high = opportunity_bounds(cells, share, weight)
        assert low <= gap.min() + 1e-9 <= low + 0.08
        assert high >= gap.max() - 1e-9 >= high - 0.08


def test_bounds_of_three_groups_hold_every_assignment_of_rows() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        joint = rng.integers(1, 40, (3, 2, 2))  # (group, label, prediction)
        found = by_shares(joint.sum(0), joint.sum((1, 2)) / joint.sum())
        of_gap = {"demographic_parity": joint.sum(1), "equal_opportunity": joint[:, 1]}
        for gap, own in (of_gap | {"false_positive_rate": joint[:, 0]}).items():
            rate = own[:, 1] / own.sum(1)
            for (a, b), one in found[gap].items():
                assert one.low - 1e-12 <= rate[a] - rate[b] <= one.high + 1e-12
                assert one.reach_low <= one.low <= one.high <= one.reach_high


def test_two_strata_of_one_kind_are_one_stratum() -> None:
    found = [by_shares(np.array(one), (0.3, 0.7)) for one in ([[40, 10], [20, 30]], [[80, 20], [40, 60]])]
    doubled = by_shares(np.array([[[40, 10], [20, 30]]] * 2), np.array([(0.3, 0.7)] * 2))
    for gap in found[0]:
        assert found[0][gap][1, 0].low == pytest.approx(found[1][gap][1, 0].low)
        assert doubled[gap][1, 0].high == pytest.approx(found[1][gap][1, 0].high)
