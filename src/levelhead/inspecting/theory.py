"""Bounds on the group gap of debiased attention logits, and closed forms for Gaussian groups.

A gap is the difference of the mean attention logit between two groups, for one query and one key:
delta = E[w | group i] - E[w | group j] with w = sum over features of |n(q)| |n(k)| / (sqrt(head size) * temperature),
where n subtracts the mean and divides by the deviation. Every bound here depends on the groups through their shares
alone. The constants are per feature at ``head_size=1``; another head size multiplies them by sqrt(head size), and a
temperature divides them.

Proofs, and what none of this says about predictions, are in ``docs/theory.md``. The first bound follows Lu, Wang,
Wang, ICLR 2024, Theorem 1; the others are this project's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf

from levelhead.types import ConfigError

FloatArray = NDArray[np.float64]
Pair = tuple[int, int]

# Below this share of the smaller of two groups the Gaussian bound is no longer attained.
ATTAINED_FROM = 1 - 2 / math.pi


def paper_bound(shares: ArrayLike, head_size: int = 1, *, temperature: float = 1.0, larger_only: bool = False) -> float:
    """Bound the gap between two groups as the paper does.

    Assumes that queries and keys are Gaussian in each group and independent of each other given the group (the paper
    writes plain independence, which is neither needed nor enough).

    Args:
        shares: (2,) share of each group; positive, sum 1.
        head_size: features per head.
        temperature: divides the logits.
        larger_only: take the larger of the two terms instead of their sum, which is just as true because both group
            means are non-negative.

    Raises:
        ConfigError: an impossible argument, or more than two groups, for which the paper states nothing.

    Source: Lu, Wang, Wang, ICLR 2024, Theorem 1.
    """
    first, second = _two_shares(shares, "The paper's bound")
    # (sqrt(2 / (pi l_i)) + sqrt(l_j / l_i))^2 for each group i and the other one j.
    terms = [
        (math.sqrt(2 / (math.pi * own)) + math.sqrt(other / own)) ** 2
        for own, other in ((first, second), (second, first))
    ]
    return _factor(head_size, temperature) * (max(terms) if larger_only else sum(terms))


def distribution_free_bound(
    shares: ArrayLike,
    head_size: int = 1,
    *,
    pair: Pair | None = None,
    query_second_moment: ArrayLike = 1.0,
    key_second_moment: ArrayLike = 1.0,
    temperature: float = 1.0,
) -> float:
    """Bound the gap between groups whatever the joint law of queries, keys and groups is.

    Some law attains it, so that no bound on the shares alone can be smaller. It holds with and without the absolute
    value, and exactly on any finite batch that is standardised with its own biased statistics.

    Args:
        shares: (groups,) share of each group; positive, sum 1.
        head_size: features per head.
        pair: the two groups; None means the worst pair.
        query_second_moment: E[n(q)^2], one number or (head size,); 1 where the statistics are those of the same
            distribution, otherwise (variance + (mean - used mean)^2) / used deviation^2.
        key_second_moment: the same for the key.
        temperature: divides the logits.

    Raises:
        ConfigError: an impossible argument.
    """
    checked = check_shares(shares)
    product = 1.0
    for name, moment in (("query_second_moment", query_second_moment), ("key_second_moment", key_second_moment)):
        array = np.asarray(moment, float)
        if array.shape not in ((), (head_size,)) or not np.all(np.isfinite(array) & (array >= 0)):
            raise ConfigError(
                f"{name} has shape {array.shape} and values {array.tolist()!r}. Pass one finite number that is not "
                f"negative, or one for each of the {head_size} features."
            )
        product = product * np.sqrt(array)
    worst = _over_pairs(checked, pair, lambda one, other: max(1 / one, 1 / other))
    return float(_factor(head_size, temperature) * np.mean(product) * worst)


def gaussian_bound(
    shares: ArrayLike, head_size: int = 1, *, pair: Pair | None = None, temperature: float = 1.0
) -> float:
    """Bound the gap between groups where the paper's assumptions hold: Gaussian, and independent given the group.

    Any number of groups, only the two compared need be Gaussian. Attained by two groups if the smaller has a share
    of at least 1 - 2/pi (:data:`ATTAINED_FROM`); see :func:`gaussian_worst_case` below that. Needs exact statistics
    (mean 0 and second moment at most 1 after standardisation). Arguments and errors as in
    :func:`distribution_free_bound`.
    """
    checked = check_shares(shares)

    def constant(one: float, other: float) -> float:
        return max(max(2 / math.pi, 1 - share) / share for share in (one, other))

    return _factor(head_size, temperature) * _over_pairs(checked, pair, constant)


def gaussian_worst_case(shares: ArrayLike, head_size: int = 1, *, temperature: float = 1.0) -> float:
    """Return the largest gap found for two Gaussian groups: a lower bound of the true maximum, not an upper one.

    The largest of three extreme cases, in each of which all that standardisation allows goes into the smaller group's
    spread, into the difference of means, or into one for the query and the other for the key. Nothing larger was
    found on grids and in random searches; a proof is missing except where it meets :func:`gaussian_bound`.

    Args:
        shares: (2,) share of each group; positive, sum 1.
        head_size: features per head.
        temperature: divides the logits.

    Raises:
        ConfigError: an impossible argument, or more than two groups.
    """
    small = min(_two_shares(shares, "The worst Gaussian case"))
    spreads = 2 / math.pi / small
    mixed = math.sqrt(2 * (1 - small) / math.pi) / small
    means = 1 / small - 1 / (1 - small)
    return _factor(head_size, temperature) * max(spreads, mixed, means)


def bound_without_absolute(
    shares: ArrayLike, head_size: int = 1, *, pair: Pair | None = None, temperature: float = 1.0
) -> float:
    """Bound the gap of logits that are standardised but keep their sign, for queries and keys of any laws.

    Assumes that query and key are independent (uncorrelated is enough) given the group, and exact statistics.
    Attained for any number of groups. With two groups it is |1/l_0 - 1/l_1|, so 0 for groups of equal size.
    Arguments and errors as in :func:`distribution_free_bound`.
    """
    checked = check_shares(shares)

    def constant(one: float, other: float) -> float:
        # Largest eigenvalue in absolute value of diag(1/l_i, -1/l_j, 0, ...) on the complement of sqrt(shares).
        trace = abs(1 / one - 1 / other)
        rest = 0.0 if len(checked) == 2 else max(0.0, 1 - one - other)
        return (trace + math.sqrt(trace**2 + 4 * rest / (one * other))) / 2

    return _factor(head_size, temperature) * _over_pairs(checked, pair, constant)


def folded_normal_mean(mean: ArrayLike, deviation: ArrayLike) -> FloatArray:
    """Return E|x| for Gaussian x, elementwise over broadcast arrays; deviation 0 gives \\|mean\\|.

    Raises:
        ConfigError: a deviation is negative.
    """
    centre, spread = np.broadcast_arrays(np.abs(np.asarray(mean, float)), np.asarray(deviation, float))
    if np.any(spread < 0):
        raise ConfigError("A deviation is negative. Pass standard deviations, 0 or more.")
    # Beyond 40 deviations exp and erf have reached 0 and 1; the cap keeps the square finite.
    with np.errstate(over="ignore"):
        ratio = np.minimum(np.divide(centre, spread, out=np.full(centre.shape, 40.0), where=spread > 0), 40.0)
    result: FloatArray = spread * math.sqrt(2 / math.pi) * np.exp(-(ratio**2) / 2) + centre * erf(ratio / math.sqrt(2))
    return result


def gaussian_group_means(shares: ArrayLike, means: ArrayLike, deviations: ArrayLike) -> FloatArray:
    """Return E[|n(x)| | group] for features that are Gaussian in each group.

    Args:
        shares: (groups,) share of each group; positive, sum 1.
        means: (groups, ...) mean of each feature in each group.
        deviations: (groups, ...) standard deviation of each feature in each group.

    Returns:
        (groups, ...).

    Raises:
        ConfigError: an impossible argument, or a feature that does not vary at all.

    Source: Lu, Wang, Wang, ICLR 2024, proof of Theorem 1, without the factor misprinted in equation 22.
    """
    checked = check_shares(shares)
    centre, spread = np.broadcast_arrays(np.asarray(means, float), np.asarray(deviations, float))
    if centre.shape[:1] != checked.shape:
        raise ConfigError(
            f"Means and deviations have shape {centre.shape}, and there are {len(checked)} shares. The first axis "
            "holds the groups."
        )
    weight = checked.reshape(-1, *[1] * (centre.ndim - 1))
    overall = (weight * centre).sum(0)
    # Law of total variance: within groups, and between them.
    variance = (weight * (spread**2 + (centre - overall) ** 2)).sum(0)
    if np.any(variance <= 0):
        raise ConfigError("A feature is the same everywhere, so it cannot be standardised. Leave it out.")
    deviation = np.sqrt(variance)
    return folded_normal_mean((centre - overall) / deviation, spread / deviation)


def gaussian_gap(
    shares: ArrayLike,
    query_means: ArrayLike,
    query_deviations: ArrayLike,
    key_means: ArrayLike,
    key_deviations: ArrayLike,
    *,
    pair: Pair = (0, 1),
    temperature: float = 1.0,
) -> float:
    """Return the exact gap E[w | first group] - E[w | second] for Gaussian queries and keys, independent by group.

    Args:
        shares: (groups,) share of each group; positive, sum 1.
        query_means: (groups, head size), or (groups,) for one feature.
        query_deviations: as ``query_means``.
        key_means: as ``query_means``.
        key_deviations: as ``query_means``.
        pair: the two groups.
        temperature: divides the logits.

    Raises:
        ConfigError: an impossible argument.
    """
    query = gaussian_group_means(shares, query_means, query_deviations)
    key = gaussian_group_means(shares, key_means, key_deviations)
    if query.shape != key.shape or query.ndim > 2:
        raise ConfigError(f"Queries have shape {query.shape} and keys {key.shape}. Pass (groups, head size) for both.")
    first, second = _check_pair(pair, len(query))
    products = (query * key).reshape(len(query), -1)
    size = products.shape[1]
    return float(_factor(size, temperature) / size * (products[first] - products[second]).sum())


def check_shares(shares: ArrayLike) -> FloatArray:
    """Return shares as an array (groups,), or raise :class:`ConfigError` that says what is wrong with them."""
    array = np.asarray(shares, float)
    if array.ndim != 1 or len(array) < 2:
        raise ConfigError(f"Group shares have shape {array.shape}. Pass one share for each of two or more groups.")
    if not np.all(np.isfinite(array) & (array > 0)):
        raise ConfigError(f"Group shares {array.tolist()} are not all above 0. Leave out groups without members.")
    total = float(array.sum())
    if abs(total - 1) > 1e-6:
        raise ConfigError(f"Group shares {array.tolist()} sum to {total:.6g}, not 1. Divide them by their sum.")
    return array


def _two_shares(shares: ArrayLike, what: str) -> tuple[float, float]:
    array = check_shares(shares)
    if len(array) != 2:
        raise ConfigError(
            f"{what} is stated for two groups, and there are {len(array)}. Use distribution_free_bound or "
            "gaussian_bound, which hold for any number."
        )
    return float(array[0]), float(array[1])


def _factor(head_size: int, temperature: float) -> float:
    """From one feature to a logit: the sum over features, divided by sqrt(head size) and by the temperature."""
    if head_size < 1:
        raise ConfigError(f"head_size is {head_size}; pass the number of features per head, at least 1.")
    if not 0 < temperature < math.inf:
        raise ConfigError(f"temperature is {temperature}; pass a finite number above 0.")
    return math.sqrt(head_size) / temperature


def _check_pair(pair: Pair, groups: int) -> Pair:
    first, second = pair
    if first == second or not (0 <= first < groups and 0 <= second < groups):
        raise ConfigError(f"pair={pair} does not name two of the {groups} groups. Pass two different indices from 0.")
    return first, second


def _over_pairs(shares: FloatArray, pair: Pair | None, constant: Callable[[float, float], float]) -> float:
    """Take ``constant`` of the two shares of ``pair``, or the largest one over all pairs."""
    chosen = itertools.combinations(range(len(shares)), 2) if pair is None else [_check_pair(pair, len(shares))]
    return max(constant(float(shares[first]), float(shares[second])) for first, second in chosen)
