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
from levelhead.auditing.exclusions import EXPLANATION
from levelhead.auditing.explain_column import ExplainedColumn, check
from levelhead.auditing.explanation import Explanation
from levelhead.auditing.options import AuditOptions, Roles
from levelhead.auditing.scale import AUTO
from levelhead.auditing.scored_table import ScoredTable, open_scored
from levelhead.report.text import clustered_sentence, counted
from levelhead.tables.source import Source
from levelhead.tables.vocabulary import alike, in_order
from levelhead.types import ConfigError, DataError, printable

FloatArray = NDArray[np.float64]

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
    asked = locals()
    options = AuditOptions.of(asked)
    check(options)
    source, roles = open_scored(asked, EXPLANATION)
    found = _explain(source, roles, replace(options, cluster=roles.cluster))
    if roles.cluster is None:
        hints = repeating_id(source, roles.columns, "add --cluster {name}")
        found = replace(found, warnings=[*found.warnings, *hints])
    return replace(found, reading=tuple(source.taken(roles.columns)))


def _explain(source: Source, roles: Roles, options: AuditOptions) -> Explanation:
    table = ScoredTable.read(source, roles, options, several=True)
    # Sums of floats are then those of any order of the rows.
    table = table.only(np.argsort(table.score, kind="stable"))
    title, score, positive = source.title(str(roles.score)), table.score, str(table.classes[table.positive])
    log_odds, warnings = _log_odds(table, title)
    threshold, decided = _decided(table, title, options)
    cut = float(special.logit(np.clip(threshold, SMALLEST, 1 - SMALLEST))) if table.scale.probabilities else threshold
    warnings = [*table.said, *warnings]
    if table.cluster is not None:
        number = len(np.unique(table.cluster))
        if number == len(score):
            warnings.append(alone_sentence(str(options.cluster)))
            table = replace(table, cluster=None)
        else:
            warnings.append(f"{clustered_sentence(len(score), number, str(options.cluster))}.")
    by_attribute = {}
    assert table.label is not None
    for name, (codes, values) in table.groups.items():
        there = np.array([value is not None for value in values])[codes]
        if absent := int((~there).sum()):
            verb = "is" if absent == 1 else "are"
            warnings.append(f"{printable(name)}: {counted(absent, 'row')} without a group {verb} not compared.")
        if not there.any():
            raise DataError(f"{source.title(name)}: every value is missing. Leave the column out.")
        ordered = in_order(value for value in values if value is not None)
        warnings += alike(name, "groups", ordered)
        place = {value: at for at, value in enumerate(ordered)}
        column = ExplainedColumn(
            name,
            list(map(str, ordered)),
            np.array([place.get(value, 0) for value in values])[codes][there],
            table.label[there],
            score[there],
            log_odds[there],
            decided[there],
            cut,
            positive,
            options,
            None if table.cluster is None else table.cluster[there],
        )
        by_attribute[name] = column.explain()
        warnings += column.warnings
    return Explanation(
        by_attribute, warnings, positive, float(threshold), table.scale.name, options.level, options.replicates
    )


def _decided(table: ScoredTable, title: str, options: AuditOptions) -> tuple[float, NDArray[np.bool_]]:
    """Return the threshold, and which scores reach it, (rows,); some do, and some do not."""
    threshold = options.thresholds[0] if options.thresholds else table.scale.default_threshold()
    if table.scale.probabilities and not 0 < threshold < 1:
        raise ConfigError(f"threshold={threshold:g} is not between 0 and 1, but the scores are probabilities.")
    decided = table.score >= threshold
    if decided.all() or not decided.any():
        raise DataError(
            f"{title}: {'every' if decided.all() else 'no'} score reaches the threshold {threshold:g}, so all rows "
            f"get one decision. Scores range from {table.score[0]:g} to {table.score[-1]:g}; pass another threshold."
        )
    return threshold, decided


def _log_odds(table: ScoredTable, title: str) -> tuple[FloatArray, list[str]]:
    """Return the log odds of scores, (rows,), and warnings."""
    score, warnings = table.score, table.scale.warnings()
    if score[0] == score[-1]:
        raise DataError(f"{title}: every score is {score[0]:g}. There is nothing to explain.")
    if not table.scale.probabilities:
        return score, warnings
    if near := int(((score < SMALLEST) | (score > 1 - SMALLEST)).sum()):
        warnings.append(
            f"{near:,} of {len(score):,} probabilities lie within {SMALLEST:g} of 0 or 1 and were clipped, because "
            "their log odds are infinite. Pass log odds if you have them."
        )
    if near > len(score) / 10:
        warnings.append("Over a tenth of the probabilities are 0 or 1, which biases the share that the score uses.")
    return special.logit(np.clip(score, SMALLEST, 1 - SMALLEST)), warnings
