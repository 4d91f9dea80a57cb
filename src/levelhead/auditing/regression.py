"""Audit predictions of a number, such as a price or a risk in euros: how errors differ between groups.

Figures are in the unit of the label. The *error* of a row is its prediction less its label, so that a mean error above
0 says that a group is predicted too high, and the *mean absolute error* how far off predictions are whichever way.

Means have the intervals of :mod:`levelhead.metrics.moments`. Differences of two groups have theirs by variance recovery
(Zou and Donner, Statistics in Medicine 2008) from those of the groups, adjusted for all pairs, quantities and columns
(Bonferroni). The root mean squared error has no interval: with errors of heavy tails, those known for it hold the true
value 68 to 94% of the time with 20 to 600 rows.

Rows are counted batch by batch: only their number, mean, squared and cubed deviations by group are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.continuous import ContinuousGap, continuous_gap, continuous_sentence
from levelhead.auditing.finding import references
from levelhead.auditing.options import (
    AuditOptions,
    Roles,
    alike_groups,
    count_sentence,
    left_out,
    no_level_error,
    no_level_sentence,
)
from levelhead.auditing.own_metrics import PairDifference
from levelhead.auditing.regression_beside import (
    NAMED_PAIRS,
    PLACES,
    AgainstNumbers,
    Compared,
    WithinLevels,
    changes_against,
    within_levels,
)
from levelhead.auditing.regression_page import QUANTITIES, regression_page
from levelhead.auditing.regression_rows import read_rows
from levelhead.metrics.between import Differences, mover, shared
from levelhead.metrics.contrasts import pair_indices
from levelhead.metrics.counts import IntArray
from levelhead.metrics.moments import Moments
from levelhead.metrics.names import Key, attribute_names, by_names, group_name
from levelhead.report.record import Finding
from levelhead.report.result import Report
from levelhead.report.text import Record, digits, number
from levelhead.report.wide import Pair
from levelhead.tables.bins import ordered_groups
from levelhead.tables.source import Source
from levelhead.types import DataError, Estimate, in_quotes, printable, quoted

FloatArray = NDArray[np.float64]

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
class RegressionPair(Finding):
    """The largest of two groups' means less the other's: ``quantity`` is one of :data:`QUANTITIES`."""

    attribute: str
    quantity: str
    pair: PairDifference

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {"attribute": self.attribute, "quantity": self.quantity, **self.pair.to_dict()}


@dataclass(frozen=True)
class RegressionAudit(Report):
    """What an audit of predicted numbers found, in the unit of the label.

    ``by_attribute`` has the groups of each sensitive column, and of the crossing under the tuple of their names;
    ``overall`` all rows. ``explained`` is the share of the label's variance that predictions explain (R squared).
    ``pairs`` are the differences of two groups, the clearest and largest of each column and quantity; their intervals
    allow for all ``comparisons``. ``reference`` names the group that pairs are with, by column. ``continuous`` has how
    errors change along columns of numbers, ``control`` differences within levels of another column, and ``against``
    what changed between two models. ``reading`` says how a file was read that is not a plain csv.

    Examples:
        >>> import levelhead as lh
        >>> prices = list(range(60))
        >>> guesses = [n + n % 2 for n in prices]
        >>> result = lh.audit(prices, guesses, sensitive_features=[0, 1] * 30, numbers=True)
        >>> result.by_attribute["group"]["1"].mean_error.value
        1.0
    """

    kind: ClassVar[str] = "regression audit"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(regression_page)
    optional: ClassVar[Collection[str]] = ("about", "reading", "reference", "control", "against")

    by_attribute: dict[Key, dict[Key, RegressionFigures]]
    overall: RegressionFigures
    explained: float
    pairs: list[RegressionPair]
    comparisons: int
    warnings: list[str]
    level: float = 0.95
    label: str = "label"
    about: Mapping[str, str] = field(default_factory=dict)
    continuous: Mapping[str, ContinuousGap] = field(default_factory=dict)
    reading: tuple[str, ...] = ()
    reference: Mapping[str, str] = field(default_factory=dict)
    control: WithinLevels | None = None
    against: AgainstNumbers | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; undefined figures are null with a ``reason``."""
        along = {
            name: {"sentences": [_along_sentence(name, one)], **one.to_dict()} for name, one in self.continuous.items()
        }
        more = {"rows": self.overall.n, "continuous": along, "sentences": regression_sentences(self)}
        return super().to_dict() | more

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the means of every group with its attribute and its name."""
        for name, part in by_names(self.by_attribute).items():
            for group, found in part.items():
                for quantity in ("mean_prediction", "mean_error", "mean_absolute_error"):
                    yield name, group, quantity, getattr(found, quantity)
        for one in self.pairs:
            both = Pair(one.pair.first, one.pair.second)
            yield one.attribute, both, f"{one.quantity}_difference", one.pair.difference
        yield from ((name, None, "slope", one.slope) for name, one in self.continuous.items())
        for level in self.control.pairs if self.control else ():
            yield level.attribute, Pair(level.first, level.second), f"{level.quantity}_within_levels", level.difference
        for change in self.against.changes if self.against else ():
            who = change.group if change.other is None else Pair(change.group, change.other)
            yield change.attribute, who, f"{change.quantity}_change", change.change

    def compares(self, attribute: str, group: Key, figure: str) -> bool:
        """Whether a group has enough rows."""
        return by_names(self.by_attribute)[attribute][group].included


def errors_of(source: Source, roles: Roles, options: AuditOptions) -> RegressionAudit:
    """Count the errors of a table of predicted numbers, and compare its groups."""
    rows = read_rows(source, roles, options)
    whole = rows.whole.moments
    if whole is None:  # readers refuse files without rows
        raise DataError(f"All counts in {quoted(str(roles.count))} are 0.")
    names = attribute_names(rows.of_groups)
    warnings: list[str] = []
    by_attribute: dict[Key, dict[Key, RegressionFigures]] = {}
    kept: dict[Key, dict[Key, int]] = {}
    groups_of: dict[Key, dict[Any, Key]] = {}
    for key, found in rows.of_groups.items():
        moments = found.known
        codes, groups = ordered_groups(list(found.places), key, rows.cuts)
        groups_of[key] = {member: groups[code] for member, code in zip(found.places, codes, strict=True)}
        at_of = {group: int(np.flatnonzero(codes == place)[0]) for place, group in enumerate(groups)}
        by_attribute[key], kept[key] = {}, {}
        warnings += alike_groups(key, groups, rows.cuts)
        for group, at in at_of.items():
            included = moments.rows[at] >= options.min_count and not options.leaves_out(group)
            by_attribute[key][group] = _figures(moments, at, options.level, bool(included))
            if included:
                kept[key][group] = at
            if included and (told := _told(moments, at, in_quotes(group_name(group)))):
                warnings.append(f"{printable(names[key])}: {told}")
    named = references(options.reference, {key: list(groups) for key, groups in by_attribute.items()})
    for key, found_by in by_attribute.items():
        sizes = {group: one.n for group, one in found_by.items()}
        warnings += left_out(names[key], sizes, options, named.get(key))
        if key in named and named[key] not in kept[key]:
            kept[key] = {}
    places = {key: list(kept[key]).index(group) for key, group in named.items() if kept[key]}
    paired = {key: pair_indices(len(groups), places.get(key)) for key, groups in kept.items()}
    comparisons = len(QUANTITIES) * sum(len(first) for first, _ in paired.values())
    level = shared(options.level, comparisons)
    pairs = [
        pair
        for key, groups in kept.items()
        for pair in _pairs(names[key], rows.of_groups[key].known, groups, paired[key], level)
    ]
    order = list(QUANTITIES)
    pairs.sort(key=lambda one: (not one.pair.decided, order.index(one.quantity), -one.pair.difference.value))
    overall = _figures(whole, 0, options.level, True)
    explained = math.nan
    if whole.squares[0, 0] > 0:
        explained = 1 - float(overall.n * overall.root_mean_squared_error**2 / whole.squares[0, 0])
    warnings = [*_no_better(rows.ends, explained, overall), *warnings]
    numbers = {name: np.concatenate(one) for name, one in rows.numbers.items()}
    along = {name: continuous_gap(numbers[""], numbers[name], title=name, level=options.level) for name in roles.along}
    members = {key: list(groups) for key, groups in kept.items()}
    plain = next(((one.attribute, one.quantity, {one.pair.first, one.pair.second}) for one in _first(pairs)), None)
    beside = Compared(members, paired, names, groups_of, options.level, max(2, options.min_count), plain)
    control, against = None, None
    if roles.levels:
        control = within_levels(rows.within, beside, ", ".join(roles.levels), overall.n)
        if control.without == overall.n:
            raise no_level_error(roles.levels)
        warnings += [no_level_sentence(control.column, control.without)] if control.without else []
    if options.other is not None:
        warnings += [] if rows.other is None else rows.other.check()
        against = changes_against(rows.changed, beside, options.other.names)
    reading = () if roles.count is None else (count_sentence(source.called(roles.count), overall.n),)
    return RegressionAudit(
        by_attribute,
        overall,
        explained,
        pairs,
        comparisons,
        warnings,
        options.level,
        source.called(str(roles.label)),
        options.about,
        along,
        reading=reading,
        reference={names[key]: group_name(group) for key, group in named.items()},
        control=control,
        against=against,
    )


def _told(moments: Moments, at: int, name: str) -> str | None:
    """Say what limits the figures of a group; None where nothing does."""
    rows = int(moments.rows[at])
    if moments.constant(2, at):
        return (
            f"all {rows:,} errors of group {name} are {digits(float(moments.mean[2, at]))}. Constant errors have no "
            "interval, so the group is not compared."
        )
    if rows < ENOUGH_FOR_TAILS and moments.skewness(3, at) > LONG_TAIL:
        return (
            f"the {rows:,} errors of group {name} have a long tail. A 95% interval of their mean absolute error "
            f"covers as little as 83%; collect {ENOUGH_FOR_TAILS} rows or more."
        )
    return None


def _no_better(ends: Sequence[float], explained: float, overall: RegressionFigures) -> list[str]:
    """Say, before any gap, that a model does not use what it is given."""
    if ends[0] == ends[1]:
        return [f"The prediction is {digits(ends[0])} for every row: only the labels differ between groups."]
    if math.isnan(explained):
        return [f"The label is {digits(overall.mean_label)} for every row: prediction quality cannot be measured."]
    if explained <= 0:
        return [
            f"The model does not beat predicting the mean label (R squared {digits(explained)}); its gaps say little."
        ]
    return []


def _figures(moments: Moments, at: int, level: float, included: bool) -> RegressionFigures:
    rows = int(moments.rows[at])
    label, prediction, error, size = (
        moments.estimate(quantity, at, level, skewed=quantity == 3) for quantity in range(4)
    )
    squared = float(moments.squares[2, at] / max(1, rows) + moments.mean[2, at] ** 2)
    return RegressionFigures(rows, label.value, prediction, error, size, math.sqrt(squared), included)


def _pairs(
    attribute: str, moments: Moments, groups: Mapping[Key, int], pairs: tuple[IntArray, IntArray], level: float
) -> list[RegressionPair]:
    """Return the clearest and largest differences of two groups in each quantity, the larger mean first."""
    names, found = list(groups), []
    one, other = pairs
    for quantity in QUANTITIES:
        figures = [
            moments.estimate(PLACES[quantity], at, level, skewed=quantity == "mean_absolute_error")
            for at in groups.values()
        ]
        value, low, high = np.array([(figure.value, figure.low, figure.high) for figure in figures]).reshape(-1, 3).T
        known = ~(np.isnan(low[one]) | np.isnan(low[other]))
        smaller = value[one] < value[other]
        first, second = np.where(smaller, other, one), np.where(smaller, one, other)
        apart = value[first] - value[second]
        ends = mover(value[first], (low[first], high[first]), value[second], (low[second], high[second]))
        every = Differences(apart, *ends)
        named = Differences(*(part[known] for part in every)).named(NAMED_PAIRS)
        for at in np.flatnonzero(known)[named]:
            difference = every.at(at, figures[first[at]].n + figures[second[at]].n)
            both = (group_name(names[first[at]]), group_name(names[second[at]]))
            found.append(RegressionPair(attribute, quantity, PairDifference(*both, difference)))
    return found


def _first(pairs: Sequence[RegressionPair]) -> list[RegressionPair]:
    """Return the first pair in mean error and in its size: a decided one before the other."""
    own = [[pair for pair in pairs if pair.quantity == quantity] for quantity in ("mean_error", "mean_absolute_error")]
    return sorted((one[0] for one in own if one), key=lambda one: not one.pair.decided)


def regression_sentences(found: RegressionAudit) -> list[str]:
    """Say which groups' errors differ most, in mean and in size, or that these rows cannot tell.

    Levels and another model come first, where there are some.
    """
    beside = [part.sentences() for part in (found.control, found.against) if part is not None]
    said = [one[0] for one in beside]
    said += [_pair_sentence(found, one) for one in _first(found.pairs)] or [_nothing_compared(found)]
    said += [line for one in beside for line in one[1:]]
    overall = found.overall
    explained = (
        "" if not found.explained >= 0 else f" Predictions explain {number(100 * found.explained)}% of the variance."
    )
    said.append(
        f"Over all {overall.n:,} rows the mean absolute error is {digits(overall.mean_absolute_error.value)}, the root "
        f"mean squared error {digits(overall.root_mean_squared_error)}, and predictions are "
        f"{_too_high(overall.mean_error.value)} on average.{explained}"
    )
    return said


def _nothing_compared(found: RegressionAudit) -> str:
    """Say why no two groups' errors are compared."""
    named = by_names(found.by_attribute)
    large = {name: [one for one in groups.values() if one.included] for name, groups in named.items()}
    if max(map(len, large.values()), default=0) < 2:
        return "Fewer than two groups are large enough; there is nothing to compare."
    small = [
        group for name, group in found.reference.items()
        if not any(one.included for at, one in named[name].items() if group_name(at) == group)
    ]  # fmt: skip
    if small:
        return f"The reference group {in_quotes(small[0])} is too small; no errors are compared."
    vary = [sum(not math.isnan(one.mean_error.low) for one in groups) for groups in large.values()]
    if max(vary) < 2:
        return "Fewer than two groups have errors that vary; constant errors have no interval and are not compared."
    return "No two groups’ errors differ measurably."


def _pair_sentence(found: RegressionAudit, one: RegressionPair) -> str:
    pair, where = one.pair, f"By {printable(one.attribute)}"
    ends = [_value_of(found, one, group) for group in (pair.first, pair.second)]
    size, first, second = digits(pair.difference.value), printable(pair.first), printable(pair.second)
    allowed = f", adjusted for {found.comparisons:,} comparisons" if found.comparisons > len(QUANTITIES) else ""
    interval = f"interval {digits(pair.difference.low)} to {digits(pair.difference.high)}{allowed}"
    if not pair.decided:
        what = "the mean error" if one.quantity == "mean_error" else "the mean absolute error"
        return f"{where}, {what} does not differ measurably between {first} and {second}: {size}, {interval}."
    if one.quantity == "mean_error":
        return (
            f"{where}, predictions are {_too_high(ends[0])} for {first} and {_too_high(ends[1])} for {second} on "
            f"average: a difference of {size}, {interval}."
        )
    return (
        f"{where}, predictions are off by {digits(ends[0])} for {first} and by {digits(ends[1])} for {second} on "
        f"average: a difference of {size}, {interval}."
    )


def _value_of(found: RegressionAudit, one: RegressionPair, group: str) -> float:
    figures = by_names(by_names(found.by_attribute)[one.attribute])
    return float(getattr(figures[group], one.quantity).value)


def _too_high(error: float) -> str:
    shown = digits(abs(error))
    return "right" if not error else f"{shown} too {'high' if error > 0 else 'low'}"


def _along_sentence(name: str, found: ContinuousGap) -> str:
    return continuous_sentence(name, found, subject="the mean error", scale=1.0, unit="")
