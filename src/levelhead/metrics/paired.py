"""Predictions of several methods and seeds on the same rows: intervals of figures and of their differences.

*Differences of two predictors on the same rows* resample the rows jointly. With k the contrast that is truly largest
for A, A - B is at most A_k - B_j for every j: each of these is linear, so their paired standard errors and a max-t
critical value give a bound, and the worst over all k that may be the largest holds. The lower end is the mirror
image. Predictions that agree in every row differ by exactly 0, which is not certain of other rows: accuracy gets the
interval of two paired proportions (Bonett and Price, British Journal of Mathematical and Statistical Psychology 2012),
and other figures have none. (Bootstrapping the difference of the two gaps itself covered 88% where one gap was zero
and the other one standard error.) In a cell without errors all resamples are alike, and intervals of differences
covered 50%: here the pseudo-rows are drawn as well, and Student's t allows for the few rows of the rarest rate.

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special

from levelhead.arrays import any_array
from levelhead.metrics.between import Differences, normal_quantile, shared
from levelhead.metrics.contrasts import Enough
from levelhead.metrics.counts import Counts, IntArray, JointCounts
from levelhead.metrics.group import FloatArray
from levelhead.metrics.intervals import (
    Resampled,
    check_options,
    distance_credit,
    interval_ends,
    metric_names,
    rows_used,
    selection_threshold,
    undefined_reason,
)
from levelhead.metrics.names import metric_of
from levelhead.metrics.seeds import OverSeeds, RowsAndSeeds, seed_by_row
from levelhead.types import DataError, Estimate

DRAWN = 1 << 22
"""Rows that are drawn at a time."""


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
        """Return the counts that a metric is based on."""
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
        excess, still = 0.0, True  # whether no draw of the rows changes the difference
        # With unequal numbers of seeds the shorter list is gone through again.
        for position in range(max(len(first), len(second))):
            i, j = position % len(first), position % len(second)
            low, high = _difference_ends(outward[0][i], outward[1][j], self.level, self._counts(name).n)
            if metric_of(name).kind == "lowest":
                low, high = -high, -low
            if low == high and name == "accuracy" and self.clustered is None:
                n = self.counts.n
                low, high = paired_interval(n * max(0.0, low), n * max(0.0, -low), n, self.level)
            still &= low == high
            down.append(a[i] - b[j] - low)
            up.append(high - (a[i] - b[j]))
            moves.append(alone[0][i] - alone[1][j])
        if still:
            value = float(a.mean() - b.mean())
            unsure = Estimate.without_interval(value, self._rows(name), "every draw of the rows gives this change")
            return Inference(unsure, unsure, math.nan, math.nan if value else 1.0)
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


def paired_interval(gained: float, lost: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Ends of the difference of two paired proportions (Bonett and Price 2012): one row is added to either side."""
    up, down = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    arm = normal_quantile(level) * np.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return max(-1.0, up - down - arm), min(1.0, up - down + arm)


def paired_change(gained: int, lost: int, n: int, level: float = 0.95, share: float = 1.0) -> Estimate:
    """Return the difference of two paired proportions of ``n`` rows, with the interval of :func:`paired_interval`.

    ``share`` is the effective share of the rows.
    """
    value = (gained - lost) / n
    low, high = paired_interval(gained * share, lost * share, n * share, level)
    return Estimate(value, min(value, low), max(value, high), n)


def mcnemar(gained: int, lost: int, share: float = 1.0) -> float:
    """P-value of McNemar's exact test: discordant rows fall either way with probability one half.

    ``share`` is the effective share of the rows.
    """
    few, total = share * min(gained, lost), share * (gained + lost)
    # The binomial distribution for fractions of rows, too.
    return float(min(1.0, 2 * special.betainc(total - few, few + 1, 0.5))) if total else 1.0


def paired_differences(
    gained: int, lost: int, n: int, *_: Any, level: float = 0.95, comparisons: int = 1
) -> Differences:
    """Return :func:`paired_change` as the one pair of groups that is compared, (1,) each.

    The interval leaves out 0 only where McNemar's exact test agrees, adjusted for as many ``comparisons``.
    """
    found = paired_change(gained, lost, n, shared(level, comparisons))
    low, high = np.array([found.low]), np.array([found.high])
    if comparisons * mcnemar(gained, lost) > 1 - level:
        low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    return Differences(np.array([found.value]), low, high)


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
