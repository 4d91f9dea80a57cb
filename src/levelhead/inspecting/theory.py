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

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.types import ConfigError

FloatArray = NDArray[np.float64]


def paper_bound(shares: ArrayLike, head_size: int = 1, *, temperature: float = 1.0) -> float:
    """Bound the gap between two groups as the paper does.

    Assumes that queries and keys are Gaussian in each group and independent of each other given the group (the paper
    writes plain independence, which is neither needed nor enough).

    Args:
        shares: (2,) share of each group; positive, sum 1.
        head_size: features per head.
        temperature: divides the logits.

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
    # (sqrt(2 / (pi l_i)) + sqrt(l_j / l_i))^2 for each group i and the other one j.
    terms = (np.sqrt(2 / (math.pi * array)) + np.sqrt(array[::-1] / array)) ** 2
    return _factor(head_size, temperature) * float(terms.sum())


def distribution_free_bound(shares: ArrayLike, head_size: int = 1, *, temperature: float = 1.0) -> float:
    """Bound the gap between any two groups whatever the joint law of queries, keys and groups is.

    Some law attains it, so that no bound on the shares alone can be smaller. It holds with and without the absolute
    value, and exactly on any finite batch that is standardised with its own biased statistics. Where statistics are
    those of other rows, it is multiplied by sqrt(E[n(q)^2] E[n(k)^2]).

    Args:
        shares: (groups,) share of each group; positive, sum 1.
        head_size: features per head.
        temperature: divides the logits.

    Raises:
        ConfigError: an impossible argument.
    """
    return _factor(head_size, temperature) / float(check_shares(shares).min())


def gaussian_bound(shares: ArrayLike, head_size: int = 1, *, temperature: float = 1.0) -> float:
    """Bound the gap between any two groups under the paper's assumptions: Gaussian, and independent given the group.

    Any number of groups. Attained by two groups if the smaller has a share of at least 1 - 2/pi. Needs exact statistics
    (mean 0 and second moment at most 1 after standardisation). Arguments and errors as in
    :func:`distribution_free_bound`.
    """
    array = check_shares(shares)
    return _factor(head_size, temperature) * float((np.maximum(2 / math.pi, 1 - array) / array).max())


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
