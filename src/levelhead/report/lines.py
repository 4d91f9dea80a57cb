"""Lines: two groups' rates and their gap over time, and figures along a number or a threshold."""

from __future__ import annotations

from collections.abc import Sequence

from levelhead.metrics.names import METRICS, RATE_TITLES
from levelhead.report import blocks
from levelhead.report.sentences import TURNED, Words, turned
from levelhead.report.text import Record, estimate_from_dict, level_text, short

TICKS = 6
"""Periods that are named below a chart."""


def chart(record: Record, lead: Record) -> list[Record]:
    """Return both rates and their gap over the periods of the trend that the lead is about; nothing without one."""
    whole = record.get("over_time") or {}
    trends = [one for own in whole.get("by_attribute", {}).values() for one in own["trends"]]
    if len(whole.get("periods", ())) < 3 or not trends:
        return []
    sign, base, names = (
        (-1, 1, TURNED) if Words(record).turned else (1, 0, dict[str, str]())
    )  # rates of the other class
    about = [names.get(lead["quantity"], lead["quantity"]), *lead["groups"]]
    one = next((one for one in trends if [one["rate"], one["group"], one["reference"]] == about), trends[0])
    gaps = one["gaps"]
    ticks = [(at, short(gap["period"], 12)) for at, gap in enumerate(gaps)][:: max(1, -(-len(gaps) // TICKS))]
    rate = RATE_TITLES[names.get(one["rate"], one["rate"])]
    group, to = short(one["group"], 40), short(one["reference"], 40)
    rates = [  # in the colours of the headline, whose second group has the first one
        (name, [(at, 100 * (base + sign * gap["rates"][side])) for at, gap in enumerate(gaps)])
        for side, name in ((1, to), (0, group))
    ]
    points = [
        (at, *(100 * end for end in (found.value, found.low, found.high)), gap["period"] == one["first_outside"])
        for at, gap in enumerate(gaps)
        for found in [turned(figure, 0) if names else figure for figure in [estimate_from_dict(gap["difference"])]]
    ]
    ends = zip((0, len(gaps) - 1), one["line"], strict=True)
    line = [(at, 100 * sign * end) for at, end in ends if end is not None]
    outside = [f"Ringed: {one['first_outside']}, the first period outside its limits."] * bool(one["first_outside"])
    return [
        blocks.curves(f"{rate} by period", rates, titles=(short(whole["column"], 40), "Percent"), ticks=ticks),
        blocks.curves(
            f"{group} minus {to}, by period",
            [("trend", line)] if line else [],
            titles=(short(whole["column"], 40), "Points"),
            points=points,
            ticks=ticks,
            notes=[f"Lines: {level_text(whole['level'])} intervals of the period alone. 0 is no gap.", *outside],
        ),
    ]


def curves(record: Record, column: str) -> list[Record]:
    """Return a column's gap over the threshold of scores, and what changes along numbers."""
    own = ((record.get("scores") or {}).get("by_attribute") or {}).get(column, {}).get("curves", {})
    gap = own.get("equalized_odds_worst", {"thresholds": []})
    found = [_gap(column, "equalized_odds_worst", gap, record)] if len(gap["thresholds"]) > 1 else []
    for name, own in (record.get("continuous") or {}).items():
        if own["curve"]:
            found.append(_along(name, own["curve"], record.get("positive")))
    return found


def _gap(name: str, key: str, curve: Record, record: Record) -> Record:
    places = list(zip(curve["thresholds"], curve["values"], curve["low"], curve["high"], strict=True))
    return blocks.curves(
        f"{METRICS[key].title} by {short(name)}, at each threshold",
        [("gap", [(at, 100 * value) for at, value, _, _ in places])],
        titles=("Threshold", "Points"),
        band=[(at, 100 * low, 100 * high) for at, _, low, high in places],
        marks=record["scores"]["thresholds"],
        notes=[f"Band: pointwise {level_text(record['level'])} interval. Upright lines: the chosen thresholds."],
    )


def _along(name: str, curve: Sequence[Sequence[float]], of_class: str | None) -> Record:
    title, unit, scale = "Mean error", "Label's unit", 1
    if of_class is not None:
        title, unit, scale = f"Selection rate of “{short(of_class, 40)}”", "Percent", 100
    return blocks.curves(
        f"{title} along {short(name)}: cubic fit from the 5th to the 95th percentile",
        [("fit", [(at, scale * value) for at, value in curve])],
        titles=(short(name), unit),
    )
