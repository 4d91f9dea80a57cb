"""Pairs of groups, ranges beside chance, and power, against worked figures and small simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from levelhead.metrics.between import (
    Differences,
    chance_range,
    check_level,
    clearest,
    differences,
    fisher_p,
    mover,
    proportion,
    proportion_ends,
    shared,
    unlike,
    wilson,
)
from levelhead.metrics.contrasts import pair_indices
from levelhead.metrics.power import detectable_gap, rows_needed
from levelhead.types import Estimate

HITS, ROWS = np.array([12, 20, 9, 30]), np.array([40, 50, 40, 60])


def test_single_ends_are_wilsons_and_at_each_end_the_outer_one_of_jeffreys() -> None:
    rng = np.random.default_rng(0)
    rows = np.array([60] * 5 + rng.integers(1, 500, 20).tolist())
    hits = np.array([0, 1, 5, 30, 60, *rng.binomial(rows[5:], 0.3)])
    for level in (0.9, 0.9967):
        own, ends = wilson(hits, rows, level), proportion_ends(hits, rows, 1 - level)
        for at, (x, n) in enumerate(zip(hits.tolist(), rows.tolist(), strict=True)):
            theirs = stats.binomtest(x, n).proportion_ci(level, "wilson")
            jeffreys = stats.beta(x + 0.5, n - x + 0.5).interval(level)
            outer = min(theirs.low, jeffreys[0]), max(theirs.high, jeffreys[1])
            assert (ends[0][at], ends[1][at]) == pytest.approx(outer, abs=1e-12)
            assert (own[0][at], own[1][at]) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
            one = proportion(x, n, level=level)
            assert (one.value, one.low, one.high, one.n) == pytest.approx((x / n, theirs.low, theirs.high, n))
    assert (proportion(0, 0).reason, wilson(0, 0, 0.9)) == ("no rows", (0.0, 1.0))
    assert (proportion(0, 5).low, proportion(5, 5).high) == (0.0, 1.0)


def test_the_exact_test_is_fishers_with_the_smaller_tail_twice() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(1, 60, 25), rng.integers(60, 20_000, 15)])
    hits = rng.binomial(rows, rng.choice([0.02, 0.3, 0.9], 40))
    first, second = pair_indices(40)
    tables = [[[hits[i], rows[i] - hits[i]], [hits[j], rows[j] - hits[j]]] for i, j in zip(first, second, strict=True)]
    tails = [min(stats.fisher_exact(one, side).pvalue for side in ("less", "greater")) for one in tables]
    expected = np.minimum(1, 2 * np.array(tails))
    assert fisher_p(hits, rows, first, second) == pytest.approx(expected, rel=1e-6)
    assert fisher_p(hits, rows, second, first) == pytest.approx(expected, rel=1e-6)
    for error in (0.05, 0.05 / 30, 1e-9):
        # Fractions of weighted rows are rounded to whole ones.
        assert unlike(hits + 0.4, rows - 0.4, first, second, error).tolist() == (expected <= error).tolist()


def test_an_interval_leaves_out_0_only_where_the_exact_test_agrees() -> None:
    """5 of 59 beside 284 of 13,328: Fisher's p times 15 comparisons is .13, but Wilson's ends leave out 0."""
    hits, rows = np.array([5, 284]), np.array([59, 13_328])
    first, second = np.array([0, 1]), np.array([1, 0])
    found = differences(hits, rows, first, second, comparisons=15)
    assert found.low[0] <= 0 < found.high[0]
    assert found.low[1] < 0 <= found.high[1]
    # 9 of 30 beside 1 of 30: twice the smaller tail is .0122.
    one = differences(np.array([9, 1]), np.array([30, 30]), first[:1], second[:1], comparisons=5)
    assert one.low[0] == 0
    assert differences(np.array([9, 1]), np.array([30, 30]), first[:1], second[:1], comparisons=4).low[0] > 0


def test_the_smallest_groups_tell_nothing_apart_that_chance_can() -> None:
    hits = np.array(list(np.ndindex(4, 8)))  # of 3 and 7 rows
    found = differences(hits.ravel(), np.tile([3, 7], 32), np.arange(0, 64, 2), np.arange(1, 64, 2))
    both = hits.sum(1)
    exact = np.minimum(stats.hypergeom.sf(hits[:, 0] - 1, 10, both, 3), stats.hypergeom.cdf(hits[:, 0], 10, both, 3))
    assert ((found.low <= 0) & (found.high >= 0) | (2 * exact <= 0.05)).all()


@pytest.mark.parametrize(
    ("rows", "ranges"),
    [(50, {2: 0.075, 4: 0.133, 8: 0.183, 16: 0.227, 32: 0.267}), (200, {2: 0.037, 4: 0.067, 8: 0.093, 16: 0.114})],
)
def test_equal_groups_range_by_chance(rows: int, ranges: dict[int, float]) -> None:
    for groups, expected in ranges.items():
        sizes = np.full(groups, rows)
        hits = np.full(groups, round(0.3 * rows))
        found = chance_range(hits, sizes)
        assert found.value == 0
        assert found.p == 1
        assert found.expected == pytest.approx(expected, abs=0.004)
    assert chance_range(np.full(16, 15), np.full(16, 50)).high == pytest.approx(0.32, abs=0.011)


def power_of(rows: tuple[int, int], rates: tuple[float, float], comparisons: int) -> float:
    """How often the interval of a pair leaves out 0: the sum over all hits that are likelier than 1 in 100,000."""
    ends = [stats.binom.ppf((1e-5, 1 - 1e-5), n, rate) for n, rate in zip(rows, rates, strict=True)]
    hits = [np.arange(low, high + 1) for low, high in ends]
    first, second = (grid.ravel() for grid in np.meshgrid(*(np.arange(len(one)) for one in hits), indexing="ij"))
    found = differences(
        np.concatenate(hits), np.repeat(rows, [len(one) for one in hits]), first, second + len(hits[0]),
        comparisons=comparisons,
    )  # fmt: skip
    chance = np.multiply.outer(*(stats.binom.pmf(x, n, p) for x, n, p in zip(hits, rows, rates, strict=True)))
    return float(chance.ravel()[(found.low > 0) | (found.high < 0)].sum())


@pytest.mark.parametrize(
    ("gap", "rate", "shares"),
    [
        (0.05, 0.3, (0.5, 0.5)),
        (0.05, 0.3, (0.5, 0.3, 0.2)),
        (0.1, 0.5, (0.5, 0.5)),
        (0.2, 0.5, (0.9, 0.1)),
        (0.1, 0.02, (0.5, 0.5)),
        (0.05, 0.95, (0.9, 0.1)),
        (0.3, 0.3, (0.1,) * 10),
        (0.4, 0.5, (0.99, 0.01)),
    ],
)
def test_planned_rows_show_the_gap_in_four_of_five_audits(gap: float, rate: float, shares: tuple[float, ...]) -> None:
    """An audit compares two rates: planned for one, its interval left out 0 in 64 to 77 of 100 audits."""
    comparisons = len(shares) * (len(shares) - 1)
    total = rows_needed(gap, rate, np.array(shares), comparisons=comparisons)
    smallest = sorted(max(1, math.ceil(share * total - 1e-9)) for share in shares)[:2]
    others = [other for other in (rate + gap, rate - gap) if 0 <= other <= 1]
    power = [
        power_of((smallest[0], smallest[1]), rates, comparisons)
        for other in others
        for rates in ((rate, other), (other, rate))
    ]
    assert 0.79 <= min(power) <= 0.85


def test_the_gap_that_rows_could_have_shown_is_the_gap_that_they_were_planned_for() -> None:
    total = rows_needed(0.05, 0.3, np.array([0.5, 0.3, 0.2]), comparisons=3)
    assert detectable_gap(0.3, 0.3 * total, 0.2 * total, comparisons=3) == pytest.approx(0.05, abs=1e-4)
    assert math.isnan(detectable_gap(0.5, 4, 4))
    assert detectable_gap(0.0, 1000, 1000) == pytest.approx(0.0089, abs=1e-3)


def test_decided_differences_come_first_then_the_largest() -> None:
    nan = math.nan
    figures = [Estimate(*each, 9) for each in ((0.9, nan, nan), (0.3, -0.1, 0.7), (-0.1, -0.2, -0.01), (0.2, 0.1, 0.3))]
    assert sorted(figures, key=clearest) == [figures[at] for at in (3, 2, 0, 1)]
    undefined = Estimate.undefined("no rows")
    assert sorted([undefined, *figures], key=clearest)[-1] == undefined
    found = Differences(*np.array([[one.value, one.low, one.high] for one in figures]).T)
    assert (found.order.tolist(), found.decided.tolist()) == ([3, 2, 0, 1], [False, False, True, True])


def test_levels_of_several_are_bonferronis() -> None:
    assert shared(0.95, 5) == pytest.approx(0.99)
    assert shared(0.9, 1) == shared(0.9, 0) == pytest.approx(0.9)
    for possible in (1e-9, 1 - 1e-9):
        check_level(possible)


def test_movers_arms_with_a_correlation() -> None:
    first, second = np.array([0.6]), np.array([0.35])
    ends = (np.array([0.5]), np.array([0.72])), (np.array([0.3]), np.array([0.43]))
    low, high = mover(first, ends[0], second, ends[1], 0.25)
    assert low[0] == pytest.approx(0.25 - math.sqrt(0.1**2 + 0.08**2 - 2 * 0.25 * 0.1 * 0.08))
    assert high[0] == pytest.approx(0.25 + math.sqrt(0.12**2 + 0.05**2 - 2 * 0.25 * 0.12 * 0.05))
    equal = mover(first, ends[0], first, (np.array([0.48]), np.array([0.70])), 1.0)
    assert equal[0] == pytest.approx(0.0)


def test_correlated_rates_are_told_apart_as_if_they_had_more_rows() -> None:
    hits, rows = np.array([30.0, 18.0]), np.array([60.0, 60.0])
    place, error = (np.array([0]), np.array([1])), 0.05 / 2
    found = differences(hits, rows, *place, comparisons=2, correlation=np.array([0.5]))
    low, high = proportion_ends(hits, rows, error)
    down, up = mover(np.array([0.5]), (low[:1], high[:1]), np.array([0.3]), (low[1:], high[1:]), 0.5)
    assert found.low == pytest.approx(down)
    assert found.high == pytest.approx(up)
    assert unlike(2 * hits, 2 * rows, *place, error)[0], "the exact test of twice the rows agrees"
    assert not unlike(hits, rows, *place, error)[0]
    assert differences(hits, rows, *place, comparisons=2).low[0] <= 0
    alike = differences(hits, rows, *place, comparisons=2, correlation=np.array([1.0]))
    assert alike.value == pytest.approx([0.2])
    most = differences(np.array([9.0, 0.0]), np.array([9.0, 9.0]), *place)
    assert most.high[0] == 1.0
    assert differences(np.array([0.0, 9.0]), np.array([9.0, 9.0]), *place).low[0] == -1.0
    none = differences(np.array([0.0, 30.0]), np.array([0.0, 60.0]), *place)
    assert not none.decided[0], "rows of next to no worth decide nothing"


def test_a_range_beside_chance_is_counted_over_the_deals() -> None:
    rng = np.random.default_rng([4, 3])
    ranges = np.ptp(rng.multivariate_hypergeometric(ROWS, 71, size=500) / ROWS, axis=-1)
    found = chance_range(HITS, ROWS, deals=500, seed=4)
    assert found.value == pytest.approx(0.5 - 0.225)
    assert found.expected == pytest.approx(ranges.mean())
    assert found.high == pytest.approx(np.quantile(ranges, 0.95))
    assert found.p == pytest.approx((1 + (ranges >= 0.275 - 1e-12).sum()) / 501)
    assert chance_range(np.array([10, 15, 40]), np.full(3, 50)).p < 0.01
