"""The page of an audit of a ranking."""

from __future__ import annotations

import math

from levelhead.auditing.brief import ROOM
from levelhead.auditing.rates import ratio_cell, ratio_span
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION
from levelhead.report.provenance import provenance
from levelhead.report.text import Record, estimate_from_dict, level_text, number, percent, short
from levelhead.types import in_quotes, printable

MOST_LINES = 6
_TERMS = (
    ("Share of the top", "The group’s share of the top places, in percent."),
    (
        "Representation",
        "A group’s share of the top divided by its share of all rows; 1 is proportional. Its logarithm is called skew.",
    ),
    (
        "Impact ratio",
        "The share of a group’s rows in the top divided by that of the reference group. The four-fifths rule (US EEOC "
        "1978) asks whether it is below 0.8. It is a rule of thumb, not a finding of discrimination.",
    ),
    (
        "Exposure",
        "As representation, with place j weighted by 1 / log2(1 + j): higher places count more. Places below the top "
        "count nothing.",
    ),
    (
        "Interval",
        "{level} confidence, for all groups and columns together: exact, from Fisher’s noncentral hypergeometric "
        "distribution. The rows are treated as a sample of those who could have been ranked.",
    ),
    ("Chance", "The {level} range of counts under a random order."),
    ("p-value", "Twice the smaller tail of the hypergeometric distribution, adjusted for all groups (Bonferroni)."),
    ("Ties", "Tied rows share their places: each counts with its expected share."),
)


def ranking_page(result: Record, *, source: str = "") -> Record:
    """Summarise an audit of a ranking.

    Args:
        result: what :meth:`levelhead.auditing.ranking.RankingAudit.to_dict` returns, or the JSON of it.
        source: what was audited, in a word, for example the file's name.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    level, by_attribute = level_text(result["level"]), result["by_attribute"]
    finding, *lines = ranking_sentences(result)
    parts = blocks.by_column({name: [_section(name, one, result, level)] for name, one in by_attribute.items()})
    order = "lowest first" if result["lowest_first"] else "highest first"
    items = [("Ranking", source)] if source else []
    items += [("Ranked by", f"{short(result['score'])}, {order}"), ("Top", f"{result['top']:,} of {result['rows']:,}")]
    words = [
        blocks.terms(items),
        blocks.terms([(term, text.format(level=level)) for term, text in _TERMS]),
        blocks.paragraph(CAUTION),
    ]
    how = blocks.section("How it was measured", words)
    parts.append(blocks.part([*blocks.of_terminal(result, CAUTION), ROOM, how, provenance(result)]))
    return blocks.page(
        "Audit of a ranking",
        finding,
        parts,
        facts=[
            ("Rows", f"{result['rows']:,}", ""),
            ("Top", f"{result['top']:,}", f"{order} by {short(result['score'])}"),
        ],
        lines=lines,
        **blocks.audited(result, source or "a ranking"),
    )


def ranking_sentences(result: Record) -> list[str]:
    """Return one sentence for each group whose count in the top chance does not explain, the clearest first.

    Of two groups that are all rows, the one with fewer rows in the top than its share is named: the other has the rest.
    Where no group stands out, one sentence says so.
    """
    told: list[tuple[bool, float, str, str]] = []
    for name, column in result["by_attribute"].items():
        compared = {group: one for group, one in column["groups"].items() if one["included"]}
        each = len(compared) != 2 or sum(one["n"] for one in compared.values()) < result["rows"]
        for group, one in compared.items():
            figure = estimate_from_dict(one["representation"])
            if each or figure.value < 1 or (figure.value == 1 and not told):
                told.append((1 - result["level"] < one["p_value"], abs(math.log(max(figure.value, 1e-9))), name, group))
    if not told:
        return ["No two groups have enough rows to be compared."]
    told.sort(key=lambda one: (one[0], -one[1]))
    decided = [_told(*one[2:], result) for one in told if not one[0]]
    if decided:
        return decided
    none = f"No group’s share of the top {result['top']:,} differs measurably from its share of all rows."
    return [f"{none} {_told(*told[0][2:], result)}"]


def _told(name: str, group: str, result: Record) -> str:
    one = result["by_attribute"][name]["groups"][group]
    by = f"By {printable(name)}, " if len(result["by_attribute"]) > 1 else ""
    figure, share = estimate_from_dict(one["representation"]), estimate_from_dict(one["share_of_top"])
    low, high = (number(end, 0) for end in one["chance"])
    return (
        f"{by}{in_quotes(group)} holds {_count(one['in_top'])} of the first {result['top']:,} places "
        f"({percent(share)}%) and {number(100 * one['share_of_rows'])}% of all rows. Representation is "
        f"{number(figure.value, 2)} (interval {ratio_span(figure)}); by chance, {low} to {high} places "
        "would be expected."
    )


def _count(value: float) -> str:
    """Return a count, which ties can make a fraction."""
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _section(name: str, column: Record, result: Record, level: str) -> Record:
    rows: list[tuple[object, list[Record]]] = []
    drawn = []
    for group, one in column["groups"].items():
        cells = [
            blocks.cell(f"{one['n']:,}", f"{number(100 * one['share_of_rows'])}%"),
            blocks.cell(_count(one["in_top"])),
        ]
        if not one["included"]:
            rows.append((group, [*cells, blocks.cell("not compared", quiet=True), *[blocks.no_cell()] * 5]))
            continue
        figure = estimate_from_dict(one["representation"])
        drawn.append(
            blocks.forest_row(
                group, figure, decided=not figure.low <= 1 <= figure.high, scale=1, digits=2, signed=False
            )
        )
        low, high = (number(end, 0) for end in one["chance"])
        cells += [blocks.figure_cell(one["share_of_top"]), ratio_cell(figure), _beside(one, group, column)]
        cells += [ratio_cell(estimate_from_dict(one["exposure"])), blocks.cell(f"{low} to {high}")]
        rows.append((group, [*cells, blocks.p_cell(one["p_value"])]))
    chosen = "as chosen" if column["reference_is_given"] else "the group with the largest share of its rows in the top"
    reference = column["reference"]
    heads: list[str | tuple[str, str]] = [
        "Group",
        "Rows",
        ("In the top", "Rows among the first places."),
        ("Share of the top", "In percent."),
        ("Representation", "Share of the top divided by share of all rows."),
        ("Impact ratio", "Share of the group’s rows in the top, divided by the reference group’s."),
        ("Exposure", "Representation with the first places counted more."),
        ("By chance", "Counts in the top under a random order."),
        ("p", "Hypergeometric law, adjusted for all groups."),
    ]
    table = blocks.table(
        f"The first {result['top']:,} places by {short(name)}, with {level} intervals",
        heads,
        rows,
        notes=["" if reference is None else f"Impact ratios are relative to {in_quotes(reference)}, {chosen}."],
        page_columns=[7, 8],
        where=blocks.BOTH,
    )
    forest = blocks.forest(
        f"Representation in the top by {short(name)}; 1 is proportional",
        drawn,
        heads=("Group", f"Ratio [{level} interval]"),
        zero=False,
    )
    return blocks.section(
        "Who is in the top", [table, *([forest] if drawn else []), *_curve(name, column, result, level)]
    )


def _beside(one: Record, group: str, column: Record) -> Record:
    if one["selection_ratio"] is None:
        return blocks.cell("the reference", quiet=True) if group == column["reference"] else blocks.no_cell()
    return ratio_cell(estimate_from_dict(one["selection_ratio"]))


def _curve(name: str, column: Record, result: Record, level: str) -> list[Record]:
    tops, lines = column["curve"]["top"], column["curve"]["groups"]
    if len(tops) < 2 or not lines:
        return []
    ordered = sorted(lines, key=lambda one: estimate_from_dict(column["groups"][one]["representation"]).value)
    places = [math.log10(top) for top in tops]
    first = lines[ordered[0]]
    more = (
        f"The {MOST_LINES} least represented of {len(ordered)} groups are drawn." if len(ordered) > MOST_LINES else ""
    )
    drawn = blocks.curves(
        f"Representation by {short(name)} over the size of the top",
        [(group, list(zip(places, lines[group]["representation"], strict=True))) for group in ordered[:MOST_LINES]],
        titles=("Places in the top", "Representation"),
        band=[(at, *ends) for at, *ends in zip(places, first["low"], first["high"], strict=True)],
        marks=[math.log10(result["top"])],
        notes=[
            f"1 is proportional. The band is the pointwise {level} range of {in_quotes(ordered[0])} under a "
            "random order. Dashed: the chosen top.",
            more,
        ],
    )
    powers = range(math.ceil(places[0]), math.floor(places[-1]) + 1)
    drawn["x_axis"]["ticks"] = [{"at": power, "text": f"{10**power:,}"} for power in powers]
    return [drawn]
