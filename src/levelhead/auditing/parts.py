"""The questions of an audit: a new one is a class in a file here and a line in :data:`PARTS`, or a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from levelhead.auditing.continuous import Along
from levelhead.auditing.control import Control
from levelhead.auditing.costs import CostPart
from levelhead.auditing.engine import headline
from levelhead.auditing.over_time import Time
from levelhead.auditing.own_metrics import OwnPart
from levelhead.auditing.paired import Against
from levelhead.auditing.part import Answer, Part
from levelhead.auditing.rates import Amplified, Rates
from levelhead.auditing.scores import Scores
from levelhead.registry import Registry
from levelhead.report.headline import Lead
from levelhead.report.sentences import Words, audit_leads
from levelhead.report.text import Record

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


def asked(findings: Mapping[str, Any], plain: Lead | None = None) -> list[Lead]:
    """Return what these parts say first, of their findings; ``plain`` is what the audit names unless more was asked."""
    return [one for name in ASKED if name in findings for one in headline(findings[name].leads, plain)]


def leads(result: Record, findings: Mapping[str, Any], own: Mapping[str, Answer]) -> list[Lead]:
    """Return all that an audit of classes says, the headline first.

    Args:
        result: its JSON without sentences.
        findings: what its parts found, by name.
        own: what those of the user's found.
    """
    lines = [line for one in own.values() for line in one.sentences()[:1]]
    lines += [line for one in (Against, Along, CostPart, Scores, OwnPart) for line in one.brief(result)]
    ratios = findings[Rates.name].leads
    said = audit_leads(
        result, asked=asked(findings, plain_lead(result, ratios)), ratios=ratios, beside=[Lead((one,)) for one in lines]
    )
    return list({one.sentence: one for one in reversed(said)}.values())[::-1]


def plain_lead(result: Record, ratios: Sequence[Lead]) -> Lead | None:
    """Return what an audit names unless more was asked: the lowest ratio of the favourable outcome, or the largest gap.

    The gap is that of the positive class, whatever class sentences are about; it has no words. Ratios of one of several
    other classes say nothing of the rates that parts compare, which are the positive one's.

    Args:
        result: the audit's JSON, or what of it is known.
        ratios: of the favourable outcome.
    """
    pair = result["finding"]["pair"]
    if pair is None or (ratios and Words(result).favourable is not None):
        return next(iter(ratios), None)
    groups = pair["first"]["group"], pair["second"]["group"]
    return Lead((), "", pair["attribute"], pair["rate"], pair["class"], groups)
