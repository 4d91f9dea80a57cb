"""Counts by label, prediction, group and what the proxies say, as the methods take them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from levelhead.auditing.unknown.tally import BINS, Pattern
from levelhead.metrics.group import FloatArray
from levelhead.metrics.labelled import FOLDS
from levelhead.metrics.signed import GAPS, rate_gap, rows_of
from levelhead.tables.vocabulary import in_order

Axis = tuple[Callable[[Pattern], Hashable], Sequence[Hashable]]
"""What is read of a pattern, and its values."""

LEAST_SPREAD = 1e-12
"""Variance of a probability, below which it is constant."""
KNOWN_GROUP: Axis = (lambda pattern: pattern.group is not None, (False, True))


def group_of(pattern: Pattern) -> Hashable:
    """Return the group; None where it is not known."""
    return pattern.group


def said_by(proxy: int) -> Callable[[Pattern], Hashable]:
    """Return what reads the words of a proxy."""
    return lambda pattern: pattern.said[proxy]


@dataclass(frozen=True)
class Cells:
    """Sums over the rows of each pattern, as :class:`~levelhead.auditing.unknown.tally.Tally` has them.

    Labels and predictions are 0 and 1. ``proxies`` are the names of those that speak, and ``probability`` says whether
    the only one is a probability.
    """

    patterns: list[Pattern]
    sums: FloatArray
    proxies: tuple[str, ...] = ()
    probability: bool = False

    @cached_property
    def rows(self) -> FloatArray:
        """Rows of each pattern."""
        return self.sums[:, 0, 0]

    @cached_property
    def groups(self) -> list[Hashable]:
        """The groups that are known."""
        return in_order({pattern.group for pattern in self.patterns} - {None})

    def values(self, of: Callable[[Pattern], Hashable]) -> set[Hashable]:
        """Return what is read of any pattern."""
        return set(map(of, self.patterns))

    def count(self, holds: Callable[[Pattern], bool]) -> int:
        """Count the rows whose pattern fits."""
        return int(self.rows[[holds(pattern) for pattern in self.patterns]].sum())

    def table(self, *axes: Axis, sums: FloatArray | None = None) -> FloatArray:
        """Add up rows, or the ``sums`` of patterns, into an array (..., label 2, prediction 2) with these axes.

        Patterns with other values are left out.
        """
        added = self.rows if sums is None else sums
        every: list[Axis] = [*axes, (lambda one: one.label, (0, 1)), (lambda one: one.prediction, (0, 1))]
        index = []
        for of, values in every:
            places = {value: place for place, value in enumerate(values)}
            index.append([places.get(of(pattern), -1) for pattern in self.patterns])
        place = np.array(index, np.int64)
        kept = place.min(0) >= 0
        out = np.zeros((*(len(values) for _, values in every), *added.shape[1:]))
        np.add.at(out, tuple(place[:, kept]), added[kept])
        return out

    @property
    def constant(self) -> list[str]:
        """Names of the proxies that say the same in every row."""
        if self.probability:
            rows, first, second = self.sums[:, 0].sum(0)
            return [] if second / rows - (first / rows) ** 2 > LEAST_SPREAD else list(self.proxies)
        return [proxy for at, proxy in enumerate(self.proxies) if len(self.values(said_by(at))) == 1]

    def naive(self, group: Hashable = None, other: Hashable = None) -> dict[str, dict[str, float]]:
        """Return the gaps of a group and another, by name and proxy, if each proxy were the group.

        A proxy of other words than the groups' is left out; a probability speaks for the group from a half on.
        """
        axes: dict[str, Axis] = {}
        if self.probability:
            axes[self.proxies[0]] = (lambda pattern: pattern.bin >= BINS // 2, (False, True))
        for at, proxy in enumerate(() if self.probability else self.proxies):
            if self.values(said_by(at)) <= set(self.groups):
                axes[proxy] = (said_by(at), (other, group))
        tables = {proxy: self.table(axis) for proxy, axis in axes.items()}
        return {gap: {proxy: rate_gap(rows_of(one, gap)) for proxy, one in tables.items()} for gap in GAPS}

    def moments(self) -> tuple[FloatArray, FloatArray, float]:
        """Return what :func:`by_labelled_rows` takes for two groups, and the direction of the probability."""
        every = self.table((group_of, [*self.groups, None]), sums=self.sums[:, 0])
        own, rest = every[:-1], every[-1]
        if not self.proxies:  # without a proxy h is the same everywhere, and gains nothing
            own[..., 1:], rest = own[..., :1], np.repeat(rest[..., :1], 3, -1)
        counts, first = own[..., 0].sum((1, 2)), own[..., 1].sum((1, 2))
        mean = np.divide(first, counts, out=np.zeros(2), where=counts > 0)
        if mean[1] >= mean[0]:
            return own, rest, 1.0
        # The probability is that of the other group: h becomes 1 - h.
        own, rest = (
            np.stack([one[..., 0], one[..., 0] - one[..., 1], one[..., 0] - 2 * one[..., 1] + one[..., 2]], -1)
            for one in (own, rest)
        )
        return own, rest, -1.0

    def by_cell(self, seed: int) -> tuple[FloatArray, FloatArray]:
        """Count by what proxies say: labelled rows (fold, group, cell, label, prediction), others (cell, 2, 2).

        Rows of one cell, group, label and prediction are alike. Chance says how many of them a fold gets, whatever the
        order of the rows.
        """
        said = self._said(10)  # tenths: what each says of several groups is fitted
        rows = self.table((group_of, self.groups), said).astype(np.int64)
        fold = np.random.default_rng(seed).permutation(rows.sum()) % FOLDS
        dealt = np.zeros((FOLDS, rows.size))
        np.add.at(dealt, (fold, np.repeat(np.arange(rows.size), rows.ravel())), 1)
        return dealt.reshape(FOLDS, *rows.shape), self.table((group_of, [None]), said)[0]

    def not_random(self) -> bool:
        """Whether these rows show that being labelled goes with label, prediction or proxy (p below 0.001)."""
        counts = self.table(KNOWN_GROUP, self._said(5))
        counts = counts.reshape(2, -1).T
        share = counts[:, 1].sum() / counts.sum()
        counts = counts[counts.sum(1) * min(share, 1 - share) >= 5]
        if len(counts) < 2 or (counts.sum(0) == 0).any():
            return False
        expected = np.outer(counts.sum(1), counts.sum(0)) / counts.sum()
        return bool(special.chdtrc(len(counts) - 1, ((counts - expected) ** 2 / expected).sum()) < 0.001)

    def _said(self, steps: int) -> Axis:
        """What the proxies say together; of a probability, in which of this many ranges it is."""

        def said(pattern: Pattern) -> Hashable:
            return pattern.bin * steps // BINS if self.probability else pattern.said

        return said, sorted(self.values(said), key=str)
