"""A few hundred labelled rows and a proxy for the rest: prediction-powered inference (PPI++).

Nothing is assumed of the proxy: a bad one gains nothing, and misleads nobody. It does assume that the labelled rows are
a random sample.

With a in {0, 1}, f_a = P(yhat=1 | a), p = P(a=1), psi(a) = a (yhat - f_1) / p - (1 - a)(yhat - f_0) / (1 - p), and
h the proxy instead of a: gap = gap_labelled + lam (mean_unlabelled psi(h) - mean_labelled psi(h)), with lam chosen to
make the variance least (Angelopoulos, Duchi, Zrnic 2023, arXiv:2311.01453). psi is linear in h for each prediction,
so sums of 1, h and h^2 in each (group, label, prediction) are all that is ever needed of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import special

from levelhead.metrics.between import shared
from levelhead.metrics.group import FloatArray
from levelhead.metrics.power import errors_of_detected
from levelhead.metrics.signed import GAPS, ByPair, pairs_of, rows_of
from levelhead.types import Estimate

FEWEST_SHOWN = 10
"""Cells of fewer rows are never published: where a group is known for a few people only, a count is about persons."""
FEWEST_IN_CELL = 5
FOLDS = 5


@dataclass(frozen=True)
class LabelledGap:
    """One gap f_a - f_b by a labelled subset and a proxy.

    ``estimate`` uses both, ``classical`` the labelled rows alone; ``lam`` is the weight that the proxy got (0 to 1);
    ``more_labels`` how many more labelled rows would detect a gap of the measured size in 80 of 100 audits (0: it is
    decided; None: no number would be serious).
    """

    estimate: Estimate
    classical: Estimate
    error: float = math.nan
    classical_error: float = math.nan
    lam: float = math.nan
    more_labels: int | None = None


def by_labelled_rows(labelled: FloatArray, unlabelled: FloatArray, *, level: float = 0.95) -> dict[str, LabelledGap]:
    """Estimate the three gaps f_1 - f_0.

    Args:
        labelled: (group 2, label 2, prediction 2, j 3): sums of h^j over the labelled rows, with h the proxy, the
            probability of group 1.
        unlabelled: (label 2, prediction 2, j 3): sums of h^j over the other rows.
        level: confidence level.

    Returns:
        the gaps by name; refused where a (group, prediction) has fewer than five labelled rows.
    """
    out = {}
    for gap in GAPS:
        own, rest = rows_of(labelled, gap, 1), rows_of(unlabelled, gap, 0)
        pair = _Pair.of(own[..., 0], 1, 0)
        out[gap] = pair.weigh(own, rest, pair.psi[1] - pair.psi[0], pair.psi[0], level)
    return out


def by_labelled_pairs(labelled: FloatArray, unlabelled: FloatArray, *, level: float = 0.95) -> ByPair[LabelledGap]:
    """Estimate the gaps of every two of several groups, with a proxy that is cross-fitted for each group.

    The proxy is the share of the group in each cell of other columns, fitted on the other folds: one that has seen a
    row's group is too good on that row.

    For groups a and b, psi = 1[A=a] (yhat - f_a) / p_a - 1[A=b] (yhat - f_b) / p_b over all labelled rows, and psi(h)
    has the proxies h_a and h_b instead of the indicators.

    Args:
        labelled: (fold, group, cell, label 2, prediction 2): labelled rows.
        unlabelled: (cell, label 2, prediction 2): rows without a group.
        level: confidence level of all pairs together (Bonferroni).

    Returns:
        the gaps; refused where one of the two groups has fewer than five labelled rows of a prediction.
    """
    pairs = pairs_of(labelled.shape[1])
    level = shared(level, len(pairs))
    proxies = np.stack([_proxy(labelled.sum(0) - one) for one in labelled])  # (fold, group, cell)
    power = np.arange(3)
    out: ByPair[LabelledGap] = {}
    for gap in GAPS:
        own = rows_of(labelled, gap, 3)  # (fold, group, cell, prediction)
        others = rows_of(unlabelled, gap, 1)  # (cell, prediction)
        out[gap] = {}
        for a, b in pairs:
            pair = _Pair.of(own.sum((0, 2)), a, b)
            if proxies.shape[-1] > 1:
                guess = np.einsum("fgc,gh->fch", proxies, pair.psi)
            else:  # Without a proxy the predictions alone say something: of the group whose rate varies more.
                varied = max((a, b), key=lambda k, rate=pair.rate: rate[k] * (1 - rate[k]))  # type: ignore[misc]
                guess = np.tile(pair.psi[varied], (len(labelled), 1, 1))
            moments = np.einsum("fgch,fchj->ghj", own, guess[..., None] ** power)
            rest = np.einsum("ch,chj->hj", others, guess.mean(0)[..., None] ** power)
            out[gap][a, b] = pair.weigh(moments, rest, np.ones(2), np.zeros(2), level)
    return out


class _Pair(NamedTuple):
    """Two of the groups of labelled rows.

    ``counts`` (2, predictions) are their rows, ``rate`` (groups,) the rates of all groups, ``classical`` the gap and
    ``psi`` (groups, predictions) what a row adds to it.
    """

    counts: FloatArray
    rate: FloatArray
    classical: float
    psi: FloatArray

    @classmethod
    def of(cls, size: FloatArray, a: int, b: int) -> _Pair:
        """Compare groups a and b, of rows (group, prediction)."""
        psi = np.zeros(size.shape)
        with np.errstate(invalid="ignore", divide="ignore"):
            rate, share = size[:, 1] / size.sum(1), size.sum(1) / size.sum()
            for k, sign in ((a, 1.0), (b, -1.0)):
                psi[k] = sign * (np.array([0.0, 1.0]) - rate[k]) / share[k]
        return cls(size[[a, b]], rate, float(rate[a] - rate[b]), psi)

    def weigh(
        self, own: FloatArray, rest: FloatArray, slope: FloatArray, shift: FloatArray, level: float
    ) -> LabelledGap:
        """Correct the labelled rows' gap by psi(h) = slope h + shift, whose slope and shift are by prediction.

        ``own`` (group, prediction, j) and ``rest`` (prediction, j) are sums of h^j.
        """
        n, unseen = float(own[:, :, 0].sum()), float(rest[:, 0].sum())
        if self.counts.min() < FEWEST_IN_CELL:
            reason = f"fewer than {FEWEST_IN_CELL} labelled rows in a (group, prediction) cell"
            none = Estimate.refuse(reason, int(n) if n >= FEWEST_SHOWN else 0)
            return LabelledGap(none, none)
        lam, move, error, plain_error, correlation = _corrected(own, rest, self.psi, slope, shift)
        value = self.classical + lam * move
        # The smaller group's rows decide how well the variance is known.
        z = float(special.stdtrit(max(2.0, float(self.counts.sum(1).min()) - 1), (1 + level) / 2))
        more = _more_labels(abs(value), z, plain_error, n, unseen, correlation)
        return LabelledGap(
            Estimate(value, value - z * error, value + z * error, int(n + unseen)),
            Estimate(self.classical, self.classical - z * plain_error, self.classical + z * plain_error, int(n)),
            error,
            plain_error,
            lam,
            more,
        )


def _sums(table: FloatArray, slope: FloatArray, shift: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Sums of psi(h) and of its square over (..., prediction, j 3) -> (..., prediction)."""
    first = slope * table[..., 1] + shift * table[..., 0]
    second = slope**2 * table[..., 2] + 2 * slope * shift * table[..., 1] + shift**2 * table[..., 0]
    return first, second


def _corrected(
    own: FloatArray, rest: FloatArray, psi: FloatArray, slope: FloatArray, shift: FloatArray
) -> tuple[float, float, float, float, float]:
    """Return lam, by how much a whole correction moves the gap, both standard errors, and what psi and psi(h) share."""
    counts = own[:, :, 0]
    n, unseen = float(counts.sum()), float(rest[:, 0].sum())
    first, second = _sums(own, slope, shift)
    free = n - 1
    variance = float((counts * psi**2).sum() - (counts * psi).sum() ** 2 / n) / free
    plain_error = math.sqrt(variance / n)
    if unseen < 2:
        return 0.0, 0.0, plain_error, plain_error, 0.0
    other, other_second = (float(part.sum()) for part in _sums(rest, slope, shift))
    inside = float(second.sum() - first.sum() ** 2 / n) / free
    outside = (other_second - other**2 / unseen) / (unseen - 1)
    covariance = float((psi * first).sum() - (psi * counts).sum() * first.sum() / n) / free
    every = n + unseen
    pooled = float(second.sum() + other_second) / every - ((first.sum() + other) / every) ** 2
    if pooled <= 1e-15:  # a constant proxy
        return 0.0, 0.0, plain_error, plain_error, 0.0
    lam = min(1.0, max(0.0, covariance / ((1 + n / unseen) * pooled)))
    error = math.sqrt(max(0.0, variance - 2 * lam * covariance + lam**2 * inside) / n + lam**2 * outside / unseen)
    correlation = covariance / math.sqrt(variance * inside) if variance * inside > 0 else 0.0
    return lam, other / unseen - float(first.sum()) / n, error, plain_error, max(0.0, correlation)


def _more_labels(gap: float, z: float, error: float, n: float, unseen: float, correlation: float) -> int | None:
    """Labelled rows, beyond the ``n`` there are, whose interval of +-``z`` standard errors detects the gap.

    ``error`` is that of the labelled rows alone. 0 where half the interval is no larger than the gap.
    """

    def error_of(rows: float) -> float:
        rest = max(0.0, unseen - (rows - n))
        share = rest / (rest + rows) if rest else 0.0  # 1 / (1 + n/N)
        return error * math.sqrt(n / rows * max(0.0, 1 - correlation**2 * share))

    if z * error_of(n) <= gap:
        return 0
    rows = n
    while rows < 10**7:
        rows *= 1.02
        if errors_of_detected(z) * error_of(rows) <= gap:
            return math.ceil(rows - n)
    return None


def _proxy(others: FloatArray) -> FloatArray:
    """(group, cell, label, prediction) -> the share of each group in each cell (group, cell)."""
    rows = others.sum((2, 3))
    overall = (rows.sum(1) + 1 / len(rows)) / (rows.sum() + 1)
    return np.asarray((rows + 2 * overall[:, None]) / (rows.sum(0) + 2))  # two rows' worth of the overall shares
