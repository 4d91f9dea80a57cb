"""Fit a rule that flips decisions, or apply one, and measure what it changes on held-out rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from levelhead.arrays import checked
from levelhead.auditing.bias_rule import SavedRule, choose_rule, half, measured_gap
from levelhead.auditing.clusters import repeating_id
from levelhead.auditing.door import audit
from levelhead.auditing.exclusions import RULE
from levelhead.auditing.of_run import paths_of, table_of
from levelhead.auditing.options import AS_GROUP, AuditOptions, Roles
from levelhead.auditing.paired_answer import PairedAudit
from levelhead.auditing.postprocess import FittedRule, check_rule
from levelhead.auditing.rule_page import rule_page
from levelhead.auditing.scale import ASK, AUTO, LOG_ODDS, PROBABILITY, SLACK, Scale
from levelhead.auditing.scored_table import ScoredTable, open_scored
from levelhead.metrics.names import METRICS, MISSING_GROUP, Key, group_name
from levelhead.report.headline import Lead, leads_in_json, plainly
from levelhead.report.result import Report
from levelhead.report.sentences import change_lead
from levelhead.report.text import Record, clustered_sentence, number
from levelhead.tables.files import Stored
from levelhead.types import ConfigError, DataError, Estimate, check_seed, in_quotes, listed

FEWEST_SURE = 10
"""Ten log odds or more hardly all lie in 0 to 1."""
NEARLY_ALL = 0.95
"""Share of rows with the same decision, from which a threshold hardly decides anything."""


@dataclass(frozen=True)
class Postprocessed(Report):
    """What :func:`postprocess` and :func:`apply_rule` found.

    ``saved`` is the rule with its classes; ``decisions`` (rows,) are those of it for every row of the table, and
    ``before`` those of the threshold ``plain``, a probability. ``fitted`` (rows,) marks rows that the rule was fitted
    on. ``audit`` compares the decisions on the other rows by ``column``; None without labels. ``clustered`` says that
    clusters of rows are taken together, ``hints`` what else to know of the rows, ``reading`` how a file was read that
    is not a plain csv.
    """

    kind: ClassVar[str] = "rule"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(rule_page)

    saved: SavedRule
    before: NDArray[np.bool_]
    decisions: NDArray[np.bool_]
    fitted: NDArray[np.bool_]
    audit: PairedAudit | None
    column: str
    scale: Scale
    plain: float
    clustered: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()

    @property
    def rule(self) -> FittedRule:
        """The rule itself."""
        return self.saved.rule

    @property
    def measured_on(self) -> int:
        """Rows that gaps are measured on: without labels all, and else those that the rule was not fitted on."""
        return int(_others(self.fitted).sum())

    @property
    def threshold(self) -> float:
        """That before the rule, in the units of the scores."""
        return self._of_scores(self.plain)

    @property
    def one_threshold(self) -> float | None:
        """That for all rows, in the units of the scores; None: the rule reads groups."""
        return None if self.rule.prices else self._of_scores(self.rule.threshold)

    def _of_scores(self, probability: float) -> float:
        return probability if self.scale.probabilities else float(special.logit(probability))

    @property
    def flipped(self) -> int:
        """How many decisions the rule flips."""
        return int((self.before != self.decisions).sum())

    @property
    def warnings(self) -> list[str]:
        """Full sentences."""
        said = self.scale.warnings()
        if self.rule.missed:
            said.append(self.rule.missed_sentence())
        return [*said, *([] if self.audit is None else self.audit.warnings), *self.hints]

    def _alike(self) -> Iterator[str]:
        """Say of one threshold that nearly all rows get one decision."""
        share = float(self.decisions.mean())
        if self.one_threshold is not None and max(share, 1 - share) >= NEARLY_ALL:
            chosen, of_rows = self.saved.classes[share >= 0.5], number(100 * max(share, 1 - share))
            yield f"The threshold decides {of_rows}% of rows {chosen}, which hardly distinguishes them: raise delta."

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        against = {} if self.audit is None else {"against": self.audit.to_dict()}
        return {
            "kind": self.kind,
            **self.saved.to_dict(),
            "positive": self.saved.classes[1],
            "words": {"order": list(self.saved.classes)},
            "scale": self.scale.name,  # of these rows, as threshold and cut-offs are; the rule takes probabilities
            **leads_in_json([*self.leads, *plainly([self.scale.sentence(self.threshold)])]),
            "level": None if self.audit is None else self.audit.level,
            "warnings": self.warnings,
            "threshold": self.threshold,
            **({} if self.one_threshold is None else {"one_threshold": self.one_threshold}),
            "clipped": self.scale.outside,
            "rows_to_measure": self.measured_on,
            "flipped": self.flipped,
            **({"reading": list(self.reading)} if self.reading else {}),
            **against,
            **self.figures_in_json(),
        }

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield every figure before and after the rule, and its change; nothing without labels."""
        return iter(()) if self.audit is None else self.audit.figures()

    @property
    def leads(self) -> list[Lead]:
        """What the rule did to the gap, and what it cost."""
        lines = [f"The rule flips {self.flipped:,} of {len(self.decisions):,} decisions."]
        if self.one_threshold is not None:
            lines.append(
                f"One threshold for all rows, {self.one_threshold:.6g} instead of {self.threshold:g}: no group is read "
                "to decide."
            )
        if MISSING_GROUP in self.rule.groups:
            lines.append(f"The rule treats rows without a group as a group of their own, {in_quotes(MISSING_GROUP)}.")
        if self.fitted.all():
            lines.append("It was fitted on these rows; the gap can be larger on new ones.")
        lines += self.clustered
        if self.audit is None:
            return plainly([*lines, "Its effect on gaps and accuracy needs labels: add --label."])
        changes = self.audit.by_attribute[self.column].metrics
        metric = "equalized_odds_worst" if self.rule.metric == "equalized_odds" else self.rule.metric
        gap, accuracy = changes[metric], changes["accuracy"]
        where = f"On {self.measured_on:,} {'rows that it was fitted on' if self.fitted.all() else 'held-out rows'}"
        cost = change_lead(("Accuracy",), accuracy.old, accuracy.new, accuracy.difference).sentence
        if not gap.difference.defined:
            return plainly([*lines, f"{where}, the gap is undefined: {gap.difference.reason}.", cost])
        larger = metric != self.rule.metric
        what = "larger part of the equalized-odds gap" if larger else f"gap in {METRICS[metric].subject}"
        more: dict[str, Any] = {"unit": " points", "column": group_name(self.column), "quantity": metric}
        lead = change_lead((f"{where}, the {what}",), gap.old, gap.new, gap.difference, **more)
        lost = accuracy.difference.high < 0
        exceeds = f" That exceeds the bound of {number(100 * self.rule.delta)} points." * (gap.new > self.rule.delta)
        rest = f"{lead.rest}{exceeds}{f' {cost}' * lost}"
        return [replace(lead, rest=rest), *plainly([*self._alike(), *lines, *([] if lost else [cost])])]


@checked
def postprocess(
    data: Any,
    *,
    label: str | None = None,
    score: str | None = None,
    groups: Sequence[str] = (),
    fit: Any = None,
    on: str | None = None,
    join: Any = None,
    cluster: str | None = None,
    metric: str = "equalized_odds",
    delta: float = 0.02,
    threshold: float | None = None,
    one_threshold: bool = False,
    scale: str = AUTO,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    ignore_label: Hashable = None,
    positive: Hashable = None,
    min_count: int = 10,
    level: float = 0.95,
    seed: int = 0,
) -> Postprocessed:
    """Fit a rule that flips decisions, and measure what it changes on rows that it was not fitted on. USES GROUPS.

    Args:
        data: one score a row: a frame, a file, several or a run folder, as :func:`levelhead.audit_table` takes them.
        label: name of the column with the true class; None: nothing is measured.
        score: name of the column with the probability or the log odds of the positive class.
        groups: name of the group column that the rule reads, one alone.
        fit: another such table that the rule is fitted on; of a run its validation split. None: a random half of
            ``data``, drawn with the seed, or all of it without labels.
        on: name of the column of ids, with ``join``.
        join: a table with groups for ids, as :func:`levelhead.audit_table` takes it.
        cluster: name of the column that rows which belong together have in common, such as a person's id: no cluster
            is divided between the halves, and intervals are clustered.
        metric: see :func:`levelhead.auditing.postprocess.fit_rule`.
        delta: see there.
        threshold: rows with at least this score are positive before any flip; None: 0.5 for probabilities, 0 for log
            odds.
        one_threshold: choose one threshold for all rows, which reads no group to decide: of those whose gap by the
            labels is within ``delta``, the one whose errors cost least. Needs ``label``.
        scale: "probability", "log-odds" or "auto", as :func:`levelhead.audit` takes it.
        label_map: which class each label means, as :func:`levelhead.audit` takes it.
        ignore_label: the label of rows that have none, as there; they are left out.
        positive: the class that the score is about; None: the second of two in sorted order.
        min_count: smallest denominator of a rate to be compared.
        level: confidence level of the intervals.
        seed: of the halves, and of the chance that equalized odds need.

    Returns:
        the rule, all decisions, and what changed.

    Raises:
        DataError: as :func:`levelhead.audit_table`, and as the fit.
        ConfigError: options that do not go together or are out of range.
    """
    asked = locals()
    check_rule(metric, delta, 0.5)
    options = _options(asked)
    source, roles = open_scored(asked, RULE)
    rows = _rows(source, roles, options)
    if fit is None:
        fit_source = source
        fitted = np.ones(len(rows.score), bool) if rows.label is None else half(seed, len(rows.score), rows.cluster)
        chosen = rows.only(fitted)
    else:
        fit_source = open_scored(asked | {"data": fit}, RULE, "validation")[0]
        fitted, chosen = np.zeros(len(rows.score), bool), _rows(fit_source, roles, options)
        _refuse_unlike(chosen, rows, fit_source, source)
    digest = _sha256(fit_source, ignore_label)
    if fit is not None and digest == _sha256(source, ignore_label) != "":
        raise ConfigError(
            f"{source} and the table to fit on hold the same rows: no others are left to measure the rule on. "
            "Leave --fit out: the rule is fitted on a random half."
        )
    plain = rows.scale.default_threshold() if threshold is None else threshold
    plain = plain if rows.scale.probabilities else float(special.expit(plain))
    check_rule(metric, delta, plain)
    (column,) = roles.groups
    rule = choose_rule(
        chosen.probability, chosen.members(column), chosen.label, metric=metric, delta=delta, threshold=plain,
        seed=seed, one_threshold=one_threshold,
    )  # fmt: skip
    columns = {"score": str(roles.score), "group": column}
    if roles.cluster is not None:
        columns["cluster"] = roles.cluster
    saved = SavedRule(
        rule, _classes(rows), digest, rows.scale.name, columns, len(chosen.score), seed,
        label_map=dict(options.label_map.targets),
    )  # fmt: skip
    if fit is None and chosen.label is not None:  # of the decisions among all rows, by chance too
        decided = rule.decide(rows.probability, rows.members(column), seed=seed)[fitted]
        gap = measured_gap(decided, chosen.label, chosen.members(column), metric)
        saved = replace(saved, rule=replace(rule, fit_gap=gap))
    found = _measured(source, roles, rows, saved, fitted, options, plain=plain)
    return found if fit is None else replace(found, reading=(*found.reading, *fit_source.taken(roles.columns)))


@checked
def apply_rule(
    rule: SavedRule | Path | str,
    data: Any,
    *,
    label: str | None = None,
    score: str | None = None,
    groups: Sequence[str] = (),
    scale: str = AUTO,
) -> Postprocessed:
    """Decide every row of a table with a rule, and measure what it changes where there are labels. USES GROUPS.

    Args:
        rule: what :func:`postprocess` saved, or the file of it.
        data: a score a row, as :func:`postprocess` takes it.
        label: name of the column with the true class, in the words of the rows that the rule was fitted on, or in
            those of its classes; None: nothing is measured.
        score: name of the column with the score; None: that of the rule.
        groups: name of the group column; none: that of the rule.
        scale: as there. "auto": that of the rule; if it is log odds, scores that all lie in 0 to 1 are an error.

    Returns:
        the rule, all decisions, and what changed.

    Raises:
        DataError: as :func:`postprocess`; a group that the rule does not know, or labels of other classes.
        ConfigError: as there; labels of the file that the rule was fitted on.
    """
    given = rule if isinstance(rule, SavedRule) else SavedRule.read(rule)
    known, source = given.columns, table_of(data)
    cluster = known.get("cluster")
    asked: dict[str, Any] = {
        "data": source, "label": label, "score": score or known.get("score"), "delta": given.rule.delta,
        "groups": groups or [one for one in [known.get("group")] if one is not None], "on": None, "join": None,
        "cluster": cluster if cluster in source.file_of("").header() else None,
    }  # fmt: skip
    options = _options(
        {
            "seed": given.chance, "label_map": given.label_map, "positive": given.classes[1],
            "scale": given.scale if scale == AUTO else scale,  # a few new rows say little of their scale
        }
    )  # fmt: skip
    source, roles = open_scored(asked, RULE)
    known_rows = bool(given.file) and given.file == _sha256(source, None)
    if known_rows and label is not None:
        raise ConfigError(
            f"{source} holds the rows that the rule was fitted on, and `levelhead postprocess` measured it on others. "
            "Measure new rows, or leave --label out."
        )
    rows = _rows(source, roles, options)
    inside = rows.scale.low >= -SLACK and rows.scale.high <= 1 + SLACK
    sure = rows.scale.rows >= FEWEST_SURE or str(roles.score) != known.get("score")
    if scale == AUTO and rows.scale.name == LOG_ODDS and inside and sure:
        raise DataError(
            f"{source.title(str(roles.score))}: all scores lie in 0 to 1, as probabilities do, and the rule was fitted "
            f"on log odds. Say what they are: --scale {PROBABILITY}|{LOG_ODDS} (in Python scale=)."
        )
    if label is not None and _classes(rows) != given.classes:
        raise DataError(f"{source} has the labels {_classes(rows)}, and the rule was fitted on {given.classes}.")
    found = _measured(source, roles, rows, given, np.zeros(len(rows.score), bool), options, plain=given.rule.threshold)
    if known_rows:
        hint = "The rule was fitted on rows of this file, so it says little of new ones."
        found = replace(found, hints=(hint, *found.hints))
    return found


def _options(asked: Mapping[str, Any]) -> AuditOptions:
    """Return what is asked of rows with a score."""
    check_seed(asked["seed"])
    return AuditOptions.of(asked)


def _rows(source: Stored, roles: Roles, options: AuditOptions) -> ScoredTable:
    """Read the rows of a table; clusters are numbered in the order of the rows."""
    if len(roles.groups) != 1:
        raise ConfigError(f"A rule reads one group column, not {listed(roles.groups)}. Name one: --group.")
    rows = ScoredTable.read(source, roles, options)
    return rows if rows.cluster is None else replace(rows, cluster=pd.factorize(rows.cluster)[0].astype(np.int64))


def _classes(rows: ScoredTable) -> tuple[str, str]:
    """Return the texts of the negative and of the positive class."""
    return str(rows.classes[1 - rows.positive]), str(rows.classes[rows.positive])


def _refuse_unlike(own: ScoredTable, other: ScoredTable, name: object, others: object) -> None:
    """Raise :class:`DataError` where scores or labels are not like those of another table."""
    if own.scale.name != other.scale.name:
        raise DataError(
            f"{name} holds scores of the scale {own.scale.name}, {others} those of {other.scale.name}. Say what "
            f"both are: {ASK}."
        )
    if own.classes != other.classes:
        raise DataError(f"{name} and {others} have different labels: {_classes(own)} and {_classes(other)}.")


def _measured(
    source: Stored,
    roles: Roles,
    rows: ScoredTable,
    saved: SavedRule,
    fitted: NDArray[np.bool_],
    options: AuditOptions,
    *,
    plain: float,
) -> Postprocessed:
    """Decide all rows, and compare decisions before and after on those that the rule was not fitted on."""
    (column,) = roles.groups
    before = rows.probability >= plain
    decisions = saved.rule.decide(rows.probability, rows.members(column), seed=saved.chance)
    compared, clustered, hints = None, list[str](), list[str]()
    if rows.label is not None:
        others = _others(fitted)
        compared = _compared(rows.only(others), before[others], decisions[others], column, options)
        if roles.cluster is None:
            hints = repeating_id(source, roles.columns, "add --cluster {name}")
        else:
            clustered = _clusters(rows, roles.cluster, halves=bool(fitted.any()))
    return Postprocessed(
        saved, before, decisions, fitted, compared, column, rows.scale, plain, tuple(clustered), tuple(hints),
        (*source.taken(roles.columns), *rows.said),
    )  # fmt: skip


def _others(fitted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows (rows,) are measured: without labels a rule is fitted on all rows, and there are no others."""
    return np.ones(len(fitted), bool) if fitted.all() else ~fitted


def _compared(
    rows: ScoredTable, before: NDArray[np.bool_], after: NDArray[np.bool_], column: str, options: AuditOptions
) -> PairedAudit:
    """Compare decisions before and after the flips on rows with labels."""
    assert rows.label is not None
    classes = np.array(_classes(rows), object)
    label, old, new = (classes[one.astype(int)] for one in (rows.label, before, after))
    found = audit(
        label, new, against=old, sensitive_features={column: rows.members(column)}, cluster=rows.cluster,
        positive=classes[1], label_map={one: one for one in classes}, missing=AS_GROUP, min_count=options.min_count,
        level=options.level, seed=options.seed,
    )  # fmt: skip
    return replace(found.against, old="before", new="after", warnings=tuple(found.warnings))


def _clusters(rows: ScoredTable, column: str, *, halves: bool) -> list[str]:
    """Say how many clusters there are; nothing where every row is one of its own."""
    assert rows.cluster is not None
    number, clusters = len(rows.cluster), int(rows.cluster.max()) + 1
    apart = ", and no cluster is divided between the halves" if halves else ""
    return [] if clusters == number else [f"{clustered_sentence(number, clusters, column)}{apart}."]


def _sha256(source: Stored, ignored: Hashable) -> str:
    """Return the SHA-256 of the files of a table; of a frame an empty text."""
    digest, paths = hashlib.sha256(), paths_of(source)
    for path in paths:
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    if ignored is not None:  # of other rows
        digest.update(str(ignored).encode())
    return digest.hexdigest() if paths else ""
