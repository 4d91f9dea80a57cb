"""Fit a rule that flips decisions, and measure what it changes on rows that it was not fitted on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.text import Text

from levelhead.auditing.paired import PairedAudit, PairedRows, compare_rows
from levelhead.auditing.postprocess import BiasRule, check_rule, fit_rule
from levelhead.auditing.scores import ScoreRows, read_scores
from levelhead.auditing.tally import Column
from levelhead.auditing.vocabulary import LabelMap, in_order
from levelhead.metrics.names import METRICS
from levelhead.metrics.scores import ScoreCounts, calibration_lines
from levelhead.report.text import number
from levelhead.types import ConfigError, DataError, Estimate, check_seed, quoted

FloatArray = NDArray[np.float64]

USES_GROUPS = (
    "USES GROUPS: this rule reads each row's group to decide. In many places that is not lawful for decisions about "
    "people. It makes no model just; it trades accuracy for a smaller measured gap."
)
TRIED = (2.0, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25, 0.0)
"""Bounds that are tried on labelled rows, in deltas: probabilities can be off, and labels say by how much."""


@dataclass(frozen=True)
class Postprocessed:
    """What :func:`postprocess_file` found.

    ``rule`` is the fitted rule; ``decisions`` (rows,) those of it for every row of the file, and ``before`` those of
    the threshold. ``audit`` compares the two on rows that the rule was not fitted on, None without labels.
    """

    rule: BiasRule
    before: NDArray[np.bool_]
    decisions: NDArray[np.bool_]
    audit: PairedAudit | None
    column: str
    fitted_on: int
    measured_on: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        against = {} if self.audit is None else {"against": self.audit.to_dict()}
        return {
            "rule": self.rule.to_dict(),
            "rows_to_fit": self.fitted_on,
            "rows_to_measure": self.measured_on,
            "flipped": int((self.before != self.decisions).sum()),
            **against,
        }

    def sentences(self) -> list[str]:
        """Say what the rule did to the gap, and what it cost."""
        flipped = int((self.before != self.decisions).sum())
        lines = [f"The rule flips {flipped:,} of {len(self.decisions):,} decisions."]
        if self.audit is None:
            return [*lines, "What that does to gaps and accuracy is not known: name the labels with --label."]
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

    def table(self) -> Group:
        """Return what ``rich`` prints."""
        shown: list[RenderableType] = [Text(USES_GROUPS), *map(Text, self.sentences())]
        if self.audit is not None:
            shown += [one for one in self.audit.tables() if not isinstance(one, Text)]
        return Group(*shown, Text("USES GROUPS."))


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
    for factor in TRIED if delta > 0 else (0.0,):
        bound = min(1.0, factor * delta)
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
    metric: str = "equalized_odds",
    delta: float = 0.02,
    threshold: float = 0.5,
    positive: str | None = None,
    min_count: int = 10,
    level: float = 0.95,
    seed: int = 0,
) -> Postprocessed:
    """Fit a rule and decide every row of a file with it.

    Args:
        path: a file with a probability a row.
        score: column with the probability of the positive class.
        group: column with the group.
        label: column with the true class; None: nothing is measured.
        validation: file with the same columns to fit on. None: a random half of the rows, and the other half is
            measured.
        metric: see :func:`levelhead.auditing.postprocess.fit_rule`.
        delta: see there.
        threshold: see there.
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
    check_rule(metric, delta, threshold)
    if len({name for name in (score, group, label) if name is not None}) < 2 + (label is not None):
        raise ConfigError("Score, group and label are different columns.")
    rows = _Read.of(Path(path), score, group, label, positive)
    if validation is None:
        to_fit = np.random.default_rng([seed, 1]).random(len(rows.score)) < 0.5 if label is not None else None
        fit = rows if to_fit is None else rows.only(to_fit)
        measured = rows if to_fit is None else rows.only(~to_fit)
    else:
        fit, measured, to_fit = _Read.of(Path(validation), score, group, label, positive), rows, None
        if label is not None and fit.classes != rows.classes:
            raise DataError(f"{validation} and {path} have different labels: {fit.classes} and {rows.classes}.")
    rule = choose_rule(fit.score, fit.group, fit.label, metric=metric, delta=delta, threshold=threshold, seed=seed)
    before = rows.score >= threshold
    decisions = rule.decide(rows.score, rows.group, seed=seed)
    audit = None
    if measured.label is not None:
        shown = slice(None) if to_fit is None else ~to_fit
        groups = in_order(set(measured.group.tolist()))
        column = np.unique(measured.group.astype(str), return_inverse=True)
        members: Column = column[1].astype(np.int64), [str(one) for one in column[0]]
        truth: Column = measured.label.astype(np.int64), list(rows.classes)

        def side(decided: NDArray[np.bool_]) -> PairedRows:
            return PairedRows.of(
                truth, (decided[shown].astype(np.int64), list(rows.classes)), {group: members}, {group: group}
            )

        audit = compare_rows(
            side(decisions),
            side(before),
            groups={group: [str(one) for one in groups]},
            left_out=lambda _: False,
            label_map=LabelMap(None),
            positive=rows.classes[1],
            min_count=min_count,
            level=level,
            seed=seed,
            names=("before", "after"),
        )
    return Postprocessed(rule, before, decisions, audit, group, len(fit.score), len(measured.score))


@dataclass(frozen=True)
class _Read:
    score: FloatArray
    group: NDArray[Any]
    label: NDArray[np.bool_] | None
    classes: tuple[str, str]

    @classmethod
    def of(cls, path: Path, score: str, group: str, label: str | None, positive: str | None) -> _Read:
        rows: ScoreRows = read_scores(path, label, score, [group])
        values = rows.scores
        low, high = float(values.min()), float(values.max())
        if low < 0 or high > 1:
            raise DataError(
                f"{path}, column {quoted(score)} goes from {low:g} to {high:g}, and probabilities lie between 0 and 1."
            )
        members = rows.texts(group)
        if label is None:
            return cls(values, members, None, ("0", "1"))
        chosen, other = rows.positive(positive, {})
        return cls(values, members, rows.positives(chosen), (str(other), str(chosen)))

    def only(self, rows: NDArray[np.bool_]) -> _Read:
        label = None if self.label is None else self.label[rows]
        return _Read(self.score[rows], self.group[rows], label, self.classes)
