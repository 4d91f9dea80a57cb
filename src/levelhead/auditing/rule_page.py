"""The page of a rule that flips decisions: what it does to a gap, what that costs, and for whom."""

from __future__ import annotations

from levelhead.auditing.paired_page import paired_sections
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.text import Record, short

USES_GROUPS = (
    "USES GROUPS: this rule reads each row's group to decide. In many places that is not lawful for decisions about "
    "people. It makes no model just; it trades accuracy for a smaller measured gap."
)


def rule_page(result: Record, *, source: str = "", command: str = "") -> Record:
    """Return the page of a rule, from its JSON; arguments are those of :attr:`Report.make_page`."""
    rule = result["rule"]
    # A rule that was written before its sentences were.
    finding, *lines = result.get("sentences") or [f"The rule flips {result['flipped']:,} decisions."]
    against = result.get("against") or {"by_attribute": {}}
    sections = [section for name in against["by_attribute"] for section in paired_sections(name, result)]
    tables = [
        section | {"blocks": [block for block in section["blocks"] if block["type"] == "table"]} for section in sections
    ]
    terms = [
        ("Bounded gap", f"{rule['metric'].replace('_', ' ')}, at most {100 * rule['delta']:g} points"),
        ("Threshold", f"{result['threshold']:g}"),
        ("Groups", ", ".join(map(short, rule["groups"]))),
        ("Rows", f"fitted on {result['rows_to_fit']:,}, measured on {result['rows_to_measure']:,}"),
    ]
    parts = [
        blocks.section("Who is asked", [blocks.paragraph(USES_GROUPS, strong=True, where=blocks.BOTH)], rank=-1),
        *tables,
        *blocks.of_terminal(result, "USES GROUPS."),
        blocks.section("The rule", [blocks.terms(terms), blocks.paragraph(CAUTION)]),
    ]
    return blocks.page(
        "Rule",
        finding,
        [blocks.part(parts)],
        title=f"A rule for {source or 'predictions'}",
        about=source,
        lines=lines,
        cautions=result.get("warnings") or [],
        command=command,
    )
