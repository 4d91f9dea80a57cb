"""What scores do in each group beside their order: Kolmogorov-Smirnov, Gini, Brier, and rates at every threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from levelhead.metrics import separation
from levelhead.metrics.between import Differences
from levelhead.metrics.names import Key, group_name
from levelhead.metrics.scores import ScoreCounts
from levelhead.report.record import Finding
from levelhead.report.text import Record
from levelhead.types import Estimate

RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
MOST_DRAWN = 32
"""Lines of a picture, and groups of which curves are kept."""


@dataclass(frozen=True)
class Separation(Finding):
    """One group: how far scores separate its classes, ``kolmogorov_smirnov`` and ``gini`` (2 AUC - 1), and ``brier``.

    ``reached_at`` is the score at which the two classes are farthest apart.
    """

    kolmogorov_smirnov: Estimate
    reached_at: float
    gini: Estimate
    brier: Estimate


def separations(
    counts: ScoreCounts, areas: Sequence[Estimate], level: float, no_scale: str | None, clustered: str | None
) -> list[Separation]:
    """Return the figures of each group.

    Args:
        counts: of the scores.
        areas: the area under the ROC curve of each group.
        level: of the intervals.
        no_scale: why there is no Brier score; None: there is one.
        clustered: why intervals that take rows for independent are left out; None: they are not.
    """
    apart, squared, why = separation.kolmogorov_smirnov(counts, level), separation.brier(counts), no_scale or clustered
    off, found = squared.means(0, level, skewed=True), []
    for at, area in enumerate(areas):
        n = int(counts.sizes[at].sum())
        one = (
            Differences(*apart[:3]).at(at, n, str(area.reason))
            if clustered is None
            else Estimate.undefined(clustered, n)
        )
        brier = off.at(at, n) if why is None else Estimate.undefined(why, n)
        gini = area if not area.defined else Estimate(2 * area.value - 1, 2 * area.low - 1, 2 * area.high - 1, n)
        found.append(Separation(one, float(apart.threshold[at]), gini, brier))
    return found


def rates_over(counts: ScoreCounts, keys: Sequence[Key], thresholds: Sequence[float]) -> Record:
    """Return the rates of each group at each threshold, JSON-able; None where there are no rows."""
    if len(keys) > MOST_DRAWN:
        return {}
    tables = counts.tables(thresholds)
    hits, rows = tables[..., 1], tables.sum(-1)
    parts = {
        "selection_rate": (hits.sum(-1), rows.sum(-1)),
        "true_positive_rate": (hits[..., 1], rows[..., 1]),
        "false_positive_rate": (hits[..., 0], rows[..., 0]),
    }
    groups: dict[str, dict[str, list[float | None]]] = {}
    for at, key in enumerate(keys):
        groups[group_name(key)] = {
            rate: [float(x / n) if n else None for x, n in zip(own[:, at], of[:, at], strict=True)]
            for rate, (own, of) in parts.items()
        }
    return {"thresholds": list(map(float, thresholds)), "groups": groups}
