"""What an audit's page says of another model on the same rows: what changed, who gained and who lost."""

from __future__ import annotations

from levelhead.auditing.score_changes import area_table
from levelhead.metrics.names import RATE_TITLES, metric_title
from levelhead.report import blocks
from levelhead.report.text import Record, estimate_from_dict, level_text, number, short
from levelhead.types import printable

MOST_GROUPS = 20


def paired_sections(name: str, result: Record) -> list[Record]:
    """Return the section on one sensitive column; none where the audit compares no models."""
    against = result.get("against")
    if against is None or name not in against["by_attribute"]:
        return []
    own, level = against["by_attribute"][name], level_text(result.get("level", 0.95))
    heads: list[str | tuple[str, str]] = [
        "Old",
        "New",
        ("Change, points", f"New minus old, with its {level} interval."),
        ("p (Holm)", _HOLM),
    ]
    models = f"{short(against['new'])} (new) against {short(against['old'])} (old)"
    figures = blocks.table(
        f"{models}, the same rows, by {short(name)}, percent",
        ["Figure", *heads],
        [(metric_title(key), _cells(change)) for key, change in own["metrics"].items()],
        where=blocks.BOTH,
    )
    agreement = blocks.table(
        f"Rows by which model is right, by group of {short(name)}",
        ["Group", "Rows", "Both right", "Only the new one", "Only the old one", "Both wrong"],
        [
            (
                group,
                [
                    blocks.cell(f"{rows[key]:,}")
                    for key in ("n", "both_right", "only_new_right", "only_old_right", "both_wrong")
                ],
            )
            for group, rows in own["groups"].items()
        ],
        where=blocks.BOTH,
    )
    shown = list(own["groups"].items())[:MOST_GROUPS]
    more = (
        f"The first {MOST_GROUPS} of {len(own['groups'])} groups; the JSON has all."
        if len(own["groups"]) > MOST_GROUPS
        else ""
    )
    rates = blocks.table(
        f"Change of each rate by group of {short(name)}",
        ["Group and rate", *heads],
        [
            (f"{short(group, 60)}: {rate_title(rate)}", _cells(change))
            for group, rows in shown
            for rate, change in rows["rates"].items()
        ],
        notes=[more],
        where=blocks.BOTH,
    )
    areas = area_table(name, own.get("areas") or {}, level)
    shown = [*blocks.said(own["sentences"]), *areas, figures, agreement, rates]
    return [blocks.section("The same rows, two models", shown, rank=3)]


_HOLM = "p-value of the change, adjusted for all changes in the table (Holm)."


def _cells(change: Record) -> list[Record]:
    figure = estimate_from_dict(change["difference"])
    if not figure.defined:
        return [blocks.undefined_cell(figure.reason), *[blocks.no_cell()] * 3]
    p_value = change["p_holm"]
    shown = "–" if p_value is None else "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
    return [
        blocks.cell(number(100 * change["old"])),
        blocks.cell(number(100 * change["new"])),
        blocks.figure_cell(figure, signed=True),
        blocks.cell(shown),
    ]


def rate_title(rate: str) -> str:
    """Say a rate in words, with its class where several are compared."""
    name, _, ending = rate.partition("[")
    return RATE_TITLES[name] + (f" [{printable(ending)}" if ending else "")
