"""Say what the gap between two groups is made of: base rates, how well the score ranks, and how much of both it uses.

The formulas are those of :mod:`levelhead.metrics.implied`. Nothing here says that a gap is justified: base rates are
those of the labels in these rows, and labels can carry the injustice that an audit looks for.

Intervals are those of the rows. Replicates are Bayesian bootstraps (Rubin, Annals of Statistics 1981): every row gets a
standard exponential weight, so that no replicate loses the few positives of a group. Rows are binned by score for that,
so that their number does not matter. Rows of one cluster, such as a person, get one weight together. Gaps are the
largest of signed contrasts and have the intervals of :mod:`levelhead.metrics.intervals`; rho is a ratio and has
Fieller's (Journal of the Royal Statistical Society B 1954).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.arrays import checked
from levelhead.auditing.clusters import alone_sentence, repeating_id
from levelhead.auditing.exclusions import Refused
from levelhead.auditing.explain_column import ExplainedColumn, check
from levelhead.auditing.explanation import Explanation
from levelhead.auditing.figures import favourable_of
from levelhead.auditing.of_run import OUTCOMES, OwnPredictions, joined, table_of
from levelhead.auditing.options import MIN_COUNT, AuditOptions, Roles, refuse_twice
from levelhead.auditing.scale import AUTO, OTHER, Scale, check_scale, find_scale
from levelhead.auditing.score_rows import ScoreRows
from levelhead.report.text import clustered_sentence, counted
from levelhead.tables.source import Labelled, Source
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import LabelMap, agree, alike, check_labels, in_order
from levelhead.types import ConfigError, DataError, listed, printable, quoted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

SMALLEST = 1e-6
"""Probabilities are clipped to this distance from 0 and 1, where log odds are infinite."""


@checked
def explain(
    data: Any,
    *,
    label: str | None = None,
    score: str | None = None,
    groups: Sequence[str] = (),
    on: str | None = None,
    join: Any = None,
    positive: Hashable = None,
    favourable: Hashable = None,
    threshold: float | None = None,
    scale: str = AUTO,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    cluster: str | None = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    ignore_label: Hashable = None,
) -> Explanation:
    """Say what a measured gap is made of: the gap that base rates imply, the share of them that a score uses, the rest.

    The gap is that in equalized odds. A score that is calibrated inside each group has a gap where base rates differ,
    without any shortcut: the implied gap, from the binormal model of :mod:`levelhead.metrics.implied`. How much of the
    difference in base rates the score uses, rho, is estimated by the logistic regression of the label on the score
    with an intercept for each group: rho = 1 - (difference of intercepts) / (difference of logit base rates).

    Args:
        data: one score a row: a frame, a file, several or a run folder, as :func:`levelhead.audit_table` takes them.
        label: name of the column with the true classes, two of them, or more if ``positive`` is given.
        score: name of the column with the probability or log odds of the positive class.
        groups: names of the group columns, each explained on its own. Rows without a group are left out of that
            column's. At most 20 groups are compared.
        on: name of the column of ids, with ``join``.
        join: a table with groups for ids, as :func:`levelhead.audit_table` takes it.
        positive: the class that the score is about. None: the second of two classes in sorted order.
        favourable: the favourable outcome, for sentences: a class, or the name of the decision from the threshold on.
        threshold: rows with at least this score are decided positive. None: 0.5 for a probability, 0 for log odds.
        scale: "probability", "log-odds", or "auto": probabilities where all scores lie in 0 to 1, give or take 1e-6;
            log odds where some are negative and most lie outside 0 to 1.
        min_count: positives, and negatives, that a group needs to be compared.
        level: confidence level of the intervals; those of pairs of groups hold for all pairs of a column together.
        replicates: bootstrap replicates.
        seed: of the bootstrap.
        cluster: name of the column that rows which belong together have in common, such as a person's id. A group needs
            8 clusters with each label to be compared.
        label_map: which class each label means, as :func:`levelhead.audit` takes it.
        ignore_label: the label of rows that have none, as there.

    Returns:
        the figures for every pair of groups. What cannot be computed is NaN with a reason.

    Raises:
        DataError: no rows, missing values, labels of one class, scores that are neither probabilities
            nor log odds or, without ``scale``, lie mostly in 0 to 1 and partly outside, a threshold that all scores or
            none reach, too many groups; and a file that is missing, unreadable, empty or lacks a column.
        ConfigError: ``positive`` is not a class or not named among three or more, a column is named twice, or an
            option is out of range.

    Examples:
        >>> import numpy as np, pandas as pd
        >>> import levelhead as lh
        >>> rng = np.random.default_rng(0)
        >>> group = rng.integers(0, 2, 4000)
        >>> label = (rng.random(4000) < np.where(group == 1, 0.65, 0.25)).astype(int)
        >>> ratio = rng.normal(np.where(label == 1, 1, -1), np.sqrt(2))  # the log-likelihood ratio inside each group
        >>> score = ratio + np.where(group == 1, np.log(0.65 / 0.35), np.log(0.25 / 0.75))  # calibrated in each
        >>> table = pd.DataFrame({"y": label, "p": score, "group": np.where(group == 1, "a", "b")})
        >>> pair = lh.explain(table, label="y", score="p", groups=["group"]).pairs[0]
        >>> round(pair.measured.value, 1), round(pair.implied.value, 1), round(pair.rho.value, 1)
        (0.4, 0.4, 1.0)
    """
    source = None if data is None else table_of(data)
    if isinstance(source, OwnPredictions):
        label, score, groups = label or OUTCOMES[0], score or source.score, groups or (() if join else source.groups)
        cluster, on = cluster or source.cluster, on or (source.ids if join is not None else None)
        positive = source.positive if positive is None else positive
    given = {"data": source, "label": label, "score": score, "groups": groups}
    if lacking := [name for name, value in given.items() if value is None or (not len(groups) and name == "groups")]:
        raise Refused(
            "An explanation needs {data}, {label}, {score} and {groups}; missing: {given}.",
            lacking,
            example="levelhead explain predictions.csv --label y --score p --group sex",
        )
    if (join is None) != (on is None):
        raise Refused("{join} and {on} go together: a table with groups, and the column of ids.", ["join"])
    assert source is not None
    options = AuditOptions(
        positive, False, min_count, level, replicates, seed, label_map=LabelMap(label_map), favourable=favourable,
        ignore_label=ignore_label, thresholds=() if threshold is None else (threshold,), scale=scale,
        label=str(label), cluster=cluster,
    )  # fmt: skip
    check(options)
    roles = Roles(label, None, tuple(dict.fromkeys(groups)), score, cluster=cluster)
    refuse_twice(roles)
    source = joined(source, join, on, roles.columns)
    found = _explain(source, roles, options)
    if cluster is None:
        hints = repeating_id(source, roles.columns, "add --cluster {name}")
        found = replace(found, warnings=[*found.warnings, *hints])
    return replace(found, reading=tuple(source.taken(roles.columns)))


def _read(source: Source, roles: Roles) -> ScoreRows:
    """Read all rows; the limits of columns, and their errors, are those of an audit."""
    if not roles.groups:
        raise DataError("There is no sensitive column. Pass at least one.")
    rows = ScoreRows(roles.titles(source))
    # An explanation has a limit of its own to the groups of a column, and no ranges.
    groups = {name: source.title(name) for name in roles.groups}
    tally = Tally(rows.titles["label"], rows.titles["label"], groups, numbered=frozenset(groups))
    for columns in roles.batches(source, {}):
        label: Any = columns["label"]
        of_groups: dict[str, Any] = {name: columns[f"group {name}"] for name in groups}
        tally.add(label, label, of_groups)
        texts: dict[str, Any] = {
            f"group {name}": (codes, list(map(_text, values))) for name, (codes, values) in of_groups.items()
        }
        rows.add({**columns, **texts})
    rows.check_finite()
    tally.refuse_ids(MIN_COUNT)
    return rows


def _text(value: Hashable) -> str | None:
    return None if value is None else str(value)


def _explain(source: Source, roles: Roles, options: AuditOptions) -> Explanation:
    source = Labelled(source, roles.label, options.ignore_label)
    rows = _read(source, roles)
    of_label, of_score = rows.titles["label"], rows.titles["score"]
    order = np.argsort(rows.whole("score"), kind="stable")  # sums of floats are then those of any order of the rows
    label, score = rows.whole("label")[order], rows.whole("score")[order]
    used = {value: code for value, code in rows.labels.items() if (label == code).any()}
    class_of, _, merged, _ = agree(dict.fromkeys(used, 1), {}, options.label_map)
    options.label_map.refuse_unused()
    check_labels(merged, options.label_map.named)
    classes = in_order(merged)
    if len(classes) < 2:
        raise DataError(f"{of_label}: every label is {quoted(classes[0])}. A gap needs rows of both classes.")
    chosen = options.label_map.place(options.positive, classes)
    if chosen is None and len(classes) > 2:
        raise ConfigError(
            f"{of_label} has {len(classes)} classes: {listed(classes)}. Name the class that the score is about as the "
            "positive class."
        )
    positive = classes[1 if chosen is None else chosen]
    best, decision = favourable_of(options.favourable, classes, classes.index(positive), options.label_map, scored=True)
    words: dict[str, Any] = {}
    if best is not None:
        words = {"label": options.label, "order": list(map(str, classes)), "favourable": str(classes[best])}
        words |= {} if decision is None else {"decision": decision}
    truth = np.isin(label, [code for value, code in used.items() if class_of[value] == positive])
    scale, log_odds, warnings = _log_odds(score, of_score, check_scale(options.scale))
    warnings = [*source.ignored.said(), *options.label_map.said, *warnings]
    score = scale.clip(score)
    threshold = options.thresholds[0] if options.thresholds else scale.default_threshold()
    if scale.probabilities and not 0 < threshold < 1:
        raise ConfigError(f"threshold={threshold:g} is not between 0 and 1, but the scores are probabilities.")
    decided = score >= threshold
    if decided.all() or not decided.any():
        raise DataError(
            f"{of_score}: {'every' if decided.all() else 'no'} score reaches the threshold {threshold:g}, so all rows "
            f"get one decision. Scores range from {score.min():g} to {score.max():g}; pass another threshold."
        )
    cut = float(special.logit(np.clip(threshold, SMALLEST, 1 - SMALLEST))) if scale.probabilities else threshold
    by_attribute = {}
    cluster = None
    if options.cluster is not None:
        cluster = rows.whole("cluster").astype(np.int64)[order]
        number = len(np.unique(cluster))
        if number == len(cluster):
            warnings.append(alone_sentence(options.cluster))
            cluster = None
        else:
            warnings.append(f"{clustered_sentence(len(label), number, options.cluster)}.")
    for name in roles.groups:
        known, codes = rows.known[f"group {name}"], rows.whole(f"group {name}")[order]
        there = codes != known.get(None, len(known))
        if absent := int((~there).sum()):
            verb = "is" if absent == 1 else "are"
            warnings.append(f"{printable(name)}: {counted(absent, 'row')} without a group {verb} not compared.")
        if not there.any():
            raise DataError(f"{source.title(name)}: every value is missing. Leave the column out.")
        present = [group for group, code in known.items() if group is not None and (codes == code).any()]
        warnings += alike(name, "groups", present)
        place = np.zeros(len(known), np.int64)
        for position, group in enumerate(ordered := in_order(present)):
            place[known[group]] = position
        column = ExplainedColumn(
            name,
            list(map(str, ordered)),
            place[codes][there],
            truth[there],
            score[there],
            log_odds[there],
            decided[there],
            cut,
            str(positive),
            options,
            None if cluster is None else cluster[there],
        )
        by_attribute[name] = column.explain()
        warnings += column.warnings
    return Explanation(
        by_attribute,
        warnings,
        str(positive),
        float(threshold),
        scale.name,
        options.level,
        options.replicates,
        words=words,
    )


def _log_odds(score: FloatArray, title: str, wanted: str) -> tuple[Scale, FloatArray, list[str]]:
    """Return the scale of scores, their log odds, and warnings."""
    low, high = float(score.min()), float(score.max())
    if low == high:
        raise DataError(f"{title}: every score is {low:g}. There is nothing to explain.")
    if set(np.unique(score[:1000]).tolist()) <= {0.0, 1.0} and np.isin(score, (0.0, 1.0)).all():
        raise DataError(
            f"{title} has only 0 and 1: these are decisions, not scores. Pass the probability or the log odds "
            "behind them."
        )
    scale = find_scale([score], title, wanted)
    if scale.name == OTHER:
        raise DataError(
            f"{title} ranges from {low:g} to {high:g}: neither probabilities (0 to 1) nor log odds (some below 0). "
            "Divide percentages by 100; if they are log odds, say so with --scale log-odds."
        )
    if not scale.probabilities:
        return scale, score, []
    near = int(((score < SMALLEST) | (score > 1 - SMALLEST)).sum())
    warnings = scale.warnings()
    if near:
        warnings.append(
            f"{near:,} of {len(score):,} probabilities lie within {SMALLEST:g} of 0 or 1 and were clipped, because "
            "their log odds are infinite. Pass log odds if you have them."
        )
    if near > len(score) / 10:
        warnings.append("Over a tenth of the probabilities are 0 or 1, which biases the share that the score uses.")
    return scale, special.logit(np.clip(score, SMALLEST, 1 - SMALLEST)), warnings
