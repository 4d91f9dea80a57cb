"""Bounds of gaps against linear programs, grids and worked figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from levelhead.metrics.between import wilson
from levelhead.metrics.worst_case import (
    DEALS,
    by_probabilities,
    by_shares,
    parity_bounds,
)

Array = NDArray[np.float64]


def opportunity(table: object, share: float) -> tuple[float, float]:
    """Bounds of so many rows that their numbers are the probabilities: TPR of group 1 less that of the other."""
    found = by_shares(1e9 * np.array(table), (1 - share, share))["equal_opportunity"][1, 0]
    return found.low, found.high


def of_strata(cells: Array, shares: Array, **options: Any) -> dict[str, Any]:
    """Bounds by rows (strata, label, prediction) and the shares (strata, groups) in each, of two groups."""
    each = np.concatenate([np.ones((len(shares), 1)), shares], 1)
    outer = each[:, None, None, :, None] * each[:, None, None, None, :]
    found, _ = by_probabilities(cells[..., None, None] * outer, **options)
    return {gap: by_pair[1, 0] for gap, by_pair in found.items()}


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


@pytest.mark.parametrize("strata", [1, 2, 4])
@pytest.mark.parametrize("groups", [2, 3])
def test_parity_bounds_are_those_of_a_linear_program(groups: int, strata: int) -> None:
    rng = np.random.default_rng(groups)
    for _ in range(10):
        rate, shares = rng.random(strata), rng.dirichlet(np.ones(groups), strata)
        weight = rng.dirichlet(np.ones(strata))
        expected = parity_by_program(rate, shares, weight, 1, 0)
        cells = np.zeros((strata, 2, 2))
        cells[:, 1] = np.stack([1e9 * weight * (1 - rate), 1e9 * weight * rate], -1)
        found = of_strata(cells, shares)["demographic_parity"]
        np.testing.assert_allclose((found.low, found.high), expected, atol=1e-7)
        if strata == 1:
            np.testing.assert_allclose(parity_bounds(rate, shares[0])[1, 0], expected, atol=1e-7)


def test_opportunity_bounds_are_those_of_a_grid() -> None:
    rng = np.random.default_rng(0)
    steps = np.linspace(0, 1, 401)
    for _ in range(8):
        cells, share = rng.dirichlet(np.ones(4)).reshape(2, 2), rng.random()
        hit, miss, negative = cells[1, 1], cells[1, 0], cells[0].sum()
        u, v = np.meshgrid(steps * hit, steps * miss)
        left = share - u - v  # what the group has among the negatives
        other, rest = hit - u, hit + miss - u - v
        keep = (left >= -1e-12) & (left <= negative + 1e-12) & (u + v > 1e-9) & (rest > 1e-9)
        gap = u[keep] / (u + v)[keep] - other[keep] / rest[keep]
        low, high = opportunity(cells, share)
        assert low <= gap.min() + 1e-9 <= low + 0.08
        assert high >= gap.max() - 1e-9 >= high - 0.08


def test_bounds_of_three_groups_hold_every_assignment_of_rows() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        joint = rng.integers(1, 40, (3, 2, 2))  # (group, label, prediction)
        found = by_shares(joint.sum(0), joint.sum((1, 2)) / joint.sum())
        of_gap = {"demographic_parity": joint.sum(1), "equal_opportunity": joint[:, 1]}
        for gap, own in (of_gap | {"false_positive_rate": joint[:, 0]}).items():
            rate = own[:, 1] / own.sum(1)
            for (a, b), one in found[gap].items():
                assert one.low - 1e-12 <= rate[a] - rate[b] <= one.high + 1e-12
                assert one.reach_low <= one.low <= one.high <= one.reach_high


def test_the_reach_of_parity_is_its_extreme_over_the_rates_that_fit() -> None:
    rng = np.random.default_rng(7)
    for _ in range(30):
        counts, shares = rng.integers(1, 30, (2, 2)), rng.dirichlet(np.ones(3))
        found = by_shares(counts, shares, level=0.9, assumes="shares")["demographic_parity"]
        rates = np.linspace(*wilson(counts[:, 1].sum(), counts.sum(), 0.9), 2001)
        for (a, b), one in found.items():
            p, q = shares[a], shares[b]
            up = np.minimum(rates, p) / p - np.maximum(0, rates + q - 1) / q
            down = np.maximum(0, rates + p - 1) / p - np.minimum(rates, q) / q
            assert (one.reach_low, one.reach_high) == pytest.approx((down.min(), up.max()), abs=5e-3)
            assert one.reach_low <= down.min() + 1e-6
            assert one.reach_high >= up.max() - 1e-6
            assert (one.n, one.assumes) == (counts.sum(), "shares")
            assert one.largest_reach == max(abs(one.reach_low), abs(one.reach_high))


def ends_of(hit: Array, miss: Array, negative: float, p: float, q: float, *, two: bool) -> tuple[float, float]:
    """Least and largest TPR of one group less another's, of shares p and q; hits and misses lie between two ends."""

    def rate(first: float, second: float, p: float) -> float:
        """The largest share of ``first`` among a group's rows with the label, which has as few others as can be."""
        mine = min(first, p)
        return mine / (mine + min(max(0.0, p - negative - mine), second))

    high, low = rate(hit[1], miss[1], p), 1 - rate(miss[1], hit[1], p)
    if not two:
        return low - rate(hit[1], miss[1], q), high - (1 - rate(miss[1], hit[1], q))
    mine, missed = min(hit[1], p), min(miss[1], p)  # what one group has, the other has not
    others = miss[1] - min(max(0.0, p - negative - mine), miss[1])
    high -= max(0.0, hit[0] - p) / (max(0.0, hit[0] - p) + others)
    others = hit[1] - min(max(0.0, p - negative - missed), hit[1])
    return low - others / (others + max(0.0, miss[0] - p)), high


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.5, 0.3, 0.2), (0.85, 0.1, 0.05)])
def test_bounds_of_opportunity_take_each_cell_at_its_value_and_their_reach_at_its_extreme(
    shares: tuple[float, ...],
) -> None:
    counts = np.array([[60.0, 20.0], [30.0, 50.0]])
    found = by_shares(counts, shares, level=0.94)
    for gap, own in (("equal_opportunity", counts), ("false_positive_rate", counts[::-1])):
        hit, miss, negative = (wilson(rows, 160, 0.98) for rows in (own[1, 1], own[1, 0], own[0].sum()))
        exact = [np.repeat(one / 160, 2) for one in own[1, ::-1]]
        for (a, b), one in found[gap].items():
            p, q, two = shares[a], shares[b], len(shares) == 2
            low, high = ends_of(*exact, own[0].sum() / 160, p, q, two=two)
            assert (one.low, one.high) == pytest.approx((max(-1, low), min(1, high)), abs=1e-9)
            low, high = ends_of(np.array(hit), np.array(miss), negative[1], p, q, two=two)
            assert one.reach_low == pytest.approx(max(-1, min(one.low, low)), abs=1e-9)
            assert one.reach_high == pytest.approx(min(1, max(one.high, high)), abs=1e-9)
            assert one.n == own[1].sum()


def test_rates_of_a_label_without_rows_may_be_anything_that_is_finite() -> None:
    for shares in ((0.4, 0.6), (0.2, 0.3, 0.5)):
        for one in by_shares([[60, 40], [0, 0]], shares)["equal_opportunity"].values():
            assert one.n == 0
            assert -1 <= one.reach_low <= one.low <= one.high <= one.reach_high <= 1
            assert one.reach_high - one.reach_low > 0.9


# --------------------------------------------------------------------------------------- probabilities of each row


def drawn_rows(seed: int, n: int, cells: int, groups: int = 3) -> tuple[Array, Array, Array, Array]:
    """Cells (n,), probabilities (n, groups), labels and predictions of rows, whose group decides nothing."""
    rng = np.random.default_rng(seed)
    kinds = rng.dirichlet(np.ones(groups), cells)
    cell = rng.integers(0, cells, n)
    label = rng.random(n) < 0.2 + 0.5 * kinds[cell, 0]
    prediction = rng.random(n) < 0.15 + 0.4 * label + 0.3 * kinds[cell, -1]
    return cell, kinds[cell], label.astype(int), prediction.astype(int)


def sums_of(cell: Array, p: Array, label: Array, prediction: Array) -> Array:
    sums = np.zeros((int(cell.max()) + 1, 2, 2, p.shape[1] + 1, p.shape[1] + 1))
    for z, one, y, hit in zip(cell, p, label, prediction, strict=True):
        vector = np.array([1.0, *one])
        sums[z, y, hit] += vector[:, None] * vector
    return sums


def test_the_weighted_estimate_is_that_of_rows() -> None:
    cell, p, label, prediction = drawn_rows(1, 900, 40)
    _, weighted = by_probabilities(sums_of(cell, p, label, prediction), level=0.9)
    z = -stats.norm.ppf(0.1 / 3 / 2)  # three pairs
    for gap, inside in (
        ("demographic_parity", label >= 0), ("equal_opportunity", label == 1), ("false_positive_rate", label == 0)
    ):  # fmt: skip
        rate = (p * (inside * prediction)[:, None]).sum(0) / (p * inside[:, None]).sum(0)
        influence = p * (inside[:, None] * (prediction[:, None] - rate)) / (p * inside[:, None]).mean(0)
        for (a, b), one in weighted[gap].items():
            assert one.value == pytest.approx(rate[a] - rate[b], abs=1e-12)
            own = influence[:, a] - influence[:, b]
            t = stats.t.ppf(stats.norm.cdf(z), (own**2).sum() ** 2 / (own**4).sum())
            error = own.std() / math.sqrt(900)
            assert one.high - one.value == pytest.approx(t * error, rel=0.02)  # two rows of each kind are added
            assert one.n == inside.sum()


def test_the_interval_of_bounds_is_that_of_means_of_rows() -> None:
    """With another loop, over rows: each half takes the choices of the other."""
    cell, p, label, prediction = drawn_rows(2, 700, 25)
    found, _ = by_probabilities(sums_of(cell, p, label, prediction), level=0.95, seed=5)
    counts = np.zeros((25, 2, 2), int)
    np.add.at(counts, (cell, label, prediction), 1)
    dealt = np.random.default_rng(5).binomial(counts, 0.5, (DEALS, *counts.shape))
    all_ends = [ends_of_rows(first, cell, p, label, prediction) for first in dealt]
    z = stats.norm.ppf(1 - 0.05 / 3 / 2)
    for gap in ("demographic_parity", "equal_opportunity"):
        for (a, b), one in found[gap].items():
            high, reach = [], []
            for ends in all_ends:
                most, least = ends[gap, 1], ends[gap, 0]
                influence = most[1][..., a] + least[1][..., b]  # (3, rows)
                by_kind = np.zeros((3, 25, 2, 2))
                for who in range(3):
                    np.add.at(by_kind[who], (cell, label, prediction), influence[who] ** 2)
                reach.append(z * math.sqrt(by_kind.max(0).sum()) / 700)
                high.append(most[0][a] - 1 + least[0][b] + reach[-1])
            expected = max(one.high, min(1, float(np.mean(high))))
            assert one.reach_high == pytest.approx(expected, abs=0.1 * float(np.mean(reach)) + 1e-9)


def ends_of_rows(first: Array, cell: Array, p: Array, label: Array, prediction: Array) -> dict[tuple[str, int], Any]:
    """The largest rates, and misses, of each group by rows assigned to halves, and the influence of each row."""
    half, seen = np.ones(700, int), np.zeros_like(first)
    for row, key in enumerate(zip(cell, label, prediction, strict=True)):
        half[row] = 0 if seen[key] < first[key] else 1
        seen[key] += 1
    ends: dict[tuple[str, int], Any] = {}
    for gap, inside in (("demographic_parity", label >= 0), ("equal_opportunity", label == 1)):
        for side in (1, 0):
            hit, miss = (inside & (prediction == one) for one in (side, 1 - side))
            up, down = np.zeros((3, 700, 3)), np.zeros((3, 700, 3))  # by the choice of each half, and of doubt
            for z in range(25):
                here, q = cell == z, p[cell == z][0]
                reach = 2 * np.sqrt(q * (1 - q) / here.sum())
                for who in range(3):
                    others = here & (half == 1 - who) if who < 2 else here
                    drawn = 2 if who < 2 else 0
                    one, two = (
                        ((others & of).sum() + drawn * of.mean()) / (others.sum() + drawn) for of in (hit, miss)
                    )
                    more = reach if who == 2 else 0
                    up[who, here] = np.where(one < q + more, hit[here, None], q)
                    down[who, here] = np.where(q - 1 + two + more > 0, q - 1 + miss[here, None], 0)
            own = [np.where((half == 0)[:, None], one[0], one[1]).mean(0) for one in (up, down)]
            rate = own[0] / (own[0] + np.maximum(0, own[1]))
            ends[gap, side] = rate, ((1 - rate) * up - rate * down) / (own[0] + np.maximum(0, own[1]))
    return ends


def test_the_interval_does_not_grow_with_the_number_of_cells() -> None:
    """16,000 rows in 100 cells: projected intervals added 40 points, and the standard deviation is below one."""
    rng = np.random.default_rng(3)
    share = np.linspace(0.05, 0.95, 100)
    rate = 0.2 + 0.3 * share
    hits = rng.binomial(160, rate)
    counts = np.zeros((100, 2, 2))
    counts[:, 1, 0], counts[:, 1, 1] = 160 - hits, hits
    shares = np.stack([1 - share, share], -1)
    found = of_strata(counts, shares)["demographic_parity"]
    assert 0 <= found.low - found.reach_low < 0.04
    assert 0 <= found.reach_high - found.high < 0.04
    low, high = parity_by_program(rate, shares, np.full(100, 0.01), 1, 0)
    assert found.reach_low <= low <= high <= found.reach_high


def test_a_label_without_rows_is_undefined() -> None:
    cell, p, _, prediction = drawn_rows(4, 60, 12, 2)
    bounds, weighted = by_probabilities(sums_of(cell, p, np.zeros(60, int), prediction))
    assert weighted["equal_opportunity"][1, 0].reason == "no row has this label"
    assert (bounds["equal_opportunity"][1, 0].reach_low, bounds["equal_opportunity"][1, 0].reach_high) == (-1, 1)
