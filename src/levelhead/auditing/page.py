"""The page of an audit: one set of predictions, the gaps between its groups, and what its rows cannot decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelhead.auditing.brief import ON_SHEET, ROOM, WORST, of_pairs, overview
from levelhead.auditing.parts import ASKED, PARTS, answers
from levelhead.auditing.rates import Rates
from levelhead.auditing.scale import exact
from levelhead.auditing.weights import rows_worth
from levelhead.metrics import gaps as gap_names
from levelhead.metrics.names import NOTE, RATE_TITLES, left_out_words, metric_title
from levelhead.report import blocks
from levelhead.report.definitions import CAUTION, DEFINITIONS, STATISTICS, help_for
from levelhead.report.provenance import provenance
from levelhead.report.sentences import (
    Words,
    audit_sentences,
    detectable_sentences,
    gap_sentence,
    range_sentence,
)
from levelhead.report.text import (
    Record,
    counted,
    estimate_from_dict,
    joined,
    level_text,
    number,
    percent,
    percent_interval,
    short,
)
from levelhead.types import Estimate, visible

MOST_PAIRS = 12
"""Pairs of groups that are shown at once; a click shows more."""
PAIRS_PRINTED, RANGES_PRINTED = 10, 6
"""Pairs and ranges that a terminal shows."""
MEAN, LARGER = "equalized_odds", " (larger of |dTPR|, |dFPR|)"
"""The paper's form of the equalized-odds gap, and the suffix of the other form."""
SMALL = 10
"""Groups, or cells of group and label, below this size are flagged."""

_METHOD = (
    "For gaps they come from {replicates} bootstrap replicates of the (group, label, prediction) counts and invert "
    "tests of signed differences; for single rates they are Wilson’s."
)
_WEIGHTED = (
    "They are Wilson’s and Newcombe’s at the effective sample size: the smaller of Kish’s number and that of the "
    "linearised variance. Gaps use simultaneous intervals of all pairs (Bonferroni)."
)


_CLUSTERED = (
    "They are Wilson’s and Newcombe’s at the effective sample size that a cluster-robust variance gives, with "
    "Student’s t. Gaps use simultaneous intervals of all pairs (Bonferroni). A rate with fewer than 8 clusters is not "
    "compared."
)


def audit_page(result: Record, *, source: str = "") -> Record:
    """Summarise an audit.

    Args:
        result: what :meth:`levelhead.auditing.result.AuditResult.to_dict` returns, or the JSON that it was written to.
        source: what was audited, in a word, for example the file's name.

    Returns:
        the page as a plain dict, for :func:`levelhead.report.render`.
    """
    by_attribute = result["by_attribute"]
    every = sum(len(part["groups"]) for part in by_attribute.values()) > ON_SHEET or result.get("positive") is None
    parts = blocks.by_column({name: audit_sections(name, result, rates=every, paper=False) for name in by_attribute})
    whole = [section for one in PARTS.own() for section in one.sections(result)]
    whole += [*_pairs_section(result), *_detectable_section(result), *own_sections(result)]
    if len(by_attribute) > 1 and whole:
        parts.insert(0, blocks.part(whole, title="All groups"))
        whole = []
    metrics = [name for name in _metrics_of(next(iter(by_attribute.values()))) if name != MEAN]
    definitions, method = appendix(metrics), how(result, source)
    definitions["blocks"] = definitions["blocks"][:1]  # the caution stands on the second sheet
    last = [*blocks.of_terminal(result, _note(result)), definitions]
    parts.append(blocks.part([*whole, *last]))
    finding, *lines = _sentences(result)
    told = [part.get("sentences") for part in result.get("parts", {}).values()]
    beside = [visible(str(one[0])) for one in told if isinstance(one, list) and one]  # a column may be so named
    beside += [line for one in PARTS.own() if one.name not in (*ASKED, Rates.name) for line in one.brief(result)]
    _, *leads = dict.fromkeys(_sentences(result, brief=True, beside=beside))
    brief, sheet = overview(result, [finding, *leads])
    title = "Selection rates" if result.get("positive") is not None else "Groups"
    return blocks.page(
        "Audit",
        finding,
        parts,
        facts=_facts_of_all(result),
        lines=lines,
        brief=brief,
        sheets=[
            [blocks.section(title, [sheet]), ROOM],
            [method | {"blocks": [*method["blocks"], blocks.paragraph(CAUTION)]}, provenance(result)],
        ],
        **blocks.audited(result, source or "predictions"),
    )


def _sentences(result: Record, *, brief: bool = False, beside: Sequence[str] = ()) -> list[str]:
    """Return the finding and what else is said first."""
    ratios = Rates.brief(result)
    found = audit_sentences(result, brief=brief, asked=answers(result), ratios=ratios, beside=beside)
    if "finding" not in result or result["finding"]["pair"] is None:
        gaps = {
            name: estimate_from_dict(part["metrics"].get(WORST, {})) for name, part in result["by_attribute"].items()
        }
        found += [gap_sentence(gap, name, "equalized_odds") for name, gap in gaps.items()]
    return found


def main_gap(part: Record) -> Estimate:
    """Return the equalized odds gap; undefined, with a reason, where there are no groups to compare."""
    found = part["metrics"].get("equalized_odds")
    return Estimate.undefined("it was not measured") if found is None else estimate_from_dict(found)


def audit_facts(part: Record, level: float) -> list[tuple[str, str, str]]:
    """Return the key figures of one sensitive column: rows, accuracy, smallest group and gap."""
    groups = part["groups"]
    sizes = sorted((figures["n"] for figures in groups.values()), reverse=True)
    accuracy = estimate_from_dict(part["metrics"].get("accuracy", {}))
    facts = [
        ("Rows", f"{sum(sizes):,}", f"in {counted(len(groups), 'group')}"),
        ("Accuracy", percent(accuracy), f"percent, {level_text(level)} interval {percent_interval(accuracy)}"),
    ]
    if sizes:
        facts.append(("Smallest group", f"{sizes[-1]:,}", "row" if sizes[-1] == 1 else "rows"))
    gap = main_gap(part)
    if gap.defined:
        half = number(50 * (gap.high - gap.low))
        facts.append(("Precision of the gap", f"± {half}", "points: half the interval’s width"))
    return facts


def _facts_of_all(result: Record) -> list[tuple[str, str, str]]:
    """Return rows and accuracy, the smallest group, and the favourable outcome if one was named."""
    by_attribute, words = result["by_attribute"], Words(result)
    rows, accuracy = audit_facts(next(iter(by_attribute.values())), result.get("level", 0.95))[:2]
    if len(by_attribute) > 1:
        rows = (*rows[:2], f"grouped by {len(by_attribute)} columns")
    sizes = [
        (figures["n"], f"{short(name, 40)}: {short(group, 40)}")
        for name, part in by_attribute.items()
        for group, figures in part["groups"].items()
    ]
    fewest, smallest = min(sizes, default=(0, "no group"))
    balanced = estimate_from_dict(next(iter(by_attribute.values()))["metrics"].get("balanced_accuracy", {}))
    facts = [rows, accuracy]
    facts += (
        [("Balanced accuracy", percent(balanced), f"percent, interval {percent_interval(balanced)}")]
        if balanced.defined
        else []
    )
    facts += [("Smallest group", f"{fewest:,}", f"{'row' if fewest == 1 else 'rows'}, {smallest}")]
    return [*facts, *([("Favourable outcome", words.outcome, "")] if words.favourable else [])]


def audit_sections(name: str, result: Record, *, rates: bool = True, paper: bool = True) -> list[Record]:
    """Return the sections on one sensitive column: its gaps and groups, and those of all parts.

    Args:
        name: of the column.
        result: the audit's JSON.
        rates: whether the page shows rates here, and not on a sheet of its own.
        paper: show both forms of the gap in equalized odds; else the larger of its two parts alone.
    """
    part = result["by_attribute"][name]
    return [
        _gaps_section(name, result, paper),
        blocks.section("The groups", [*groups_tables(name, part, Words(result), rates), *_flagged(part)]),
        *(section for one in PARTS.own() for section in one.column_sections(name, result)),
    ]


def _gaps_section(name: str, result: Record, paper: bool) -> Record:
    """Return the section on the measured gaps."""
    part, level = result["by_attribute"][name], level_text(result.get("level", 0.95))
    figures, gaps, worst = _figures_of(part, paper)
    known = {key: of_pairs(name, key, figure, result) for key, figure in gaps.items()}
    gaps = {key: figure for key, (figure, _) in known.items()}
    figures |= gaps

    def title(key: str) -> str:
        return _title(key, worst) if paper else _title(key, worst).replace(LARGER, "")

    apart = [title(key) for key, (figure, adjusted) in known.items() if figure.defined and not adjusted]
    unadjusted = f"Intervals that are not adjusted for several comparisons: {joined(apart)}." if apart else ""
    corrected = [
        f"{title(key)} {number(100 * one.corrected)}"
        for key, one in gaps.items()
        if one.defined and one.corrected is not None
    ]
    above = {"accuracy", "balanced_accuracy"} if not paper else {"accuracy"}
    told = [
        f"{title(key)}: {percent(one)}% {percent_interval(one)}." if one.defined else f"{title(key)}: {one.reason}."
        for key, one in figures.items()
        if key not in {*gaps, *above}
    ]
    forest = blocks.forest(
        f"Measured gaps between groups of {short(name)}, percentage points with {level} intervals",
        [
            blocks.forest_row(
                title(key), figure, decided=figure.defined and figure.low > 0, signed=False,
                help_text=help_for(key),
            )
            for key, figure in gaps.items()
        ],
        heads=("Gap", "Points"),
        ends=("0 is no measured gap", ""),
        notes=[
            "Filled mark: the interval excludes 0. Open mark: inconclusive, the interval contains 0.",
            unadjusted,
            f"{STATISTICS['corrected'][0]}, in points: {joined(corrected)}." if corrected else "",
            *told,
        ],
    )  # fmt: skip
    metrics = blocks.table(
        f"All figures by {short(name)}, in percent with {level} intervals",
        [
            "Metric",
            "Percent",
            (f"{level} interval", STATISTICS["interval"][1]),
            (STATISTICS["corrected"][0], STATISTICS["corrected"][1]),
            "Rows",
        ],
        [(title(key), _metric_cells(figure)) for key, figure in figures.items()],
        notes=[": ".join(STATISTICS["corrected"]), unadjusted],
        where=blocks.TERMINAL,
    )
    return blocks.section("The measured gaps", [forest, metrics] if gaps else [metrics])


def own_sections(result: Record) -> list[Record]:
    """Return the sections of parts of the user's own, which their JSON holds."""
    return [_visible(one) for part in result.get("parts", {}).values() for one in part["sections"]]


def _visible(value: Any) -> Any:
    """Return blocks with nothing in their texts that would command a terminal."""
    if isinstance(value, dict):
        return {key: _visible(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_visible(one) for one in value]
    return visible(value) if isinstance(value, str) else value


def _pairs_section(result: Record) -> list[Record]:
    """Return the section on pairs of groups: who differs most, and what chance alone would make of it."""
    pairs, finding, words = result.get("pairs") or [], result.get("finding") or {}, Words(result)
    if not pairs:
        return []
    count = finding["comparisons"]
    level = level_text(result.get("level", 0.95))
    columns = ["Groups", "Difference", "Rate"]
    rows = [(_pair_head(pair, words), _pair_cells(pair, result)) for pair in pairs]
    several = {(pair["attribute"], *sorted(pair[side]["group"] for side in ("first", "second"))) for pair in pairs}
    tables = [
        blocks.table(
            f"Pairs of groups that differ most, in points, with {level} intervals",
            columns,
            rows[:MOST_PAIRS],
            notes=[f"Intervals are adjusted for {count:,} comparisons (Bonferroni). Those that exclude 0 come first."],
            text_columns=[2],
            most=PAIRS_PRINTED,
            where=blocks.BOTH if len(several) > 1 else blocks.PAGE,
        )
    ]
    if more := rows[MOST_PAIRS:]:
        tables.append(
            blocks.table(
                f"More pairs of groups, in points, with {level} intervals",
                columns,
                more,
                text_columns=[2],
                folded=f"{counted(len(more), 'more pair')} of groups",
            )
        )
    drawn = [range_sentence(one) for one in result.get("ranges") or []]
    chance = [blocks.bullets(drawn[:RANGES_PRINTED], where=blocks.BOTH), blocks.bullets(drawn[RANGES_PRINTED:])]
    return [
        blocks.section("Who differs most", tables, rank=2),
        blocks.section("Ranges beside chance", [one for one in chance if one["items"]], rank=2),
    ]


def _pair_head(pair: Record, words: Words) -> str:
    return f"{words.group(pair, 'first')} minus {words.group(pair, 'second')}"


def _pair_cells(pair: Record, result: Record) -> list[Record]:
    several = f" [{short(pair['class'], 40)}]" if result.get("positive") is None else ""
    return [
        blocks.figure_cell(pair["difference"], signed=True),
        blocks.cell(RATE_TITLES[pair["rate"]] + several),
    ]


def _detectable_section(result: Record) -> list[Record]:
    """Return the section on the gaps that these rows could have shown."""
    sentences = detectable_sentences(result)
    shown = [blocks.bullets(sentences, where=blocks.BOTH)] if sentences else []
    return [blocks.section("Smallest gap that these rows can detect", shown, rank=9)]


def _note(result: Record) -> str:
    positive = result.get("positive")
    return NOTE if positive is None else f"Positive class: {short(str(positive), 40)}. {NOTE}"


def _figures_of(part: Record, paper: bool) -> tuple[dict[str, Estimate], dict[str, Estimate], dict[str, str]]:
    """Return every figure of a sensitive column, the gaps among them, and the class behind each gap."""
    shown = [key for key in part["metrics"] if paper or key.removesuffix("_mean") != MEAN]
    figures = {key: estimate_from_dict(part["metrics"][key]) for key in shown}
    gaps = {key: figure for key, figure in figures.items() if key.removesuffix("_mean") in gap_names()}
    return figures, gaps, part.get("worst_class", {})


def _metric_cells(figure: Estimate) -> list[Record]:
    if not figure.defined:
        return [blocks.undefined_cell(figure.reason), *[blocks.no_cell()] * 2, blocks.cell(f"{figure.n:,}")]
    corrected = "–" if figure.corrected is None else number(100 * figure.corrected)
    return [
        blocks.cell(percent(figure)),
        blocks.cell(percent_interval(figure)),
        blocks.cell(corrected, quiet=figure.corrected is None),
        blocks.cell(f"{figure.n:,}"),
    ]


def groups_tables(name: str, part: Record, words: Words, rates: bool) -> list[Record]:
    """Return the sizes of the groups and their rates; small groups and cells are flagged.

    Without ``rates`` a page shows sizes and accuracy alone, and a terminal the rates all the same.
    """
    whole = _groups_table(name, part, words)
    if rates:
        return [whole]
    kept = 1 + len(whole["page_columns"]) + 2  # head, rows, rows by label, accuracy
    sizes = whole | {
        "caption": f"Groups of {short(name)}, as annotated: sizes, and accuracy in percent",
        "columns": whole["columns"][:kept],
        "rows": [row | {"cells": row["cells"][: kept - 1]} for row in whole["rows"]],
        "where": blocks.PAGE,
    }
    return [sizes, whole | {"where": blocks.TERMINAL}]


def _groups_table(name: str, part: Record, words: Words) -> Record:
    groups = part["groups"]
    labels = list(dict.fromkeys(label for figures in groups.values() for label in figures["rows_by_label"]))
    rates = list(dict.fromkeys(key for figures in groups.values() for key in _rates(figures)))
    # A terminal shows the first of very many: those of the classes that a gap was found in.
    behind = set(part.get("worst_class", {}).values())
    rates.sort(key=lambda key: "[" in key and key.partition("[")[2].removesuffix("]") not in behind)
    rows = []
    for group, figures in groups.items():
        flag = f"fewer than {SMALL} rows" if figures["n"] < SMALL else ""
        out = left_out_words(figures["included"], figures.get("left_out", ()))
        worth = f"effective {rows_worth(figures['worth'])}" if "worth" in figures else ""
        cells = [blocks.cell(f"{figures['n']:,}", worth, flag=flag)]
        for label in labels:
            count = figures["rows_by_label"].get(label, 0)
            few = f"fewer than {SMALL} rows" if count < SMALL <= figures["n"] else ""
            own = f"effective {rows_worth(figures['worth_by_label'].get(label, 0))}" if worth else ""
            cells.append(blocks.cell(f"{count:,}", own, flag=few))
        for key in rates:
            cells.append(_rate_cell(figures.get(key)))
        rows.append((group, cells, out))
    columns = [
        "Group",
        "Rows",
        *(f"with {words.label} {words.of_label(label)}" for label in labels),
        *map(_rate_title, rates),
    ]
    caption = f"Groups of {short(name)}, as annotated: sizes, and rates in percent"
    return blocks.table(caption, columns, rows, page_columns=range(2, 2 + len(labels)), where=blocks.BOTH)


def _rates(figures: Record) -> list[str]:
    return [key for key in figures if key.partition("[")[0] in RATE_TITLES]


def _rate_cell(record: Record | None) -> Record:
    if record is None:
        return blocks.no_cell()
    figure = estimate_from_dict(record)
    between = f"{number(100 * figure.low)}–{number(100 * figure.high)}"  # shorter, so that four rates fit a terminal
    return blocks.cell(percent(figure), between) if figure.defined else blocks.undefined_cell(figure.reason)


def _rate_title(key: str) -> str:
    name, _, ending = key.partition("[")
    return RATE_TITLES.get(name, name) + (f" [{short(ending, 60)}" if ending else "")


def _flagged(part: Record) -> list[Record]:
    small = [short(group, 40) for group, figures in part["groups"].items() if figures["n"] < SMALL]
    if not small:
        return []
    text = f"Fewer than {SMALL} rows, where one row moves a rate by over 10 points: {', '.join(small)}."
    return [blocks.paragraph(text, strong=True)]


def _title(key: str, worst: dict[str, str]) -> str:
    return metric_title(key, short(worst[key], 40) if key in worst else None)


def _metrics_of(part: Record) -> list[str]:
    return list(dict.fromkeys(key.removesuffix("_mean") for key in part["metrics"]))


def how(result: Record, source: str) -> Record:
    """Return the section on how it was measured."""
    positive, words = result.get("positive"), Words(result)
    items: list[tuple[str, str]] = [("Predictions", source)] if source else []
    items.append(("Positive class", "each class against the rest" if positive is None else short(str(positive), 40)))
    if positive is not None:
        unnamed = "not named, so the four-fifths rule is not applied (levelhead audit --favourable)"
        items.append(("Favourable outcome", words.outcome if words.favourable else unnamed))
    if "scores" in result:
        items.append(
            ("Threshold", f"{exact(result['scores']['threshold'])} on scores read as {result['scores']['scale']}")
        )
    level = level_text(result.get("level", 0.95))
    method = (
        _WEIGHTED
        if "weights" in result
        else _CLUSTERED
        if "clusters" in result
        else _METHOD.format(replicates=f"{result.get('replicates', 1000):,}")
    )
    pairs = counted((result.get("finding") or {}).get("comparisons", 0), "comparison")
    items += [
        ("Intervals", f"{level} of such intervals hold the true value. {method}"),
        ("Level", f"{level} per figure; adjusted over {pairs} for pairs of groups (Bonferroni)"),
    ]
    return blocks.section("How it was measured", [blocks.terms(items)])


def appendix(
    metrics: list[str], statistics: tuple[str, ...] = ("interval", "corrected", "undefined", "group")
) -> Record:
    """Return the definitions of the words that a page uses."""
    items = [DEFINITIONS[name] for name in metrics if name in DEFINITIONS] + [STATISTICS[name] for name in statistics]
    return blocks.section("Definitions", [blocks.terms(items), blocks.paragraph(CAUTION)])
