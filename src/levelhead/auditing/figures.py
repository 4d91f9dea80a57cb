"""Count the rows of groups into rates and gaps, with intervals: what every audit of predicted classes rests on."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from levelhead.auditing.clusters import alone_sentence, clustered_counts, clusters_found, few_clusters
from levelhead.auditing.finding import find, references
from levelhead.auditing.options import LEAVE_OUT, AuditOptions
from levelhead.auditing.rates import MoreRates, more_rates
from levelhead.auditing.result import AttributeAudit, AuditResult, GroupFigures
from levelhead.auditing.weights import Weights, weighted_rates, weights_found
from levelhead.metrics import Counts, estimate, estimate_all, proportion, worst_class
from levelhead.metrics import group as group_metrics
from levelhead.metrics.amplification import audited_amplification
from levelhead.metrics.clustered import FEWEST, ClusteredCounts
from levelhead.metrics.contrasts import Enough
from levelhead.metrics.names import METRICS, MISSING_GROUP, Key, attribute_names, group_name, parts_of
from levelhead.metrics.weighted import WeightedCounts, weighted_estimates, weighted_worst_class
from levelhead.tables.bins import Cuts, ordered_groups
from levelhead.tables.columns import positive_index
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import agree, alike, check_predictions, in_order
from levelhead.types import ConfigError, Estimate, printable, quoted


def find_classes(
    tally: Tally, options: AuditOptions
) -> tuple[Mapping[Hashable, Hashable], Mapping[Hashable, Hashable], list[Hashable], int | None, list[str]]:
    """Return the class of each label and of each prediction, all classes, the positive one's place, and warnings."""
    as_label, as_prediction, labelled, predicted = agree(tally.labels, tally.predictions, options.label_map)
    positive = options.positive
    if options.label_map:
        positive = options.label_map.targets.get(str(positive), positive) if positive is not None else None
    warnings = check_predictions(labelled, predicted, options.label_map.named)
    # Labels first: where a prediction is the same number in another type, the label says how it is written.
    classes = in_order({**labelled, **predicted})
    chosen = positive_index(classes, positive)
    return as_label, as_prediction, classes, chosen, warnings


def audit_tally(
    tally: Tally, options: AuditOptions, cuts: Mapping[str, Cuts], weights: Weights | None = None
) -> AuditResult:
    """Audit the counted rows; ``weights``, if given, have been used in counting them."""
    as_label, as_prediction, classes, chosen, warnings = find_classes(tally, options)
    if weights is not None:
        warnings += weights.sentences()
    place = {value: position for position, value in enumerate(classes)}
    names = attribute_names(tally.counts)
    favourable = _favourable_index(options, classes, chosen)
    counted, members = {}, {}
    weighted: dict[Key, WeightedCounts] = {}
    clustered = len(tally.clusters) < sum(tally.labels.values()) and options.cluster is not None
    if options.cluster is not None and not clustered:
        warnings.append(alone_sentence(options.cluster))
    for attribute, patterns in tally.counts.items():
        codes, groups = ordered_groups([group for _, _, group in patterns], attribute, cuts)
        labels = np.array([place[as_label[pattern[0]]] for pattern in patterns])
        predictions = np.array([place[as_prediction[pattern[1]]] for pattern in patterns])
        rows = np.fromiter(patterns.values(), np.int64, len(patterns))
        if isinstance(attribute, str) and (attribute not in cuts or cuts[attribute].values):
            warnings += alike(attribute, "groups", groups)
        texts = [group_name(group) for group in groups]
        counted[attribute] = Counts.from_codes(codes, labels, predictions, texts, classes, rows)
        members[attribute] = groups
        if weights is not None:
            sums = np.array([tally.weights[attribute][pattern] for pattern in patterns])
            tables = np.zeros((2, *counted[attribute].table.shape))
            for table, part in zip(tables, sums.T, strict=True):
                np.add.at(table, (codes, labels, predictions), part)
            weighted[attribute] = WeightedCounts(counted[attribute], *tables)
        elif clustered:
            weighted[attribute] = clustered_counts(counted[attribute], tally, attribute, codes, labels, predictions)
    chosen_references = references(options.reference, members)
    by_attribute, compared, missing = {}, {}, []
    for attribute, counts in counted.items():
        name, groups = names[attribute], members[attribute]
        absent = [group for group in groups if MISSING_GROUP in parts_of(group)]
        if absent:
            rows_without = int(counts.keep([group_name(group) for group in absent]).n)
            left_out = options.missing == LEAVE_OUT
            missing.append(
                {"attribute": name, "rows": rows_without, "share": rows_without / counts.n, "left_out": left_out}
            )
            warnings.append(_missing_sentence(missing[-1], counts.n))
        by_attribute[attribute], compared[name], more = _audit_column(
            name,
            groups,
            counts,
            chosen,
            options,
            absent if options.missing == LEAVE_OUT else [],
            weighted.get(attribute),
        )
        warnings += more
    pooled = next(iter(counted.values()))
    pooled = Counts(pooled.table.sum(0, keepdims=True), ("all",), pooled.classes)
    compared_classes = group_metrics.classes_compared(len(classes), chosen)
    only = str(classes[compared_classes[0]]) if len(compared_classes) == 1 else None
    reference = {names[attribute]: group_name(group) for attribute, group in chosen_references.items()}
    for name, group in reference.items():
        if group not in compared[name].groups:
            warnings.append(
                f"{printable(name)}: the reference group {quoted(group)} is left out of the gaps, so that no pair with "
                "it is compared."
            )
    found = find(
        compared,
        pooled,
        next(iter(by_attribute.values())).metrics["balanced_accuracy"],
        positive=chosen,
        min_count=options.min_count,
        level=options.level,
        seed=options.seed,
        reference=reference,
        weighted={names[attribute]: one.keep(compared[names[attribute]].groups) for attribute, one in weighted.items()},
        adjust=options.adjust,
    )
    words: dict[str, Any] = {"label": options.label, "order": [str(value) for value in classes]}
    if options.positive_name:
        words["positive"] = options.positive_name
    if shown := options.label_map.shown:
        words["classes"] = shown
    more_found: dict[str, Any] = {**found, "words": words, "replicates": options.replicates}
    if weights is not None:
        more_found["weights"] = weights_found(weights, next(iter(weighted.values())), classes)
    whole = next(iter(weighted.values()), None)
    if isinstance(whole, ClusteredCounts) and options.cluster is not None:
        more_found["clusters"] = clusters_found(options.cluster, whole)
    if missing:
        more_found["missing"] = missing
    if reference:
        more_found["reference"] = reference
    if options.about:
        more_found["about"] = dict(options.about)
    if weights is not None:  # what follows knows unweighted rows alone; the weights' sentence says so
        return AuditResult(by_attribute, warnings, options.level, only, more_found)
    amplified = {}
    clusters = {attribute: one for attribute, one in weighted.items() if isinstance(one, ClusteredCounts)}
    for attribute, counts in counted.items():
        kept = [group_name(group) for group in members[attribute] if not options.leaves_out(group)]
        words_of = tuple(str(value) for value in classes)
        own = clusters[attribute].keep(kept).members if attribute in clusters else None
        amplified[attribute] = audited_amplification(
            counts.keep(kept).table, tuple(kept), words_of, level=options.level, members=own
        )
    rates = (
        {}
        if only is None
        else _more_rates(counted, members, chosen_references, compared_classes[0], options, favourable, clusters)
    )
    return AuditResult(by_attribute, warnings, options.level, only, more_found, rates=rates, amplification=amplified)


def _more_rates(
    counted: Mapping[Key, Counts],
    members: Mapping[Key, Sequence[Key]],
    chosen: Mapping[Key, Key],
    positive: int,
    options: AuditOptions,
    favourable: int | None,
    clusters: Mapping[Key, ClusteredCounts],
) -> dict[Key, MoreRates]:
    """Return ratios, precision and balanced error by column, to its reference where one was named."""
    found = {}
    for attribute, counts in counted.items():
        groups = [group for group in members[attribute] if not options.leaves_out(group)]
        reference = chosen.get(attribute)
        kept = [group_name(group) for group in groups]
        found[attribute] = more_rates(
            counts.keep(kept),
            groups,
            positive,
            reference=None if reference is None else group_name(reference),
            min_count=options.min_count,
            level=options.level,
            replicates=options.replicates,
            seed=options.seed,
            favourable=favourable,
            words=options.label_map.shown,
            clustered=clusters[attribute].keep(kept) if attribute in clusters else None,
        )
    return found


def _favourable_index(options: AuditOptions, classes: list[Hashable], positive: int | None) -> int | None:
    """Return the place of the class that is the favourable outcome, by its text in the predictions or the labels."""
    wanted = options.favourable
    if wanted is None:
        return None
    if len(group_metrics.classes_compared(len(classes), positive)) > 1:
        raise ConfigError(
            "favourable is about the ratios of one class: with three classes or more, name it with --positive, too "
            "(positive= in Python)."
        )
    return positive_index(classes, options.label_map.targets.get(str(wanted), wanted), "favourable")


def _missing_sentence(one: Mapping[str, Any], rows: int) -> str:
    where = f"{printable(one['attribute'])}: {one['rows']:,} of {rows:,} rows ({100 * one['share']:.1f}%)"
    if one["left_out"]:
        return f"{where} have no group and are left out of the gaps; with --missing group they are a group."
    return f"{where} have no group and are compared as the group {MISSING_GROUP}."


def _audit_column(
    column: str,
    keys: Sequence[Key],
    counts: Counts,
    positive: int | None,
    options: AuditOptions,
    absent: Sequence[Key],
    weighted: WeightedCounts | None = None,
) -> tuple[AttributeAudit, Counts, list[str]]:
    """Audit one sensitive column, or a crossing, without the gaps of the ``absent`` groups.

    Returns the figures, by the ``keys`` of the groups, the counts that gaps compare, and warnings.
    """
    level, replicates, seed, min_count = options.level, options.replicates, options.seed, options.min_count
    warnings = []
    sizes = dict(zip(counts.groups, counts.group_sizes.tolist(), strict=True))
    unknown = {group_name(group) for group in absent}
    kept = [group for group, size in sizes.items() if size >= min_count and group not in unknown]
    warnings += _small_groups(column, counts, min_count, unknown)
    if isinstance(weighted, ClusteredCounts):
        clusters = dict(zip(counts.groups, weighted.accuracy_clusters, strict=True))
        for group in [group for group in kept if clusters[group] < FEWEST]:
            warnings.append(
                f"{printable(column)}: group {quoted(str(group))} has rows {few_clusters(int(clusters[group]))} and is "
                "left out of the gaps."
            )
            kept.remove(group)
    compared = counts.keep(kept)
    if weighted is not None:
        own = weighted.keep(kept)
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
    left_out, few = _left_out(column, compared, positive, min_count, None if weighted is None else own)
    warnings += few
    several = len(group_metrics.classes_compared(len(counts.classes), positive)) > 1
    worst = {}
    if several:
        for name in (key for key in metrics if key in METRICS and METRICS[key].kind == "gap"):
            if metrics[name].defined:
                of_class = (
                    worst_class(compared, name, min_count=min_count)
                    if weighted is None
                    else weighted_worst_class(own, name, positive, min_count)
                )
                worst[name] = str(counts.classes[of_class])
    groups = {
        key: _group_figures(counts, i, positive, left_out.get(counts.groups[i]), level, weighted)
        for i, key in enumerate(keys)
    }
    return AttributeAudit(metrics, groups, worst), compared, warnings


def _left_out(
    column: str, counts: Counts, positive: int | None, min_count: int, weighted: WeightedCounts | None = None
) -> tuple[dict[Hashable, tuple[str, ...]], list[str]]:
    """Say by group which gaps count it out, because too few of its rows have a label; and sentences that name them."""
    enough = Enough.of(counts.table, positive, min_count) if weighted is None else weighted.enough(positive, min_count)
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    labels = [str(label) for label in counts.classes]
    left_out: dict[Hashable, tuple[str, ...]] = {}
    warnings = []
    for i, group in enumerate(counts.groups):
        gaps: list[str] = []
        lacking: list[tuple[str, int, str]] = []  # which rows are few, how many they are, and what they are left out of
        for position, k in enumerate(chosen):
            rows = int(counts.cell_sizes[i, k])
            ending, of_class = (f"[{labels[k]}]", f" of class {quoted(labels[k])}") if len(chosen) > 1 else ("", "")
            if not enough.rates["true_positive_rate"][position, i]:
                without, words = _gaps_of("true_positive_rate")
                gaps += [f"{gap}{ending}" for gap in without]
                lacking.append((f"label {quoted(labels[k])}", rows, f"{words}{of_class}"))
            if not enough.rates["false_positive_rate"][position, i]:
                without, words = _gaps_of("false_positive_rate")
                gaps += [f"{gap}{ending}" for gap in without]
                others = (
                    f"label {quoted(labels[1 - k])}" if len(labels) == 2 else f"a label other than {quoted(labels[k])}"
                )
                lacking.append((others, int(counts.group_sizes[i]) - rows, f"{words}{of_class}"))
        for label, size, kept in zip(labels, counts.cell_sizes[i], enough.cells[i], strict=True):
            if not kept:
                lacking.append((f"label {quoted(label)}", int(size), "the worst (group, label) accuracy"))
        left_out[group] = tuple(dict.fromkeys(gaps))
        for label, rows in dict.fromkeys((label, rows) for label, rows, _ in lacking):
            count = "no rows" if rows == 0 else "1 row" if rows == 1 else f"{rows} rows"
            fewer = f"with {label}, fewer than {min_count},"
            if rows >= max(1, min_count):
                fewer = f"with {label}, from fewer than {FEWEST} clusters,"
            figures = " and of ".join(figure for one, _, figure in lacking if one == label)
            warnings.append(
                f"{printable(column)}: group {quoted(str(group))} has {count} {fewer} and is left out of {figures}."
            )
    return left_out, warnings


def _small_groups(column: str, counts: Counts, min_count: int, unknown: Collection[Hashable]) -> list[str]:
    """Name the groups of fewer than ``min_count`` rows, but for the ``unknown`` one."""
    return [
        f"{printable(column)}: group {quoted(str(group))} has {'1 member' if size == 1 else f'{size} members'}, fewer "
        f"than {min_count}, and is left out of the gaps."
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
    few = _left_out(column, counts.keep(large), positive, min_count)[1]
    return [*sentences, *_small_groups(column, counts, min_count, unknown), *few]


def _gaps_of(rate: str) -> tuple[list[str], str]:
    """Return the gaps that compare a rate, by name and in words."""
    gaps = [metric for metric in METRICS.values() if rate in metric.rates_used]
    words = dict.fromkeys(metric.subject.partition(" (")[0] for metric in gaps)
    return [metric.name for metric in gaps], " and ".join(words)


def _group_figures(
    counts: Counts,
    i: int,
    positive: int | None,
    left_out: tuple[str, ...] | None,
    level: float,
    weighted: WeightedCounts | None = None,
) -> GroupFigures:
    """Return the figures of one group; ``left_out`` None: it is in no gap at all."""
    rows = {str(label): int(size) for label, size in zip(counts.classes, counts.cell_sizes[i], strict=True)}
    if weighted is not None:
        by_label = dict(zip(rows, weighted.cell_worth[i].tolist(), strict=True))
        rates = weighted_rates(weighted, i, positive, level)
        of_group = left_out is not None, left_out or ()
        return GroupFigures(sum(rows.values()), rows, rates, *of_group, float(weighted.worth[i]), by_label)
    table = counts.table[i : i + 1]
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    rates = {"accuracy": proportion(int(np.trace(table[0])), int(table.sum()), level=level)}
    for position, k in enumerate(chosen):
        ending = f"[{counts.classes[k]}]" if len(chosen) > 1 else ""
        for name, count, label in (
            ("selection_rate", group_metrics.selection, "rows"),
            ("true_positive_rate", group_metrics.true_positives, "rows with label"),
            ("false_positive_rate", group_metrics.false_positives, "rows with a label other than"),
        ):
            rate = count(table, positive)
            figure = proportion(int(rate.hits[position, 0]), int(rate.rows[position, 0]), level=level)
            if not figure.defined:
                figure = Estimate.undefined(f"no {label} {quoted(str(counts.classes[k]))}")
            rates[name + ending] = figure
    return GroupFigures(int(table.sum()), rows, rates, left_out is not None, left_out or ())
