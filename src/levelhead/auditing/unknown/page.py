"""The page of an audit without the attribute: the answer, and what it rests on."""

from __future__ import annotations

import math

from levelhead.metrics.names import RATE_TITLES
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.text import Record, estimate_from_dict, level_text, number, short

TITLES = {
    "demographic_parity": RATE_TITLES["selection_rate"],
    "equal_opportunity": RATE_TITLES["true_positive_rate"],
    "false_positive_rate": RATE_TITLES["false_positive_rate"],
}
METHODS = {
    "labelled subset": ("Labelled rows", "corrected by what is known of all others (PPI++)"),
    "three proxies": ("Proxies that agree", "and how often they do (HOC)"),
    "randomised responses": ("Randomised answers", "with the noise inverted"),
    "bounds": ("Worst case", "how large the gap could be; no estimate"),
}


def indirect_page(result: Record, *, source: str = "", command: str = "") -> Record:
    """Summarise an audit without the attribute.

    Args:
        result: what :meth:`levelhead.auditing.unknown.answer.IndirectAudit.to_dict` returns, or the JSON of it.
        source: what was audited, in a word, for example the file's name.
        command: the command that made the page.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    parts = result["parts"]
    level = level_text(result.get("level", 0.95))
    pages = [
        blocks.part(_sections(name, part, level), title=name if len(parts) > 1 else "") for name, part in parts.items()
    ]
    items = [("Predictions", source)] if source else []
    items += [("Positive class", str(result["positive"])), ("Level", level)]
    words = [blocks.terms(_words(result)), blocks.terms(items), blocks.paragraph(CAUTION)]
    note = f"Positive class: {short(result['positive'])}. Gaps are signed differences in points."
    pages.append(blocks.part([*blocks.of_terminal(result, note), blocks.section("How it was measured", words)]))
    first, *others = parts.values()
    method, note = METHODS[first["method"]]
    if not any(estimate_from_dict(gap).defined or gap.get("worst_case") for gap in first["gaps"]):
        method, note = "None", "no method could answer"
    return blocks.page(
        "Audit without the attribute",
        first["headline"],
        pages,
        title=f"Audit of {source or 'predictions'} without the attribute",
        about=f"{source or 'predictions'}: groups that are not recorded, or only in part",
        facts=[
            ("Rows", f"{result['rows']:,}", "counted; no row’s group was guessed"),
            ("Method", method, note),
        ],
        lines=[part["headline"] for part in others],
        cautions=result["warnings"],
        command=command,
    )


def points(value: float) -> str:
    """Return a signed fraction in points, ``+12.3``."""
    return f"{100 * value:+.1f}" if math.isfinite(value) else ""


def _span(low: float, high: float) -> str:
    return f"{number(100 * low, signed=True)} to {number(100 * high, signed=True)}"


def _words(result: Record) -> list[tuple[str, str]]:
    """Explain the words of the page."""
    positive = short(str(result["positive"]), 40)
    gaps = [gap for part in result["parts"].values() for gap in part["gaps"]]
    words = [
        ("Selection rate", f"the share of a group’s rows whose prediction is {positive}"),
        ("True positive rate", f"the same among the rows whose label is {positive}"),
        ("False positive rate", "the same among all other rows"),
        ("Points", "percentage points: the first group’s rate minus the second’s"),
    ]
    if any(gap["naive"] for gap in gaps):
        words.append(("Naive", "the gap if the proxy, or the report, were the group itself, which it is not"))
    if any(gap.get("worst_case") for gap in gaps):
        words.append(("Worst case", "the smallest and the largest gap that agree with what is known of the groups"))
    return words


def _sections(name: str, part: Record, level: str) -> list[Record]:
    rows = []
    for gap in part["gaps"]:
        title = f"{TITLES[gap['gap']]}: {gap['groups'][0]} minus {gap['groups'][1]}"
        figure = estimate_from_dict(gap)
        rows.append((title, gap, figure))
    shown: list[Record] = []
    if any(figure.defined for _, _, figure in rows):
        shown.append(
            blocks.forest(
                f"Gaps by {short(name)}, points with {level} intervals",
                [blocks.forest_row(title, figure, decided=figure.excludes_zero) for title, _, figure in rows],
                heads=("Gap", "Points"),
                ends=("first group lower", "first group higher"),
                notes=["A filled mark: the interval leaves out 0."],
            )
        )
    measured = any(figure.defined for _, _, figure in rows)
    bounded = any(gap.get("worst_case") for _, gap, _ in rows)
    naive = list(dict.fromkeys(proxy for _, gap, _ in rows for proxy in gap["naive"]))
    columns = ["Gap", *(["Points", f"{level} interval"] if measured or not bounded else [])]
    columns += [f"Naive: {short(one, 40)}" for one in naive]
    columns += ["Worst case, these rows", f"with its {level} interval"] if bounded else []
    table = []
    for title, gap, figure in rows:
        cells = [blocks.undefined_cell(figure.reason), blocks.no_cell()]
        if figure.defined:
            cells = [blocks.cell(number(100 * figure.value, signed=True)), blocks.cell(_span(figure.low, figure.high))]
        cells = cells if measured or not bounded else []
        for proxy in naive:
            value = gap["naive"].get(proxy)
            cells.append(blocks.cell("–" if value is None else number(100 * value, signed=True), quiet=True))
        worst = gap.get("worst_case")
        if worst:
            cells += [blocks.cell(_span(worst["low"], worst["high"])), blocks.cell(_span(*worst["interval"]))]
        elif bounded:
            cells += [blocks.no_cell()] * 2
        table.append((title, cells))
    if measured or bounded or naive:
        caption = f"Gaps by {short(name)}, in points. {', '.join(METHODS[part['method']])}"
        refused = [f"Refused: {title}: {one.reason}." for title, _, one in rows if measured and not one.defined]
        shown.append(blocks.table(caption, columns, table, where=blocks.BOTH))
        shown += blocks.said(refused, where=blocks.TERMINAL)
    else:
        shown.append(blocks.paragraph(f"There is no figure to show: {part['refused']}.", where=blocks.BOTH))
    rests_on = "What this answer rests on"
    return [
        blocks.section("The gaps", shown),
        blocks.section(
            rests_on,
            [
                blocks.paragraph(f"{rests_on}:", where=blocks.TERMINAL),
                blocks.bullets(part["rests_on"], where=blocks.BOTH),
            ],
        ),
    ]
