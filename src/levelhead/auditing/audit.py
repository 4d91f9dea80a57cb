"""Measure the gaps between groups in a set of predictions, with intervals.

An audit is a finding about these rows and these groups. It is not a verdict: a small measured gap does not make a
model just or lawful, and an interval that holds 0 means that these rows cannot tell, not that there is no gap.
"""

from __future__ import annotations

import io
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from levelhead.auditing.files import count_patterns
from levelhead.auditing.titles import NOTE, RATE_TITLES, TITLES, left_out_words, metric_title
from levelhead.metrics import Counts, estimate, estimate_all, estimate_to_dict, proportion, worst_class
from levelhead.metrics import group as group_metrics
from levelhead.metrics.counts import encode, encode_together
from levelhead.metrics.intervals import Enough
from levelhead.types import ConfigError, DataError, Estimate

MISSING_GROUP = "(missing)"


@dataclass(frozen=True)
class GroupFigures:
    """One group: ``n`` rows, ``rows_by_label``, its ``rates`` with intervals, and which gaps count it in.

    ``included``: whether it has rows enough to be in any gap. ``left_out`` names the gaps that count it out, because
    its rate rests on too few rows, each with the class in brackets where several are compared.
    The rates are ``accuracy`` and, for each class that is set against the rest, ``selection_rate``,
    ``true_positive_rate`` and ``false_positive_rate`` (with several classes followed by ``[class]``).
    """

    n: int
    rows_by_label: dict[str, int]
    rates: dict[str, Estimate]
    included: bool = True
    left_out: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        rates = {name: estimate_to_dict(rate) for name, rate in self.rates.items()}
        out = {"included": self.included, "left_out": list(self.left_out)}
        return {"n": self.n, **out, "rows_by_label": self.rows_by_label, **rates}


@dataclass(frozen=True)
class AttributeAudit:
    """The figures for one sensitive column.

    ``worst_class`` names the class behind each gap where several classes are compared; else it is empty.
    """

    metrics: dict[str, Estimate]
    groups: dict[str, GroupFigures]
    worst_class: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        result: dict[str, Any] = {
            "metrics": {name: estimate_to_dict(figure) for name, figure in self.metrics.items()},
            "groups": {name: figures.to_dict() for name, figures in self.groups.items()},
        }
        if self.worst_class:
            result["worst_class"] = self.worst_class
        return result


@dataclass(frozen=True)
class AuditResult:
    """What :func:`audit` found.

    ``by_attribute`` has the figures of every sensitive column; ``metrics`` and ``groups`` are those of the first.
    ``warnings`` are full sentences. Figures are fractions. ``positive`` is the class that selection, true and false
    positive rates are about; None where every class is set against the rest.
    """

    by_attribute: dict[str, AttributeAudit]
    warnings: list[str]
    level: float = 0.95
    positive: str | None = None

    @property
    def metrics(self) -> dict[str, Estimate]:
        """Metrics for the first sensitive column."""
        return next(iter(self.by_attribute.values())).metrics

    @property
    def groups(self) -> dict[str, GroupFigures]:
        """Groups of the first sensitive column."""
        return next(iter(self.by_attribute.values())).groups

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict: ``metrics``, ``groups``, ``by_attribute``, ``warnings``, ``level``, ``positive``.

        Undefined figures are null with a ``reason``.
        """
        by_attribute = {name: part.to_dict() for name, part in self.by_attribute.items()}
        first = next(iter(by_attribute.values()))
        return {
            **first,
            "by_attribute": by_attribute,
            "warnings": list(self.warnings),
            "level": self.level,
            "positive": self.positive,
        }

    def to_html(self) -> str:
        """Return one standalone HTML page: no scripts, nothing loaded from elsewhere (docs/report.md)."""
        from levelhead.report import render  # pages know audits, so an audit can know pages only when it makes one
        from levelhead.report.audit_page import audit_page

        return render(audit_page(self.to_dict()))

    @property
    def _note(self) -> str:
        return NOTE if self.positive is None else f"Positive class: {self.positive}. {NOTE}"

    def table(self) -> Group:
        """Return tables that ``rich`` can print."""
        shown: list[Table | Text] = []
        for name, part in self.by_attribute.items():
            interval = f"{100 * self.level:g}% interval"
            metrics = Table(title=Text(f"Gaps by {name}"), title_justify="left")
            for heading in ("Metric", "%", interval, "Corrected", "Rows"):
                metrics.add_column(heading, justify="left" if heading == "Metric" else "right")
            for key, figure in part.metrics.items():
                metrics.add_row(
                    Text(metric_title(key, part.worst_class.get(key))),
                    _percent(figure),
                    _interval(figure),
                    _corrected(figure),
                    str(figure.n),
                )
            groups = Table(title=Text(f"Groups of {name}"), title_justify="left")
            groups.add_column("Group")
            groups.add_column("Rows", justify="right")
            titles = _rate_titles(part)
            for title in titles.values():
                groups.add_column(Text(title), justify="right")
            for group, figures in part.groups.items():
                out = left_out_words(figures.included, figures.left_out)
                label = f"{group} ({out})" if out else group
                cells = [f"{_percent(figures.rates[key])} {_interval(figures.rates[key])}".strip() for key in titles]
                groups.add_row(Text(label), str(figures.n), *cells)
            shown += [metrics, groups]
        shown += [Text(f"Warning: {warning}") for warning in self.warnings]
        return Group(*shown, Text(self._note))

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=140, color_system=None)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get()


def audit(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    sensitive_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike],
    positive: Hashable = None,
    intersect: bool = False,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> AuditResult:
    """Measure accuracy and the gaps between groups.

    Args:
        y_true: (rows,) true classes, any hashables.
        y_pred: (rows,) predicted classes out of the same vocabulary.
        sensitive_features: (rows,) group of each row, or a frame or dict of such columns, each audited on its own.
            A missing value is a group of its own, named "(missing)".
        positive: the class that selection, true positive and false positive rates are about. None: the second of
            two classes in sorted order; with three or more, every class against the rest.
        intersect: also audit the crossing of all columns, under the name "a & b".
        min_count: rows that a rate must rest on to be compared: rows of the group for demographic parity, its
            positives for true positive rates, its negatives for false positive rates. A group with fewer is named in
            a warning and left out of the figures that compare this rate.
        level: confidence level of the intervals.
        replicates: bootstrap replicates.
        seed: of the bootstrap.

    Returns:
        the figures. What cannot be computed is NaN with a reason, and a warning.

    Raises:
        DataError: no rows, unequal lengths, missing labels or predictions, or predictions and labels that share no
            value.
        ConfigError: ``positive`` is not a class, or an option is out of range.
    """
    truth, predicted = _outcome(y_true, "label"), _outcome(y_pred, "prediction")
    if len(truth) != len(predicted):
        raise DataError(f"{len(truth)} labels and {len(predicted)} predictions. Pass one of each for every row.")
    if not len(truth):
        raise DataError("There are no rows to audit. Pass at least one labelled prediction.")
    columns = _columns(sensitive_features, len(truth))
    options = _Options(positive, intersect, min_count, level, replicates, seed)
    return _audit(truth, predicted, columns, np.ones(len(truth), np.int64), options)


def audit_file(
    path: Path | str,
    label: str,
    prediction: str,
    groups: Sequence[str],
    *,
    positive: Hashable = None,
    intersect: bool = False,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
) -> AuditResult:
    """Audit a file of predictions of any length: batches of rows are counted and forgotten.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file with one prediction a row.
        label: name of the column with the true classes.
        prediction: name of the column with the predicted classes, in the same words.
        groups: names of the group columns, each audited on its own.
        positive: as :func:`audit` takes it, like all that follows.
        intersect: see there.
        min_count: see there.
        level: see there.
        replicates: see there.
        seed: see there.

    Returns:
        what :func:`audit` returns for the same rows.

    Raises:
        DataError: what :func:`audit` raises, and a file that is missing, unreadable, empty or lacks a column.
        ConfigError: as :func:`audit`.
    """
    names = list(dict.fromkeys(groups))
    patterns = count_patterns(Path(path), [label, prediction], names)
    values = patterns.values
    truth, predicted = _outcome(values[label], "label"), _outcome(values[prediction], "prediction")
    columns = _columns(values[names], len(values))
    options = _Options(positive, intersect, min_count, level, replicates, seed)
    return _audit(truth, predicted, columns, patterns.rows, options)


@dataclass(frozen=True)
class _Options:
    """The options that both ways to audit share, as :func:`audit` describes them."""

    positive: Hashable
    intersect: bool
    min_count: int
    level: float
    replicates: int
    seed: int


def _audit(
    truth: NDArray[Any],
    predicted: NDArray[Any],
    columns: dict[str, NDArray[Any]],
    rows: NDArray[np.int64],
    options: _Options,
) -> AuditResult:
    """Audit distinct or repeated patterns (P,), of which the file has ``rows`` (P,) each."""
    if options.min_count < 1:
        raise ConfigError(
            f"min_count={options.min_count} is below 1. Pass the smallest group to compare, for example 10."
        )
    warnings: list[str] = []
    if options.intersect:
        if len(columns) < 2:
            raise ConfigError("Crossing groups needs two sensitive columns or more. Name another one.")
        crossed = [" & ".join(parts) for parts in zip(*columns.values(), strict=True)]
        columns[" & ".join(columns)] = np.array(crossed, dtype=object)

    (labels, predictions), classes = encode_together(truth, predicted)
    chosen = _positive_index(classes, options.positive)
    warnings += _class_warnings(labels, predictions, rows, classes)
    by_attribute = {}
    for name, values in columns.items():
        members, groups = encode(values)
        counts = Counts.from_codes(members, labels, predictions, groups, classes, rows)
        by_attribute[name], more = _audit_column(name, counts, chosen, options)
        warnings += more
    compared = group_metrics.classes_compared(len(classes), chosen)
    only = str(classes[compared[0]]) if len(compared) == 1 else None
    return AuditResult(by_attribute, warnings, options.level, only)


def _audit_column(
    column: str, counts: Counts, positive: int | None, options: _Options
) -> tuple[AttributeAudit, list[str]]:
    """Audit one sensitive column; return the figures and the warnings."""
    level, replicates, seed, min_count = options.level, options.replicates, options.seed, options.min_count
    warnings = []
    sizes = dict(zip(counts.groups, counts.group_sizes.tolist(), strict=True))
    kept = [group for group, size in sizes.items() if size >= min_count]
    for group, size in sizes.items():
        if size < min_count:
            members = "1 member" if size == 1 else f"{size} members"
            warnings.append(
                f"{column}: group {str(group)!r} has {members}, fewer than {min_count}, and is left out of the gaps."
            )
    compared = counts.keep(kept)
    metrics = estimate_all(
        compared, positive=positive, level=level, replicates=replicates, seed=seed, min_count=min_count
    )
    # Accuracies do not compare groups: the whole file is what they are about.
    # One pooled group makes them the same for every sensitive column, interval and all.
    pooled = Counts(counts.table.sum(0, keepdims=True), ("all",), counts.classes)
    for name in ("accuracy", "balanced_accuracy"):
        metrics[name] = estimate(pooled, name, positive=positive, level=level, replicates=replicates, seed=seed)
    for name, figure in metrics.items():
        if not figure.defined:
            warnings.append(f"{column}: {name} is undefined: {figure.reason}.")
    left_out, few = _left_out(column, compared, positive, min_count)
    warnings += few
    several = len(group_metrics.classes_compared(len(counts.classes), positive)) > 1
    worst = {}
    if several:
        for name in (key for key in metrics if key in TITLES and key.startswith(("demographic", "equal"))):
            if metrics[name].defined:
                worst[name] = str(counts.classes[worst_class(compared, name, min_count=min_count)])
    groups = {
        str(group): _group_figures(counts, i, positive, left_out.get(group), level)
        for i, group in enumerate(counts.groups)
    }
    return AttributeAudit(metrics, groups, worst), warnings


def _left_out(
    column: str, counts: Counts, positive: int | None, min_count: int
) -> tuple[dict[Hashable, tuple[str, ...]], list[str]]:
    """Say by group which gaps count it out, because too few of its rows have a label; and sentences that name them."""
    enough = Enough.of(counts.table, positive, min_count)
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    labels = [str(label) for label in counts.classes]
    left_out: dict[Hashable, tuple[str, ...]] = {}
    warnings = []
    for i, group in enumerate(counts.groups):
        gaps: list[str] = []
        lacking: list[tuple[str, int, str]] = []  # which rows are few, how many they are, and what they are left out of
        for position, k in enumerate(chosen):
            rows = int(counts.cell_sizes[i, k])
            ending, of_class = (f"[{labels[k]}]", f" of class {labels[k]!r}") if len(chosen) > 1 else ("", "")
            if not enough.found[position, i]:
                gaps += [f"{gap}{ending}" for gap in ("equal_opportunity", "equalized_odds", "equalized_odds_worst")]
                lacking.append((f"label {labels[k]!r}", rows, f"equal opportunity and equalized odds{of_class}"))
            if not enough.alarms[position, i]:
                gaps += [f"{gap}{ending}" for gap in ("equalized_odds", "equalized_odds_worst")]
                others = f"label {labels[1 - k]!r}" if len(labels) == 2 else f"a label other than {labels[k]!r}"
                lacking.append((others, int(counts.group_sizes[i]) - rows, f"equalized odds{of_class}"))
        for label, size, kept in zip(labels, counts.cell_sizes[i], enough.cells[i], strict=True):
            if not kept:
                lacking.append((f"label {label!r}", int(size), "the worst (group, label) accuracy"))
        left_out[group] = tuple(dict.fromkeys(gaps))
        for label, rows in dict.fromkeys((label, rows) for label, rows, _ in lacking):
            count = "no rows" if rows == 0 else "1 row" if rows == 1 else f"{rows} rows"
            figures = " and of ".join(figure for one, _, figure in lacking if one == label)
            warnings.append(
                f"{column}: group {str(group)!r} has {count} with {label}, fewer than {min_count}, and is left out of "
                f"{figures}."
            )
    return left_out, warnings


def _group_figures(
    counts: Counts, i: int, positive: int | None, left_out: tuple[str, ...] | None, level: float
) -> GroupFigures:
    """Return the figures of one group; ``left_out`` None: it is in no gap at all."""
    table = counts.table[i : i + 1]
    chosen = group_metrics.classes_compared(len(counts.classes), positive)
    rates = {"accuracy": proportion(int(np.trace(table[0])), int(table.sum()), level=level)}
    for position, k in enumerate(chosen):
        ending = f"[{counts.classes[k]}]" if len(chosen) > 1 else ""
        for name, count, label in (
            ("selection_rate", group_metrics.selection, "rows"),
            ("true_positive_rate", group_metrics.true_positives, "rows with label"),
            ("false_positive_rate", group_metrics.false_positives, "rows with a label other than"),
        ):
            rate = count(table, positive)
            figure = proportion(int(rate.hits[position, 0]), int(rate.rows[position, 0]), level=level)
            if not figure.defined:
                figure = Estimate.undefined(f"no {label} {str(counts.classes[k])!r}")
            rates[name + ending] = figure
    rows = {str(label): int(size) for label, size in zip(counts.classes, counts.cell_sizes[i], strict=True)}
    return GroupFigures(int(table.sum()), rows, rates, left_out is not None, left_out or ())


def _outcome(values: ArrayLike, what: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"The {what}s have shape {array.shape}. Pass one {what} a row, not scores or one-hot rows.")
    missing = np.flatnonzero(pd.isna(array))
    if len(missing):
        shown = ", ".join(str(row + 1) for row in missing[:5]) + (", ..." if len(missing) > 5 else "")
        plural = "" if len(missing) == 1 else "s"
        raise DataError(
            f"{len(missing)} missing {what}{plural}, first in row {shown} (counted from 1). "
            f"Fill in the {what}s or leave those rows out."
        )
    return array


def _columns(
    features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike], rows: int
) -> dict[str, NDArray[Any]]:
    """Bring every accepted form of sensitive features into named columns of text."""
    if isinstance(features, pd.DataFrame):
        given: dict[str, Any] = {str(name): features[name] for name in features.columns}
    elif isinstance(features, Mapping):
        given = {str(name): values for name, values in features.items()}
    else:
        name = features.name if isinstance(features, pd.Series) else None
        given = {"group" if name is None else str(name): features}
    if not given:
        raise DataError("There is no sensitive column. Pass at least one.")
    columns = {}
    for name, values in given.items():
        array = np.asarray(values)
        if array.ndim != 1 or len(array) != rows:
            raise DataError(
                f"Sensitive column {name!r} has shape {array.shape}, but there are {rows} rows. "
                "Pass one group for every row; several columns go into a frame or a dict."
            )
        codes, names = pd.factorize(array)
        # Code -1 marks missing values and so picks the last name.
        text = np.array([*(str(group) for group in names), MISSING_GROUP], dtype=object)
        columns[name] = text[codes]
    return columns


def _positive_index(classes: list[Hashable], positive: Hashable) -> int | None:
    """Find the positive class by value, or by its text (as a command line passes it)."""
    if positive is None:
        return None
    if positive in classes:
        return classes.index(positive)
    as_text = [str(value) for value in classes]
    if str(positive) in as_text:
        return as_text.index(str(positive))
    raise ConfigError(f"The positive class {positive!r} is not among the classes: {', '.join(as_text)}.")


def _class_warnings(
    labels: NDArray[np.int64], predictions: NDArray[np.int64], rows: NDArray[np.int64], classes: list[Hashable]
) -> list[str]:
    warnings = []
    true_classes, predicted_classes = np.unique(labels), np.unique(predictions)
    if not np.isin(predicted_classes, true_classes).any():
        raise DataError(
            f"No prediction is ever one of the labels: labels are {_some(classes, true_classes)}, predictions "
            f"{_some(classes, predicted_classes)}. Pass predicted classes in the labels' own words, not scores."
        )
    stray = np.setdiff1d(predicted_classes, true_classes)
    if len(stray):
        strays = int(rows[np.isin(predictions, stray)].sum())
        warnings.append(f"{strays} predictions have values that no label has: {_some(classes, stray)}.")
    if len(true_classes) == 1:
        warnings.append(
            f"Every label is {str(classes[true_classes[0]])!r}: gaps that need positives and negatives are undefined."
        )
    return warnings


def _some(classes: list[Hashable], positions: NDArray[np.int64], shown: int = 5) -> str:
    text = ", ".join(repr(classes[position]) for position in positions[:shown])
    return text + (", ..." if len(positions) > shown else "")


def _rate_titles(part: AttributeAudit) -> dict[str, str]:
    """Headings of the rates in the order of the first group."""
    titles = {}
    for key in next(iter(part.groups.values())).rates:
        name, _, ending = key.partition("[")
        titles[key] = RATE_TITLES[name] + (f" [{ending}" if ending else "")
    return titles


def _percent(figure: Estimate) -> str:
    return f"{100 * figure.value:.2f}" if figure.defined else "undefined"


def _interval(figure: Estimate) -> str:
    return f"[{100 * figure.low:.2f}, {100 * figure.high:.2f}]" if figure.defined else ""


def _corrected(figure: Estimate) -> str:
    return "" if figure.corrected is None else f"{100 * figure.corrected:.2f}"
