"""Compare two models on the same rows: who gained, who lost, and whether any gap changed.

Two audits side by side cannot say this: their intervals overlap long before the rows stop telling the models apart.
Everything here is computed from the joint counts of (group, label, old prediction, new prediction).

Figures of the whole audit, the gaps among them, have the intervals of :mod:`levelhead.metrics.paired`. A change of a
group's rate is a difference of paired proportions; its interval is that of Bonett and Price (British Journal of
Mathematical and Statistical Psychology 2012), its p-value that of the exact test of McNemar (Psychometrika 1947). P
values are adjusted by Holm (Scandinavian Journal of Statistics 1979): over the figures, and over groups and rates.

Of rows in clusters, figures of the whole resample clusters. A rate has the same interval and test at the
effective sample size of the clusters, from sums of the paired differences within clusters
(:mod:`levelhead.metrics.clustered`); its
p-value is no smaller than that of Student's t for these sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.options import AuditOptions, Other
from levelhead.auditing.paired_answer import Change, GroupChange, PairedAttribute, PairedAudit
from levelhead.auditing.part import Frame, Part
from levelhead.auditing.scale import ASK
from levelhead.auditing.score_changes import area_changes
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics import JointCounts, holm
from levelhead.metrics import group as group_metrics
from levelhead.metrics.clustered import FEWEST, Means, means_within
from levelhead.metrics.contrasts import FEW
from levelhead.metrics.names import Key, attribute_names, group_name, metric_of
from levelhead.metrics.paired import Paired, mcnemar, paired_change
from levelhead.metrics.scores import student
from levelhead.report.text import Record
from levelhead.tables.repeated import repeated
from levelhead.tables.rows import OTHER_SCORE, Rows, matched
from levelhead.tables.vocabulary import agree, check_predictions, in_order
from levelhead.types import DataError, Estimate, in_quotes, printable

IntArray = NDArray[np.int64]


def compare_rows(
    rows: Rows,
    groups: Mapping[Key, Sequence[Key]],
    options: AuditOptions,
    *,
    positive: str | None = None,
    names: tuple[str, str] = ("old", "new"),
    warnings: Sequence[str] = (),
) -> PairedAudit:
    """Compare two models' predictions for the same rows.

    Args:
        rows: the rows, with the new model's predictions as ``prediction`` and the old one's as ``other``.
        groups: the groups of every column and crossing, in their order.
        options: those of an audit; replicates are for the figures of the whole.
        positive: text of the class that rates are about; None: every class against the rest.
        names: what the old and the new model are called.
        warnings: passed on.

    Returns:
        the comparison.
    """
    label_map, min_count, level = options.label_map, options.min_count, options.level
    predictions = {role: rows.counts(role) for role in ("prediction", "other")}
    both = predictions["prediction"] | predictions["other"]
    as_label, as_prediction, mapped, _ = agree(rows.counts("label"), both, label_map)
    said = list(warnings)
    for counts in predictions.values():
        counts_of: dict[Hashable, int] = {}
        for value, count in counts.items():
            counts_of[as_prediction[value]] = counts_of.get(as_prediction[value], 0) + count
        said += [one for one in check_predictions(mapped, counts_of, label_map.kept) if one not in said]
    classes = in_order({**mapped, **dict.fromkeys(as_prediction.values())})
    chosen = None if positive is None else [str(value) for value in classes].index(positive)
    place = {value: at for at, value in enumerate(classes)}
    label = rows.coded("label", {value: place[one] for value, one in as_label.items()})
    codes = {value: place[one] for value, one in as_prediction.items()}
    before, after = rows.coded("other", codes), rows.coded("prediction", codes)
    outcome = (label * len(classes) + before) * len(classes) + after
    cluster = pd.factorize(rows.whole("cluster"))[0] if "cluster" in rows.parts else None
    if cluster is not None and int(cluster.max()) + 1 == len(cluster):
        cluster = None
    whole = {role: rows.whole(role) for role in rows.parts}
    by_attribute = {}
    for key, there in groups.items():
        members = rows.members(key, there)(whole).astype(np.int64)
        table = _joint_counts(members, outcome, there, classes, placed=cluster is not None)
        compared = np.array([not options.leaves_out(group) for group in there])
        together = None
        if cluster is not None:
            together = _Together.of(cluster, members, (label, before, after), len(there), chosen, classes, min_count)
            said += [
                f"{printable(attribute_names(groups)[key])}: group {in_quotes(group_name(group))} has rows or a label "
                f"from fewer than {FEWEST} clusters: the changes of gaps leave it out."
                for group in itertools.compress(there, compared & together.few)
            ]
        found = _compare(table, there, compared, chosen, options, together)
        if OTHER_SCORE in rows.parts and chosen is not None:
            scores = rows.whole(OTHER_SCORE), rows.whole("score")
            areas = area_changes(
                label == chosen, scores, members, there, compared, min_count=min_count, level=level, cluster=cluster
            )
            found = replace(found, areas=areas)
        by_attribute[key] = found
    return PairedAudit(by_attribute, *names, level, tuple(said))


def _joint_counts(
    members: IntArray, outcome: IntArray, groups: Sequence[Key], classes: Sequence[Hashable], *, placed: bool = False
) -> JointCounts:
    """Count rows by group and ``outcome``; ``placed``: and keep which pattern each row has."""
    size = len(classes)
    flat = members * size**3 + outcome
    if len(groups) * size**3 <= 1 << 22:
        counted = np.bincount(flat)
        used = np.flatnonzero(counted)
        rows = counted[used]
    else:
        used, rows = np.unique(flat, return_counts=True)
    patterns = np.stack(np.unravel_index(used, (len(groups), size, size, size)), -1)
    places = np.searchsorted(used, flat) if placed else None
    return JointCounts(patterns, rows.astype(np.int64), tuple(map(group_name, groups)), tuple(classes), places)


def _compare(
    counts: JointCounts,
    keys: Sequence[Key],
    compared: NDArray[np.bool_],
    positive: int | None,
    options: AuditOptions,
    together: _Together | None = None,
) -> PairedAttribute:
    min_count, level = options.min_count, options.level
    member, label, old, new = counts.patterns.T

    def rows_where(kept: NDArray[np.bool_]) -> IntArray:
        return np.bincount(member[kept], counts.multiplicity[kept], len(keys)).astype(np.int64)

    rates = _rates(label, old, new, positive, counts.classes)
    included = (rows_where(np.ones(len(label), bool)) >= min_count) & compared
    sure = included
    if together is not None:
        included &= together.rates["accuracy"].clusters >= FEWEST
        sure = included & ~together.few
    metrics = _metric_changes(counts, sure, positive, options, together)
    changes: list[tuple[int, str, list[int], float]] = []
    p_values = []
    for rate, (used, was, now) in rates.items():
        parts = (used & was & now, used & ~was & now, used & was & ~now, used)
        for i, cell in enumerate(np.stack(list(map(rows_where, parts)), -1).tolist()):
            _, gained, lost, rows = cell
            share, tested, p_value, enough = 1.0, 1.0, 0.0, included[i] and rows >= max(1, min_count)
            if together is not None and rows:
                share, tested, p_value = together.worth(rate, i, level)
                enough &= together.rates[rate].clusters[i] >= FEWEST
            changes.append((i, rate, cell, share))
            p_values.append(max(p_value, mcnemar(gained, lost, tested)) if enough else np.nan)
    own: list[dict[str, Change]] = [{} for _ in keys]
    for (i, rate, cell, share), p_value, p_holm in zip(changes, p_values, holm(p_values), strict=True):
        own[i][rate] = _change(cell, p_value, p_holm, level, share)
    groups = {}
    for (i, _, (both, gained, lost, n), _), key in zip(changes, keys, strict=False):  # accuracy is the first rate
        groups[key] = GroupChange(n, bool(included[i]), both, gained, lost, n - both - gained - lost, own[i])
    return PairedAttribute(metrics, groups)


def _rates(
    label: IntArray, old: IntArray, new: IntArray, positive: int | None, classes: Sequence[Hashable]
) -> dict[str, tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]]:
    """Return by rate which rows it is of, and which of them the old and the new model hit, (rows,) each."""
    every = np.ones(len(label), bool)
    found = {"accuracy": (every, old == label, new == label)}
    chosen = group_metrics.classes_compared(len(classes), positive)
    for k in chosen:
        ending = f"[{classes[k]}]" if len(chosen) > 1 else ""
        for rate, used in (
            ("selection_rate", every), ("true_positive_rate", label == k), ("false_positive_rate", label != k),
        ):  # fmt: skip
            found[rate + ending] = used, old == k, new == k
    return found


def _metric_changes(
    counts: JointCounts,
    included: NDArray[np.bool_],
    positive: int | None,
    options: AuditOptions,
    together: _Together | None = None,
) -> dict[str, Change]:
    """Return the figures of the whole: accuracies over all rows, gaps over the groups that an audit compares."""
    many = int(included.sum()) if included.sum() > FEW else 0
    left_out = counts.groups if many else [group for group, one in zip(counts.groups, included, strict=True) if not one]
    sides = {"old": 1, "new": 1}
    cluster = None if together is None else together.cluster
    asked = options.level, options.replicates, options.seed, options.min_count
    paired = Paired.from_counts(counts, sides, positive, *asked, left_out, cluster)
    found = {}
    for name in paired.names:
        if many and metric_of(name).kind != "level":
            why = f"{many} groups have too many pairs: compare at most {FEW} groups"
            found[name] = (np.nan, np.nan, Estimate.undefined(why), np.nan)
            continue
        inference = paired.difference(name, "new", "old")
        old, new = (float(paired.values(name, method)[0]) for method in sides)
        # One seed each: the interval holds the rows alone, and says so elsewhere.
        change, p_value = inference.rows_only, inference.p_value
        if together is not None:
            change, p_value = together.widened(name, change, p_value, options.level)
        found[name] = (old, new, change, p_value)
    adjusted = holm([p_value for *_, p_value in found.values()])
    return {name: Change(*figures, p_holm) for (name, figures), p_holm in zip(found.items(), adjusted, strict=True)}


@dataclass(frozen=True)
class _Together:
    """Rows in clusters: ``cluster`` (rows,) codes, and the mean paired difference of each of the ``rates`` by group.

    ``few`` (groups,): enough rows for a rate, but from too few clusters. ``whole``: variance and degrees of freedom of
    the changes of accuracy over all rows.
    """

    cluster: IntArray
    rates: dict[str, Means]
    few: NDArray[np.bool_]
    whole: dict[str, tuple[float, float]]

    @classmethod
    def of(
        cls,
        cluster: IntArray,
        members: IntArray,
        outcomes: tuple[IntArray, IntArray, IntArray],
        groups: int,
        positive: int | None,
        classes: Sequence[Hashable],
        min_count: int,
    ) -> _Together:
        """Sum the differences within clusters; ``outcomes`` are (rows,) labels, old and new predictions."""
        label, rates, changes = outcomes[0], {}, {}
        for rate, (used, was, now) in _rates(*outcomes, positive, classes).items():
            changes[rate] = 1.0 * now - was
            rates[rate] = means_within(cluster[used], members[used], groups, changes[rate][used], spanning=False)
        few = [(one.total >= max(1, min_count)) & (one.clusters < FEWEST) for one in rates.values()]
        change, labels = changes["accuracy"], np.bincount(label, minlength=len(classes))
        of_label = np.bincount(label, change) / np.maximum(labels, 1)[: label.max() + 1]
        whole = {}
        for name, residual in (
            ("accuracy", change - change.mean()),
            ("balanced_accuracy", (change - of_label[label]) * len(label) / (np.count_nonzero(labels) * labels[label])),
        ):
            one = means_within(cluster, np.zeros_like(cluster), 1, residual)
            whole[name] = float((residual**2).mean() / one.worth[0]), max(1.0, float(one.freedom[0]))
        return cls(cluster, rates, np.any(few, axis=0), whole)

    def widened(self, name: str, found: Estimate, p_value: float, level: float) -> tuple[Estimate, float]:
        """Return a change over all rows no surer than Student's t is: resampling few clusters is too sure."""
        if name not in self.whole or not found.defined or not self.whole[name][0]:
            return found, p_value
        variance, freedom = self.whole[name]
        own = student(found.value, variance, freedom, found.n, level)
        wider = replace(found, low=min(found.low, own.low), high=max(found.high, own.high))
        return wider, max(p_value, float(2 * special.stdtr(freedom, -abs(found.value) / variance**0.5)))

    def worth(self, name: str, at: int, level: float) -> tuple[float, float, float]:
        """Return the effective shares of a rate's rows for an interval and a test, and Student's p."""
        one = self.rates[name]
        rate = one.rate
        error, total = float(one.variance[at]) ** 0.5, one.total[at]
        p_value = 2 * special.stdtr(max(1.0, one.freedom[at]), -abs(one.value[at]) / error) if error > 0 else 0.0
        return float(rate.worth_at(level)[at] / total), float(rate.worth[at] / total), float(p_value)


def _change(cell: Sequence[int], p_value: float, p_holm: float, level: float, share: float = 1.0) -> Change:
    both, gained, lost, n = cell
    if n == 0:
        missing = Estimate.undefined("no rows")
        return Change(np.nan, np.nan, missing, np.nan, np.nan)
    difference = paired_change(gained, lost, n, level, share)
    return Change((both + lost) / n, (both + gained) / n, difference, p_value, p_holm)


class Against(Part):
    """How the figures differ from those of another model on the same rows."""

    name = "against"
    needs = ("other",)
    keeps = ("label", "prediction", "other", "cluster", "id", "groups")

    @classmethod
    def brief(cls, result: Record) -> list[str]:
        """Return who gained or lost most by each column, which stands after the gap."""
        found = (result.get(cls.name) or {}).get("by_attribute", {})
        return [line for own in found.values() for line in own["sentences"][1:2]]

    def find(self, frame: Frame) -> PairedAudit:
        """Return the changes from the other model."""
        options, rows, other = frame.options, frame.given, frame.options.other
        said: list[str] = []
        assert other is not None  # or nobody asked
        if isinstance(frame.rows, ScoreRows) and frame.scale is not None and self.asked.roles.prediction is None:
            decided = frame.rows.decided(frame.scale, frame.thresholds[0], frame.label, options.label_map)
            rows.put("prediction", decided)
            rows.parts["score"] = [frame.rows.whole("score")]
        if other.source is not None:
            rows, said = matched(rows, self._theirs(frame, other))
        found = compare_rows(rows, frame.groups, options, positive=frame.of_class, names=other.names, warnings=said)
        frame.warnings.extend([one for one in found.warnings if one not in frame.warnings])
        if frame.favourable is None or len(frame.classes) != 2:
            return found
        text = str(frame.classes[frame.favourable])
        return replace(found, favourable=(text, frame.favourable != frame.compared[0]))

    def _theirs(self, frame: Frame, other: Other) -> Rows:
        """Read another model's predictions, or decide its scores as the audited ones were."""
        asked, own, scale = self.asked, frame.rows, frame.scale
        score = asked.roles.score if asked.roles.prediction is None else None
        its = replace(asked.roles, score=score, weight=None, cluster=None, levels=(), along=(), id=other.id, time=None)
        assert other.source is not None
        rows = (Rows if score is None else ScoreRows)(its.titles(other.source))
        for columns in its.batches(other.source, asked.cuts):
            rows.add(repeated(columns, len(rows)) if "count" in columns else columns)
        if isinstance(rows, ScoreRows) and isinstance(own, ScoreRows) and scale is not None:
            found = rows.settle(asked.options.scale)
            if found.name != scale.name:
                # One threshold is not for both.
                raise DataError(
                    f"{rows.titles['score']} holds scores on the scale {found.name}, the audited file on "
                    f"{scale.name}. Name one scale for both: {ASK}."
                )
            scores = rows.parts.pop("score")
            decided = own.decided(scale, frame.thresholds[0], frame.label, asked.options.label_map, scores)
            rows.put("prediction", decided)
            rows.parts["score"] = [np.concatenate(scores)]
        return rows
