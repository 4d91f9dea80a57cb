"""What an audit says first: which two groups differ most, in which direction, and how sure that is.

Every pair of groups of every sensitive column is compared in the true and in the false positive rate. All intervals
hold together (Bonferroni), so that the largest gap can be named without flattery and without alarm.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from levelhead.auditing.engine import Quantity, compare
from levelhead.metrics import Counts, estimate_to_dict
from levelhead.metrics import group as group_metrics
from levelhead.metrics.between import chance_range
from levelhead.metrics.clustered import FEWEST
from levelhead.metrics.names import Key, group_name
from levelhead.metrics.power import POWER, detectable_gap
from levelhead.metrics.weighted import WeightedCounts, WeightedRate
from levelhead.types import ConfigError, Estimate, listed, quoted

if TYPE_CHECKING:
    from levelhead.auditing.part import Frame

ERROR_RATES = ("true_positive_rate", "false_positive_rate")


def find(frame: Frame, columns: Mapping[str, Counts], balanced: Estimate) -> dict[str, Any]:
    """Compare all pairs of groups.

    Args:
        frame: all rows, and the options: ``level`` says how often all intervals together are to hold their true
            differences, and ``seed`` is that of what chance deals out.
        columns: the counts of each sensitive column, without groups that are left out of the gaps, by its name.
        balanced: the balanced accuracy of all rows.

    Returns:
        JSON-able: ``finding`` (the pair to name, and whether the model decides anything at all), ``pairs`` (the
        largest of each column), ``ranges`` (beside those that chance makes) and ``detectable`` (the smallest gaps
        that these rows would have shown).
    """
    options, rates = frame.options, list[tuple[Quantity, WeightedRate]]()
    weighted = {frame.names[key]: one for key, one in frame.weighted.items()}
    for attribute, counts in columns.items():
        uneven = weighted[attribute].keep(counts.groups) if weighted else None
        reference = frame.references.get(attribute)
        rates += error_rates(attribute, counts, frame.positive, options.min_count, uneven, reference)
    found = compare([one for one, _ in rates], level=options.level)
    ranges = []
    for one, rate in rates:
        if len(one.groups) > 2 and not weighted:  # hits of weighted rows cannot be drawn again
            hits = np.rint(rate.hits).astype(np.int64)
            ranges.append(_names(one) | chance_range(hits, one.rows, seed=options.seed)._asdict())
    pairs = [pair.to_dict() for pair in found.pairs]
    finding = {
        "pair": pairs[0] if pairs else None,
        "comparisons": found.comparisons,
        "at_most": max((pair.difference.size.high for pair in found.pairs), default=None),
        **_answers(next(iter(frame.counts.values())), balanced),
    }
    detectable = [_detectable(*one, options.level, found.comparisons) for one in rates]
    return {"finding": finding, "pairs": pairs, "ranges": ranges, "detectable": detectable}


def error_rates(
    attribute: str,
    counts: Counts,
    positive: int | None,
    min_count: int,
    weighted: WeightedCounts | None = None,
    reference: str | None = None,
) -> list[tuple[Quantity, WeightedRate]]:
    """Return the error rates of a column that two groups at least have enough rows for; arguments as :func:`find`'s."""
    rates = []
    for name in ERROR_RATES:
        counted = group_metrics.RATES[name](counts.table, positive)
        every = (weighted or WeightedCounts.equal(counts)).rate(name, positive)
        for position, k in enumerate(group_metrics.classes_compared(len(counts.classes), positive)):
            kept = np.flatnonzero(counted.rows[position] >= max(1, min_count))
            if every.clusters is not None:
                kept = kept[every.clusters[position][kept] >= FEWEST]
            groups = [str(counts.groups[at]) for at in kept]
            if len(groups) < 2 or (reference is not None and reference not in groups):
                continue
            own, more = every.of(position, kept), {"hits": counted.hits[position][kept]}
            if own.clusters is not None:
                more["clusters"] = own.clusters
            elif weighted is not None:  # of which hits say nothing
                more = {"worth": own.worth}
            quantity = Quantity(
                attribute, name, groups, own.value, own.rows, own.differences, str(counts.classes[k]),
                larger_first=name == "false_positive_rate", reference=reference, more=more,
            )  # fmt: skip
            rates.append((quantity, own))
    return rates


def _names(rate: Quantity) -> dict[str, Any]:
    names = {"attribute": rate.column, "rate": rate.name, "class": rate.of_class, "groups": len(rate.groups)}
    low, high = int(rate.value.argmin()), int(rate.value.argmax())
    return names | {"lowest": rate.groups[low], "highest": rate.groups[high]}


def _detectable(rate: Quantity, worth: WeightedRate, level: float, comparisons: int) -> dict[str, Any]:
    """Return the smallest gap that would have been shown between the two largest groups, and the two smallest."""
    rows, (first, second) = worth.worth, rate.pairs
    share = (float(worth.hits.sum()) + 0.5) / (float(rows.sum()) + 1)
    weights = 1 / rows[first] + 1 / rows[second]
    result: dict[str, Any] = {"attribute": rate.column, "rate": rate.name, "class": rate.of_class, "power": POWER}
    for name, at in (("best", int(weights.argmin())), ("worst", int(weights.argmax()))):
        i, j = int(first[at]), int(second[at])
        gap = detectable_gap(share, float(rows[i]), float(rows[j]), level=level, comparisons=comparisons, power=POWER)
        named = {"first": rate.groups[i], "second": rate.groups[j]}
        result[name] = {**named, "gap": None if math.isnan(gap) else gap}
    return result


def detectable_figure(gap: float | None) -> Estimate:
    """Return the smallest gap that rows can detect as a figure; None and NaN: there is none, of any size."""
    if gap is None or math.isnan(gap):
        return Estimate.undefined("no gap can be detected with this few rows")
    return Estimate.without_interval(gap, 0, f"it is found with a probability of {100 * POWER:.0f}%")


def _answers(counts: Counts, balanced: Estimate) -> dict[str, Any]:
    """Say whether the model gives one answer only, and whether it is better than chance."""
    predicted = np.flatnonzero(counts.table.sum((0, 1)))
    labelled = int((counts.cell_sizes.sum(0) > 0).sum())
    standing = "unknown"
    if balanced.defined and labelled > 1:
        standing = "above" if balanced.low > 1 / labelled else "below" if balanced.high < 1 / labelled else "at"
    return {
        "constant": str(counts.classes[predicted[0]]) if len(predicted) == 1 else None,
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
