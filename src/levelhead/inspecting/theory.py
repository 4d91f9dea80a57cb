"""Bounds on the group gap of debiased attention logits.

A gap is the difference of the mean attention logit between two groups, for one query and one key:
delta = E[w | group i] - E[w | group j] with w = sum over features of |n(q)| |n(k)| / (sqrt(head size) * temperature),
where n subtracts the mean and divides by the deviation. Every bound here depends on the groups through their shares
alone. The constants are per feature at ``head_size=1``; another head size multiplies them by sqrt(head size), and a
temperature divides them.

What the bounds assume, and what none says of predictions, is in ``docs/theory.md``. The first bound follows Lu, Wang,
Wang, ICLR 2024, Theorem 1; the others are this project's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.types import ConfigError

FloatArray = NDArray[np.float64]
Pair = tuple[int, int]


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
    array = check_shares(shares)
    if len(array) != 2:
        raise ConfigError(
            f"The paper's bound is stated for two groups, and there are {len(array)}. Use distribution_free_bound or "
            "gaussian_bound, which hold for any number."
        )
    first, second = float(array[0]), float(array[1])
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
    of at least 1 - 2/pi. Needs exact statistics (mean 0 and second moment at most 1 after standardisation). Arguments
    and errors as in :func:`distribution_free_bound`.
    """
    checked = check_shares(shares)

    def constant(one: float, other: float) -> float:
        return max(max(2 / math.pi, 1 - share) / share for share in (one, other))

    return _factor(head_size, temperature) * _over_pairs(checked, pair, constant)


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


def _factor(head_size: int, temperature: float) -> float:
    """From one feature to a logit: the sum over features, divided by sqrt(head size) and by the temperature."""
    if head_size < 1:
        raise ConfigError(f"head_size is {head_size}; pass the number of features per head, at least 1.")
    if not 0 < temperature < math.inf:
        raise ConfigError(f"temperature is {temperature}; pass a finite number above 0.")
    return math.sqrt(head_size) / temperature


def _over_pairs(shares: FloatArray, pair: Pair | None, constant: Callable[[float, float], float]) -> float:
    """Take ``constant`` of the two shares of ``pair``, or the largest one over all pairs."""
    groups = len(shares)
    if pair is not None and (pair[0] == pair[1] or not all(0 <= one < groups for one in pair)):
        raise ConfigError(f"pair={pair} does not name two of the {groups} groups. Pass two different indices from 0.")
    chosen = itertools.combinations(range(groups), 2) if pair is None else [pair]
    return max(constant(float(shares[first]), float(shares[second])) for first, second in chosen)
