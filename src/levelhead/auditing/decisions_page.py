"""The page of an audit of decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from levelhead.auditing.brief import ON_SHEET, ROOM, of_groups, range_cell, reference_note
from levelhead.auditing.over_time import Time
from levelhead.auditing.parts import answers
from levelhead.auditing.rates import FOUR_FIFTHS, four_fifths, ratio_cell, ratio_span
from levelhead.metrics.between import lowest
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.provenance import provenance
from levelhead.report.sentences import named_group
from levelhead.report.text import (
    Record,
    counted,
    estimate_from_dict,
    level_text,
    number,
    percent,
    percent_interval,
    short,
)
from levelhead.types import Estimate, in_quotes, printable

_TERMS = (
    ("Selection rate", "The share of a group’s rows with the favourable decision."),
    ("Difference", "The group’s selection rate minus that of the reference group, in percentage points."),
    (
        "Impact ratio",
        "The group’s selection rate divided by that of the reference group. The four-fifths rule (US EEOC 1978) asks "
        "whether it is below 0.8. It is a rule of thumb, not a finding of discrimination.",
    ),
    (
        "Interval",
        "{level} confidence, for all groups and columns together. Differences have Newcombe’s intervals, ratios "
        "Donner and Zou’s; both agree with Fisher’s exact test.",
    ),
    ("p-value", "Fisher’s exact test, adjusted for the number of comparisons (Bonferroni)."),
)


class _Told(NamedTuple):
    """A group beside its reference: the difference, the ratio and the sentence."""

    apart: Estimate
    ratio: Estimate
    sentence: str

    @property
    def notable(self) -> bool:
        """Whether the group differs from its reference or is below four fifths."""
        return self.apart.excludes_zero or self.ratio.value < FOUR_FIFTHS


def decisions_page(result: Record, *, source: str = "") -> Record:
    """Summarise an audit of decisions.

    Args:
        result: what :meth:`levelhead.auditing.decisions.DecisionAudit.to_dict` returns, or the JSON of it.
        source: what was audited, in a word, for example the file's name.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    level = level_text(result["level"])
    by_attribute, overall = result["by_attribute"], estimate_from_dict(result["overall"])
    finding, *lines = said = [*answers(result), *decision_sentences(result)]
    brief, sheet = _overview(result, level, said)
    every = len(brief["ranked"]) > ON_SHEET
    sections = {
        name: [_section(name, column, level, every), *Time.column_sections(name, result)]
        for name, column in by_attribute.items()
    }
    parts = blocks.by_column(sections)
    items = [("Decisions", source)] if source else []
    items += [
        ("Column", result["decision"]),
        ("Level", level),
        ("Comparisons", f"{result['comparisons']:,}"),
    ]
    items += [(term, text.format(level=level)) for term, text in _TERMS]
    how = blocks.section("How it was measured", [blocks.terms(items), blocks.paragraph(CAUTION)])
    adjusted = f"Intervals and p-values are adjusted for {counted(result['comparisons'], 'comparison')}. {CAUTION}"
    parts.append(blocks.part(blocks.of_terminal(result, adjusted)))
    return blocks.page(
        "Audit of decisions",
        finding,
        parts,
        facts=[
            ("Rows", f"{overall.n:,}", ""),
            ("Selection rate", percent(overall), f"percent, interval {percent_interval(overall)}"),
            ("Favourable", f"“{short(result['favourable'], 40)}”", f"in column {short(result['decision'], 40)}"),
        ],
        lines=lines,
        **blocks.audited(result, source or "decisions"),
        brief=brief,
        sheets=[
            [blocks.section("Selection rates", [sheet]), ROOM],
            [how, provenance(result)],
        ],
    )


def _overview(result: Record, level: str, said: Sequence[str]) -> tuple[Record, Record]:
    """Return what fits a screen, and the table of the first sheet."""
    by_attribute = result["by_attribute"]

    def cells(name: str, group: str) -> list[Record]:
        found, reference = by_attribute[name]["groups"][group], group == by_attribute[name]["reference"]
        ratio = None if found["selection_ratio"] is None else estimate_from_dict(found["selection_ratio"])
        return [
            blocks.cell(f"{found['n']:,}"),
            blocks.cell(f"{found['selected']:,}"),
            range_cell(estimate_from_dict(found["selection_rate"])),
            blocks.cell("reference", quiet=True) if reference and ratio is None else range_cell(ratio, 1, 2),
            blocks.p_cell(found["p_value"]),
        ]

    heads = ["Group", "Rows", "Selected", "Selection rate, %", "Impact ratio", "p"]
    known = {name: column["reference"] for name, column in by_attribute.items() if column["reference"] is not None}
    given = any(by_attribute[name]["reference_is_given"] for name in known)
    notes = [reference_note(known, given, "Impact ratios", by_attribute)]
    return of_groups(by_attribute, said, cells, f"Decisions by {{}}, with {level} intervals", heads, notes)


def decision_sentences(result: Record) -> list[str]:
    """Return one sentence for each group that differs from its reference or is below four fifths, the clearest first.

    Where no group does, one sentence says so, with the largest difference.
    """
    told = _every(result)
    if not told:
        small = [
            f"By {printable(name)}, nothing was compared: the reference group {in_quotes(column['reference'])} has "
            f"{counted(column['groups'][column['reference']]['n'], 'row')}, too few to be compared."
            for name, column in result["by_attribute"].items()
            if column["reference_is_given"] and not column["groups"][column["reference"]]["included"]
        ]
        return small or ["No two groups have enough rows to be compared."]
    shown = [one.sentence for one in told if one.notable]
    return shown or [f"No group’s selection rate differs measurably from its reference. {told[0].sentence}"]


def _every(result: Record) -> list[_Told]:
    """Return all groups beside their references: those that differ measurably first, then the lowest ratio."""
    told = [one for name, column in result["by_attribute"].items() for one in _told(name, column, result)]
    return sorted(told, key=lambda one: (not one.apart.excludes_zero, *lowest(one.ratio)))


def _told(name: str, column: Record, result: Record) -> Iterator[_Told]:
    groups, reference = column["groups"], column["reference"]
    for group, found in groups.items():
        if found["selection_ratio"] is None:
            continue
        ratio, apart = estimate_from_dict(found["selection_ratio"]), estimate_from_dict(found["difference"])
        own, other = (estimate_from_dict(groups[one]["selection_rate"]) for one in (group, reference))
        by = f"By {printable(name)}, " if len(result["by_attribute"]) > 1 else ""
        whom = f"{percent(own)}% of {named_group(name, group)} and {percent(other)}% of {named_group(name, reference)}"
        sentence = (
            f"{by}“{short(result['favourable'], 40)}” is the decision for {whom}: a difference of "
            f"{percent(apart, signed=True)} percentage points (interval {percent_interval(apart, signed=True)})"
            f"{'' if apart.excludes_zero else '; inconclusive'}."
        )
        yield _Told(apart, ratio, f"{sentence} {_verdict(ratio)}")


def _verdict(ratio: Estimate) -> str:
    if not ratio.defined:
        return f"The impact ratio is undefined: {ratio.reason}."
    return f"The impact ratio is {number(ratio.value, 2)} (interval {ratio_span(ratio)}): {four_fifths(ratio)}."


def _section(name: str, column: Record, level: str, every: bool) -> Record:
    """Return what the first sheet has no room for; a terminal gets a table of all figures, a page too if ``every``."""
    reference = column["reference"]
    rows: list[tuple[object, list[Record]]] = []
    drawn = []
    for group, found in column["groups"].items():
        counts = [blocks.cell(f"{found['n']:,}"), blocks.cell(f"{found['selected']:,}")]
        rows.append((group, [*counts, blocks.figure_cell(found["selection_rate"]), *_beside(group, found, reference)]))
        if found["difference"] is not None:
            apart = estimate_from_dict(found["difference"])
            drawn.append(blocks.forest_row(group, apart, decided=apart.excludes_zero))
    chosen = "as chosen" if column["reference_is_given"] else "the most selected group"
    to = "Nothing is compared." if reference is None else f"The reference is {in_quotes(reference)}, {chosen}."
    table = blocks.table(
        f"Decisions by {short(name)}, with {level} intervals",
        [
            "Group",
            "Rows",
            ("Selected", "Rows with the favourable decision."),
            ("Selection rate", "Percent of the group’s rows."),
            ("Difference", "To the reference group, in percentage points."),
            ("Impact ratio", "To the reference group. The four-fifths rule asks whether it is below 0.8."),
            ("p", "Fisher’s exact test, adjusted for all comparisons."),
        ],
        rows,
        notes=[to, _room(column)],
        page_columns=[6],
        where=blocks.BOTH if every else blocks.TERMINAL,
    )
    heads = (f"Group of {short(name, 40)}", f"Difference, points [{level} interval]")
    return blocks.section(
        "Differences",
        [table, *([blocks.forest(f"Difference to {short(reference)}", drawn, heads=heads)] if drawn else [])],
    )


def _room(column: Record) -> str:
    """Say which difference these rows could have shown."""
    if column["smallest"] is None:
        return ""
    few, other = (in_quotes(column[name]) for name in ("smallest", "reference"))
    pair = f"{few}, the smallest group compared, and {other}"
    if column["detectable"] is None:
        return f"Between {pair}, no difference could be detected with this few rows."
    return (
        f"With this many rows, a difference of {number(100 * column['detectable'])} percentage points between {pair}, "
        "is detected with a probability of 80%."
    )


def _beside(group: str, found: Record, reference: str | None) -> list[Record]:
    if group == reference and found["selection_ratio"] is None:
        return [blocks.cell("the reference", quiet=True), blocks.no_cell(), blocks.no_cell()]
    if found["selection_ratio"] is None:
        return [blocks.cell("not compared", quiet=True), blocks.no_cell(), blocks.no_cell()]
    return [
        blocks.figure_cell(found["difference"], signed=True),
        ratio_cell(estimate_from_dict(found["selection_ratio"])),
        blocks.p_cell(found["p_value"]),
    ]
