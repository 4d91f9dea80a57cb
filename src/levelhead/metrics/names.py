"""What the figures, columns and groups of an audit are called in words, for every page and table that shows them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from levelhead.arrays import check_fields
from levelhead.types import ConfigError, listed, quoted

Key = str | tuple[str, ...]
"""A column or one of its groups; for a crossing, the columns or their groups in a tuple. Names are for printing."""

One = TypeVar("One")

MISSING_GROUP = "(missing)"


@dataclass(frozen=True)
class Metric:
    """One metric: what it is computed from, and what it is called wherever it is shown.

    Attributes:
        name: key in :data:`METRICS`, in options and in JSON.
        title: name in an audit's table.
        short: head of a column.
        subject: name in a sentence.
        definition: one sentence that says what is measured.
        kind: ``level`` (a share of rows; larger is better), ``lowest`` (the lowest of several), or ``gap`` (the largest
            difference between two groups; smaller is better).
        rates: of a gap alone. A gap is the largest of these parts; the gap of a part is the mean of the absolute
            differences of its rates: ``selection_rate`` alone, or ``true_positive_rate`` and
            ``false_positive_rate``.
        compared: whether tables of several runs show it.
    """

    name: str
    title: str
    short: str
    subject: str
    definition: str
    kind: Literal["level", "lowest", "gap"]
    rates: tuple[tuple[str, ...], ...] = ()
    compared: bool = True

    def __post_init__(self) -> None:
        check_fields(self, "Metric")
        used, known = set(self.rates_used), {"true_positive_rate", "false_positive_rate"}
        if (self.kind == "gap") != bool(used) or not (used <= known or used == {"selection_rate"}):
            raise ConfigError(
                f"Metric {self.name}: only a gap has rates: selection_rate alone, or true_positive_rate and "
                "false_positive_rate."
            )

    @property
    def rates_used(self) -> list[str]:
        """The rates that a gap compares, each once."""
        return list(dict.fromkeys(rate for part in self.rates for rate in part))

    @property
    def larger_is_better(self) -> bool:
        """Whether a larger figure is the better one."""
        return self.kind != "gap"

    @property
    def column(self) -> str:
        """The short name inside a line: it keeps its capital only where that belongs to an abbreviation."""
        return self.short if self.short[1].isupper() else self.short[0].lower() + self.short[1:]


def _by_name(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS = _by_name(
    Metric(
        "accuracy",
        title="Accuracy",
        short="Accuracy",
        subject="accuracy",
        definition="The share of rows whose predicted class equals the label.",
        kind="level",
    ),
    Metric(
        "balanced_accuracy",
        title="Balanced accuracy",
        short="Balanced accuracy",
        subject="balanced accuracy",
        definition="The mean over classes of the share of their rows predicted correctly.",
        kind="level",
    ),
    Metric(
        "worst_group_accuracy",
        title="Worst (group, label) accuracy",
        short="Worst group accuracy",
        subject="worst group accuracy",
        definition="The lowest accuracy over all pairs of group and label, as in GroupDRO and JTT.",
        kind="lowest",
    ),
    Metric(
        "demographic_parity",
        title="Demographic parity gap",
        short="DP gap",
        subject="demographic parity",
        definition="The largest difference between two groups in the share of rows that are predicted positive.",
        kind="gap",
        rates=(("selection_rate",),),
    ),
    Metric(
        "equal_opportunity",
        title="Equal opportunity gap",
        short="EOp gap",
        subject="equal opportunity",
        definition="The largest difference between two groups in the true positive rate.",
        kind="gap",
        rates=(("true_positive_rate",),),
    ),
    Metric(
        "equalized_odds",
        title="Equalized odds gap (mean of |dTPR|, |dFPR|)",
        short="EOd gap",
        subject="equalized odds",
        definition="The largest mean, over two groups, of the differences in the true positive rate and in the false "
        "positive rate: (|ΔTPR| + |ΔFPR|) / 2.",
        kind="gap",
        rates=(("true_positive_rate", "false_positive_rate"),),
    ),
    Metric(
        "equalized_odds_worst",
        title="Equalized odds gap (larger of |dTPR|, |dFPR|)",
        short="EOd gap, larger part",
        subject="equalized odds (larger of the two parts)",
        definition="The same with the larger of the two differences. Several libraries call this the equalized odds "
        "difference.",
        kind="gap",
        rates=(("true_positive_rate",), ("false_positive_rate",)),
        compared=False,
    ),
)
"""Every metric, in the order in which tables show them. With several classes each is set against the rest: the worst
class counts, or with ``_mean`` behind the name of a gap, the mean over classes."""
COMPARED = {name: metric.column for name, metric in METRICS.items() if metric.compared}
"""Heads of the columns that tables of several runs have, by metric."""


def gaps() -> list[str]:
    """Return the names of the gaps; a metric of the user's own counts from when it stands in :data:`METRICS`."""
    return [name for name, metric in METRICS.items() if metric.kind == "gap"]


def metric_of(name: str) -> Metric:
    """Return the record of a metric, also of a mean over classes (``equalized_odds_mean``).

    Raises :class:`~levelhead.types.ConfigError` for a name that no metric has.
    """
    base = name.removesuffix("_mean")
    if base not in METRICS:
        raise ConfigError(f"Unknown metric {quoted(name)}. Known: {listed(METRICS)}.")
    return METRICS[base]


RATE_TITLES = {
    "accuracy": "Accuracy",
    "selection_rate": "Selection rate",
    "true_positive_rate": "True positive rate",
    "false_positive_rate": "False positive rate",
}


def parts_of(key: Key) -> list[str]:
    """Return the columns of a key, or the groups of a crossing: one or several."""
    return [key] if isinstance(key, str) else list(key)


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


def by_names(by_attribute: Mapping[Key, One]) -> dict[str, One]:
    """Return what there is on each column and crossing under its name, as :func:`attribute_names` gives it."""
    return dict(zip(attribute_names(by_attribute).values(), by_attribute.values(), strict=True))


def _part(name: str) -> str:
    """Put quotes around a part of a crossing that would otherwise be taken for two."""
    return json.dumps(name, ensure_ascii=False) if "&" in name or '"' in name else name
