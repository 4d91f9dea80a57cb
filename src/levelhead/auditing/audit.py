"""Measure the gaps between groups in a set of predictions, with intervals.

An audit is a finding about these rows and these groups. It is not a verdict: a small measured gap does not make a
model just or lawful, and an interval that holds 0 means that these rows cannot tell, not that there is no gap.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from numpy.typing import ArrayLike

from levelhead.arrays import checked
from levelhead.auditing.clusters import check_cluster, repeating_id
from levelhead.auditing.costs import check_costs
from levelhead.auditing.finding import Reference
from levelhead.auditing.options import LEAVE_OUT, AuditOptions, Metric, Other, Roles, about_of, takes_clusters
from levelhead.auditing.result import AuditResult
from levelhead.auditing.run import check, run
from levelhead.auditing.scale import AUTO, check_scale
from levelhead.auditing.score_rows import check_thresholds
from levelhead.auditing.weights import OF_WEIGHTS
from levelhead.tables.bins import Bins
from levelhead.tables.columns import by_name, name_of, outcome_of, outcomes_of
from levelhead.tables.files import Stored, by_file, source_of
from levelhead.tables.join import Joined, both_ids
from levelhead.tables.source import Arrays
from levelhead.tables.vocabulary import LabelMap
from levelhead.types import ConfigError, quoted


@checked
def audit(
    y_true: ArrayLike,
    y_pred: ArrayLike | None = None,
    *,
    sensitive_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike],
    scores: ArrayLike | None = None,
    threshold: float | Sequence[float] | None = None,
    against: ArrayLike | None = None,
    continuous: Mapping[str, ArrayLike] | pd.DataFrame | ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    control_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike] | None = None,
    positive: Hashable = None,
    intersect: bool = False,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    bins: Bins | Sequence[str] | str | None = None,
    missing: str = LEAVE_OUT,
    reference: Reference = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    ignore_label: Hashable = None,
    about: Mapping[str, str] | None = None,
    metrics: Mapping[str, Metric] | None = None,
    scale: str = AUTO,
    favourable: Hashable = None,
    cluster: ArrayLike | None = None,
    time: ArrayLike | None = None,
    costs: Mapping[str, Any] | None = None,
    parts: Sequence[str] = (),
    counts: ArrayLike | None = None,
) -> AuditResult:
    """Measure accuracy and the gaps between groups.

    Args:
        y_true: (rows,) true classes, any hashables, at most 200.
        y_pred: (rows,) predicted classes out of the same vocabulary. Values are compared exactly: numbers with numbers,
            texts with texts. None: those of ``scores`` at the first ``threshold``.
        sensitive_features: (rows,) group of each row, or a frame or dict of such columns, each audited on its own.
            At most 1,000 groups.
        scores: (rows,) probability, log odds or any other score of the positive class, of two: their areas under the
            ROC curve, calibration and gaps at every threshold are in ``result.scores``.
        threshold: rows with at least this score are decided positive. Of several, the tables of groups are about the
            first. None: 0.5 for probabilities, 0 for log odds. Not with ``y_pred``, which decides the rows.
        against: (rows,) predicted classes of another model for the same rows, in the same order: how each figure
            differs from that model's, and which groups gained and lost, are in ``result.against``.
        continuous: columns of numbers, such as ages, (rows,) each: how decisions change along them, without cutting
            them into groups, is in ``result.continuous``. One column goes by its name, or as ``number``.
        sample_weight: (rows,) how many rows each row represents, 0 or more; a row with 0 is left out. Rates are
            weighted, and intervals are based on their effective sample size (:mod:`levelhead.metrics.weighted`). Not
            with
            ``scores``, ``against`` or ``continuous``. ``min_count`` counts real rows.
        control_features: (rows,) or a frame or dict of such columns, which are crossed: gaps within their levels, and
            the averages over levels, are in ``result.more["control"]`` (:mod:`levelhead.auditing.control`).
        positive: the class that selection, true positive and false positive rates are about. None: the second of
            two classes in sorted order; with three or more, every class against the rest.
        intersect: also audit the crossing of all columns, under the tuple of their names.
        min_count: smallest denominator of a rate to be compared: rows of the group for demographic parity, its
            positives for true positive rates, its negatives for false positive rates. A group with fewer is named in
            a warning and left out of the figures that compare this rate.
        level: confidence level of the intervals.
        replicates: bootstrap replicates.
        seed: of the bootstrap.
        bins: cuts columns of numbers into ranges, which are then the groups: for each column its cut points, or
            ``"quantiles:4"``; ``"values"`` says that the numbers are codes of groups.
        missing: "leave out" shows rows without a group beside the others, in the group "(missing)", and leaves them
            out of the gaps; "group" makes them a group like any other.
        reference: the group that the others are compared with, as ``Male``, ``sex=Male`` or ``{"sex": "Male"}``;
            several are a list, or a dict. Only the pairs with it are named; the largest gaps stay those over all pairs.
        label_map: which class of the predictions each label means, as ``{">50K": 1, "<=50K": 0}``. A name that is
            both a label and a prediction, and means two classes, is written ``label=1`` or ``prediction=1`` in
            ``positive`` and ``favourable``.
        ignore_label: the label of rows that have none, such as -1: they are left out and counted in a note.
        about: title and model, for the page and the JSON.
        metrics: metrics of your own by name, each called as ``f(y_true, y_pred)`` on the rows of a group, or as
            ``f(y_true, scores)`` where only scores are passed; in ``result.own_metrics``. Their intervals resample
            rows, which is slower than counting (:mod:`levelhead.auditing.own_metrics`).
        scale: what ``scores`` are: "probability", "log-odds", "other", which needs a ``threshold``, or "auto":
            probabilities where all lie in 0 to 1, give or take 1e-6; log odds where some are negative and most lie
            outside 0 to 1.
        favourable: the class that is the favourable outcome, such as "approved". The four-fifths rule is about it;
            None: both outcomes' ratios are given, and no verdict.
        cluster: (rows,) what rows that belong together have in common, such as a person's id. Intervals then allow for
            the correlation within clusters (:mod:`levelhead.metrics.clustered`); a rate with fewer than 8 clusters is
            not compared. Not with ``continuous``, ``control_features``, ``metrics`` or ``sample_weight``.
        time: (rows,) the period of each row, such as ``"2024-03"``; dates are counted by month. How differences between
            groups change is in ``result.over_time`` (:mod:`levelhead.auditing.over_time`). Not with ``sample_weight``
            or ``cluster``.
        costs: what a ``false_positive`` and a ``false_negative`` cost, in any unit, 0 or more: the expected cost a row
            of each group is in ``result.findings["costs"]``. Not with ``sample_weight`` or ``cluster``.
        parts: questions of your own, by the names that their classes are registered under, or as ``module:Class``
            (:class:`~levelhead.auditing.part.Part`): what they find is in ``result.parts``.
        counts: (rows,) of a frequency table: how many people each row represents, whole numbers of 0 or more. Figures
            are those of this many rows. Not with ``sample_weight`` or ``cluster``.

    Returns:
        the figures. What cannot be computed is NaN with a reason, and a warning.

    Raises:
        DataError: no rows, unequal lengths, missing labels or predictions; predictions that share no value with the
            labels, would match one only if it were written differently, or are scores; more classes or groups than
            can be compared; a group column of more than 20 numbers without ``bins``; two sensitive columns of one
            name; or scores that lie mostly in 0 to 1 and partly outside, without ``scale``.
        ConfigError: ``positive`` is not a class, or an option is out of range.

    Examples:
        >>> import levelhead as lh
        >>> labels, predictions, groups = [1, 0] * 50, [1, 0, 1, 1] * 25, ["a", "a", "b", "b"] * 25
        >>> result = lh.audit(labels, predictions, sensitive_features=groups)
        >>> print(result.metrics["accuracy"])
        75.00 [65.61, 82.46]
        >>> round(result.metrics["demographic_parity"].value, 2)
        0.5
    """
    control, weight = control_features, sample_weight
    outcomes = {"label": y_true, "prediction": y_pred, "prediction of the other model": against}
    columns, (positive, favourable), by_position = outcomes_of(outcomes, positive, favourable)
    if cluster is not None:
        columns["cluster"] = outcome_of(cluster, "cluster")
    if time is not None:
        columns["time"] = outcome_of(time, "time")
    called = {"The label": name_of(y_true), "The cluster": name_of(cluster, "cluster")}
    called |= {"sample_weight": name_of(weight, "sample_weight"), "The count": name_of(counts, "counts")}
    called |= {"The time": name_of(time, "time")}
    source = Arrays(called)
    source.add_outcomes(columns)
    along = {} if continuous is None else by_name(continuous, "number", "columns of numbers")
    roles = Roles(
        "The label",
        None if y_pred is None else "The prediction",
        source.add_words(sensitive_features),
        None if scores is None else "The score",
        None if weight is None else "sample_weight",
        None if cluster is None else "The cluster",
        None if against is None else "The prediction of the other model",
        () if control is None else source.add_words(control, "control", "control columns"),
        tuple(along),
        count=None if counts is None else "The count",
        time=None if time is None else "The time",
    )
    options = AuditOptions(
        positive, intersect, min_count, level, replicates, seed, missing, reference, LabelMap(label_map),
        about_of(about), favourable,
        check_thresholds(threshold, scores is not None, y_pred is not None), check_scale(scale), bins, metrics,
        None if against is None else Other(("the other model", "this model")), check_costs(costs), tuple(parts),
        ignore_label=ignore_label,
    )  # fmt: skip
    check(roles, options, argument=True)
    if against is not None and y_pred is None:
        raise ConfigError("against= compares predicted classes: pass y_pred as well.")
    if scores is not None:
        source.add_numbers("The score", scores, "The score", "scores")
    if weight is not None:
        source.add_numbers("sample_weight", weight, "sample_weight", "weights", OF_WEIGHTS)
    source.add_counts(counts)
    for name, values in along.items():
        source.add_numbers(name, values, f"The column {quoted(name)}", f"values of {quoted(name)}")
    result = run(source, roles, options)
    return replace(result, warnings=[*by_position, *result.warnings])


@checked
def audit_file(
    path: Path | str | Stored | Sequence[Path | str],
    label: str,
    prediction: str | None,
    groups: Sequence[str],
    *,
    score: str | None = None,
    threshold: float | Sequence[float] | None = None,
    against: Path | str | None = None,
    on: str | None = None,
    continuous: Sequence[str] = (),
    weight: str | None = None,
    count: str | None = None,
    control: Sequence[str] = (),
    positive: Hashable = None,
    intersect: bool = False,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    bins: Bins | Sequence[str] | str | None = None,
    missing: str = LEAVE_OUT,
    reference: Reference = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    ignore_label: Hashable = None,
    about: Mapping[str, str] | None = None,
    scale: str = AUTO,
    favourable: Hashable = None,
    cluster: str | None = None,
    time: str | None = None,
    costs: Mapping[str, Any] | None = None,
    join: Path | str | None = None,
    parts: Sequence[str] = (),
) -> AuditResult:
    """Audit a file of predictions of any length: batches of rows are counted and forgotten.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file with one prediction a row. Or several:
            a list, a glob such as ``2024-*.parquet``, or a folder of parquet files, whose own folders may name values
            of a column, ``state=CA``.
        label: name of the column with the true classes.
        prediction: name of the column with the predicted classes, in the same words; None: those of the score.
        groups: names of the group columns, each audited on its own.
        score: name of a column of scores, as ``scores`` of :func:`audit`.
        threshold: as :func:`audit` takes it.
        against: a file with another model's predictions for the same rows, in columns of the same names.
        on: name of a column of ids, by which the rows of the two files are matched, or ``left=right`` where the other
            file has another name for it. None: by their order; ``join`` needs it.
        continuous: names of columns of numbers.
        weight: name of a column of weights, as ``sample_weight`` of :func:`audit`.
        count: name of the column of a frequency table that says how many people each row represents.
        control: names of columns, crossed, as ``control_features`` of :func:`audit`.
        positive: as :func:`audit` takes it, like all that follows.
        intersect: see there.
        min_count: see there.
        level: see there.
        replicates: see there.
        seed: see there.
        bins: see there; or ``column=...`` texts.
        missing: see there.
        reference: see there.
        label_map: see there; or texts, ``>50K=1,<=50K=0``.
        ignore_label: see there.
        about: see there.
        scale: see there.
        favourable: see there.
        cluster: name of the column that rows which belong together have in common, as ``cluster`` of :func:`audit`.
        time: name of a column of periods or dates, as ``time`` of :func:`audit`; or ``file``, where each of several
            files is a period and none has a column of this name.
        costs: as :func:`audit` takes them.
        join: a file with groups for ids, one row an id; rows of ``path`` without one have no group.
        parts: as :func:`audit` takes them.

    Returns:
        what :func:`audit` returns for the same rows.

    Raises:
        DataError: what :func:`audit` raises, and a file that is missing, unreadable, empty or lacks a column.
        ConfigError: as :func:`audit`.

    Examples:
        >>> import pandas as pd
        >>> import levelhead as lh
        >>> table = pd.DataFrame({"label": [1, 0] * 50, "answer": [1, 0, 1, 1] * 25, "sex": ["f", "f", "m", "m"] * 25})
        >>> table.to_csv("predictions.csv", index=False)
        >>> result = lh.audit_file("predictions.csv", "label", "answer", ["sex"])
        >>> print(result.groups["m"].rates["accuracy"])
        50.00 [36.64, 63.36]
    """
    if label == prediction:
        raise ConfigError(
            f"{quoted(label)} is named as label and as prediction. For decisions without outcomes leave out --label, "
            "and type --favourable CLASS (audit_decisions_file)."
        )
    names, source = list(dict.fromkeys(groups)), by_file(source_of(path), time)
    theirs = None if against is None else source_of(against)
    left, right = (None, None) if on is None else both_ids(on, source.file_of("").header())
    if join is not None:
        if left is None or against is not None:
            raise ConfigError("join= needs on=, the column of ids in both files, and goes without against=.")
        every = [label, prediction, score, *names, *continuous, weight, count, *control, cluster, time]
        source = Joined(source, Path(join), left, [name for name in every if name], right)
    roles = Roles(
        label, prediction, tuple(names), score, weight, cluster, None, tuple(dict.fromkeys(control)),
        tuple(dict.fromkeys(continuous)), left if against is not None else None, count, time,
    )  # fmt: skip
    other = None if theirs is None else Other((theirs.name, source.name), theirs, right or left)
    options = AuditOptions(
        positive, intersect, min_count, level, replicates, seed, missing, reference, LabelMap(label_map),
        about_of(about), favourable,
        check_thresholds(threshold, score is not None, prediction is not None), check_scale(scale), bins,
        other=other, costs=check_costs(costs), parts=tuple(parts),
        ignore_label=ignore_label,
    )  # fmt: skip
    check(roles, options)
    if cluster is not None:
        check_cluster(cluster, [one for one in (label, prediction, score, *names) if one is not None])
    if on is not None and against is None and join is None:
        raise ConfigError("--on matches the rows of two files: name the other file with --against, or leave out --on.")
    used = [*roles.columns, *([left] if left else [])]
    reading = source.taken(used)
    if theirs is not None:
        reading += theirs.taken([*(name for name in roles.columns if name != left), *filter(None, [right or left])])
    if cluster is not None or count is not None:
        return run(source, roles, options, reading)
    advice = "add --cluster {name}" if takes_clusters(roles, options) else "keep one row of each {name}"
    return run(source, roles, options, reading, repeating_id(source, used, advice))
