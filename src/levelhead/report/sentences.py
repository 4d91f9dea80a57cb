"""The first line of a page: what was found, in one sentence with its uncertainty.

A difference is decided if its interval leaves out 0 and its p-value, adjusted over the methods, is below the error
probability. What is not decided is said to be so: "no difference" is nothing that an interval can show.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from levelhead.metrics.joint import MARGIN
from levelhead.metrics.names import RATE_TITLES
from levelhead.report import marks
from levelhead.report.headline import Lead
from levelhead.report.text import (
    Record,
    counted,
    estimate_from_dict,
    joined,
    number,
    percent,
    percent_ends,
    short,
)
from levelhead.types import Estimate, in_quotes, printable

GAP = "the gap in equalized odds"
"""What comparisons speak of."""
NAMED = 2
"""Methods that a headline names; it counts the others."""
NARROW = 0.05
"""Where no gap beyond this, a fraction, fits the rows, a sentence says "at most" instead of "inconclusive"."""


@dataclass(frozen=True)
class Difference:
    """A method against the baseline: the figure's difference, its ``p`` adjusted over methods, and the ``level``.

    ``marks`` are those of the method's row. ``p_within`` is that of the difference being ``margin`` or more.
    ``learned`` is whether the baseline is above chance: else no difference to it says anything. ``accuracy`` is the
    change of accuracy, where the method is measurably less accurate.
    """

    method: str
    estimate: Estimate
    p: float | None = None
    level: float = 0.95
    marks: Sequence[str] = ()
    p_within: float | None = None
    margin: float = MARGIN
    learned: bool = True
    accuracy: Estimate | None = None

    @property
    def label(self) -> str:
        """The method with its marks."""
        return " ".join([self.method, *self.marks])

    @property
    def at_chance(self) -> bool:
        """Whether the method is not measurably above chance, so that a small gap says nothing."""
        return marks.AT_CHANCE in self.marks

    @property
    def decided(self) -> bool:
        """Whether these data distinguish the two. With one seed they do not: the variance over seeds is unknown."""
        return self.estimate.reason is None and self._shown

    @property
    def on_one_seed(self) -> bool:
        """Whether the test rows distinguish the two, and only the unknown variance over seeds leaves it open."""
        return (self.estimate.reason or "").startswith("one seed") and self._shown

    @property
    def _shown(self) -> bool:
        return self._holds_no_zero and (self.p is None or self.p < 1 - self.level)

    @property
    def _holds_no_zero(self) -> bool:
        return self.learned and self.estimate.defined and self.estimate.excludes_zero

    @property
    def within(self) -> bool:
        """Whether these data show that the two differ by less than the margin."""
        figure = self.estimate
        known = figure.defined and figure.reason is None
        return known and self.p_within is not None and self.p_within < 1 - self.level


def quoted_name(name: str) -> str:
    """Return a method's name as sentences write it: names of several words get quotation marks."""
    [(plain, marks)] = re.findall(r"\A(.*?)((?: [A-Z]+)*)\Z", short(name), re.DOTALL)
    return plain + marks if re.fullmatch(r"[\w+\-]{1,24}", plain) else f"“{plain}”{marks}"


def _changed(value: float) -> str:
    return "increased" if value > 0 else "reduced"


def comparison_sentences(differences: Sequence[Difference], baseline: str) -> list[str]:
    """Say what a whole comparison found about one metric: the headline, then its intervals and the other methods.

    A method at chance is counted and never named beside others: constant and random answers have small gaps.
    """
    what, count = f"{GAP} relative to {quoted_name(baseline)}", len(differences)
    if not differences:
        return [f"There is nothing to compare {short(baseline)} with: a comparison needs a second variant."]
    if not differences[0].learned:
        return [
            f"{quoted_name(baseline)} did not learn: its balanced accuracy on these rows is not above chance.",
            "Raise train.epochs or train.learning_rate; until it learns, differences from it say nothing.",
        ]
    defined, several = [one for one in differences if one.estimate.defined], count > 1
    if not defined:
        every = " for every method" * several
        return [f"The change of {what} is undefined{every}: {_ends(differences[0].estimate.reason)}"]
    able = sorted((one for one in defined if not one.at_chance), key=_without_groups_first)
    counts = _counted_rest(differences) if several else []
    if not able:
        who = f"None of the {count} methods is" if several else f"{quoted_name(defined[0].method)} is not"
        return [f"{who} above chance, so a small gap says nothing."]
    if decided := [one for one in able if one.decided]:
        shown = "; ".join(f"{quoted_name(one.label)} " * several + _measured(one) for one in decided[:NAMED])
        return [_changes(decided, baseline), f"{shown}.", *counts]
    if alone := [one for one in able if one.on_one_seed]:
        first = f"{quoted_name(alone[0].label)} " * several + _measured(alone[0])
        others = f"; {len(alone)} of {count} differ" * several
        deck = f"Over these rows alone: {first}{others}. One seed cannot decide."
        return [_on_one_seed(alone[0], baseline), deck, *counts]
    if several:
        return [f"None of the {count} methods measurably changed {what}.", _closest(able), *counts]
    (one,) = able
    why = "" if one.estimate.reason is None else f" ({_ends(one.estimate.reason)[:-1]})"
    why = f", p = {one.p:.3f}" if one.p is not None and one.estimate.excludes_zero else why
    end = f"equivalent within {number(100 * one.margin)} points" if one.within else f"inconclusive{why}"
    return [f"{quoted_name(one.label)} did not measurably change {what}.", f"{_size(one)}; {end}."]


def _without_groups_first(each: Difference) -> tuple[bool, float]:
    """Order methods: those without a mark, which saw no groups, before the others; each by its change."""
    return bool(each.marks), each.estimate.value


def _changes(decided: Sequence[Difference], baseline: str) -> str:
    """Say which methods changed a figure, and by how much."""
    said: list[str] = []
    for verb in dict.fromkeys(_changed(one.estimate.value) for one in decided):
        those = [one for one in decided if _changed(one.estimate.value) == verb]
        names, more = _some([quoted_name(one.label) for one in those]), len(those) - NAMED
        sizes = [100 * abs(one.estimate.value) for one in those]
        size = f"up to {number(max(sizes))}" if more > 0 else joined([number(one) for one in sizes])
        whose = "it" if said else GAP
        said.append(f"{names} {verb} {whose} by {size} points" + f" relative to {quoted_name(baseline)}" * (not said))
    dear = [one for one in decided if one.accuracy]
    if dear:
        said.append(f"{'it' if len(decided) == 1 else len(dear)} lowered accuracy")
    return f"{'; '.join(said)}."


def _on_one_seed(difference: Difference, baseline: str) -> str:
    """Say what one seed shows: other seeds may not."""
    more = "smaller" if difference.estimate.value < 0 else "larger"
    size = number(100 * abs(difference.estimate.value))
    method, other = quoted_name(difference.label), quoted_name(baseline)
    return f"On one seed, {GAP} is {size} points {more} with {method} than with {other}."


def _measured(difference: Difference) -> str:
    """Return a change with its interval, whether it is within the margin, and what accuracy was measurably lost."""
    lost = "" if (lower := difference.accuracy) is None else f", accuracy {percent(lower, signed=True)} points"
    within = f", less than the margin of {number(100 * difference.margin)} points" * difference.within
    return _size(difference) + within + lost


def _counted_rest(differences: Sequence[Difference]) -> list[str]:
    """Say how many of the methods are equivalent, undecided, at chance or undefined."""
    kinds = Counter(map(_kind, differences))
    if "changed" not in kinds:
        kinds.pop("inconclusive", None)  # the headline says that all are
    said = [f"{count} {'is' if count == 1 else 'are'} {kind}" for kind, count in kinds.items() if kind != "changed"]
    return [f"Of {counted(len(differences), 'method')}, {joined(said)}."] if said else []


def _kind(one: Difference) -> str:
    """Say what these data tell of a method."""
    if one.at_chance or not one.estimate.defined:
        return "at chance" if one.at_chance else "undefined"
    if one.decided or not one.within:
        return "changed" if one.decided else "inconclusive"
    return f"equivalent to the baseline within {number(100 * one.margin)} points"


def _closest(differences: Sequence[Difference]) -> str:
    """Name the method that is closest to a measurable change, with its interval and its p-value after correction."""
    one = min(differences, key=lambda each: (1.0 if each.p is None else each.p, -abs(each.estimate.value)))
    p_value = "" if one.p is None else f", p = {one.p:.3f} after correction"
    return f"Closest: {quoted_name(one.label)} {_size(one)}{p_value}."


def _size(difference: Difference) -> str:
    """Return a change in points, with its interval."""
    span = percent_ends(difference.estimate, signed=True)
    return f"{percent(difference.estimate, signed=True)} points" + (f", interval {span}" if span else "")


def audit_leads(
    result: Record, *, asked: Sequence[Lead] = (), ratios: Sequence[Lead] = (), beside: Sequence[Lead] = ()
) -> list[Lead]:
    """Say what an audit found: what was asked, what must be known before any gap, then the lowest ratio or largest gap.

    Args:
        result: the audit's JSON.
        asked: what answers a question of its own. Nothing but a model with one answer goes before it; what could not be
            answered stands after the largest gap.
        ratios: of the favourable outcome; the first one goes before the largest gap.
        beside: what else options requested, after the largest gap.

    Returns:
        full sentences, of which the first is the headline; the largest gap of each other column follows.
    """
    finding, words = result["finding"], Words(result)
    model, constant = _model_leads(finding), finding["constant"] is not None
    answered = [one for one in asked if one.quantity]
    beside = [*(one for one in asked if not one.quantity), *beside]
    leads = [*model, *answered] if constant else [*answered, *model]
    pair = finding["pair"]
    known = [Lead((one["sentence"],)) for one in (result.get("weights"), result.get("clusters")) if one]
    if constant and (finding["at_most"] or 1) > NARROW:
        return [*leads, *known, *beside]  # "inconclusive" beside it would only confuse
    if pair is None:
        none = nothing_compared([part["groups"] for part in result["by_attribute"].values()])
        return [*leads, *ratios, none, *known, *beside]
    plain = _pair_lead(pair, words, at_most=finding["at_most"], comparisons=finding["comparisons"])
    gap = [*beside, plain] if model else [plain, *beside]  # gaps of a model at chance say little
    others: dict[str, Record] = {}
    for one in result["pairs"]:
        if one["attribute"] != pair["attribute"]:
            others.setdefault(one["attribute"], one)
    gaps = [_pair_lead(one, words) for one in others.values()]
    return [*leads, *ratios[:1], *gap, *known, *ratios[1:], *gaps]


def nothing_compared(groups: Iterable[Collection[Any]]) -> Lead:
    """Say that no groups were compared, from the groups of each sensitive column."""
    one = all(len(own) == 1 for own in groups)
    why = "There is only one group" if one else "No two groups can be compared"
    return Lead((f"{why}, so no gap was measured.",))


def _model_leads(finding: Record) -> list[Lead]:
    """Say that the model gives one answer only, or that it is not better than chance."""
    if finding["constant"] is not None:
        said = f"The model predicts “{short(finding['constant'], 40)}” for every row, so its gaps of 0 say nothing."
        return [Lead((said,))]
    if finding["standing"] not in ("at", "below"):
        return []
    balanced, below = estimate_from_dict(finding["balanced_accuracy"]), finding["standing"] == "below"
    head = f"The model is {'worse' if below else 'not measurably better'} than chance"
    size = f"balanced accuracy {percent(balanced)}%, interval {percent_ends(balanced)}"
    advice = "Are the classes swapped?" if below else "Its gaps say little."
    chance = finding["chance"]
    rest = f"{size}; chance is {number(100 * chance)}%. {advice}"
    return [Lead((head,), rest, quantity="balanced_accuracy", difference=balanced, neutral=chance)]


def _pair_lead(pair: Record, words: Words, *, at_most: float | None = None, comparisons: int = 1) -> Lead:
    """Say which of two groups a model serves worse, by how much, and how sure that is.

    Args:
        pair: one of an audit's ``pairs``.
        words: of that audit.
        at_most: the largest gap of any pair that fits the rows; None: that of this pair.
        comparisons: how many pairs that is about.
    """
    figure, rate, of_class = estimate_from_dict(pair["difference"]), pair["rate"], pair["class"]
    groups, values = ([pair[side][key] for side in ("first", "second")] for key in ("group", "value"))
    whom = words.those(of_class) if rate == "true_positive_rate" else words.others(of_class)
    if words.turned:
        figure, values = turned(figure, 0), [1 - value for value in values]
        rate, of_class = TURNED[rate], words.favourable
    predicted, end = f"the model predicts {words.predicted(of_class)} for ", ""
    if words.favourable is not None:
        predicted, end = "", f" are predicted {words.outcome}"
    names = [named_group(pair["attribute"], group) for group in groups]
    first, second = (f"{number(100 * value)}% of " for value in values)
    most = figure.size.high if at_most is None else at_most
    rest = f"{gap_words(figure)}."
    if not figure.excludes_zero and most <= NARROW:
        whole = "no two groups differ by more than" if comparisons > 2 else "a gap of at most"
        rest = f"{whole} {number(100 * most)} points."
    pieces = f"Among {whom}, {predicted}{first}", names[0], f" and {second}", names[1], end
    return Lead(
        pieces, rest, pair["attribute"], rate, of_class,
        tuple(groups), tuple(values), figure, comparisons=comparisons,
    )  # fmt: skip


def gap_words(figure: Estimate) -> str:
    """Say how much larger a first share is than a second, and how sure that is."""
    size = figure if figure.value > 0 else turned(figure, 0)
    way = "higher" if figure.value > 0 else "lower"
    points = number(100 * size.value)
    found = f"{points} points {way}" if points != "0.0" else "no measured difference"
    return f"{found}, interval {percent_ends(size)}{'' if size.low > 0 else '; inconclusive'}"


TURNED = {
    "base_rate": "base_rate",
    "selection_rate": "selection_rate",
    "true_positive_rate": "false_positive_rate",
    "false_positive_rate": "true_positive_rate",
}
"""Rates of one of two classes, by those of the other that are one less each."""


class Words:
    """What an audit calls its classes and its groups, in the user's words."""

    def __init__(self, result: Record) -> None:
        words = result.get("words") or {}
        self.label = short(words.get("label") or "label", 40)
        self.positive = result.get("positive")
        self.shown: dict[str, str] = words.get("classes") or {}
        self.classes = list(words.get("order") or ())
        self.favourable: str | None = words.get("favourable")
        if self.favourable != self.positive and len(self.classes) > 2:
            self.favourable = None  # one of several other classes: rates of the positive one say nothing of it

    @property
    def turned(self) -> bool:
        """Whether rates of the favourable outcome are one less those of the positive class."""
        return self.favourable is not None and self.favourable != self.positive

    @property
    def outcome(self) -> str:
        """The favourable outcome, in quotation marks."""
        return f"“{short(str(self.favourable), 40)}”"

    def of_label(self, name: str) -> str:
        """Return a class as its label is written, which is another word than the prediction's under a label map."""
        return short(self.shown.get(name, name), 40)

    def those(self, of_class: str) -> str:
        """Return the rows with a label."""
        return f"rows with {self._labelled(of_class)}"

    def others(self, of_class: str) -> str:
        """Return who :meth:`those` are not."""
        rest = [one for one in self.classes if one != of_class]
        if len(rest) == 1:
            return f"rows with {self._labelled(rest[0])}"
        return f"rows with a {self.label} other than “{self.of_label(of_class)}”"

    def _labelled(self, of_class: str) -> str:
        """Return ``y = 1``; a class of several words gets quotation marks."""
        name = self.of_label(of_class)
        return f"{self.label} = {name}" if re.fullmatch(r"[\w.]{1,24}", name) else f"{self.label} “{name}”"

    def predicted(self, of_class: str) -> str:
        """Return a class as the model predicts it; one of several words gets quotation marks."""
        name = short(of_class, 40)
        return name if re.fullmatch(r"[\w.]{1,24}", name) else f"“{name}”"


def named_group(attribute: str, group: str) -> str:
    """Return a group as sentences name it: numbers and the like with their column, a name with a comma in quotes."""
    name = short(group, 60)
    if re.search("[,:;]", name):  # a sentence would be cut there
        return in_quotes(name)
    says_nothing = re.fullmatch(r"(under )?[\W\d_].*", name) and " & " not in name
    plain = not says_nothing and name.lower() not in ("true", "false", "yes", "no")
    return name if plain else f"{short(attribute, 40)} {name}"


def turned(figure: Estimate, whole: float = 1) -> Estimate:
    """Return one less a share with its interval, or with ``whole`` 0 a difference with the other sign."""
    return replace(figure, value=whole - figure.value, low=whole - figure.high, high=whole - figure.low)


def several_sentences(findings: Sequence[tuple[str, list[Difference]]], baseline: str) -> list[str]:
    """Say what several comparisons, each a title and its differences, found together: the headline first.

    ``baseline`` is empty where they differ.
    """
    what = GAP + (f" relative to {quoted_name(baseline)}" if baseline else "")
    count = counted(len(findings), "comparison")
    every = [one for _, differences in findings for one in differences]
    defined = [one for one in every if one.estimate.defined and one.learned and not one.at_chance]
    blank = sum(any(not one.learned for one in differences) for _, differences in findings)
    where = "all" if blank == len(findings) else f"{blank}"
    last = [f"In {where} of {count} the baseline did not learn: raise train.epochs there."] if blank else []
    if not defined:
        return last or [f"The change of {what} is undefined in all of {count}."]
    decided = sorted((one for one in defined if one.decided), key=_without_groups_first)
    if not decided:
        return [f"No method measurably changed {what} in any of {count}.", _closest(defined), *last]
    said: list[str] = []
    for verb in dict.fromkeys(_changed(one.estimate.value) for one in decided):
        hits = Counter(quoted_name(one.label) for one in decided if _changed(one.estimate.value) == verb)
        most = max(hits.values())
        subject, fewer = _some([who for who in hits if hits[who] == most]), [who for who in hits if hits[who] < most]
        more = f", {_some(fewer)} in fewer" if fewer else ""
        whole = f"{verb} it in {most} of {len(findings)}" if said else f"{verb} {what} in {most} of {count}"
        said.append(f"{subject} {whole}{more}.")
    names = dict.fromkeys(quoted_name(one.label) for one in defined)
    never = [name for name in names if name not in {quoted_name(one.label) for one in decided}]
    if never:
        said.append(f"{_some(never)} did not change it measurably in any.")
    dear = dict.fromkeys(quoted_name(one.label) for one in decided if one.accuracy and one.estimate.value < 0)
    if dear:
        said.append(f"{_some([*dear])} lowered accuracy with it.")
    return [*said, *last]


def _some(names: list[str]) -> str:
    rest = len(names) - NAMED
    return joined(names if rest < 1 else [*names[:NAMED], counted(rest, "other")])


def _ends(reason: str | None) -> str:
    """Return a reason as the end of a sentence."""
    return f"{short(reason or 'no reason was recorded', 300).rstrip('.')}."


def change_lead(
    subject: Sequence[str],
    old: float,
    new: float,
    change: Estimate,
    *,
    unit: str = "%",
    periods: Sequence[str] = (),
    end: str = "",
    **about: Any,
) -> Lead:
    """Say how a fraction changed.

    Args:
        subject: what changed, with its sensitive column; every second piece names a group.
        old: the fraction before.
        new: the fraction after.
        change: new less old, with its interval.
        unit: of both: percent of a rate, or " points" of a gap.
        periods: what before and after are called, where they are periods.
        end: what follows from it.
        about: more of the :class:`~levelhead.report.headline.Lead`.
    """
    about |= {"values": (old, new), "difference": change}
    first, last = (number(100 * one, signed=min(old, new) < 0) for one in (old, new))
    known = change.reason or "no interval"
    *whom, what = subject
    if change.value == 0 and math.isnan(change.low):
        return Lead((*whom, f"{what} did not change"), f"{last}{unit} in both; {known}.", **about)
    when = [f" in {printable(one)}" for one in periods] or ["", ""]
    said = f"{what} changed from {first}{'%' if unit == '%' else ''}{when[0]} to {last}{unit}{when[1]}"
    sure = known if math.isnan(change.low) else f"interval {percent_ends(change, signed=True)}"
    sure += "" if change.excludes_zero or math.isnan(change.low) else "; inconclusive"
    return Lead((*whom, said), f"{number(100 * change.value, signed=True)} points, {sure}{end}.", **about)


def group_change_lead(
    column: str,
    group: str,
    quantity: str,
    *change: Any,
    title: str = "",
    what: str = "",
    periods: Sequence[str] = (),
) -> Lead:
    """Say how a rate of one group changed: old, new and difference as :func:`change_lead` takes them.

    ``title`` is what the rate is called, if not by its name, and ``what`` follows the group.
    """
    start = f"By {printable(column)}, the {title or RATE_TITLES[quantity].lower()} of "
    about: Record = {"column": column, "quantity": quantity, "groups": (group,), "periods": periods}
    return change_lead((start, named_group(column, group), what), *change, **about)
