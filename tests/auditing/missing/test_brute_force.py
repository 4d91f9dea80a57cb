"""Bounds against linear programs and grids; estimators against populations whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

from levelhead.auditing.missing.bounds import by_shares, opportunity_bounds, parity_bounds
from levelhead.auditing.missing.labelled import by_labelled_rows, cross_fitted
from levelhead.auditing.missing.responses import Response, by_responses
from levelhead.auditing.missing.three_proxies import by_proxies

Array = NDArray[np.float64]


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


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_inverted_answers_give_the_population_back(groups: int) -> None:
    rng = np.random.default_rng(groups)
    true = rng.dirichlet(np.full(groups * 4, 3.0)).reshape(groups, 2, 2)
    matrix = Response(epsilon=1.5).matrix(groups)
    np.testing.assert_allclose(matrix.sum(1), 1)
    found = by_responses(1e6 * np.einsum("ij,iyh->jyh", matrix, true), matrix)
    rate = true[:, 1, 1] / true[:, 1].sum(1)
    for (a, b), one in found["equal_opportunity"].items():
        assert one.estimate.value == pytest.approx(rate[a] - rate[b], abs=1e-9)


def test_the_error_of_inverted_answers_is_that_of_many_samples() -> None:
    true = np.array([[[0.2, 0.1], [0.1, 0.2]], [[0.1, 0.1], [0.05, 0.15]]])
    matrix = Response(flip=0.2).matrix(2)
    seen = np.einsum("ij,iyh->jyh", matrix, true)
    rng = np.random.default_rng(0)
    found = [by_responses(rng.multinomial(3000, seen.ravel()).reshape(2, 2, 2), matrix) for _ in range(400)]
    values = [one["demographic_parity"][1, 0].estimate.value for one in found]
    errors = [one["demographic_parity"][1, 0].error for one in found]
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.1)


def rows_as_moments(a: Array, y: Array, hit: Array, h: Array, weight: Array) -> Array:
    out = np.zeros((2, 2, 2, 3, 3))
    for i in range(3):
        for j in range(3):
            np.add.at(out[..., i, j], (a, y, hit), weight**i * h**j)
    return out


def test_moments_give_what_rows_give() -> None:
    rng = np.random.default_rng(2)
    n, more = 400, 3000
    a, y, hit = (rng.integers(0, 2, n) for _ in range(3))
    h, other_hit, other_h = rng.random(n), rng.integers(0, 2, more), rng.random(more)
    h = 0.5 * h + 0.5 * a
    rest = np.zeros((2, 2, 3))
    for j in range(3):
        np.add.at(rest[..., j], (np.zeros(more, int), other_hit), other_h**j)
    found = by_labelled_rows(rows_as_moments(a, y, hit, h, np.ones(n)), rest)["demographic_parity"]
    rate, share = [hit[a == k].mean() for k in (0, 1)], a.mean()

    def psi(b: Array, yhat: Array) -> Array:
        return b * (yhat - rate[1]) / share - (1 - b) * (yhat - rate[0]) / (1 - share)

    true, mine, theirs = psi(a, hit), psi(h, hit), psi(other_h, other_hit)
    pooled = np.concatenate([mine, theirs]).var()
    lam = float(np.clip(np.cov(true, mine)[0, 1] / ((1 + n / more) * pooled), 0, 1))
    error = np.sqrt(np.var(true - lam * mine, ddof=1) / n + lam**2 * theirs.var(ddof=1) / more)
    assert found.lam == pytest.approx(lam)
    assert found.error == pytest.approx(error)
    assert found.estimate.value == pytest.approx(rate[1] - rate[0] + lam * (theirs.mean() - mine.mean()))


def test_equal_weights_change_next_to_nothing() -> None:
    rng = np.random.default_rng(3)
    n = 1000
    a, y, hit = (rng.integers(0, 2, n) for _ in range(3))
    h = np.where(rng.random(n) < 0.8, a, 1 - a).astype(float)
    rest = rows_as_moments(a, y, hit, h, np.ones(n)).sum(0)[..., 0, :] * 9
    weighted = by_labelled_rows(rows_as_moments(a, y, hit, h, np.full(n, 10.0)), rest, weighted=True)
    plain = by_labelled_rows(rows_as_moments(a, y, hit, h, np.ones(n)), rest)
    for gap, one in weighted.items():
        assert one.estimate.value == pytest.approx(plain[gap].estimate.value, abs=1e-6)
        assert one.error == pytest.approx(plain[gap].error, rel=0.02)


def test_a_useless_proxy_costs_nothing_and_a_cross_fitted_one_is_not_too_good() -> None:
    rng = np.random.default_rng(4)
    # 200 cells for 500 labelled rows: fitted on themselves they would look like the truth.
    labelled = rng.multinomial(500, np.full(5 * 2 * 200 * 4, 1 / 8000)).reshape(5, 2, 200, 2, 2).astype(float)
    rest = rng.multinomial(5000, np.full(200 * 4, 1 / 800)).reshape(200, 2, 2).astype(float)
    found = by_labelled_rows(*cross_fitted(np.repeat(labelled[..., None], 3, -1), rest))
    assert 0.97 < found["demographic_parity"].narrower <= 1.0


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (np.einsum("i,j,k,yh->ijkyh", *np.full((3, 2), 500.0), np.full((2, 2), 1e-6)), "may not agree more often"),
        (np.pad(np.full((1, 2, 2, 2, 2), 50.0), ((0, 1), *((0, 0),) * 4)), "proxy 1 never says one of the groups"),
        (np.einsum("ij,ikyh->ijkyh", np.eye(2), np.full((2, 2, 2, 2), 50.0)), "proxies 1 and 2 are equal in every row"),
    ],
)  # fmt: skip
def test_proxies_that_cannot_answer_are_refused(counts: Array, reason: str) -> None:
    answer = by_proxies(counts, mode="global", replicates=100)
    assert reason in answer.refused
    for by_pair in answer.gaps.values():
        assert by_pair[1, 0].refused
        assert np.isnan(by_pair[1, 0].value)
        assert reason in (by_pair[1, 0].reason or "")
