"""Audits as drawings, for notebooks and further work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from levelhead.arrays import checked
from levelhead.extras import explained
from levelhead.metrics.names import RATE_TITLES, by_names, group_name
from levelhead.types import ConfigError, Estimate, listed, printable, quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from levelhead.auditing.result import AuditResult

DRAWN = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
MOST_DRAWN = 40
"""Groups in a drawing: the largest ones."""


@checked
def draw_rates(result: AuditResult, attribute: str | None = None, rates: Sequence[str] | None = None) -> Figure:
    """Draw the rates of the groups of one sensitive column with their intervals, a panel for each rate.

    Args:
        result: the audit.
        attribute: name of the column, or of a crossing as in the JSON; None: the first.
        rates: names of rates, such as ``true_positive_rate`` (of several classes ``true_positive_rate[class]``); None:
            selection, true and false positive rate and accuracy, as far as they are there.

    Returns:
        a matplotlib figure, which a notebook shows and ``savefig`` writes.

    Raises:
        ConfigError: there is no such column or rate.
    """
    parts = by_names(result.by_attribute)
    name = next(iter(parts)) if attribute is None else attribute
    if name not in parts:
        raise ConfigError(f"The audit has no column {quoted(name)}. It has {listed(parts)}.")
    part = parts[name]
    there = list(next(iter(part.groups.values())).rates)
    wanted = [rate for rate in there if rate.partition("[")[0] in DRAWN] if rates is None else list(rates)
    if unknown := [rate for rate in wanted or ["none"] if rate not in there]:
        raise ConfigError(f"The audit has no rate {quoted(unknown[0])}. It has {listed(there)}.")
    wanted = wanted if rates is not None else sorted(wanted, key=lambda rate: DRAWN.index(rate.partition("[")[0]))[:4]
    largest = sorted(part.groups, key=lambda group: -part.groups[group].n)[:MOST_DRAWN]
    groups = [group for group in part.groups if group in set(largest)]
    drawn = {}
    for rate in wanted:
        kind, _, ending = rate.partition("[")
        drawn[RATE_TITLES[kind] + (f" [{ending}" if ending else "")] = [
            (part.groups[group].rates[rate], part.groups[group].included) for group in groups
        ]
    return _panels(drawn, list(map(group_name, groups)), f"Groups of {name}", result.level)


@checked
def _panels(
    drawn: Mapping[str, Sequence[tuple[Estimate, bool]]], rows: Sequence[str], title: str, level: float
) -> Figure:
    """Draw a panel for each title: a point and an interval for each row, hollow where a group is not compared."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise explained(error, "plot") from error

    figure = Figure(figsize=(2.6 * len(drawn) + 1.4, 1.1 + 0.32 * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    for panel, (heading, estimates) in zip(panels, drawn.items(), strict=True):
        for place, (estimate, included) in enumerate(estimates):
            if not math.isnan(estimate.low):
                panel.hlines(place, 100 * estimate.low, 100 * estimate.high, color="#1b4f72", linewidth=1.6)
            if estimate.defined:
                filled = "#1b4f72" if included else "white"
                panel.plot(100 * estimate.value, place, "o", color="#1b4f72", markerfacecolor=filled, markersize=5)
        panel.set_title(_plain(heading), fontsize=9, loc="left")
        panel.set_xlabel("percent", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.grid(axis="x", color="0.92")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(rows)), list(map(_plain, rows)))
    panels[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.suptitle(_plain(f"{title}, {100 * level:g}% intervals"), fontsize=10, x=0.01, ha="left")
    return figure


def _plain(text: str) -> str:
    """Return a name as matplotlib draws it: on one line, and no formula."""
    return printable(text, 48).replace("$", r"\$")
