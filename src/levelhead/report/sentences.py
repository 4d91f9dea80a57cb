"""The first line of a page: what was found, in one sentence with its uncertainty.

A difference is decided if its interval leaves out 0 and its p-value, adjusted over the methods, is below the error
probability. What is not decided is said to be so: "no difference" is nothing that an interval can show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from levelhead.metrics.names import METRICS
from levelhead.report.text import counted, joined, number, percent, percent_interval, short
from levelhead.types import Estimate

NAMED_IN_HEADLINE = 3


@dataclass(frozen=True)
class Difference:
    """A method against the baseline: the figure's difference, its ``p`` adjusted over methods, and the ``level``.

    ``marks`` are those of the method's row. ``p_within`` is that of the difference being ``margin`` or more.
    """

    method: str
    estimate: Estimate
    p: float | None = None
    level: float = 0.95
    marks: Sequence[str] = ()
    p_within: float | None = None
    margin: float = 0.02

    @property
    def label(self) -> str:
        """The method with its marks."""
        return " ".join([self.method, *self.marks])

    @property
    def decided(self) -> bool:
        """Whether these data tell the two apart. With one seed they do not: the variance over seeds is unknown."""
        figure = self.estimate
        return (
            figure.defined
            and figure.reason is None
            and not figure.low <= 0 <= figure.high
            and (self.p is None or self.p < 1 - self.level)
        )

    @property
    def within(self) -> bool:
        """Whether these data show that the two differ by less than the margin."""
        figure = self.estimate
        known = figure.defined and figure.reason is None
        return known and self.p_within is not None and self.p_within < 1 - self.level


def possessive(name: str) -> str:
    """Return ``DAM's``; names of several words get quotation marks."""
    plain = short(name)
    return f"{plain}’s" if re.fullmatch(r"[\w+\-]{1,24}", plain) else f"“{plain}”’s"


def difference_sentence(difference: Difference, baseline: str, metric: str = "equalized_odds") -> str:
    """Say how a method's figure differs from the baseline's, and whether that is decided."""
    figure = difference.estimate
    what = f"{possessive(difference.label)} {METRICS[metric].phrase}"
    if not figure.defined:
        return f"{what} cannot be compared with {possessive(baseline)}: it is undefined, because {_ends(figure.reason)}"
    span, margin = percent_interval(figure, signed=True), 100 * difference.margin
    if figure.value == figure.low == figure.high == 0:
        return f"{what} is the same as {possessive(baseline)} in these data: nothing that it depends on differs."
    if figure.reason is not None:
        verdict = f"undecided, {_ends(figure.reason)}"
    elif difference.decided:
        verdict = "the difference is distinguishable from zero."
        if difference.within:
            verdict = f"the difference is distinguishable from zero, and less than {number(margin)} points."
    elif difference.within:
        verdict = f"the two are equal within {number(margin)} points."
    else:
        verdict = "the difference is not distinguishable from zero."
    if abs(figure.value) < 0.0005:
        return f"{what} is within 0.05 points of {possessive(baseline)}, interval {span}: {verdict}"
    points = number(100 * abs(figure.value))
    size = _size(metric, figure.value)
    return f"{what} is {points} points {size} than {possessive(baseline)}, interval {span}: {verdict}"


def comparison_sentence(differences: list[Difference], baseline: str, metric: str = "equalized_odds") -> str:
    """Say what a whole comparison found about one metric."""
    what = METRICS[metric].phrase
    if not differences:
        return f"There is nothing to compare {short(baseline)} with: one set of runs alone shows no difference."
    if len(differences) == 1:
        return difference_sentence(differences[0], baseline, metric)
    defined = [one for one in differences if one.estimate.defined]
    if not defined:
        return f"The {what} is undefined for every method, because {_ends(differences[0].estimate.reason)}"
    decided = sorted((one for one in defined if one.decided), key=lambda one: one.estimate.value)
    count = len(differences)
    unknown = "" if len(defined) == count else f" For {count - len(defined)} of them it is undefined."
    if not decided:
        equal = [one for one in defined if one.within]
        if equal:
            which = "All" if len(equal) == count else f"{len(equal)} of them"
            have = "has" if len(equal) == 1 else "have"
            points = number(100 * equal[0].margin)
            unknown = f" {which} {have} one within {points} points of {possessive(baseline)}.{unknown}"
        return (
            f"None of the {count} alternatives to {short(baseline)} has a {what} that these data can distinguish from "
            f"{possessive(baseline)}: {_range(defined)}.{unknown}"
        )
    named = [
        f"{short(one.label)} ({number(100 * abs(one.estimate.value))} points {_size(metric, one.estimate.value)}, "
        f"interval {percent_interval(one.estimate, signed=True)})"
        for one in decided[:NAMED_IN_HEADLINE]
    ]
    if len(decided) > NAMED_IN_HEADLINE:
        named.append(f"{len(decided) - NAMED_IN_HEADLINE} more")
    verb = "has" if len(decided) == 1 else "have"
    return (
        f"{len(decided)} of the {count} alternatives to {short(baseline)} {verb} a {what} that these data distinguish "
        f"from {possessive(baseline)}: {joined(named)}.{unknown}"
    )


def _range(differences: Sequence[Difference]) -> str:
    """Say how far defined differences and their intervals reach, in points."""
    figures = [one.estimate for one in differences]
    if len(figures) == 1:
        span = percent_interval(figures[0], signed=True)
        return f"the difference is {percent(figures[0], signed=True)} points, interval {span}"
    ends = (
        min(figure.value for figure in figures),
        max(figure.value for figure in figures),
        min(figure.low for figure in figures),
        max(figure.high for figure in figures),
    )
    low, high, first, last = (number(100 * value, signed=True) for value in ends)
    return f"differences run from {low} to {high} points, their intervals from {first} to {last}"


def gap_sentence(figure: Estimate, attribute: str, metric: str = "equalized_odds") -> str:
    """Say how large one set of predictions' gap between groups is, and whether these rows show one at all."""
    what = f"The {METRICS[metric].phrase} between groups of “{short(attribute)}”"
    if not figure.defined:
        return f"{what} is undefined: {_ends(figure.reason)}"
    span = percent_interval(figure)
    shows = "these rows show a gap." if figure.low > 0 else "these rows cannot tell whether there is a gap."
    return f"{what} is {percent(figure)} points, interval {span}: {shows}"


def one_run_sentence(figure: Estimate, attribute: str, metric: str = "equalized_odds") -> str:
    """Say the gap of one run: what another training seed would give is not measured."""
    sentence = gap_sentence(figure, attribute, metric)
    return f"{sentence} One run: the variance over training seeds is not in it." if figure.defined else sentence


def several_sentence(
    findings: Sequence[tuple[str, list[Difference]]], baseline: str, metric: str = "equalized_odds"
) -> str:
    """Say what several comparisons, each a title and its differences, found together."""
    decided = [short(title) for title, differences in findings if any(one.decided for one in differences)]
    what = METRICS[metric].phrase
    count = counted(len(findings), "comparison")
    if decided:
        return (
            f"In {len(decided)} of {count} these data tell a method’s {what} apart from {possessive(baseline)}: "
            f"{joined(decided)}."
        )
    defined = [one for _, differences in findings for one in differences if one.estimate.defined]
    if not defined:
        return f"The {what} is undefined in all of {count}."
    apart = f"tell a method’s {what} apart from {possessive(baseline)}"
    return f"In none of {count} can these data {apart}: {_range(defined)}."


def _size(metric: str, value: float) -> str:
    small, large = ("lower", "higher") if METRICS[metric].larger_is_better else ("smaller", "larger")
    return small if value < 0 else large


def _ends(reason: str | None) -> str:
    """Return a reason as the end of a sentence."""
    return f"{short(reason or 'no reason was recorded', 300).rstrip('.')}."
