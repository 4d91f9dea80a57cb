"""Who is in the first places of a ranking: counts by group, the law of such counts, and the exposure of places.

*Ties.* Rows of one score share their places: each counts with its expected share of the places, which is the mean over
all orders of the tied rows. No order of the file decides.

*Counts.* Given how many rows are in the top, the number of one group among them has Fisher's noncentral hypergeometric
law, whose parameter is the odds of its rows against those of the others. Its exact interval (both tails, as Clopper and
Pearson's) is carried over to the expected count. It leaves out the count that chance expects just where twice the
smaller tail of the hypergeometric law, Fisher's exact test, rejects. Scores whose thresholds are estimated from the
rows make the count a little more variable; the difference is of second order, and simulated in
benchmarks/coverage_more.py.

*Exposure.* Place j has the exposure 1 / log2(1 + j) (Singh and Joachims, KDD 2018), and places below the top nothing.
The share
of a group is a weighted proportion; its interval is that of a proportion of as many rows as the weighted places
represent, with the finite number of rows allowed for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.metrics.between import proportion_ends
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.roots import root

REACH = 50
"""Standard deviations of a count that are summed around it; more have no probability that floats could tell from 0."""


class Places(NamedTuple):
    """Rows in the order of their scores, the first first.

    Attributes:
        group: (rows,) code of each row's group.
        ends: (runs,) the last place of each run of equal scores, from 1.
    """

    group: NDArray[np.integer]
    ends: IntArray

    @classmethod
    def of(cls, score: FloatArray, group: NDArray[np.integer], *, lowest_first: bool = False) -> Places:
        """Sort rows by ``score`` (rows,), the highest first."""
        order = np.argsort(score if lowest_first else -score, kind="stable")
        ranked = score[order]
        return cls(group[order], np.append(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1, len(ranked)))

    def run_at(self, place: int) -> tuple[int, int]:
        """Return the places before the run of equal scores that holds a place, and its last one."""
        at = int(np.searchsorted(self.ends, place))
        return int(self.ends[at - 1]) if at else 0, int(self.ends[at])

    def counts(self, groups: int, top: int) -> FloatArray:
        """Return the expected rows of each group in the first places, (groups,)."""
        first, last = self.run_at(top)
        sure, tied = (np.bincount(self.group[one], minlength=groups) for one in (slice(first), slice(first, last)))
        return sure + tied / (last - first) * (top - first)

    def exposure(self, groups: int, top: int) -> FloatArray:
        """Return the exposure of each group in the first places, (groups,)."""
        ends = self.ends[: np.searchsorted(self.ends, top) + 1]
        edges = np.concatenate([[0], ends])
        worth = np.concatenate([[0.0], np.cumsum(discounts(top))])[np.minimum(edges, top)]
        each = np.repeat(np.diff(worth) / np.diff(edges), np.diff(edges))
        return np.bincount(self.group[: edges[-1]], each, groups).astype(np.float64)


def discounts(top: int) -> FloatArray:
    """Return the exposure of each of the first places, (top,)."""
    return 1 / np.log2(np.arange(2, top + 2))


class TopLaw(NamedTuple):
    """How many of ``members`` rows, out of ``rows``, are among the ``top`` if the odds of all rows are alike or not."""

    members: int
    rows: int
    top: int

    def counts(self, around: int) -> tuple[FloatArray, FloatArray]:
        """Return the counts near one that have a probability, and the logs of their weights at equal odds."""
        least, most = max(0, self.top - self.rows + self.members), min(self.members, self.top)
        spread = math.sqrt(min(self.top, self.members, self.rows - self.members, self.rows - self.top))
        reach = int(REACH * spread) + 200
        x = np.arange(max(least, around - reach), min(most, around + reach) + 1, dtype=np.float64)
        rest = self.rows - self.members - self.top + x
        return x, -special.gammaln(np.stack([x, self.members - x, self.top - x, rest]) + 1).sum(0)

    def p_value(self, hits: float) -> float:
        """Return twice the smaller tail at equal odds; an expected count is rounded towards the mean."""
        mean = self.top * self.members / self.rows
        x, weight = self.counts(round(mean))
        share = special.softmax(weight)
        low, high = _whole(hits)
        tail = share[x >= low].sum() if low > mean else share[x <= high].sum() if high < mean else 1.0
        return float(min(1.0, 2 * tail))

    def expected(self, hits: float, error: float) -> tuple[float, float]:
        """Return the ends of the exact interval of the expected count, which errs with probability ``error``."""
        return self._end(_whole(hits)[0], error / 2, above=True), self._end(_whole(hits)[1], error / 2, above=False)

    def by_chance(self, error: float) -> tuple[float, float]:
        """Return the counts that chance leaves with a probability of at most ``error``, both sides together."""
        x, weight = self.counts(round(self.top * self.members / self.rows))
        below = np.cumsum(special.softmax(weight))
        low, high = np.searchsorted(below, [error / 2 * (1 + 1e-9), 1 - error / 2 * (1 + 1e-9)])
        return float(x[low]), float(x[min(int(high), len(x) - 1)])

    def _end(self, hits: int, tail: float, *, above: bool) -> float:
        """Return the expected count at which the law has the probability ``tail`` of ``hits`` or more (or fewer)."""
        x, weight = self.counts(hits)
        if hits == (x[0] if above else x[-1]):
            return float(hits)
        reached = x >= hits if above else x <= hits
        centred = x - hits

        def over(log_odds: float) -> float:
            return float(special.softmax(weight + log_odds * centred)[reached].sum()) - tail

        log_odds = root(over, -80.0, 80.0)
        return float(special.softmax(weight + log_odds * centred) @ x)


def _whole(hits: float) -> tuple[int, int]:
    """Return the whole numbers around an expected count: itself twice, where it is one."""
    return math.floor(hits + 1e-9), math.ceil(hits - 1e-9)


def ratio_ends(hits: tuple[float, float], members: tuple[int, int], error: float) -> tuple[float, float]:
    """Return the ends of the ratio of two groups' shares in the top, given how many of both are there.

    Args:
        hits: (expected) rows of the first and the second group in the top.
        members: rows of both groups.
        error: probability that the interval misses the truth.
    """
    (first_low, first_high), (second_low, second_high) = map(_whole, hits)
    found = []
    for own, other, end in ((first_low, second_high, 0), (first_high, second_low, 1)):
        law = TopLaw(members[0], sum(members), own + other)
        mean = law.expected(own, error)[end] if own + other else math.nan
        rest = (own + other - mean) / members[1]
        found.append(mean / members[0] / rest if rest > 0 else math.inf)
    return found[0], found[1]


def exposure_ends(share: FloatArray, rows: int, top: int, error: float) -> tuple[FloatArray, FloatArray]:
    """Return the ends of shares of the exposure in the first ``top`` of ``rows`` places, arrays of one shape."""
    worth = discounts(top)
    noise = rows / (rows - 1) * (float((worth**2).sum() / worth.sum() ** 2) - 1 / rows)
    number = 1 / max(noise, 1e-12)
    return proportion_ends(share * number, np.full_like(share, number), error)
