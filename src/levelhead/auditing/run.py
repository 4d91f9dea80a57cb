"""Audit the rows of a table, in memory or in files: read them once, then say what each question found."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from levelhead.auditing.continuous import continuous_gap
from levelhead.auditing.figures import audit_tally
from levelhead.auditing.levels import add_control, control_tallies
from levelhead.auditing.options import AuditOptions, Roles, find_quantiles
from levelhead.auditing.own_metrics import OwnMetric, own_metrics
from levelhead.auditing.paired import compare_rows
from levelhead.auditing.result import AuditResult
from levelhead.auditing.scale import ASK
from levelhead.auditing.scores import ScoreRows, audit_scores
from levelhead.auditing.weights import Weights
from levelhead.metrics.names import Key, group_name
from levelhead.tables.bins import Cuts, cuts_of, ordered_groups
from levelhead.tables.columns import FloatArray
from levelhead.tables.rows import Rows, matched
from levelhead.tables.source import Source
from levelhead.tables.tally import Tally
from levelhead.terminal import Terminal
from levelhead.types import ConfigError, DataError, printable, quoted


@dataclass(frozen=True)
class Other:
    """Another model: its predictions in a table of its own (None: beside the audited ones), and what both are called.

    ``personal``: the audited model uses the groups, and the other one does not.
    """

    names: tuple[str, str]
    source: Source | None = None
    id: str | None = None
    personal: bool = False


def _kept(roles: Roles, options: AuditOptions, other: Other | None) -> set[str]:
    """Return the roles of the columns whose rows are kept; without scores, counting is enough for an audit."""
    groups = [f"group {name}" for name in roles.groups]
    decided = "prediction" if roles.score is None else "score"
    kept = {decided, *(f"along {name}" for name in roles.along)} if roles.along else set()
    if roles.score is not None:
        kept |= {"label", "score", "prediction", "cluster", *groups}
    if options.metrics is not None:
        kept |= {"label", "prediction", *groups}
    if other is not None:
        kept |= {"label", "prediction", "other", "cluster", "id", *groups}
    return kept


class Counted:
    """The rows of a table: counted as :class:`Tally` does, and kept in ``rows`` as far as a part needs them.

    Args:
        source: the table.
        roles: which column is what.
        options: the options, which have been checked.
        other: another model to compare with.
    """

    def __init__(self, source: Source, roles: Roles, options: AuditOptions, other: Other | None = None) -> None:
        self.roles, self.other = roles, other
        self.cuts = cuts = cuts_of(options.bins, [*roles.groups, *roles.levels])
        find_quantiles(source, cuts)
        self.options = options = replace(
            options,
            label=source.called(str(roles.label)),
            cluster=None if roles.cluster is None else source.called(roles.cluster),
        )
        titles = roles.titles(source)
        groups = {name: source.title(name) for name in roles.groups}
        decided = titles["score" if roles.prediction is None else "prediction"]
        levels = {name: source.title(name) for name in roles.levels}
        numbered = frozenset(cuts)
        self.tally = Tally(titles["label"], decided, groups, options.intersect, numbered)
        self.within = control_tallies((titles["label"], decided), groups, levels, options.intersect, numbered)
        self.rows: Rows = Rows(titles) if roles.score is None else ScoreRows(titles)
        self.weights = (
            None if roles.weight is None else Weights(source.title(roles.weight), source.called(roles.weight))
        )
        kept = _kept(roles, options, other)
        for columns in roles.batches(source, cuts):
            self._add(columns, kept)
        if self.weights is not None:
            self.weights.check()

    def _add(self, columns: dict[str, Any], kept: set[str]) -> None:
        label, groups = columns["label"], {name: columns[f"group {name}"] for name in self.tally.groups}
        if self.weights is not None:
            used = self.weights.use(columns["weight"], label, columns["prediction"], groups)
            if used is not None:
                self.tally.add(*used)
        elif not isinstance(self.rows, ScoreRows):
            self.tally.add(label, columns["prediction"], groups, cluster=columns.get("cluster"))
        for one in self.within.values():
            both = {name: columns.get(f"group {name}") or columns[f"level {name}"] for name in one.groups}
            one.add(label, columns["prediction"], both)
        if kept:
            self.rows.add({role: column for role, column in columns.items() if role in kept})

    def report(self, reading: Collection[str] = (), warnings: Collection[str] = ()) -> AuditResult:
        """Return what all parts found; ``reading`` says how the table was read."""
        rows, roles, options, other = self.rows, self.roles, self.options, self.other
        # As they were read: an audit of scores joins labels of one class.
        given = rows.only({*rows.parts} - {"score"}) if other is not None or options.metrics is not None else rows
        result = self._figures()
        result = replace(result, warnings=[*result.warnings, *warnings])
        if reading:
            result = replace(result, more={**result.more, "reading": list(dict.fromkeys(reading))})
        if roles.levels:
            result = add_control(result, self.within, roles.levels, options, self.cuts)
        if roles.along:
            result = _along(result, rows, roles, options)
        if options.metrics is not None:
            scores = rows.whole("score") if roles.prediction is None else None
            result = _measured_by(options.metrics, result, given, scores, roles, options, self.cuts)
        if other is None:
            options.label_map.refuse_unused()
            return result
        if isinstance(rows, ScoreRows) and roles.prediction is None and result.scores is not None:
            given.put("prediction", rows.decided(result.scores, options.positive, options.label_map))
        said: list[str] = []
        if other.source is not None:
            given, said = matched(given, self._theirs(other.source, other.id, result))
        return _compared(result, given, options, other, said)

    def _figures(self) -> AuditResult:
        """Audit the predictions, or the decisions at the first threshold and what scores show beside them."""
        rows, options = self.rows, self.options
        if not isinstance(rows, ScoreRows):
            return audit_tally(self.tally, options, self.cuts, self.weights)
        scale = rows.settle(options.scale)
        class_of = rows.merge(options.label_map)
        positive, other = rows.positive(options.positive, class_of)
        thresholds = options.thresholds or (scale.default_threshold(),)
        rows.tally(self.tally, thresholds[0], class_of[positive], class_of[other])
        result = audit_tally(self.tally, replace(options, positive=positive), self.cuts)
        scores = audit_scores(
            rows,
            positive,
            thresholds,
            scale=scale,
            groups={key: list(part.groups) for key, part in result.by_attribute.items()},
            left_out=options.leaves_out,
            min_count=options.min_count,
            level=options.level,
            replicates=options.replicates,
            seed=options.seed,
            reference=result.more.get("reference"),
        )
        return replace(result, scores=scores, warnings=[*result.warnings, *scores.warnings])

    def _theirs(self, source: Source, ids: str | None, result: AuditResult) -> Rows:
        """Read another model's predictions, or decide its scores as the audited ones were."""
        own, options, decide = self.rows, self.options, self.roles.prediction is None
        score = self.roles.score if decide else None
        its = replace(self.roles, score=score, weight=None, cluster=None, levels=(), along=(), id=ids)
        rows = (ScoreRows if decide else Rows)(its.titles(source))
        for columns in its.batches(source, self.cuts):
            rows.add(columns)
        if isinstance(rows, ScoreRows) and isinstance(own, ScoreRows) and result.scores is not None:
            found, known = rows.settle(options.scale), result.scores.scale
            if found.name != known.name:
                # One threshold is not for both.
                raise DataError(
                    f"{rows.titles['score']} holds scores of the scale {found.name}, the audited file those of "
                    f"{known.name}. Say what both are: {ASK}."
                )
            scores = rows.parts.pop("score")
            rows.put("prediction", own.decided(result.scores, options.positive, options.label_map, scores))
        return rows


def _along(result: AuditResult, rows: Rows, roles: Roles, options: AuditOptions) -> AuditResult:
    """Add how decisions change along columns of numbers."""
    if result.positive is None:
        raise ConfigError("Gaps along numbers are about one class: name it, with --positive (positive= in Python).")
    if roles.prediction is None and result.scores is not None:
        decided = rows.whole("score") >= result.scores.thresholds[0]
    else:
        targets = options.label_map.targets.items()
        texts = {result.positive, *(text for text, target in targets if target == result.positive)}
        decided = rows.coded("prediction", {one: 1 for one in rows.known["prediction"] if str(one) in texts}) == 1
    found = {
        name: continuous_gap(
            decided.astype(np.float64),
            rows.whole(f"along {name}"),
            title=name,
            level=options.level,
            seed=options.seed,
        )
        for name in roles.along
    }
    return replace(result, continuous=found)


def _measured_by(
    metrics: Mapping[str, Any],
    result: AuditResult,
    rows: Rows,
    scores: FloatArray | None,
    roles: Roles,
    options: AuditOptions,
    cuts: Mapping[str, Cuts],
) -> AuditResult:
    """Add metrics of the user's own, on labels and predictions as the user gave them."""
    label = rows.column("label")
    mapped: list[Mapping[Hashable, Hashable]] = [{}, {}]
    given: list[Any] = []
    decided = None if scores is not None else rows.column("prediction")
    if options.label_map and decided is not None:
        mapped = [*options.label_map.apply(dict.fromkeys(label[1], 1), dict.fromkeys(decided[1], 1))]
    for one, words in zip((label, decided), mapped, strict=True):
        given.append(scores if one is None else np.array([words.get(value, value) for value in one[1]])[one[0]])
    found: dict[Key, dict[str, OwnMetric]] = {}
    warnings = list(result.warnings)
    tally = Tally("", "", dict.fromkeys(roles.groups, ""), options.intersect, frozenset(roles.groups))
    columns = {name: rows.column(f"group {name}") for name in roles.groups}
    for key, (codes, values) in tally.group_columns(columns).items():
        at, groups = ordered_groups(values, key, cuts)
        found[key] = own_metrics(
            metrics,
            given[0],
            given[1],
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


def _compared(result: AuditResult, rows: Rows, options: AuditOptions, other: Other, warnings: list[str]) -> AuditResult:
    """Add the changes from the other model."""
    compared = compare_rows(
        rows,
        positive=result.positive,
        groups={key: list(part.groups) for key, part in result.by_attribute.items()},
        left_out=options.leaves_out,
        label_map=options.label_map,
        min_count=options.min_count,
        level=options.level,
        replicates=options.replicates,
        seed=options.seed,
        names=other.names,
        warnings=warnings,
        personal=other.personal,
    )
    options.label_map.refuse_unused()
    said = [one for one in compared.warnings if one not in result.warnings]
    return replace(result, against=compared, warnings=[*result.warnings, *said])
