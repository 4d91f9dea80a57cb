"""Counts in the first places: ties, the hypergeometric law, exposure."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from levelhead.metrics.top import Places, TopLaw, discounts, exposure_ends, ratio_ends


def test_ties_are_counted_as_the_mean_over_all_their_orders() -> None:
    score, group = np.array([3.0, 2, 2, 2, 2, 1, 0]), np.array([0, 0, 1, 1, 0, 1, 0])
    places = Places.of(score, group)
    counts, worth = np.zeros((2, 2)), np.zeros(2)
    orders = list(itertools.permutations([1, 2, 3, 4]))
    for order in orders:
        ranked = group[[0, *order, 5, 6]]
        counts += [np.bincount(ranked[:top], minlength=2) for top in (3, 5)]
        worth += np.bincount(ranked[:3], discounts(3), 2)
    assert np.stack([places.counts(2, top) for top in (3, 5)]) == pytest.approx(counts / len(orders), abs=1e-12)
    assert places.exposure(2, 3) == pytest.approx(worth / len(orders), abs=1e-12)
    assert places.run_at(3) == (1, 5)


@pytest.mark.parametrize("seed", range(30))
def test_counts_and_their_law_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(20, 400))
    members, top = int(rng.integers(2, rows - 2)), int(rng.integers(2, rows - 1))
    score, group = rng.normal(size=rows), (np.arange(rows) < members).astype(np.int64)
    hits = int(Places.of(score, group).counts(2, top)[1])
    assert hits == group[np.argsort(score)[::-1][:top]].sum()
    assert Places.of(-score, group, lowest_first=True).counts(2, top)[1] == hits
    law = TopLaw(members, rows, top)
    theirs = stats.hypergeom(rows, members, top)
    tails = min(theirs.cdf(hits), theirs.sf(hits - 1))
    assert law.p_value(hits) == pytest.approx(min(1, 2 * tails), rel=1e-8)
    assert law.by_chance(0.05) == tuple(theirs.ppf([0.025, 0.975]))
    least, most = theirs.support()
    ends = law.expected(hits, 0.05)
    for end, at_edge, tail in (
        (ends[0], hits == least, lambda odds: stats.nchypergeom_fisher.sf(hits - 1, rows, members, top, odds)),
        (ends[1], hits == most, lambda odds: stats.nchypergeom_fisher.cdf(hits, rows, members, top, odds)),
    ):
        if at_edge:
            assert end == hits
        else:
            odds = optimize.brentq(lambda log, tail=tail: tail(math.exp(log)) - 0.025, -12, 12, xtol=1e-12)
            mean = stats.nchypergeom_fisher.mean(rows, members, top, math.exp(odds))
            assert end == pytest.approx(mean, rel=1e-6)
    expected = top * members / rows
    assert (ends[0] > expected or ends[1] < expected) == (2 * tails < 0.05)
    # A ratio leaves out 1 just where Fisher's exact test rejects.
    other = top - hits
    if other:
        low, high = ratio_ends((hits, other), (members, rows - members), 0.05)
        assert (low > 1 or high < 1) == (2 * tails < 0.05)
        assert low <= hits / members / (other / (rows - members)) <= high


def test_exposure_without_discount_is_a_proportion_of_a_finite_number() -> None:
    # All rows are in the top: only the order matters, and its noise is that of a permutation.
    rng, rows = np.random.default_rng(0), 60
    group = (np.arange(rows) < 20).astype(np.int64)
    shares = [
        Places(rng.permutation(group), np.arange(1, rows + 1)).exposure(2, 30)[1] / discounts(30).sum()
        for _ in range(4000)
    ]
    low, high = exposure_ends(np.array([1 / 3]), rows, 30, 0.05)
    assert (high - low)[0] / 3.92 == pytest.approx(np.std(shares), rel=0.12)
