"""An audit as a drawing, for notebooks and further work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from levelhead.arrays import checked
from levelhead.extras import explained
from levelhead.metrics.names import RATE_TITLES, attribute_names, group_name
from levelhead.types import ConfigError, listed, printable, quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from levelhead.auditing.result import AuditResult

DRAWN = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
MOST_DRAWN = 40
"""Groups in a drawing; those with the most rows."""


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
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise explained(error, "plot") from error

    names = {name: key for key, name in attribute_names(result.by_attribute).items()}
    name = next(iter(names)) if attribute is None else attribute
    if name not in names:
        raise ConfigError(f"The audit has no column {quoted(name)}. It has {listed(names)}.")
    part = result.by_attribute[names[name]]
    there = list(next(iter(part.groups.values())).rates)
    wanted = [rate for rate in there if rate.partition("[")[0] in DRAWN] if rates is None else list(rates)
    if unknown := [rate for rate in wanted or ["none"] if rate not in there]:
        raise ConfigError(f"The audit has no rate {quoted(unknown[0])}. It has {listed(there)}.")
    wanted = wanted if rates is not None else sorted(wanted, key=lambda rate: DRAWN.index(rate.partition("[")[0]))[:4]
    largest = sorted(part.groups, key=lambda group: -part.groups[group].n)[:MOST_DRAWN]
    groups = [group for group in part.groups if group in set(largest)]
    figure = Figure(figsize=(2.6 * len(wanted) + 1.4, 1.1 + 0.32 * len(groups)), layout="constrained")
    panels = figure.subplots(1, len(wanted), sharey=True, squeeze=False)[0]
    for panel, rate in zip(panels, wanted, strict=True):
        for place, group in enumerate(groups):
            estimate = part.groups[group].rates[rate]
            if estimate.defined:
                panel.hlines(place, 100 * estimate.low, 100 * estimate.high, color="#1b4f72", linewidth=1.6)
                filled = "#1b4f72" if part.groups[group].included else "white"
                panel.plot(100 * estimate.value, place, "o", color="#1b4f72", markerfacecolor=filled, markersize=5)
        kind, _, ending = rate.partition("[")
        panel.set_title(_plain(RATE_TITLES[kind] + (f" [{ending}" if ending else "")), fontsize=9, loc="left")
        panel.set_xlabel("percent", fontsize=8)
        panel.tick_params(labelsize=8)
        panel.grid(axis="x", color="0.92")
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(groups)), [_plain(group_name(group)) for group in groups])
    panels[0].set_ylim(len(groups) - 0.5, -0.5)
    figure.suptitle(_plain(f"Groups of {name}, {100 * result.level:g}% intervals"), fontsize=10, x=0.01, ha="left")
    return figure


def _plain(text: str) -> str:
    """Return a name as matplotlib draws it: on one line, and no formula."""
    return printable(text, 48).replace("$", r"\$")
