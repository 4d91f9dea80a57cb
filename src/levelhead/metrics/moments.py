"""Means of numbers by group, counted batch by batch, with intervals that allow for skewness.

Means have at each end the farther of Student's interval and of Hall's, which turns the skewness of the rows back
(Annals of Statistics 1992); those of a quantity that cannot be negative, also of Student's on the log scale. With a
long right tail (lognormal, sigma 1) and 10 to 80 rows Student's interval alone held a mean in 84% to 91%.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.metrics.between import Differences
from levelhead.metrics.contrasts import BoolArray
from levelhead.metrics.group import FloatArray

ROUNDING = 4 * float(np.finfo(np.float64).eps)
"""Of numbers, relative to their size; errors are differences of two."""


@dataclass
class Moments:
    """Rows (groups,), and means, sums of squared and of cubed deviations, (quantities, groups) each."""

    rows: NDArray[np.int64]
    mean: FloatArray
    squares: FloatArray
    cubes: FloatArray

    @classmethod
    def of(
        cls,
        codes: NDArray[np.integer[Any]],
        groups: int,
        values: Sequence[FloatArray],
        count: NDArray[np.int64] | None = None,
    ) -> Moments:
        """Measure a batch; ``codes`` (rows,) lie in [0, groups). A row represents ``count`` rows (rows,); None: 1."""
        times = 1 if count is None else count
        rows = np.bincount(codes, count, groups).astype(np.int64)
        mean, squares, cubes = (np.zeros((len(values), groups)) for _ in range(3))
        there = np.maximum(rows, 1)
        for at, one in enumerate(values):
            mean[at] = np.bincount(codes, one * times, groups) / there
            apart = one - mean[at][codes]
            squares[at] = np.bincount(codes, apart**2 * times, groups)
            cubes[at] = np.bincount(codes, apart**3 * times, groups)
        return cls(rows, mean, squares, cubes)

    def add(self, other: Moments) -> Moments:
        """Add the rows of a batch, and return all (Chan, Golub and LeVeque 1983: no large sums are subtracted)."""
        both = np.maximum(self.rows + other.rows, 1)
        apart = other.mean - self.mean
        share = other.rows / both, self.rows / both
        self.cubes = (
            self.cubes
            + other.cubes
            + apart**3 * self.rows * share[0] * (share[1] - share[0])
            + 3 * apart * (share[1] * other.squares - share[0] * self.squares)
        )
        self.mean = self.mean + apart * other.rows / both
        self.squares = self.squares + other.squares + apart**2 * self.rows * other.rows / both
        self.rows = self.rows + other.rows
        return self

    def constant(self, quantity: int) -> BoolArray:
        """Whether all rows of each group are alike (groups,), up to the rounding of what they were computed from."""
        rows = np.maximum(1, self.rows)
        largest = np.sqrt((self.mean**2 + self.squares / rows).max(0))
        return np.asarray(np.sqrt(self.squares[quantity] / rows) <= ROUNDING * largest)

    def means(self, quantity: int, level: float, *, skewed: bool = False) -> Differences:
        """Return the mean of a quantity in each group, with its interval, (groups,) each.

        ``skewed``: the quantity is never negative and has a long tail, as the size of an error has. The ends are NaN
        where there are fewer than two rows, or they are all alike: these say nothing of how far others are off.
        """
        rows, value = np.maximum(2, self.rows), self.mean[quantity]
        t = special.stdtrit(rows - 1, (1 + level) / 2)
        error = np.sqrt(self.squares[quantity] / (rows - 1) / rows)
        arm = t * error
        below, above = self._halls(quantity, t, 2.0 if skewed else 1.25 + 2.5 / rows)
        low, high = value - np.maximum(arm, below * error), value + np.maximum(arm, above * error)
        if skewed:
            positive = np.where(value > 0, value, 1.0)
            farther = np.maximum(high, value * np.exp(np.minimum(700.0, arm / positive)))
            low, high = np.maximum(0.0, low), np.where(value > 0, farther, high)
        none = (self.rows < 2) | self.constant(quantity)
        return Differences(value, np.where(none, np.nan, low), np.where(none, np.nan, high))

    def skewness(self, quantity: int) -> FloatArray:
        """Return the skewness of each group's rows, (groups,); 0 where there are too few, or numbers too large."""
        rows = np.maximum(3, self.rows)
        unit = np.sqrt(self.squares[quantity] / rows)
        with np.errstate(all="ignore"):
            found = self.cubes[quantity] / rows / unit / unit / unit * np.sqrt(rows * (rows - 1)) / (rows - 2)
        return np.where((self.rows > 2) & np.isfinite(found), found, 0.0)

    def _halls(self, quantity: int, t: FloatArray, factor: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Return how many standard errors a skewed mean's interval goes down and up (Hall 1992, equation 2.1).

        Few rows show less skewness than there is; it counts ``factor`` times. With 1.25 + 2.5 / rows, and Student's
        interval where that is the wider, means of lognormal errors hold in at least 94% of audits from 10 rows on.
        Absolute errors are more skewed: with 2, and 60 rows or more, they do so, too.
        """
        skew = factor * self.skewness(quantity) / np.sqrt(np.maximum(1, self.rows))
        none = np.abs(skew) < 1e-6
        k = np.where(none, 1.0, skew)

        def inverse(quantile: FloatArray) -> FloatArray:
            return np.where(none, 0.0, 3 / k * (np.cbrt(1 + k * (quantile - k / 6)) - 1))

        return inverse(t), -inverse(-t)
