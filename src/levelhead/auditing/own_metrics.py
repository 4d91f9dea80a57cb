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

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy import special

from levelhead.auditing.options import Metric
from levelhead.auditing.part import Found, Frame, Part
from levelhead.metrics.between import clearest, difference_of, shared
from levelhead.metrics.names import Key, group_name
from levelhead.report import blocks
from levelhead.report.record import Finding
from levelhead.report.text import Record, digits, level_text, short
from levelhead.report.wide import Pair
from levelhead.tables.bins import ordered_groups
from levelhead.tables.tally import Tally
from levelhead.terminal import Terminal, counted
from levelhead.types import DataError, Estimate, in_quotes, printable, quoted

FloatArray = NDArray[np.float64]

NAMED_PAIRS = 10
"""Pairs of groups kept per metric, the clearest and largest first."""
LACKING = 0.05
"""No interval if a larger share of replicates is undefined."""
SLOW = 2.0
"""Seconds until a progress bar appears."""


@dataclass(frozen=True)
class PairDifference(Finding):
    """The first group's figure less the second's, with its interval."""

    first: str
    second: str
    difference: Estimate

    @property
    def decided(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.difference.excludes_zero


@dataclass(frozen=True)
class OwnMetric(Finding):
    """A metric by group: its ``groups``, in the metric's own unit, and ``pairs``, the clearest and largest first.

    ``comparisons`` is how many pairs the intervals of differences allow for.
    """

    groups: dict[Key, Estimate]
    pairs: list[PairDifference]
    comparisons: int


def own_metrics(
    metrics: Mapping[str, Metric],
    labels: NDArray[Any],
    predictions: NDArray[Any],
    codes: NDArray[np.int64],
    groups: Sequence[Key],
    *,
    compared: Sequence[bool],
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    console: Console | None = None,
) -> dict[str, OwnMetric]:
    """Measure functions of labels and predictions by group.

    Args:
        metrics: functions by name, called with the labels and predictions of some rows, (rows,) each.
        labels: (rows,).
        predictions: (rows,).
        codes: (rows,) each row's place in ``groups``; -1 is in none.
        groups: the groups.
        compared: which of them differences are of.
        level: confidence level of groups, and of all differences of a metric together.
        replicates: resamplings of the rows of each group.
        seed: of the resampling, which is the same for every metric.
        console: where a progress bar is shown if it takes longer than two seconds.

    Returns:
        the figures by name of the metric.

    Raises:
        DataError: a function raises an error, or returns no number, on the rows of a group.
    """
    found: dict[str, OwnMetric] = {}
    order = np.lexsort([one.astype(str) for one in (labels, predictions)])  # resamples do not depend on that of rows
    members = [order[codes[order] == at] for at in range(len(groups))]
    tick = _Ticks(console, len(metrics) * len(groups) * replicates)
    with tick:
        for name, function in metrics.items():
            values, drawn = [], []
            for at, rows in enumerate(members):
                values.append(_called(function, name, group_name(groups[at]), labels[rows], predictions[rows]))
                drawn.append(
                    _resampled(function, labels[rows], predictions[rows], replicates, [seed, at], tick)
                    if np.isfinite(values[-1])
                    else np.empty(0)
                )
            found[name] = _measured(groups, members, values, drawn, compared, level, replicates)
    return found


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
    function: Metric,
    labels: NDArray[Any],
    predictions: NDArray[Any],
    replicates: int,
    seed: Sequence[int],
    tick: Callable[[], None],
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
        tick()
    return found[np.isfinite(found)]


def _measured(
    groups: Sequence[Key],
    members: Sequence[NDArray[np.int64]],
    values: Sequence[float],
    drawn: Sequence[FloatArray],
    compared: Sequence[bool],
    level: float,
    replicates: int,
) -> OwnMetric:
    figures: dict[Key, Estimate] = {}
    for at, group in enumerate(groups):
        rows, value = len(members[at]), values[at]
        if not np.isfinite(value):
            figures[group] = Estimate.undefined(f"the metric is {value} on its {rows:,} rows", rows)
        elif len(drawn[at]) < (1 - LACKING) * replicates or rows < 2:
            figures[group] = Estimate.undefined(
                f"{replicates - len(drawn[at]):,} of {replicates:,} resamplings of its {rows:,} rows have no figure"
                if rows > 1
                else "it has 1 row",
                rows,
            )
        elif not drawn[at].std():
            figures[group] = Estimate(value, np.nan, np.nan, rows)  # not an interval of width 0
        else:
            low, high = _ends(value, drawn[at], rows, level)
            figures[group] = Estimate(value, low, high, rows)
    kept = [at for at, group in enumerate(groups) if compared[at] and not np.isnan(figures[group].low)]
    every = list(combinations(kept, 2))
    adjusted = shared(level, len(every))
    within = {
        at: Estimate(values[at], *_ends(values[at], drawn[at], len(members[at]), adjusted), len(members[at]))
        for at in kept
    }
    pairs = []
    for one, other in every:
        if values[one] < values[other]:
            one, other = other, one
        difference = difference_of(within[one], within[other])
        pairs.append(PairDifference(group_name(groups[one]), group_name(groups[other]), difference))
    pairs.sort(key=lambda pair: clearest(pair.difference))
    # And the interval that ends farthest: a limit that all of these keep for sure is kept by all.
    farthest = sorted(pairs[NAMED_PAIRS:], key=lambda pair: -pair.difference.size.high)[:1]
    return OwnMetric(figures, pairs[:NAMED_PAIRS] + farthest, len(every))


def _ends(value: float, drawn: FloatArray, rows: int, level: float) -> tuple[float, float]:
    """Return the farther ends of the expanded percentile interval and of the one by Student's t."""
    quantile = float(special.stdtrit(rows - 1, (1 + level) / 2))
    stretch = np.sqrt(rows / (rows - 1))
    tail = float(special.ndtr(-stretch * quantile))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    arm = quantile * stretch * float(drawn.std())
    return float(min(low, value - arm)), float(max(high, value + arm))


class _Ticks:
    """Counts calls, and shows a progress bar once they have taken longer than :data:`SLOW` seconds."""

    def __init__(self, console: Console | None, total: int) -> None:
        self.console, self.total, self.done = console, total, 0
        self.began = time.monotonic()
        self.shown: Any = None
        self.advance: Callable[[], None] | None = None

    def __enter__(self) -> _Ticks:
        return self

    def __exit__(self, *error: object) -> None:
        if self.shown is not None:
            self.shown.__exit__(*error)

    def __call__(self) -> None:
        self.done += 1
        if self.advance is not None:
            self.advance()
        elif self.console is not None and self.done % 100 == 0 and time.monotonic() - self.began > SLOW:
            self.shown = counted(self.console, "Resampling rows", self.total, self.done)
            self.advance = self.shown.__enter__()


def own_sentence(attribute: str, name: str, found: OwnMetric) -> str:
    """Say which two groups differ most, or that these rows cannot tell."""
    where = f"{printable(name)} by {printable(attribute)}"
    if not found.pairs:
        return f"{where}: fewer than two groups have an interval; there is nothing to compare."
    pair = found.pairs[0]
    one = pair.difference
    size = f"{digits(one.value)}, interval {digits(one.low)} to {digits(one.high)}"
    allowed = f", adjusted for {found.comparisons:,} comparisons" if found.comparisons > 1 else ""
    names = f"{printable(pair.first)} and {printable(pair.second)}"
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
                    yield self.names[key], Pair(one.first, one.second), f"{metric}_difference", one.difference
                yield from ((self.names[key], group, metric, figure) for group, figure in own.groups.items())


class OwnPart(Part):
    """Metrics of the user's own, on labels and predictions as the user gave them; without predictions, on scores."""

    name = "own_metrics"
    needs = ("metrics",)
    keeps = ("label", "prediction", "groups")

    def find(self, frame: Frame) -> OwnMetrics:
        """Return the figures of all metrics."""
        options, (labels, predictions) = frame.options, self._given(frame)
        tally = Tally(
            "", "", dict.fromkeys(self.asked.roles.groups, ""), options.intersect, frozenset(self.asked.roles.groups)
        )
        columns = {name: frame.given.column(f"group {name}") for name in self.asked.roles.groups}
        found = OwnMetrics(names=frame.names)
        for key, (codes, values) in tally.group_columns(columns).items():
            at, groups = ordered_groups(values, key, self.asked.cuts)
            rows = dict(zip(frame.groups[key], frame.counts[key].group_sizes.tolist(), strict=True))
            own = own_metrics(
                options.metrics or {},
                labels,
                predictions,
                at[codes],
                groups,
                compared=[
                    rows[group] >= options.min_count and not options.leaves_out(group) for group in frame.groups[key]
                ],
                level=options.level,
                replicates=options.replicates,
                seed=options.seed,
                console=Terminal(stderr=True),
            )
            found[key] = Found(own, told=partial(own_sentence, frame.names[key]))
            for name, one in own.items():
                frame.warnings.extend(_warnings(name, one))
        return found

    def _given(self, frame: Frame) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return labels and predictions, or scores, (rows,)."""
        label = frame.given.column("label")
        if self.asked.roles.prediction is None:
            return np.array(label[1])[label[0]], frame.rows.whole("score")
        decided = frame.given.column("prediction")
        mapped: list[Mapping[Hashable, Hashable]] = [{}, {}]
        if label_map := frame.options.label_map:
            mapped = [*label_map.apply(dict.fromkeys(label[1], 1), dict.fromkeys(decided[1], 1))]
        columns = zip((label, decided), mapped, strict=True)
        labels, predictions = (np.array([words.get(one, one) for one in known])[at] for (at, known), words in columns)
        return labels, predictions

    @classmethod
    def column_sections(cls, name: str, result: Record) -> list[Record]:
        """Return the section on the metrics by a sensitive column."""
        own = result.get("own_metrics", {}).get(name, {})
        level = level_text(result.get("level", 0.95))
        shown = [
            block
            for metric, found in own.items()
            for block in (
                *blocks.said(found["sentences"]),
                blocks.table(
                    f"{short(metric)} by group of {short(name)}, with {level} intervals from resampled rows",
                    ["Group", "Value", "Rows"],
                    [
                        (group, [blocks.figure_cell(one, None), blocks.cell(f"{one['n']:,}")])
                        for group, one in found["groups"].items()
                    ],
                    where=blocks.BOTH,
                ),
            )
        ]
        return [blocks.section("Your own metrics", shown, rank=6)]


def _warnings(name: str, found: OwnMetric) -> Iterator[str]:
    """Name the groups whose figure is undefined or has no interval."""
    for group, figure in found.groups.items():
        of_group = f"{printable(name)} of group {in_quotes(group_name(group))}"
        if not figure.defined:
            yield f"{of_group} is undefined: {figure.reason}."
        elif np.isnan(figure.low):
            yield (f"{of_group} is constant over all resamples, so it has no interval and is not compared.")
