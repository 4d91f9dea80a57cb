"""The questions of an audit: a new one is a class in a file here and a line in :data:`PARTS`, or a user's own."""

from __future__ import annotations

from levelhead.auditing.continuous import Along
from levelhead.auditing.control import Control
from levelhead.auditing.costs import CostPart
from levelhead.auditing.over_time import Time
from levelhead.auditing.own_metrics import OwnPart
from levelhead.auditing.paired import Against
from levelhead.auditing.part import Part
from levelhead.auditing.rates import Amplified, Rates
from levelhead.auditing.scores import Scores
from levelhead.registry import Registry
from levelhead.report.sentences import audit_sentences
from levelhead.report.text import Record
from levelhead.types import visible

PARTS: Registry[Part] = Registry(
    "part",
    Part,
    "levelhead.parts",
    "name",
    {one.name: one for one in (Along, CostPart, Against, Scores, Rates, Control, Time, Amplified, OwnPart)},
)
"""Beside the classes' gaps and rates, which every audit has; in the order of a page, after what each needs."""
ASKED = ("over_time", "control", "against")
"""Parts that answer a question of their own about the groups: what they say stands before what any audit says."""


def answers(result: Record) -> list[str]:
    """Return what these parts say first, from the JSON of an audit of classes or of decisions."""
    return [line for name in ASKED for line in PARTS[name].brief(result)]


def sentences(result: Record) -> list[str]:
    """Return all that an audit of classes says, the finding first, from its JSON without sentences."""
    beside = [line for one in PARTS.own() if one.name not in (*ASKED, Rates.name) for line in one.brief(result)]
    beside = [one["sentences"][0] for one in result.get("parts", {}).values() if one["sentences"]] + beside
    said = audit_sentences(result, asked=answers(result), ratios=Rates.brief(result), beside=beside)
    return [visible(one) for one in dict.fromkeys(said)]
