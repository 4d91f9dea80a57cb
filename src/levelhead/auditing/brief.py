"""What an audit shows first, on a screen and on the first sheet of its page: one table of the groups of all columns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from levelhead.auditing.rates import ratio_title
from levelhead.metrics.names import RATE_TITLES
from levelhead.report import blocks
from levelhead.report.sentences import Words, named_group, turned
from levelhead.report.text import (
    Record,
    estimate_from_dict,
    joined,
    level_text,
    number,
    percent,
    percent_interval,
    short,
)
from levelhead.types import Estimate, in_quotes, printable

ON_SHEET = 12
"""Groups in the table of the first sheet, so that it stays one sheet of paper."""
SHOWN = 6
"""Most sentences that a screen or the first sheet has room for."""
ROOM = blocks.section("Decision", [blocks.room("Decision and reasons", "Name and date")])
"""Room for those who decide."""
SELECTED, FOUND, ALARM = "selection_rate", "true_positive_rate", "false_positive_rate"
WORST = "equalized_odds_worst"
"""The gap in equalized odds that tables show: the larger of its two parts, as other libraries do."""


def overview(result: Record, said: Sequence[str]) -> tuple[Record, Record]:
    """Return what fits a screen, and the table of the first sheet; ``said`` are the finding and what follows it."""
    words, by_attribute = Words(result), result["by_attribute"]
    rates = (result.get("rates") or {}) if result.get("positive") is not None else {}
    ratios = {name: _ratios(found, words) for name, found in rates.items()}
    shown = _shown(result, words)

    def cells(name: str, group: str) -> list[Record]:
        figures, (to, own) = by_attribute[name]["groups"][group], ratios.get(name, (None, {}))
        found = [range_cell(_rate(figures, rate, other)) for _, rate, other in shown]
        if ratios:
            reference = blocks.cell("reference", quiet=True)
            found.insert(1, reference if group == to else range_cell(own.get(group), 1, 2))
        return [blocks.cell(f"{figures['n']:,}"), *found]

    heads: list[str | tuple[str, str]] = ["Group", "Rows", *(title for title, *_ in shown)]
    if ratios:
        heads.insert(
            3, (ratio_title(words.favourable), "The group’s selection rate divided by that of the reference group.")
        )
    known = {name: to for name, (to, _) in ratios.items() if to is not None}
    given = any(result["rates"][name]["reference_is_given"] for name in known)
    ratio = ratio_title(words.favourable).replace("atio", "atios", 1)
    notes = [reference_note(known, given, ratio, by_attribute), _error_note(words), _odds_note(result)]
    caption = f"Groups by {{}}: percent, with {level_text(result.get('level', 0.95))} intervals"
    return of_groups(by_attribute, said, cells, caption, heads, notes)


def of_groups(
    by_attribute: Record,
    said: Sequence[str],
    cells: Callable[[str, str], list[Record]],
    caption: str,
    heads: Sequence[str | tuple[str, str]],
    notes: Sequence[str],
) -> tuple[Record, Record]:
    """Return what fits a screen, and the table of the first sheet: groups that sentences name stand in both.

    Args:
        by_attribute: the columns, each with its ``groups``.
        said: the finding, and the sentences below it.
        cells: returns those of a column's group.
        caption: of the table, with ``{}`` for the names of the columns.
        heads: titles of its columns.
        notes: sentences below it.
    """
    several = len(by_attribute) > 1
    size: dict[tuple[str, str], int] = {}
    groups = [(name, group) for name, part in by_attribute.items() for group in part["groups"]]
    heads_of_rows = [f"{short(name, 20)}: {short(group, 60)}" if several else group for name, group in groups]
    rows: list[tuple[object, list[Record]]] = [
        (head, cells(*one)) for head, one in zip(heads_of_rows, groups, strict=True)
    ]
    named = joined([short(name, 30) for name in list(by_attribute)[:4]])
    table = blocks.table(caption.format(named), heads, rows, notes=notes)
    for name, part in by_attribute.items():  # the largest of each column, then the second
        order = sorted(part["groups"], key=lambda group: -part["groups"][group]["n"])
        size |= {(name, group): at for at, group in enumerate(order)}
    ranked = sorted(range(len(groups)), key=lambda at: size[groups[at]])
    about = [_named(one, groups, ranked) for one in said[:SHOWN]]
    places = list(dict.fromkeys([*chain(*about), *ranked]))
    screen = blocks.brief(said[1:], table | {"notes": []}, places, table["notes"], named=about)
    kept = [table["rows"][at] for at in sorted(places[:ON_SHEET])]
    rest = f"And {len(rows) - len(kept):,} more, of {len(rows):,} groups: in the appendix."
    return screen, table | {"rows": kept, "notes": [*table["notes"], *([rest] if len(rows) > len(kept) else [])]}


def _named(sentence: str, groups: Sequence[tuple[str, str]], ranked: Sequence[int]) -> list[int]:
    """Return the places of the groups that a sentence names; of those that look alike, the one that ranks first."""
    only = {column for column, _ in groups if sentence.startswith(f"By {printable(column)}, ")}
    places: dict[str, int] = {}
    for at in ranked:
        column, group = groups[at]
        for name in (named_group(column, group), in_quotes(group)) if not only or column in only else ():
            places.setdefault(name, at)
    longest = sorted(map(re.escape, places), key=len, reverse=True)  # "f & low" before "low"
    found = re.findall(rf"(?<!\w)(?:{'|'.join(longest)})(?!\w)", sentence)
    return list(dict.fromkeys(places[name] for name in found))


def _shown(result: Record, words: Words) -> list[tuple[str, str, bool]]:
    """Return the columns of rates: title, name, and whether they show one less that rate."""
    if result.get("positive") is None:
        return [(RATE_TITLES["accuracy"], "accuracy", False)]
    if words.favourable is None:
        return [(RATE_TITLES[rate], rate, False) for rate in (SELECTED, FOUND, ALARM)]
    wrongly = ("Wrongly selected", FOUND if words.turned else ALARM, words.turned)
    denied = ("Wrongly not selected", ALARM if words.turned else FOUND, not words.turned)
    return [(RATE_TITLES[SELECTED], SELECTED, words.turned), wrongly, denied]


def range_cell(figure: Estimate | None, scale: float = 100, digits: int = 1) -> Record:
    """Return a cell with an interval in few characters, so that four of them fit a terminal beside the groups."""
    if figure is None:
        return blocks.no_cell()
    if not figure.defined:
        return blocks.undefined_cell(figure.reason)
    low, high = (number(scale * end, digits) if math.isfinite(end) else "" for end in (figure.low, figure.high))
    return blocks.cell(number(scale * figure.value, digits), f"{low}–{high}" if low or high else "no interval")


def _rate(figures: Record, rate: str, other: bool) -> Estimate:
    found: Record = next((one for key, one in figures.items() if key.partition("[")[0] == rate), {})
    figure = estimate_from_dict(found)
    return turned(figure) if other and figure.defined else figure


def _ratios(found: Record, words: Words) -> tuple[str | None, dict[str, Estimate]]:
    """Return the reference group of selection ratios, and the ratios: of the favourable outcome, if one was named."""
    outcome = found["outcomes"][0] if words.favourable is not None else None
    if outcome is not None:
        return outcome["reference"], {group: estimate_from_dict(one) for group, one in outcome["ratios"].items()}
    own = {group: one["selection_ratio"] for group, one in found["groups"].items()}
    return found["reference"], {group: estimate_from_dict(one) for group, one in own.items() if one is not None}


def reference_note(known: Mapping[str, str], given: bool, ratios: str, by_attribute: Record) -> str:
    """Name the groups that ratios refer to, by column; ``given``: as the user named them."""
    if not known:
        return ""
    several = len(by_attribute) > 1
    named = [short(to, 40) + (f" ({short(name, 20)})" if several else "") for name, to in list(known.items())[:4]]
    return f"{ratios} are relative to {joined(named)}{'' if given else ', the most selected'}."


def _error_note(words: Words) -> str:
    """Say who is selected, and what the two errors are, in the words of the label."""
    if words.favourable is None:
        return ""
    return f"Wrongly selected: {words.errors[0]}."


def _odds_note(result: Record) -> str:
    """Say the gaps in equalized odds: the larger of the two parts, as fairlearn has it."""
    told, by_attribute = [], result["by_attribute"]
    for name, part in list(by_attribute.items())[:4]:
        figure, adjusted = of_pairs(name, WORST, estimate_from_dict(part["metrics"].get(WORST) or {}), result)
        span = f"{percent(figure)} {percent_interval(figure)}" if figure.defined else "undefined"
        span += "" if adjusted or not figure.defined else " (not adjusted)"
        told.append((f"{short(name, 20)} " if len(by_attribute) > 1 else "") + span)
    return f"Equalized-odds gap, points: {', '.join(told)}."


def of_pairs(name: str, key: str, figure: Estimate, result: Record) -> tuple[Estimate, bool]:
    """Return a gap of a column with the interval of the two groups that it is between, as all sentences have it.

    Also whether the interval is adjusted for all comparisons, or there is only one.
    """
    rates = {WORST: (FOUND, ALARM), "equal_opportunity": (FOUND,)}.get(key.removesuffix("_mean"), ())
    for pair in result.get("pairs") or []:
        apart = estimate_from_dict(pair["difference"]).size
        if pair["attribute"] == name and pair["rate"] in rates and math.isclose(apart.value, figure.value):
            return replace(figure, low=apart.low, high=apart.high), True
    return figure, ((result.get("finding") or {}).get("comparisons") or 1) < 2
