"""What the figures, columns and groups of an audit are called in words, for every page and table that shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from levelhead.types import printable

Key = str | tuple[str, ...]
"""A column or one of its groups; for a crossing, the columns or their groups in a tuple. Names are for printing."""

MISSING_GROUP = "(missing)"
TITLES = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "worst_group_accuracy": "Worst (group, label) accuracy",
    "demographic_parity": "Demographic parity gap",
    "equal_opportunity": "Equal opportunity gap",
    "equalized_odds": "Equalized odds gap (mean of |dTPR|, |dFPR|)",
    "equalized_odds_worst": "Equalized odds gap (larger of |dTPR|, |dFPR|)",
}
RATE_TITLES = {
    "accuracy": "Accuracy",
    "selection_rate": "Selection rate",
    "true_positive_rate": "True positive rate",
    "false_positive_rate": "False positive rate",
}
NOTE = (
    "Figures are findings about these rows and groups, in percent with confidence intervals. An interval that "
    "reaches 0 means that these rows cannot tell whether there is a gap."
)


def metric_title(name: str, worst: str | None = None) -> str:
    """Say a metric's name in words; ``worst`` is the class that it is about, where several are compared."""
    plain = name.removesuffix("_mean")
    mean = ", mean over classes" if name.endswith("_mean") else ""
    return TITLES.get(plain, plain) + mean + (f", worst class: {printable(worst)}" if worst is not None else "")


def group_name(group: Key) -> str:
    """Return the name of a group; no two groups of a column, and no two of a crossing, have the same."""
    return group if isinstance(group, str) else " & ".join(map(_part, group))


def attribute_names(attributes: Iterable[Key]) -> dict[Key, str]:
    """Return the names of columns and of their crossing; a column that is called ``a & b`` keeps its name."""
    names = {attribute: group_name(attribute) for attribute in attributes}
    for attribute in names:
        while isinstance(attribute, tuple) and names[attribute] in names:
            names[attribute] += " (crossed)"
    return names


def left_out_words(included: bool, left_out: Sequence[str]) -> str:
    """Say whether gaps count a group out, from ``GroupFigures.included`` and ``left_out``; the warnings say which."""
    if not included:
        return "left out of the gaps"
    return "left out of some gaps" if left_out else ""


def _part(name: str) -> str:
    """Put quotes around a part of a crossing that would otherwise be taken for two."""
    return json.dumps(name, ensure_ascii=False) if "&" in name or '"' in name else name
