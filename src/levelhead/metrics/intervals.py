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

*No gap*: if a permutation test of the largest |t| does not reject "all contrasts are 0", the interval starts at 0. The
predictions are drawn again, over all rows for demographic parity and over the rows of each label for the other
gaps, which keeps the sizes of all cells. With the table's rank among the deals the test is exact in cells of any size,
where the bootstrap rejected up to 12% instead of 5%. (With several classes it is exact if groups differ in no
confusion, and else, being studentised, in large cells: Chung and Romano 2013.)
*Lower end*: otherwise, invert the one-sided max-t bootstrap test of "the largest contrast is m". Contrasts that are
clearly smaller than the largest cannot push the maximum up, and counting them as if they could would make intervals
too wide; each gets credit for its distance to the largest, less sqrt(2 log log n) standard errors of that distance
(generalised moment selection, Andrews and Soares 2010).
*Upper end*: the largest contrast is at least the one that is truly largest, so max(contrast + z * se) suffices; where
several contrasts are nearly tied it is missed only if all fall short, and z is lowered accordingly.
With more than :data:`FEW` groups, pairs are too many to be resampled: the critical value of the lower end is then the
union bound of normal tails, with the same credits, and z is not lowered.
With two groups and one class this is the fold rule: the signed interval [l, u] becomes
[min(|l|, |u|), max(|l|, |u|)], or [0, max(|l|, |u|)] if it holds 0.

*The worst group* is the lowest of independent proportions, so it needs no bootstrap: its ends are those of exact tests
(Clopper and Pearson 1934), the upper one with the error probability shared among the cells that may be the lowest.

*Means over classes* of worst pairs use one simultaneous max-|t| band over all contrasts. That is conservative.

*Bias.* A maximum of noisy absolute values is too large on average. ``Estimate.corrected`` subtracts the bootstrap
estimate of the excess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from levelhead.arrays import checked
from levelhead.metrics import group as group_metrics
from levelhead.metrics.between import check_level, normal_quantile
from levelhead.metrics.contrasts import FEW, BoolArray, Contrasts, Enough, Moments
from levelhead.metrics.counts import Counts, IntArray
from levelhead.metrics.group import FloatArray, Rate, Table
from levelhead.metrics.names import METRICS, gaps, metric_of
from levelhead.metrics.roots import root
from levelhead.types import ConfigError, Estimate, in_quotes

MOST_REPLICATES = 1_000_000


@checked
def metric_names(classes: int, positive: int | None = None) -> tuple[str, ...]:
    """Names of the metrics that exist for this many classes; means over classes only where there are several."""
    several = len(group_metrics.classes_compared(classes, positive)) > 1
    return (*METRICS, *(f"{name}_mean" for name in gaps())) if several else tuple(METRICS)


@checked
def estimate(
    counts: Counts,
    metric: str,
    *,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    min_count: int = 0,
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
        min_count: smallest denominator of a rate to be compared: rows of the group for demographic parity, its
            positives for true positive rates, its negatives for false positive rates, rows of the (group, label)
            for the worst group. Rates with fewer are left out; with 0, a rate over no rows leaves the figure undefined.

    Returns:
        the figure as a fraction, or an undefined one that says which rows are lacking.

    Raises:
        ConfigError: unknown metric, or an option out of range.
    """
    known = metric_names(len(counts.classes), positive)
    if metric not in known:
        raise ConfigError(f"Unknown metric {metric!r} for {len(counts.classes)} classes. Known: {', '.join(known)}.")
    options: dict[str, Any] = {"level": level, "replicates": replicates, "seed": seed, "min_count": min_count}
    return estimate_all(counts, [metric], positive=positive, **options)[metric]


@checked
def estimate_all(
    counts: Counts,
    names: Sequence[str] | None = None,
    *,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    min_count: int = 0,
) -> dict[str, Estimate]:
    """Estimate several metrics from one set of replicates; arguments as for :func:`estimate`.

    ``names`` are some of :func:`metric_names`; None: all of them.
    """
    names = metric_names(len(counts.classes), positive) if names is None else names
    check_options(level, replicates)
    if counts.n == 0:
        return {name: Estimate.undefined("no rows") for name in names}
    enough = Enough.of(counts.table, positive, min_count)
    seen = Resampled.build(counts.table, resampled(counts.table, replicates, seed), positive, enough, seed)
    results = {}
    for name in names:
        rows = rows_used(counts.table, name, positive, min_count, enough)
        reason = undefined_reason(counts, name, positive, min_count, enough)
        if reason:
            results[name] = Estimate.undefined(reason, rows)
            continue
        value = float(seen.plain.values(name))
        low, high = interval_ends(name, seen, level)
        results[name] = Estimate(
            value,
            max(0.0, min(low, value)),
            min(1.0, max(high, value)),
            rows,
            corrected=None if metric_of(name).kind == "level" else min(1.0, max(0.0, value - seen.excess(name))),
        )
    return results


def resampled(table: ArrayLike, replicates: int, seed: int) -> IntArray:
    """Draw the rows that a table counts with replacement, all cells by one multinomial draw.

    Args:
        table: (...) counts.
        replicates: how many tables are drawn.
        seed: of the draws.

    Returns:
        (replicates, ...) counts.
    """
    counts = np.asarray(table)
    flat = counts.ravel()
    filled = np.flatnonzero(flat)
    drawn = np.zeros((replicates, flat.size), np.int64)
    rng = np.random.default_rng(seed)
    drawn[:, filled] = rng.multinomial(int(flat.sum()), flat[filled] / flat.sum(), size=replicates)
    return drawn.reshape(replicates, *counts.shape)


def _shuffle(table: IntArray, replicates: int, seed: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Deal the predictions out again, as if groups made no difference, at the sizes of the cells that there are.

    Returns:
        predictions dealt over all rows (replicates, groups, 1, classes), which keeps each group's size, and
        predictions dealt over the rows of each label (replicates, groups, classes, classes), which keeps each cell's.
    """
    rng = np.random.default_rng([*seed, 1])

    def deal(cells: IntArray) -> IntArray:
        # SciPy deals wrongly where a margin is 0 and where there is one row or one column.
        groups, predicted = np.flatnonzero(cells.sum(1)), np.flatnonzero(cells.sum(0))
        if min(len(groups), len(predicted)) < 2:
            return np.tile(cells, (replicates, 1, 1))
        sizes, totals = cells.sum(1), cells.sum(0)
        if len(totals) == 2:  # the same law, in half the time, up to NumPy's limit
            second = rng.multivariate_hypergeometric(sizes, int(totals[1]), size=replicates)
            return np.stack([sizes - second, second], -1)
        dealt = np.zeros((replicates, *cells.shape), np.int64)
        from scipy import stats  # half a second, which audits of two classes do not wait for

        tables = stats.random_table(sizes[groups], totals[predicted])
        drawn = tables.rvs(size=replicates, method="patefield", random_state=rng)
        dealt[np.ix_(np.arange(replicates), groups, predicted)] = drawn
        return dealt

    by_label = [deal(table[:, k]) for k in range(table.shape[1])]
    return deal(table.sum(1))[:, :, None], np.stack(by_label, 2)


@dataclass(frozen=True)
class Resampled:
    """One set of predictions: its figures as they are, smoothed, resampled, and shuffled as if there were no gap."""

    plain: Contrasts
    observed: Contrasts
    resampled: Contrasts
    seed: tuple[int, ...]

    @classmethod
    def build(cls, table: IntArray, resampled: Table, positive: int | None, enough: Enough, *seed: int) -> Resampled:
        """Make the figures of a table (groups, classes, classes) and its replicates (replicates, ...)."""
        return cls(
            Contrasts(table, positive, enough, smooth=False),
            Contrasts(table, positive, enough),
            Contrasts(resampled, positive, enough),
            seed,
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.plain.table.sum())

    def excess(self, name: str) -> float:
        """How much larger the figure is over replicates than where they were drawn from; 0 for what is no maximum."""
        if metric_of(name).kind == "level":
            return 0.0
        return float(self.resampled.values(name).mean() - self.observed.values(name))

    @cached_property
    def _shuffled(self) -> tuple[Contrasts, Contrasts]:
        tables = _shuffle(self.plain.table, len(self.resampled.table), self.seed)
        over_rows, within_labels = (Contrasts(one, self.plain.positive, self.plain.enough) for one in tables)
        return over_rows, within_labels

    @cached_property
    def shaken(self) -> Contrasts:
        """Replicates in which the pseudo-rows are drawn as well: those of a cell without errors differ, too."""
        rng = np.random.default_rng([*self.seed, 2])
        tables = self.resampled.table.astype(np.int64)
        classes = tables.shape[-1]
        redrawn = rng.binomial(tables, 2 / (tables.sum(-1, keepdims=True) + 2))
        tables = tables - redrawn + rng.multinomial(redrawn.sum(-1), np.full(classes, 1 / classes))
        return Contrasts(tables, self.plain.positive, self.plain.enough)

    def no_gap(self, name: str, level: float) -> float:
        """Largest absolute t that a permutation test of "no gap" lets pass."""
        shuffled = self._shuffled[0 if metric_of(name).rates_used == ["selection_rate"] else 1]
        t = np.sort(shuffled.largest_t(name))
        # The measured table is one more draw: with its rank among them the test is exact for any number of draws.
        rank = min(len(t), math.ceil(level * (len(t) + 1)))
        return float(t[rank - 1]) * (1 + 1e-9)


def interval_ends(name: str, seen: Resampled, level: float) -> tuple[float, float]:
    """Lower and upper end of the interval, before clipping to what a fraction can be."""
    if metric_of(name).kind == "lowest":
        return _lowest_rate(seen.plain.cells, seen.plain.enough.cells, level)
    alpha, z = 1 - level, normal_quantile(level)
    kept = seen.plain.enough.contrasts(name)
    many = metric_of(name).kind != "level" and len(seen.plain.table) > FEW
    by_class, variance = seen.observed.contrasts(name)
    delta, spread = by_class[kept], np.sqrt(variance[kept])

    if metric_of(name).kind == "level":
        return float(delta[0] - z * spread[0]), float(delta[0] + z * spread[0])

    if name.endswith("_mean"):
        if many:
            reach = _union_bound(np.zeros(kept.sum()), alpha / 2)
        else:
            reach = max(z, float(np.quantile(np.abs(_deviations(name, seen, kept)[1]).max(-1), level)))
        band = reach * np.sqrt(variance)
        highest = np.where(kept, np.abs(by_class) + band, 0).max(-1)[seen.plain.enough.classes(name)]
        lowest = np.where(kept, np.abs(by_class) - band, 0).max(-1)[seen.plain.enough.classes(name)]
        tied = (np.abs(delta) <= seen.no_gap(name, level) * spread).all()
        return 0.0 if tied else float(lowest.mean()), float(highest.mean())

    # Point every contrast in the direction in which it was seen; its mirror image only matters for "no gap".
    size = np.abs(delta)
    if many:
        reach = z
    else:
        shift, t = (one * np.where(delta < 0, -1.0, 1.0) for one in _deviations(name, seen, kept))
        reach = _reach(size, shift, t, spread, level)
    high = float((size + reach * spread).max())
    no_gap = seen.no_gap(name, level)
    if (size <= no_gap * spread).all():
        return float((size - no_gap * spread).max()), high
    caution = selection_threshold(seen.rows)
    if many:
        # The standard error of a distance is at most the sum of the two.
        top = int(size.argmax())
        slack = np.maximum(0, size[top] - size - caution * (spread[top] + spread)) / spread
        critical = _union_bound(slack, alpha / 2)
    else:
        slack = distance_credit(size, shift, caution) / spread
        critical = max(z, float(np.quantile((t - slack).max(-1), 1 - alpha / 2)))
    return max(0.0, float((size - critical * spread).max())), high


def _deviations(name: str, seen: Resampled, kept: BoolArray) -> Moments:
    """Resampled deviations of the contrasts, plain and in standard errors, both (replicates, contrasts)."""
    moved, variance = seen.resampled.contrasts(name)
    shift = moved - seen.observed.contrasts(name)[0]
    if kept.all():  # the usual case, and choosing takes time
        shift, variance = shift.reshape(len(shift), -1), variance.reshape(len(shift), -1)
    else:
        shift, variance = shift[..., kept], variance[..., kept]
    return shift, shift / np.sqrt(variance)


def _union_bound(slack: FloatArray, error: float) -> float:
    """Critical value at which normal deviates, each less its ``slack``, exceed it with at most ``error`` in sum."""
    return root(lambda c: special.ndtr(-c - slack).sum() - error, 0.0, 40.0)


def _lowest_rate(cells: Rate, enough: BoolArray, level: float) -> tuple[float, float]:
    """Ends for the lowest of independent rates, from exact tests of each (Clopper and Pearson 1934).

    The lowest of the lower ends misses only if that of the truly lowest rate does. The lowest of the upper ends misses
    if any does, so each gets its part of the error probability; rates that are clearly higher need little of it.
    """
    hits, rows = cells.hits[enough], cells.rows[enough]
    error = (1 - level) / 2
    share = (hits + 2) / (rows + 4)
    variance = share * (1 - share) / (rows + 4)
    low = int(share.argmin())
    distance = share - share[low] - selection_threshold(int(rows.sum())) * np.sqrt(variance + variance[low])
    slack = np.maximum(0, distance) / np.sqrt(variance)
    critical = root(lambda c: np.log1p(-special.ndtr(-c - slack)).sum() - math.log1p(-error), 0.0, 40.0)
    tail = special.ndtr(-critical)
    lower = np.where(hits > 0, special.betaincinv(hits, rows - hits + 1, error), 0.0)
    upper = np.where(hits < rows, special.betainccinv(hits + 1, rows - hits, tail), 1.0)
    return float(lower.min()), float(upper.min())


def selection_threshold(rows: int) -> float:
    """Standard errors by which a contrast must lie below the largest to be distinguished: sqrt(2 log log n)."""
    return math.sqrt(2 * math.log(math.log(max(rows, 16))))


def distance_credit(delta: FloatArray, shift: FloatArray, caution: float) -> FloatArray:
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
    z = normal_quantile(level)
    return max(NormalDist().inv_cdf(level), z - max(0.0, alone - together))


def check_options(level: float, replicates: int) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for a level or a number of replicates that cannot be used."""
    check_level(level)
    if not 100 <= replicates <= MOST_REPLICATES:
        raise ConfigError(f"replicates={replicates} is not between 100 and {MOST_REPLICATES:,}. 1,000 are usual.")


def rows_used(
    table: IntArray, name: str, positive: int | None = None, min_count: int = 0, enough: Enough | None = None
) -> int:
    """Count the rows that a figure is based on: the positives for equal opportunity, else rows of the groups compared.

    ``enough`` is known where several metrics are requested; None: it is found out.
    """
    if metric_of(name).kind == "level":
        return int(table.sum())
    enough, metric = enough or Enough.of(table, positive, min_count), metric_of(name)
    if metric.kind == "lowest":
        return int(table.sum(-1)[enough.cells].sum())
    compared = enough.groups(name) & enough.classes(name)[:, None]
    if metric.rates_used == ["true_positive_rate"]:
        return int(group_metrics.true_positives(table, positive).rows[compared].sum())
    return int(table[compared.any(0)].sum())


@checked
def undefined_reason(
    counts: Counts, name: str, positive: int | None = None, min_count: int = 0, enough: Enough | None = None
) -> str | None:
    """Say why a metric cannot be computed from these counts, with the sizes of the cells; None if it can.

    A gap needs two groups, and every rate that it compares needs rows. Only rates over fewer than ``min_count`` rows
    are left out to make it computable. ``enough``: as in :func:`rows_used`.
    """
    metric = metric_of(name)
    labels, groups = counts.classes, counts.groups
    if counts.n == 0:
        return "no rows"
    if metric.name == "accuracy":
        return None
    if metric.name == "balanced_accuracy":
        sizes = counts.cell_sizes.sum(0)
        missing = [repr(label) for label, size in zip(labels, sizes, strict=True) if not size]
        return f"no rows have label {', '.join(missing)}" if missing else None
    enough = enough or Enough.of(counts.table, positive, min_count)
    if metric.kind == "lowest":
        if not enough.cells.any():
            return f"no group has {min_count} rows of a label"
        empty = [
            f"group {in_quotes(str(groups[i]))} with label {in_quotes(str(labels[k]))}"
            for i, k in np.argwhere(enough.cells & (counts.cell_sizes == 0))
        ]
        return f"no rows in {'; '.join(empty)}" if empty else None
    if len(groups) < 2:
        return f"a gap needs at least two groups; there is {len(groups)}"
    chosen = group_metrics.classes_compared(len(labels), positive)
    kinds = {"selection_rate": "rows", "true_positive_rate": "label", "false_positive_rate": "label other than"}
    wanted = [(kinds[rate], group_metrics.RATES[rate](counts.table, positive).rows) for rate in metric.rates_used]

    def sizes_of(kind: str, rows: IntArray, k: int) -> tuple[str, str]:
        what = "rows" if kind == "rows" else f"rows with {kind} {in_quotes(str(labels[k]))}"
        return what, ", ".join(f"{g}: {size}" for g, size in zip(groups, rows, strict=True))

    compared = enough.groups(name)
    if not enough.classes(name).any() and min(rows.min() for _, rows in wanted) > 0:
        listed = [sizes_of(kind, rows[0], chosen[0]) for kind, rows in wanted]
        what, sizes = " and ".join(part for part, _ in listed), "; ".join(part for _, part in listed)
        return f"fewer than two groups have {min_count} {what} (rows by group: {sizes})"
    # Where rates over few rows leave nothing to compare, those over none say best what is lacking.
    asked = compared if enough.classes(name).any() else np.ones_like(compared)
    for kind, rows in wanted:
        for position, k in enumerate(chosen):
            lacking = np.flatnonzero(asked[position] & (rows[position] == 0))
            if len(lacking):
                what, sizes = sizes_of(kind, rows[position], k)
                named = ", ".join(repr(str(groups[i])) for i in lacking)
                return f"no {what} in group {named} (rows by group: {sizes})"
    return None


@checked
def estimate_to_dict(figure: Estimate) -> dict[str, Any]:
    """Return ``{"value", "low", "high", "n"}``, and ``reason``, ``corrected``, ``assumes`` and ``refused`` if there
    are any.

    NaN becomes null, because NaN is not JSON.
    """
    result: dict[str, Any] = {
        "value": finite_or_none(figure.value),
        "low": finite_or_none(figure.low),
        "high": finite_or_none(figure.high),
        "n": figure.n,
    }
    if figure.corrected is not None:
        result["corrected"] = finite_or_none(figure.corrected)
    if figure.reason is not None:
        result["reason"] = figure.reason
    if figure.assumes is not None:
        result |= {"assumes": figure.assumes, "refused": figure.refused}
    return result


def finite_or_none(value: float) -> float | None:
    """Return a number as JSON knows it: None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None
