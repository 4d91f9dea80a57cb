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
from levelhead.report.text import Record, counted, estimate_from_dict, joined, number, percent, percent_interval, short
from levelhead.types import Estimate

NAMED_IN_HEADLINE = 3
NARROW = 0.05
"""Where no gap beyond this, a fraction, fits the rows, a sentence says "at most" instead of "cannot tell"."""


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
    margin: float = MARGIN

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
            and figure.excludes_zero
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
    return f"{what} is {percent(figure)} points, interval {span}: {_verdict(figure)}"


def _verdict(figure: Estimate) -> str:
    if figure.low > 0:
        return "these rows show a gap."
    if figure.high <= NARROW:
        return f"at most {number(100 * figure.high)} points."
    return "these rows cannot tell whether there is a gap."


def audit_sentences(result: Record, *, brief: bool = False) -> list[str]:
    """Say what an audit found: first what must be known before any gap, then the largest gap.

    Args:
        result: the audit's JSON; empty sentences for one that was written before it had a ``finding``.
        brief: leave out the rows that the rates rest on.

    Returns:
        full sentences, of which the first is the headline; the rows of the largest gap and the largest gap of each
        other column follow.
    """
    if "finding" not in result:
        return []
    finding, words = result["finding"], Words(result)
    sentences = [
        *_answer_sentences(finding, words),
        *_personal(result),
        *(result.get("control") or {}).get("sentences", []),
    ]
    pair = finding["pair"]
    weights = result.get("weights")
    known = [one["sentence"] for one in (weights, result.get("clusters")) if one]
    if finding["constant"] is not None and (finding["at_most"] or 1) > NARROW:
        return [*sentences, *known]  # "cannot tell whether there is a gap" beside it would only confuse
    if pair is None:
        none = "No two groups have rows enough to be compared: no gap is known, which is not a gap of 0."
        return [*sentences, none, *known]
    headline = pair_sentence(pair, words, at_most=finding["at_most"], comparisons=finding["comparisons"])
    if weights:
        headline += f" Weighted; the rows are worth {weights['worth']:,.0f}."
    sentences.append(headline)
    sides = [f"{_rows(pair[side])} of {words.group(pair, side)}" for side in ("first", "second")]
    told = f"Rows that these rates rest on: {', '.join(sides)}."
    sentences += known
    if finding["comparisons"] > 1:
        told += (
            f" The interval allows for {finding['comparisons']:,} comparisons: every pair of groups, in the true and "
            "in the false positive rate."
        )
    others: dict[str, Record] = {}
    for one in result["pairs"]:
        if one["attribute"] != pair["attribute"]:
            others.setdefault(one["attribute"], one)
    return [*sentences, *([] if brief else [told]), *(pair_sentence(one, words) for one in others.values())]


def _personal(result: Record) -> list[str]:
    """Return what the use of the groups changes for them, where a model without them was audited beside one with."""
    against = result.get("against") or {}
    parts = against["by_attribute"].values() if against.get("personal") else ()
    return [sentence for part in sorted(parts, key=lambda part: not part["worse"]) for sentence in part["sentences"]]


def _rows(side: Record) -> str:
    """Say how many rows a rate rests on and, if they are weighted or clustered, what they are worth."""
    if "clusters" in side:
        return f"{counted(side['rows'], 'row')} in {counted(side['clusters'], 'cluster')}"
    return f"{side['rows']:,}" + (f" (worth {side['worth']:,.0f})" if "worth" in side else "")


def _answer_sentences(finding: Record, words: Words) -> list[str]:
    """Say that the model gives one answer only, or that it is not better than chance."""
    if finding["constant"] is not None:
        return [
            f"The model gives every row the same answer, “{words.of_class(finding['constant'])}”: it has no gaps "
            "because it decides nothing."
        ]
    if finding["standing"] not in ("at", "below"):
        return []
    balanced = estimate_from_dict(finding["balanced_accuracy"])
    what = "not measurably better" if finding["standing"] == "at" else "worse"
    advice = " Are classes mixed up?" if finding["standing"] == "below" else " Its gaps say little."
    return [
        f"The model is {what} than chance: balanced accuracy {percent(balanced)}%, interval "
        f"{number(100 * balanced.low)} to {number(100 * balanced.high)}, where a constant or random answer has "
        f"{number(100 * finding['chance'])}%.{advice}"
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
        start = f"Of {whom}, {rates[0]} of {first} and {rates[1]} of {second} {words.decided}"
    elif pair["rate"] == "true_positive_rate":
        start = f"Of {words.those(pair['class'])}, the model finds {rates[0]} of {first} and {rates[1]} of {second}"
    else:
        start = f"Of {words.others(pair['class'])}, the model {words.wrongly(pair['class'], rates, (first, second))}"
    more = "more" if figure.value > 0 else "fewer"
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
    return f"{start}: {found}, {span}: these rows cannot tell whether there is a gap."


class Words:
    """What an audit calls its classes and its groups, in the user's words."""

    def __init__(self, result: Record) -> None:
        words = result.get("words") or {}
        self.label = short(words.get("label") or "label", 40)
        self.positive, self.name = result.get("positive"), words.get("positive")
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
        return f"“{short(self.decision, 40) if self.decision else self.of_class(str(self.favourable))}”"

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
        if self.name and self.positive is not None and (of_class == self.positive or len(self.classes) == 2):
            said = who(self.name, without=(of_class == self.positive) != there)
            return f"they {said.removeprefix('who ')}" if said.startswith("who ") else f"they are {said}"
        if there:
            return f"{self.label} is “{self.of_class(of_class)}”"
        rest = [one for one in self.classes if one != of_class]
        return f"{self.label} is “{self.of_class(rest[0])}”" if len(rest) == 1 else f"{self.label} is another class"

    def of_class(self, name: str) -> str:
        """Return a class as the user wrote the label."""
        return short(self.shown.get(name, name), 40)

    def those(self, of_class: str) -> str:
        """Return ``those who earn over 50K``, or the rows with a label."""
        if self.name and of_class == self.positive:
            return f"those {who(self.name)}"
        return f"the rows with {self.label} “{self.of_class(of_class)}”"

    def others(self, of_class: str) -> str:
        """Return who :meth:`those` are not."""
        if self.name and of_class == self.positive:
            return f"those {who(self.name, without=True)}"
        rest = [one for one in self.classes if one != of_class]
        if len(rest) == 1:
            return f"the rows with {self.label} “{self.of_class(rest[0])}”"
        return f"the rows with a {self.label} other than “{self.of_class(of_class)}”"

    def wrongly(self, of_class: str, rates: Sequence[str], groups: Sequence[str]) -> str:
        """Say what a false positive is: the model takes some of each group for the class."""
        shares = f"{rates[0]} of {groups[0]} and {rates[1]} of {groups[1]}"
        if self.name and of_class == self.positive:
            return f"wrongly picks {shares}"
        return f"takes {shares} for “{self.of_class(of_class)}”"

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


def who(name: str, *, without: bool = False) -> str:
    """Turn ``earns over 50K`` into ``who earn over 50K`` or ``who do not``, and ``light hair`` into ``with`` it."""
    text = short(name, 80).strip()
    first, _, rest = text.partition(" ")
    irregular = {"is": "are", "was": "were", "has": "have", "does": "do", "goes": "go"}
    if first in irregular:
        plural = irregular[first]
    elif len(first) > 3 and re.fullmatch(r"[\w’'-]*[^\W_]s", first) and not re.search(r"(ss|us|is|ics|tes)$", first):
        plural = re.sub(r"(ch|sh|ss|x|zz)es$", r"\1", first)
        if plural == first:
            plural = re.sub(r"([^aeiou])ies$", r"\1y", first)
        if plural == first:
            plural = first[:-1]
    else:
        return f"{'without' if without else 'with'} {text}"
    if not without:
        return f"who {plural} {rest}".rstrip()
    if first in ("is", "was"):
        return f"who {plural} not {rest}".rstrip()
    return f"who do not {plural} {rest}".rstrip()


def range_sentence(one: Record) -> str:
    """Say how far a rate ranges over many groups, beside what chance alone would make of it."""
    what = str(RATE_TITLES.get(one["rate"], one["rate"])).lower()
    return (
        f"The {what} ranges over {number(100 * one['value'])} points in {counted(one['groups'], 'group')} of "
        f"“{short(one['attribute'], 40)}”, from {short(one['lowest'], 40)} to {short(one['highest'], 40)}. Groups that "
        f"are all alike would range over {number(100 * one['expected'])} points by chance, and over more than "
        f"{number(100 * one['high'])} in 1 of 20 audits."
    )


def detectable_sentences(result: Record) -> list[str]:
    """Say for each sensitive column which gaps its rows could have shown; of several classes, in the rarest."""
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
    """Say which gaps the rows of one sensitive column could have shown; ``rates`` are of one column."""
    parts = []
    for one in rates:
        title = str(RATE_TITLES.get(one["rate"], one["rate"])).lower()
        least, most = one["best"]["gap"], one["worst"]["gap"]
        if least is None:
            gap = "no gap, however large,"
        elif most is None:
            gap = f"{number(100 * least)} points, but between the smallest groups none, however large,"
        elif number(100 * least) == number(100 * most):
            gap = f"{number(100 * least)} points"
        else:
            gap = f"{number(100 * least)} to {number(100 * most)} points"
        parts.append(f"{gap} in the {title}" + (f" of “{short(one['class'], 40)}”" if one.get("several") else ""))
    power = round(100 * rates[0]["power"])
    return (
        f"{short(rates[0]['attribute'], 40)}: these rows could have shown a gap of {joined(parts)}, with a probability "
        f"of {power}%{', by the sizes of the groups' if any(' to ' in part for part in parts) else ''}. Smaller gaps "
        "may be there."
    )


def one_run_sentence(figure: Estimate, attribute: str, metric: str = "equalized_odds") -> str:
    """Say the gap of one run: what another training seed would give is not measured."""
    sentence = gap_sentence(figure, attribute, metric)
    return f"{sentence} One run: the variance over training seeds is not in it." if figure.defined else sentence


def several_sentence(
    findings: Sequence[tuple[str, list[Difference]]], baseline: str, metric: str = "equalized_odds"
) -> str:
    """Say what several comparisons, each a title and its differences, found together.

    ``baseline`` is empty where each has another one.
    """
    whose = possessive(baseline) if baseline else "its baseline’s"
    decided = [short(title) for title, differences in findings if any(one.decided for one in differences)]
    what = METRICS[metric].phrase
    count = counted(len(findings), "comparison")
    if decided:
        return f"In {len(decided)} of {count} these data tell a method’s {what} apart from {whose}: {joined(decided)}."
    defined = [one for _, differences in findings for one in differences if one.estimate.defined]
    if not defined:
        return f"The {what} is undefined in all of {count}."
    apart = f"tell a method’s {what} apart from {whose}"
    return f"In none of {count} can these data {apart}: {_range(defined)}."


def _size(metric: str, value: float) -> str:
    small, large = ("lower", "higher") if METRICS[metric].larger_is_better else ("smaller", "larger")
    return small if value < 0 else large


def _ends(reason: str | None) -> str:
    """Return a reason as the end of a sentence."""
    return f"{short(reason or 'no reason was recorded', 300).rstrip('.')}."
