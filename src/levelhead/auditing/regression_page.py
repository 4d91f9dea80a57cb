"""The page of an audit of predicted numbers."""

from __future__ import annotations

from typing import Any

from levelhead.auditing.brief import ROOM
from levelhead.auditing.regression_beside import QUANTITIES
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.provenance import provenance
from levelhead.report.text import Record, counted, digits, estimate_from_dict, level_text, short, span
from levelhead.types import Estimate, printable

MOST_PAIRS, PAIRS_PRINTED = 12, 10
"""Pairs of groups that are shown at once, where a click shows more, and in a terminal."""
NOT_COMPARED = "too few rows, or no group: not compared"

_TERMS = (
    ("Error", "The prediction minus its label, in the unit of the label. Above 0: predicted too high."),
    ("Mean absolute error", "Mean distance between prediction and label."),
    (
        "Root mean squared error",
        "The same with large errors counting more. It has no reliable interval.",
    ),
    (
        "Interval",
        "{level} confidence intervals. Means use Student’s t; mean absolute errors the wider end of the plain and the "
        "log scale. Differences use variance recovery, adjusted for all comparisons.",
    ),
)


def regression_page(result: Record, *, source: str = "") -> Record:
    """Return the page of an audit of numbers, from its JSON; arguments are those of :attr:`Report.make_page`."""
    level = level_text(result["level"])
    by_attribute, label = result["by_attribute"], short(result["label"], 60)
    beside = [_levels_section(result, level), _against_section(result, level)]
    parts = [blocks.part([_pairs_section(result, level), *beside, _along_section(result)])]
    parts += blocks.by_column({name: [_groups_section(name, one, label, level)] for name, one in by_attribute.items()})
    items = [("Predictions", source)] if source else []
    items += [("Label", label), ("Level", level)]
    words = [
        blocks.terms(items),
        blocks.terms([(term, text.format(level=level)) for term, text in _TERMS]),
        blocks.paragraph(CAUTION),
    ]
    note = f"An error is a prediction minus its label, in the unit of {printable(result['label'])}."
    how = blocks.section("How it was measured", words)
    parts.append(blocks.part([*blocks.of_terminal(result, note), ROOM, how, provenance(result)]))
    finding, *lines = result["sentences"]
    overall = result["overall"]
    facts = [("Rows", f"{result['rows']:,}", ""), *_facts(overall, level)]
    if result["explained"] is not None:
        facts.append(("Variance explained", f"{100 * result['explained']:.1f}", "percent of the label’s"))
    return blocks.page(
        "Audit of predicted numbers",
        finding,
        parts,
        facts=facts,
        lines=lines,
        **blocks.audited(result, source or "predictions"),
    )


def _facts(overall: Record, level: str) -> list[tuple[str, str, str]]:
    found = []
    for name, title in list(QUANTITIES.items())[:2]:
        figure = estimate_from_dict(overall[name])
        found.append((title, digits(figure.value), f"{level} interval {span(figure)}" if span(figure) else ""))
    return found


def _groups_section(name: str, groups: Record, label: str, level: str) -> Record:
    """Return the groups' means, as drawings and as a table."""
    drawn = [
        blocks.forest(
            f"{title} of each group of {short(name)}, in the unit of {label}, with {level} intervals",
            [
                _forest_row(group, estimate_from_dict(figures[quantity]), decided=figures["included"])
                for group, figures in groups.items()
            ],
            heads=("Group", title),
            ends=ends,
        )
        for quantity, title, ends in (
            ("mean_error", "Mean error", ("predicted too low", "predicted too high")),
            ("mean_absolute_error", "Mean absolute error", ("", "")),
        )
    ]
    rows = []
    for group, figures in groups.items():
        cells = [blocks.cell(f"{figures['n']:,}"), blocks.cell(digits(_number(figures["mean_label"])))]
        for quantity in QUANTITIES:
            cells.append(blocks.figure_cell(figures[quantity], None))
        cells.append(blocks.cell(digits(_number(figures["root_mean_squared_error"]))))
        rows.append((group, cells, "" if figures["included"] else NOT_COMPARED))
    heads = ["Group", "Rows", "Mean label", *QUANTITIES.values(), "Root mean squared error"]
    caption = f"Groups of {short(name)}, in the unit of {label}, with {level} intervals"
    table = blocks.table(caption, heads, rows, page_columns=[2, 6], where=blocks.BOTH)
    return blocks.section("The groups", [*drawn, table])


def _forest_row(group: str, figure: Estimate, *, decided: bool) -> Record:
    """Return a line of a drawing whose figures are in any unit."""
    row = blocks.forest_row(group, figure, decided=decided, scale=1)
    return row | {"text": digits(figure.value), "sub": span(figure) or "no interval"}


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _pairs_section(result: Record, level: str) -> Record:
    """Return the pairs of groups that differ most."""
    rows = []
    for pair in result["pairs"]:
        cells = [blocks.cell(QUANTITIES[pair["quantity"]]), blocks.figure_cell(pair["difference"], None)]
        rows.append((f"{short(pair['first'])} minus {short(pair['second'])}", cells))
    if not rows:
        return blocks.section("Who differs most", [])
    heads = ["Groups", "Mean", "Apart"]
    note = f"Intervals are adjusted for {result['comparisons']:,} comparisons (Bonferroni)."
    caption = f"airs of groups that differ most, with {level} intervals"
    where = blocks.BOTH if len(rows) > 1 else blocks.PAGE
    options: dict[str, Any] = {"text_columns": [1], "most": PAIRS_PRINTED, "where": where}
    shown = [blocks.table(f"P{caption}", heads, rows[:MOST_PAIRS], notes=[note], **options)]
    if more := rows[MOST_PAIRS:]:
        folded = f"{counted(len(more), 'more pair')} of groups"
        shown.append(blocks.table(f"More p{caption}", heads, more, text_columns=[1], folded=folded))
    return blocks.section("Who differs most", shown, rank=2)


def _levels_section(result: Record, level: str) -> Record:
    """Return the pairs of groups within levels of another column."""
    found = result.get("control") or {"pairs": [], "column": ""}
    rows = [
        (
            f"{short(one['first'])} minus {short(one['second'])}",
            [
                blocks.cell(QUANTITIES[one["quantity"]]),
                blocks.figure_cell(one["difference"], None),
                blocks.cell(digits(one["plain"])),
                blocks.cell(f"{one['levels']:,}"),
            ],
        )
        for one in found["pairs"][:MOST_PAIRS]
    ]
    within = f"ithin levels of {short(found['column'], 60)}"
    caption = f"Pairs of groups w{within}, averaged over levels, with {level} intervals"
    heads = ["Groups", "Mean", "Within levels", "Without levels", "Levels"]
    return _beside_section(f"W{within}", caption, heads, rows, found)


def _against_section(result: Record, level: str) -> Record:
    """Return what changed between two models."""
    found = result.get("against") or {"changes": [], "old": "", "new": ""}
    rows = [
        (
            short(one["group"]) if one["other"] is None else f"{short(one['group'])} minus {short(one['other'])}",
            [
                blocks.cell(QUANTITIES[one["quantity"]]),
                *(blocks.cell(digits(_number(one[model]))) for model in ("old", "new")),
                blocks.figure_cell(one["change"], None),
            ],
        )
        for one in found["changes"][: 2 * MOST_PAIRS]
    ]
    caption = f"From {short(found['old'], 60)} to {short(found['new'], 60)} on the same rows, with {level} intervals"
    heads = ["Group, or two of them", "Mean", "Old", "New", "Change"]
    return _beside_section("Against the other model", caption, heads, rows, found)


def _beside_section(
    title: str, caption: str, heads: list[str], rows: list[tuple[str, list[Record]]], found: Record
) -> Record:
    """Return a section with one table of comparisons; empty where there are none."""
    table = blocks.table(
        caption,
        heads,
        rows,
        notes=[f"Intervals are adjusted for {found.get('comparisons', 0):,} comparisons (Bonferroni)."],
        text_columns=[1],
        most=PAIRS_PRINTED,
        where=blocks.BOTH,
    )
    return blocks.section(title, [table] if rows else [], rank=1)


def _along_section(result: Record) -> Record:
    shown: list[Record] = []
    for name, found in result["continuous"].items():
        shown += blocks.said(found["sentences"])
        if found["curve"]:
            shown.append(
                blocks.curves(
                    f"Error along {short(name)}: cubic fit",
                    [("fitted error", [(at, value) for at, value in found["curve"]])],
                    titles=(short(name), "Error"),
                    notes=["Between the 5th and the 95th percentile."],
                )
            )
    return blocks.section("Along numbers", shown, rank=5)
