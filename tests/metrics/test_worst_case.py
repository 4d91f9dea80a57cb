"""Bounds of gaps against linear programs, grids and worked figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from levelhead.metrics.between import wilson
from levelhead.metrics.worst_case import (
    DEALS,
    _of_sizes,
    _opportunity,
    _opportunity_parts,
    _outer,
    _outer_parts,
    bracket,
    by_probabilities,
    by_shares,
    parity_bounds,
    sign_conditions,
)

Array = NDArray[np.float64]


def opportunity(table: object, share: object) -> tuple[float, float]:
    """Bounds of so many rows that their numbers are the probabilities: TPR of group 1 less that of the other."""
    one = np.atleast_1d(share)
    found = by_shares(1e9 * np.reshape(table, (-1, 2, 2)), np.stack([1 - one, one], -1))["equal_opportunity"][1, 0]
    return found.low, found.high


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
        low, high = opportunity(weight[:, None, None] * cells, share)
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


def test_the_interval_of_a_bracket_is_that_of_resampled_rows() -> None:
    b = np.array([0.1, 0.4, 0.9])
    rows = np.array([[70.0, 30.0], [40.0, 60.0], [15.0, 85.0]])  # (b, prediction)
    bins = rows[..., None] * b[:, None, None] ** np.arange(3)
    found = bracket(bins.sum(0), bins, level=0.9, replicates=400, seed=3)

    def ends(counts: Array) -> tuple[float, float]:
        n, mean = counts.sum(), counts.sum(1) @ b / counts.sum()
        covariance = (counts[:, 1] * b).sum() / n - mean * counts[:, 1].sum() / n
        return covariance / (mean * (1 - mean)), covariance / (counts.sum(1) @ (b - mean) ** 2 / n)

    drawn = np.random.default_rng(3).multinomial(300, rows.ravel() / 300, size=400).reshape(-1, 3, 2)
    replicates = np.array([ends(one) for one in drawn])
    for at, figure in enumerate(found):
        value = ends(rows)[at]
        low, high = np.quantile(replicates[:, at], [0.05, 0.95]) + value - np.median(replicates[:, at])
        assert (figure.value, figure.low, figure.high) == pytest.approx((value, low, high), abs=1e-9)
        assert figure.n == 300
    assert [one.refused for one in bracket(bins[1], bins[1:2])] == [True, True]  # b is 0.4 in every row


def test_the_signs_of_a_brackets_conditions_are_those_of_one_sided_tests() -> None:
    rng = np.random.default_rng(1)
    signs = set()
    for _ in range(300):
        n = int(rng.integers(30, 200))
        b = rng.random(n)
        a = (rng.random(n) < b + rng.uniform(-0.3, 0.3)).astype(int)
        hit = (rng.random(n) < 0.5 + rng.uniform(-0.4, 0.4) * (b - 0.5) + rng.uniform(-0.2, 0.2) * a).astype(int)
        sums = np.zeros((2, 2, 3))
        for j in range(3):
            np.add.at(sums[..., j], (a, hit), b**j)
        own = np.empty(n)
        for k in (0, 1):
            inside = a == k
            own[inside] = (hit[inside] - hit[inside].mean()) * (b[inside] - b[inside].mean())
        t = [one.mean() / one.std() * np.sqrt(n) for one in ((a - b) * hit, own)]
        expected = tuple(int(np.sign(one)) if abs(one) > 1.645 else 0 for one in t)
        assert sign_conditions(sums) == expected
        signs.add(expected)
    assert len(signs) == 9
    assert sign_conditions(np.stack([np.full((2, 3), 5.0), [[0, 0, 0], [1, 0.5, 0.25]]])) == (0, 0)


def slopes_of(bound: Callable[[Array], Any], weight: Array) -> Array:
    """How much a bound changes with the weight of each stratum, (strata, ...), by differences."""
    steps = 1e-6 * np.eye(len(weight))
    return np.array([(np.asarray(bound(weight + one)) - np.asarray(bound(weight - one))) / 2e-6 for one in steps])


@pytest.mark.parametrize("groups", [2, 3])
def test_the_error_of_the_weights_of_strata_is_that_of_slopes(groups: int) -> None:
    rng = np.random.default_rng(11)
    for _ in range(20):
        cells, shares = rng.dirichlet(np.ones(4), 3).reshape(3, 2, 2), rng.dirichlet(np.ones(groups), 3)
        weight, a, b = rng.dirichlet(np.ones(3)), shares[:, 0], shares[:, 1]
        hit, miss, negative = cells[:, 1, 1], cells[:, 1, 0], cells[:, 0].sum(-1)
        if groups == 2:
            parts, ends = _opportunity_parts((hit, hit), (miss, miss), negative, a), _opportunity
        else:
            parts, ends = _outer_parts(hit, miss, negative, a, b), _outer
        slopes = slopes_of(lambda w, parts=parts, ends=ends: ends(parts, w), weight)
        error = np.sqrt(weight @ slopes**2 / 700)
        assert [_of_sizes(one, weight, 700) for one in parts] == pytest.approx(error, abs=1e-6)


@pytest.mark.parametrize("stratified", [True, False])
def test_bounds_hold_where_the_sizes_of_strata_are_chance(stratified: bool) -> None:
    """Decisions go by stratum, and groups nearly do: intervals of the rates alone are too narrow."""
    rng = np.random.default_rng(12)
    rate, share = np.array([0.98, 0.02, 0.98, 0.02]), np.array([0.97, 0.97, 0.03, 0.03])
    shares, weight = np.stack([1 - share, share], -1), np.full(4, 0.25)
    low, high = parity_bounds(rate, shares, weight)[1, 0]
    held = 0
    for _ in range(200):
        size = np.full(4, 500) if stratified else rng.multinomial(2000, weight)
        hits = rng.binomial(size, rate)
        counts = np.zeros((4, 2, 2))
        counts[:, 1] = np.stack([size - hits, hits], -1)
        one = by_shares(counts, shares)["demographic_parity"][1, 0]
        held += one.reach_low <= low and one.reach_high >= high
    assert held >= 188


def test_the_reach_of_parity_is_its_extreme_over_the_rates_that_fit() -> None:
    rng = np.random.default_rng(7)
    for strata in (1, 2, 3) * 10:
        counts = rng.integers(1, 30, (strata, 2, 2))
        shares = rng.dirichlet(np.ones(3), strata)
        found = by_shares(counts, shares, level=0.9)["demographic_parity"]
        size, hits = counts.sum((1, 2)), counts[..., 1].sum(1)
        part = 1 - 0.1 / (strata + (strata > 1))  # the weights of strata have a part of the error probability
        weight, rates = size / size.sum(), np.linspace(*wilson(hits, size, part), 2001)
        slopes = slopes_of(lambda w, at=hits / size, own=shares: parity_bounds(at, own, w), weight)
        away = stats.norm.ppf((1 + part) / 2) * np.sqrt(np.tensordot(weight, slopes**2, 1) / size.sum())
        for (a, b), one in found.items():
            p, q, total = shares[:, a], shares[:, b], weight @ shares
            up = np.minimum(rates, p) / total[a] - np.maximum(0, rates + q - 1) / total[b]
            down = np.maximum(0, rates + p - 1) / total[a] - np.minimum(rates, q) / total[b]
            low, high = weight @ down.min(0) - away[a, b, 0], weight @ up.max(0) + away[a, b, 1]
            reach = max(-1, low), min(1, high)
            assert (one.reach_low, one.reach_high) == pytest.approx(reach, abs=5e-3)
            assert one.reach_low <= reach[0] + 1e-6
            assert one.reach_high >= reach[1] - 1e-6
            assert one.n == size.sum()


def test_a_stratum_without_rows_says_nothing_and_one_row_counts() -> None:
    counts, shares = np.array([[[30, 10], [20, 40]], [[0, 0], [0, 1]]]), np.array([[0.3, 0.7], [0.6, 0.4]])
    alone = by_shares(counts, shares, assumes="shares")
    padded = by_shares(np.insert(counts, 1, 0, axis=0), np.insert(shares, 1, 0.5, axis=0), assumes="shares")
    assert alone == padded
    assert alone["false_positive_rate"][1, 0].n == 40
    assert alone["equal_opportunity"][1, 0].n == 61
    assert alone["equal_opportunity"][1, 0].assumes == "shares"
    whole = parity_bounds([0.5, 1.0], shares, [100 / 101, 1 / 101])[1, 0]
    found = alone["demographic_parity"][1, 0]
    assert (found.low, found.high, found.n) == pytest.approx((*whole, 101))
    assert found.largest == max(abs(whole))
    assert found.largest_reach == max(abs(found.reach_low), abs(found.reach_high))


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
    found = by_shares(counts, np.stack([1 - share, share], -1))["demographic_parity"][1, 0]
    assert 0 <= found.low - found.reach_low < 0.04
    assert 0 <= found.reach_high - found.high < 0.04
    low, high = parity_bounds(rate, np.stack([1 - share, share], -1), np.full(100, 0.01))[1, 0]
    assert found.reach_low <= low <= high <= found.reach_high


def test_a_label_without_rows_is_undefined() -> None:
    cell, p, _, prediction = drawn_rows(4, 60, 12, 2)
    bounds, weighted = by_probabilities(sums_of(cell, p, np.zeros(60, int), prediction))
    assert weighted["equal_opportunity"][1, 0].reason == "no row has this label"
    assert (bounds["equal_opportunity"][1, 0].reach_low, bounds["equal_opportunity"][1, 0].reach_high) == (-1, 1)
