"""Fit a rule that flips decisions, or apply one, and measure what it changes on held-out rows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.bias_rule import SavedRule, choose_rule, half, measured_gap
from levelhead.auditing.clusters import repeating_id
from levelhead.auditing.figures import left_out_sentences
from levelhead.auditing.options import AS_GROUP, AuditOptions, Roles, refuse_twice
from levelhead.auditing.paired import compare_rows
from levelhead.auditing.paired_answer import PairedAudit
from levelhead.auditing.postprocess import FittedRule, check_rule
from levelhead.auditing.rule_page import rule_page
from levelhead.auditing.scale import ASK, AUTO, LOG_ODDS, OTHER, PROBABILITY, SLACK, Scale, check_scale
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics import Counts
from levelhead.metrics.names import METRICS, MISSING_GROUP
from levelhead.report.result import Report
from levelhead.report.text import Record, clustered_sentence, number
from levelhead.tables.files import File, Stored, source_of
from levelhead.tables.rows import Rows
from levelhead.tables.source import Labelled, Source
from levelhead.tables.vocabulary import LabelMap, in_order
from levelhead.types import ConfigError, DataError, Estimate, check_seed, in_quotes, quoted

FloatArray = NDArray[np.float64]

OUTPUT = ("before", "after", "fitted")
"""Columns written for each decision, after the id."""
FEWEST_SURE = 10
"""Ten log odds or more hardly all lie in 0 to 1."""
RATES = {None: "selection rate", 1: "true positive rate", 0: "false positive rate"}


@dataclass(frozen=True)
class Reversal:
    """A difference of two groups' rates that changed its sign: ``groups[0]`` was ahead before, by ``before`` > 0.

    ``after`` < 0 is the same difference after the flips. ``label`` is the label of the rows: None for all rows.
    """

    label: int | None
    groups: tuple[str, str]
    before: float
    after: float

    def sentence(self) -> str:
        """Say which group is ahead now."""
        first, second = map(in_quotes, self.groups)
        return (
            f"The gap changed its sign: the {RATES[self.label]} of {first} was {number(100 * self.before)} points "
            f"above that of {second}, and is now {number(-100 * self.after)} points below it."
        )


@dataclass(frozen=True)
class Postprocessed(Report):
    """What :func:`postprocess_file` found.

    ``rule`` is the rule, ``saved`` the rule with its classes; ``decisions`` (rows,) those of it for every row of the
    file, and ``before`` those of the threshold. ``fitted`` (rows,) marks rows of the file that the rule was fitted on,
    and ``ids`` (rows,) are the texts of the id column, None without one. ``audit`` compares decisions on the other
    rows, None without labels; ``applied`` says that the rule was fitted before; ``reversals`` are gaps that changed
    their sign there. ``reading`` says how a file was read that is not a plain csv, ``repeated`` that rows
    may be several of one person, and ``clustered`` that clusters of rows are taken together.
    ``plain`` is the threshold before the rule, a probability.
    """

    kind: ClassVar[str] = "rule"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(rule_page)

    rule: FittedRule
    before: NDArray[np.bool_]
    decisions: NDArray[np.bool_]
    audit: PairedAudit | None
    column: str
    fitted_on: int
    measured_on: int
    saved: SavedRule
    fitted: NDArray[np.bool_]
    scale: Scale
    ids: NDArray[Any] | None = None
    applied: bool = False
    reversals: tuple[Reversal, ...] = ()
    reading: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()
    clustered: tuple[str, ...] = ()
    plain: float = 0.5

    @property
    def threshold(self) -> float:
        """That before the rule, in the units of the scores."""
        return self._of_scores(self.plain)

    @property
    def one_threshold(self) -> float | None:
        """That for all rows, in the units of the scores; None: the rule reads groups."""
        return None if self.rule.pairs else self._of_scores(self.rule.threshold)

    def _of_scores(self, probability: float) -> float:
        return probability if self.scale.probabilities else float(special.logit(probability))

    @property
    def warnings(self) -> list[str]:
        """Full sentences."""
        known, said = int(self.fitted.sum()), self.scale.warnings()
        if self.rule.missed:
            said.append(self.rule.missed_sentence())
        if self.applied and self.fitted.all():
            said.append("The rule was fitted on all of these rows: expect larger gaps on new ones.")
        elif self.applied and known:
            said.append(
                f"The rule was fitted on {known:,} of these rows, by the file's SHA-256: measured gaps leave them out."
            )
        return [*said, *([] if self.audit is None else self.audit.warnings), *self.repeated]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        against = {} if self.audit is None else {"against": self.audit.to_dict()}
        return {
            "kind": self.kind,
            **self.saved.to_dict(),
            "scale": self.scale.name,  # of these rows, as threshold and cut-offs are; the rule takes probabilities
            "sentences": [*self.sentences(), self.scale.sentence(self.threshold)],
            "level": None if self.audit is None else self.audit.level,
            "warnings": self.warnings,
            "threshold": self.threshold,
            **({} if self.one_threshold is None else {"one_threshold": self.one_threshold}),
            "clipped": self.scale.outside,
            "rows_to_fit": self.fitted_on,
            "rows_to_measure": self.measured_on,
            "flipped": int((self.before != self.decisions).sum()),
            "reversed": [
                {"rate": RATES[one.label], "groups": list(one.groups), "before": one.before, "after": one.after}
                for one in self.reversals
            ],
            **({"reading": list(self.reading)} if self.reading else {}),
            **against,
        }

    def sentences(self) -> list[str]:
        """Say what the rule did to the gap, and what it cost."""
        flipped = int((self.before != self.decisions).sum())
        lines = [f"The rule flips {flipped:,} of {len(self.decisions):,} decisions."]
        if self.one_threshold is not None:
            lines.append(
                f"One threshold for all rows, {self.one_threshold:.6g} instead of {self.threshold:g}: no group is read "
                "to decide."
            )
        if MISSING_GROUP in self.rule.groups:
            lines.append(f"The rule treats rows without a group as a group of their own, {in_quotes(MISSING_GROUP)}.")
        if self.fitted.all() and not self.applied:
            lines.append("It was fitted on these rows; the gap can be larger on new ones.")
        lines += self.clustered
        if self.audit is None:
            unknown = "Its effect on gaps and accuracy needs labels: add --label."
            return [*lines, *(one.sentence() for one in self.reversals), unknown]
        changes = self.audit.by_attribute[self.column].metrics
        metric = "equalized_odds_worst" if self.rule.metric == "equalized_odds" else self.rule.metric
        gap, accuracy = changes[metric], changes["accuracy"]

        def span(figure: Estimate) -> str:
            if math.isnan(figure.low):
                return figure.reason or "no interval"
            ends = f"interval {number(100 * figure.low, signed=True)} to {number(100 * figure.high, signed=True)}"
            return ends if figure.excludes_zero else f"{ends}; inconclusive"

        where = f"On {self.measured_on:,} rows that the rule was {'' if self.fitted.all() else 'not '}fitted on"
        if gap.difference.defined:
            lines.insert(
                0,
                f"{where}, the measured gap in {METRICS[metric].subject} changed from {number(100 * gap.old)} to "
                f"{number(100 * gap.new)} points: {number(100 * gap.difference.value, signed=True)}, "
                f"{span(gap.difference)}.",
            )
            lines += [one.sentence() for one in self.reversals]
        else:
            lines.append(f"{where}, the gap is undefined: {gap.difference.reason}.")
        lines.append(
            f"Accuracy changed from {number(100 * accuracy.old)}% to {number(100 * accuracy.new)}%: "
            f"{number(100 * accuracy.difference.value, signed=True)} points, {span(accuracy.difference)}."
        )
        if gap.difference.defined and gap.new > self.rule.delta:
            fit, bound = self.rule.fit_gap, f"the bound of {number(100 * self.rule.delta)} points"
            lines.insert(
                1,
                f"That exceeds {bound}, which is on the gap that the scores predict."
                if fit is None
                else f"That exceeds {bound}. On the rows that the rule was fitted on, the gap over all groups is "
                f"{number(100 * fit)} points.",
            )
        return lines


def postprocess_file(
    path: Path | str,
    score: str,
    group: str,
    *,
    label: str | None = None,
    validation: Path | str | None = None,
    rule: SavedRule | Path | str | None = None,
    id_column: str | None = None,
    cluster: str | None = None,
    metric: str = "equalized_odds",
    delta: float = 0.02,
    threshold: float | None = None,
    one_threshold: bool = False,
    scale: str = AUTO,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    ignore_label: Hashable = None,
    positive: str | None = None,
    min_count: int = 10,
    level: float = 0.95,
    seed: int = 0,
) -> Postprocessed:
    """Fit a rule, or take one, and decide every row of a file with it.

    Args:
        path: a file with a score a row.
        score: column with the probability or the log odds of the positive class.
        group: column with the group.
        label: column with the true class; None: nothing is measured.
        validation: file with the same columns to fit on. None: a random half of the rows, and the other half is
            measured.
        rule: a rule that was fitted before, or the file that holds it; ``validation``, ``metric``, ``delta`` and
            ``threshold`` are then the rule's. Labels are needed for measuring alone.
        id_column: column with an id of each row, kept beside the decisions.
        cluster: column that says which rows belong together, such as a person's id: no cluster is divided between the
            halves, and intervals are clustered. A rule that was fitted before has its own, if ``path`` has that column.
        metric: see :func:`levelhead.auditing.postprocess.fit_rule`.
        delta: see there.
        threshold: rows with at least this score are positive before any flip; None: 0.5 for probabilities, 0 for log
            odds.
        one_threshold: choose one threshold for all rows, which reads no group to decide: of those whose gap by the
            labels is within ``delta``, the one whose errors cost least. Needs ``label``.
        scale: "probability", "log-odds" or "auto", as :func:`levelhead.audit` takes it. "auto" takes that of a rule
            that was fitted before; if it is log odds, scores that all lie in 0 to 1 are an error.
        label_map: which class each label means, as :func:`levelhead.audit` takes it. None: what a rule that was fitted
            before remembers of it.
        ignore_label: the label of rows that have none, as :func:`levelhead.audit` takes it. They are not decided, so
            that ``id_column`` is needed.
        positive: the class that the probability is about; None: the second of two in sorted order.
        min_count: smallest denominator of a rate to be compared.
        level: confidence level of the intervals.
        seed: of the halves, and of the chance that equalized odds need; a rule that was fitted before has its own.

    Returns:
        the rule, all decisions, and what changed.

    Raises:
        DataError: as :func:`levelhead.audit_table`, and as the fit.
        ConfigError: as the fit.
    """
    check_seed(seed)
    check_rule(metric, delta, 0.5)
    if (scale := check_scale(scale)) == OTHER:
        raise ConfigError("A rule needs probabilities or log odds; --scale says that these are neither.")
    named = [name for name in (score, group, label, id_column) if name is not None]
    if len(set(named)) < len(named):
        raise ConfigError("Score, group, label and id are different columns.")
    if id_column in OUTPUT:
        raise ConfigError(f"The id column is called {quoted(id_column)}, as a column of decisions. Rename it.")
    unused = {"--positive": positive is not None, "--label-map": bool(label_map)}
    if label is None and any(unused.values()):
        idle = " and ".join(name for name, typed in unused.items() if typed)
        raise ConfigError(
            f"{idle} need{'' if sum(unused.values()) > 1 else 's'} --label: without labels, decisions are 1 at or "
            "above the threshold and 0 below it."
        )
    if one_threshold and label is None:
        raise ConfigError("--one-threshold is chosen by labels: name their column with --label.")
    if rule is not None and validation is not None:
        raise ConfigError("A fitted rule needs no validation file. Remove one of the two.")
    given = None if rule is None else rule if isinstance(rule, SavedRule) else SavedRule.read(rule)
    if given is not None and positive is None:
        positive = f"prediction={given.classes[1]}"
    asked = scale
    if given is not None and scale == AUTO:  # a few new rows say little of their scale
        scale = given.scale
    if given is not None and (own := given.columns.get("cluster")) in File(Path(path)).header():
        cluster = own
    refuse_twice(Roles(label, None, (group,), score, cluster=cluster))
    if ignore_label is not None and (label is None or id_column is None):
        raise ConfigError("--ignore-label leaves rows out of the decisions: add --label, and --id to tell which.")
    table = Labelled(source_of(path), label, ignore_label)
    ids = None if id_column is None else _texts(table, id_column)
    remembered = None if given is None else given.label_map
    mapped = LabelMap(remembered if label_map is None else label_map)
    read = partial(_Read.of, label_map=mapped, scale=scale, ignored=ignore_label)
    rows = read(source_of(path), score, group, label, positive, cluster=cluster)
    if given is not None and asked == AUTO and _like_probabilities(rows.scale, given, score):
        raise DataError(
            f"{source_of(path).title(score)}: all scores lie in 0 to 1, as probabilities do, and the rule was fitted "
            f"on log odds. Say what they are: --scale {PROBABILITY}|{LOG_ODDS} (in Python scale=)."
        )
    digest = _sha256(path, ignore_label)
    if given is not None:
        if label is not None and rows.classes != given.classes:
            raise DataError(f"{path} has the labels {rows.classes}, and the rule was fitted on {given.classes}.")
        fitted = given.fitted_rows(digest, len(rows.score), rows.cluster)
        saved, fitted_on = given, int(fitted.sum())
    else:
        if validation is None:
            fitted = np.ones(len(rows.score), bool) if label is None else half(seed, len(rows.score), rows.cluster)
            fit = rows.only(fitted)
        else:
            fit = read(source_of(validation), score, group, label, positive)
            of_rows, digest = digest, _sha256(validation, ignore_label)
            if of_rows == digest:
                raise ConfigError(
                    f"{path} and the file to fit on hold the same rows: no others are left to measure the rule on. "
                    "Pass one of them: the rule is fitted on a random half."
                )
            fitted = np.zeros(len(rows.score), bool)
            fit.refuse_unlike(rows, validation, path)
        if label is not None:
            mapped.refuse_unused()
        threshold = rows.scale.default_threshold() if threshold is None else threshold
        if not rows.scale.probabilities:
            threshold = float(special.expit(threshold))
        check_rule(metric, delta, threshold)
        chosen = choose_rule(
            fit.score, fit.group, fit.label, metric=metric, delta=delta, threshold=threshold, seed=seed,
            one_threshold=one_threshold,
        )  # fmt: skip
        halved = seed if validation is None and label is not None else None
        columns, fitted_on = {"score": score, "group": group}, len(fit.score)
        if halved is not None and cluster is not None:
            columns["cluster"] = cluster
        saved = SavedRule(
            chosen, fit.classes, digest, halved, rows.scale.name, columns, fitted_on, seed,
            label_map=dict(mapped.targets),
        )  # fmt: skip
    found = saved.rule
    plain = found.threshold if given is not None or threshold is None else threshold
    before = rows.score >= plain
    decisions = found.decide(rows.score, rows.group, seed=saved.chance)
    if given is None and validation is None and rows.label is not None:  # the decisions that are written, by chance too
        gap = measured_gap(decisions[fitted], rows.label[fitted], rows.group[fitted], found.metric)
        found = replace(found, fit_gap=gap)
        saved = replace(saved, rule=found)
    # Without labels a rule is fitted on all rows, and they are all that there is to look at.
    shown = np.ones(len(fitted), bool) if fitted.all() else ~fitted
    measured = rows.only(shown)
    decided = before[shown], decisions[shown]
    same = LabelMap({one: one for one in measured.classes})
    options = AuditOptions(min_count=min_count, level=level, seed=seed, missing=AS_GROUP, label_map=same)
    return Postprocessed(
        found,
        before,
        decisions,
        None if measured.label is None else _compared(measured, *decided, group, options),
        group,
        fitted_on,
        len(measured.score),
        saved,
        fitted,
        rows.scale,
        ids,
        given is not None,
        tuple(reversals(found.metric, *decided, measured.label, measured.group, min_count)),
        tuple(said for one in (path, validation) if one is not None for said in source_of(one).taken(named))
        + tuple(table.ignored.said() + mapped.said),
        ()
        if label is None or cluster is not None
        else tuple(repeating_id(source_of(path), [score, group, label], "add --cluster {name}")),
        ()
        if cluster is None or label is None
        else rows.clustered(cluster, halves=given is None and saved.seed is not None),
        plain,
    )


def _like_probabilities(scale: Scale, rule: SavedRule, score: str) -> bool:
    """Whether scores that a rule would take for log odds all lie in 0 to 1; a few of its own column may."""
    inside = scale.name == LOG_ODDS and scale.low >= -SLACK and scale.high <= 1 + SLACK
    return inside and (score != rule.columns.get("score") or scale.rows >= FEWEST_SURE)


def _compared(
    measured: _Read, before: NDArray[np.bool_], after: NDArray[np.bool_], group: str, options: AuditOptions
) -> PairedAudit:
    """Compare decisions before and after the flips on rows with labels."""
    assert measured.label is not None
    names, members = np.unique(measured.group.astype(str), return_inverse=True)
    groups = in_order(set(names.tolist()))
    decided = {"prediction": after, "other": before, "label": measured.label}
    rows = Rows({})
    rows.add({role: (one.astype(np.int64), list(measured.classes)) for role, one in decided.items()})
    rows.add({f"group {group}": (members.astype(np.int64), names.tolist())})
    if measured.cluster is not None:
        rows.add({"cluster": (measured.cluster, list(range(int(measured.cluster.max()) + 1)))})
    counts = Counts.from_codes(members, measured.label.astype(int), after.astype(int), names.tolist(), measured.classes)
    return compare_rows(
        rows,
        {group: [str(one) for one in groups]},
        options,
        positive=measured.classes[1],
        names=("before", "after"),
        warnings=left_out_sentences(group, counts, 1, options.min_count, missing=options.missing),
    )


def reversals(
    metric: str,
    before: NDArray[np.bool_],
    after: NDArray[np.bool_],
    label: NDArray[np.bool_] | None,
    group: NDArray[Any],
    min_count: int,
) -> list[Reversal]:
    """Return the largest gap of each rate of a metric where the group that was ahead is behind after the flips.

    Groups with fewer than ``min_count`` rows of a rate are left out. All arrays are (rows,).
    """
    labels = {"demographic_parity": (None,), "equal_opportunity": (1,), "equalized_odds": (1, 0)}[metric]
    found = []
    for one in labels:
        if one is not None and label is None:
            continue
        inside = np.ones(len(group), bool) if one is None or label is None else label == bool(one)
        rates = {
            str(name): (float(before[rows].mean()), float(after[rows].mean()))
            for name in np.unique(group.astype(str))
            if (rows := inside & (group == name)).sum() >= max(1, min_count)
        }
        if len(rates) < 2:
            continue
        ahead, behind = (choose(rates, key=lambda name: rates[name][0]) for choose in (max, min))
        old, new = (rates[ahead][at] - rates[behind][at] for at in (0, 1))
        if old > 0 and new < 0:
            found.append(Reversal(one, (ahead, behind), old, new))
    return found


def _sha256(path: Path | str, ignored: Hashable) -> str:
    with Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    if ignored is not None:  # of other rows
        digest.update(str(ignored).encode())
    return digest.hexdigest()


def _texts(source: Source, column: str) -> NDArray[Any]:
    """Return the texts of one column, (rows,) objects."""
    parts = []
    for batch in source.batches(words=[column]):
        codes, values = batch.words[column]
        parts.append(np.array(["" if one is None else str(one) for one in values], object)[codes])
    return np.concatenate(parts)


@dataclass(frozen=True)
class _Read:
    score: FloatArray
    group: NDArray[Any]
    label: NDArray[np.bool_] | None
    classes: tuple[str, str]
    scale: Scale
    cluster: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        source: Stored,
        score: str,
        group: str,
        label: str | None,
        positive: str | None,
        *,
        label_map: LabelMap,
        scale: str,
        ignored: Hashable,
        cluster: str | None = None,
    ) -> _Read:
        """Read a file; its scores become probabilities, and clusters are numbered in the order of the rows."""
        roles = Roles(label, None, (group,), score, cluster=cluster)
        rows = ScoreRows(roles.titles(source))
        for columns in roles.batches(Labelled(source, label, ignored), {}):
            rows.add(columns)
        found = rows.settle(scale)
        if found.name == OTHER:
            raise DataError(
                f"{source.title(score)} goes from {found.low:g} to {found.high:g}, and probabilities lie between 0 and "
                "1."
            )
        values = rows.whole("score") if found.probabilities else special.expit(rows.whole("score"))
        members = np.array(rows.texts(group), object)[rows.whole(f"group {group}")]
        together = None if cluster is None else pd.factorize(rows.whole("cluster"))[0].astype(np.int64)
        if label is None:
            return cls(values, members, None, ("0", "1"), found, together)
        class_of = rows.merge(label_map)
        chosen, other = rows.positive(positive, class_of, label_map)
        return cls(
            values,
            members,
            rows.whole("label") == rows.labels[chosen],
            (str(class_of[other]), str(class_of[chosen])),
            found,
            together,
        )

    def refuse_unlike(self, other: _Read, own: Path | str, others: Path | str) -> None:
        """Raise :class:`DataError` where scores or labels are not like those of the other file."""
        if self.scale.name != other.scale.name:
            raise DataError(
                f"{own} holds scores of the scale {self.scale.name}, {others} those of {other.scale.name}. Say what "
                f"both are: {ASK}."
            )
        if self.label is not None and self.classes != other.classes:
            raise DataError(f"{own} and {others} have different labels: {self.classes} and {other.classes}.")

    def only(self, rows: NDArray[np.bool_]) -> _Read:
        label = None if self.label is None else self.label[rows]
        cluster = None if self.cluster is None else self.cluster[rows]
        return _Read(self.score[rows], self.group[rows], label, self.classes, self.scale, cluster)

    def clustered(self, column: str, *, halves: bool) -> tuple[str, ...]:
        """Say how many clusters there are; nothing where every row is one of its own."""
        assert self.cluster is not None
        rows, clusters = len(self.cluster), int(self.cluster.max()) + 1
        if clusters == rows:
            return ()
        apart = ", and no cluster is divided between the halves" if halves else ""
        return (f"{clustered_sentence(rows, clusters, column)}{apart}.",)
