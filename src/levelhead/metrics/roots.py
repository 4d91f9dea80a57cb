"""Roots of monotonous functions; SciPy's optimisers do the same in fewer steps, and take longer to import."""

from __future__ import annotations

from collections.abc import Callable

CLOSE = 1e-14
"""Distance of the ends at which a bisection stops, relative to an upper end above 1."""


def root(of: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function changes its sign between two ends, by bisection; an end where it does not change."""
    above = of(low) > 0
    while high - low > CLOSE * max(1.0, high):
        middle = (low + high) / 2
        if (of(middle) > 0) == above:
            low = middle
        else:
            high = middle
    return (low + high) / 2
