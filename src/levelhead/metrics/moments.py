"""Means of numbers by group, counted batch by batch, with intervals that allow for skewness.

Means have at each end the farther of Student's interval and of Hall's, which turns the skewness of the rows back
(Annals of Statistics 1992); those of a quantity that cannot be negative, also of Student's on the log scale. With a
long right tail (lognormal, sigma 1) and 10 to 80 rows Student's interval alone held a mean in 84% to 91%.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.metrics.group import FloatArray
from levelhead.types import Estimate

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
        codes: NDArray[np.int64],
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

    def placed(self, at: NDArray[np.int64], groups: int) -> Moments:
        """Return the moments of this many groups, of which these are those ``at`` places; the others have no rows."""
        parts = [np.zeros((*one.shape[:-1], groups), one.dtype) for one in vars(self).values()]
        for part, one in zip(parts, vars(self).values(), strict=True):
            part[..., at] = one
        return Moments(*parts)

    def grown(self, groups: int) -> Moments:
        """Return the moments with room for more groups."""
        return self if groups == len(self.rows) else self.placed(np.arange(len(self.rows)), groups)

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

    def constant(self, quantity: int, at: int) -> bool:
        """Whether all rows of a group are alike, up to the rounding of the numbers that they were computed from."""
        rows = max(1, int(self.rows[at]))
        largest = math.sqrt(float((self.mean[:, at] ** 2 + self.squares[:, at] / rows).max()))
        return math.sqrt(float(self.squares[quantity, at]) / rows) <= ROUNDING * largest

    def estimate(self, quantity: int, at: int, level: float, *, skewed: bool = False) -> Estimate:
        """Return the mean of a quantity in the group at a place, with its interval.

        ``skewed``: the quantity is never negative and has a long tail, as the size of an error has. The ends are NaN
        where the rows are all alike.
        """
        rows, value = int(self.rows[at]), float(self.mean[quantity, at])
        # Rows that are all alike say nothing of how far others are off: no interval, and not one of width 0.
        if rows < 2 or self.constant(quantity, at):
            return Estimate.without_interval(value, rows)
        t = float(special.stdtrit(rows - 1, (1 + level) / 2))
        error = math.sqrt(self.squares[quantity, at] / (rows - 1) / rows)
        arm = t * error
        below, above = self._halls(quantity, at, t, 2.0 if skewed else 1.25 + 2.5 / rows)
        low, high = value - max(arm, below * error), value + max(arm, above * error)
        if skewed:
            low, high = max(0.0, low), max(high, value * math.exp(min(700.0, arm / value))) if value > 0 else high
        return Estimate(value, low, high, rows)

    def skewness(self, quantity: int, at: int) -> float:
        """Return the skewness of a group's rows; 0 where there are too few, or numbers too large for it."""
        rows = int(self.rows[at])
        unit = math.sqrt(float(self.squares[quantity, at]) / max(1, rows))
        if rows < 3 or not unit:
            return 0.0
        found = float(self.cubes[quantity, at]) / rows / unit / unit / unit * math.sqrt(rows * (rows - 1)) / (rows - 2)
        return found if math.isfinite(found) else 0.0

    def _halls(self, quantity: int, at: int, t: float, factor: float) -> tuple[float, float]:
        """Return how many standard errors a skewed mean's interval goes down and up (Hall 1992, equation 2.1).

        Few rows show less skewness than there is; it counts ``factor`` times. With 1.25 + 2.5 / rows, and Student's
        interval where that is the wider, means of lognormal errors hold in at least 94% of audits from 10 rows on.
        Absolute errors are more skewed: with 2, and 60 rows or more, they do so, too.
        """
        k = factor * self.skewness(quantity, at) / math.sqrt(int(self.rows[at]))
        if abs(k) < 1e-6:
            return 0.0, 0.0

        def inverse(quantile: float) -> float:
            return 3 / k * (math.cbrt(1 + k * (quantile - k / 6)) - 1)

        return inverse(t), -inverse(-t)


@dataclass
class GroupMoments:
    """Moments of groups that are met batch by batch: ``places`` has the place of each group."""

    places: dict[Any, int] = field(default_factory=dict)
    moments: Moments | None = None

    @property
    def known(self) -> Moments:
        """The moments, once rows were added."""
        assert self.moments is not None
        return self.moments

    def add(self, members: Sequence[Hashable], moments: Moments) -> None:
        """Add the moments of some groups, ``members``."""
        at = np.array([self.places.setdefault(member, len(self.places)) for member in members], np.int64)
        moments = moments.placed(at, len(self.places))
        self.moments = moments if self.moments is None else self.moments.grown(len(self.places)).add(moments)
