"""The page of an audit without the attribute: the answer, and what it rests on."""

from __future__ import annotations

import math

from levelhead.auditing.missing.gaps import TITLES
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.text import Record, estimate_from_dict, number, short


def indirect_page(result: Record, *, source: str = "", command: str = "") -> Record:
    """Summarise an audit without the attribute.

    Args:
        result: what :meth:`levelhead.auditing.missing.choice.IndirectAudit.to_dict` returns, or the JSON of it.
        source: what was audited, in a word, for example the file's name.
        command: the command that made the page.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    parts = result["parts"]
    level = f"{result.get('level', 0.95):.0%}"
    pages = [
        blocks.part(_sections(name, part, level), title=name if len(parts) > 1 else "") for name, part in parts.items()
    ]
    items = [("Predictions", source)] if source else []
    items += [("Positive class", str(result["positive"])), ("Level", level)]
    pages.append(blocks.part([blocks.section("How it was measured", [blocks.terms(items), blocks.paragraph(CAUTION)])]))
    first, *others = parts.values()
    return blocks.page(
        "Audit without the attribute",
        first["headline"],
        pages,
        title=f"Audit of {source or 'predictions'} without the attribute",
        about=f"{source or 'predictions'}: groups that are not recorded, or only in part",
        facts=[("Rows", f"{result['rows']:,}", "counted; no row’s group was guessed")],
        lines=[part["headline"] for part in others],
        cautions=result["warnings"],
        command=command,
    )


def _sections(name: str, part: Record, level: str) -> list[Record]:
    rows = []
    for gap in part["gaps"]:
        title = f"{TITLES[gap['gap']]}: {gap['groups'][0]} minus {gap['groups'][1]}"
        figure = estimate_from_dict(gap)
        decided = figure.defined and not figure.low <= 0 <= figure.high
        rows.append((title, gap, figure, decided))
    shown: list[Record] = []
    if any(figure.defined for _, _, figure, _ in rows):
        shown.append(
            blocks.forest(
                f"Gaps by {short(name)}, points with {level} intervals",
                [blocks.forest_row(title, figure, decided=decided) for title, _, figure, decided in rows],
                heads=("Gap", "Points"),
                ends=("first group lower", "first group higher"),
                notes=["A filled mark: the interval leaves out 0."],
            )
        )
    naive = list(dict.fromkeys(proxy for _, gap, _, _ in rows for proxy in gap["naive"]))
    columns = ["Gap", "Points", f"{level} interval", *(f"Naive: {short(one, 40)}" for one in naive), "Worst case"]
    table = []
    for title, gap, figure, _ in rows:
        cells = [blocks.undefined_cell(figure.reason), blocks.cell("–", quiet=True)]
        if figure.defined:
            ends = f"{number(100 * figure.low, signed=True)} to {number(100 * figure.high, signed=True)}"
            cells = [blocks.cell(number(100 * figure.value, signed=True)), blocks.cell(ends)]
        for proxy in naive:
            value = gap["naive"].get(proxy)
            cells.append(blocks.cell("–" if value is None else number(100 * value, signed=True), quiet=True))
        worst = gap.get("worst_case")
        low, high = worst["interval"] if worst else (math.nan, math.nan)
        said = f"{number(100 * low, signed=True)} to {number(100 * high, signed=True)}" if worst else "–"
        table.append((title, [*cells, blocks.cell(said, quiet=not worst)]))
    shown.append(blocks.table(f"Gaps by {short(name)}, in points", columns, table))
    return [
        blocks.section("The gaps", shown),
        blocks.section("What this answer rests on", [blocks.bullets(part["rests_on"])]),
    ]
