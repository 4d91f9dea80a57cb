"""What an audit says first: which two groups differ most, in which direction, and how sure that is.

Every pair of groups of every sensitive column is compared in the true and in the false positive rate. All intervals
hold together (Bonferroni), so that the largest gap can be named without flattery and without alarm.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from levelhead.metrics import Counts, estimate_to_dict
from levelhead.metrics import group as group_metrics
from levelhead.metrics.between import chance_range, clearest, differences
from levelhead.metrics.clustered import FEWEST
from levelhead.metrics.contrasts import pair_indices
from levelhead.metrics.counts import IntArray
from levelhead.metrics.group import FloatArray
from levelhead.metrics.names import Key, group_name
from levelhead.metrics.power import POWER, detectable_gap
from levelhead.metrics.weighted import WeightedCounts, WeightedRate
from levelhead.report.text import estimate_from_dict
from levelhead.types import ConfigError, Estimate, listed, quoted

if TYPE_CHECKING:
    from levelhead.auditing.options import AuditOptions

ERROR_RATES = ("true_positive_rate", "false_positive_rate")
NAMED_PAIRS = 10
"""Pairs of a sensitive column that tables name; the others are counted."""


@dataclass(frozen=True)
class _Rate:
    """One rate of one class in the groups of one column that have enough rows for it."""

    attribute: str
    rate: str
    of_class: str
    groups: list[str]
    hits: IntArray | FloatArray
    rows: IntArray | FloatArray
    """The effective sample size of weighted rows (:mod:`levelhead.metrics.weighted`)."""
    first: IntArray
    second: IntArray
    reference: bool
    weighted: WeightedRate | None = None


def find(
    columns: Mapping[str, Counts],
    pooled: Counts,
    balanced: Estimate,
    options: AuditOptions,
    *,
    positive: int | None,
    reference: Mapping[str, str] | None = None,
    weighted: Mapping[str, WeightedCounts] | None = None,
) -> dict[str, Any]:
    """Compare all pairs of groups.

    Args:
        columns: the counts of each sensitive column, without groups that are left out of the gaps, by its name.
        pooled: the counts of all rows in one group.
        balanced: the balanced accuracy of all rows.
        options: ``min_count``, ``level`` (how often all intervals together are to hold their true differences)
            and ``seed`` of what chance deals out.
        positive: as :func:`levelhead.metrics.estimate` takes it.
        reference: the group of each column that the others are compared with; columns without one compare all pairs.
        weighted: the same rows with their weights, where they have some.

    Returns:
        JSON-able: ``finding`` (the pair to name, and whether the model decides anything at all), ``pairs`` (the
        largest of each column), ``ranges`` (beside those that chance makes) and ``detectable`` (the smallest gaps
        that these rows would have shown).
    """
    level = options.level
    rates: list[_Rate] = []
    for attribute, counts in columns.items():
        beside = (reference or {}).get(attribute), (weighted or {}).get(attribute)
        rates += _rates(attribute, counts, positive, options.min_count, *beside)
    comparisons = sum(len(rate.first) for rate in rates)
    pairs: list[dict[str, Any]] = []
    ranges, detectable, at_most = [], [], 0.0
    for rate in rates:
        own = rate.weighted
        found = (
            differences(rate.hits, rate.rows, rate.first, rate.second, level=level, comparisons=comparisons)
            if own is None
            else own.differences(rate.first, rate.second, level=level, comparisons=comparisons)
        )
        at_most = max(at_most, float(np.maximum(-found.low, found.high).max()))
        largest = int(np.abs(found.value).argmax())  # which the gap of the column is
        pairs += [_pair(rate, int(at), found) for at in dict.fromkeys([*found.named(NAMED_PAIRS), largest])]
        # Hits of weighted rows cannot be drawn again.
        if len(rate.groups) > 2 and rate.weighted is None:
            hits, rows = rate.hits.astype(np.int64), rate.rows.astype(np.int64)
            ranges.append(_names(rate) | chance_range(hits, rows, seed=options.seed)._asdict())
        detectable.append(_detectable(rate, level, comparisons))
    pairs.sort(key=_clearest)
    named = []
    for attribute in columns:
        theirs = [pair for pair in pairs if pair["attribute"] == attribute]
        kept = theirs[:NAMED_PAIRS]
        # And of each rate the interval that ends farthest: what these keep for sure, all keep. And the largest gap.
        of_rates = {_rate_of(pair): [one for one in theirs if _rate_of(one) == _rate_of(pair)] for pair in kept}
        farthest = [max(those, key=key) for those in of_rates.values() for key in (_reach, _size)]
        farthest = [pair for at, pair in enumerate(farthest) if pair not in farthest[:at]]
        named += [*kept, *(pair for pair in farthest if pair not in kept)]
    named.sort(key=_clearest)
    finding = {
        "pair": pairs[0] if pairs else None,
        "comparisons": comparisons,
        "at_most": at_most if pairs else None,
        **_answers(pooled, balanced),
    }
    return {"finding": finding, "pairs": named, "ranges": ranges, "detectable": detectable}


def _clearest(pair: Mapping[str, Any]) -> tuple[bool, float]:
    return clearest(estimate_from_dict(pair["difference"]))


def _rate_of(pair: Mapping[str, Any]) -> tuple[str, str]:
    return pair["rate"], pair["class"]


def _size(pair: Mapping[str, Any]) -> float:
    return abs(estimate_from_dict(pair["difference"]).value)


def _reach(pair: Mapping[str, Any]) -> float:
    return estimate_from_dict(pair["difference"]).size.high


def _rates(
    attribute: str,
    counts: Counts,
    positive: int | None,
    min_count: int,
    reference: str | None,
    weighted: WeightedCounts | None,
) -> list[_Rate]:
    """Return the error rates of a column that two groups at least have enough rows for."""
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    names = [str(group) for group in counts.groups]
    rates = []
    for name in ERROR_RATES:
        counted = group_metrics.RATES[name](counts.table, positive)
        worth = None if weighted is None else weighted.rate(name, positive)
        for position, k in enumerate(chosen):
            kept = np.flatnonzero(counted.rows[position] >= max(1, min_count))
            if worth is not None and worth.clusters is not None:
                kept = kept[worth.clusters[position][kept] >= FEWEST]
            groups = [names[i] for i in kept]
            if len(groups) < 2 or (reference is not None and reference not in groups):
                continue
            hits, rows = counted.hits[position][kept], counted.rows[position][kept]
            own = None
            if worth is not None:
                own = worth.of(position, kept)
                hits, rows = own.hits, own.worth
            first, second = pair_indices(len(groups), None if reference is None else groups.index(reference))
            of_class = str(counts.classes[k])
            rates.append(
                _Rate(attribute, name, of_class, groups, hits, rows, first, second, reference is not None, own)
            )
    return rates


def _names(rate: _Rate) -> dict[str, Any]:
    names = {"attribute": rate.attribute, "rate": rate.rate, "class": rate.of_class, "groups": len(rate.groups)}
    low, high = int((rate.hits / rate.rows).argmin()), int((rate.hits / rate.rows).argmax())
    return names | {"lowest": rate.groups[low], "highest": rate.groups[high]}


def _pair(rate: _Rate, at: int, found: Any) -> dict[str, Any]:
    """Return a pair of groups; the one that fares worse comes first, but a reference group always second."""
    i, j = int(rate.first[at]), int(rate.second[at])
    value, low, high = (float(ends[at]) for ends in found)
    turned = (value > 0) == (rate.rate == "true_positive_rate") and value != 0
    if turned and not rate.reference:
        i, j, value, low, high = j, i, -value, -high, -low
    sides = {"first": _side(rate, i), "second": _side(rate, j)}
    rows = sum(side["rows"] for side in sides.values())
    difference = estimate_to_dict(Estimate(value, low, high, rows))
    return {
        "attribute": rate.attribute,
        "rate": rate.rate,
        "class": rate.of_class,
        "reference": rate.reference,
        **sides,
        "difference": difference,
    }


def _side(rate: _Rate, at: int) -> dict[str, Any]:
    """Return one group of a pair; weighted rows have no hits, but an effective sample size."""
    own = rate.weighted
    if own is not None:
        if own.clusters is not None:
            rows, value = int(own.rows[at]), float(own.value[at])
            said = {"hits": round(value * rows), "rows": rows, "value": value, "clusters": int(own.clusters[at])}
            return {"group": rate.groups[at], **said}
        said = {"rows": int(own.rows[at]), "worth": float(own.worth[at]), "value": float(own.value[at])}
        return {"group": rate.groups[at], **said}
    hits, rows = int(rate.hits[at]), int(rate.rows[at])
    return {"group": rate.groups[at], "hits": hits, "rows": rows, "value": hits / rows}


def _detectable(rate: _Rate, level: float, comparisons: int) -> dict[str, Any]:
    """Return the smallest gap that would have been shown between the two largest groups, and the two smallest."""
    share = (float(rate.hits.sum()) + 0.5) / (float(rate.rows.sum()) + 1)
    weights = 1 / rate.rows[rate.first] + 1 / rate.rows[rate.second]
    result: dict[str, Any] = {
        "attribute": rate.attribute, "rate": rate.rate, "class": rate.of_class, "power": POWER,
    }  # fmt: skip
    for name, at in (("best", int(weights.argmin())), ("worst", int(weights.argmax()))):
        i, j = int(rate.first[at]), int(rate.second[at])
        gap = detectable_gap(
            share, float(rate.rows[i]), float(rate.rows[j]), level=level, comparisons=comparisons, power=POWER
        )
        result[name] = {
            "first": rate.groups[i], "second": rate.groups[j], "gap": None if math.isnan(gap) else gap,
        }  # fmt: skip
    return result


def _answers(pooled: Counts, balanced: Estimate) -> dict[str, Any]:
    """Say whether the model gives one answer only, and whether it is better than chance."""
    predicted = np.flatnonzero(pooled.table.sum((0, 1)))
    labelled = int((pooled.cell_sizes.sum(0) > 0).sum())
    standing = "unknown"
    if balanced.defined and labelled > 1:
        standing = "above" if balanced.low > 1 / labelled else "below" if balanced.high < 1 / labelled else "at"
    return {
        "constant": str(pooled.classes[predicted[0]]) if len(predicted) == 1 else None,
        "standing": standing,
        "chance": 1 / labelled,
        "balanced_accuracy": estimate_to_dict(balanced),
    }


Reference = Mapping[str, Hashable] | Sequence[Hashable] | Hashable
"""Reference groups: one, several, or by column; a group is its name or its value."""


def references(asked: Reference, groups: Mapping[Key, Sequence[Key]]) -> dict[Key, Key]:
    """Find which group of each column is the reference.

    Args:
        asked: groups, ``Male`` or ``1``, or columns and groups, ``sex=Male`` or ``{"sex": "Male"}``.
        groups: the groups of each column.

    Returns:
        the reference group by column, for the columns that have one.

    Raises:
        ConfigError: no column has such a group, or one column would have two.
    """
    found: dict[Key, Key] = {}
    for name in _asked(asked):
        matches: list[tuple[Key, Key]] = [
            (attribute, group)
            for attribute, members in groups.items()
            for group in members
            if name in (group_name(group), f"{group_name(attribute)}={group_name(group)}")
        ]
        if not matches:
            there = [group_name(group) for members in groups.values() for group in members]
            raise ConfigError(f"No group is named {quoted(name)}, for --reference. Groups there: {listed(there)}.")
        for attribute, group in matches:
            if found.setdefault(attribute, group) != group:
                raise ConfigError(
                    f"{quoted(group_name(attribute))} would have two reference groups, "
                    f"{quoted(group_name(found[attribute]))} and {quoted(group_name(group))}. Name one of them."
                )
    return found


def _asked(asked: Reference) -> list[str]:
    if asked is None:
        return []
    if isinstance(asked, Mapping):
        return [f"{column}={group}" for column, group in asked.items()]
    return [str(one) for one in (asked if isinstance(asked, Sequence) and not isinstance(asked, str) else [asked])]
