"""Intervals over methods and seeds: differences of predictors on the same rows, and means over seeds.

*Differences of two predictors on the same rows* resample the rows jointly. With k the contrast that is truly largest
for A, A - B is at most A_k - B_j for every j: each of these is linear, so their paired standard errors and a max-t
critical value give a bound, and the worst over all k that may be the largest holds. The lower end is the mirror
image. Predictions that agree in every row differ by exactly 0. (Bootstrapping the difference of the two gaps itself
covered 88% where one gap was zero and the other one standard error.) In a cell without errors all resamples are alike,
and intervals of differences covered 50%: here the pseudo-rows are drawn as well, and Student's t allows for the few
rows of the rarest rate.

*Means over seeds*: the arms of the seeds' intervals are averaged, and shrunk by what averaging over seeds takes off the
resampled deviations. That is the variance over rows: (v + (S - 1) c) / S, if v is the mean variance over rows of one
seed's figure, c the mean covariance of two seeds', and S their number. The variance s2 of the figures over seeds
contains v - c, the noise of (seed x row), too; only what it has beyond that is added: max(0, s2 - (v - c)) / S. The sum
is c + s2 / S, which is unbiased, but never below the variance over rows. Degrees of freedom are Satterthwaite's (1946)
with all of s2 on its S - 1, and infinite where nothing is added. Of fewer than four seeds the part of s2 gets the
quantile of its own degrees of freedom (Cochran, Biometrics 1964), because two or three seeds cannot vouch for their own
variance. (Adding all of s2 / S rejected a true null in 0 to 1% instead of 5%.)

*Equivalence.* That a difference is within a margin is claimed where both one-sided tests of it reject (two one-sided
tests, Schuirmann 1987), with the standard errors of the interval; the larger of the two p-values is theirs together.

*Rows that belong together*, several pictures of one person for instance, are drawn together: the resamples of
differences are of clusters. The interval of one figure comes from tests that take rows for independent; its arms are
made longer by the ratio of the figure's spread over resampled clusters and over resampled rows, never shorter.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse, special, stats

from levelhead.arrays import any_array, array_of, checked, put_in_order, table_of
from levelhead.metrics.between import holm, normal_quantile
from levelhead.metrics.contrasts import Enough
from levelhead.metrics.counts import Counts, IntArray, JointCounts
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import (
    Resampled,
    check_options,
    distance_credit,
    estimate_to_dict,
    finite_or_none,
    interval_ends,
    metric_names,
    rows_used,
    selection_threshold,
    undefined_reason,
)
from levelhead.metrics.names import metric_of
from levelhead.types import ConfigError, DataError, Estimate, quoted

MARGIN = 0.02
DRAWN = 1 << 22
"""Rows that are drawn at a time."""
Verdict = Literal["smaller", "larger", "within", "smaller within", "larger within", "undecided"]


@dataclass(frozen=True)
class JointRow:
    """One method's figure for one metric.

    ``estimate`` is the mean over seeds; its interval holds both sources of chance. ``rows_only`` is the same value
    with chance from the test rows alone. ``by_seed`` are the figures of the seeds, ``degrees_of_freedom``
    Satterthwaite's (infinite without seed variance). Against the baseline (None for the baseline itself):
    ``difference`` (method minus baseline), its ``p_value``, and ``p_holm``, adjusted over the methods; ``p_within`` is
    that of the difference being as large as the table's margin, adjusted likewise: where it is small, the two are equal
    within the margin. ``p_best`` is
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
    p_within: float | None = None

    def verdict(self, error: float) -> Verdict | None:
        """Return what is decided about the difference at this error probability; None for the baseline.

        A difference is ``smaller`` or ``larger``; or ``within`` the margin; or ``smaller within`` and ``larger within``
        where there is one and it is known to be that small. Everything else is ``undecided``, also where the variance
        over seeds is not known.
        """
        if self.difference is None:
            return None
        if not self.difference.defined or self.difference.reason is not None:
            return "undecided"
        found = self.p_holm is not None and self.p_holm < error
        found = found and not self.difference.low <= 0 <= self.difference.high
        within = self.p_within is not None and self.p_within < error
        if not found:
            return "within" if within else "undecided"
        if self.difference.value < 0:
            return "smaller within" if within else "smaller"
        return "larger within" if within else "larger"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; NaN and infinity become null."""
        return {
            "estimate": estimate_to_dict(self.estimate),
            "rows_only": estimate_to_dict(self.rows_only),
            "by_seed": [finite_or_none(value) for value in self.by_seed],
            "degrees_of_freedom": finite_or_none(self.degrees_of_freedom),
            "difference": None if self.difference is None else estimate_to_dict(self.difference),
            "p_value": None if self.p_value is None else finite_or_none(self.p_value),
            "p_holm": None if self.p_holm is None else finite_or_none(self.p_holm),
            "p_best": None if self.p_best is None else finite_or_none(self.p_best),
            "p_within": None if self.p_within is None else finite_or_none(self.p_within),
        }


@dataclass(frozen=True)
class JointTable:
    """What :func:`joint` found: ``rows[method][metric]``, the baseline's name, confidence level and margin.

    ``at_chance`` are the methods whose balanced accuracy the test rows alone do not show to be above 1 / classes, that
    of a constant or random answer; ``few_seeds`` those that the rows do show to be above it, but not rows and seeds
    together. Constant answers have small gaps, so neither is ever the best. Nor is one of ``less_accurate``, whose
    accuracy is below the baseline's by a decided amount. ``p_best`` compares with the best of the others, and is NaN
    where there is none.
    """

    rows: dict[str, dict[str, JointRow]]
    baseline: str
    level: float
    at_chance: tuple[str, ...] = ()
    few_seeds: tuple[str, ...] = ()
    margin: float = MARGIN
    less_accurate: tuple[str, ...] = ()

    def can_be_best(self, method: str) -> bool:
        """Say whether a method is one of those compared with the best value."""
        return len(self.rows) > 1 and method not in (*self.at_chance, *self.few_seeds, *self.less_accurate)

    def verdict(self, method: str, metric: str) -> Verdict | None:
        """Return what is decided about a method's difference to the baseline, see :meth:`JointRow.verdict`."""
        return self.rows[method][metric].verdict(1 - self.level)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        methods = {
            method: {name: row.to_dict() | {"verdict": self.verdict(method, name)} for name, row in figures.items()}
            for method, figures in self.rows.items()
        }
        return {
            "baseline": self.baseline,
            "level": self.level,
            "margin": self.margin,
            "at_chance": list(self.at_chance),
            "few_seeds": list(self.few_seeds),
            "less_accurate": list(self.less_accurate),
            "methods": methods,
        }


@checked
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
    given = put_in_order({"y_true": y_true, "group": group, "prediction_a": prediction_a, "prediction_b": prediction_b})
    y_true, group, *both = given.values()
    predictions = {name: array_of(values, f"prediction_{name}")[None] for name, values in zip("ab", both, strict=True)}
    analysis = Paired.build(y_true, group, predictions, positive, level, replicates, seed)
    return {name: analysis.difference(name, "a", "b").estimate for name in analysis.names}


@checked
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
    clusters: ArrayLike | None = None,
    margin: float = MARGIN,
    classes: Sequence[Hashable] = (),
    min_count: int = 0,
    left_out: Collection[Hashable] = (),
) -> JointTable:
    """Compare methods over test rows and training seeds at once.

    A method's figure is the mean over its seeds of each seed's figure; for a gap, the mean of absolute gaps. Its
    variance is that of the mean under joint resampling of the test rows (all methods and seeds see the same resample)
    plus what the variance between seeds has beyond the noise of (seed x row), divided by the number of seeds; the
    interval uses Student's t with Satterthwaite's degrees of freedom, and with fewer than four seeds Cochran's wider
    critical value. Ends are clipped to [0, 1] (differences to [-1, 1]). A method's figures depend on its own
    predictions and on ``seed``, not on the other methods.

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
        clusters: (rows,) integers, equal for rows that belong together, such as pictures of one person; they are
            resampled together. None: every row by itself.
        margin: a difference smaller than this is as good as none; between 0 and 1.
        classes: classes that exist, beside those that occur in these rows.
        min_count: smallest denominator for a rate to enter a gap, as in :func:`estimate`. With 0, a rate over no rows
            makes the gap undefined.
        left_out: groups that no gap compares, such as that of rows without a group; accuracies count their rows.

    Returns:
        figures, intervals, differences to the baseline and p-values adjusted by Holm over methods, metric by
        metric. With one seed the variance over seeds is unknown: the interval holds test rows only and says so.

    Raises:
        DataError: lengths differ or values are missing.
        ConfigError: unknown baseline, shared seeds of unequal number, or an option out of range.
    """
    y_true, group, clusters = put_in_order({"y_true": y_true, "group": group, "clusters": clusters}).values()
    arrays = {method: table_of(values, f"Predictions of {quoted(method)}") for method, values in predictions.items()}
    check_margin(margin)
    check_options(level, replicates)
    if baseline not in arrays:
        raise ConfigError(f"The baseline {baseline!r} has no predictions. Methods: {', '.join(arrays)}.")
    if shared_seeds and len({len(values) for values in arrays.values()}) > 1:
        raise ConfigError("shared_seeds=True needs the same number of seeds for every method.")
    options = (positive, level, replicates, seed, clusters, classes, min_count, left_out)
    analysis = Paired.build(y_true, group, arrays, *options)
    others = [method for method in arrays if method != baseline]
    rows: dict[str, dict[str, JointRow]] = {method: {} for method in arrays}
    chance = 1 / len(analysis.counts.classes)
    own = {name: {method: analysis.level_of(name, method) for method in arrays} for name in analysis.names}
    reaching = {
        method: (figure.rows_only.low <= chance < 1, figure.estimate.low <= chance < 1)
        for method, figure in own["balanced_accuracy"].items()  # NaN, where it is undefined, reaches nothing
    }
    at_chance = tuple(method for method, (by_rows, _) in reaching.items() if by_rows)
    few_seeds = tuple(method for method, (by_rows, by_both) in reaching.items() if by_both and not by_rows)
    losses = {method: analysis.difference("accuracy", method, baseline, shared_seeds) for method in others}
    less_accurate = tuple(
        method
        for (method, loss), p_value in zip(losses.items(), holm([one.p_value for one in losses.values()]), strict=True)
        if loss.estimate.high < 0 and p_value < 1 - level  # also with one seed, where the rows alone decide
    )
    contenders = [method for method in arrays if method not in at_chance + few_seeds + less_accurate]
    for name in analysis.names:
        differences = {method: analysis.difference(name, method, baseline, shared_seeds) for method in others}
        adjusted = holm([differences[method].p_value for method in others])
        holm_by_method = dict(zip(others, adjusted, strict=True))
        within = holm([differences[method].p_within(margin) for method in others])
        within_by_method = dict(zip(others, within, strict=True))
        sign = 1 if metric_of(name).larger_is_better else -1
        best_by_method = dict.fromkeys(arrays, math.nan)
        if contenders:
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
                within_by_method.get(method),
            )
    return JointTable(rows, baseline, level, at_chance, few_seeds, margin, less_accurate)


def check_margin(margin: float) -> None:
    """Raise :class:`ConfigError` unless ``margin`` is a share between 0 and 1."""
    if not 0 < margin < 1:
        raise ConfigError(f"margin={margin} is not between 0 and 1. Pass 0.02 for 2 points.")


def _ranked(value: float) -> float:
    return -math.inf if math.isnan(value) else value


@dataclass(frozen=True)
class Inference:
    """A figure with its interval over rows and seeds and over rows alone, and the p-value of its being 0."""

    estimate: Estimate
    rows_only: Estimate
    degrees_of_freedom: float
    p_value: float
    arms: tuple[RowsAndSeeds, RowsAndSeeds] | None = None

    def p_within(self, margin: float) -> float:
        """Return the p-value of the figure being at least ``margin`` away from 0: the larger of two one-sided ones."""
        value = self.estimate.value
        if self.arms is None or math.isnan(value):
            return math.nan
        to_lower, to_upper = value + margin, margin - value
        if min(to_lower, to_upper) <= 0:
            return 1.0
        return max(self.arms[0].p_value(to_lower), self.arms[1].p_value(to_upper)) / 2


class _Drawn(NamedTuple):
    """One set of predictions and its resamples: all rows as one group, and the groups that gaps compare."""

    whole: Resampled
    compared: Resampled

    def of(self, name: str) -> Resampled:
        """Return the one that a metric is computed from."""
        return self.whole if metric_of(name).kind == "level" else self.compared


@dataclass(frozen=True)
class Paired:
    """Predictions of every method and seed on the same rows, resampled together.

    ``counts`` are those of the first predictions over all groups, ``compared`` over the groups that gaps compare.
    """

    counts: Counts
    compared: Counts
    names: tuple[str, ...]
    seeds: dict[str, list[_Drawn]]
    positive: int | None
    level: float
    min_count: int = 0
    clustered: dict[str, list[_Drawn]] | None = None

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
        clusters: ArrayLike | None = None,
        classes: Sequence[Hashable] = (),
        min_count: int = 0,
        left_out: Collection[Hashable] = (),
    ) -> Paired:
        """Count and resample the rows; arguments as :func:`joint` takes them."""
        check_options(level, replicates)
        flat = [one for values in predictions.values() for one in values]
        table = JointCounts.from_rows(y_true, group, flat, classes)
        sizes = {method: len(values) for method, values in predictions.items()}
        codes = None if clusters is None else _cluster_codes(clusters, table.n)
        return cls.from_counts(table, sizes, positive, level, replicates, seed, min_count, left_out, codes)

    @classmethod
    def from_counts(
        cls,
        table: JointCounts,
        seeds_of: Mapping[str, int],
        positive: int | None,
        level: float,
        replicates: int,
        seed: int,
        min_count: int = 0,
        left_out: Collection[Hashable] = (),
        clusters: IntArray | None = None,
    ) -> Paired:
        """Resample joint counts; ``seeds_of`` says how many of its predictions, in turn, are seeds of each method.

        ``clusters`` (rows,) are codes without gaps, of a table that knows the places of its rows.
        """
        check_options(level, replicates)
        counts = table.marginal(0)
        kept = [
            group
            for group, size in zip(counts.groups, counts.group_sizes, strict=True)
            if size >= min_count and group not in left_out
        ]
        names = metric_names(len(counts.classes), positive)
        empty = cls(counts, counts.keep(kept), names, {}, positive, level, min_count)
        stars = _resample(table, sum(seeds_of.values()), replicates, np.random.default_rng(seed))
        plain = replace(empty, seeds=_by_method(table, seeds_of, stars, empty, seed))
        if clusters is None or not len(clusters) or int(clusters.max()) + 1 >= table.n:
            return plain
        stars = _resample(table, sum(seeds_of.values()), replicates, np.random.default_rng([seed, 3]), clusters)
        return replace(plain, clustered=_by_method(table, seeds_of, stars, empty, seed))

    @cached_property
    def _reasons(self) -> dict[str, str | None]:
        """Why a metric is undefined, by its name."""
        none = f"no group has {self.min_count} rows, and a gap needs two" if not self.compared.groups else None
        found = {}
        for name in self.names:
            reason = undefined_reason(self._counts(name), name, self.positive, self.min_count)
            found[name] = reason and (none if none and metric_of(name).kind != "level" else reason)
        return found

    def _counts(self, name: str) -> Counts:
        """Return the counts that a metric rests on."""
        return self.counts if metric_of(name).kind == "level" else self.compared

    def _rows(self, name: str) -> int:
        return rows_used(self._counts(name).table, name, self.positive, self.min_count)

    def _resampled(self, name: str, method: str) -> list[Resampled]:
        """Return the resamples of each seed, of clusters where rows belong together."""
        return [one.of(name) for one in (self.clustered or self.seeds)[method]]

    def values(self, name: str, method: str) -> FloatArray:
        """Figure of each seed, NaN where the metric is undefined."""
        if self._reasons[name]:
            return np.full(len(self.seeds[method]), np.nan)
        return np.array([float(seed.of(name).plain.values(name)) for seed in self.seeds[method]])

    def level_of(self, name: str, method: str) -> Inference:
        """Infer one method's mean over seeds."""
        if (missing := self._missing(name)) is not None:
            return missing
        values = self.values(name, method)
        seeds = [seed.of(name) for seed in self.seeds[method]]
        ends = [interval_ends(name, seed, self.level) for seed in seeds]
        excess = [seed.excess(name) for seed in seeds]
        moves = [_Outward.of(name, seed).largest_alone() for seed in seeds]
        down = values - [low for low, _ in ends]
        up = [high for _, high in ends] - values
        if self.clustered is not None:
            together = [_Outward.of(name, seed).largest_alone() for seed in self._resampled(name, method)]
            longer = [
                max(1.0, float(one.std() / alone.std())) if alone.std() > 0 else 1.0
                for one, alone in zip(together, moves, strict=True)
            ]
            down, up, moves = down * longer, up * longer, together
        over_seeds = OverSeeds.of([values], [seed_by_row(moves)])
        return self._infer(name, float(values.mean()), down, up, moves, float(np.mean(excess)), over_seeds, 0.0)

    def difference(self, name: str, method: str, other: str, shared_seeds: bool = False) -> Inference:
        """Infer the difference of two methods' means over seeds."""
        if (missing := self._missing(name)) is not None:
            return missing
        a, b = self.values(name, method), self.values(name, other)
        first, second = self._resampled(name, method), self._resampled(name, other)
        outward = [[_Outward.of(name, seed) for seed in seeds] for seeds in (first, second)]
        alone = [[one.largest_alone() for one in own] for own in outward]
        down, up, moves = [], [], []
        excess = 0.0
        # With unequal numbers of seeds the shorter list is gone through again.
        for position in range(max(len(first), len(second))):
            i, j = position % len(first), position % len(second)
            low, high = _difference_ends(outward[0][i], outward[1][j], self.level, self._counts(name).n)
            if metric_of(name).kind == "lowest":
                low, high = -high, -low
            down.append(a[i] - b[j] - low)
            up.append(high - (a[i] - b[j]))
            moves.append(alone[0][i] - alone[1][j])
        for seeds, sign in ((first, 1), (second, -1)):
            excess += sign * float(np.mean([seed.excess(name) for seed in seeds]))
        if shared_seeds:
            over_seeds = OverSeeds.of([a - b], [seed_by_row(moves)])
        else:
            over_seeds = OverSeeds.of([a, b], [seed_by_row(one) for one in alone])
        return self._infer(name, float(a.mean() - b.mean()), down, up, moves, excess, over_seeds, -1.0)

    def moves(self, name: str, method: str, other: str | None = None) -> NDArray[np.float64]:
        """Return how resampling the rows moves each seed's figure, or its difference to ``other``'s.

        The result is (seeds, replicates). Of two methods with unequal numbers of seeds the first ones are taken.
        """
        parts = [
            np.array([_Outward.of(name, seed).largest_alone() for seed in self._resampled(name, one)])
            for one in (method, other)
            if one is not None
        ]
        seeds = min(map(len, parts))
        return np.asarray(parts[0] if other is None else parts[0][:seeds] - parts[1][:seeds])

    def _missing(self, name: str) -> Inference | None:
        if (reason := self._reasons[name]) is None:
            return None
        missing = Estimate.undefined(reason, self._rows(name))
        return Inference(missing, missing, math.nan, math.nan)

    def _infer(
        self,
        name: str,
        value: float,
        down: Sequence[float] | FloatArray,
        up: Sequence[float] | FloatArray,
        moves: Sequence[FloatArray],
        excess: float,
        over_seeds: OverSeeds,
        floor: float,
    ) -> Inference:
        """Join the row intervals of the seeds, and add what the variance over seeds has beyond that of the rows.

        ``down`` and ``up`` (seeds,) are the arms of each seed's interval. Were the noise of the rows the same for
        every seed, the mean's arm would be the mean arm; how much of it cancels is read off the resampled
        deviations ``moves`` (seeds, replicates).
        """
        n = self._rows(name)
        z = normal_quantile(self.level)
        single = float(np.mean([move.std() for move in moves]))
        kept = float(np.mean(moves, axis=0).std()) / single if single > 0 else 1.0
        rows = kept * np.maximum(0, [np.mean(down), np.mean(up)]) / z  # as standard errors, down and up
        joined = [over_seeds.join(float(row) ** 2) for row in rows]
        corrected = None if metric_of(name).kind == "level" else min(1.0, max(floor, value - excess))

        def interval(arms: Sequence[float] | FloatArray, why: str | None) -> Estimate:
            low, high = max(floor, value - float(arms[0])), min(1.0, value + float(arms[1]))
            return Estimate(value, low, high, n, why, corrected)

        return Inference(
            interval([one.arm(self.level) for one in joined], over_seeds.missing),
            interval(z * rows, None),
            min(one.degrees_of_freedom for one in joined),
            joined[0 if value > 0 else 1].p_value(value),
            (joined[0], joined[1]),
        )


def _by_method(
    table: JointCounts, seeds_of: Mapping[str, int], stars: FloatArray, paired: Paired, seed: int
) -> dict[str, list[_Drawn]]:
    """Part resampled counts (predictions, replicates, ...) by method and seed."""
    kept = [table.groups.index(group) for group in paired.compared.groups]
    pooled = paired.counts.table.sum(0, keepdims=True)
    positive = paired.positive
    of_whole = Enough.of(pooled, positive, 0)
    of_compared = Enough.of(paired.compared.table, positive, paired.min_count)
    found: dict[str, list[_Drawn]] = {}
    position = 0
    for method, own in seeds_of.items():
        found[method] = []
        for _ in range(own):
            one, drawn = table.marginal(position).table, stars[position]
            # Predictions that agree in every row are one and the same, chance included.
            answers = table.patterns[:, 2 + position]
            same = zlib.crc32((answers if table.places is None else answers[table.places]).tobytes())
            whole, resampled = one.sum(0, keepdims=True), drawn.sum(1, keepdims=True)
            found[method].append(
                _Drawn(
                    Resampled.build(whole, resampled, positive, of_whole, seed, same),
                    Resampled.build(one[kept], drawn[:, kept], positive, of_compared, seed, same),
                )
            )
            position += 1
    return found


def _resample(
    table: JointCounts,
    predictions: int,
    replicates: int,
    rng: np.random.Generator,
    clusters: IntArray | None = None,
) -> FloatArray:
    """Resample rows for all predictions at once: (predictions, replicates, groups, classes, classes).

    With ``clusters`` (rows,) whole clusters are drawn. Known rows are drawn one by one: the resamples of one set of
    predictions are then the same whatever the others are.
    """
    groups, size = len(table.groups), len(table.classes)
    cells, patterns = groups * size * size, len(table.multiplicity)
    base = (table.patterns[:, 0] * size + table.patterns[:, 1]) * size
    columns = (base[:, None] + table.patterns[:, 2:]) + cells * np.arange(predictions)
    members = sparse.csr_matrix(
        (np.ones(columns.size), (columns.ravel(), np.repeat(np.arange(patterns), predictions))),
        shape=(cells * predictions, patterns),
    )
    units = table.n
    if table.places is not None:
        codes = np.arange(table.n) if clusters is None else clusters
        units = int(codes.max()) + 1
        of_units = sparse.csr_matrix((np.ones(table.n), (table.places, codes)), shape=(patterns, units))
    result = np.empty((predictions, replicates, groups, size, size))
    # Draws of all units for all replicates at once can be large; a hundred replicates are enough to be fast.
    block = max(1, min(100, DRAWN // units))
    for start in range(0, replicates, block):
        count = min(block, replicates - start)
        if table.places is None:
            drawn = rng.multinomial(table.n, table.multiplicity / table.n, size=count).T
        else:
            places = rng.integers(units, size=(count, units)) + units * np.arange(count)[:, None]
            drawn = of_units @ np.bincount(places.ravel(), minlength=count * units).reshape(count, units).T
        counted = members @ drawn.astype(np.float64)
        shape = (predictions, groups, size, size, count)
        result[:, start : start + count] = np.moveaxis(counted.reshape(shape), -1, 1)
    return result


def _cluster_codes(clusters: ArrayLike, rows: int) -> IntArray:
    codes = any_array(clusters, "clusters")
    if codes.shape != (rows,) or codes.dtype.kind not in "iu":
        raise DataError(f"clusters must be {rows} whole numbers, one a row; got {codes.dtype} of shape {codes.shape}.")
    return np.asarray(np.unique(codes, return_inverse=True)[1], np.int64)


class _Outward(NamedTuple):
    """Contrasts whose largest is the metric, or minus the worst-group accuracy, as a mean over units.

    Contrasts that are not compared are minus infinity. ``value`` and ``rows``, those under the rarest rate, are
    (units, contrasts); ``shift``, the resampled deviations, is (replicates, units, contrasts).
    """

    value: FloatArray
    shift: FloatArray
    rows: IntArray

    @classmethod
    def of(cls, name: str, seed: Resampled) -> _Outward:
        value, shift = seed.observed.contrasts(name)[0], seed.shaken.contrasts(name)[0]
        shift, rows = shift - shift.mean(0), seed.plain.rarest(name)
        if metric_of(name).kind == "level":
            return cls(value, shift, rows)
        kept = seed.plain.enough.contrasts(name)
        if metric_of(name).kind == "gap":
            value, shift = np.concatenate([value, -value], -1), np.concatenate([shift, -shift], -1)
            rows, kept = np.concatenate([rows, rows], -1), np.concatenate([kept, kept], -1)
        value = np.where(kept, value, -np.inf)
        if not name.endswith("_mean"):
            return cls(value.reshape(1, -1), shift.reshape(len(shift), 1, -1), rows.reshape(1, -1))
        units = kept.any(-1)
        return cls(value[units], shift[:, units], rows[units])

    def largest_alone(self) -> FloatArray:
        """Deviations (replicates,) of the contrasts that were the largest."""
        return np.take_along_axis(self.shift, self.value.argmax(-1)[None, :, None], -1).mean((-2, -1))

    def unit(self, position: int) -> _Outward:
        """Return the contrasts of one unit, without the axis of units."""
        return _Outward(self.value[position], self.shift[:, position], self.rows[position])


def _difference_ends(a: _Outward, b: _Outward, level: float, rows: int) -> tuple[float, float]:
    """Lower and upper end for the largest contrast of a less that of b, on the same rows, not clipped."""
    caution = selection_threshold(rows)
    ends = []
    for position in range(len(a.value)):
        one, other = a.unit(position), b.unit(position)
        ends.append((-_difference_high(other, one, level, caution), _difference_high(one, other, level, caution)))
    low, high = np.mean(ends, axis=0)
    return float(low), float(high)


def _difference_high(a: _Outward, b: _Outward, level: float, caution: float) -> float:
    """Upper end for max(a) - max(b).

    With k the truly largest contrast of a, the difference is at most a_k - b_j for every j. Each k that may be the
    largest gets the lowest such bound, and the highest of these holds. Only the partner of k, and of the eight largest
    b_j those that may be the largest, are tried: fewer bounds are never wrong, and more need a wider critical value.
    """
    z = normal_quantile(level)
    highest = np.argsort(-b.value, kind="stable")[:8]
    highest = highest[distance_credit(b.value, b.shift, caution)[highest] <= 0]
    ends = []
    for k in np.flatnonzero(distance_credit(a.value, a.shift, caution) <= 0):
        tried = highest if k in highest else np.append(highest, k)
        shift = a.shift[:, [k]] - b.shift[:, tried]
        spread = shift.std(0)
        t = np.divide(shift, spread, out=np.zeros_like(shift), where=spread > 0)
        critical = max(z, float(np.quantile((-t).max(-1), (1 + level) / 2))) if len(tried) > 1 else z
        # The standard error is itself known from few rows only; the two pseudo-rows count.
        freedom = np.minimum(a.rows[k], b.rows[tried]) + 1
        student = special.stdtrit(freedom, (1 + level) / 2) / z
        ends.append(float((a.value[k] - b.value[tried] + critical * student * spread).min()))
    return max(ends)


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
        """Add the variance ``rows`` over test rows, which has so many degrees of freedom."""
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
            return float(2 * stats.t.sf(t, self.degrees_of_freedom))
        smallest = math.log(1e-12)
        if self.critical(math.exp(smallest)) <= t:
            return math.exp(smallest)
        return math.exp(optimize.brentq(lambda log: self.critical(math.exp(log)) - t, smallest, 0.0))


def satterthwaite(parts: Sequence[tuple[float, float]], total: float) -> float:
    """Degrees of freedom of ``total``, made of independent variance estimates that are given with their own."""
    rest = sum(variance**2 / freedom for variance, freedom in parts)
    return total**2 / rest if rest > 0 else math.inf
