"""More of the figures that the field uses, for two classes: ratios and the four-fifths rule, precision, balanced error.

Ratios compare each group's selection rate and true positive rate with a reference group. The four-fifths rule of the
Uniform Guidelines on Employee Selection Procedures (US EEOC 1978, section 4D) asks whether a group gets the favourable
outcome less than 0.8 times as often as the group that gets it most. It is a rule of thumb, not a finding of
discrimination. Only the user knows which outcome is favourable: where the positive class is a denial, the ratio of
selection rates would clear the group that is harmed. So there is no verdict until it is named.

All intervals come from counts. A single proportion has the outer ends of Wilson's and Jeffreys' intervals
(:func:`~levelhead.metrics.between.proportion_ends`): with 10 to 50 rows Wilson's alone holds some rates in 84% to 91%,
and 95% on average over rates. A ratio of two combines those ends by MOVER (Donner and Zou, Statistical Methods in
Medical Research 2012, equation 9), at a level that holds for all ratios together (Bonferroni), and leaves out 1 only
where Fisher's exact test agrees; a balanced error combines the intervals of its two rates. Predictive parity is equal
opportunity with label and prediction changed over, interval and all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from levelhead.auditing.options import AuditOptions
from levelhead.auditing.part import Found, Frame, Part
from levelhead.metrics import Counts, estimate
from levelhead.metrics.amplification import amplification_sentence, audited_amplification
from levelhead.metrics.between import lowest, mean_of, proportion_ends, ratio_of, unlike
from levelhead.metrics.clustered import FEWEST, ClusteredCounts
from levelhead.metrics.names import Key, group_name
from levelhead.metrics.weighted import LEAST, WeightedCounts, WeightedRate, weighted_estimates, weighted_proportion
from levelhead.report.headline import Lead, plainly
from levelhead.report.record import Finding
from levelhead.report.sentences import named_group
from levelhead.report.text import counted, number, short
from levelhead.report.wide import RATIO_OF_RATES, Fraction
from levelhead.types import ConfigError, Estimate, listed, printable, quoted

FOUR_FIFTHS = 0.8
ASK_FAVOURABLE = (
    "For the four-fifths rule, name the favourable outcome: levelhead audit --favourable CLASS (favourable= in Python)."
)


@dataclass(frozen=True)
class GroupRates(Finding):
    """One group: its ``base_rate``, what of its selected rows is positive (``precision``), its errors, and its ratios.

    ``base_rate`` is the share of rows whose label is the positive class. Ratios are plain numbers, not percent, to the
    reference; None for the reference itself. ``false_negative_rate`` is one less the true positive rate;
    ``balanced_error`` is the mean of false negative and false positive rate.
    """

    base_rate: Estimate
    precision: Estimate
    false_negative_rate: Estimate
    balanced_error: Estimate
    selection_ratio: Estimate | None
    true_positive_ratio: Estimate | None


@dataclass(frozen=True)
class OutcomeRatios(Finding):
    """How often each group is predicted one outcome, as a ratio to the reference group; plain numbers, not percent.

    ``outcome`` is a class as the user writes it. ``ratios`` has all other groups, also those whose ratio is undefined.
    """

    by_name: ClassVar = ("reference",)

    outcome: str
    reference: Key | None
    ratios: dict[Key, Estimate]

    @property
    def lowest_first(self) -> list[tuple[Key, Estimate]]:
        """The groups whose ratio is defined: those measured below 1 before the others."""
        return sorted((one for one in self.ratios.items() if one[1].defined), key=lambda one: lowest(one[1]))


@dataclass(frozen=True)
class MoreRates(Finding):
    """The figures of one sensitive column; ``reference`` is the group that ratios are to, given by the user or not.

    ``predictive_parity`` is the largest difference of precision between two groups. ``outcome`` has the ratios that
    the four-fifths rule is about: those of the favourable class, where one is named.
    """

    by_name: ClassVar = ("reference",)

    groups: dict[Key, GroupRates]
    predictive_parity: Estimate
    reference: Key | None
    reference_is_given: bool
    outcome: OutcomeRatios | None = None


class Share(NamedTuple):
    """A ``rate`` (groups,), ``what`` its rows are called, and whether they are independent and weigh 1, ``plain``."""

    rate: WeightedRate
    what: str = "rows"
    plain: bool = True

    def of(self, i: int, min_count: int, level: float) -> Estimate:
        """Return the share of a group; undefined, with the reason, of fewer than ``min_count`` rows."""
        n, clusters = int(self.rate.rows[i]), self.rate.clusters
        if n < max(1, min_count):
            return Estimate.undefined(f"{n:,} {self.what}, fewer than {min_count}", n)
        if clusters is not None and clusters[i] < FEWEST:
            few = counted(int(clusters[i]), "cluster")
            return Estimate.undefined(f"{self.what} from {few}, fewer than {FEWEST}", n)
        if not self.plain:
            return weighted_proportion(self.rate, i, level)
        low, high = proportion_ends(self.rate.hits[[i]], self.rate.worth[[i]], 1 - level)
        return Estimate(float(self.rate.value[i]), float(low[0]), float(high[0]), n)

    def ratios(self, place: int | None, error: float, min_count: int, level: float) -> list[Estimate | None]:
        """Return the ratio of each group to that at ``place``, for which there is none."""
        every = range(len(self.rate.rows))
        if place is None:
            return [None for _ in every]
        worth = np.maximum(self.rate.worth_at(1 - error), LEAST)
        hits = np.nan_to_num(self.rate.value) * worth
        told = unlike(hits, worth, np.arange(len(worth)), np.full(len(worth), place), error)
        sides = [self.of(i, min_count, level) for i in every]
        sides = [
            replace(side, low=float(low), high=float(high)) if side.defined else side
            for side, low, high in zip(sides, *proportion_ends(hits, worth, error), strict=True)
        ]
        return [None if i == place else ratio_of(sides[i], sides[place], alike=not told[i]) for i in every]


def more_rates(
    counts: Counts,
    keys: Sequence[Key],
    positive: int,
    *,
    options: AuditOptions | None = None,
    reference: str | None = None,
    favourable: int | None = None,
    weighted: WeightedCounts | None = None,
) -> MoreRates:
    """Compute the figures of one column.

    Args:
        counts: the count table, (groups, classes, classes); every class but ``positive`` counts as negative.
        keys: the groups, as the table has them.
        positive: index of the positive class.
        options: ``min_count`` (rates over fewer rows are undefined, with the reason), ``level``, and ``replicates`` and
            ``seed`` of the bootstrap for predictive parity; None: the defaults.
        reference: name of the group that ratios are to. None: the one with the highest selection rate.
        favourable: index of the class that is the favourable outcome; None: not known.
        weighted: the same rows with their weights or the clusters that they come in; None: rows are independent.

    Raises:
        ConfigError: there is no such group.
    """
    options = options or AuditOptions()
    level, min_count, names = options.level, options.min_count, [group_name(key) for key in keys]
    if reference is not None and reference not in names:
        raise ConfigError(f"There is no group {quoted(reference)} to refer to. Groups: {listed(names)}.")
    rows, every = counts.group_sizes, weighted or WeightedCounts.equal(counts)
    turned = every.swapped(positive)  # two classes: the rest and the positive one
    both = turned.swapped(1)

    def one(name: str, of_class: int, what: str = "rows", by: WeightedCounts = both) -> Share:
        return Share(by.rate(name, of_class).of(0, np.arange(len(keys))), what, weighted is None)

    chosen, precise = one("selection_rate", 1), one("true_positive_rate", 1, "rows that are predicted positive", turned)
    labelled = one("selection_rate", 1, by=turned)
    missing = one("false_positive_rate", 0, "rows with the positive label")
    alarms = one("false_positive_rate", 1, "rows with another label")
    usable = [i for i in range(len(keys)) if rows[i] >= min_count]
    # Whichever group turned out to be highest: the level holds for all pairs then.
    compared = max(1, len(usable) - 1 if reference is not None else math.comb(len(usable), 2))
    asked = (1 - level) / compared, min_count, level

    def referred(of: Share) -> int | None:
        """Return the place of the reference group: that of the highest rate unless the user named one."""
        best = max(usable, key=lambda i: of.rate.value[i], default=None)
        return names.index(reference) if reference is not None else best

    place = referred(chosen)
    ratios = [of.ratios(place, *asked) for of in (chosen, one("true_positive_rate", 1, missing.what))]
    found: dict[Key, GroupRates] = {}
    for i, key in enumerate(keys):
        base, share, missed, alarm = (each.of(i, min_count, level) for each in (labelled, precise, missing, alarms))
        balanced = mean_of(missed, alarm, together=isinstance(weighted, ClusteredCounts))
        found[key] = GroupRates(base, share, missed, balanced, ratios[0][i], ratios[1][i])
    outcome = None
    if favourable is not None:
        of = one("selection_rate", favourable, by=every)
        to = referred(of)
        each = {key: ratio for key, ratio in zip(keys, of.ratios(to, *asked), strict=True) if ratio is not None}
        outcome = OutcomeRatios(str(counts.classes[favourable]), None if to is None else keys[to], each)
    own_options: dict[str, Any] = {"positive": 1, "level": level, "min_count": min_count}
    used = [names[i] for i in usable]
    # Precision is the true positive rate with label and prediction changed over.
    if weighted is not None:
        gap = weighted_estimates(turned.keep(used), **own_options)["equal_opportunity"]
    else:
        of_plain = {"replicates": options.replicates, "seed": options.seed}
        gap = estimate(turned.keep(used).counts, "equal_opportunity", **of_plain, **own_options)
    if not gap.defined:
        few = f"fewer than two groups have {min_count} rows that are predicted positive"
        gap = Estimate.undefined(few, gap.n)
    return MoreRates(found, gap, None if place is None else keys[place], reference is not None, outcome)


def rate_leads(name: str, part: MoreRates) -> list[Lead]:
    """Say how groups stand to four fifths of the favourable outcome, or that nobody said which that is.

    The group that comes first gets a sentence, and so does each other one whose ratio is measured below four fifths.
    """
    if part.outcome is None:
        return plainly([ASK_FAVOURABLE])
    outcome, leads = part.outcome, list[Lead]()
    start = f"By {printable(name)}, the favourable outcome “{short(outcome.outcome, 40)}” goes to "
    for key, one in outcome.lowest_first:
        if leads and one.value >= FOUR_FIFTHS:
            continue
        undecided, verdict = one.low <= 1 <= one.high, four_fifths(one)
        if undecided and "inconclusive" not in verdict:
            verdict = f"inconclusive, {verdict}"
        assert outcome.reference is not None  # or there were no ratios
        groups = group_name(key), group_name(outcome.reference)
        first, second = (named_group(name, group) for group in groups)
        leads.append(
            Lead(
                (start, first, f" {one.value:.2f} times as often as to ", second),
                f"interval {ratio_span(one)}, {verdict}.",
                name, "selection_rate", groups=groups, difference=one, neutral=1.0,
            )
        )  # fmt: skip
    return leads


def four_fifths(ratio: Estimate) -> str:
    """Say how a ratio stands to four fifths, as far as its interval tells."""
    if ratio.high < FOUR_FIFTHS:
        return "below four fifths"
    if ratio.low >= FOUR_FIFTHS:
        return "not below four fifths"
    return "inconclusive against four fifths"


def ratio_span(ratio: Estimate) -> str:
    """Return the interval of a ratio, whose upper end may be infinite."""
    return f"{number(ratio.low, 2)} to {number(ratio.high, 2) if math.isfinite(ratio.high) else 'any size'}"


class RateFindings(Found):
    """The figures of each sensitive column."""

    @property
    def leads(self) -> list[Lead]:
        """One ratio of each column, the lowest first, where the favourable outcome is known."""
        leads = [rate_leads(self.names[key], one)[:1] for key, one in self.items() if one.outcome is not None]
        return sorted(itertools.chain(*leads), key=lambda one: lowest(one.difference))

    @property
    def references(self) -> dict[Key, Key]:
        """The group that ratios of the favourable outcome are to, by column, where one was named."""
        known = {key: one.outcome.reference for key, one in self.items() if one.outcome is not None}
        return {key: to for key, to in known.items() if to is not None}

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield each figure; ``selection_ratio`` is that of the favourable outcome, and without one no figure."""
        for key, found in self.items():
            yield self.names[key], None, Fraction("predictive_parity"), found.predictive_parity
            for group, own in found.groups.items():
                names = [one.name if one.name.endswith("_ratio") else Fraction(one.name) for one in fields(own)]
                figures = {one: getattr(own, one) for one in names}
                of_positive = figures.pop("selection_ratio")
                if found.outcome is None:
                    figures[RATIO_OF_RATES] = of_positive
                else:
                    figures["selection_ratio"] = found.outcome.ratios.get(group)
                yield from ((self.names[key], group, name, one) for name, one in figures.items() if one is not None)


class Rates(Part):
    """Ratios, precision and balanced error, where one class is positive."""

    name = "rates"

    def find(self, frame: Frame) -> RateFindings:
        """Return the figures by sensitive column, to its reference where one was named."""
        found = {}
        for key in frame.counts if frame.of_class is not None else ():
            groups = frame.kept(key)
            found[key] = more_rates(
                frame.counts[key].keep(list(map(group_name, groups))),
                groups,
                frame.compared[0],
                options=frame.options,
                reference=frame.references.get(frame.names[key]),
                favourable=frame.favourable,
                weighted=frame.uneven(key),
            )
        return RateFindings(found, frame.names, lambda *one: [lead.sentence for lead in rate_leads(*one)])


class Amplifications(Found):
    """Bias amplification of each sensitive column."""

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield the mean over groups and classes."""
        yield from ((self.names[key], None, Fraction("bias_amplification"), one.value) for key, one in self.items())


class Amplified(Part):
    """Whether predictions go further in the direction of the labels; of rows without weights."""

    name = "amplification"

    def find(self, frame: Frame) -> Found:
        """Return the figures by sensitive column."""
        found = {}
        for key in frame.counts if self.asked.roles.weight is None else ():
            kept, clusters = tuple(map(group_name, frame.kept(key))), frame.clusters(key)
            found[key] = audited_amplification(
                frame.counts[key].keep(kept).table,
                level=frame.options.level,
                members=None if clusters is None else clusters.members,
            )
        return Amplifications(found, frame.names, amplification_sentence)
