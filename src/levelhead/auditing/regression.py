"""Audit predictions of a number, such as a price or a risk in euros: how errors differ between groups.

Figures are in the unit of the label. The *error* of a row is its prediction less its label, so that a mean error above
0 says that a group is predicted too high, and the *mean absolute error* how far off predictions are whichever way.

Means have the intervals of :mod:`levelhead.metrics.moments`. Differences of two groups have theirs by variance recovery
(Zou and Donner, Statistics in Medicine 2008) from those of the groups, adjusted for all pairs, quantities and columns
(Bonferroni). The root mean squared error has no interval: with errors of heavy tails, those known for it hold the true
value 68 to 94% of the time with 20 to 600 rows.

Label, prediction and groups of all rows are kept in memory, about 20 bytes a row, and measured some rows at a time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from levelhead.auditing.continuous import AlongFound
from levelhead.auditing.engine import Pair, compare
from levelhead.auditing.finding import references
from levelhead.auditing.options import AuditOptions, Roles, left_out
from levelhead.auditing.regression_rows import PLACES, QUANTITIES, Column, ErrorRows, figures_of
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import Key, attribute_names, by_names, group_name
from levelhead.report import wide
from levelhead.report.headline import Lead
from levelhead.report.record import Finding
from levelhead.report.result import Report
from levelhead.report.sentences import named_group, nothing_compared
from levelhead.report.text import digits, number
from levelhead.tables.source import Source
from levelhead.types import Estimate, in_quotes, printable

ENOUGH_FOR_TAILS, LONG_TAIL = 60, 1.5
"""Rows needed for a mean absolute error with a long tail, and the skewness of such a tail."""


@dataclass(frozen=True)
class RegressionFigures(Finding):
    """One group: ``n`` rows and the means, in the unit of the label. ``included``: whether differences are of it."""

    n: int
    mean_label: float
    mean_prediction: Estimate
    mean_error: Estimate
    mean_absolute_error: Estimate
    root_mean_squared_error: float
    included: bool = True


@dataclass(frozen=True)
class RegressionAudit(Report):
    """What an audit of predicted numbers found, in the unit of the label.

    ``by_attribute`` has the groups of each sensitive column, and of the crossing under the tuple of their names;
    ``overall`` all rows. ``explained`` is the share of the label's variance that predictions explain (R squared).
    ``pairs`` are the differences of two groups, the clearest and largest of each column and quantity; their intervals
    allow for all ``comparisons``. ``reference`` names the group that pairs are with, by column. ``continuous`` has how
    errors change along columns of numbers. ``reading`` says how a file was read that is not a plain csv.

    Examples:
        >>> import levelhead as lh
        >>> prices = list(range(60))
        >>> guesses = [n + n % 2 for n in prices]
        >>> result = lh.audit(prices, guesses, sensitive_features=[0, 1] * 30, numbers=True)
        >>> result.by_attribute["group"]["1"].mean_error.value
        1.0
    """

    kind: ClassVar[str] = "regression audit"
    optional: ClassVar[Collection[str]] = ("reading", "reference", "continuous")

    by_attribute: dict[Key, dict[Key, RegressionFigures]]
    overall: RegressionFigures
    explained: float
    pairs: list[Pair]
    comparisons: int
    warnings: list[str]
    level: float = 0.95
    label: str = "label"
    continuous: AlongFound | None = None
    reading: tuple[str, ...] = ()
    reference: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; undefined figures are null with a ``reason``."""
        more = {"rows": self.overall.n, "pairs": [pair.named() for pair in self.pairs]}
        return super().to_dict() | more

    @property
    def leads(self) -> list[Lead]:
        """What :func:`regression_leads` returns."""
        return regression_leads(self)

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the means of all rows and of every group with its attribute and its name."""
        explained = Estimate.without_interval(self.explained, self.overall.n)
        if math.isnan(self.explained):
            explained = Estimate.undefined("all labels are the same", self.overall.n)
        yield "all rows", None, wide.Fraction("explained_variance"), explained
        yield from (("all rows", None, quantity, getattr(self.overall, quantity)) for quantity in QUANTITIES)
        for name, part in by_names(self.by_attribute).items():
            for group, found in part.items():
                for quantity in ("mean_prediction", "mean_error", "mean_absolute_error"):
                    yield name, group, quantity, getattr(found, quantity)
        for one in self.pairs:
            both = wide.Pair(one.first.group, one.second.group)
            yield one.column, both, f"{one.quantity}_difference", one.difference
        yield from self.continuous.figures() if self.continuous else ()

    def compares(self, attribute: str, group: Key, figure: str) -> bool:
        """Whether a group has enough rows."""
        return by_names(self.by_attribute)[attribute][group].included


def errors_of(source: Source, roles: Roles, options: AuditOptions) -> RegressionAudit:
    """Measure the errors of a table of predicted numbers, and compare its groups."""
    rows = ErrorRows.of(source, roles, options)
    whole, by_group = rows.errors()
    (overall,) = _figures(whole, options.level)
    explained = math.nan
    if whole.squares[0, 0] > 0:
        explained = 1 - float(overall.n * overall.root_mean_squared_error**2 / whole.squares[0, 0])
    warnings = [*_no_better(whole, explained, overall), *rows.warnings]
    names, named = attribute_names(rows.groups), references(options.reference, rows.groups)
    to = {names[key]: group_name(group) for key, group in named.items()}
    by_attribute, columns = {}, {}
    for key, groups in rows.groups.items():
        sizes, figures = by_group[key].rows, _figures(by_group[key], options.level)
        kept = np.array(options.compared(groups, sizes), np.int64)
        included = [replace(one, included=at in kept) for at, one in enumerate(figures)]
        by_attribute[key] = dict(zip(groups, included, strict=True))
        compared = [group_name(groups[at]) for at in kept.tolist()]
        columns[key] = Column(names[key], compared, kept, to.get(names[key]))
        warnings += left_out(names[key], groups, sizes, options, named.get(key))
        warnings += _told(columns[key], by_group[key])
    found = compare(
        [one for key, column in columns.items() for one in column.means(by_group[key])], level=options.level
    )
    along = None
    if roles.along:
        errors = rows.rows.whole("prediction") - rows.rows.whole("label")
        along = AlongFound.of(errors, rows.rows, roles.along, options)
    return RegressionAudit(
        by_attribute,
        overall,
        explained,
        found.pairs,
        found.comparisons,
        warnings,
        options.level,
        source.called(str(roles.label)),
        along,
        reading=rows.reading,
        reference=to,
    )


def _told(column: Column, moments: Moments) -> list[str]:
    """Say what limits the figures of a column's groups."""
    constant, skewness, said = moments.constant(2), moments.skewness(3), []
    for group, at in zip(column.groups, column.kept.tolist(), strict=True):
        rows, of_group = int(moments.rows[at]), f"errors of group {in_quotes(group)}"
        if constant[at]:
            said.append(
                f"{printable(column.name)}: all {rows:,} {of_group} are {digits(float(moments.mean[2, at]))}. Constant "
                "errors have no interval, so the group is not compared."
            )
        elif rows < ENOUGH_FOR_TAILS and skewness[at] > LONG_TAIL:
            said.append(
                f"{printable(column.name)}: the {rows:,} {of_group} have a long tail. A 95% interval of their mean "
                f"absolute error covers as little as 83%; collect {ENOUGH_FOR_TAILS} rows or more."
            )
    return said


def _no_better(whole: Moments, explained: float, overall: RegressionFigures) -> list[str]:
    """Say, before any gap, that a model does not use what it is given."""
    if whole.constant(1)[0]:
        prediction = digits(overall.mean_prediction.value)
        return [f"The prediction is {prediction} for every row: only the labels differ between groups."]
    if math.isnan(explained):
        return [f"The label is {digits(overall.mean_label)} for every row: prediction quality cannot be measured."]
    if explained <= 0:
        return [
            f"The model does not beat predicting the mean label (R squared {digits(explained)}); its gaps say little."
        ]
    return []


def _figures(moments: Moments, level: float) -> list[RegressionFigures]:
    """Return the figures of each group."""
    means = {name: figures_of(moments, name)(level) for name in PLACES}
    squared = np.sqrt(moments.squares[2] / np.maximum(1, moments.rows) + moments.mean[2] ** 2)
    return [
        RegressionFigures(
            rows,
            float(moments.mean[0, at]),
            root_mean_squared_error=float(squared[at]),
            **{name: one.at(at, rows) for name, one in means.items()},  # type: ignore[arg-type]
        )
        for at, rows in enumerate(moments.rows.tolist())
    ]


def _first(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the first pair in mean error and in its size: a decided one before the other."""
    own = [[pair for pair in pairs if pair.quantity == quantity] for quantity in ("mean_error", "mean_absolute_error")]
    return sorted((one[0] for one in own if one), key=lambda one: not one.decided)


def regression_leads(found: RegressionAudit) -> list[Lead]:
    """Say which groups' errors differ most, in mean and in size, or that these rows cannot tell."""
    leads = [_pair_lead(found, one) for one in _first(found.pairs)] or [nothing_compared(found.by_attribute.values())]
    overall = found.overall
    explained = (
        "" if not found.explained >= 0 else f" Predictions explain {number(100 * found.explained)}% of the variance."
    )
    whole = (
        f"Over all {overall.n:,} rows the mean absolute error is {digits(overall.mean_absolute_error.value)}, the root "
        f"mean squared error {digits(overall.root_mean_squared_error)}, and predictions are "
        f"{_too_high(overall.mean_error.value)} on average.{explained}"
    )
    return [*leads, Lead((whole,))]


def _pair_lead(found: RegressionAudit, pair: Pair) -> Lead:
    where, ends = f"By {printable(pair.column)}, ", [pair.first.value, pair.second.value]
    size, sides = digits(pair.difference.value), (pair.first.group, pair.second.group)
    names = [named_group(pair.column, one) for one in sides]
    allowed = f", adjusted for {found.comparisons:,} comparisons" if found.comparisons > len(QUANTITIES) else ""
    rest = f"interval {digits(pair.difference.low)} to {digits(pair.difference.high)}{allowed}."
    if not pair.decided:
        what = QUANTITIES[pair.quantity].lower()
        pieces = f"{where}the {what} does not differ measurably between ", names[0], " and ", names[1], ""
        rest = f"{size}, {rest}"
    else:
        off = "predictions are" if pair.quantity == "mean_error" else "predictions are off by"
        said = map(_too_high, ends) if pair.quantity == "mean_error" else map(digits, ends)
        first, second = (f"{one} for " for one in said)
        pieces = f"{where}{off} {first}", names[0], f" and {second}", names[1], " on average"
        rest = f"a difference of {size}, {rest}"
    return replace(pair.about, pieces=pieces, rest=rest, comparisons=found.comparisons)


def _too_high(error: float) -> str:
    shown = digits(abs(error))
    return "right" if not error else f"{shown} too {'high' if error > 0 else 'low'}"
