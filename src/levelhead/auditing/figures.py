"""Count the rows of groups into rates and gaps, with intervals: what every audit of predicted classes is based on."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from levelhead.auditing.clusters import alone_sentence, clustered_counts, clusters_found, few_clusters
from levelhead.auditing.finding import find, references
from levelhead.auditing.options import LEAVE_OUT, TOLD, AuditOptions, alike_groups, few_sentence
from levelhead.auditing.part import Asked, Frame, Part, find_classes
from levelhead.auditing.score_rows import ScoreRows
from levelhead.auditing.weights import Weights, weighted_counts, weights_found
from levelhead.metrics import Counts, estimate, estimate_all
from levelhead.metrics import group as group_metrics
from levelhead.metrics.clustered import FEWEST, ClusteredCounts
from levelhead.metrics.names import METRICS, MISSING_GROUP, Key, group_name, parts_of
from levelhead.metrics.weighted import WeightedCounts, weighted_estimates, weighted_proportion, worst_class
from levelhead.report.record import as_json
from levelhead.report.text import counted
from levelhead.tables.bins import ordered_groups
from levelhead.tables.rows import Rows
from levelhead.tables.tally import Tally
from levelhead.types import ConfigError, Estimate, in_quotes, printable


@dataclass(frozen=True)
class GroupFigures:
    """One group: ``n`` rows, ``rows_by_label``, its ``rates`` with intervals, and which gaps count it in.

    ``included``: whether it has enough rows to be in any gap. ``left_out`` names the gaps that count it out, because
    its rate is based on too few rows, each with the class in brackets where several are compared.
    The rates are ``accuracy`` and, for each class that is set against the rest, ``selection_rate``,
    ``true_positive_rate`` and ``false_positive_rate``; with several classes followed by ``[class]``, and ``base_rate``.
    ``worth`` is the effective sample size of weighted rows; None without weights.
    """

    n: int
    rows_by_label: dict[str, int]
    rates: dict[str, Estimate]
    included: bool = True
    left_out: tuple[str, ...] = ()
    worth: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        out: dict[str, Any] = {"included": self.included, "left_out": list(self.left_out)}
        if self.worth is not None:
            out["worth"] = self.worth
        return {"n": self.n, **out, "rows_by_label": self.rows_by_label, **as_json(self.rates)}


@dataclass(frozen=True)
class AttributeAudit:
    """The figures for one sensitive column, or for the crossing of several.

    ``groups`` has the text of each group for a key; for a crossing, a tuple with a text for each column.
    ``worst_class`` names the class behind each gap where several classes are compared; else it is empty.
    """

    metrics: dict[str, Estimate]
    groups: dict[Key, GroupFigures]
    worst_class: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; the groups lie under their names, and ``values`` are what they are made of."""
        result: dict[str, Any] = {
            "metrics": as_json(self.metrics),
            "groups": {
                group_name(group): {"values": parts_of(group), **figures.to_dict()}
                for group, figures in self.groups.items()
            },
        }
        if self.worst_class:
            result["worst_class"] = self.worst_class
        return result


class Classes(Part):
    """Rates and gaps of predicted classes: what every audit has, and what all other parts share."""

    name = "classes"
    counted = True

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        source, roles, options = asked.source, asked.roles, asked.options
        titles = roles.titles(source)
        decided = titles["score" if roles.prediction is None else "prediction"]
        groups = {name: source.title(name) for name in roles.groups}
        self.tally = Tally(titles.get("label", decided), decided, groups, options.intersect, frozenset(asked.cuts))
        self.weights = (
            None if roles.weight is None else Weights(source.title(roles.weight), source.called(roles.weight))
        )

    def update(self, columns: Mapping[str, Any]) -> None:
        """Count a batch; rows with scores are counted when the scale of all scores is known."""
        if "score" in columns:
            return
        if self.weights is not None:
            columns = self.weights.use(columns)
        label, groups = columns.get("label"), {name: columns[f"group {name}"] for name in self.tally.groups}
        more = {role: columns.get(role) for role in ("weight", "cluster", "count")}
        self.tally.add(label or columns["prediction"], columns["prediction"], groups, **more)

    def frame(self, rows: Rows, given: Rows) -> Frame:
        """Return what all parts share; ``rows`` and ``given`` are those of :class:`Frame`."""
        asked, scale, label = self.asked, None, None
        if self.weights is not None:
            self.weights.check()
        if isinstance(rows, ScoreRows):
            scale, class_of = rows.settle(asked.options.scale), rows.merge(asked.options.label_map)
            label, other = rows.positive(asked.options.positive, class_of, asked.options.label_map)
            threshold = (asked.options.thresholds or (scale.default_threshold(),))[0]
            rows.tally(self.tally, threshold, class_of[label], class_of[other])
        self.tally.refuse_ids(asked.options.min_count)
        as_label, as_prediction, classes, chosen, warnings = find_classes(
            self.tally, asked.options, label, decided=asked.roles.label is None
        )
        place = {value: position for position, value in enumerate(classes)}
        favourable = favourable_of(asked.options, classes, chosen)
        warnings += [] if self.weights is None else self.weights.sentences()
        options, cluster = asked.options, asked.options.cluster
        clustered = len(self.tally.clusters) < sum(self.tally.labels.values()) and cluster is not None
        if cluster is not None and not clustered:
            warnings.append(alone_sentence(cluster))
        tables: dict[Key, Counts] = {}
        members: dict[Key, Sequence[Key]] = {}
        weighted: dict[Key, WeightedCounts] = {}
        for key, patterns in self.tally.counts.items():
            codes, groups = ordered_groups([group for _, _, group in patterns], key, asked.cuts)
            labels = np.array([place[as_label[pattern[0]]] for pattern in patterns])
            predictions = np.array([place[as_prediction[pattern[1]]] for pattern in patterns])
            number = np.fromiter(patterns.values(), np.int64, len(patterns))
            warnings += alike_groups(key, groups, asked.cuts)
            counts = Counts.from_codes(codes, labels, predictions, list(map(group_name, groups)), classes, number)
            tables[key], members[key] = counts, groups
            if self.weights is not None:
                sums = np.array([self.tally.weights[key][pattern] for pattern in patterns])
                weighted[key] = weighted_counts(counts, (codes, labels, predictions), sums)
            elif clustered:
                weighted[key] = clustered_counts(counts, self.tally, key, codes, labels, predictions)
        return Frame(
            asked, rows, given, tables, members, weighted, classes, as_prediction, chosen,
            references(options.reference, members), favourable, scale, label, as_label, warnings,
        )  # fmt: skip

    def find(self, frame: Frame) -> dict[str, Any]:
        """Return the fields of :class:`~levelhead.auditing.result.AuditResult` but for those of other parts."""
        options, names, warnings = frame.options, frame.names, frame.warnings
        by_attribute, compared, missing = {}, {}, []
        for key, counts in frame.counts.items():
            absent = [group for group in frame.groups[key] if MISSING_GROUP in parts_of(group)]
            if absent:
                rows = int(counts.keep(list(map(group_name, absent))).n)
                left_out = options.missing == LEAVE_OUT
                missing.append({"attribute": names[key], "rows": rows, "share": rows / counts.n, "left_out": left_out})
                warnings.append(_missing_sentence(missing[-1], counts.n))
            by_attribute[key], compared[names[key]], more = _audit_column(frame, key)
            warnings += more
        for name, group in frame.references.items():
            if group not in compared[name].groups:
                warnings.append(
                    f"{printable(name)}: the reference group {in_quotes(group)} is too small: no pair with it is "
                    "compared."
                )
        found = find(frame, compared, next(iter(by_attribute.values())).metrics["balanced_accuracy"])
        words: dict[str, Any] = {"label": options.label, "order": [str(value) for value in frame.classes]}
        if shown := options.label_map.shown:
            words["classes"] = shown
        if frame.favourable is not None:
            words["favourable"] = str(frame.classes[frame.favourable])
        whole, column = next(iter(frame.weighted.values()), None), options.cluster
        weights = None if self.weights is None or whole is None else weights_found(self.weights, whole)
        clusters = clusters_found(column, whole) if isinstance(whole, ClusteredCounts) and column is not None else None
        given = {
            "weights": weights, "clusters": clusters, "missing": missing, "reference": frame.references,
            "options": {name: getattr(options, name) for name in TOLD},
        }  # fmt: skip
        if frame.favourable is not None:
            given["favourable"] = words["favourable"]
        return {
            "by_attribute": by_attribute, "warnings": warnings, "level": options.level, "positive": frame.of_class,
            "headline": found, "words": words, "replicates": options.replicates,
            **{name: one for name, one in given.items() if one},
        }  # fmt: skip


def favourable_of(options: AuditOptions, classes: list[Hashable], positive: int | None) -> int | None:
    """Return the place of the class that is the favourable outcome, by its text in the predictions or the labels."""
    if options.favourable is None:
        return None
    if len(group_metrics.classes_compared(len(classes), positive)) > 1:
        raise ConfigError("--favourable needs --positive where there are three classes or more (positive= in Python).")
    return options.label_map.place(options.favourable, classes, "favourable")


def _missing_sentence(one: Mapping[str, Any], rows: int) -> str:
    where = f"{printable(one['attribute'])}: {one['rows']:,} of {rows:,} rows ({100 * one['share']:.1f}%)"
    if one["left_out"]:
        return f"{where} have no group and are left out of the gaps; in Python, missing='group' compares them."
    return f"{where} have no group and are compared as the group {MISSING_GROUP}."


def _audit_column(frame: Frame, key: Key) -> tuple[AttributeAudit, Counts, list[str]]:
    """Audit one sensitive column, or a crossing.

    Returns the figures by group, the counts that gaps compare, and warnings.
    """
    options, column, keys = frame.options, frame.names[key], frame.groups[key]
    counts, positive, weighted = frame.counts[key], frame.positive, frame.weighted.get(key)
    level, replicates, seed, min_count = options.level, options.replicates, options.seed, options.min_count
    warnings = []
    sizes = dict(zip(counts.groups, counts.group_sizes.tolist(), strict=True))
    unknown = {group_name(group) for group in keys if options.leaves_out(group)}
    kept = [group for group, size in sizes.items() if size >= min_count and group not in unknown]
    warnings += _small_groups(column, counts, min_count, unknown)
    if isinstance(weighted, ClusteredCounts):
        clusters = dict(zip(counts.groups, np.asarray(weighted.accuracy.clusters).tolist(), strict=True))
        for group in [group for group in kept if clusters[group] < FEWEST]:
            warnings.append(
                f"{printable(column)}: group {in_quotes(group)} has rows {few_clusters(clusters[group])} and is "
                "left out of the gaps."
            )
            kept.remove(group)
    every = WeightedCounts.equal(counts) if weighted is None else weighted
    own = every.keep(kept)
    compared = own.counts
    if weighted is not None:
        metrics = weighted_estimates(own, positive=positive, level=level, min_count=min_count)
        whole = weighted_estimates(weighted.pooled(), positive=positive, level=level, min_count=0)
    else:
        metrics = estimate_all(
            compared, positive=positive, level=level, replicates=replicates, seed=seed, min_count=min_count
        )
    # Accuracies do not compare groups: the whole file is what they are about.
    # One pooled group makes them the same for every sensitive column, interval and all.
    pooled = Counts(counts.table.sum(0, keepdims=True), ("all",), counts.classes)
    for name in ("accuracy", "balanced_accuracy"):
        metrics[name] = (
            estimate(pooled, name, positive=positive, level=level, replicates=replicates, seed=seed)
            if weighted is None
            else whole[name]
        )
    for name, figure in metrics.items():
        if not figure.defined:
            warnings.append(f"{printable(column)}: {name} is undefined: {figure.reason}.")
    left_out, few = _left_out(column, own, positive, min_count)
    warnings += few
    several = len(group_metrics.classes_compared(len(counts.classes), positive)) > 1
    worst = {}
    if several:
        for name in (key for key in metrics if key in METRICS and METRICS[key].kind == "gap"):
            if metrics[name].defined:
                worst[name] = str(counts.classes[worst_class(own, name, positive, min_count)])
    groups = {
        key: _group_figures(every, i, positive, left_out.get(counts.groups[i]), level, uneven=weighted is not None)
        for i, key in enumerate(keys)
    }
    return AttributeAudit(metrics, groups, worst), compared, warnings


def _left_out(
    column: str, own: WeightedCounts, positive: int | None, min_count: int
) -> tuple[dict[Hashable, tuple[str, ...]], list[str]]:
    """Say by group which gaps count it out, because too few of its rows have a label; and sentences that name them."""
    counts, enough = own.counts, own.enough(positive, min_count)
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    labels = [str(label) for label in counts.classes]
    left_out: dict[Hashable, tuple[str, ...]] = {}
    warnings = []
    for i, group in enumerate(counts.groups):
        gaps: list[str] = []
        lacking: dict[tuple[str, int], list[str]] = {}  # by which rows are few, and how many they are: left out of what
        for position, k in enumerate(chosen):
            rows = int(counts.cell_sizes[i, k])
            ending, of_class = (f"[{labels[k]}]", f" of class {in_quotes(labels[k])}") if len(chosen) > 1 else ("", "")
            those, rest = f"label {in_quotes(labels[k])}", f"a label other than {in_quotes(labels[k])}"
            if len(labels) == 2:
                rest = f"label {in_quotes(labels[1 - k])}"
            of_rest = int(counts.group_sizes[i]) - rows
            for rate, few in (("true_positive_rate", (those, rows)), ("false_positive_rate", (rest, of_rest))):
                if not enough.rates[rate][position, i]:
                    without, words = _gaps_of(rate)
                    gaps += [f"{gap}{ending}" for gap in without]
                    lacking.setdefault(few, []).append(f"{words}{of_class}")
        for label, size, kept in zip(labels, counts.cell_sizes[i].tolist(), enough.cells[i], strict=True):
            if not kept:
                of_label = lacking.setdefault((f"label {in_quotes(label)}", size), [])
                of_label.append("the worst (group, label) accuracy")
        left_out[group] = tuple(dict.fromkeys(gaps))
        for (label, rows), figures in lacking.items():
            count = "no rows" if rows == 0 else counted(rows, "row")
            why = f"fewer than {min_count}" if rows < max(1, min_count) else f"from fewer than {FEWEST} clusters"
            warnings.append(
                f"{printable(column)}: group {in_quotes(str(group))} has {count} with {label}, {why}, and is left out "
                f"of {' and of '.join(figures)}."
            )
    return left_out, warnings


def _small_groups(column: str, counts: Counts, min_count: int, unknown: Collection[Hashable]) -> list[str]:
    """Name the groups of fewer than ``min_count`` rows, but for the ``unknown`` one."""
    return [
        few_sentence(column, str(group), size, min_count, "is left out of the gaps")
        for group, size in zip(counts.groups, counts.group_sizes.tolist(), strict=True)
        if size < min_count and group not in unknown
    ]


def left_out_sentences(
    column: str, counts: Counts, positive: int | None, min_count: int, missing: str = LEAVE_OUT
) -> list[str]:
    """Name the rows without a group, and the groups that gaps leave out; for tables of several sets of predictions."""
    absent = [group for group in counts.groups if group == MISSING_GROUP]
    sentences = []
    if absent:
        rows = int(counts.keep(absent).n)
        one = {"attribute": column, "rows": rows, "share": rows / counts.n, "left_out": missing == LEAVE_OUT}
        sentences.append(_missing_sentence(one, counts.n))
    unknown = absent if missing == LEAVE_OUT else []
    large = [
        group
        for group, size in zip(counts.groups, counts.group_sizes.tolist(), strict=True)
        if size >= min_count and group not in unknown
    ]
    few = _left_out(column, WeightedCounts.equal(counts.keep(large)), positive, min_count)[1]
    return [*sentences, *_small_groups(column, counts, min_count, unknown), *few]


def _gaps_of(rate: str) -> tuple[list[str], str]:
    """Return the gaps that compare a rate, by name and in words."""
    gaps = [metric for metric in METRICS.values() if rate in metric.rates_used]
    words = dict.fromkeys(metric.subject.partition(" (")[0] for metric in gaps)
    return [metric.name for metric in gaps], " and ".join(words)


def _group_figures(
    every: WeightedCounts, i: int, positive: int | None, left_out: tuple[str, ...] | None, level: float, *, uneven: bool
) -> GroupFigures:
    """Return the figures of one group; ``left_out`` None: it is in no gap at all. ``uneven``: rows are weighted."""
    counts = every.counts
    rows = {str(label): int(size) for label, size in zip(counts.classes, counts.cell_sizes[i], strict=True)}
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    rates, found = {"accuracy": weighted_proportion(every.accuracy, i, level)}, {}
    for name in group_metrics.RATES:
        rate = every.rate(name, positive)
        found[name] = [weighted_proportion(rate, (k, i), level) for k in range(len(chosen))]
    base = every.weight[i].sum(-1) / max(1e-300, every.weight[i].sum())
    worth = float(every.worth[i]) if uneven else None
    for position, k in enumerate(chosen):
        ending = f"[{counts.classes[k]}]" if len(chosen) > 1 else ""
        for name, figures in found.items():
            lacking = Estimate.undefined(f"no {_LACKING[name]} {in_quotes(str(counts.classes[k]))}")
            rates[name + ending] = figures[position] if figures[position].defined else lacking
        if ending:
            rates[f"base_rate{ending}"] = Estimate.without_interval(float(base[k]), sum(rows.values()))
    return GroupFigures(sum(rows.values()), rows, rates, left_out is not None, left_out or (), worth)


_LACKING = {
    "selection_rate": "rows",
    "true_positive_rate": "rows with label",
    "false_positive_rate": "rows with a label other than",
}
"""Which rows a group has none of where its rate is undefined."""
