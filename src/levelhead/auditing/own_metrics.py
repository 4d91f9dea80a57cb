"""Metrics of the user's own, by group: any function of labels and predictions, with intervals from resampled rows.

The rows of each group are resampled ``replicates`` times and the function is called each time, so that this is slower
than an audit's own figures, which count rows once. Each end of a group's interval is the farther of two: the
percentile of the replicates, at the level that Student's t asks for (Hesterberg, The American Statistician 2015,
section 5.3), and value plus or minus t times their standard deviation. Either alone held the true value too rarely in
small groups (benchmarks/coverage_more.py). The difference of two groups has its interval by variance recovery (Zou and
Donner, Statistics in Medicine 2008) from theirs, adjusted for all pairs of the column (Bonferroni).

No function of resampled rows knows of what it has not seen: a rate close to 0 or 1 that is based on a few tens of rows
has an interval that is too narrow. The rates of an audit have better ones; give such a metric by its own name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.engine import Pair, Quantity, compare, independent
from levelhead.auditing.options import AuditOptions, Metric
from levelhead.auditing.part import Found, Frame, Part
from levelhead.metrics.between import Differences
from levelhead.metrics.names import Key, group_name
from levelhead.report import wide
from levelhead.report.record import Finding
from levelhead.report.text import digits
from levelhead.terminal import tracked
from levelhead.types import DataError, Estimate, in_quotes, printable, quoted

FloatArray = NDArray[np.float64]

LACKING = 0.05
"""No interval if a larger share of replicates is undefined."""


@dataclass(frozen=True)
class OwnMetric(Finding):
    """A metric by group: its ``groups``, in the metric's own unit, and ``pairs``, the clearest and largest first.

    ``comparisons`` is how many pairs the intervals of differences allow for.
    """

    groups: dict[Key, Estimate]
    pairs: list[Pair]
    comparisons: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return super().to_dict() | {"pairs": [pair.named() for pair in self.pairs]}


def own_metrics(
    options: AuditOptions,
    labels: NDArray[Any],
    predictions: NDArray[Any],
    codes: NDArray[Any],
    groups: Sequence[Key],
    column: str = "group",
) -> dict[str, OwnMetric]:
    """Measure functions of labels and predictions by group.

    Args:
        options: ``metrics``, functions by name, are called with the labels and predictions of some rows, (rows,) each;
            ``level`` is that of groups, and of all differences of a metric together; ``replicates`` are resamplings of
            the rows of each group, with one ``seed`` for every metric.
        labels: (rows,).
        predictions: (rows,).
        codes: (rows,) each row's place in ``groups``.
        groups: the groups.
        column: what the sensitive column is called.

    Returns:
        the figures by name of the metric.

    Raises:
        DataError: a function raises an error, or returns no number, on the rows of a group.
    """
    order = np.lexsort([one.astype(str) for one in (labels, predictions)])  # resamples do not depend on that of rows
    members = [order[codes[order] == at] for at in range(len(groups))]
    metrics, replicates = options.metrics or {}, options.replicates
    values: dict[str, list[float]] = {name: [] for name in metrics}
    drawn: dict[str, list[FloatArray]] = {name: [] for name in metrics}
    every = list(itertools.product(metrics.items(), enumerate(members)))
    for (name, function), (at, rows) in tracked(every, "Resampling rows", shown=True):
        both = labels[rows], predictions[rows]
        values[name].append(_called(function, name, group_name(groups[at]), *both))
        known = np.isfinite(values[name][-1])
        drawn[name].append(_resampled(function, *both, replicates, [options.seed, at]) if known else np.empty(0))
    sizes = list(map(len, members))
    return {name: _measured((column, name), groups, sizes, values[name], drawn[name], options) for name in metrics}


def _called(function: Metric, name: str, group: str, labels: NDArray[Any], predictions: NDArray[Any]) -> float:
    try:
        value = function(labels, predictions)
    except Exception as error:
        raise DataError(
            f"The metric {quoted(name)} fails on the {len(labels):,} rows of group {quoted(group)}: "
            f"{type(error).__name__}: {printable(error)}. It is called as function(y_true, y_pred)."
        ) from error
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"The metric {quoted(name)} returns {type(value).__name__} for group {quoted(group)}, and must return one "
            "number."
        ) from None


def _resampled(
    function: Metric, labels: NDArray[Any], predictions: NDArray[Any], replicates: int, seed: Sequence[int]
) -> FloatArray:
    """Return the figures of resampled rows; of those that have none, NaN."""
    rng = np.random.default_rng(seed)
    found = np.full(replicates, np.nan)
    for at in range(replicates):
        rows = rng.integers(0, len(labels), len(labels))
        try:
            found[at] = float(function(labels[rows], predictions[rows]))
        except (ValueError, ArithmeticError):  # for example an area without rows of a class
            found[at] = np.nan
    return found[np.isfinite(found)]


def _measured(
    about: tuple[str, str],
    groups: Sequence[Key],
    sizes: Sequence[int],
    values: Sequence[float],
    drawn: Sequence[FloatArray],
    options: AuditOptions,
) -> OwnMetric:
    """Return the figures of a metric; ``about`` names the sensitive column and the metric."""
    level, replicates, compared = options.level, options.replicates, options.compared(groups, sizes)
    figures: dict[Key, Estimate] = {}
    for group, rows, value, own in zip(groups, sizes, values, drawn, strict=True):
        if not np.isfinite(value):
            figures[group] = Estimate.undefined(f"the metric is {value} on its {rows:,} rows", rows)
        elif rows < 2:
            figures[group] = Estimate.undefined("it has 1 row", rows)
        elif len(own) < (1 - LACKING) * replicates:
            lacking = f"{replicates - len(own):,} of {replicates:,} resamplings of its {rows:,} rows have no figure"
            figures[group] = Estimate.undefined(lacking, rows)
        elif not own.std():
            figures[group] = Estimate.without_interval(value, rows)  # not an interval of width 0
        else:
            figures[group] = Estimate(value, *_ends(value, own, rows, level), rows)
    kept = [at for at, one in enumerate(figures.values()) if at in compared and not np.isnan(one.low)]
    measured = np.array([values[at] for at in kept])

    def at_level(one: float) -> Differences:
        ends = [_ends(values[at], drawn[at], sizes[at], one) for at in kept]
        return Differences(measured, *np.array(ends).reshape(-1, 2).T)

    names, rows_of = [group_name(groups[at]) for at in kept], np.array([sizes[at] for at in kept], np.int64)
    found = compare([Quantity(*about, names, measured, rows_of, independent(at_level))], level=level)
    return OwnMetric(figures, found.pairs, found.comparisons)


def _ends(value: float, drawn: FloatArray, rows: int, level: float) -> tuple[float, float]:
    """Return the farther ends of the expanded percentile interval and of the one by Student's t."""
    quantile = float(special.stdtrit(rows - 1, (1 + level) / 2))
    stretch = np.sqrt(rows / (rows - 1))
    tail = float(special.ndtr(-stretch * quantile))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    arm = quantile * stretch * float(drawn.std())
    return float(min(low, value - arm)), float(max(high, value + arm))


def own_sentence(attribute: str, name: str, found: OwnMetric) -> str:
    """Say which two groups differ most, or that these rows cannot tell."""
    where = f"{printable(name)} by {printable(attribute)}"
    if not found.pairs:
        return f"{where}: fewer than two groups have an interval; there is nothing to compare."
    pair = found.pairs[0]
    one = pair.difference
    size = f"{digits(one.value)}, interval {digits(one.low)} to {digits(one.high)}"
    allowed = f", adjusted for {found.comparisons:,} comparisons" if found.comparisons > 1 else ""
    names = f"{printable(pair.first.group)} and {printable(pair.second.group)}"
    if pair.decided:
        return f"{where}: {names} differ by {size}{allowed}."
    return f"{where}: no measurable difference between {names}: {size}{allowed}."


class OwnMetrics(Found):
    """The metrics by name, by sensitive column."""

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the figure of each group, and the differences of two groups."""
        for key, metrics in self.items():
            for metric, own in metrics.items():
                for one in own.pairs:
                    both = wide.Pair(one.first.group, one.second.group)
                    yield self.names[key], both, f"{metric}_difference", one.difference
                yield from ((self.names[key], group, metric, figure) for group, figure in own.groups.items())


class OwnPart(Part):
    """Metrics of the user's own, on labels and predictions as the user gave them; without predictions, on scores."""

    name = "own_metrics"
    needs = ("metrics",)
    keeps = ("label", "prediction", "groups")

    def find(self, frame: Frame) -> OwnMetrics:
        """Return the figures of all metrics."""
        options, (labels, predictions) = frame.options, self._given(frame)
        found = OwnMetrics(names=frame.names)
        for key, groups in frame.groups.items():
            own = own_metrics(options, labels, predictions, frame.members(key), groups, frame.names[key])
            found[key] = Found(own, told=partial(own_sentence, frame.names[key]))
            for name, one in own.items():
                frame.warnings.extend(_warnings(name, one))
        return found

    def _given(self, frame: Frame) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return labels and predictions, or scores, (rows,)."""
        label = frame.given.column("label")
        if self.asked.roles.prediction is None:
            return np.array(label[1])[label[0]], frame.rows.whole("score")
        codes, values = frame.given.column("prediction")
        return np.array(label[1])[label[0]], np.array(values)[codes]


def _warnings(name: str, found: OwnMetric) -> Iterator[str]:
    """Name the groups whose figure is undefined or has no interval."""
    for group, figure in found.groups.items():
        of_group = f"{printable(name)} of group {in_quotes(group_name(group))}"
        if not figure.defined:
            yield f"{of_group} is undefined: {figure.reason}."
        elif np.isnan(figure.low):
            yield (f"{of_group} is constant over all resamples, so it has no interval and is not compared.")
