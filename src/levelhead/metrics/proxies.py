"""Three proxies and no group at all: how often proxies agree tells how good each is (HOC).

If proxies are independent given the group A, their means, covariances and third moment determine P(A) and
P(proxy | A) (Zhu, Yao, Sun, Li, Liu, ICML 2023, arXiv:2210.03175; for two groups in closed form below). Two modes:

* ``global``: the proxies are, given A, independent of label and prediction, too.
* ``local``: they are independent within each (group, label, prediction) alone. Weaker, and needs far more rows.

A likelihood-ratio test of the global model switches to the local one. Errors that proxies share given the group
cannot be seen in such data by either; every answer says so.

Two groups, with m_j = E A_j, c_jk = cov(A_j, A_k), m3 = E prod(A_j - m_j) and J_j = P(A_j=1|1) - P(A_j=1|0):
c_jk = p(1-p) J_j J_k and m3 = p(1-p)(1-2p) J_1 J_2 J_3, so with R = m3 / sqrt(c12 c13 c23)
p = (1 - R / sqrt(4 + R^2)) / 2 and J_1 = sqrt(c12 c13 / c23) / sqrt(p(1-p)). All J are taken to be positive.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import resampled
from levelhead.metrics.signed import GAPS, ByPair, rate_gap, rows_of
from levelhead.types import Estimate

PAIR = (1, 0)
"""The one pair of groups."""
_SLACK = 1e-9
_NO_ROWS = "too few rows have this label"


@dataclass(frozen=True)
class ProxyAnswer:
    """What three proxies say.

    Attributes:
        mode: ``global`` or ``local``.
        gaps: by gap and pair of groups (a, b): f_a - f_b.
        shares: (groups,) fitted shares; NaN where refused.
        accuracy: (proxies, groups, groups) fitted P(proxy says j | group i); in local mode NaN.
        p_value: of the likelihood-ratio test of the global model.
        refused: why there is no answer; empty if there is one.
        naive: by gap, pair and proxy: the gap with that proxy taken for the group.
    """

    mode: str
    gaps: ByPair[Estimate]
    shares: FloatArray
    accuracy: FloatArray
    p_value: float = math.nan
    refused: str = ""
    naive: ByPair[list[float]] = field(default_factory=dict)


class _Solved(NamedTuple):
    """The closed form for (..., 2, 2, 2) probabilities; NaN where there is no real solution."""

    share: FloatArray  # (...,): P(A=1)
    low: FloatArray  # (..., 3): P(A_j=1 | 0)
    gain: FloatArray  # (..., 3): J_j
    covariance: FloatArray  # (..., 3): c12, c13, c23

    @property
    def says(self) -> FloatArray:
        """P(A_j=1 | group), (..., 3, 2)."""
        return np.stack([self.low, self.low + self.gain], -1)


def closed_form(joint: ArrayLike) -> _Solved:
    """Solve for two groups and three proxies.

    Args:
        joint: (..., 2, 2, 2) probabilities of the three proxies' answers.

    Returns:
        P(A=1), P(A_j=1|0), J_j and the covariances.
    """
    table = np.asarray(joint, np.float64)
    mean = np.stack([table.sum(tuple({-3, -2, -1} - {axis}))[..., 1] for axis in (-3, -2, -1)], -1)
    both = (table.sum(-1)[..., 1, 1], table.sum(-2)[..., 1, 1], table.sum(-3)[..., 1, 1])
    pairs = ((0, 1), (0, 2), (1, 2))
    c = np.stack([one - mean[..., j] * mean[..., k] for one, (j, k) in zip(both, pairs, strict=True)], -1)
    centred = [np.array([0.0, 1.0]) - mean[..., j, None] for j in range(3)]
    third = np.einsum("...ijk,...i,...j,...k->...", table, *centred)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = third / np.sqrt(np.where((c > 0).all(-1), c.prod(-1), np.nan))
        share = (1 - ratio / np.sqrt(4 + ratio**2)) / 2
        spread = np.sqrt(share * (1 - share))
        # J_j is the root of the product of all three covariances over the one that j has no part in, and over spread.
        gain = np.sqrt(c.prod(-1))[..., None] / c[..., ::-1] / spread[..., None]
        return _Solved(share, mean - share[..., None] * gain, gain, c)


def _global_cells(table: FloatArray, solved: _Solved) -> FloatArray:
    """(..., 2, 2, 2, cells) -> P(group, cell) (..., 2, cells)."""
    cell = table.sum((-4, -3, -2))
    says = np.stack([table.sum(tuple({-4, -3, -2} - {axis}))[..., 1, :] for axis in (-4, -3, -2)], -2)
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = solved.gain**2 / (solved.gain**2).sum(-1, keepdims=True)
        each = (says - cell[..., None, :] * solved.low[..., None]) / solved.gain[..., None]
    one = (weight[..., None] * each).sum(-2)
    return np.stack([cell - one, one], -2)


def _local_cells(table: FloatArray) -> tuple[FloatArray, _Solved]:
    """(..., 2, 2, 2, cells) -> P(group, cell) (..., 2, cells), and the solution of each cell (..., cells)."""
    cell = table.sum((-4, -3, -2))
    with np.errstate(invalid="ignore", divide="ignore"):
        solved = closed_form(np.moveaxis(table, -1, -4) / cell[..., None, None, None])
    one = cell * solved.share
    return np.stack([cell - one, one], -2), solved


def by_proxies(
    counts: ArrayLike, *, mode: str = "auto", level: float = 0.95, replicates: int = 1000, seed: int = 0
) -> ProxyAnswer:
    """Estimate the gaps from three proxies.

    Args:
        counts: (2, 2, 2, label 2, prediction 2) rows: an axis for each proxy.
        mode: ``global``, ``local``, or ``auto``: global, unless its test rejects at 1%.
        level: confidence level.
        replicates: bootstrap replicates.
        seed: of the bootstrap.

    Returns:
        the gaps, or why there are none.
    """
    table = np.asarray(counts, np.float64)
    flat = table.reshape(2, 2, 2, 4)
    first = "local" if mode == "local" else "global"
    if reason := _unusable(table):
        answer = _no_answer(first, flat, reason)
    else:
        answer = _fit(flat, first, level, replicates, seed)
        if mode == "auto" and answer.p_value < 0.01:
            answer = replace(_fit(flat, "local", level, replicates, seed), p_value=answer.p_value)
    return replace(answer, naive=_naive(table))


def _unusable(table: FloatArray) -> str:
    for axis in range(3):
        others = tuple({*range(5)} - {axis})
        if (table.sum(others) == 0).any():
            return f"proxy {axis + 1} never names one of the groups, so it carries no information on it"
    for k, j in itertools.combinations(range(3), 2):
        pair = table.sum(tuple({*range(5)} - {j, k}))
        if pair.sum() == np.trace(pair):
            return f"proxies {k + 1} and {j + 1} are identical: they are one proxy, not two"
    return ""


def _naive(table: FloatArray) -> ByPair[list[float]]:
    out: ByPair[list[float]] = {}
    for gap in GAPS:
        own = rows_of(table, gap)
        says = [own.sum(tuple({0, 1, 2} - {j})) for j in range(3)]
        out[gap] = {PAIR: [rate_gap(one) for one in says]}
    return out


def _no_answer(mode: str, flat: FloatArray, reason: str) -> ProxyAnswer:
    none = Estimate.refuse(reason, int(flat.sum()))
    gaps = {gap: {PAIR: none} for gap in GAPS}
    return ProxyAnswer(mode, gaps, np.full(2, np.nan), np.full((3, 2, 2), np.nan), refused=reason)


def _fit(flat: FloatArray, mode: str, level: float, replicates: int, seed: int) -> ProxyAnswer:
    """Fit rows (2, 2, 2, cells) of three proxies and of label and prediction."""
    n = float(flat.sum())
    both = np.concatenate([flat[None], resampled(flat, replicates, seed)]) / n
    accuracy, p_value = np.full((3, 2, 2), np.nan), math.nan
    if mode == "global":
        solved = closed_form(both.sum(-1))
        cells = _global_cells(both, solved)
        accuracy = np.stack([1 - solved.says[0], solved.says[0]], -1)  # (proxy, group, answer)
        if not np.isnan(cells[0]).any():
            p_value = _test(flat, np.clip(cells[0], 1e-12, 1), np.clip(accuracy, 1e-12, 1))
    else:
        cells, solved = _local_cells(both)
    if reason := _refusal(solved, cells, mode):
        return replace(_no_answer(mode, flat, reason), p_value=p_value)
    gaps: ByPair[Estimate] = {gap: {PAIR: _gap(cells, flat, gap, level)} for gap in GAPS}
    return ProxyAnswer(mode, gaps, cells.sum(-1)[0], accuracy, p_value)


def _gap(cells: FloatArray, flat: FloatArray, gap: str, level: float) -> Estimate:
    """Estimate a gap from P(group, cell) (1 + replicates, 2, 4), of the rows and of their replicates."""
    own = rows_of(cells.reshape(*cells.shape[:-1], 2, 2), gap)
    rows = round(float(rows_of(flat.sum((0, 1, 2)).reshape(2, 2), gap).sum()))
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = own[..., 1] / own.sum(-1)
    values = rate[..., 1] - rate[..., 0]
    if not math.isfinite(values[0]) or np.isnan(values[1:]).mean() > 0.01:
        return Estimate.refuse(_NO_ROWS, rows)
    # Percentiles alone held 93% to 94% where few rows have the label: resampled gaps lie nearer to one side of the
    # measured one. An interval of their width around the measured gap mends that.
    tail = (1 - level) / 2
    low, high = np.nanquantile(values[1:], [tail, 1 - tail])
    arm = 1.02 * (high - low) / 2
    return Estimate(float(values[0]), float(min(low, values[0] - arm)), float(max(high, values[0] + arm)), rows)


def _refusal(solved: _Solved, cells: FloatArray, mode: str) -> str:
    """Say why a fit with its replicates (first: the data themselves) must not be shown; empty if it may be."""
    where = "" if mode == "global" else " among rows of one label and prediction"
    covariance = solved.covariance.reshape(len(solved.covariance), -1)
    if np.isnan(covariance).any() or (np.quantile(covariance[1:], 0.005, axis=0) <= 0).any():
        return f"two proxies may not agree more often than by chance{where}: better proxies or more rows would help"
    if np.isnan(cells).any((-1, -2)).mean() > 0.01 or np.isnan(cells[0]).any():
        return f"more than 1% of the resampled data have no solution{where}: better proxies or more rows would help"
    says = solved.says[0]
    if (says < -_SLACK).any() or (says > 1 + _SLACK).any() or (cells[0] < -_SLACK).any():
        return (
            f"the fit gives a probability below 0 or above 1{where}: the proxies’ errors are not independent, or there "
            "are too few rows"
        )
    return ""


def _test(flat: FloatArray, cells: FloatArray, accuracy: FloatArray) -> float:
    """Return the p-value of G^2 of the global model, P(group, cell) and P(proxy says | group)."""
    n, seen = flat.sum(), flat > 0
    fitted = np.einsum("gi,gj,gk,gc->ijkc", *accuracy, cells)
    statistic = 2 * float((flat[seen] * np.log(flat[seen] / n / np.maximum(fitted[seen], 1e-300))).sum())
    # 32 cells add to 1, and so do 8 of groups; each proxy has two probabilities.
    return float(special.chdtrc(31 - 7 - 6, max(0.0, statistic)))
