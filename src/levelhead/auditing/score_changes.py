"""How well two models' scores order the same rows: the change of the area under the ROC curve, group by group.

Areas on the same rows are correlated; the variance of their difference is DeLong's (:mod:`levelhead.metrics.ranking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelhead.metrics.between import shared
from levelhead.metrics.names import Key, group_name
from levelhead.metrics.ranking import area_under_roc
from levelhead.report.headline import Lead
from levelhead.report.record import Finding
from levelhead.report.sentences import group_change_lead
from levelhead.types import Estimate, printable


@dataclass(frozen=True)
class AreaChange(Finding):
    """One group: the AUC of the ``old`` and the ``new`` scores, and its ``change``.

    Intervals hold for all groups together.
    """

    old: float
    new: float
    change: Estimate


def area_changes(
    label: NDArray[np.bool_],
    scores: tuple[NDArray[np.float64], NDArray[np.float64]],
    member: NDArray[np.int64],
    groups: Sequence[Key],
    compared: NDArray[np.bool_],
    *,
    min_count: int,
    level: float,
    cluster: NDArray[np.int64] | None = None,
) -> dict[Key, AreaChange]:
    """Return the changes of the groups that have enough positives and negatives.

    Args:
        label: (rows,) True for positives.
        scores: of the old and the new model, (rows,) each.
        member: (rows,) place of each row's group.
        groups: the groups.
        compared: (groups,) whether each is compared.
        min_count: positives, and negatives, that a group needs.
        level: how often all intervals of a kind hold together.
        cluster: (rows,) codes of rows that belong together.
    """
    sizes = np.stack([np.bincount(member[label == one], minlength=len(groups)) for one in (False, True)], -1)
    kept = np.flatnonzero((sizes >= max(min_count, 2)).all(-1) & compared)
    if not len(kept):
        return {}
    rows = np.isin(member, kept)
    named = dict(zip(("old", "new"), (one[rows] for one in scores), strict=True))
    found = area_under_roc(
        label[rows], member[rows], named, positive=True, baseline="old", level=shared(level, len(kept)),
        clusters=None if cluster is None else cluster[rows],
    )  # fmt: skip
    return {
        groups[at]: AreaChange(found["old"][str(at)][0].value, found["new"][str(at)][0].value, change)
        for at in kept.tolist()
        if (change := found["new"][str(at)][1]) is not None
    }


def area_leads(name: str, areas: dict[Key, AreaChange]) -> list[Lead]:
    """Say for which groups the scores order better or worse than before."""
    decided = [(key, one) for key, one in areas.items() if one.change.excludes_zero]
    leads = [
        group_change_lead(name, group_name(key), "area", one.old, one.new, one.change, title="AUC")
        for key, one in sorted(decided, key=lambda pair: -abs(pair[1].change.value))[:5]
    ]
    if areas and not leads:
        leads.append(Lead((f"By {printable(name)}, no group’s AUC changed measurably.",)))
    return leads
