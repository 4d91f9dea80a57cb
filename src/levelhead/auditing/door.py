"""The doors of an audit: of columns in memory, and of tables. What is audited follows from what is there.

An audit is a finding about these rows and these groups. It is not a verdict: a small measured gap does not make a
model just or lawful, and an interval that holds 0 means that these rows cannot tell, not that there is no gap.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import pandas as pd
from numpy.typing import ArrayLike

from levelhead.arrays import checked, option
from levelhead.auditing.clusters import repeating_id
from levelhead.auditing.decisions import decisions_of
from levelhead.auditing.exclusions import ARRAYS, KNOWN, UNRECORDED, Refused, clashing, given_of, literal, refuse
from levelhead.auditing.finding import Reference
from levelhead.auditing.of_run import OUTCOMES, OwnPredictions, joined, names_run, paths_of, table_of
from levelhead.auditing.options import AuditOptions, Metric, Other, Roles, refuse_twice
from levelhead.auditing.pairs import pairs_of
from levelhead.auditing.ranking import OF_RANKS, ranking_of
from levelhead.auditing.run import check, run
from levelhead.auditing.unknown.privacy import Response
from levelhead.auditing.weights import OF_WEIGHTS
from levelhead.tables.bins import Bins
from levelhead.tables.columns import OF_NUMBERS, OF_SCORES, by_name, finite, name_of, outcome_of, outcomes_of
from levelhead.tables.files import by_file, source_of
from levelhead.tables.join import both_ids
from levelhead.tables.source import COUNT, Arrays, Source
from levelhead.tables.tally import VALUES
from levelhead.types import ConfigError, check_seed, quoted

TITLES = {"label": "The label", "prediction": "The prediction", "against": "The prediction of the other model",
          "score": "The score", "weight": "sample_weight", "cluster": "The cluster", "count": COUNT,
          "time": "The time"}  # fmt: skip
"""What errors call columns in memory, by their roles."""
PLAIN = {"prediction": "decision", "weight": "sample_weight", "count": "counts"}
"""What sentences call a column without a name, where that is not its role."""


class Options(TypedDict, total=False):
    """The options that :func:`audit` and :func:`audit_table` share.

    Attributes:
        threshold: rows with at least this score are decided positive. Of several, the tables of groups are about the
            first. None: 0.5 for probabilities, 0 for log odds. Not beside predictions, which decide the rows.
        scale: what scores are: "probability", "log-odds", "other", which needs a ``threshold``, or "auto":
            probabilities where all lie in 0 to 1, give or take 1e-6; log odds where some are negative and most lie
            outside 0 to 1.
        top: audits the ranking by the score, the highest first: how many places are the top, ``100``, or a share of the
            rows, ``"10%"``; ``"lowest:10%"`` where the lowest score is the first place. Rows of one score share
            their places.
        numbers: label and predictions are numbers, such as prices: how errors differ between groups.
        positive: the class that selection, true positive and false positive rates are about. None: the second of
            two classes in sorted order; with three or more, every class against the rest.
        favourable: the class that is the favourable outcome, such as "approved". The four-fifths rule is about it;
            None: both outcomes' ratios are given, and no verdict. An audit of decisions needs it.
        intersect: also audit the crossing of all columns, under the tuple of their names.
        min_count: smallest denominator of a rate to be compared: rows of the group for demographic parity, its
            positives for true positive rates, its negatives for false positive rates. A group with fewer is named in
            a warning and left out of the figures that compare this rate.
        bins: cuts columns of numbers into ranges, which are then the groups: for each column its cut points, or
            ``"quantiles:4"``; ``"values"`` says that the numbers are codes of groups. Or ``column=...`` texts.
        missing: "leave out" shows rows without a group beside the others, in the group "(missing)", and leaves them
            out of the gaps; "group" makes them a group like any other.
        reference: the group that the others are compared with, as ``Male``, ``sex=Male`` or ``{"sex": "Male"}``;
            several are a list, or a dict. Only the pairs with it are named; the largest gaps stay those over all pairs.
        label_map: which class of the predictions each label means, as ``{">50K": 1, "<=50K": 0}`` or
            ``">50K=1,<=50K=0"``. A name that is both a label and a prediction, and means two classes, is written
            ``label=1`` or ``prediction=1`` in ``positive`` and ``favourable``.
        ignore_label: the label of rows that have none, such as -1: they are left out and counted in a note.
        costs: what a ``false_positive`` and a ``false_negative`` cost, in any unit, 0 or more: the expected cost a row
            of each group is in ``result.findings["costs"]``. Or a text, ``"1:5"``.
        parts: questions of your own, by the names that their classes are registered under, or as ``module:Class``
            (:class:`~levelhead.auditing.part.Part`): what they find is in ``result.parts``.
        level: confidence level of the intervals.
        replicates: bootstrap replicates.
        seed: of the bootstrap.
    """

    threshold: float | Sequence[float] | None
    scale: str
    top: int | str | None
    numbers: bool
    positive: Hashable
    favourable: Hashable
    intersect: bool
    min_count: int
    bins: Bins | Sequence[str] | str | None
    missing: str
    reference: Reference
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None
    ignore_label: Hashable
    costs: Mapping[str, Any] | str | None
    parts: Sequence[str]
    level: float
    replicates: int
    seed: int


@checked
def audit(
    y_true: ArrayLike | None,
    y_pred: ArrayLike | None = None,
    *more: Any,
    sensitive_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike] | None = None,
    scores: ArrayLike | None = None,
    against: ArrayLike | None = None,
    along: Mapping[str, ArrayLike] | pd.DataFrame | ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    control_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike] | None = None,
    cluster: ArrayLike | None = None,
    time: ArrayLike | None = None,
    counts: ArrayLike | None = None,
    metrics: Mapping[str, Metric] | None = None,
    **options: Unpack[Options],
) -> Any:
    """Measure the gaps between groups in columns that are in memory, with intervals.

    Args:
        y_true: (rows,) true classes, any hashables, at most 200; or true numbers with ``numbers=True``. None: nobody's
            outcome is known, and ``y_pred`` are decisions, or ``scores`` rank the rows.
        y_pred: (rows,) predicted classes out of the same vocabulary. Values are compared exactly: numbers with numbers,
            texts with texts. None: those of ``scores`` at the first ``threshold``.
        more: nothing; groups are passed by their name.
        sensitive_features: (rows,) group of each row, or a frame or dict of such columns, each audited on its own.
            At most 1,000 groups.
        scores: (rows,) probability, log odds or any other score of the positive class, of two: their areas under the
            ROC curve, calibration and gaps at every threshold are in ``result.scores``.
        against: (rows,) predictions of another model for the same rows, in the same order: how each figure
            differs from that model's, and which groups gained and lost, are in ``result.against``.
        along: columns of numbers, such as ages, (rows,) each: how decisions or errors change along them, without
            cutting them into groups, is in ``result.continuous``. One column goes by its name, or as ``number``.
        sample_weight: (rows,) how many rows each row represents, 0 or more; a row with 0 is left out. Rates are
            weighted, and intervals are based on their effective sample size (:mod:`levelhead.metrics.weighted`).
            ``min_count`` counts real rows.
        control_features: (rows,) or a frame or dict of such columns, which are crossed: gaps within their levels, and
            the averages over levels, are in ``result.more["control"]`` (:mod:`levelhead.auditing.control`).
        cluster: (rows,) what rows that belong together have in common, such as a person's id. Intervals then allow for
            the correlation within clusters (:mod:`levelhead.metrics.clustered`); a rate with fewer than 8 clusters is
            not compared.
        time: (rows,) the period of each row, such as ``"2024-03"``; dates are counted by month. How differences between
            groups change is in ``result.over_time`` (:mod:`levelhead.auditing.over_time`).
        counts: (rows,) of a frequency table: how many people each row represents, whole numbers of 0 or more. Figures
            are those of this many rows.
        metrics: metrics of your own by name, each called as ``f(y_true, y_pred)`` on the rows of a group, or as
            ``f(y_true, scores)`` where only scores are passed; in ``result.own_metrics``. Their intervals resample
            rows, which is slower than counting (:mod:`levelhead.auditing.own_metrics`).
        options: those of :class:`Options`.

    Returns:
        an :class:`~levelhead.auditing.result.AuditResult`; of decisions a
        :class:`~levelhead.auditing.decisions.DecisionAudit`, of a ranking a
        :class:`~levelhead.auditing.ranking.RankingAudit`, of numbers a
        :class:`~levelhead.auditing.regression.RegressionAudit`. What cannot be computed is NaN with a reason.

    Raises:
        DataError: no rows, unequal lengths, missing labels or predictions; predictions that share no value with the
            labels, would match one only if it were written differently, or are scores; more classes or groups than
            can be compared; a group column of more than 20 numbers without ``bins``; two sensitive columns of one
            name; or scores that lie mostly in 0 to 1 and partly outside, without ``scale``.
        ConfigError: options that do not go together (:mod:`levelhead.auditing.exclusions`) or are out of range, or
            ``positive`` is not a class.

    Examples:
        >>> import levelhead as lh
        >>> labels, predictions, groups = [1, 0] * 50, [1, 0, 1, 1] * 25, ["a", "a", "b", "b"] * 25
        >>> result = lh.audit(labels, predictions, sensitive_features=groups)
        >>> print(result.metrics["accuracy"])
        75.00 [65.61, 82.46]
        >>> decided = lh.audit(None, predictions, sensitive_features=groups, favourable=1)
        >>> round(decided.by_attribute["group"].demographic_parity.value, 2)
        0.5
    """
    if more or sensitive_features is None or "groups" in options:
        raise ConfigError(
            "Pass the groups as sensitive_features=: lh.audit(y_true, y_pred, sensitive_features=groups). Columns of "
            "a table go to lh.audit_table(table, groups=[...])."
        )
    chosen = _taken("audit", options)
    columns = {
        "label": y_true, "prediction": y_pred, "score": scores, "against": against, "along": along,
        "weight": sample_weight, "control": control_features, "cluster": cluster, "time": time, "count": counts,
    }  # fmt: skip
    there = {name: values is not None for name, values in columns.items()}
    refuse({**chosen, **there, "metrics": metrics, "data": True, "groups": True}, ARRAYS)
    if against is not None and y_pred is None:
        raise ConfigError("against= compares predicted classes: pass y_pred as well.")
    source, roles = _in_memory(columns, sensitive_features, chosen)
    other = None if against is None else Other(("the other model", source.name))
    return _measured(source, roles, AuditOptions.of(chosen, other, metrics))


def _in_memory(columns: Mapping[str, Any], groups: Any, chosen: dict[str, Any]) -> tuple[Arrays, Roles]:
    """Return a table of columns in memory by their roles, and which column is what.

    Classes that ``chosen`` names become those of columns of class labels.
    """
    of_numbers = bool(chosen.get("numbers"))
    at = {role: title if columns[role] is not None else None for role, title in TITLES.items()}
    answers = {title: columns[role] for role in ("label", "prediction", "against") if (title := at[role])}
    others = {what: outcome_of(columns[what], what) for what in ("cluster", "time") if at[what]}
    called = {title: name_of(columns[role], PLAIN.get(role, role)) for role, title in TITLES.items()}
    source = Arrays(called | {TITLES["against"]: "the other model"})
    if answers and not of_numbers:
        known = {title.removeprefix("The "): values for title, values in answers.items()}
        wanted = chosen.get("positive"), chosen.get("favourable")
        coded, (chosen["positive"], chosen["favourable"]) = outcomes_of(known, *wanted)
        others = coded | others
    elif answers:
        for title, values in answers.items():
            noun, of, rest = title.removeprefix("The ").partition(" of ")
            finite(source.add_numbers(title, values, title, f"{noun}s{of}{rest}"), title, OF_NUMBERS)
    source.add_outcomes(others)
    if title := at["score"]:
        advice = OF_SCORES if chosen.get("top") is None else OF_RANKS
        source.add_numbers(title, columns["score"], title, "scores", advice)
    of_groups = source.add_words(groups)
    levels: tuple[str, ...] = ()
    if columns["control"] is not None:
        levels = source.add_words(columns["control"], "control", "control columns")
    if title := at["weight"]:
        source.add_numbers(title, columns["weight"], title, "weights", OF_WEIGHTS)
    source.add_counts(columns["count"])
    along = {} if columns["along"] is None else by_name(columns["along"], "number", "columns of numbers")
    for name, values in along.items():
        title = f"The column {quoted(name)}"
        numbers = source.add_numbers(name, values, title, f"values of {quoted(name)}")
        if of_numbers:
            finite(numbers, title, OF_NUMBERS)
    return source, Roles(
        at["label"], at["prediction"], of_groups, at["score"], at["weight"], at["cluster"], at["against"], levels,
        tuple(along), None, at["count"], at["time"], of_numbers,
    )  # fmt: skip


@checked
def audit_table(
    data: Any = None,
    *,
    groups: Sequence[str] = (),
    label: str | None = None,
    prediction: str | None = None,
    score: str | None = None,
    against: Any = None,
    on: str | None = None,
    join: Any = None,
    along: Sequence[str] = (),
    weight: str | None = None,
    count: str | None = None,
    cluster: str | None = None,
    control: Sequence[str] = (),
    time: str | None = None,
    pairs: str | None = None,
    labelled_group: str | None = None,
    proxy: Sequence[str] = (),
    proxy_probabilities: Mapping[str, str] | Sequence[str] | str = (),
    shares: Mapping[str, float] | Sequence[str] | str | None = None,
    randomized_response: Response | str | None = None,
    **options: Unpack[Options],
) -> Any:
    """Measure the gaps between groups in a table of any length; batches of a file are counted and forgotten.

    What is audited follows from the columns: without ``label``, decisions, of which ``favourable`` is the good one;
    with ``pairs``, matched pairs; with ``top``, a ranking by ``score``; with ``numbers``, predicted numbers; with
    ``labelled_group``, ``proxy``, ``proxy_probabilities``, ``shares`` or ``randomized_response``, groups that are not
    recorded.

    Args:
        data: one prediction a row: a frame of pandas, polars or Arrow; a ``.csv``, ``.tsv``, ``.jsonl`` (each also
            with ``.gz``), ``.parquet`` or ``.xlsx`` file; a list of files, a glob such as ``2024-*.parquet``, or a
            folder of parquet files, whose own folders may name values of a column, ``state=CA``; or an evaluated run's
            folder, which names its columns itself.
        groups: names of the group columns, each audited on its own.
        label: name of the column with the true classes, or numbers.
        prediction: name of the column with the predicted classes, in the same words; None: those of the score.
        score: name of a column of scores, as ``scores`` of :func:`audit`.
        against: a table with another model's predictions for the same rows, in columns of the same names.
        on: name of a column of ids, by which the rows of two tables are matched, or ``left=right`` where the other
            has another name for it. None: by their order; ``join`` needs it.
        join: a table with groups for ids, one row an id; rows of ``data`` without one have no group.
        along: names of columns of numbers, as :func:`audit` takes them.
        weight: name of a column of weights, as ``sample_weight`` of :func:`audit`.
        count: name of the column of a frequency table that says how many people each row represents.
        cluster: name of the column that rows which belong together have in common, as ``cluster`` of :func:`audit`.
        control: names of columns, crossed, as ``control_features`` of :func:`audit`.
        time: name of a column of periods or dates, as ``time`` of :func:`audit`; or ``file``, where each of several
            files is a period and none has a column of this name.
        pairs: name of the column with the id of each matched pair: two rows that differ in their group alone. How often
            they are decided differently, or how far their scores differ, needs no ``label``
            (:mod:`levelhead.auditing.pairs`).
        labelled_group: name of the column with the group where it is known, empty elsewhere.
        proxy: names of the columns with proxies: groups in the same words, or probabilities from 0 to 1.
        proxy_probabilities: by group, the name of the column with the probability that a row is in it, such as those of
            BISG; or ``group=column`` texts. Of one group alone, the others are its complement.
        shares: share of each group, which add to 1, or of one group alone; or ``group=share`` texts.
        randomized_response: how the answers in the one column of ``groups`` were randomised, also as a text:
            ``epsilon=1.39`` or ``flip=0.2``.
        options: those of :class:`Options`.

    Returns:
        what :func:`audit` returns for the same rows; of groups that are not recorded an
        :class:`~levelhead.auditing.unknown.answer.IndirectAudit`, in which a method that declines gives undefined
        figures with ``refused`` and a ``reason``.

    Raises:
        DataError: what :func:`audit` raises, and a file that is missing, unreadable, empty or lacks a column.
        ConfigError: as :func:`audit`.

    Examples:
        >>> import pandas as pd
        >>> import levelhead as lh
        >>> table = pd.DataFrame({"label": [1, 0] * 50, "answer": [1, 0, 1, 1] * 25, "sex": ["f", "f", "m", "m"] * 25})
        >>> table.to_csv("predictions.csv", index=False)
        >>> result = lh.audit_table("predictions.csv", label="label", prediction="answer", groups=["sex"])
        >>> print(result.groups["m"].rates["accuracy"])
        50.00 [36.64, 63.36]
        >>> lh.audit_table(table, prediction="answer", groups=["sex"], favourable=1).overall.value
        0.75
        >>> unknown = lh.audit_table(table, label="label", prediction="answer", shares={"women": 0.5})
        >>> unknown.parts["groups"].method
        'bounds'
    """
    asked = {name: value for name, value in locals().items() if name != "options"} | _taken("audit_table", options)
    if not names_run(data):
        refuse(asked)
    source = table_of(data)
    if isinstance(source, OwnPredictions):
        _fill(source, asked)
        refuse(asked)
    if any(asked[name] for name in KNOWN):
        from levelhead.auditing.unknown.audit import unrecorded  # an audit of recorded groups does not wait for it

        return unrecorded(source, asked)
    roles = Roles(
        asked["label"], asked["prediction"], tuple(dict.fromkeys(asked["groups"])), score, weight, asked["cluster"],
        None, tuple(dict.fromkeys(control)), tuple(dict.fromkeys(along)), None, count, time, bool(asked.get("numbers")),
        pairs,
    )  # fmt: skip
    refuse_twice(roles)
    source, used, other, reading = by_file(source, time), roles.columns, None, list[str]()
    if against is not None:
        theirs, left, right = source_of(against), None, None
        if on is not None:
            left, right = both_ids(on, source.file_of("").header())
            used = [*used, left]
        names = ("the other model", "this model") if not paths_of(theirs) else (theirs.name, source.name)
        other, roles = Other(names, theirs, right or left), replace(roles, id=left)
        shared = [name for name in used if name is not None and name != left]
        reading = theirs.taken([*shared, *filter(None, [right or left])])
    source = joined(source, join, asked["on"], used)
    reading = [*source.taken(used), *reading]
    hints = [] if roles.cluster or count or pairs else repeating_id(source, used, _advice(asked))
    return _measured(source, roles, AuditOptions.of(asked, other), reading, hints)


def _fill(own: OwnPredictions, asked: dict[str, Any]) -> None:
    """Name the columns of a run's own predictions that nobody named, and its classes."""
    there = given_of(asked)
    if "top" not in there:
        asked["label"] = asked["label"] or OUTCOMES[0]
        asked["prediction"] = asked["prediction"] or (None if asked["score"] else OUTCOMES[1])
    if not there & {"groups", "join", UNRECORDED}:
        asked["groups"], bins = own.groups, asked.get("bins") or []
        # A data set says what its groups are, of any number numbers they may be.
        if isinstance(bins, Mapping):
            asked["bins"] = dict.fromkeys(own.groups, VALUES) | dict(bins)
        else:
            texts = [bins] if isinstance(bins, str) else list(bins)
            cut = {one.rpartition("=")[0] for one in texts}
            asked["bins"] = [*texts, *(f"{name}={VALUES}" for name in own.groups if name not in cut)]
    if not there & {"positive", "label_map", "numbers", "top"}:
        asked["positive"] = own.positive
    if "join" in there and "on" not in there:
        asked["on"] = own.ids
    if own.cluster is not None and not there & {"cluster", "weight", UNRECORDED}:
        if clash := clashing("cluster", given_of(asked)):
            raise Refused(
                "The rows of this run come in clusters, such as several of one person, which {given} cannot take into "
                f"account. For intervals that are too narrow, audit {literal(own)} with the same options.",
                clash,
            )
        asked["cluster"] = own.cluster


def _advice(asked: Mapping[str, Any]) -> str:
    """Say what to do about rows of one person."""
    if asked.get("numbers"):
        return "average the errors of each {name} first"
    return "keep one row of each {name}" if clashing("cluster", given_of(asked)) else "add --cluster {name}"


def _taken(function: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in their types; raise :class:`TypeError`, as Python does, for one that is unknown."""
    known = typing.get_type_hints(Options)
    if unknown := [name for name in options if name not in known]:
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")
    read = {name: option(name, value, known[name]) for name, value in options.items()}
    check_seed(read.get("seed", 0))
    return read


def _measured(
    source: Source, roles: Roles, options: AuditOptions, reading: Sequence[str] = (), hints: Sequence[str] = ()
) -> Any:
    """Audit a table: as matched pairs, as a ranking, as numbers, as decisions or as classes."""
    check(roles, options)
    from levelhead.auditing.regression import errors_of

    kinds: dict[Callable[..., Any], bool] = {
        pairs_of: roles.pair is not None,
        ranking_of: options.top is not None,
        errors_of: roles.of_numbers,
        decisions_of: roles.label is None,
    }
    kind = next((one for one, asked in kinds.items() if asked), None)
    if kind is None:
        return run(source, roles, options, reading, hints)
    found = kind(source, roles, options)
    return replace(found, reading=(*reading, *found.reading), warnings=[*found.warnings, *hints])
