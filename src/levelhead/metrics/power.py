"""Which gap this many rows can show, and how many rows a gap needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from levelhead.arrays import checked, floats_of
from levelhead.metrics.between import EXTREME, check_level
from levelhead.metrics.group import FloatArray
from levelhead.metrics.roots import root
from levelhead.types import ConfigError

POWER = 0.8
"""How often a gap is to be detected that rows, or labels, are said to be enough for."""


def errors_of_detected(z: float) -> float:
    """Return how many standard errors a gap has that an interval of +-``z`` of them shows with :data:`POWER`."""
    return z + NormalDist().inv_cdf(POWER)


@checked
def detectable_gap(
    rate: float, first: float, second: float, *, level: float = 0.95, comparisons: float = 1, power: float = 0.8
) -> float:
    """Return the smallest difference of two rates that such rows show with probability ``power``, a fraction.

    Args:
        rate: of one group; the other's lies above or below it.
        first: rows of one group that the rate is about.
        second: rows of the other.
        level: of the intervals.
        comparisons: how many pairs share the error probability.
        power: how often the interval is to leave out 0, which the exact test must agree to.

    Returns:
        the larger of the answers above and below; NaN where no gap, of any size, would be shown.
    """
    check_plan(rate, level, power, comparisons)
    if not (0 < first < math.inf and 0 < second < math.inf):
        raise ConfigError(f"There are {first} and {second} rows: each must be above 0, and finite.")
    found, most = [], max(rate, 1 - rate)
    for sign, room in ((1, 1 - rate), (-1, rate)):
        for sizes in ((first, second), (second, first)):

            def lacking(gap: float, sign: int = sign, sizes: tuple[float, float] = sizes) -> float:
                reach, step = _reach((rate, rate + sign * gap), sizes, (1 - level) / comparisons, power)
                return reach + step - gap

            if room > 0:  # a gap that would not be shown in one direction must not fit into it
                none = math.nan if room == most else room
                found.append(root(lacking, 1e-12, room) if lacking(room) <= 0 else none)
    return float(np.max(found))  # NaN if one is


@checked
def rows_needed(
    gap: float,
    rate: float,
    shares: FloatArray,
    *,
    level: float = 0.95,
    comparisons: float = 1,
    power: float = 0.8,
) -> float:
    """Return how many rows in all show a gap between any two groups with probability ``power``.

    Args:
        gap: difference of two groups' rates, a fraction.
        rate: of one of the two; the other's lies above or below, whichever needs more rows.
        shares: (groups,) of the rows; they sum to 1. The two smallest groups decide.
        level: of the intervals, which hold for all ``comparisons`` together.
        comparisons: how many pairs share the error probability.
        power: how often the interval of a pair with such a gap is to leave out 0, which the exact test must agree to.

    Returns:
        rows that the rate is about, of all groups together: a whole number, or infinity.
    """
    shares = floats_of(shares, "shares", dimensions=1)
    check_plan(rate, level, power, comparisons)
    smallest = np.sort(shares)[:2].tolist()
    most = 0.0
    for other in (rate + gap, rate - gap):
        for sizes in (smallest, smallest[::-1]) if 0 <= other <= 1 else ():
            reach, step = _reach((rate, other), sizes, (1 - level) / comparisons, power)
            # N rows need reach / sqrt(N) + step / N = gap.
            with np.errstate(over="ignore"):
                most = max(most, float(((reach + np.sqrt(reach**2 + 4 * step * gap)) / (2 * np.float64(gap))) ** 2))
    return most if math.isinf(most) else math.ceil(most)


def check_plan(rate: float, level: float, power: float, comparisons: float) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for what no plan can be made for."""
    check_level(level)
    if not 0 <= rate <= 1:
        raise ConfigError(f"rate={rate} is not between 0 and 1.")
    if not EXTREME <= power <= 1 - EXTREME:
        raise ConfigError(f"power={power} is not between {EXTREME:g} and 1 - {EXTREME:g}. Pass 0.8 for 80%.")
    if not 1 <= comparisons <= 1e6:
        raise ConfigError(f"comparisons={comparisons} is not between 1 and 1,000,000.")


def _reach(rates: tuple[float, float], sizes: Sequence[float], error: float, power: float) -> tuple[float, float]:
    """Return how far apart two measured rates must lie, and the step of Fisher's exact test that is added to it.

    The test allows for the variance of equal rates; its counts are whole numbers, which costs half a hit on either side
    (Fleiss, Tytun and Ury, Biometrics 1980).
    """
    each = [1 / size for size in sizes]
    pooled = (rates[0] * sizes[0] + rates[1] * sizes[1]) / sum(sizes)
    alike = max(0.0, pooled * (1 - pooled)) * sum(each)
    apart = sum(max(0.0, rate * (1 - rate)) * one for rate, one in zip(rates, each, strict=True))
    quantile = NormalDist().inv_cdf
    return quantile(1 - error / 2) * math.sqrt(alike) + quantile(power) * math.sqrt(apart), sum(each) / 2
