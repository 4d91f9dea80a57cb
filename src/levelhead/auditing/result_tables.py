"""The tables of an audit, as a terminal shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from levelhead.auditing.continuous import continuous_table
from levelhead.auditing.control import control_tables
from levelhead.auditing.finding import ADJUSTED
from levelhead.auditing.own_metrics import own_tables
from levelhead.auditing.rates import rate_sentences, rate_table
from levelhead.auditing.weights import rows_worth
from levelhead.metrics.names import RATE_TITLES, attribute_names, group_name, left_out_words, metric_title
from levelhead.report.text import counted
from levelhead.types import Estimate, printable

if TYPE_CHECKING:
    from levelhead.auditing.result import AttributeAudit, AuditResult

RATES_BESIDE, RATES_PRINTED, PAIRS_PRINTED, RANGES_PRINTED, WARNINGS_PRINTED = 4, 40, 10, 6, 10
RATIOS_PRINTED = 10
"""How many rates stand beside each other in a terminal, and how much is printed; JSON and page have all."""


def result_tables(result: AuditResult) -> list[RenderableType]:
    """Return what a terminal shows of an audit, from the headline to the warnings."""
    names = attribute_names(result.by_attribute)
    shown: list[RenderableType] = _found(result)
    shown += [
        block
        for place, (attribute, name) in enumerate(names.items())
        for block in _attribute_tables(name, result.by_attribute[attribute], result.level, first=place == 0)
    ]
    for tables in TABLES:
        shown += tables(result)
    return shown


def _attribute_tables(name: str, part: AttributeAudit, level: float, *, first: bool) -> list[RenderableType]:
    """Return the tables of one sensitive column: its gaps, and its groups. They fit 80 columns."""
    said = "Corrected: less what the largest of noisy differences is too large by, on average."
    metrics = Table(title=Text(f"Gaps by {printable(name)}"), title_justify="left")
    if first:
        metrics.caption, metrics.caption_justify = Text(said), "left"
    for heading in ("Metric", "%", f"{100 * level:g}% interval", "Corrected", "Rows"):
        words = heading == "Metric"
        metrics.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for key, figure in part.metrics.items():
        metrics.add_row(
            Text(metric_title(key, part.worst_class.get(key))),
            _percent(figure),
            _interval(figure),
            _corrected(figure),
            f"{figure.n:,}",
        )
    return [metrics, *_group_tables(name, part)]


def _group_tables(name: str, part: AttributeAudit) -> list[RenderableType]:
    """Return the rates of the groups, with at most four of them beside each other.

    Of many classes those come first that a gap was found in, and not all are printed.
    """
    titles, worst = list(_rate_titles(part).items()), set(part.worst_class.values())
    many = len(titles) > RATES_PRINTED
    if many:
        titles.sort(key=lambda one: "[" in one[0] and one[0].partition("[")[2].removesuffix("]") not in worst)
    hidden = len(titles[RATES_PRINTED:])
    titles = titles[:RATES_PRINTED]
    tables: list[RenderableType] = []
    weighted = any(figures.worth is not None for figures in part.groups.values())
    wide = RATES_BESIDE - weighted
    for start in range(0, len(titles), wide):
        beside = titles[start : start + wide]
        table = Table(title=Text(f"Groups of {printable(name)}"), title_justify="left", show_lines=False)
        table.add_column("Group", overflow="fold", min_width=9)
        table.add_column("Rows", justify="right", no_wrap=True)
        if weighted:
            table.add_column("Worth", justify="right", no_wrap=True)
        for _, title in beside:
            table.add_column(Text(printable(title)), justify="right", overflow="fold", min_width=9)
        for group, figures in part.groups.items():
            mark = "" if figures.included and not figures.left_out else " *" if figures.included else " **"
            label = printable(group_name(group)) + mark
            rates = [figures.rates[key] for key, _ in beside]
            cells = [f"{_percent(rate)}\n{_span(rate)}".strip() for rate in rates]
            worth = [] if figures.worth is None else [rows_worth(figures.worth)]
            table.add_row(Text(label), f"{figures.n:,}", *worth, *cells)
        outs = dict.fromkeys(left_out_words(one.included, one.left_out) for one in part.groups.values())
        marks = {left_out_words(True, ["some"]): "*", left_out_words(False, []): "**"}
        if any(outs):
            table.caption = Text("; ".join(f"{marks[out]} {out}" for out in outs if out))
            table.caption_justify = "left"
        tables.append(table)
    if many:
        tables.append(Text(f"And {counted(hidden, 'more rate')} of other classes: in the JSON and on the page."))
    return tables


def _found(result: AuditResult) -> list[RenderableType]:
    """Return the headline and the sentences below it, which stand above all tables."""
    from levelhead.report.sentences import audit_sentences

    sentences = audit_sentences(result.to_dict())
    return [Text(sentence, style="bold" if place == 0 else "") for place, sentence in enumerate(sentences)]


def _pairs_table(result: AuditResult) -> list[RenderableType]:
    """Return the largest differences between groups, where there are more pairs than one; and ranges beside chance."""
    from levelhead.report.sentences import range_sentence

    pairs, shown = result.more.get("pairs", []), []
    if len({(pair["attribute"], *sorted(pair[side]["group"] for side in ("first", "second"))) for pair in pairs}) > 1:
        count = result.more["finding"]["comparisons"]
        table = Table(
            title=Text("The largest differences between two groups, in points"),
            title_justify="left",
            caption=Text(
                f"Intervals allow for all {count:,} comparisons ({ADJUSTED[result.more['finding']['adjust']]})."
            ),
            caption_justify="left",
        )
        for heading in ("Rate", "Groups", "Points", "Interval"):
            words = heading in ("Rate", "Groups")
            table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
        for pair in pairs[:PAIRS_PRINTED]:
            figure = pair["difference"]
            several = f" [{printable(pair['class'])}]" if result.positive is None else ""
            table.add_row(
                Text(RATE_TITLES[pair["rate"]] + several),
                Text(f"{printable(pair['first']['group'])} less {printable(pair['second']['group'])}"),
                f"{100 * figure['value']:+.1f}",
                f"[{100 * figure['low']:+.1f}, {100 * figure['high']:+.1f}]",
            )
        shown.append(table)
    return [*shown, *(Text(range_sentence(one)) for one in result.more.get("ranges", [])[:RANGES_PRINTED])]


def _detectable(result: AuditResult) -> list[RenderableType]:
    """Return which gaps these rows could have shown."""
    from levelhead.report.sentences import detectable_sentences

    return [Text(sentence) for sentence in detectable_sentences(result.more)]


def _warnings(result: AuditResult) -> list[RenderableType]:
    return [*warning_lines(result.warnings)]


def warning_lines(warnings: Sequence[str]) -> list[Text]:
    """Return the first warnings as a terminal shows them, and how many more there are."""
    shown = [Text(f"Warning: {warning}") for warning in warnings[:WARNINGS_PRINTED]]
    if rest := len(warnings) - len(shown):
        shown.append(Text(f"And {rest:,} more warnings like these: they are in the JSON and on the page."))
    return shown


def _rates(result: AuditResult) -> list[RenderableType]:
    """The tables of ratios where a reference was named; else only what the four-fifths rule says."""
    names, shown = attribute_names(result.by_attribute), list[RenderableType]()
    for key, part in result.rates.items():
        shown += [rate_table(names[key], part, result.level)] if part.chosen else []
        sentences = rate_sentences(names[key], part)
        shown += map(Text, sentences[:RATIOS_PRINTED])
        if rest := len(sentences) - RATIOS_PRINTED:
            shown += (
                [Text(f"And {rest:,} more ratios below four fifths: in the JSON and on the page.")] if rest > 0 else []
            )
    return [*shown, *continuous_table(result.continuous)]


def _control(result: AuditResult) -> list[RenderableType]:
    return [*control_tables(result.more["control"])] if "control" in result.more else []


def _own_metrics(result: AuditResult) -> list[RenderableType]:
    names = attribute_names(result.by_attribute)
    return [table for key, own in result.own_metrics.items() for table in own_tables(names[key], own, result.level)]


def _scores(result: AuditResult) -> list[RenderableType]:
    return [] if result.scores is None else [*result.scores.tables()]


def _against(result: AuditResult) -> list[RenderableType]:
    return [] if result.against is None else [*result.against.tables()]


TABLES: list[Callable[[AuditResult], list[RenderableType]]] = [
    _control,
    _pairs_table,
    _against,
    _rates,
    _own_metrics,
    _scores,
    _warnings,
    _detectable,
]
"""What is printed below the tables of the sensitive columns, in this order. Each function returns nothing where the
audit has nothing of its kind; it finds its figures in ``AuditResult.more``."""


def _rate_titles(part: AttributeAudit) -> dict[str, str]:
    """Headings of the rates in the order of the first group."""
    titles = {}
    for key in next(iter(part.groups.values())).rates:
        name, _, ending = key.partition("[")
        titles[key] = RATE_TITLES[name] + (f" [{ending}" if ending else "")
    return titles


def _percent(figure: Estimate) -> str:
    return f"{100 * figure.value:.1f}" if figure.defined else "undefined"


def _interval(figure: Estimate) -> str:
    return f"[{100 * figure.low:.1f}, {100 * figure.high:.1f}]" if figure.defined else ""


def _span(figure: Estimate) -> str:
    return f"{100 * figure.low:.1f}–{100 * figure.high:.1f}" if figure.defined else ""


def _corrected(figure: Estimate) -> str:
    return "" if figure.corrected is None else f"{100 * figure.corrected:.1f}"
