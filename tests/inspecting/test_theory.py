"""The bounds of docs/theory.md: their numbers, that nothing exceeds them, and what attains them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from levelhead.attention import QueryKeyStandardizer
from levelhead.inspecting import theory

SLACK = 1 + 1e-9
many = settings(deadline=None, max_examples=200)
seeds = st.integers(0, 2**32 - 1)


def random_shares(rng: np.random.Generator, groups: int) -> np.ndarray:
    """Shares from about equal to very unequal."""
    weight = rng.random(groups) ** rng.choice([0.2, 1.0, 4.0]) + 1e-3
    return weight / weight.sum()


def standardise(x: np.ndarray, probability: np.ndarray) -> np.ndarray:
    mean = (probability * x).sum()
    deviation = math.sqrt((probability * (x - mean) ** 2).sum())
    return (x - mean) / deviation if deviation > 1e-9 else np.zeros_like(x)


def heavy(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Values with a few huge ones, many of them 0: near what attains the bounds."""
    return rng.standard_normal(shape) * rng.choice([0.0, 0.1, 1.0, 30.0], shape)


# ------------------------------------------------------------------------------------------------ closed forms


def folded_normal_mean(mean: Any, deviation: Any) -> np.ndarray:
    """E|x| of Gaussian x; deviations are above 0."""
    centre, spread = np.broadcast_arrays(np.asarray(mean, float), np.asarray(deviation, float))
    scaled = centre / spread
    of_spread = spread * math.sqrt(2 / math.pi) * np.exp(-np.minimum(scaled**2, 1600) / 2)
    return np.asarray(of_spread + centre * special.erf(scaled / math.sqrt(2)))


def gaussian_group_means(shares: Any, means: Any, deviations: Any) -> np.ndarray:
    """E[|n(x)| | group] of features that are Gaussian in each group, (groups, ...)."""
    centre, spread = np.asarray(means, float), np.maximum(np.asarray(deviations, float), 1e-12)
    weight = np.asarray(shares).reshape(-1, *[1] * (centre.ndim - 1))
    overall = (weight * centre).sum(0)
    deviation = np.sqrt((weight * (spread**2 + (centre - overall) ** 2)).sum(0))
    return folded_normal_mean((centre - overall) / deviation, spread / deviation)


def gaussian_gap(shares: Any, query: Any, key: Any, pair: tuple[int, int] = (0, 1)) -> float:
    """The exact gap of one feature, from the means and deviations of query and key by group."""
    products = gaussian_group_means(shares, *query) * gaussian_group_means(shares, *key)
    return float(products[pair[0]] - products[pair[1]])


def gaussian_worst_case(shares: Any) -> float:
    """The largest gap found of two Gaussian groups: in spreads, in means, or in one for each of query and key."""
    small = min(shares)
    mixed = math.sqrt(2 * (1 - small) / math.pi) / small
    return max(2 / math.pi / small, mixed, 1 / small - 1 / (1 - small))


def bound_without_absolute(shares: Any, first: int = 0, second: int = 1) -> float:
    """Proposition 3, for one feature."""
    one, other = shares[first], shares[second]
    rest = max(0.0, 1 - one - other) if len(shares) > 2 else 0.0
    trace = abs(1 / one - 1 / other)
    return (trace + math.sqrt(trace**2 + 4 * rest / (one * other))) / 2


# ------------------------------------------------------------------------------------------------ numbers


BOUNDS = (
    theory.paper_bound,
    theory.distribution_free_bound,
    theory.gaussian_bound,
    gaussian_worst_case,
    bound_without_absolute,
)


@pytest.mark.parametrize(
    ("share", "constants", "near"),
    [
        (0.5, (9.0600, 2.0000, 1.2732, 1.2732, 0.0), 6e-5),
        (0.7, (11.4924, 3.3333, 2.3333, 2.2252, 1.9048), 6e-5),
        (0.9, (31.8842, 10.0000, 9.0000, 8.8889, 8.8889), 6e-5),
        (0.929, (44.9334, 14.0845, 13.0845, 13.0081, 13.0081), 6e-5),
        (1 - 1236 / 15383, (39.69, 12.446, 11.446, 11.358, 11.358), 6e-3),  # HateXplain, training split
    ],
)
def test_the_table_of_constants(share: float, constants: tuple[float, ...], near: float) -> None:
    assert [bound((share, 1 - share)) for bound in BOUNDS] == pytest.approx(constants, abs=near)


def test_head_size_and_temperature_multiply() -> None:
    shares = (0.2, 0.3, 0.5)
    for bound in (theory.distribution_free_bound, theory.gaussian_bound):
        assert bound(shares, 24) == pytest.approx(math.sqrt(24) * bound(shares))
        assert bound(shares, 24, temperature=0.07) == pytest.approx(bound(shares, 24) / 0.07)
    assert theory.paper_bound((0.3, 0.7), 4, temperature=0.5) == pytest.approx(4 * theory.paper_bound((0.3, 0.7)))


# ------------------------------------------------------------------------------------------------ distribution-free


@many
@given(seeds, st.integers(2, 5), st.integers(1, 3), st.booleans())
def test_no_joint_law_exceeds_the_distribution_free_bound(seed: int, groups: int, features: int, keep: bool) -> None:
    """Random discrete laws: 1 to 6 atoms a group, query and key tied to each other in any way, signs kept or not."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, groups)
    group = np.repeat(np.arange(groups), sizes)
    shares = random_shares(rng, groups)
    probability = rng.random(len(group)) + 1e-3
    probability *= (shares / np.bincount(group, probability))[group]
    query, key = heavy(rng, (features, len(group))), heavy(rng, (features, len(group)))
    if rng.random() < 0.5:
        key = query.copy()
    query, key = (np.array([standardise(x, probability) for x in values]) for values in (query, key))
    logits = (query * key if keep else np.abs(query * key)).sum(0) / math.sqrt(features)
    means = np.bincount(group, probability * logits) / shares
    assert np.ptp(means) <= theory.distribution_free_bound(shares, features) * SLACK
    # The joint form: the shares weigh the means of all groups, per logit.
    assert np.abs(shares * means).sum() <= math.sqrt(features) * SLACK


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("head_size", [1, 4])
def test_the_distribution_free_bound_is_attained(share: float, head_size: int) -> None:
    """Independent signs of size 1/sqrt(share) in the smaller group, 0 elsewhere: standardised already."""
    atoms = np.array([(s, t) for s in (-1, 1) for t in (-1, 1)]) / math.sqrt(share)
    query, key = (np.append(atoms[:, column], 0.0) for column in (0, 1))
    probability = np.array([share / 4] * 4 + [1 - share])
    for x in (query, key):
        assert standardise(x, probability) == pytest.approx(x)
    logits = head_size * np.abs(query * key) / math.sqrt(head_size)
    gap = logits[:4].mean() - logits[4]
    assert gap == pytest.approx(theory.distribution_free_bound((share, 1 - share), head_size))


# ------------------------------------------------------------------------------------------------ Gaussian groups


def test_the_folded_normal_lemma() -> None:
    """E|x|^2 <= m^2 + (2/pi) s^2, with equality at m = 0."""
    means = np.linspace(0, 10, 100_001)
    for deviation in (1e-3, 1.0, 7.0):
        squared = folded_normal_mean(means, deviation) ** 2
        assert np.all(squared <= (means**2 + 2 / math.pi * deviation**2) * SLACK)


def random_gaussians(rng: np.random.Generator, groups: int) -> tuple[np.ndarray, np.ndarray]:
    means, deviations = heavy(rng, (groups,)), np.abs(heavy(rng, (groups,)))
    deviations[0] += 1e-3  # something has to vary
    return means, deviations


@many
@given(seeds, st.integers(2, 5))
def test_no_gaussian_groups_exceed_their_bound(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    shares = random_shares(rng, groups)
    query, key = random_gaussians(rng, groups), random_gaussians(rng, groups)
    for law in (query, key):
        squared = gaussian_group_means(shares, *law) ** 2
        assert np.all(squared <= np.maximum(2 / math.pi, 1 - shares) / shares * SLACK)
    for pair in itertools.combinations(range(groups), 2):
        gap = abs(gaussian_gap(shares, query, key, pair))
        assert gap <= theory.gaussian_bound(shares) * SLACK
        if groups == 2:
            assert gap <= gaussian_worst_case(shares) * SLACK


@pytest.mark.parametrize("share", [0.05, 0.2, 0.3, 0.363, 0.364, 0.45, 0.5])
def test_nothing_larger_than_the_worst_gaussian_case_is_found(share: float) -> None:
    """A grid over all that standardisation allows: shares of the variance within each group and between them."""
    steps = np.linspace(0, 1, 41)
    within, other = (grid.ravel() for grid in np.meshgrid(steps, steps))
    inside = within + other <= 1 + 1e-12
    within, other = within[inside], other[inside]
    between = np.maximum(1 - within - other, 0)
    means = np.array([np.sqrt(between * (1 - share) / share), -np.sqrt(between * share / (1 - share))])
    deviations = np.maximum([np.sqrt(within / share), np.sqrt(other / (1 - share))], 1e-12)
    folded = folded_normal_mean(means, deviations)
    gaps = np.abs(folded[0][:, None] * folded[0] - folded[1][:, None] * folded[1])
    found, bound = gaussian_worst_case((share, 1 - share)), theory.gaussian_bound((share, 1 - share))
    assert gaps.max() == pytest.approx(found)  # the corners are points of the grid
    assert (bound == pytest.approx(found)) == (share >= 1 - 2 / math.pi)


@many
@given(seeds)
def test_the_bounds_come_in_order(seed: int) -> None:
    shares = random_shares(np.random.default_rng(seed), 2)
    small = shares.min()
    assert gaussian_worst_case(shares) <= theory.gaussian_bound(shares) * SLACK
    assert bound_without_absolute(shares) <= gaussian_worst_case(shares) * SLACK
    assert theory.gaussian_bound(shares) < theory.distribution_free_bound(shares)
    assert theory.distribution_free_bound(shares) == pytest.approx(1 / small)
    assert 3.1 < theory.paper_bound(shares) / theory.distribution_free_bound(shares) < 4.54


# ------------------------------------------------------------------------------------------------ without abs


@many
@given(seeds, st.integers(2, 5))
def test_signed_logits_of_independent_queries_and_keys_obey_their_bound(seed: int, groups: int) -> None:
    """Discrete laws, query and key independent given the group: the mean logit is the product of means."""
    rng = np.random.default_rng(seed)
    shares = random_shares(rng, groups)
    means = []
    for _ in range(2):
        x = heavy(rng, (groups, 4))
        inner = rng.dirichlet(np.ones(4), groups)
        flat = standardise(x.ravel(), (shares[:, None] * inner).ravel()).reshape(groups, 4)
        means.append((inner * flat).sum(1))
    logits = means[0] * means[1]
    for first, second in itertools.combinations(range(groups), 2):
        bound = bound_without_absolute(shares, first, second)
        assert abs(logits[first] - logits[second]) <= bound * SLACK + 1e-12
    if groups == 2:
        difference = [mean[0] - mean[1] for mean in means]
        assert logits[0] - logits[1] == pytest.approx((shares[1] - shares[0]) * difference[0] * difference[1])
        assert all(abs(d) <= 1 / math.sqrt(shares[0] * shares[1]) * SLACK for d in difference)


@many
@given(seeds, st.integers(2, 5))
def test_the_bound_without_the_absolute_value_is_attained(seed: int, groups: int) -> None:
    """The closed form is the norm of diag(1/l_i, -1/l_j, 0, ...) between laws that are constant in each group."""
    rng = np.random.default_rng(seed)
    shares = random_shares(rng, groups)
    for first, second in itertools.permutations(range(groups), 2):
        diagonal = np.zeros(groups)
        diagonal[[first, second]] = 1 / shares[first], -1 / shares[second]
        centre = np.eye(groups) - np.sqrt(np.outer(shares, shares))
        values, vectors = np.linalg.eigh(centre @ np.diag(diagonal) @ centre)
        top = int(np.abs(values).argmax())
        bound = bound_without_absolute(shares, first, second)
        assert abs(values[top]) == pytest.approx(bound, abs=1e-9)
        if bound > 1e-6:
            law = standardise(vectors[:, top] / np.sqrt(shares), shares)
            assert abs(law[first] ** 2 - law[second] ** 2) == pytest.approx(bound, rel=1e-6)


# ------------------------------------------------------------------------------------------------ finite batches


def test_no_batch_exceeds_the_bound_whatever_the_groups() -> None:
    """The project's own standardizer, per position and biased: |mean_i w - mean_j w| <= sqrt(d) max(n/n_i, n/n_j)."""
    generator = torch.Generator().manual_seed(0)
    rng = np.random.default_rng(0)
    heads, tokens, closest = 2, 3, 0.0
    for case in range(300):
        size, rows = int(rng.integers(1, 4)), int(rng.integers(2, 14))
        standardizer = QueryKeyStandardizer(
            heads, size, length=tokens, eps=float(rng.choice([0.0, 1e-5, 0.1])) or 1e-30
        )
        query, key = (
            torch.randn(rows, heads, tokens, size, generator=generator, dtype=torch.float64)
            * torch.randint(0, 4, (rows, heads, tokens, size), generator=generator) ** 4
            for _ in range(2)
        )
        if case % 3 == 0:
            key = query
        if case % 5 == 0:  # one row apart from all others: as near as batches come
            query[1:], key[1:] = query[1:2].clone(), key[1:2].clone()
        query, key = standardizer(query, key)
        logits = (query @ key.transpose(2, 3)).numpy() / math.sqrt(size)
        for _ in range(5):
            labels = rng.integers(0, int(rng.integers(2, 5)), rows)
            sizes = np.bincount(labels)
            present = np.flatnonzero(sizes)
            members = (labels == present[:, None]) / sizes[present][:, None]
            means = members @ logits.reshape(rows, -1)
            if len(present) > 1:
                gap = np.ptp(means, axis=0).max()
                bound = theory.distribution_free_bound(sizes[present] / rows, size)
                assert gap <= bound * SLACK
                closest = max(closest, gap / bound)
    assert closest > 0.9  # the cases come near the bound, so that they can tell


def test_statistics_over_all_positions_do_not_give_the_bound() -> None:
    """The counter-example: a query that is not 0 in one position alone, of one group alone, breaks it N times over."""
    rows, tokens, minority = 1000, 17, 100
    generator = torch.Generator().manual_seed(0)
    query, key = torch.zeros(2, rows, 1, tokens, 1, dtype=torch.float64)
    signs = torch.randint(0, 2, (2, minority), generator=generator).double() * 2 - 1
    signs[:, : minority // 2], signs[:, minority // 2 :] = 1.0, -1.0  # exactly centred
    query[:minority, 0, 0, 0], key[:minority, 0, 3, 0] = signs[0], signs[1]
    gaps = {}
    for statistics in ("position", "feature"):
        standardizer = QueryKeyStandardizer(1, 1, length=tokens, statistics=statistics, eps=1e-30)
        left, right = standardizer(query, key)
        logits = left @ right.transpose(2, 3)
        gap = logits[:minority].mean(0) - logits[minority:].mean(0)
        gaps[statistics] = float(gap[0, 0, 3])
        assert float(gap.mean().abs()) <= 10 * SLACK  # averaged over pairs of positions it holds for both
    assert gaps == pytest.approx({"position": 10.0, "feature": 170.0})


# ------------------------------------------------------------------------------------------------ arguments


def test_shares_may_sum_to_a_little_more_than_one() -> None:
    assert theory.check_shares([0.5, 0.5 + 9e-7]).tolist() == [0.5, 0.5 + 9e-7]


def test_numbers_in_single_precision_are_computed_in_double() -> None:
    assert theory.check_shares(np.array([0.25, 0.75], np.float32)).dtype == np.float64
