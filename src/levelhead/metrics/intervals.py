"""Intervals for group metrics that cover what they say they cover.

Why not the percentile bootstrap: an absolute gap is never negative, so its percentile interval covers a true gap of
zero 0% of the time, and the basic bootstrap of equalized odds covers 86 to 90% (1,000 simulated audits). What is
done instead:

*One form for every metric.* Each figure is the largest of some linear contrasts of rates. A demographic parity gap
is the largest p_i - p_j over ordered pairs of groups; since (|a| + |b|) / 2 is the largest (+-a +-b) / 2, equalized
odds is one too; so is the worst class, and minus the worst-group accuracy. Contrasts are signed and smooth, so the
bootstrap works for them although it fails for their maximum.

*Contrasts.* Rates get one pseudo-success and one pseudo-failure (Agresti and Caffo 2000; two of each for single
proportions, Agresti and Coull 1998), so that cells of 0/7 have a variance. Rows are resampled by one multinomial
draw on the (group, label, prediction) cells; each replicate is studentised with its own smoothed variance. Critical
values are never below the normal ones: the floor costs little where the bootstrap is right and holds the coverage
where cells are so small that resampling cannot show their spread.

*No gap*: if the max-|t| test does not reject "all contrasts are 0", the interval starts at 0. (It is held at four
fifths of the error probability, because in cells of a dozen rows it rejects too often.)
*Lower end*: otherwise, invert the one-sided max-t bootstrap test of "the largest contrast is m". Contrasts that are
clearly smaller than the largest cannot push the maximum up, and counting them as if they could would make intervals
too wide; each gets credit for its distance to the largest, less sqrt(2 log log n) standard errors of that distance
(generalised moment selection, Andrews and Soares 2010).
*Upper end*: the largest contrast is at least the one that is truly largest, so max(contrast + z * se) suffices; where
several contrasts are nearly tied it is missed only if all fall short, and z is lowered accordingly.
With two groups and one class this is the fold rule: the signed interval [l, u] becomes
[min(|l|, |u|), max(|l|, |u|)], or [0, max(|l|, |u|)] if it holds 0.

*Means over classes* of worst pairs use one simultaneous max-|t| band over all contrasts. That is conservative.

*Bias.* A maximum of noisy absolute values is too large on average. ``Estimate.corrected`` subtracts the bootstrap
estimate of the excess.

*Differences of two predictors on the same rows* resample the rows jointly. With k the contrast that is truly largest
for A, A - B is at most A_k - B_j for every j: each of these is linear, so their paired standard errors and a max-t
critical value give a bound, and the worst over all k that may be the largest holds. The lower end is the mirror
image. Predictions that agree in every row differ by exactly 0. (Bootstrapping the difference of the two gaps itself
covered 88% where one gap was zero and the other one standard error.)

*Means over seeds*: the arms of the seeds' intervals are averaged, shrunk by what averaging over seeds takes off the
resampled deviations, and joined with the variance over seeds (Satterthwaite 1946).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, stats

from levelhead.metrics import group as group_metrics
from levelhead.metrics.counts import Counts, IntArray, JointCounts
from levelhead.metrics.group import FloatArray, Rate, Table
from levelhead.types import ConfigError, DataError, Estimate, quoted

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds", "equalized_odds_worst")
LEVELS = ("accuracy", "balanced_accuracy")
METRICS = (*LEVELS, "worst_group_accuracy", *GAPS)


def metric_names(classes: int, positive: int | None = None) -> tuple[str, ...]:
    """Names of the metrics that exist for so many classes; means over classes only where there are several."""
    several = len(group_metrics.classes_compared(classes, positive)) > 1
    return METRICS + tuple(f"{name}_mean" for name in GAPS) if several else METRICS


def estimate(
    counts: Counts,
    metric: str,
    *,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Estimate one metric with its interval.

    Args:
        counts: the count table.
        metric: one of :func:`metric_names`.
        positive: index of the positive class. None means class 1 of two; with three or more classes every class is
            set against the rest, and the figure is the worst class (or, with ``_mean``, the mean).
        level: how often the interval should hold the true value, between 0 and 1.
        replicates: number of bootstrap replicates.
        seed: of the bootstrap; the same counts and seed give the same interval.

    Returns:
        the figure as a fraction, or an undefined one that says which rows are lacking.

    Raises:
        ConfigError: unknown metric, or an option out of range.
    """
    known = metric_names(len(counts.classes), positive)
    if metric not in known:
        raise ConfigError(f"Unknown metric {metric!r} for {len(counts.classes)} classes. Known: {', '.join(known)}.")
    return _estimate([metric], counts, positive, level, replicates, seed)[metric]


def estimate_all(
    counts: Counts, *, positive: int | None = None, level: float = 0.95, replicates: int = 1000, seed: int = 0
) -> dict[str, Estimate]:
    """Estimate every metric of :func:`metric_names` from one set of replicates; arguments as for :func:`estimate`."""
    names = metric_names(len(counts.classes), positive)
    return _estimate(names, counts, positive, level, replicates, seed)


def proportion(hits: int, rows: int, *, level: float = 0.95) -> Estimate:
    """Estimate one proportion with Wilson's score interval (Wilson 1927).

    Args:
        hits: successes.
        rows: trials.
        level: confidence level.

    Returns:
        hits / rows; undefined if there are no rows.
    """
    if rows == 0:
        return Estimate.undefined("no rows")
    z = _normal_quantile(level)
    share, scale = hits / rows, 1 + z * z / rows
    middle = (share + z * z / (2 * rows)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    # At 0 and at 1 the end is exact; rounding must not push it past the value.
    return Estimate(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)), rows)


# ---------------------------------------------------------------------------------------------------- one table


def _estimate(
    names: Sequence[str], counts: Counts, positive: int | None, level: float, replicates: int, seed: int
) -> dict[str, Estimate]:
    _check_options(level, replicates)
    if counts.n == 0:
        return {name: Estimate.undefined("no rows") for name in names}
    plain = _Figures(counts.table, positive, smooth=False)
    smooth = _Figures(counts.table, positive)
    resampled = _Figures(_resample(counts.table, replicates, seed), positive)
    results = {}
    for name in names:
        reason = undefined_reason(counts, name, positive)
        if reason:
            results[name] = Estimate.undefined(reason, rows_used(counts.table, name, positive))
            continue
        value = float(plain.values(name))
        shift = float(resampled.values(name).mean() - smooth.values(name))
        low, high = _ends(name, smooth, resampled, level, counts.n)
        biased = name not in LEVELS
        results[name] = Estimate(
            value,
            max(0.0, min(low, value)),
            min(1.0, max(high, value)),
            rows_used(counts.table, name, positive),
            corrected=min(1.0, max(0.0, value - shift)) if biased else None,
        )
    return results


def _resample(table: IntArray, replicates: int, seed: int) -> IntArray:
    """(groups, classes, classes) -> (replicates, groups, classes, classes): rows drawn with replacement."""
    flat = table.ravel()
    filled = np.flatnonzero(flat)
    drawn = np.zeros((replicates, flat.size), np.int64)
    rng = np.random.default_rng(seed)
    drawn[:, filled] = rng.multinomial(int(flat.sum()), flat[filled] / flat.sum(), size=replicates)
    return drawn.reshape(replicates, *table.shape)


class _Figures:
    """The contrasts of every metric for one table or a stack of replicates (..., groups, classes, classes)."""

    def __init__(self, table: Table, positive: int | None, *, smooth: bool = True) -> None:
        self.table, self.positive, self.smooth = table, positive, smooth

    def _share(self, rate: Rate, pseudo: int) -> tuple[FloatArray, FloatArray]:
        """Rate and its variance with so many pseudo-successes and pseudo-failures."""
        if not self.smooth:
            value = rate.value
            return value, np.zeros_like(value)
        rows = rate.rows + 2.0 * pseudo
        value = (rate.hits + pseudo) / rows
        return value, value * (1 - value) / rows

    @cached_property
    def _cells(self) -> Rate:
        return group_metrics.cell_hits(self.table)

    @cached_property
    def _selection(self) -> tuple[FloatArray, FloatArray]:
        return self._pairs(group_metrics.selection(self.table, self.positive))

    @cached_property
    def _found(self) -> tuple[FloatArray, FloatArray]:
        return self._pairs(group_metrics.true_positives(self.table, self.positive))

    @cached_property
    def _alarms(self) -> tuple[FloatArray, FloatArray]:
        return self._pairs(group_metrics.false_positives(self.table, self.positive))

    def _pairs(self, rate: Rate) -> tuple[FloatArray, FloatArray]:
        """Differences over pairs of groups and their variances, (..., classes compared, pairs)."""
        value, variance = self._share(rate, 1)
        first, second = np.triu_indices(value.shape[-1], 1)
        return value[..., first] - value[..., second], variance[..., first] + variance[..., second]

    def contrasts(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Contrasts and their variances, both (..., classes compared, contrasts)."""
        base = name.removesuffix("_mean")
        if base == "accuracy":
            cells = self._cells
            rate = Rate(cells.hits.sum((-2, -1)), cells.rows.sum((-2, -1)))
            value, variance = self._share(rate, 2)
            return value[..., None, None], variance[..., None, None]
        if base == "balanced_accuracy":
            cells = self._cells
            value, variance = self._share(Rate(cells.hits.sum(-2), cells.rows.sum(-2)), 1)
            size = value.shape[-1]
            return value.mean(-1)[..., None, None], (variance.sum(-1) / size**2)[..., None, None]
        if base == "worst_group_accuracy":
            value, variance = self._share(self._cells, 2)
            shape = (*value.shape[:-2], 1, -1)
            return -value.reshape(shape), variance.reshape(shape)
        if base == "demographic_parity":
            return self._selection
        if base == "equal_opportunity":
            return self._found
        (found, found_var), (alarms, alarms_var) = self._found, self._alarms
        if base == "equalized_odds":
            variance = (found_var + alarms_var) / 4
            deltas = np.concatenate([(found + alarms) / 2, (found - alarms) / 2], -1)
            return deltas, np.concatenate([variance, variance], -1)
        return np.concatenate([found, alarms], -1), np.concatenate([found_var, alarms_var], -1)

    def values(self, name: str) -> FloatArray:
        """The metric itself, shape (...)."""
        deltas = self.contrasts(name)[0]
        if name in LEVELS:
            return deltas[..., 0, 0]
        if name == "worst_group_accuracy":
            return -deltas.max((-2, -1))
        by_class = np.abs(deltas).max(-1)
        return by_class.mean(-1) if name.endswith("_mean") else by_class.max(-1)


def _ends(name: str, observed: _Figures, resampled: _Figures, level: float, rows: int) -> tuple[float, float]:
    """Lower and upper end of the interval, before clipping to what a fraction can be."""
    alpha, z = 1 - level, _normal_quantile(level)
    by_class, variance = observed.contrasts(name)
    by_class_star, variance_star = resampled.contrasts(name)
    delta, spread = by_class.ravel(), np.sqrt(variance).ravel()
    shift = (by_class_star - by_class).reshape(len(by_class_star), -1)
    t = shift / np.sqrt(variance_star).reshape(shift.shape)

    if name in LEVELS:
        half = float(max(z, np.quantile(np.abs(t), level)) * spread[0])
        return float(delta[0]) - half, float(delta[0]) + half

    if name.endswith("_mean"):
        band = max(z, float(np.quantile(np.abs(t).max(-1), level))) * np.sqrt(variance)
        low = np.maximum(0, (np.abs(by_class) - band).max(-1)).mean()
        return float(low), float((np.abs(by_class) + band).max(-1).mean())

    caution = _caution(rows)
    if name == "worst_group_accuracy":
        slack = _slack(delta, shift, caution) / spread
        critical = max(z, float(np.quantile((t - slack).max(-1), 1 - alpha / 2)))
        reach = _reach(delta, shift, t, spread, level)
        return -float((delta + reach * spread).max()), -float((delta - critical * spread).max())

    # Point every contrast in the direction in which it was seen; its mirror image only matters for "no gap".
    sign = np.where(delta < 0, -1.0, 1.0)
    size, shift, t = np.abs(delta), shift * sign, t * sign
    high = float((size + _reach(size, shift, t, spread, level) * spread).max())
    # In cells of a dozen rows the joint test rejects some 6% instead of 5%; testing at four fifths makes up for it.
    strict = level if len(size) == 1 else 1 - 0.8 * alpha
    no_gap = max(z, float(np.quantile(np.abs(t).max(-1), strict)))
    if (size <= no_gap * spread).all():
        return float((size - no_gap * spread).max()), high
    slack = _slack(size, shift, caution) / spread
    critical = max(z, float(np.quantile((t - slack).max(-1), 1 - alpha / 2)))
    return max(0.0, float((size - critical * spread).max())), high


def _caution(rows: int) -> float:
    """Standard errors by which a contrast must lie below the largest to be told apart: sqrt(2 log log n)."""
    return math.sqrt(2 * math.log(math.log(max(rows, 16))))


def _slack(delta: FloatArray, shift: FloatArray, caution: float) -> FloatArray:
    """Distance of each contrast to the largest that is beyond ``caution`` standard errors of that distance."""
    top = int(delta.argmax())
    return np.maximum(0, delta[top] - delta - caution * (shift - shift[:, [top]]).std(0))


def _reach(delta: FloatArray, shift: FloatArray, t: FloatArray, spread: FloatArray, level: float) -> float:
    """Standard errors to go up from the largest contrast.

    The upper end is missed only if every contrast falls short, so several near-ties need less than one contrast
    alone. Distances count as one standard error longer than seen, and the result never falls below the one-sided
    normal value.
    """
    top = int(delta.argmax())
    beyond = (delta[top] - delta + (shift - shift[:, [top]]).std(0)) / spread
    together = float(np.quantile((beyond - t).min(-1), (1 + level) / 2))
    alone = float(np.quantile(-t[:, top], (1 + level) / 2))
    z = _normal_quantile(level)
    return max(NormalDist().inv_cdf(level), z - max(0.0, alone - together))


def _normal_quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _check_options(level: float, replicates: int) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"level={level} is not between 0 and 1. Pass 0.95 for 95% intervals.")
    if replicates < 100:
        raise ConfigError(f"replicates={replicates} is too few for an interval. Pass at least 100.")


def rows_used(table: IntArray, name: str, positive: int | None = None) -> int:
    """Count the rows that a figure rests on: the positives for equal opportunity, all rows otherwise."""
    if not name.startswith("equal_opportunity"):
        return int(table.sum())
    return int(group_metrics.true_positives(table, positive).rows.sum())


def undefined_reason(counts: Counts, name: str, positive: int | None = None) -> str | None:
    """Say why a metric cannot be computed from these counts, with the sizes of the cells; None if it can.

    A gap needs two groups, and every rate that it compares needs rows. Nothing is left out to make it computable.
    """
    base = name.removesuffix("_mean")
    labels, groups = counts.classes, counts.groups
    if counts.n == 0:
        return "no rows"
    if base == "accuracy":
        return None
    if base == "balanced_accuracy":
        sizes = counts.cell_sizes.sum(0)
        missing = [repr(label) for label, size in zip(labels, sizes, strict=True) if not size]
        return f"no rows have label {', '.join(missing)}" if missing else None
    if base == "worst_group_accuracy":
        empty = [
            f"group {quoted(str(groups[i]))} with label {quoted(str(labels[k]))}"
            for i, k in np.argwhere(counts.cell_sizes == 0)
        ]
        return f"no rows in {'; '.join(empty)}" if empty else None
    if len(groups) < 2:
        return f"a gap needs at least two groups, there is {len(groups)}"
    chosen = group_metrics.classes_compared(len(labels), positive)
    wanted = [("rows", group_metrics.selection(counts.table, positive).rows)]
    if base != "demographic_parity":
        wanted = [("label", group_metrics.true_positives(counts.table, positive).rows)]
    if base.startswith("equalized"):
        wanted.append(("label other than", group_metrics.false_positives(counts.table, positive).rows))
    for kind, rows in wanted:
        for position, k in enumerate(chosen):
            if (rows[position] == 0).any():
                sizes = ", ".join(f"{g}: {size}" for g, size in zip(groups, rows[position], strict=True))
                lacking = ", ".join(repr(str(groups[i])) for i in np.flatnonzero(rows[position] == 0))
                what = "no rows" if kind == "rows" else f"no rows with {kind} {quoted(str(labels[k]))}"
                return f"{what} in group {lacking} (rows by group: {sizes})"
    return None


# ------------------------------------------------------------------------------- several predictions, same rows


@dataclass(frozen=True)
class JointRow:
    """One method's figure for one metric.

    ``estimate`` is the mean over seeds; its interval holds both sources of chance. ``rows_only`` is the same value
    with chance from the test rows alone. ``by_seed`` are the figures of the seeds, ``degrees_of_freedom``
    Satterthwaite's (infinite without seed variance). Against the baseline (None for the baseline itself):
    ``difference`` (method minus baseline), its ``p_value``, and ``p_holm``, adjusted over the methods. ``p_best`` is
    the same for the difference to the method with the best value (None for that one): where it is not small, these
    rows and seeds do not tell the two apart.
    """

    estimate: Estimate
    rows_only: Estimate
    by_seed: tuple[float, ...]
    degrees_of_freedom: float
    difference: Estimate | None = None
    p_value: float | None = None
    p_holm: float | None = None
    p_best: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; NaN and infinity become null."""
        return {
            "estimate": estimate_to_dict(self.estimate),
            "rows_only": estimate_to_dict(self.rows_only),
            "by_seed": [_finite(value) for value in self.by_seed],
            "degrees_of_freedom": _finite(self.degrees_of_freedom),
            "difference": None if self.difference is None else estimate_to_dict(self.difference),
            "p_value": None if self.p_value is None else _finite(self.p_value),
            "p_holm": None if self.p_holm is None else _finite(self.p_holm),
            "p_best": None if self.p_best is None else _finite(self.p_best),
        }


@dataclass(frozen=True)
class JointTable:
    """What :func:`joint` found: ``rows[method][metric]``, the baseline's name and the confidence level.

    ``at_chance`` are the methods whose balanced accuracy is below 1 / classes, that of a constant or random answer, or
    not told apart from it. Such answers have small gaps, so these methods are never the best of others.
    """

    rows: dict[str, dict[str, JointRow]]
    baseline: str
    level: float
    at_chance: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        methods = {
            method: {name: row.to_dict() for name, row in figures.items()} for method, figures in self.rows.items()
        }
        return {
            "baseline": self.baseline,
            "level": self.level,
            "at_chance": list(self.at_chance),
            "methods": methods,
        }


def compare(
    y_true: ArrayLike,
    group: ArrayLike,
    prediction_a: ArrayLike,
    prediction_b: ArrayLike,
    *,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Compare two sets of predictions for the same rows.

    Args:
        y_true: (rows,) true classes.
        group: (rows,) groups.
        prediction_a: (rows,) predicted classes of A.
        prediction_b: (rows,) predicted classes of B, for the same rows in the same order.
        positive: index of the positive class, see :func:`estimate`.
        level: confidence level.
        replicates: number of bootstrap replicates.
        seed: of the bootstrap.

    Returns:
        for every metric the signed difference A - B; ``corrected`` has the bias of both figures taken off. For a
        gap, a negative difference is a smaller measured gap of A. Predictions that agree in every row differ by
        exactly 0.

    Raises:
        DataError: lengths differ or values are missing.
        ConfigError: an option is out of range.
    """
    predictions = {"a": np.asarray(prediction_a)[None], "b": np.asarray(prediction_b)[None]}
    analysis = _Paired.build(y_true, group, predictions, positive, level, replicates, seed)
    return {name: analysis.difference(name, "a", "b").estimate for name in analysis.names}


def joint(
    y_true: ArrayLike,
    group: ArrayLike,
    predictions: Mapping[str, ArrayLike],
    *,
    baseline: str,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    shared_seeds: bool = False,
) -> JointTable:
    """Compare methods over test rows and training seeds at once.

    A method's figure is the mean over its seeds of each seed's figure; for a gap, the mean of absolute gaps. Its
    variance is that of the mean under joint resampling of the test rows (all methods and seeds see the same
    resample) plus the variance between seeds divided by their number; the interval uses Student's t with
    Satterthwaite's degrees of freedom. The variance between seeds still contains the noise of single seeds on the
    same rows, so the interval errs on the wide side. Ends are clipped to [0, 1] (differences to [-1, 1]).

    Args:
        y_true: (rows,) true classes.
        group: (rows,) groups.
        predictions: for each method an array (seeds, rows) of predicted classes.
        baseline: the method that the others are set against.
        positive: index of the positive class, see :func:`estimate`.
        level: confidence level.
        replicates: number of bootstrap replicates.
        seed: of the bootstrap.
        shared_seeds: whether the seed at one position is the same training seed for every method (same split, same
            initialisation). True pairs the differences over seeds by position; False treats the seeds of two
            methods as independent. Rows are always paired.

    Returns:
        figures, intervals, differences to the baseline and p-values adjusted by Holm over methods, metric by
        metric. With one seed the variance over seeds is unknown: the interval holds test rows only and says so.

    Raises:
        DataError: lengths differ or values are missing.
        ConfigError: unknown baseline, shared seeds of unequal number, or an option out of range.
    """
    arrays = {method: np.asarray(values) for method, values in predictions.items()}
    if baseline not in arrays:
        raise ConfigError(f"The baseline {baseline!r} has no predictions. Methods: {', '.join(arrays)}.")
    for method, values in arrays.items():
        if values.ndim != 2:
            raise DataError(
                f"Predictions of {method!r} have shape {values.shape}. Pass (seeds, rows), one row of it a seed."
            )
    if shared_seeds and len({len(values) for values in arrays.values()}) > 1:
        raise ConfigError("shared_seeds=True needs the same number of seeds for every method.")
    analysis = _Paired.build(y_true, group, arrays, positive, level, replicates, seed)
    others = [method for method in arrays if method != baseline]
    rows: dict[str, dict[str, JointRow]] = {method: {} for method in arrays}
    chance = 1 / len(analysis.counts.classes)
    own = {name: {method: analysis.level_of(name, method) for method in arrays} for name in analysis.names}
    skill = {method: figure.estimate for method, figure in own["balanced_accuracy"].items()}
    at_chance = tuple(method for method in arrays if skill[method].defined and skill[method].low <= chance < 1)
    contenders = [method for method in arrays if method not in at_chance] or list(arrays)
    for name in analysis.names:
        differences = {method: analysis.difference(name, method, baseline, shared_seeds) for method in others}
        adjusted = holm([differences[method].p_value for method in others])
        holm_by_method = dict(zip(others, adjusted, strict=True))
        sign = 1 if name in LEVELS or name == "worst_group_accuracy" else -1
        best = max(contenders, key=lambda method: _ranked(sign * own[name][method].estimate.value))
        rest = [method for method in arrays if method != best]
        to_best = holm([analysis.difference(name, method, best, shared_seeds).p_value for method in rest])
        best_by_method = dict(zip(rest, to_best, strict=True))
        for method, figure in own[name].items():
            against = differences.get(method)
            rows[method][name] = JointRow(
                figure.estimate,
                figure.rows_only,
                tuple(analysis.values(name, method).tolist()),
                figure.degrees_of_freedom,
                None if against is None else against.estimate,
                None if against is None else against.p_value,
                holm_by_method.get(method),
                best_by_method.get(method),
            )
    return JointTable(rows, baseline, level, at_chance)


def _ranked(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for testing several hypotheses (Holm 1979); NaN stays NaN and does not count."""
    values = np.asarray(p_values, float)
    adjusted = np.full(len(values), np.nan)
    valid = np.flatnonzero(~np.isnan(values))
    order = valid[np.argsort(values[valid], kind="stable")]
    running = 0.0
    for rank, position in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * values[position]))
        adjusted[position] = running
    return adjusted.tolist()


@dataclass(frozen=True)
class _Inference:
    estimate: Estimate
    rows_only: Estimate
    degrees_of_freedom: float
    p_value: float


@dataclass(frozen=True)
class _Seed:
    """One set of predictions: its contrasts as observed and as resampled, and its figures."""

    observed: _Figures
    resampled: _Figures
    plain: _Figures


@dataclass(frozen=True)
class _Paired:
    """Predictions of every method and seed on the same rows, resampled together."""

    counts: Counts
    names: tuple[str, ...]
    seeds: dict[str, list[_Seed]]
    positive: int | None
    level: float

    @classmethod
    def build(
        cls,
        y_true: ArrayLike,
        group: ArrayLike,
        predictions: Mapping[str, NDArray[Any]],
        positive: int | None,
        level: float,
        replicates: int,
        seed: int,
    ) -> _Paired:
        _check_options(level, replicates)
        flat = [one for values in predictions.values() for one in values]
        table = JointCounts.from_rows(y_true, group, flat)
        counts = table.marginal(0)
        stars = _resample_jointly(table, len(flat), replicates, seed)
        seeds: dict[str, list[_Seed]] = {}
        position = 0
        for method, own in predictions.items():
            seeds[method] = []
            for _ in own:
                observed = table.marginal(position).table
                figures = _Figures(observed, positive), _Figures(stars[position], positive)
                seeds[method].append(_Seed(*figures, _Figures(observed, positive, smooth=False)))
                position += 1
        return cls(counts, metric_names(len(counts.classes), positive), seeds, positive, level)

    def values(self, name: str, method: str) -> FloatArray:
        """Figure of each seed, NaN where the metric is undefined."""
        if undefined_reason(self.counts, name, self.positive):
            return np.full(len(self.seeds[method]), np.nan)
        return np.array([float(seed.plain.values(name)) for seed in self.seeds[method]])

    def level_of(self, name: str, method: str) -> _Inference:
        """Infer one method's mean over seeds."""
        if (missing := self._missing(name)) is not None:
            return missing
        values = self.values(name, method)
        seeds = self.seeds[method]
        ends = [_ends(name, seed.observed, seed.resampled, self.level, self.counts.n) for seed in seeds]
        excess = [seed.resampled.values(name).mean() - seed.observed.values(name) for seed in seeds]
        moves = [_largest_alone(name, seed) for seed in seeds]
        down = values - [low for low, _ in ends]
        up = [high for _, high in ends] - values
        return self._infer(name, float(values.mean()), down, up, moves, float(np.mean(excess)), [values], 0.0)

    def difference(self, name: str, method: str, other: str, shared_seeds: bool = False) -> _Inference:
        """Infer the difference of two methods' means over seeds."""
        if (missing := self._missing(name)) is not None:
            return missing
        a, b = self.values(name, method), self.values(name, other)
        first, second = self.seeds[method], self.seeds[other]
        down, up, moves = [], [], []
        excess = 0.0
        # With unequal numbers of seeds the shorter list is gone through again.
        for position in range(max(len(first), len(second))):
            i, j = position % len(first), position % len(second)
            low, high = _difference_ends(name, first[i], second[j], self.level, self.counts.n)
            down.append(a[i] - b[j] - low)
            up.append(high - (a[i] - b[j]))
            moves.append(_largest_alone(name, first[i]) - _largest_alone(name, second[j]))
        for seeds, sign in ((first, 1), (second, -1)):
            shifts = [seed.resampled.values(name).mean() - seed.observed.values(name) for seed in seeds]
            excess += sign * float(np.mean(shifts))
        spread = [a - b] if shared_seeds else [a, b]
        return self._infer(name, float(a.mean() - b.mean()), down, up, moves, excess, spread, -1.0)

    def _missing(self, name: str) -> _Inference | None:
        reason = undefined_reason(self.counts, name, self.positive)
        if reason is None:
            return None
        missing = Estimate.undefined(reason, rows_used(self.counts.table, name, self.positive))
        return _Inference(missing, missing, math.nan, math.nan)

    def _infer(
        self,
        name: str,
        value: float,
        down: Sequence[float] | FloatArray,
        up: Sequence[float] | FloatArray,
        moves: Sequence[FloatArray],
        excess: float,
        over_seeds: Sequence[FloatArray],
        floor: float,
    ) -> _Inference:
        """Join the row intervals of the seeds, and add the variance over seeds.

        ``down`` and ``up`` (seeds,) are the arms of each seed's interval. Were the noise of the rows the same for
        every seed, the mean's arm would be the mean arm; how much of it cancels is read off the resampled
        deviations ``moves`` (seeds, replicates).
        """
        n = rows_used(self.counts.table, name, self.positive)
        z = _normal_quantile(self.level)
        single = float(np.mean([move.std() for move in moves]))
        kept = float(np.mean(moves, axis=0).std()) / single if single > 0 else 1.0
        rows = kept * np.maximum(0, [np.mean(down), np.mean(up)]) / z  # as standard errors, down and up
        parts = [_seed_variance(values) for values in over_seeds]
        known = [(variance, freedom) for variance, freedom in parts if not math.isnan(variance)]
        unknown = len(known) < len(parts)
        reason = "one seed: its variance over seeds is unknown and not in the interval" if unknown else None
        between = sum(variance for variance, _ in known)
        total = np.sqrt(rows**2 + between)
        freedom = [_satterthwaite([(row**2, math.inf), *known]) for row in rows]
        corrected = None if name in LEVELS else min(1.0, max(floor, value - excess))

        def interval(errors: FloatArray, freedoms: list[float], why: str | None) -> Estimate:
            half = stats.t.ppf((1 + self.level) / 2, freedoms) * errors
            low, high = max(floor, value - float(half[0])), min(1.0, value + float(half[1]))
            return Estimate(value, low, high, n, why, corrected)

        side = 0 if value > 0 else 1
        # No spread at all: predictions that agree everywhere do not differ.
        t = abs(value) / total[side] if total[side] > 0 else (0.0 if value == 0 else math.inf)
        return _Inference(
            interval(total, freedom, reason),
            interval(rows, [math.inf, math.inf], None),
            min(freedom),
            float(2 * stats.t.sf(t, freedom[side])),
        )


def _resample_jointly(table: JointCounts, predictions: int, replicates: int, seed: int) -> FloatArray:
    """Resample rows for all predictions at once: (predictions, replicates, groups, classes, classes)."""
    groups, size = len(table.groups), len(table.classes)
    cells = groups * size * size
    base = (table.patterns[:, 0] * size + table.patterns[:, 1]) * size
    columns = (base[:, None] + table.patterns[:, 2:]) + cells * np.arange(predictions)
    patterns = len(table.multiplicity)
    members = sparse.csr_matrix(
        (np.ones(columns.size), (columns.ravel(), np.repeat(np.arange(patterns), predictions))),
        shape=(cells * predictions, patterns),
    )
    rng = np.random.default_rng(seed)
    result = np.empty((predictions, replicates, groups, size, size))
    # Draws of all patterns for all replicates at once can be large; a hundred replicates are enough to be fast.
    for start in range(0, replicates, 100):
        stop = min(start + 100, replicates)
        drawn = rng.multinomial(table.n, table.multiplicity / table.n, size=stop - start)
        counted = members @ drawn.T.astype(np.float64)
        shape = (predictions, groups, size, size, stop - start)
        result[:, start:stop] = np.moveaxis(counted.reshape(shape), -1, 1)
    return result


def _outward(name: str, seed: _Seed) -> tuple[FloatArray, FloatArray]:
    """Contrasts (units, contrasts) and resampled deviations (replicates, units, contrasts).

    The metric, or minus the worst-group accuracy, is the mean over units of each unit's largest contrast.
    """
    delta = seed.observed.contrasts(name)[0]
    shift = seed.resampled.contrasts(name)[0] - delta
    if name in LEVELS:
        return delta, shift
    if name != "worst_group_accuracy":
        delta, shift = np.concatenate([delta, -delta], -1), np.concatenate([shift, -shift], -1)
    if not name.endswith("_mean"):
        delta, shift = delta.reshape(1, -1), shift.reshape(len(shift), 1, -1)
    return delta, shift


def _largest_alone(name: str, seed: _Seed) -> FloatArray:
    """Deviations (replicates,) of the contrasts that were the largest."""
    delta, shift = _outward(name, seed)
    return np.take_along_axis(shift, delta.argmax(-1)[None, :, None], -1).mean((-2, -1))


def _difference_ends(name: str, a: _Seed, b: _Seed, level: float, rows: int) -> tuple[float, float]:
    """Lower and upper end for metric(a) - metric(b) on the same rows, not clipped."""
    (delta_a, shift_a), (delta_b, shift_b) = _outward(name, a), _outward(name, b)
    ends = []
    for unit in range(len(delta_a)):
        first, second = (delta_a[unit], shift_a[:, unit]), (delta_b[unit], shift_b[:, unit])
        ends.append((-_difference_high(*second, *first, level, rows), _difference_high(*first, *second, level, rows)))
    low, high = np.mean(ends, axis=0)
    return (-high, -low) if name == "worst_group_accuracy" else (low, high)


def _difference_high(
    delta_a: FloatArray, shift_a: FloatArray, delta_b: FloatArray, shift_b: FloatArray, level: float, rows: int
) -> float:
    """Upper end for max(a) - max(b).

    With k the truly largest contrast of a, the difference is at most a_k - b_j for every j. Each k that may be the
    largest gets the lowest such bound, and the highest of these holds. Only the eight largest b_j and the partner
    of k are tried: fewer bounds are never wrong.
    """
    caution, z = _caution(rows), _normal_quantile(level)
    highest = np.argsort(-delta_b, kind="stable")[:8]
    ends = []
    for k in np.flatnonzero(_slack(delta_a, shift_a, caution) <= 0):
        tried = np.union1d(highest, [k])
        shift = shift_a[:, [k]] - shift_b[:, tried]
        spread = shift.std(0)
        t = np.divide(shift, spread, out=np.zeros_like(shift), where=spread > 0)
        critical = max(z, float(np.quantile((-t).max(-1), (1 + level) / 2)))
        ends.append(float((delta_a[k] - delta_b[tried] + critical * spread).min()))
    return max(ends)


def _seed_variance(values: FloatArray) -> tuple[float, float]:
    """Variance of the mean over seeds and its degrees of freedom; NaN with one seed."""
    if len(values) < 2:
        return math.nan, math.inf
    return float(values.var(ddof=1) / len(values)), len(values) - 1.0


def _satterthwaite(parts: Sequence[tuple[float, float]]) -> float:
    """Degrees of freedom of a sum of independent variance estimates, each given with its own."""
    total = sum(variance for variance, _ in parts)
    rest = sum(variance**2 / freedom for variance, freedom in parts)
    return total**2 / rest if rest > 0 else math.inf


# ------------------------------------------------------------------------------------------------------- JSON


def estimate_to_dict(figure: Estimate) -> dict[str, Any]:
    """Return ``{"value", "low", "high", "n"}`` plus ``reason`` and ``corrected`` where there are any.

    NaN becomes null, because NaN is not JSON.
    """
    result: dict[str, Any] = {
        "value": _finite(figure.value),
        "low": _finite(figure.low),
        "high": _finite(figure.high),
        "n": figure.n,
    }
    if figure.corrected is not None:
        result["corrected"] = _finite(figure.corrected)
    if figure.reason is not None:
        result["reason"] = figure.reason
    return result


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
