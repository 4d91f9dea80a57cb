"""Measure the gaps between groups in a set of predictions, with intervals.

An audit is a finding about these rows and these groups. It is not a verdict: a small measured gap does not make a
model just or lawful, and an interval that holds 0 means that these rows cannot tell, not that there is no gap.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import aligned, checked
from levelhead.auditing.clusters import check_cluster, repeating_id
from levelhead.auditing.continuous import NumberRows, check_degree
from levelhead.auditing.figures import LEAVE_OUT, AuditOptions, about_of, audit_tally, ordered_groups
from levelhead.auditing.finding import BONFERRONI, Reference
from levelhead.auditing.levels import add_control, check_control, control_tallies, levels_of
from levelhead.auditing.own_metrics import Metric, OwnMetric, check_metrics, own_metrics
from levelhead.auditing.paired import PairedRows, compare_rows, matched, read_rows
from levelhead.auditing.result import AuditResult
from levelhead.auditing.scale import ASK, AUTO, Scale, check_scale
from levelhead.auditing.scores import ScoreRows, audit_scores, check_thresholds, read_scores
from levelhead.auditing.weights import OF_WEIGHTS, Weights, check_without
from levelhead.metrics.names import Key, group_name
from levelhead.tables.bins import Bins, Cuts, cuts_of
from levelhead.tables.columns import (
    Column,
    by_name,
    column_title,
    columns_of,
    name_of,
    numbers_of_array,
    numbers_of_column,
    outcome_of,
    outcomes_of,
)
from levelhead.tables.files import Source, read_batches, read_batches_with_numbers, source_of
from levelhead.tables.join import Joined, both_ids
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import LabelMap
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, DataError, printable, quoted


@checked
def audit(
    y_true: ArrayLike,
    y_pred: ArrayLike | None = None,
    *,
    sensitive_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike],
    scores: ArrayLike | None = None,
    threshold: float | Sequence[float] | None = None,
    against: ArrayLike | None = None,
    without: ArrayLike | None = None,
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
    positive_name: str | None = None,
    about: Mapping[str, str] | None = None,
    adjust: str = BONFERRONI,
    metrics: Mapping[str, Metric] | None = None,
    gedi: int | None = None,
    scale: str = AUTO,
    favourable: Hashable = None,
    cluster: ArrayLike | None = None,
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
        without: (rows,) predicted classes of a model that does not use the sensitive features, where ``y_pred`` are
            those of one that does: ``result.against`` then says for which groups the use of them makes it worse.
        continuous: columns of numbers, such as ages, (rows,) each: how decisions change along them, without cutting
            them into groups, is in ``result.continuous``. One column goes by its name, or as ``number``.
        sample_weight: (rows,) how many rows each row stands for, 0 or more; a row with 0 is left out. Rates are
            weighted, and intervals rest on what the rows are worth (:mod:`levelhead.metrics.weighted`). Not with
            ``scores``, ``against``, ``continuous`` or ``control_features``. ``min_count`` counts real rows.
        control_features: (rows,) or a frame or dict of such columns, which are crossed: gaps within their levels, and
            the averages over levels, are in ``result.more["control"]`` (:mod:`levelhead.auditing.control`).
        positive: the class that selection, true positive and false positive rates are about. None: the second of
            two classes in sorted order; with three or more, every class against the rest.
        intersect: also audit the crossing of all columns, under the tuple of their names.
        min_count: rows that a rate must rest on to be compared: rows of the group for demographic parity, its
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
        label_map: which class of the predictions each label stands for, as ``{">50K": 1, "<=50K": 0}``.
        positive_name: the positive class in words, for sentences: a verb ("earns over 50K") or a noun ("light hair").
        about: title, model, author and purpose, for the page and the JSON.
        adjust: how intervals of pairs allow for each other: "bonferroni", or "max-t", which is never wider
            (:func:`~levelhead.metrics.pairs.comparisons_by_max_t`).
        metrics: metrics of your own by name, each called as ``f(y_true, y_pred)`` on the rows of a group, or as
            ``f(y_true, scores)`` where only scores are passed; in ``result.own_metrics``. Their intervals resample
            rows, which is slower than counting (:mod:`levelhead.auditing.own_metrics`).
        gedi: degree of GeDI, to be reported along ``continuous`` columns as well.
        scale: what ``scores`` are: "probability", "log-odds", "other", which needs a ``threshold``, or "auto":
            probabilities where all lie in 0 to 1, give or take 1e-6; log odds where some are negative and most lie
            outside 0 to 1.
        favourable: the class that is the favourable outcome, such as "approved". The four-fifths rule is about it;
            None: both outcomes' ratios are given, and no verdict. Not with ``sample_weight``.
        cluster: (rows,) what rows that belong together have in common, such as a person's id. Intervals then allow for
            the correlation within clusters (:mod:`levelhead.metrics.clustered`); a rate with fewer than 8 clusters is
            not compared. Not with ``without``, ``continuous``, ``control_features``, ``metrics`` or ``sample_weight``.

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
    rows_given: dict[str, Any] = {
        "y_true": y_true, "y_pred": y_pred, "sensitive_features": sensitive_features, "scores": scores,
        "against": against, "without": without, "continuous": continuous, "sample_weight": sample_weight,
        "control_features": control_features, "cluster": cluster,
    }  # fmt: skip
    rows_given, matched_by_index = aligned(rows_given)
    (
        y_true, y_pred, sensitive_features, scores, against, without, continuous, sample_weight, control_features,
        cluster,
    ) = rows_given.values()  # fmt: skip
    outcomes = {"label": y_true, "prediction": y_pred, "prediction of the other model": _other(against, without)}
    outcome, (positive, favourable), by_position = outcomes_of(outcomes, positive, favourable)
    options = AuditOptions(
        positive, intersect, min_count, level, replicates, seed, missing, reference, LabelMap(label_map),
        positive_name, about_of(about), name_of(y_true), adjust, favourable,
    )  # fmt: skip
    thresholds, scale = check_thresholds(threshold, scores is not None, y_pred is not None), check_scale(scale)
    if metrics is not None:
        check_metrics(metrics)
    _check_gedi(gedi, continuous is not None)
    beside = {
        "metrics=": metrics,
        "without=": without,
        "continuous=": continuous,
        "control_features=": control_features,
    }
    if sample_weight is not None:
        check_without({**beside, "scores=": scores, "against=": against, "favourable=": favourable})
    if scale != AUTO and scores is None:
        raise ConfigError("A scale is one of scores: pass scores= (--score on the command line).")
    if cluster is not None:
        check_cluster("", [], {"sample_weight=": sample_weight, **beside})
        options = replace(options, cluster=name_of(cluster, "cluster"))
    if y_pred is None and scores is None:
        raise ConfigError("There is nothing to audit: pass y_pred, predicted classes, or scores=.")
    label, prediction = outcome["label"], outcome.get("prediction")
    rows = len(label[0])
    if prediction is not None and rows != len(prediction[0]):
        raise DataError(f"{rows} labels and {len(prediction[0])} predictions. Pass one of each for every row.")
    if not rows:
        raise DataError("There are no rows to audit. Pass at least one labelled prediction.")
    columns = columns_of(sensitive_features, rows)
    options.check(len(columns))
    levels = {} if control_features is None else levels_of(control_features, rows)
    check_control(list(levels), list(columns), prediction is not None)
    both = columns | levels
    cuts, titles = cuts_of(bins, list(both)), {name: column_title(name) for name in both}
    for name, cut in cuts.items():
        if cut.quantiles:
            cut.find([both[name]], titles[name])
        both[name] = cut.cut(both[name], titles[name])
    columns = {name: both[name] for name in columns}
    of_cluster = None if cluster is None else outcome_of(cluster, "cluster")
    if of_cluster is not None and len(of_cluster[0]) != rows:
        raise DataError(f"{rows} labels and {len(of_cluster[0])} clusters. Pass one of each for every row.")
    of_levels = {name: titles.pop(name) for name in levels}
    if scores is not None:
        values_of_scores = numbers_of_array(scores, "The score")
        if len(values_of_scores) != rows:
            raise DataError(f"{rows} labels and {len(values_of_scores)} scores. Pass one of each for every row.")
        of_scores = ScoreRows("The label", "The score", "The prediction", titles, intersect)
        of_scores.add(label, values_of_scores, columns, prediction, of_cluster)
        result = _audit_scores(of_scores, thresholds, options, cuts, scale)
        values_of_scores = of_scores.scores
    else:
        assert prediction is not None  # or there was nothing to audit
        tally = Tally("The label", "The prediction", titles, intersect, frozenset(cuts))
        weights = None
        if sample_weight is None:
            tally.add(label, prediction, columns, cluster=of_cluster)
        else:
            weights = Weights("sample_weight", name_of(sample_weight, "sample_weight"))
            values = numbers_of_array(sample_weight, "sample_weight", OF_WEIGHTS)
            if len(values) != rows:
                raise DataError(f"{rows} labels and {len(values)} weights. Pass one of each for every row.")
            _add_weighted(tally, weights, values, label, prediction, columns)
            weights.check()
        result = audit_tally(tally, options, cuts, weights)
    result = replace(result, warnings=[*matched_by_index, *by_position, *result.warnings])
    if levels and prediction is not None:
        within = control_tallies(("The label", "The prediction"), titles, of_levels, intersect, frozenset(cuts))
        for tally in within.values():
            tally.add(label, prediction, {name: both[name] for name in tally.groups})
        result = add_control(result, within, tuple(levels), options, cuts)
    if continuous is not None:
        given = by_name(continuous, "number", "columns of numbers")
        along = NumberRows(list(given))
        numbers = {name: numbers_of_array(one, f"The column {quoted(name)}") for name, one in given.items()}
        for name, values in numbers.items():
            if len(values) != rows:
                raise DataError(f"{rows} labels and {len(values)} values of {quoted(name)}. Pass one for every row.")
        along.add(prediction or _undecided(label[0]), numbers)
        if prediction is None and result.scores is not None:
            along.decide(values_of_scores >= result.scores.thresholds[0], str(result.positive))
        result = _along(result, along, options, gedi)
    if metrics is not None:
        passed = values_of_scores if prediction is None else prediction
        result = _measured_by(metrics, result, label, passed, columns, options, cuts)
    other = outcome.get("prediction of the other model")
    if other is None:
        options.label_map.refuse_unused()
        return result
    if prediction is None:
        raise ConfigError(
            f"{'against' if without is None else 'without'}= compares predicted classes: pass y_pred as well."
        )
    if len(other[0]) != rows:
        raise DataError(f"{rows} labels and {len(other[0])} predictions of the other model. Pass one for every row.")
    new, old = (PairedRows.of(label, one, columns, titles, of_cluster) for one in (prediction, other))
    if without is not None:
        return _compared(result, new, old, options, ("without", "with"), personal=True)
    return _compared(result, new, old, options)


def _other(against: Any, without: Any) -> Any:
    """Return the predictions of the other model, of which there is one at most."""
    if against is not None and without is not None:
        raise ConfigError("against= and without= both name another model: pass one of them.")
    return against if without is None else without


@checked
def audit_file(
    path: Path | str | Source,
    label: str,
    prediction: str | None,
    groups: Sequence[str],
    *,
    score: str | None = None,
    threshold: float | Sequence[float] | None = None,
    against: Path | str | None = None,
    without: str | None = None,
    on: str | None = None,
    continuous: Sequence[str] = (),
    weight: str | None = None,
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
    positive_name: str | None = None,
    about: Mapping[str, str] | None = None,
    adjust: str = BONFERRONI,
    gedi: int | None = None,
    scale: str = AUTO,
    favourable: Hashable = None,
    cluster: str | None = None,
    join: Path | str | None = None,
) -> AuditResult:
    """Audit a file of predictions of any length: batches of rows are counted and forgotten.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file with one prediction a row.
        label: name of the column with the true classes.
        prediction: name of the column with the predicted classes, in the same words; None: those of the score.
        groups: names of the group columns, each audited on its own.
        score: name of a column of scores, as ``scores`` of :func:`audit`.
        threshold: as :func:`audit` takes it.
        against: a file with another model's predictions for the same rows, in columns of the same names.
        without: name of a column with the predicted classes of a model that does not use the groups, as ``without`` of
            :func:`audit`.
        on: name of a column of ids, by which the rows of the two files are matched, or ``left=right`` where the other
            file has another name for it. None: by their order; ``join`` needs it.
        continuous: names of columns of numbers.
        weight: name of a column of weights, as ``sample_weight`` of :func:`audit`.
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
        positive_name: see there.
        about: see there.
        adjust: see there.
        gedi: see there.
        scale: see there.
        favourable: see there.
        cluster: name of the column that rows which belong together have in common, as ``cluster`` of :func:`audit`.
        join: a file with groups for ids, one row an id; rows of ``path`` without one have no group.

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
    names, source = list(dict.fromkeys(groups)), source_of(path)
    other = None if against is None else source_of(against)
    left, right = (None, None) if on is None else both_ids(on, source.file_of("").header())
    matched_ids = []
    if join is not None:
        if left is None or against is not None:
            raise ConfigError("join= needs on=, the column of ids in both files, and goes without against=.")
        every = [label, prediction, score, *names, *continuous, weight, *control, without, cluster]
        joined = Joined(source.file_of("").path, Path(join), left, [name for name in every if name], right)
        source, matched_ids = joined, [joined.said]
    options = AuditOptions(
        positive, intersect, min_count, level, replicates, seed, missing, reference, LabelMap(label_map),
        positive_name, about_of(about), label, adjust, favourable, cluster,
    )  # fmt: skip
    options.check(len(names))
    thresholds, scale = check_thresholds(threshold, score is not None, prediction is not None), check_scale(scale)
    if scale != AUTO and score is None:
        raise ConfigError("A scale is one of scores: name their column with --score (scores= in Python).")
    _check_gedi(gedi, bool(continuous))
    if weight is not None:
        check_without(
            {
                "a score": score,
                "another model to compare with": against if without is None else without,
                "a continuous column": tuple(continuous),
                "a control column": tuple(control),
                "a favourable class": favourable,
            }
        )
    if cluster is not None:
        check_cluster(
            cluster,
            [label, *(one for one in (prediction, score) if one is not None), *names],
            {
                "a column of weights": weight,
                "another model to compare with": without,
                "a continuous column": tuple(continuous),
                "a control column": tuple(control),
            },
        )
    if prediction is None and score is None:
        raise ConfigError("There is nothing to audit: name the column of predicted classes, or that of scores.")
    if without is not None and (
        against is not None or prediction is None or score is not None or without == prediction
    ):
        raise ConfigError(
            "A model without the groups is compared with predicted classes of one with them, in another column of the "
            "same file: leave out scores and other files."
        )
    if on is not None and against is None and join is None:
        raise ConfigError("Ids match the rows of two files: name the other file with --against, or leave out --on.")
    outcomes = [name for name in (label, prediction) if name is not None]
    of_score = [one for one in (score, weight) if one is not None]  # columns of numbers; never both
    # A column may be cut into groups and looked at as a number, too.
    numbers = [*of_score, *(name for name in dict.fromkeys(continuous) if name not in (*names, *of_score))]
    levels = list(dict.fromkeys(control))
    check_control(levels, names, prediction is not None)
    titles = {name: source.title(name) for name in (*outcomes, *numbers, *names, *levels)}
    of_groups = {name: titles[name] for name in names}
    decided = titles[outcomes[1] if prediction is not None else of_score[0]]
    along = NumberRows(list(dict.fromkeys(continuous)))
    cuts = cuts_of(bins, [*names, *levels])
    for name, cut in cuts.items():
        if cut.quantiles:  # they need all values of the column before the first row is counted
            cut.find((batch[name] for batch in read_batches(source, [], [name], cuts)), titles[name])

    def cut_column(name: str, column: Column) -> Column:
        return cuts[name].cut(column, titles[name]) if name in cuts else column

    tally = Tally(titles[label], decided, of_groups, intersect, frozenset(cuts))
    weights = None if weight is None else Weights(titles[weight], weight)
    of_scores = None if score is None else ScoreRows(titles[label], titles[score], decided, of_groups, intersect)
    of_levels = {name: titles[name] for name in levels}
    within = control_tallies((titles[label], decided), of_groups, of_levels, intersect, frozenset(cuts))
    needed = outcomes if cluster is None else [*outcomes, cluster]
    numeric = [*cuts, *along.names]
    for batch, values in read_batches_with_numbers(source, needed, [*names, *levels], numbers, numeric):
        columns = {name: cut_column(name, batch[name]) for name in names}
        predicted = None if prediction is None else batch[prediction]
        of_cluster = None if cluster is None else batch[cluster]
        if of_scores is not None and score is not None:
            of_scores.add(batch[label], values[score], columns, predicted, of_cluster)
        elif predicted is not None and weights is not None:
            _add_weighted(tally, weights, values[weights.name], batch[label], predicted, columns)
        elif predicted is not None:
            tally.add(batch[label], predicted, columns, cluster=of_cluster)
        if within and predicted is not None:
            both = columns | {name: cut_column(name, batch[name]) for name in levels}
            for one in within.values():
                one.add(batch[label], predicted, {name: both[name] for name in one.groups})
        if along.names:
            shared = {name: _as_numbers(batch[name], titles[name]) for name in along.names if name in names}
            along.add(predicted or _undecided(batch[label][0]), values | shared)
    if weights is not None:
        weights.check()
    result = (
        audit_tally(tally, options, cuts, weights)
        if of_scores is None
        else _audit_scores(of_scores, thresholds, options, cuts, scale)
    )
    named = [*titles, *([left] if left else [])]
    reading = [*matched_ids, *source.taken(named)]
    if other is not None:
        reading += other.taken([*titles, *([right or left] if left else [])])
    if reading:
        result = replace(result, more={**result.more, "reading": list(dict.fromkeys(reading))})
    if cluster is None:
        result = replace(result, warnings=[*result.warnings, *repeating_id(source, named)])
    if within:
        result = add_control(result, within, tuple(levels), options, cuts)
    if along.names:
        if prediction is None and of_scores is not None and result.scores is not None:
            along.decide(of_scores.scores >= result.scores.thresholds[0], str(result.positive))
        result = _along(result, along, options, gedi)
    if without is not None and prediction is not None:
        new, old = (read_rows(source, label, one, names, None, cut_column, cuts) for one in (prediction, without))
        return _compared(result, new, old, options, names=(without, prediction), personal=True)
    if other is None:
        options.label_map.refuse_unused()
        return result
    decide, column = None, prediction or score
    if prediction is None and score is not None and of_scores is not None and result.scores is not None:
        _check_same_scale(other, score, result.scores.scale, scale)
        decide = of_scores.decider(result.scores, options.positive, options.label_map)
    assert column is not None  # or there was nothing to audit
    new, old = (
        read_rows(one, label, column, names, ids, cut_column, cuts, decide, own)
        for one, ids, own in ((source, left, cluster), (other, right or left, None))
    )
    return _compared(result, new, old, options, names=(other.name, source.name))


def _check_same_scale(other: Source, score: str, own: Scale, wanted: str) -> None:
    """Raise :class:`DataError` where another model's scores are of another scale: one threshold is not for both."""
    found = read_scores(other, None, score, []).settle(wanted)
    if found.name != own.name:
        raise DataError(
            f"{other.title(score)} holds scores of the scale {found.name}, the audited file those of {own.name}. Say "
            f"what both are: {ASK}."
        )


def _audit_scores(
    rows: ScoreRows, thresholds: tuple[float, ...], options: AuditOptions, cuts: Mapping[str, Cuts], wanted: str
) -> AuditResult:
    """Audit the decisions at the first threshold, or the given predictions, and what scores show beside them."""
    scale = rows.settle(wanted)
    class_of = rows.merge(options.label_map)
    positive, other = rows.positive(options.positive, class_of)
    thresholds = thresholds or (scale.default_threshold(),)
    tally = rows.tally(thresholds[0], class_of[positive], class_of[other], frozenset(cuts))
    result = audit_tally(tally, replace(options, positive=positive), cuts)
    groups = {key: list(part.groups) for key, part in result.by_attribute.items()}
    scores = audit_scores(
        rows,
        positive,
        thresholds,
        scale=scale,
        groups={key: [*members] for key, members in groups.items()},
        left_out=options.leaves_out,
        min_count=options.min_count,
        level=options.level,
        replicates=options.replicates,
        seed=options.seed,
        reference=result.more.get("reference"),
    )
    return replace(result, scores=scores, warnings=[*result.warnings, *scores.warnings])


def _as_numbers(column: Column, title: str) -> NDArray[np.float64]:
    """Return the numbers of a column of groups."""
    codes, values = column
    return numbers_of_column(values, title)[codes]


def _undecided(values: NDArray[Any]) -> Column:
    """Predictions that are not known before all scores are."""
    return np.zeros(len(values), np.int64), [None]


def _check_gedi(gedi: int | None, along: bool) -> None:
    """Raise an error, before anything is counted, where a degree cannot be used."""
    if gedi is None:
        return
    check_degree(gedi)
    if not along:
        raise ConfigError("GeDI is about a column of numbers: name it, with --continuous (continuous= in Python).")


def _measured_by(
    metrics: Mapping[str, Metric],
    result: AuditResult,
    label: Column,
    prediction: Column | NDArray[np.float64],
    columns: Mapping[str, Column],
    options: AuditOptions,
    cuts: Mapping[str, Cuts],
) -> AuditResult:
    """Add metrics of the user's own, on labels and predictions as the user gave them."""
    mapped: list[Mapping[Hashable, Hashable]] = [{}, {}]
    if options.label_map and not isinstance(prediction, np.ndarray):
        mapped = [*options.label_map.apply(dict.fromkeys(label[1], 1), dict.fromkeys(prediction[1], 1))]
    rows = [
        one if isinstance(one, np.ndarray) else np.array([words.get(value, value) for value in one[1]])[one[0]]
        for one, words in zip((label, prediction), mapped, strict=True)
    ]
    found: dict[Key, dict[str, OwnMetric]] = {}
    warnings = list(result.warnings)
    tally = Tally("", "", dict.fromkeys(columns, ""), options.intersect, frozenset(columns))
    for key, (codes, values) in tally.group_columns(columns).items():
        at, groups = ordered_groups(values, key, cuts)
        found[key] = own_metrics(
            metrics,
            rows[0],
            rows[1],
            at[codes],
            groups,
            compared=[
                figures.n >= options.min_count and not options.leaves_out(group)
                for group, figures in result.by_attribute[key].groups.items()
            ],
            level=options.level,
            replicates=options.replicates,
            seed=options.seed,
            console=Terminal(stderr=True),
        )
        for name, own in found[key].items():
            for group, figure in own.groups.items():
                of_group = f"{printable(name)} of group {quoted(group_name(group))}"
                if not figure.defined:
                    warnings.append(f"{of_group} is undefined: {figure.reason}.")
                elif np.isnan(figure.low):
                    warnings.append(
                        f"{of_group} is the same in every resampling, which then says nothing of how sure it is: it "
                        "has no interval and is not compared."
                    )
    return replace(result, own_metrics=found, warnings=warnings)


def _along(result: AuditResult, rows: NumberRows, options: AuditOptions, gedi: int | None) -> AuditResult:
    """Add how decisions change along columns of numbers."""
    if result.positive is None:
        raise ConfigError("Gaps along numbers are about one class: name it, with --positive (positive= in Python).")
    texts = {
        result.positive,
        *(text for text, target in options.label_map.targets.items() if target == result.positive),
    }
    return replace(result, continuous=rows.measure(texts, level=options.level, seed=options.seed, gedi=gedi))


def _compared(
    result: AuditResult,
    new: PairedRows,
    old: PairedRows,
    options: AuditOptions,
    names: tuple[str, str] = ("the other model", "this model"),
    *,
    personal: bool = False,
) -> AuditResult:
    """Add the changes from the old to the new model."""
    new, old, warnings = matched(new, old)
    compared = compare_rows(
        new,
        old,
        positive=result.positive,
        groups={key: list(part.groups) for key, part in result.by_attribute.items()},
        left_out=options.leaves_out,
        label_map=options.label_map,
        min_count=options.min_count,
        level=options.level,
        replicates=options.replicates,
        seed=options.seed,
        names=names,
        warnings=warnings,
        personal=personal,
    )
    options.label_map.refuse_unused()
    said = [one for one in compared.warnings if one not in result.warnings]
    return replace(result, against=compared, warnings=[*result.warnings, *said])


def _add_weighted(
    tally: Tally,
    weights: Weights,
    values: NDArray[np.float64],
    label: Column,
    prediction: Column,
    columns: Mapping[str, Column],
) -> None:
    """Count the rows of a batch that have a weight."""
    used = weights.use(values, label, prediction, columns)
    if used is not None:
        tally.add(*used)
