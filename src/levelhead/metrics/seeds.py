"""Means over training seeds: the variance that seeds add to that of the test rows.

The arms of the seeds' intervals are averaged, and shrunk by what averaging over seeds takes off the
resampled deviations. That is the variance over rows: (v + (S - 1) c) / S, if v is the mean variance over rows of one
seed's figure, c the mean covariance of two seeds', and S their number. The variance s2 of the figures over seeds
contains v - c, the noise of (seed x row), too; only what it has beyond that is added: max(0, s2 - (v - c)) / S. The sum
is c + s2 / S, which is unbiased, but never below the variance over rows. Degrees of freedom are Satterthwaite's (1946)
with all of s2 on its S - 1, and infinite where nothing is added. Of fewer than four seeds the part of s2 gets the
quantile of its own degrees of freedom (Cochran, Biometrics 1964), because two or three seeds cannot vouch for their own
variance. (Adding all of s2 / S rejected a true null in 0 to 1% instead of 5%.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from levelhead.metrics.group import FloatArray
from levelhead.metrics.roots import root


def seed_by_row(moves: Sequence[FloatArray]) -> float:
    """Variance of one seed's figure from what the rows do to that seed alone, out of ``moves`` (seeds, replicates)."""
    return float(np.var(moves, axis=0, ddof=1).mean()) if len(moves) > 1 else 0.0


@dataclass(frozen=True)
class OverSeeds:
    """The variance of a mean over training seeds, or of a difference of two such means.

    ``parts`` has for each list of seeds s2 / S, the variance of its mean, and its degrees of freedom S - 1. Part of
    s2 is noise of (seed x row), which the variance over rows holds already; ``beyond_rows`` is the sum of the parts
    less that noise, and not below 0. ``missing`` says which variance is unknown.
    """

    parts: tuple[tuple[float, float], ...]
    beyond_rows: float
    missing: str | None = None

    @classmethod
    def of(cls, by_seed: Sequence[FloatArray], noise: Sequence[float]) -> OverSeeds:
        """Measure the spread of lists of figures (seeds,), of which ``noise`` is the variance of (seed x row)."""
        known = [(values, one) for values, one in zip(by_seed, noise, strict=True) if len(values) > 1]
        parts = [(float(values.var(ddof=1)) / len(values), len(values) - 1.0) for values, _ in known]
        beyond = sum(variance for variance, _ in parts) - sum(one / len(values) for values, one in known)
        missing = "one seed: its variance over seeds is unknown and not in the interval"
        return cls(tuple(parts), max(0.0, beyond), missing if len(known) < len(by_seed) else None)

    def join(self, rows: float, freedom: float = math.inf) -> RowsAndSeeds:
        """Add the variance ``rows`` over test rows, which has this many degrees of freedom."""
        return RowsAndSeeds(rows, freedom, self)


@dataclass(frozen=True)
class RowsAndSeeds:
    """A variance over test rows, with its degrees of freedom, and what the seeds add to it."""

    rows: float
    row_freedom: float
    seeds: OverSeeds

    @property
    def variance(self) -> float:
        """The sum of both."""
        return self.rows + self.seeds.beyond_rows

    @property
    def degrees_of_freedom(self) -> float:
        """Satterthwaite's; those of the rows where the seeds add nothing."""
        if self.seeds.beyond_rows == 0:
            return self.row_freedom
        return satterthwaite([(self.rows, self.row_freedom), *self.seeds.parts], self.variance)

    @property
    def few(self) -> bool:
        """Whether some variance over seeds comes from fewer than four of them."""
        return any(freedom < 3 for _, freedom in self.seeds.parts)

    def critical(self, error: float) -> float:
        """How many standard errors a figure may be off, at most, but for a share ``error`` of all cases.

        Fewer than four seeds know too little of their own variance for Satterthwaite's approximation, which rejects up
        to 13% instead of 5%. Their part of the variance gets the quantile of its own degrees of freedom (Cochran 1964).
        """
        if not self.few:
            return float(special.stdtrit(self.degrees_of_freedom, 1 - error / 2))
        between = sum(variance for variance, _ in self.seeds.parts)
        share = min(1.0, between / self.variance) if self.variance > 0 else 0.0
        freedoms = [self.row_freedom, satterthwaite(self.seeds.parts, between)]
        of_rows, of_seeds = special.stdtrit(freedoms, 1 - error / 2)
        return float((1 - share) * of_rows + share * of_seeds)

    def arm(self, level: float) -> float:
        """Half the width of the interval."""
        return self.critical(1 - level) * math.sqrt(self.variance)

    def p_value(self, value: float) -> float:
        """Return the p-value of ``value`` being 0: the error probability at which the interval ends there."""
        if value == 0:
            return 1.0
        if self.variance == 0:
            return 0.0
        t = abs(value) / math.sqrt(self.variance)
        if not self.few:
            return float(2 * special.stdtr(self.degrees_of_freedom, -t))
        smallest = math.log(1e-12)
        if self.critical(math.exp(smallest)) <= t:
            return math.exp(smallest)
        return math.exp(root(lambda log: self.critical(math.exp(log)) - t, smallest, 0.0))


def satterthwaite(parts: Sequence[tuple[float, float]], total: float) -> float:
    """Degrees of freedom of ``total``, made of independent variance estimates that are given with their own."""
    rest = sum(variance**2 / freedom for variance, freedom in parts)
    return total**2 / rest if rest > 0 else math.inf
