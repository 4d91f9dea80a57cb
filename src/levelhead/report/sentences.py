"""The first line of a page: what was found, in one sentence with its uncertainty.

A difference is decided if its interval leaves out 0 and its p-value, adjusted over the methods, is below the error
probability. What is not decided is said to be so: "no difference" is nothing that an interval can show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from levelhead.metrics.joint import MARGIN
from levelhead.metrics.names import METRICS, RATE_TITLES
from levelhead.report.text import (
    Record,
    counted,
    estimate_from_dict,
    joined,
    level_text,
    number,
    percent,
    percent_interval,
    short,
)
from levelhead.types import Estimate

NAMED_IN_HEADLINE = 3
OTHER_SEEDS = "other seeds may differ"
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
    def uncorrected(self) -> bool:
        """Whether the interval leaves out 0, and the correction for the number of methods undoes it."""
        return self.estimate.reason is None and self._holds_no_zero and not self._shown

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
    plain = short(name)
    return plain if re.fullmatch(r"[\w+\-]{1,24}( [A-Z]+)*", plain) else f"“{plain}”"


def _subject(metric: str) -> str:
    """Return ``the gap in equalized odds``, or ``accuracy``."""
    subject = METRICS[metric].subject
    return subject if METRICS[metric].larger_is_better else f"the gap in {subject}"


def _changed(metric: str, value: float) -> str:
    up, down = ("raised", "lowered") if METRICS[metric].larger_is_better else ("increased", "reduced")
    return up if value > 0 else down


def difference_sentence(difference: Difference, baseline: str, metric: str = "equalized_odds") -> str:
    """Say how a method changed a figure relative to the baseline, and whether these data can tell."""
    figure, what = difference.estimate, _subject(metric)
    method, other = quoted_name(difference.label), quoted_name(baseline)
    if not difference.learned:
        return not_learned(baseline)
    if not figure.defined:
        return f"The change of {what} from {other} to {method} is undefined: {_ends(figure.reason)}"
    if figure.value == 0 and (math.isnan(figure.low) or figure.low == figure.high == 0):
        why = f"; {_ends(figure.reason)}" if math.isnan(figure.low) else "."
        return f"{method} and {other} have the same {what.removeprefix('the ')} on these data{why}"
    margin = number(100 * difference.margin)
    span, change = f"interval {percent_interval(figure, signed=True)}", _range([difference])
    size, verb = number(100 * abs(figure.value)), _changed(metric, figure.value)
    if difference.on_one_seed:
        return (
            f"{method} {verb} {what} by {size} points relative to {other} on one seed, {span} over these rows alone"
            f"{price_sentence(difference, metric)}; {OTHER_SEEDS}."
        )
    if difference.decided:
        within = f", which is less than the margin of {margin} points" if difference.within else ""
        price = price_sentence(difference, metric)
        return f"{method} {verb} {what} by {size} points relative to {other}, {span}{within}{price}."
    if difference.within:
        return (
            f"{method} and {other} have an equivalent {what.removeprefix('the ')} (within {margin} points): {change}."
        )
    if difference.uncorrected:
        return (
            f"Whether {method} {verb} {what} relative to {other} is inconclusive: {change}, "
            f"but p = {difference.p:.3f} after correction for the number of methods."
        )
    why = f" ({_ends(figure.reason)[:-1]})" if figure.reason is not None else ""
    return f"{method} did not measurably change {what} relative to {other}: {change}; inconclusive{why}."


def not_learned(baseline: str) -> str:
    """Say that a baseline is not above chance, and what to raise."""
    return (
        f"{quoted_name(baseline)} did not learn: on these rows its balanced accuracy is not above chance. Raise "
        "train.epochs or train.learning_rate; until it learns, differences from it say nothing."
    )


def price_sentence(difference: Difference, metric: str = "equalized_odds") -> str:
    """Return the end of a sentence about a changed gap where accuracy is measurably lower; empty where it is not."""
    lost = None if METRICS[metric].larger_is_better else difference.accuracy
    return "" if lost is None else f", and lowered accuracy by {number(100 * abs(lost.value))} points"


def _not_established(those: Sequence[Difference], what: str, count: int) -> str:
    """Say that no change is established where intervals without 0 do not survive the correction."""
    closest = min(those, key=lambda one: one.p or 0)
    changes = {_changed("equalized_odds", one.estimate.value) for one in those}
    change = {"reduced": "reduction", "increased": "increase"}[changes.pop()] if len(changes) == 1 else "change"
    return (
        f"No {change} of {what} is established: {quoted_name(closest.label)} {_range([closest])}, "
        f"p = {closest.p:.3f} after correction for {counted(count, 'method')}"
    )


def comparison_sentence(differences: list[Difference], baseline: str, metric: str = "equalized_odds") -> str:
    """Say what a whole comparison found about one metric."""
    what, other = _subject(metric), quoted_name(baseline)
    if not differences:
        return f"There is nothing to compare {short(baseline)} with: a comparison needs a second variant."
    if len(differences) == 1 or not differences[0].learned:
        return difference_sentence(differences[0], baseline, metric)
    defined = [one for one in differences if one.estimate.defined]
    if not defined:
        return f"The change of {what} is undefined for every method: {_ends(differences[0].estimate.reason)}"
    decided = sorted((one for one in defined if one.decided), key=lambda one: one.estimate.value)
    if one_seed := not decided:
        decided = sorted((one for one in defined if one.on_one_seed), key=lambda one: one.estimate.value)
    count, is_gap = len(differences), not METRICS[metric].larger_is_better
    unknown = "" if len(defined) == count else f" For {count - len(defined)} it is undefined."
    if not decided:
        equal = [one for one in defined if one.within]
        if equal:
            which = (
                "All are" if len(equal) == count else f"{len(equal)} of {count} {'is' if len(equal) == 1 else 'are'}"
            )
            unknown = f" {which} equivalent to {other} within {number(100 * equal[0].margin)} points.{unknown}"
        elif all(one.estimate.value == 0 and math.isnan(one.estimate.low) for one in defined):
            return f"{len(defined)} of {count} methods have the same {what.removeprefix('the ')} as {other}.{unknown}"
        if found := [one for one in defined if one.uncorrected]:
            return f"{_not_established(found, f'{what} relative to {other}', count)}.{unknown}"
        return f"None of the {count} methods measurably changed {what} relative to {other}: {_range(defined)}.{unknown}"
    said: list[str] = []
    for verb in dict.fromkeys(_changed(metric, one.estimate.value) for one in decided):
        those = [one for one in decided if _changed(metric, one.estimate.value) == verb]
        named = [
            f"{quoted_name(one.label)} ({percent(one.estimate, signed=True)} points, interval "
            f"{percent_interval(one.estimate, signed=True)}"
            + (f", accuracy {percent(one.accuracy, signed=True)})" if one.accuracy and is_gap else ")")
            for one in those[:NAMED_IN_HEADLINE]
        ]
        more = those[NAMED_IN_HEADLINE:]
        dear = sum(bool(one.accuracy) for one in more) if is_gap else 0
        named += [f"{len(more)} more" + f" ({dear} at lower accuracy)" * (dear > 0)] * bool(more)
        said.append(f"{joined(named)} {verb} " + (f"{what} relative to {other}" if not said else "it"))
    rest = len(defined) - len(decided)
    if rest:
        said.append(f"{rest} of {count} did not change it measurably")
    if one_seed:
        said = [f"On one seed, {said[0]}", *said[1:], OTHER_SEEDS]
    return f"{'; '.join(said)}.{unknown}"


def _range(differences: Sequence[Difference]) -> str:
    """Say how far defined differences and their intervals reach, in points."""
    figures = [one.estimate for one in differences]
    if len(figures) == 1:
        span = percent_interval(figures[0], signed=True)
        return f"{percent(figures[0], signed=True)} points" + (f", interval {span}" if span else "")
    known = [figure for figure in figures if not math.isnan(figure.low)]
    ends = (
        min(figure.value for figure in figures),
        max(figure.value for figure in figures),
        min((figure.low for figure in known), default=math.nan),
        max((figure.high for figure in known), default=math.nan),
    )
    low, high, first, last = (number(100 * value, signed=True) for value in ends)
    if not known:
        return f"changes from {low} to {high} points, without intervals"
    return f"changes from {low} to {high} points, with intervals from {first} to {last}"


def gap_sentence(figure: Estimate, attribute: str, metric: str = "equalized_odds") -> str:
    """Say how large one set of predictions' gap between groups is, and whether these rows show one at all."""
    what = f"The {METRICS[metric].phrase} between groups of “{short(attribute)}”"
    if not figure.defined:
        return f"{what} is undefined: {_ends(figure.reason)}"
    span = percent_interval(figure)
    return f"{what} is {percent(figure)} percentage points, interval {span}{_verdict(figure)}"


def _verdict(figure: Estimate) -> str:
    """Say what an interval leaves open; nothing where it shows a gap."""
    if figure.low > 0:
        return "."
    if figure.high <= NARROW:
        return f": at most {number(100 * figure.high)} points."
    return f"; inconclusive: anything from no gap to {number(100 * figure.high)} points."


def audit_sentences(
    result: Record, *, brief: bool = False, asked: Sequence[str] = (), ratios: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Say what an audit found: what was asked, what must be known before any gap, then the lowest ratio or largest gap.

    Args:
        result: the audit's JSON.
        brief: leave out the denominators of the rates.
        asked: what answers a question of its own. Nothing but a model with one answer goes before it.
        ratios: of the favourable outcome; the first one goes before the largest gap.
        beside: what else options requested, after the largest gap.

    Returns:
        full sentences, of which the first is the headline; the rows of the largest gap and the largest gap of each
        other column follow.
    """
    finding, words = result["finding"], Words(result)
    answers, constant = _answer_sentences(finding, words), finding["constant"] is not None
    sentences = [*answers, *asked] if constant else [*asked, *answers]
    pair = finding["pair"]
    weights = result.get("weights")
    known = [one["sentence"] for one in (weights, result.get("clusters")) if one]
    if constant and (finding["at_most"] or 1) > NARROW:
        return [*sentences, *known, *beside]  # "inconclusive" beside it would only confuse
    if pair is None:
        none = "No two groups have enough rows to be compared, so no gap was measured."
        return [*sentences, *ratios, none, *known, *beside]
    headline = pair_sentence(pair, words, at_most=finding["at_most"], comparisons=finding["comparisons"])
    if weights:
        headline += f" Weighted: effective sample size {weights['worth']:,.0f}."
    gap = [*beside, headline] if answers else [headline, *beside]  # gaps of a model at chance say little
    sentences += [*ratios[:1], *gap]
    sides = [f"{_rows(pair[side])} of {words.group(pair, side)}" for side in ("first", "second")]
    told = f"Denominators of these rates: {', '.join(sides)}."
    sentences += known
    if finding["comparisons"] > 1:
        told += (
            f" {level_text(result.get('level', 0.95))} confidence, adjusted for {finding['comparisons']:,} comparisons."
        )
    others: dict[str, Record] = {}
    for one in result["pairs"]:
        if one["attribute"] != pair["attribute"]:
            others.setdefault(one["attribute"], one)
    gaps = [pair_sentence(one, words) for one in others.values()]
    return [*sentences, *([] if brief else [told]), *ratios[1:], *gaps]


def _rows(side: Record) -> str:
    """Say the denominator of a rate and, of weighted or clustered rows, their effective number."""
    if "clusters" in side:
        return f"{counted(side['rows'], 'row')} in {counted(side['clusters'], 'cluster')}"
    return f"{side['rows']:,}" + (f" (effective {side['worth']:,.0f})" if "worth" in side else "")


def _answer_sentences(finding: Record, words: Words) -> list[str]:
    """Say that the model gives one answer only, or that it is not better than chance."""
    if finding["constant"] is not None:
        return [f"The model predicts “{short(finding['constant'], 40)}” for every row, so its gaps of 0 say nothing."]
    if finding["standing"] not in ("at", "below"):
        return []
    balanced = estimate_from_dict(finding["balanced_accuracy"])
    what = "not measurably better" if finding["standing"] == "at" else "worse"
    advice = " Are the classes swapped?" if finding["standing"] == "below" else " Its gaps say little."
    return [
        f"The model is {what} than chance: balanced accuracy {percent(balanced)}%, interval "
        f"{number(100 * balanced.low)} to {number(100 * balanced.high)}; chance is {number(100 * finding['chance'])}%."
        f"{advice}"
    ]


def pair_sentence(pair: Record, words: Words, *, at_most: float | None = None, comparisons: int = 1) -> str:
    """Say which of two groups a model serves worse, by how much, and how sure that is.

    Args:
        pair: one of an audit's ``pairs``.
        words: of that audit.
        at_most: the largest gap of any pair that fits the rows; None: that of this pair.
        comparisons: how many pairs that is about.
    """
    figure = estimate_from_dict(pair["difference"])
    first, second = words.group(pair, "first"), words.group(pair, "second")
    values = [pair[side]["value"] for side in ("first", "second")]
    if words.turned:
        figure, values = turned(figure, 0), [1 - value for value in values]
    rates = [f"{number(100 * value)}%" for value in values]
    if words.favourable is not None:
        found = pair["rate"] == "true_positive_rate"
        whom = words.those(pair["class"]) if found else words.others(pair["class"])
        start = f"Among {whom}, {rates[0]} of {first} and {rates[1]} of {second} {words.decided}"
    else:
        wrongly = pair["rate"] != "true_positive_rate"
        start = words.found(pair["class"], rates, (first, second), wrongly=wrongly)
    more = "higher" if figure.value > 0 else "lower"
    sign = 1 if figure.value > 0 else -1
    low, high = sorted((sign * figure.low, sign * figure.high))
    points, span = number(100 * abs(figure.value)), f"interval {number(100 * low)} to {number(100 * high)}"
    if low > 0:
        return f"{start}: {points} points {more}, {span}."
    most = max(-low, high) if at_most is None else at_most
    if most <= NARROW:
        whole = "no two groups differ by more than" if comparisons > 2 else "a gap of at most"
        return f"{start}: {whole} {number(100 * most)} points."
    found = f"{points} points {more}" if points != "0.0" else "no measured difference"
    return f"{start}: {found}, {span}; inconclusive."


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
        self.decision: str | None = words.get("decision")

    @property
    def turned(self) -> bool:
        """Whether rates of the favourable outcome are one less those of the positive class."""
        return self.favourable is not None and self.favourable != self.positive

    @property
    def outcome(self) -> str:
        """The favourable outcome, in quotation marks."""
        return f"“{short(self.decision or str(self.favourable), 40)}”"

    @property
    def decided(self) -> str:
        """What happens to those who get the favourable outcome."""
        return f"are {'' if self.decision else 'predicted '}{self.outcome}"

    @property
    def errors(self) -> tuple[str, str]:
        """Who gets the favourable outcome wrongly, and who wrongly does not, in words."""
        wrongly, denied = (self._although(str(self.favourable), deserved) for deserved in (False, True))
        return f"{self.outcome} although {wrongly}", f"not {self.outcome} although {denied}"

    def _although(self, of_class: str, there: bool) -> str:
        """Say that rows have a label, or another one."""
        if there:
            return f"{self.label} is “{self.of_label(of_class)}”"
        rest = [one for one in self.classes if one != of_class]
        return f"{self.label} is “{self.of_label(rest[0])}”" if len(rest) == 1 else f"{self.label} is another class"

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

    def found(self, of_class: str, rates: Sequence[str], groups: Sequence[str], *, wrongly: bool = False) -> str:
        """Say a true positive rate, or a false one, of two groups."""
        whom = self.others(of_class) if wrongly else self.those(of_class)
        shares = f"{rates[0]} of {groups[0]} and {rates[1]} of {groups[1]}"
        name = short(of_class, 40)
        shown = name if re.fullmatch(r"[\w.]{1,24}", name) else f"“{name}”"
        return f"Among {whom}, the model predicts {shown} for {shares}"

    def group(self, pair: Record, side: str) -> str:
        """Return a group's name; numbers and the like get the name of their column."""
        return named_group(pair["attribute"], pair[side]["group"])


def named_group(attribute: str, group: str) -> str:
    """Return a group as sentences name it; numbers and the like get the name of their column."""
    name = short(group, 60)
    says_nothing = re.fullmatch(r"(under )?[\W\d_].*", name) and " & " not in name
    plain = not says_nothing and name.lower() not in ("true", "false", "yes", "no")
    return name if plain else f"{short(attribute, 40)} {name}"


def turned(figure: Estimate, whole: float = 1) -> Estimate:
    """Return one less a share with its interval, or with ``whole`` 0 a difference with the other sign."""
    return replace(figure, value=whole - figure.value, low=whole - figure.high, high=whole - figure.low)


def range_sentence(one: Record) -> str:
    """Say the range of a rate over many groups, beside its range under permutation."""
    what = str(RATE_TITLES.get(one["rate"], one["rate"])).lower()
    return (
        f"The {what} spans {number(100 * one['value'])} points over {counted(one['groups'], 'group')} of "
        f"“{short(one['attribute'], 40)}”, from {short(one['lowest'], 40)} to {short(one['highest'], 40)}. Without any "
        f"true difference, the expected span is {number(100 * one['expected'])} points, and 1 audit in 20 exceeds "
        f"{number(100 * one['high'])}."
    )


def detectable_sentences(result: Record) -> list[str]:
    """Say for each sensitive column which gaps its rows can detect; of several classes, in the rarest."""
    hardest: dict[tuple[str, str], Record] = {}
    classes = {one["class"] for one in result.get("detectable", [])}
    for one in result.get("detectable", []):
        key = (one["attribute"], one["rate"])
        if key not in hardest or _hardness(one) > _hardness(hardest[key]):
            hardest[key] = one | {"several": len(classes) > 1}
    columns = dict.fromkeys(attribute for attribute, _ in hardest)
    return [_detectable_sentence([one for one in hardest.values() if one["attribute"] == name]) for name in columns]


def _hardness(one: Record) -> float:
    return math.inf if one["worst"]["gap"] is None else float(one["worst"]["gap"])


def _detectable_sentence(rates: Sequence[Record]) -> str:
    """Say which gaps the rows of one sensitive column can detect; ``rates`` are of one column."""
    parts = []
    for one in rates:
        title = str(RATE_TITLES.get(one["rate"], one["rate"])).lower()
        least, most = one["best"]["gap"], one["worst"]["gap"]
        if least is None:
            gap = "no gap"
        elif most is None:
            gap = f"{number(100 * least)} points (none between the smallest groups)"
        elif number(100 * least) == number(100 * most):
            gap = f"{number(100 * least)} points"
        else:
            gap = f"{number(100 * least)} to {number(100 * most)} points"
        parts.append(f"{gap} in the {title}" + (f" of “{short(one['class'], 40)}”" if one.get("several") else ""))
    power = round(100 * rates[0]["power"])
    sizes = ", depending on group size" if any(" to " in part for part in parts) else ""
    return (
        f"{short(rates[0]['attribute'], 40)}: with this many rows, an audit detects gaps of {joined(parts)} in {power} "
        f"of 100 cases{sizes}. Smaller gaps may exist."
    )


def one_run_sentence(figure: Estimate, attribute: str, metric: str = "equalized_odds") -> str:
    """Say the gap of one run: what another training seed would give is not measured."""
    sentence = gap_sentence(figure, attribute, metric)
    return (
        f"{sentence} This is one run: the interval does not cover variation between training seeds."
        if figure.defined
        else sentence
    )


def several_sentence(
    findings: Sequence[tuple[str, list[Difference]]], baseline: str, metric: str = "equalized_odds"
) -> str:
    """Say what several comparisons, each a title and its differences, found together.

    ``baseline`` is empty where they differ.
    """
    what = _subject(metric) + (f" relative to {quoted_name(baseline)}" if baseline else "")
    count = counted(len(findings), "comparison")
    every = [one for _, differences in findings for one in differences]
    defined = [one for one in every if one.estimate.defined and one.learned]
    blank = sum(any(not one.learned for one in differences) for _, differences in findings)
    where = "all" if blank == len(findings) else f"{blank}"
    unlearned = f" In {where} of {count} the baseline did not learn: raise train.epochs there." if blank else ""
    if not defined:
        return unlearned.strip() or f"The change of {what} is undefined in all of {count}."
    if not any(one.decided for one in defined):
        if found := [one for one in defined if one.uncorrected]:
            most = max(len(differences) for _, differences in findings)
            return f"{_not_established(found, f'{what} in any of {count}', most)}.{unlearned}"
        return f"No method measurably changed {what} in any of {count}: {_range(defined)}.{unlearned}"
    said: list[str] = []
    for verb in dict.fromkeys(
        _changed(metric, one.estimate.value) for one in sorted(defined, key=_value) if one.decided
    ):
        times: dict[int, list[str]] = {}
        for label in dict.fromkeys(quoted_name(one.label) for one in defined):
            those = [one for one in defined if quoted_name(one.label) == label]
            if hits := sum(one.decided and _changed(metric, one.estimate.value) == verb for one in those):
                times.setdefault(hits, []).append(label)
        named = [f"{_some(labels)} in {hits}" for hits, labels in sorted(times.items(), reverse=True)]
        subject, _, first = named[0].rpartition(" in ")
        more = "".join(f", {one}" for one in named[1:])
        where = f"{verb} it in {first} of {len(findings)}" if said else f"{verb} {what} in {first} of {count}"
        said.append(f"{subject} {where}{more}")
    changed = {quoted_name(one.label) for one in defined if one.decided}
    never = [label for label in dict.fromkeys(quoted_name(one.label) for one in defined) if label not in changed]
    if never:
        said.append(f"{_some(never)} did not change it measurably in any")
    priced = [one for one in defined if one.decided and price_sentence(one, metric) and one.estimate.value < 0]
    if priced:
        said.append(f"{_some(list(dict.fromkeys(quoted_name(one.label) for one in priced)))} lowered accuracy with it")
    return f"{'; '.join(said)}.{unlearned}"


def _value(difference: Difference) -> float:
    return difference.estimate.value


def _some(names: list[str]) -> str:
    rest = len(names) - NAMED_IN_HEADLINE
    return joined(names if rest < 1 else [*names[:NAMED_IN_HEADLINE], counted(rest, "other")])


def _ends(reason: str | None) -> str:
    """Return a reason as the end of a sentence."""
    return f"{short(reason or 'no reason was recorded', 300).rstrip('.')}."
