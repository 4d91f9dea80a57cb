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

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from levelhead.metrics.between import shared
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import resampled
from levelhead.metrics.signed import GAPS, ByPair, pairs_of, rate_gap, rows_of
from levelhead.types import ConfigError, Estimate

WARM_REPLICATES = 100
_SLACK = 1e-9
_NO_ROWS = "too few rows have this label"
_MIXED_UP = (
    "a proxy does not name the right group most often, so groups may be swapped: better proxies or more rows would help"
)


@dataclass(frozen=True)
class ProxyAnswer:
    """What three or more proxies say.

    Attributes:
        mode: ``global`` or ``local``.
        gaps: by gap and pair of groups (a, b): f_a - f_b.
        shares: (groups,) fitted shares; NaN where refused.
        accuracy: (proxies, groups, groups) fitted P(proxy says j | group i); in local mode NaN.
        statistic: G^2 of the global model.
        p_value: its probability if the global model holds.
        refused: why there is no answer; empty if there is one.
        naive: by gap, pair and proxy: the gap with that proxy taken for the group.
        share_errors: (groups,) standard errors of the shares, of the replicates; None where refused.
    """

    mode: str
    gaps: ByPair[Estimate]
    shares: FloatArray
    accuracy: FloatArray
    statistic: float = math.nan
    p_value: float = math.nan
    refused: str = ""
    naive: ByPair[list[float]] = field(default_factory=dict)
    share_errors: FloatArray | None = None


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


def _figures(
    cells: FloatArray, flat: FloatArray, ends: Callable[[FloatArray], tuple[float, float]], missing: float
) -> ByPair[Estimate]:
    """Estimate every gap of every pair, with the ``ends`` that values and their replicates have.

    ``cells`` (1 + replicates, groups, 4) are P(group, cell). Refused where more than ``missing`` of the replicates
    have no such gap.
    """
    table, outcome = cells.reshape(*cells.shape[:-1], 2, 2), flat.sum(tuple(range(flat.ndim - 1))).reshape(2, 2)
    out: ByPair[Estimate] = {}
    for gap in GAPS:
        own, rows, out[gap] = rows_of(table, gap), round(float(rows_of(outcome, gap).sum())), {}
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = own[..., 1] / own.sum(-1)
        for a, b in pairs_of(table.shape[-3]):
            values = rate[..., a] - rate[..., b]
            if not math.isfinite(values[0]) or np.isnan(values[1:]).mean() > missing:
                out[gap][a, b] = Estimate.refuse(_NO_ROWS, rows)
            else:
                low, high = ends(values)
                out[gap][a, b] = Estimate(float(values[0]), float(low), float(high), rows)
    return out


def by_proxies(
    counts: ArrayLike, *, mode: str = "auto", level: float = 0.95, replicates: int = 1000, seed: int = 0
) -> ProxyAnswer:
    """Estimate the gaps from three or more proxies.

    Args:
        counts: (groups, groups, groups[, ...], label 2, prediction 2) rows: an axis for each proxy.
        mode: ``global``, ``local``, or ``auto``: global, unless its test rejects at 1%.
        level: confidence level; shared among pairs where there are more than two groups.
        replicates: bootstrap replicates for two groups and three proxies; else 100 replicates of a warm start.
        seed: of the bootstrap.

    Returns:
        the gaps, or why there are none.

    Raises:
        ConfigError: fewer than three proxies, or an unknown mode.
    """
    table = np.asarray(counts, np.float64)
    if table.ndim < 5:
        raise ConfigError(
            f"This method needs three proxies; there {'is' if table.ndim == 3 else 'are'} {table.ndim - 2}. "
            f"With fewer, "
            "name a labelled subset (--labelled-group), or the shares of the groups (--shares)."
        )
    if mode not in ("auto", "global", "local"):
        raise ConfigError(f"mode={mode!r} is none of auto, global and local.")
    flat = table.reshape(*table.shape[:-2], 4)
    first = "local" if mode == "local" else "global"
    if reason := _unusable(table):
        answer = _no_answer(first, flat, reason)
    else:
        fit = _fit_closed if table.shape[:-2] == (2, 2, 2) else _fit_em
        answer = fit(flat, first, level, replicates, seed)
        if mode == "auto" and answer.p_value < 0.01:
            tested = answer
            answer = replace(
                fit(flat, "local", level, replicates, seed), statistic=tested.statistic, p_value=tested.p_value
            )
    return replace(answer, naive=_naive(table))


def _unusable(table: FloatArray) -> str:
    axes = range(table.ndim - 2)
    for axis in axes:
        if (table.sum(tuple(range(table.ndim))[:axis] + tuple(range(table.ndim))[axis + 1 :]) == 0).any():
            return f"proxy {axis + 1} never names one of the groups, so it carries no information on it"
    for j in axes:
        for k in range(j):
            rest = tuple(axis for axis in range(table.ndim) if axis not in (j, k))
            pair = table.sum(rest)
            if pair.sum() == np.trace(pair):
                return f"proxies {k + 1} and {j + 1} are identical: they are one proxy, not two"
    return ""


def _naive(table: FloatArray) -> ByPair[list[float]]:
    proxies = table.ndim - 2
    out: ByPair[list[float]] = {}
    for gap in GAPS:
        own = rows_of(table, gap)
        says = [own.sum(tuple(axis for axis in range(proxies) if axis != j)) for j in range(proxies)]
        out[gap] = {(a, b): [rate_gap(one[[b, a]]) for one in says] for a, b in pairs_of(table.shape[0])}
    return out


def _no_answer(mode: str, flat: FloatArray, reason: str) -> ProxyAnswer:
    groups, none = flat.shape[0], Estimate.refuse(reason, int(flat.sum()))
    gaps = {gap: dict.fromkeys(pairs_of(groups), none) for gap in GAPS}
    empty = np.full(groups, np.nan)
    return ProxyAnswer(mode, gaps, empty, np.full((1, groups, groups), np.nan), refused=reason)


def _fit_closed(flat: FloatArray, mode: str, level: float, replicates: int, seed: int) -> ProxyAnswer:
    """Fit two groups and three proxies: flat (2, 2, 2, cells)."""
    n = float(flat.sum())
    both = np.concatenate([flat[None], resampled(flat, replicates, seed)]) / n
    accuracy, statistic, p_value = np.full((3, 2, 2), np.nan), math.nan, math.nan
    if mode == "global":
        solved = closed_form(both.sum(-1))
        cells = _global_cells(both, solved)
        accuracy = np.stack([1 - solved.says[0], solved.says[0]], -1)  # (proxy, group, answer)
        if not np.isnan(cells[0]).any():
            fitted = _joint(*(np.clip(one[None], 1e-12, 1) for one in (cells[0], accuracy))).sum(1)[0]
            statistic, p_value = _g_squared(flat, fitted, n, 2, 3)
    else:
        cells, solved = _local_cells(both)
    if reason := _refusal(solved, cells, mode):
        return replace(_no_answer(mode, flat, reason), statistic=statistic, p_value=p_value)

    def ends(values: FloatArray) -> tuple[float, float]:
        # Percentiles alone held 93% to 94% where few rows have the label: resampled gaps lie nearer to one side of
        # the measured one. An interval of their width around the measured gap mends that.
        tail = (1 - level) / 2
        low, high = np.nanquantile(values[1:], [tail, 1 - tail])
        arm = 1.02 * (high - low) / 2
        return min(low, values[0] - arm), max(high, values[0] + arm)

    return _answered(mode, _figures(cells, flat, ends, 0.01), cells, accuracy, statistic, p_value)


def _answered(
    mode: str, gaps: ByPair[Estimate], cells: FloatArray, accuracy: FloatArray, statistic: float, p_value: float
) -> ProxyAnswer:
    shares = cells.sum(-1)  # (1 + replicates, groups)
    errors = np.nanstd(shares[1:], axis=0, ddof=1)
    return ProxyAnswer(mode, gaps, shares[0], accuracy, statistic, p_value, share_errors=errors)


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


def _g_squared(flat: FloatArray, fitted: FloatArray, n: float, groups: int, proxies: int) -> tuple[float, float]:
    seen = flat > 0
    statistic = 2 * float((flat[seen] * np.log(flat[seen] / n / np.maximum(fitted[seen], 1e-300))).sum())
    freedom = flat.size - 1 - (groups * flat.shape[-1] - 1 + proxies * groups * (groups - 1))
    return statistic, float(stats.chi2.sf(statistic, freedom))


def _fit_em(flat: FloatArray, mode: str, level: float, replicates: int, seed: int) -> ProxyAnswer:
    """Fit more groups or more proxies: flat (groups, ..., groups, cells)."""
    n, groups, proxies = float(flat.sum()), flat.shape[0], flat.ndim - 1
    warm = min(WARM_REPLICATES, replicates)
    drawn = resampled(flat, warm, seed) / n
    parts = [np.s_[..., :]] if mode == "global" else [np.s_[..., cell : cell + 1] for cell in range(flat.shape[-1])]
    cells, says, statistic, p_value = [], [], math.nan, math.nan
    for part in parts:
        if flat[part].sum() == 0:
            return _no_answer(mode, flat, "there are no rows of one label and prediction")
        pi, accuracy = _best_start(flat[part] / n, seed)
        more_pi, more_accuracy = em(drawn[part], np.repeat(pi, warm, 0), np.repeat(accuracy, warm, 0), 120)
        cells.append(np.concatenate([pi, more_pi]))
        says.append(np.concatenate([accuracy, more_accuracy]))
        if mode == "global":
            statistic, p_value = _g_squared(flat, _joint(pi, accuracy).sum(1)[0], n, groups, proxies)
    for accuracy in says:
        own = np.diagonal(accuracy, axis1=-2, axis2=-1)[..., None]
        dominant = np.asarray(own >= accuracy).all((-1, -2, -3)).reshape(-1)
        if not dominant[0] or dominant[1:].mean() < 0.95:
            return replace(_no_answer(mode, flat, _MIXED_UP), statistic=statistic, p_value=p_value)
    joint = np.concatenate(cells, -1)
    z = float(stats.t.ppf((1 + shared(level, len(pairs_of(groups)))) / 2, warm - 1))

    def ends(values: FloatArray) -> tuple[float, float]:
        half = z * float(np.std(values[1:], ddof=1))
        return values[0] - half, values[0] + half

    accuracy = says[0][0] if mode == "global" else np.full((proxies, groups, groups), np.nan)
    return _answered(mode, _figures(joint, flat, ends, 0.0), joint, accuracy, statistic, p_value)


def _best_start(table: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
    """Fit from five starts; return the most likely (1, groups, cells), (1, proxies, groups, groups)."""
    groups, proxies = table.shape[0], table.ndim - 1
    rng = np.random.default_rng([seed, 1])
    starts = 5
    off = 0.4 / (groups - 1)
    accuracy = np.tile(np.full((groups, groups), off) + np.eye(groups) * (0.6 - off), (starts, proxies, 1, 1))
    accuracy[1:] *= rng.uniform(0.7, 1.3, accuracy[1:].shape)
    accuracy /= accuracy.sum(-1, keepdims=True)
    cell = table.sum(tuple(range(proxies)))
    pi = rng.dirichlet(np.full(groups, 20.0), starts)
    pi[0] = 1 / groups
    pi_cells, accuracy = em(np.repeat(table[None], starts, 0), pi[..., None] * cell, accuracy, 2000)
    fitted = _joint(pi_cells, accuracy).sum(1)
    likelihood = (table * np.log(np.maximum(fitted, 1e-300))).reshape(starts, -1).sum(-1)
    best = int(likelihood.argmax())
    return pi_cells[best : best + 1], accuracy[best : best + 1]


def _joint(pi: FloatArray, accuracy: FloatArray) -> FloatArray:
    """P(group, answers of the proxies, cell) (replicates, groups, answers ..., cells)."""
    proxies = accuracy.shape[1]
    out = pi.reshape(*pi.shape[:2], *([1] * proxies), pi.shape[-1])
    for j in range(proxies):
        shape = [*accuracy.shape[:1], accuracy.shape[2], *([1] * proxies), 1]
        shape[2 + j] = accuracy.shape[3]
        out = out * accuracy[:, j].reshape(shape)
    return out


def em(table: FloatArray, pi: FloatArray, accuracy: FloatArray, iterations: int) -> tuple[FloatArray, FloatArray]:
    """Fit P(group, cell) and P(proxy's answer | group) by expectation and maximisation.

    Args:
        table: (replicates, answers ..., cells) probabilities.
        pi: (replicates, groups, cells) start of P(group, cell).
        accuracy: (replicates, proxies, groups, answers) start of P(answer | group).
        iterations: most iterations.

    Returns:
        the two, fitted.
    """
    proxies = accuracy.shape[1]
    axes = tuple(range(2, 2 + proxies))
    for _ in range(iterations):
        joint = _joint(pi, accuracy)
        joint *= (table / np.maximum(joint.sum(1), 1e-300))[:, None]
        new = joint.sum(axes)
        sides = [joint.sum((*(axis for axis in axes if axis != 2 + j), joint.ndim - 1)) for j in range(proxies)]
        says = np.stack(sides, 1)
        says = says / np.maximum(says.sum(-1, keepdims=True), 1e-300)
        moved = max(float(np.abs(new - pi).max()), float(np.abs(says - accuracy).max()))
        pi, accuracy = new, says
        if moved < 1e-13:
            break
    return pi, accuracy
