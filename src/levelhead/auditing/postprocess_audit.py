"""Fit a rule that flips decisions, or apply one, and measure what it changes on rows that it was not fitted on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.options import Roles
from levelhead.auditing.paired import PairedAudit, compare_rows
from levelhead.auditing.postprocess import BiasRule, check_rule, fit_rule
from levelhead.auditing.rule_page import rule_page
from levelhead.auditing.scale import ASK, AUTO, LOG_ODDS, OTHER, PROBABILITY, Scale, check_scale
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics.names import METRICS, MISSING_GROUP
from levelhead.metrics.scores import ScoreCounts, calibration_lines
from levelhead.report.result import Report
from levelhead.report.text import Record, number
from levelhead.storage import read_json
from levelhead.tables.files import File, Stored, source_of
from levelhead.tables.rows import Rows
from levelhead.tables.vocabulary import LabelMap, in_order
from levelhead.terminal import tracked
from levelhead.types import ConfigError, DataError, Estimate, check_seed, quoted

FloatArray = NDArray[np.float64]

TRIED = (2.0, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25, 0.0)
"""Bounds that are tried on labelled rows, in deltas: probabilities can be off, and labels say by how much."""
SHOW_PROGRESS_FROM = 10_000  # rows; fewer take a few seconds

OUTPUT = ("before", "after", "fitted")
"""Columns of the decisions that are written, behind the id."""
RATES = {None: "selection rate", 1: "true positive rate", 0: "false positive rate"}


@dataclass(frozen=True)
class SavedRule:
    """A fitted rule with what applying it needs: ``classes`` (negative, positive), and which rows it was fitted on.

    ``file`` is the SHA-256 of the file that holds those rows, and ``seed`` draws the half of it that was used; None:
    all rows were. ``scale`` is that of the scores; the rule itself takes probabilities.
    """

    rule: BiasRule
    classes: tuple[str, str]
    file: str = ""
    seed: int | None = None
    scale: str = PROBABILITY

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        fitted = {"sha256": self.file, "half_of_seed": self.seed}
        return {
            "rule": self.rule.to_dict(),
            "classes": list(self.classes),
            "fitted": fitted,
            "scale": self.scale,
        }

    @classmethod
    def read(cls, path: Path | str) -> SavedRule:
        """Read what ``levelhead postprocess --json`` wrote; raises :class:`DataError` for any other file."""
        record: Any = read_json(Path(path))
        try:
            rule = BiasRule.from_dict(record["rule"])
            negative, positive = map(str, record.get("classes", ("0", "1")))
            fitted: Any = record.get("fitted", {})
            seed = fitted.get("half_of_seed")
            scale = record.get("scale", PROBABILITY)
            if not _is_whole(rule) or scale not in (PROBABILITY, LOG_ODDS):
                raise ValueError
            seed = None if seed is None else int(seed)
            return cls(rule, (negative, positive), str(fitted.get("sha256", "")), seed, scale)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            raise DataError(f"{path} holds no rule. Pass the file that `levelhead postprocess --json` wrote.") from None

    def fitted_rows(self, file: str, rows: int) -> NDArray[np.bool_]:
        """Return which rows (rows,) of a file with this SHA-256 the rule was fitted on."""
        if file != self.file:
            return np.zeros(rows, bool)
        return np.ones(rows, bool) if self.seed is None else half(self.seed, rows)


def _is_whole(rule: BiasRule) -> bool:
    """Whether the parts of a rule that was read fit together."""
    numbers = [rule.delta, rule.threshold, *rule.multipliers.ravel(), *rule.shares.values(), *np.ravel(rule.lines)]
    needed: dict[str, set[int | None]] = {
        "demographic_parity": {None},
        "equal_opportunity": {1},
        "equalized_odds": {0, 1},
    }
    labels = needed.get(rule.metric, set())
    return (
        bool(np.isfinite(np.array(numbers, np.float64)).all())
        and len(rule.lines) == len(rule.groups) == len(set(rule.groups)) >= 2
        and rule.multipliers.shape == (len(rule.pairs),)
        and all(label in labels and rule.shares.get((one, label), 0) > 0 for *both, label in rule.pairs for one in both)
        and all(0 <= one < len(rule.groups) for *both, _ in rule.pairs for one in both)
    )


def half(seed: int, rows: int) -> NDArray[np.bool_]:
    """Return which rows (rows,) a rule is fitted on where one file has to serve for both."""
    return np.random.default_rng([seed, 1]).random(rows) < 0.5


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
        first, second = map(quoted, self.groups)
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
    rows, None without labels; ``reversals`` are gaps that changed their sign there. ``reading`` says how a file was
    read that is not a plain csv.
    """

    kind: ClassVar[str] = "rule"
    make_page: ClassVar[Callable[..., Record]] = staticmethod(rule_page)

    rule: BiasRule
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
    reversals: tuple[Reversal, ...] = ()
    reading: tuple[str, ...] = ()

    @property
    def threshold(self) -> float:
        """That of the rule, in the units of the scores."""
        return self.rule.threshold if self.scale.probabilities else float(special.logit(self.rule.threshold))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        against = {} if self.audit is None else {"against": self.audit.to_dict()}
        return {
            "kind": self.kind,
            **self.saved.to_dict(),
            "sentences": [*self.sentences(), self.scale.sentence(self.threshold)],
            "level": None if self.audit is None else self.audit.level,
            "warnings": self.scale.warnings(),
            "threshold": self.threshold,
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
        if MISSING_GROUP in self.rule.groups:
            lines.append(f"The rule treats rows without a group as a group of their own, {quoted(MISSING_GROUP)}.")
        if self.fitted.all():
            lines.append("It was fitted on these very rows: on new rows the gap can be larger.")
        if self.audit is None:
            unknown = "What that does to gaps and accuracy is not known: name the labels with --label."
            return [*lines, *(one.sentence() for one in self.reversals), unknown]
        changes = self.audit.by_attribute[self.column].metrics
        metric = "equalized_odds_worst" if self.rule.metric == "equalized_odds" else self.rule.metric
        gap, accuracy = changes[metric], changes["accuracy"]

        def span(figure: Estimate) -> str:
            return f"interval {number(100 * figure.low, signed=True)} to {number(100 * figure.high, signed=True)}"

        where = f"On {self.measured_on:,} rows that it was not fitted on"
        if gap.difference.defined:
            lines.append(
                f"{where}, the measured gap in {METRICS[metric].subject} went from {number(100 * gap.old)} to "
                f"{number(100 * gap.new)} points, a change of {number(100 * gap.difference.value, signed=True)}, "
                f"{span(gap.difference)}."
            )
            lines += [one.sentence() for one in self.reversals]
        else:
            lines.append(f"{where}, the gap is undefined: {gap.difference.reason}.")
        lines.append(
            f"Accuracy went from {number(100 * accuracy.old)}% to {number(100 * accuracy.new)}%, a change of "
            f"{number(100 * accuracy.difference.value, signed=True)} points, {span(accuracy.difference)}."
        )
        if gap.difference.defined and gap.new > self.rule.delta:
            lines.append(
                f"That is above the {number(100 * self.rule.delta)} points that were asked for: the bound is about the "
                "rows and the probabilities that the rule was fitted on."
            )
        return lines


def choose_rule(
    probability: FloatArray,
    group: NDArray[Any],
    label: NDArray[np.bool_] | None,
    *,
    metric: str,
    delta: float,
    threshold: float,
    seed: int = 0,
) -> BiasRule:
    """Fit rules with several bounds and keep, of those whose gap by the labels is within delta, the most accurate.

    With labels the probabilities are first calibrated in each group (Platt 1999). Without: the rule whose expected gap
    is ``delta``. Where no gap is within delta: the smallest.
    """
    if label is None:
        return fit_rule(probability, group, metric=metric, delta=delta, threshold=threshold, seed=seed)
    # Probabilities that are off in one group would bound another gap than the true one.
    names, codes = np.unique(group.astype(str), return_inverse=True)
    fitted = calibration_lines(ScoreCounts.from_rows(label, probability, codes, len(names)))
    lines = {
        str(name): (float(intercept), float(slope))
        for name, intercept, slope in zip(names, fitted.beside_slope, fitted.slope, strict=True)
        if np.isfinite([intercept, slope]).all() and slope > 0
    }
    found: list[tuple[float, float, int, BiasRule]] = []
    # A bound of 1 flips nothing: where that is best, no other rule may make the gap larger.
    bounds = list(dict.fromkeys([1.0, *(min(1.0, factor * delta) for factor in TRIED)]))
    for bound in tracked(bounds, "Trying bounds", shown=len(label) >= SHOW_PROGRESS_FROM):
        rule = fit_rule(probability, group, metric=metric, delta=bound, threshold=threshold, lines=lines, seed=seed)
        decided = rule.decide(probability, group, seed=seed)
        gap = measured_gap(decided, label, group, metric)
        found.append((max(0.0, gap - delta), -float((decided == label).mean()), len(found), rule))
    return replace(min(found, key=lambda one: one[:3])[-1], delta=delta)


def measured_gap(decided: NDArray[np.bool_], label: NDArray[np.bool_], group: NDArray[Any], metric: str) -> float:
    """Largest difference of the rates that a metric is about; NaN where a group lacks a label."""
    which = {"demographic_parity": (label | True,), "equal_opportunity": (label,), "equalized_odds": (label, ~label)}
    gaps = []
    for rows in which[metric]:
        rates = [decided[rows & (group == one)].mean() for one in np.unique(group) if (rows & (group == one)).any()]
        gaps.append(max(rates) - min(rates))
    return float(max(gaps))


def postprocess_file(
    path: Path | str,
    score: str,
    group: str,
    *,
    label: str | None = None,
    validation: Path | str | None = None,
    rule: SavedRule | Path | str | None = None,
    id_column: str | None = None,
    metric: str = "equalized_odds",
    delta: float = 0.02,
    threshold: float | None = None,
    scale: str = AUTO,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
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
        metric: see :func:`levelhead.auditing.postprocess.fit_rule`.
        delta: see there.
        threshold: rows with at least this score are positive before any flip; None: 0.5 for probabilities, 0 for log
            odds.
        scale: "probability", "log-odds" or "auto", as :func:`levelhead.audit` takes it.
        label_map: which class each label stands for, as :func:`levelhead.audit` takes it.
        positive: the class that the probability is about; None: the second of two in sorted order.
        min_count: rows that a rate must rest on to be compared.
        level: confidence level of the intervals.
        seed: of the halves, and of the chance that equalized odds need.

    Returns:
        the rule, all decisions, and what changed.

    Raises:
        DataError: as :func:`levelhead.auditing.audit.audit_file`, and as the fit.
        ConfigError: as the fit.
    """
    check_seed(seed)
    check_rule(metric, delta, 0.5)
    if (scale := check_scale(scale)) == OTHER:
        raise ConfigError("A rule needs probabilities or log odds, and the scale says that these are neither.")
    named = [name for name in (score, group, label, id_column) if name is not None]
    if len(set(named)) < len(named):
        raise ConfigError("Score, group, label and id are different columns.")
    if id_column in OUTPUT:
        raise ConfigError(f"The id column is called {quoted(id_column)}, as a column of decisions. Rename it.")
    if rule is not None and validation is not None:
        raise ConfigError("A rule that was fitted before needs no validation file. Leave one of the two out.")
    given = None if rule is None else rule if isinstance(rule, SavedRule) else SavedRule.read(rule)
    if given is not None and positive is None:
        positive = given.classes[1]
    if given is not None and scale == AUTO:  # a few new rows say little of their scale
        scale = given.scale
    mapped = LabelMap(label_map)
    read = partial(_Read.of, label_map=mapped, scale=scale)
    rows = read(source_of(path), score, group, label, positive)
    if given is not None:
        if label is not None and rows.classes != given.classes:
            raise DataError(f"{path} has the labels {rows.classes}, and the rule was fitted on {given.classes}.")
        fitted = given.fitted_rows(_sha256(path), len(rows.score))
        saved, fitted_on = given, int(fitted.sum())
    else:
        if validation is None:
            fitted = np.ones(len(rows.score), bool) if label is None else half(seed, len(rows.score))
            fit = rows.only(fitted)
        else:
            fit = read(source_of(validation), score, group, label, positive)
            fitted = np.zeros(len(rows.score), bool)
            fit.refuse_unlike(rows, validation, path)
        if label is not None:
            mapped.refuse_unused()
        threshold = rows.scale.default_threshold() if threshold is None else threshold
        if not rows.scale.probabilities:
            threshold = float(special.expit(threshold))
        check_rule(metric, delta, threshold)
        chosen = choose_rule(
            fit.score, fit.group, fit.label, metric=metric, delta=delta, threshold=threshold, seed=seed
        )
        halved = seed if validation is None and label is not None else None
        saved = SavedRule(chosen, fit.classes, _sha256(validation or path), halved, rows.scale.name)
        fitted_on = len(fit.score)
    found = saved.rule
    before = rows.score >= found.threshold
    decisions = found.decide(rows.score, rows.group, seed=seed)
    # Without labels a rule is fitted on all rows, and they are all that there is to look at.
    shown = np.ones(len(fitted), bool) if fitted.all() else ~fitted
    measured = rows.only(shown)
    decided = before[shown], decisions[shown]
    options: dict[str, Any] = {"min_count": min_count, "level": level, "seed": seed}
    return Postprocessed(
        found,
        before,
        decisions,
        None if measured.label is None else _compared(measured, *decided, group, **options),
        group,
        fitted_on,
        len(measured.score),
        saved,
        fitted,
        rows.scale,
        None if id_column is None else _texts(Path(path), id_column),
        tuple(reversals(found.metric, *decided, measured.label, measured.group, min_count)),
        tuple(said for one in (path, validation) if one is not None for said in source_of(one).taken(named)),
    )


def _compared(
    measured: _Read, before: NDArray[np.bool_], after: NDArray[np.bool_], group: str, **options: Any
) -> PairedAudit:
    """Compare decisions before and after the flips on rows with labels."""
    assert measured.label is not None
    names, members = np.unique(measured.group.astype(str), return_inverse=True)
    groups = in_order(set(names.tolist()))
    decided = {"prediction": after, "other": before, "label": measured.label}
    rows = Rows({})
    rows.add({role: (one.astype(np.int64), list(measured.classes)) for role, one in decided.items()})
    rows.add({f"group {group}": (members.astype(np.int64), names.tolist())})
    return compare_rows(
        rows,
        groups={group: [str(one) for one in groups]},
        left_out=lambda _: False,
        label_map=LabelMap({one: one for one in measured.classes}),
        positive=measured.classes[1],
        names=("before", "after"),
        **options,
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


def _sha256(path: Path | str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _texts(path: Path, column: str) -> NDArray[Any]:
    """Return the texts of one column, (rows,) objects."""
    parts = []
    for batch in File(path).batches(words=[column]):
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
    ) -> _Read:
        """Read a file; its scores become probabilities."""
        roles = Roles(label, None, (group,), score)
        rows = ScoreRows(roles.titles(source))
        for columns in roles.batches(source, {}):
            rows.add(columns)
        found = rows.settle(scale)
        if found.name == OTHER:
            raise DataError(
                f"{source.title(score)} goes from {found.low:g} to {found.high:g}, and probabilities lie between 0 and "
                "1."
            )
        values = rows.whole("score") if found.probabilities else special.expit(rows.whole("score"))
        members = np.array(rows.texts(group), object)[rows.whole(f"group {group}")]
        if label is None:
            return cls(values, members, None, ("0", "1"), found)
        class_of = rows.merge(label_map)
        chosen, other = rows.positive(positive, class_of)
        return cls(
            values,
            members,
            rows.whole("label") == rows.labels[chosen],
            (str(class_of[other]), str(class_of[chosen])),
            found,
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
        return _Read(self.score[rows], self.group[rows], label, self.classes, self.scale)
