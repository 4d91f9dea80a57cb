"""The page of an audit without the attribute: the answer, and what it is based on."""

from __future__ import annotations

import math

from levelhead.metrics.names import RATE_TITLES
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.text import Record, estimate_from_dict, level_text, number, short
from levelhead.types import Estimate

TITLES = {
    "demographic_parity": RATE_TITLES["selection_rate"],
    "equal_opportunity": RATE_TITLES["true_positive_rate"],
    "false_positive_rate": RATE_TITLES["false_positive_rate"],
}
METHODS = {
    "labelled subset": ("Labelled rows", "corrected with the unlabelled rows (PPI++)"),
    "three proxies": ("Agreement of proxies", "which gives their errors (HOC)"),
    "randomised responses": ("Randomised answers", "with the noise inverted"),
    "bounds": ("Worst case", "bounds on the gap, not an estimate"),
}


def indirect_page(result: Record, *, source: str = "") -> Record:
    """Summarise an audit without the attribute.

    Args:
        result: what :meth:`levelhead.auditing.unknown.answer.IndirectAudit.to_dict` returns, or the JSON of it.
        source: what was audited, in a word, for example the file's name.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    parts = result["parts"]
    level = level_text(result.get("level", 0.95))
    pages = blocks.by_column({name: _sections(name, part, level) for name, part in parts.items()})
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
    )


def points(value: float) -> str:
    """Return a signed fraction in points, ``+12.3``."""
    return number(100 * value, signed=True) if math.isfinite(value) else ""


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
        words.append(("Naive", "the gap if the proxy or report were the true group"))
    if any(gap.get("weighted") for gap in gaps):
        words.append(("Weighted", "each row counts for each group by its probability, as supervisors count with BISG"))
    if any(gap.get("worst_case") for gap in gaps):
        words.append(("Worst case", "the smallest and the largest gap compatible with the known facts of the groups"))
    return words


def _sections(name: str, part: Record, level: str) -> list[Record]:
    gaps = part["gaps"]
    titles = [f"{TITLES[gap['gap']]}: {gap['groups'][0]} minus {gap['groups'][1]}" for gap in gaps]
    figures = [estimate_from_dict(gap) for gap in gaps]
    measured = any(figure.defined for figure in figures)
    shown: list[Record] = []
    if measured:
        rows = zip(titles, figures, strict=True)
        shown.append(
            blocks.forest(
                f"Gaps by {short(name)}, points with {level} intervals",
                [blocks.forest_row(title, figure, decided=figure.excludes_zero) for title, figure in rows],
                heads=("Gap", "Points"),
                ends=("first group lower", "first group higher"),
                notes=["Filled mark: the interval excludes 0."],
            )
        )
    columns = _columns(gaps, figures, level)
    if measured or any(gap["naive"] or gap.get("worst_case") for gap in gaps):
        caption = f"Gaps by {short(name)}, in points. {', '.join(METHODS[part['method']])}"
        cells = zip(*(column for _, column in columns), strict=True)
        heads = ["Gap", *(head for head, _ in columns)]
        shown.append(blocks.table(caption, heads, zip(titles, cells, strict=True), where=blocks.BOTH))
        reasons = [(title, one.reason) for title, one in zip(titles, figures, strict=True) if not one.defined]
        refused = [f"Refused: {title}: {reason}." for title, reason in reasons if measured]
        shown += blocks.said(refused, where=blocks.TERMINAL)
    else:
        shown.append(blocks.paragraph(f"There is no figure to show: {part['refused']}.", where=blocks.BOTH))
    rests_on = "Assumptions of this answer"
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


def _columns(gaps: list[Record], figures: list[Estimate], level: str) -> list[tuple[str, list[Record]]]:
    """Return the columns of the table of gaps: the head of each, and its cells."""
    worst = [gap.get("worst_case") for gap in gaps]
    columns: list[tuple[str, list[Record]]] = []
    if any(figure.defined for figure in figures) or not any(worst):
        points = [_points(one.value) if one.defined else blocks.undefined_cell(one.reason) for one in figures]
        spans = [_span(one.low, one.high) if one.defined else blocks.no_cell() for one in figures]
        columns += [("Points", points), (f"{level} interval", spans)]
    for proxy in dict.fromkeys(proxy for gap in gaps for proxy in gap["naive"]):
        columns.append((f"Naive: {short(proxy, 40)}", [_points(gap["naive"].get(proxy), quiet=True) for gap in gaps]))
    if any(gap.get("weighted") for gap in gaps):
        weighted = [blocks.figure_cell(gap["weighted"], signed=True) for gap in gaps]
        columns.append(("Weighted by probability (BISG estimator)", weighted))
    if any(worst):
        ends = [_span(one["low"], one["high"]) if one else blocks.no_cell() for one in worst]
        reach = [_span(*one["interval"]) if one else blocks.no_cell() for one in worst]
        columns += [("Worst case, these rows", ends), (f"with its {level} interval", reach)]
    return columns


def _points(value: float | None, *, quiet: bool = False) -> Record:
    return blocks.cell("–" if value is None else number(100 * value, signed=True), quiet=quiet)


def _span(low: float, high: float) -> Record:
    if math.isnan(low) or math.isnan(high):
        return blocks.cell("no interval")
    return blocks.cell(f"{number(100 * low, signed=True)} to {number(100 * high, signed=True)}")
