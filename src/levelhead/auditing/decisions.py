"""Audit decisions, without outcomes: who is selected, how often, and how that compares with a reference group.

Many audits have no label: an application was approved or declined, a person invited or not. What can be compared then
is the selection rate. Differences and impact ratios are to one reference group: the one that the user names, or the
most selected one. Their intervals hold together over all groups and columns (Bonferroni): over every pair of a column
where the data choose the reference, because the most selected group is picked after the fact. A difference has
Newcombe's interval and a ratio Donner and Zou's (:mod:`levelhead.metrics.between`). Both leave "no difference" out only
where Fisher's exact test agrees, whose p-value is adjusted for the same comparisons.

The four-fifths rule of the Uniform Guidelines on Employee Selection Procedures (US EEOC 1978, section 4D) asks whether
a group is selected less than 0.8 times as often as the most selected one. It is a rule of thumb, not a finding of
discrimination.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from levelhead.auditing.finding import detectable_figure
from levelhead.auditing.options import TOLD, AuditOptions, Roles, left_out
from levelhead.auditing.over_time import OverTime, Time
from levelhead.auditing.parts import asked
from levelhead.auditing.rates import FOUR_FIFTHS, Share, four_fifths, ratio_span
from levelhead.auditing.run import Counted
from levelhead.metrics import Counts, estimate, proportion
from levelhead.metrics.between import check_level, fisher_p, lowest
from levelhead.metrics.names import Key, by_names, group_name
from levelhead.metrics.power import detectable_gap
from levelhead.metrics.weighted import WeightedCounts
from levelhead.report.headline import Lead
from levelhead.report.record import Finding
from levelhead.report.result import Report
from levelhead.report.sentences import gap_words, named_group, nothing_compared
from levelhead.report.text import counted, number, percent, short
from levelhead.report.wide import Fraction, Pair
from levelhead.tables.columns import positive_index
from levelhead.tables.source import Source
from levelhead.types import ConfigError, Estimate, in_quotes, listed, printable

MOST_COMPARISONS = 1_000_000
"""Largest plan; more groups would not change the figure visibly."""


@dataclass(frozen=True)
class GroupDecisions(Finding):
    """One group: ``selected`` of ``n`` rows have the favourable decision.

    ``difference`` and ``selection_ratio`` are to the reference group, and ``p_value`` is that of Fisher's exact test,
    adjusted for all comparisons; None for the reference itself. ``included``: whether it is compared.
    """

    n: int
    selected: int
    selection_rate: Estimate
    difference: Estimate | None = None
    selection_ratio: Estimate | None = None
    p_value: float | None = None
    included: bool = True


@dataclass(frozen=True)
class ColumnDecisions(Finding):
    """One sensitive column. ``demographic_parity`` is the largest difference of two groups' selection rates.

    ``detectable`` is the difference between the ``smallest`` group and the reference that this many rows show with a
    probability of 80%, as a fraction; NaN where none, of any size.
    """

    by_name: ClassVar = ("reference", "smallest")

    groups: dict[Key, GroupDecisions]
    reference: Key | None
    reference_is_given: bool
    demographic_parity: Estimate
    smallest: Key | None = None
    detectable: float = math.nan


@dataclass(frozen=True)
class DecisionAudit(Report):
    """What an audit of decisions found, by sensitive column, and by their crossing under the tuple of their names.

    ``overall`` is the selection rate of all rows, ``favourable`` the decision it is about, and ``decision`` the column.
    Intervals and p-values allow for ``comparisons``: all groups and columns together. ``over_time`` says how
    differences change over periods, where rows have some.

    Examples:
        >>> import levelhead as lh
        >>> loans, sexes = ["yes", "no", "yes", "yes"] * 40, ["f", "f", "m", "m"] * 40
        >>> result = lh.audit(None, loans, sensitive_features={"sex": sexes}, favourable="yes")
        >>> type(result).__name__, result.overall.value
        ('DecisionAudit', 0.75)
    """

    kind: ClassVar[str] = "decisions"
    optional: ClassVar[Collection[str]] = ("reading", "options", "over_time")

    by_attribute: dict[Key, ColumnDecisions]
    overall: Estimate
    favourable: str
    decision: str
    warnings: list[str]
    comparisons: int
    level: float = 0.95
    reading: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    over_time: OverTime | None = None

    @property
    def leads(self) -> list[Lead]:
        """How groups differ from their references; before it what changes over time, and after it why nothing does."""
        time = [] if self.over_time is None else asked({Time.name: self.over_time})
        answered, others = ([one for one in time if bool(one.quantity) == whether] for whether in (True, False))
        return [*answered, *self._apart(), *others]

    def _apart(self) -> list[Lead]:
        """Return one sentence for each group that differs from its reference or is below four fifths.

        Groups that differ measurably come first, then the lowest ratio. Where none of several does, a last sentence
        says so.
        """
        every = sorted(self._beside(), key=lambda one: (not one[0].decided, *lowest(one[1])))
        shown = [lead for lead, ratio in every if lead.decided or ratio.value < FOUR_FIFTHS]
        if every:
            none = Lead(("No group’s selection rate differs measurably from its reference.",))
            return shown or [every[0][0], none][: len(every)]
        small = [
            Lead(
                (
                    f"By {printable(name)}, nothing was compared: the reference group {in_quotes(group_name(to))} has "
                    f"{counted(column.groups[to].n, 'row')}, too few to be compared.",
                )
            )
            for name, column in by_names(self.by_attribute).items()
            if (to := column.reference) is not None and column.reference_is_given and not column.groups[to].included
        ]
        return small or [nothing_compared(one.groups for one in self.by_attribute.values())]

    def _beside(self) -> Iterator[tuple[Lead, Estimate]]:
        """Yield a sentence on each group's difference to its reference and its ratio, with the ratio."""
        for name, column in by_names(self.by_attribute).items():
            by = f"By {printable(name)}, " if len(self.by_attribute) > 1 else ""
            for group, found in column.groups.items():
                apart, ratio, to = found.difference, found.selection_ratio, column.reference
                if apart is None or ratio is None or to is None:
                    continue
                rates = {group: found.selection_rate, to: column.groups[to].selection_rate}
                names = [named_group(name, group_name(key)) for key in rates]
                first, second = (f"{percent(one)}% of " for one in rates.values())
                start = f"{by}“{short(self.favourable, 40)}” is the decision for {first}"
                lead = Lead(
                    (start, names[0], f" and {second}", names[1]),
                    f"{gap_words(apart)}. {_verdict(ratio)}",
                    name,
                    "selection_rate",
                    groups=tuple(map(group_name, rates)),
                    values=tuple(one.value for one in rates.values()),
                    difference=apart,
                    comparisons=self.comparisons,
                )
                yield lead, ratio

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every figure with its attribute, its group (None: all of them) and its name."""
        for name, part in by_names(self.by_attribute).items():
            yield name, None, Fraction("demographic_parity"), part.demographic_parity
            if part.smallest is not None and part.reference is not None:
                pair = Pair(group_name(part.smallest), group_name(part.reference))
                yield name, pair, Fraction("selection_rate_detectable"), detectable_figure(part.detectable)
            for group, found in part.groups.items():
                figures = {Fraction("selection_rate"): found.selection_rate, "selection_ratio": found.selection_ratio}
                figures[Fraction("selection_rate_difference")] = found.difference
                yield from ((name, group, figure, one) for figure, one in figures.items() if one is not None)
        yield from () if self.over_time is None else self.over_time.figures()

    def compares(self, attribute: str, group: Key, figure: str) -> bool:
        """Whether a group has enough rows."""
        return by_names(self.by_attribute)[attribute].groups[group].included

    def gap_of(self, attribute: str, figure: str) -> Estimate | None:
        """Return demographic parity, for selection rates."""
        part = by_names(self.by_attribute)[attribute]
        return part.demographic_parity if figure == "selection_rate" else None


def decisions_of(source: Source, roles: Roles, options: AuditOptions) -> DecisionAudit:
    """Count a table of decisions, the predictions, and compare its groups."""
    check_level(options.level)
    counts = Counted(source, roles, replace(options, favourable=None))
    frame, classes = counts.frame, list(counts.frame.classes)
    if options.favourable is None:
        raise ConfigError(
            f"Without --label, this audits decisions. Which one is favourable? Found: {listed(classes)}. Type "
            "one: --favourable CLASS (favourable= in Python)."
        )
    chosen = positive_index(classes, options.favourable, "favourable")
    assert chosen is not None
    members, named, names = frame.groups, frame.reference, frame.names
    usable = {key: options.compared(members[key], one.group_sizes) for key, one in frame.counts.items()}
    comparisons = max(1, sum(_comparisons(one, members[key], named.get(key)) for key, one in usable.items()))
    found = {}
    for key, one in frame.counts.items():
        found[key] = _column(one, members[key], usable[key], chosen, named.get(key), comparisons, options)
        frame.warnings.extend(left_out(names[key], members[key], one.group_sizes, options, found[key].reference))
    over_time = None
    if Time.name in counts.ours:
        # The reference of the whole table says nothing of a change.
        to = {key: one.reference for key, one in found.items() if one.reference is not None}
        over_time = counts.ours[Time.name].find(replace(frame, positive=chosen, ratios_to=to))
    pooled = next(iter(frame.counts.values())).table.sum((0, 1))
    overall = proportion(int(pooled[chosen]), int(pooled.sum()), level=options.level)
    used = {name: getattr(options, name) for name in TOLD}
    return DecisionAudit(
        found, overall, str(classes[chosen]), source.called(str(roles.prediction)), frame.warnings, comparisons,
        options.level, tuple(counts.reading), used, over_time,
    )  # fmt: skip


def _comparisons(usable: Sequence[int], groups: Sequence[Key], named: Key | None) -> int:
    """Return how many pairs of groups a column compares: all, or those with the reference that was named."""
    if named is None:
        return math.comb(len(usable), 2)
    return len(usable) - 1 if groups.index(named) in usable else 0


def _column(
    counts: Counts,
    groups: Sequence[Key],
    usable: Sequence[int],
    chosen: int,
    named: Key | None,
    comparisons: int,
    options: AuditOptions,
) -> ColumnDecisions:
    """Compare the groups of one column with its reference."""
    share = Share(WeightedCounts.equal(counts).rate("selection_rate", chosen).of(0, np.arange(len(groups))))
    rows, rate = counts.group_sizes, share.rate.value
    to = max(usable, key=lambda at: rate[at], default=None) if named is None else groups.index(named)
    others = [at for at in usable if at != to] if to in usable else []
    compared = {} if to is None else _compared(share, others, to, comparisons, options.level)
    figures = {}
    for at, group in enumerate(groups):
        hits = round(rate[at] * rows[at])
        own = proportion(hits, int(rows[at]), level=options.level)
        difference, ratio, p_value = compared.get(at, (None, None, None))
        figures[group] = GroupDecisions(int(rows[at]), hits, own, difference, ratio, p_value, at in usable)
    # Decisions are both label and prediction here, which selection rates do not see.
    gap = estimate(
        counts.keep([counts.groups[at] for at in usable]), "demographic_parity", positive=chosen, level=options.level,
        replicates=options.replicates, seed=options.seed, min_count=options.min_count,
    )  # fmt: skip
    reference = None if to is None else groups[to]
    if to is None or not others:
        return ColumnDecisions(figures, reference, named is not None, gap)
    few = min(others, key=lambda at: rows[at])
    detectable = detectable_gap(
        float(rate[to]), float(rows[few]), float(rows[to]), level=options.level,
        comparisons=min(comparisons, MOST_COMPARISONS),
    )  # fmt: skip
    return ColumnDecisions(figures, reference, named is not None, gap, groups[few], detectable)


def _compared(
    share: Share, others: Sequence[int], to: int, comparisons: int, level: float
) -> dict[int, tuple[Estimate, Estimate | None, float]]:
    """Return difference, ratio and adjusted p-value of each group to that at ``to``."""
    rate, first, second = share.rate, np.array(others, np.int64), np.full(len(others), to)
    apart = rate.differences(first, second, level=level, comparisons=comparisons)
    p_values = np.minimum(1, comparisons * fisher_p(rate.hits, rate.rows, first, second))
    ratios = share.ratios(to, (1 - level) / comparisons, 1, level)
    return {
        at: (apart.at(place, rate.rows[[at, to]].sum()), ratios[at], float(p_values[place]))
        for place, at in enumerate(others)
    }


def _verdict(ratio: Estimate) -> str:
    if not ratio.defined:
        return f"The impact ratio is undefined: {ratio.reason}."
    return f"The impact ratio is {number(ratio.value, 2)} (interval {ratio_span(ratio)}): {four_fifths(ratio)}."
