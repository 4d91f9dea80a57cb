"""What a comparison of two models on the same rows found: dataclasses, and their sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from levelhead.auditing.part import Answer
from levelhead.auditing.score_changes import AreaChange, area_leads
from levelhead.metrics.names import Key, attribute_names, by_names, group_name
from levelhead.report.headline import Lead
from levelhead.report.record import Finding
from levelhead.report.sentences import change_lead, group_change_lead, turned
from levelhead.report.text import short
from levelhead.report.wide import Fraction
from levelhead.types import Estimate, printable

GAP = "equalized_odds_worst"
"""The gap whose change is said first."""


@dataclass(frozen=True)
class Change(Finding):
    """One figure of both models: ``old``, ``new``, and ``difference`` (new less old) with its interval and p-values."""

    old: float
    new: float
    difference: Estimate
    p_value: float
    p_holm: float


@dataclass(frozen=True)
class GroupChange(Finding):
    """One group: rows by who is right, and the change of each rate.

    ``both_right``, ``only_new_right`` (gained), ``only_old_right`` (lost) and ``both_wrong`` add up to ``n``.
    ``rates`` has accuracy, selection rate, true and false positive rate; with several classes the rates other than
    accuracy end in ``[class]``.
    """

    n: int
    included: bool
    both_right: int
    only_new_right: int
    only_old_right: int
    both_wrong: int
    rates: dict[str, Change]


@dataclass(frozen=True)
class PairedAttribute(Finding):
    """One sensitive column or crossing: ``metrics`` of the whole, ``groups``, and the ``areas`` of two scores."""

    metrics: dict[str, Change]
    groups: dict[Key, GroupChange]
    areas: dict[Key, AreaChange] = field(default_factory=dict)


@dataclass(frozen=True)
class PairedAudit(Answer):
    """What :func:`compare_rows` found, by sensitive column; ``old`` and ``new`` are what the models are called.

    ``favourable``: what the favourable outcome is called, and whether selection rates are those of the
    other one; None: not known, or of several classes.
    """

    by_attribute: dict[Key, PairedAttribute]
    old: str
    new: str
    level: float
    warnings: tuple[str, ...] = ()
    favourable: tuple[str, bool] | None = None

    @property
    def leads(self) -> list[Lead]:
        """How the gap changed by each sensitive column."""
        return [one for each in self.by_attribute for one in self.leads_of(each)[:1]]

    def sentences(self) -> list[str]:
        """Say what was found by all sensitive columns."""
        return [one.sentence for each in self.by_attribute for one in self.leads_of(each)]

    def leads_of(self, key: Key) -> list[Lead]:
        """Say what was found by one sensitive column."""
        name, part = attribute_names(self.by_attribute)[key], self.by_attribute[key]
        outcome = [] if self.favourable is None else outcome_leads(name, part, *self.favourable, self.level)
        return [*paired_leads(name, part, self.level), *outcome, *area_leads(name, part.areas)]

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every change, new less old."""
        for name, part in by_names(self.by_attribute).items():
            found: list[tuple[Key | None, str, Change]] = [(None, metric, one) for metric, one in part.metrics.items()]
            found += [(group, rate, one) for group, own in part.groups.items() for rate, one in own.rates.items()]
            for group, figure, one in found:
                for which, value in (("old", one.old), ("new", one.new)):
                    yield name, group, Fraction(f"{figure}_{which}"), Estimate.without_interval(value, one.difference.n)
                yield name, group, Fraction(f"{figure}_change"), one.difference
            for group, area in part.areas.items():
                yield name, group, Fraction("area_change"), area.change

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        names = attribute_names(self.by_attribute)
        by_attribute: dict[str, dict[str, Any]] = {
            names[key]: {**part.to_dict(), "sentences": [one.sentence for one in self.leads_of(key)]}
            for key, part in self.by_attribute.items()
        }
        return {"old": self.old, "new": self.new, "by_attribute": by_attribute}


def _changed(part: PairedAttribute, rate: str, level: float) -> list[tuple[str, Change]]:
    """Return the groups whose rate changed, decided with all changes allowed for, the five largest changes first."""
    there = [(group_name(key), one.rates[rate]) for key, one in part.groups.items() if one.included]
    decided = [(group, one) for group, one in there if one.p_holm <= 1 - level]
    return sorted(decided, key=lambda item: -abs(item[1].difference.value))[:5]


def paired_leads(name: str, part: PairedAttribute, level: float = 0.95) -> list[Lead]:
    """Say whether the gap changed, and then which groups' accuracy did."""
    by = f"By {printable(name)}"
    leads = _gap_leads(by, name, part.metrics) if GAP in part.metrics else []
    if not any(group.included for group in part.groups.values()):
        none = f"{by}, no group has enough rows to be compared, so no change of accuracy was measured."
        return [*leads, Lead((none,), column=name)]
    changed = [
        group_change_lead(name, group, "accuracy", one.old, one.new, one.difference)
        for group, one in _changed(part, "accuracy", level)
    ]
    return [*leads, *(changed or [Lead((f"{by}, no group’s accuracy changed measurably.",), column=name)])]


def _gap_leads(by: str, name: str, metrics: Mapping[str, Change]) -> list[Lead]:
    """Say how the gap changed, about the rate that it is of in the model in which it is larger."""
    gap, equal = metrics[GAP], metrics.get("equal_opportunity")
    if not gap.difference.defined:
        return []
    side = "old" if gap.old > gap.new else "new"
    of_hits = equal is not None and math.isclose(getattr(equal, side), getattr(gap, side))
    rate = "true_positive_rate" if of_hits else "false_positive_rate"
    subject = (f"{by}, the larger part of the equalized-odds gap",)
    more: dict[str, Any] = {"unit": " points", "column": name, "quantity": rate}
    return [change_lead(subject, gap.old, gap.new, gap.difference, **more)]


def outcome_leads(name: str, part: PairedAttribute, favourable: str, other: bool, level: float = 0.95) -> list[Lead]:
    """Say which groups get the favourable outcome more or less often from the new model, the largest change first."""
    what, leads = f" with the prediction “{short(favourable, 40)}”", []
    for group, one in _changed(part, "selection_rate", level):
        old, new, change = one.old, one.new, one.difference
        if other:
            old, new, change = 1 - old, 1 - new, turned(change, 0)
        leads.append(group_change_lead(name, group, "selection_rate", old, new, change, title="share", what=what))
    return leads
