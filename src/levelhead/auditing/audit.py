"""Measure the gaps between groups in a set of predictions, with intervals.

An audit is a finding about these rows and these groups. It is not a verdict: a small measured gap does not make a
model just or lawful, and an interval that holds 0 means that these rows cannot tell, not that there is no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from levelhead.auditing.bins import Bins, Cuts, cuts_of
from levelhead.auditing.continuous import (
    ContinuousGap,
    NumberRows,
    check_degree,
    continuous_sentence,
    continuous_table,
)
from levelhead.auditing.control import LevelCounts, control_tables, controlled
from levelhead.auditing.files import read_batches, read_batches_with_numbers
from levelhead.auditing.finding import ADJUSTED, BONFERRONI, MAX_T, find, references
from levelhead.auditing.frames import audit_frame, draw_rates, named_columns
from levelhead.auditing.numbers import numbers_of_array, numbers_of_column
from levelhead.auditing.own_metrics import Metric, OwnMetric, check_metrics, own_metrics, own_sentence, own_tables
from levelhead.auditing.paired import PairedAudit, PairedRows, compare_rows, matched, read_rows
from levelhead.auditing.rates import MoreRates, more_rates, rate_sentences, rate_table
from levelhead.auditing.scores import ScoreAudit, ScoreRows, audit_scores, check_thresholds, default_threshold
from levelhead.auditing.tally import Column, Tally
from levelhead.auditing.vocabulary import LabelMap, alike, check_predictions, in_order
from levelhead.auditing.weights import OF_WEIGHTS, Weights, check_without, rows_worth, weighted_rates, weights_found
from levelhead.metrics import Counts, estimate, estimate_all, estimate_to_dict, proportion, worst_class
from levelhead.metrics import group as group_metrics
from levelhead.metrics.amplification import Amplification, amplification_sentence, audited_amplification
from levelhead.metrics.contrasts import Enough
from levelhead.metrics.counts import distinct
from levelhead.metrics.names import (
    METRICS,
    MISSING_GROUP,
    NOTE,
    RATE_TITLES,
    Key,
    attribute_names,
    group_name,
    left_out_words,
    metric_title,
)
from levelhead.metrics.weighted import WeightedCounts, weighted_estimates, weighted_worst_class
from levelhead.report.text import counted
from levelhead.terminal import Terminal, notebook_html, plain_text
from levelhead.types import ConfigError, DataError, Estimate, listed, printable, quoted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAVE_OUT, AS_GROUP = "leave out", "group"
"""What becomes of rows without a group."""
ABOUT = ("title", "model", "author", "purpose")
"""What may be said of an audit, for its page."""
RATES_BESIDE, RATES_PRINTED, PAIRS_PRINTED, RANGES_PRINTED, WARNINGS_PRINTED = 4, 40, 10, 6, 10
"""How many rates stand beside each other in a terminal, and how much is printed; JSON and page have all."""


@dataclass(frozen=True)
class GroupFigures:
    """One group: ``n`` rows, ``rows_by_label``, its ``rates`` with intervals, and which gaps count it in.

    ``included``: whether it has rows enough to be in any gap. ``left_out`` names the gaps that count it out, because
    its rate rests on too few rows, each with the class in brackets where several are compared.
    The rates are ``accuracy`` and, for each class that is set against the rest, ``selection_rate``,
    ``true_positive_rate`` and ``false_positive_rate`` (with several classes followed by ``[class]``).
    ``worth`` and ``worth_by_label`` say how many rows of equal weight weighted rows are worth; None without weights.
    """

    n: int
    rows_by_label: dict[str, int]
    rates: dict[str, Estimate]
    included: bool = True
    left_out: tuple[str, ...] = ()
    worth: float | None = None
    worth_by_label: dict[str, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        rates: dict[str, Any] = {name: estimate_to_dict(rate) for name, rate in self.rates.items()}
        out: dict[str, Any] = {"included": self.included, "left_out": list(self.left_out)}
        if self.worth is not None:
            out |= {"worth": self.worth, "worth_by_label": self.worth_by_label}
        return {"n": self.n, **out, "rows_by_label": self.rows_by_label, **rates}


@dataclass(frozen=True)
class AttributeAudit:
    """The figures for one sensitive column, or for the crossing of several.

    ``groups`` has the text of each group for a key; for a crossing, a tuple with a text for each column.
    ``worst_class`` names the class behind each gap where several classes are compared; else it is empty.
    """

    metrics: dict[str, Estimate]
    groups: dict[Key, GroupFigures]
    worst_class: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; the groups lie under their names, and ``values`` are what they are made of."""
        result: dict[str, Any] = {
            "metrics": {name: estimate_to_dict(figure) for name, figure in self.metrics.items()},
            "groups": {
                group_name(group): {"values": _listed(group), **figures.to_dict()}
                for group, figures in self.groups.items()
            },
        }
        if self.worst_class:
            result["worst_class"] = self.worst_class
        return result


@dataclass(frozen=True)
class AuditResult:
    """What :func:`audit` found.

    ``by_attribute`` has the figures of every sensitive column, and those of the crossing under the tuple of their
    names; ``metrics`` and ``groups`` are those of the first.
    ``warnings`` are full sentences. Figures are fractions. ``positive`` is the class that selection, true and false
    positive rates are about; None where every class is set against the rest. ``more`` has what else was measured, by
    name and JSON-able: it stands in the JSON beside ``by_attribute``, where tables and pages find it. ``scores`` has
    what scores show whatever the threshold, and ``against`` the changes from another model on the same rows; None where
    they were not asked for. ``rates`` has ratios, precision and balanced error by sensitive column, where one class is
    positive; ``continuous`` the gaps along columns of numbers; ``amplification`` says by sensitive column whether
    predictions go further in the direction that the labels have; ``own_metrics`` has the metrics that were
    passed in, by sensitive column and name.

    Examples:
        >>> import levelhead as lh
        >>> labels, predictions, groups = [1, 0] * 50, [1, 0, 1, 1] * 25, ["a", "a", "b", "b"] * 25
        >>> result = lh.audit(labels, predictions, sensitive_features={"sex": groups})
        >>> sorted(result.groups), result.groups["b"].n
        (['a', 'b'], 50)
        >>> list(result.by_attribute)
        ['sex']
    """

    by_attribute: dict[Key, AttributeAudit]
    warnings: list[str]
    level: float = 0.95
    positive: str | None = None
    more: dict[str, Any] = field(default_factory=dict)
    scores: ScoreAudit | None = None
    against: PairedAudit | None = None
    rates: dict[Key, MoreRates] = field(default_factory=dict)
    continuous: dict[str, ContinuousGap] = field(default_factory=dict)
    amplification: dict[Key, Amplification] = field(default_factory=dict)
    own_metrics: dict[Key, dict[str, OwnMetric]] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, Estimate]:
        """Metrics for the first sensitive column."""
        return next(iter(self.by_attribute.values())).metrics

    @property
    def groups(self) -> dict[Key, GroupFigures]:
        """Groups of the first sensitive column."""
        return next(iter(self.by_attribute.values())).groups

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict: ``metrics``, ``groups``, ``by_attribute``, ``warnings``, ``level``, ``positive``.

        Undefined figures are null with a ``reason``. A crossing lies under the names of its ``columns``, joined by
        " & ", and so do its groups; parts that hold that sign themselves are in quotes.
        """
        names, along = attribute_names(self.by_attribute), list(self.continuous.items())
        by_attribute = {
            names[attribute]: {"columns": _listed(attribute), **part.to_dict()}
            for attribute, part in self.by_attribute.items()
        }
        first = next(iter(by_attribute.values()))
        return {
            **first,
            "by_attribute": by_attribute,
            "warnings": list(self.warnings),
            "level": self.level,
            "positive": self.positive,
            **self.more,
            **({} if self.scores is None else {"scores": self.scores.to_dict()}),
            **({} if self.against is None else {"against": self.against.to_dict()}),
            "rates": {names[key]: _with(rate_sentences(names[key], one), one) for key, one in self.rates.items()},
            "amplification": {
                names[key]: {"sentences": [amplification_sentence(names[key], one)], **one.to_dict()}
                for key, one in self.amplification.items()
            },
            **(
                {"continuous": {name: _with([continuous_sentence(name, one)], one) for name, one in along}}
                if along
                else {}
            ),
            **(
                {
                    "own_metrics": {
                        names[key]: {
                            name: {"sentences": [own_sentence(names[key], name, one)], **one.to_dict()}
                            for name, one in own.items()
                        }
                        for key, own in self.own_metrics.items()
                    }
                }
                if self.own_metrics
                else {}
            ),
        }

    def to_html(self) -> str:
        """Return one standalone HTML page: no scripts, nothing loaded from elsewhere (docs/report.md)."""
        from levelhead.auditing.page import audit_page
        from levelhead.report import render  # pages know audits, so an audit can know pages only when it makes one

        return render(audit_page(self.to_dict()))

    @property
    def _note(self) -> str:
        if self.positive is None:
            return NOTE
        shown = self.more.get("words", {}).get("classes", {}).get(self.positive, self.positive)
        return f"Positive class: {printable(shown)}. {NOTE}"

    def table(self) -> Group:
        """Return tables that ``rich`` can print."""
        names = attribute_names(self.by_attribute)
        shown: list[RenderableType] = _found(self)
        shown += [
            block
            for place, (attribute, name) in enumerate(names.items())
            for block in _attribute_tables(name, self.by_attribute[attribute], self.level, first=place == 0)
        ]
        for tables in TABLES:
            shown += tables(self)
        return Group(*shown, Text(self._note))

    def __str__(self) -> str:
        return plain_text(self.table())

    def _repr_html_(self) -> str:
        """Return the tables as a notebook shows them."""
        return notebook_html(self.table())

    def to_frame(self) -> pd.DataFrame:
        """Return every figure as a row: attribute, group, figure, value, low, high, n, reason; fractions."""
        return audit_frame(self)

    def plot(self, attribute: str | None = None, rates: Sequence[str] | None = None) -> Figure:
        """Return a matplotlib figure of the groups' rates (:func:`levelhead.auditing.frames.draw_rates`)."""
        return draw_rates(self, attribute, rates)


def _attribute_tables(name: str, part: AttributeAudit, level: float, *, first: bool) -> list[RenderableType]:
    """Return the tables of one sensitive column: its gaps, and its groups. They fit 80 columns."""
    said = "Corrected: less what the largest of noisy differences is too large by, on average."
    metrics = Table(title=Text(f"Gaps by {printable(name)}"), title_justify="left")
    if first:
        metrics.caption, metrics.caption_justify = Text(said), "left"
    for heading in ("Metric", "%", f"{100 * level:g}% interval", "Corrected", "Rows"):
        words = heading == "Metric"
        metrics.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    for key, figure in part.metrics.items():
        metrics.add_row(
            Text(metric_title(key, part.worst_class.get(key))),
            _percent(figure),
            _interval(figure),
            _corrected(figure),
            f"{figure.n:,}",
        )
    return [metrics, *_group_tables(name, part)]


def _group_tables(name: str, part: AttributeAudit) -> list[RenderableType]:
    """Return the rates of the groups, with at most four of them beside each other.

    Of many classes those come first that a gap was found in, and not all are printed.
    """
    titles, worst = list(_rate_titles(part).items()), set(part.worst_class.values())
    many = len(titles) > RATES_PRINTED
    if many:
        titles.sort(key=lambda one: "[" in one[0] and one[0].partition("[")[2].removesuffix("]") not in worst)
    hidden = len(titles[RATES_PRINTED:])
    titles = titles[:RATES_PRINTED]
    tables: list[RenderableType] = []
    weighted = any(figures.worth is not None for figures in part.groups.values())
    wide = RATES_BESIDE - weighted
    for start in range(0, len(titles), wide):
        beside = titles[start : start + wide]
        table = Table(title=Text(f"Groups of {printable(name)}"), title_justify="left", show_lines=False)
        table.add_column("Group", overflow="fold", min_width=9)
        table.add_column("Rows", justify="right", no_wrap=True)
        if weighted:
            table.add_column("Worth", justify="right", no_wrap=True)
        for _, title in beside:
            table.add_column(Text(printable(title)), justify="right", overflow="fold", min_width=9)
        for group, figures in part.groups.items():
            mark = "" if figures.included and not figures.left_out else " *" if figures.included else " **"
            label = printable(group_name(group)) + mark
            rates = [figures.rates[key] for key, _ in beside]
            cells = [f"{_percent(rate)}\n{_span(rate)}".strip() for rate in rates]
            worth = [] if figures.worth is None else [rows_worth(figures.worth)]
            table.add_row(Text(label), f"{figures.n:,}", *worth, *cells)
        outs = dict.fromkeys(left_out_words(one.included, one.left_out) for one in part.groups.values())
        marks = {left_out_words(True, ["some"]): "*", left_out_words(False, []): "**"}
        if any(outs):
            table.caption = Text("; ".join(f"{marks[out]} {out}" for out in outs if out))
            table.caption_justify = "left"
        tables.append(table)
    if many:
        tables.append(Text(f"And {counted(hidden, 'more rate')} of other classes: in the JSON and on the page."))
    return tables


def _found(result: AuditResult) -> list[RenderableType]:
    """Return the headline and the sentences below it, which stand above all tables."""
    from levelhead.report.sentences import audit_sentences

    sentences = audit_sentences(result.to_dict())
    return [Text(sentence, style="bold" if place == 0 else "") for place, sentence in enumerate(sentences)]


def _pairs_table(result: AuditResult) -> list[RenderableType]:
    """Return the largest differences between groups, where there are more pairs than one; and ranges beside chance."""
    from levelhead.report.sentences import range_sentence

    pairs, shown = result.more.get("pairs", []), []
    if len({(pair["attribute"], *sorted(pair[side]["group"] for side in ("first", "second"))) for pair in pairs}) > 1:
        count = result.more["finding"]["comparisons"]
        table = Table(
            title=Text("The largest differences between two groups, in points"),
            title_justify="left",
            caption=Text(
                f"Intervals allow for all {count:,} comparisons ({ADJUSTED[result.more['finding']['adjust']]})."
            ),
            caption_justify="left",
        )
        for heading in ("Rate", "Groups", "Points", "Interval"):
            words = heading in ("Rate", "Groups")
            table.add_column(heading, justify="left" if words else "right", no_wrap=not words, overflow="fold")
        for pair in pairs[:PAIRS_PRINTED]:
            figure = pair["difference"]
            several = f" [{printable(pair['class'])}]" if result.positive is None else ""
            table.add_row(
                Text(RATE_TITLES[pair["rate"]] + several),
                Text(f"{printable(pair['first']['group'])} less {printable(pair['second']['group'])}"),
                f"{100 * figure['value']:+.1f}",
                f"[{100 * figure['low']:+.1f}, {100 * figure['high']:+.1f}]",
            )
        shown.append(table)
    return [*shown, *(Text(range_sentence(one)) for one in result.more.get("ranges", [])[:RANGES_PRINTED])]


def _detectable(result: AuditResult) -> list[RenderableType]:
    """Return which gaps these rows could have shown."""
    from levelhead.report.sentences import detectable_sentences

    return [Text(sentence) for sentence in detectable_sentences(result.more)]


def _warnings(result: AuditResult) -> list[RenderableType]:
    return [*warning_lines(result.warnings)]


def warning_lines(warnings: Sequence[str]) -> list[Text]:
    """Return the first warnings as a terminal shows them, and how many more there are."""
    shown = [Text(f"Warning: {warning}") for warning in warnings[:WARNINGS_PRINTED]]
    if rest := len(warnings) - len(shown):
        shown.append(Text(f"And {rest:,} more warnings like these: they are in the JSON and on the page."))
    return shown


def _with(sentences: list[str], part: MoreRates | ContinuousGap) -> dict[str, Any]:
    return {"sentences": sentences, **part.to_dict()}


def _rates(result: AuditResult) -> list[RenderableType]:
    """The tables of ratios where a reference was named; else only what the four-fifths rule says."""
    names, shown = attribute_names(result.by_attribute), list[RenderableType]()
    for key, part in result.rates.items():
        shown += [rate_table(names[key], part, result.level)] if part.chosen else []
        shown += map(Text, rate_sentences(names[key], part))
    return [*shown, *continuous_table(result.continuous)]


def _control(result: AuditResult) -> list[RenderableType]:
    return [*control_tables(result.more["control"])] if "control" in result.more else []


def _own_metrics(result: AuditResult) -> list[RenderableType]:
    names = attribute_names(result.by_attribute)
    return [table for key, own in result.own_metrics.items() for table in own_tables(names[key], own, result.level)]


def _scores(result: AuditResult) -> list[RenderableType]:
    return [] if result.scores is None else [*result.scores.tables()]


def _against(result: AuditResult) -> list[RenderableType]:
    return [] if result.against is None else [*result.against.tables()]


TABLES: list[Callable[[AuditResult], list[RenderableType]]] = [
    _control,
    _pairs_table,
    _against,
    _rates,
    _own_metrics,
    _scores,
    _warnings,
    _detectable,
]
"""What is printed below the tables of the sensitive columns, in this order. Each function returns nothing where the
audit has nothing of its kind; it finds its figures in ``AuditResult.more``."""


def audit(
    y_true: ArrayLike,
    y_pred: ArrayLike | None = None,
    *,
    sensitive_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike],
    scores: ArrayLike | None = None,
    threshold: float | Sequence[float] | None = None,
    against: ArrayLike | None = None,
    without: ArrayLike | None = None,
    continuous: Mapping[str, ArrayLike] | pd.DataFrame | None = None,
    sample_weight: ArrayLike | None = None,
    control_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike] | None = None,
    positive: Hashable = None,
    intersect: bool = False,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    bins: Bins | Sequence[str] | None = None,
    missing: str = LEAVE_OUT,
    reference: Sequence[str] | str | None = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    positive_name: str | None = None,
    about: Mapping[str, str] | None = None,
    adjust: str = BONFERRONI,
    metrics: Mapping[str, Metric] | None = None,
    gedi: int | None = None,
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
            first. None: 0.5 for probabilities, 0 for log odds.
        against: (rows,) predicted classes of another model for the same rows, in the same order: how each figure
            differs from that model's, and which groups gained and lost, are in ``result.against``.
        without: (rows,) predicted classes of a model that does not use the sensitive features, where ``y_pred`` are
            those of one that does: ``result.against`` then says for which groups the use of them makes it worse.
        continuous: columns of numbers, such as ages, (rows,) each: how decisions change along them, without cutting
            them into groups, is in ``result.continuous``.
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
        reference: the group that the others are compared with, as ``Male`` or ``sex=Male``; several are a list. Only
            the pairs with it are named; the largest gaps stay those over all pairs.
        label_map: which class of the predictions each label stands for, as ``{">50K": 1, "<=50K": 0}``.
        positive_name: the positive class in words, for sentences: a verb ("earns over 50K") or a noun ("light hair").
        about: title, model, author and purpose, for the page and the JSON.
        adjust: how intervals of pairs allow for each other: "bonferroni", or "max-t", which is never wider
            (:func:`~levelhead.metrics.pairs.comparisons_by_max_t`).
        metrics: metrics of your own by name, each called as ``f(y_true, y_pred)`` on the rows of a group, or as
            ``f(y_true, scores)`` where only scores are passed; in ``result.own_metrics``. Their intervals resample
            rows, which is slower than counting (:mod:`levelhead.auditing.own_metrics`).
        gedi: degree of GeDI, to be reported along ``continuous`` columns as well.

    Returns:
        the figures. What cannot be computed is NaN with a reason, and a warning.

    Raises:
        DataError: no rows, unequal lengths, missing labels or predictions; predictions that share no value with the
            labels, would match one only if it were written differently, or are scores; more classes or groups than
            can be compared; a group column of more than 20 numbers without ``bins``; or two sensitive columns of one
            name.
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
    options = _Options(
        positive, intersect, min_count, level, replicates, seed, missing, reference, LabelMap(label_map),
        positive_name, about_of(about), name_of(y_true), adjust,
    )  # fmt: skip
    thresholds = check_thresholds(threshold, scores is not None)
    if metrics is not None:
        check_metrics(metrics)
    _check_gedi(gedi, continuous is not None)
    if sample_weight is not None:
        check_without(
            {
                "metrics=": metrics,
                "scores=": scores,
                "against=": against,
                "without=": without,
                "continuous=": continuous,
                "control_features=": control_features,
            }
        )
    if y_pred is None and scores is None:
        raise ConfigError("There is nothing to audit: pass y_pred, predicted classes, or scores=.")
    label = outcome_of(y_true, "label")
    rows = len(label[0])
    prediction = None if y_pred is None else outcome_of(y_pred, "prediction")
    if prediction is not None and rows != len(prediction[0]):
        raise DataError(f"{rows} labels and {len(prediction[0])} predictions. Pass one of each for every row.")
    if not rows:
        raise DataError("There are no rows to audit. Pass at least one labelled prediction.")
    columns = columns_of(sensitive_features, rows)
    options.check(len(columns))
    levels = {} if control_features is None else _levels_of(control_features, rows)
    _check_control(list(levels), list(columns), prediction is not None)
    both = columns | levels
    cuts, titles = cuts_of(bins, list(both)), {name: column_title(name) for name in both}
    for name, cut in cuts.items():
        if cut.quantiles:
            cut.find([both[name]], titles[name])
        both[name] = cut.cut(both[name], titles[name])
    columns = {name: both[name] for name in columns}
    of_levels = {name: titles.pop(name) for name in levels}
    if scores is not None:
        values_of_scores = numbers_of_array(scores, "The score")
        if len(values_of_scores) != rows:
            raise DataError(f"{rows} labels and {len(values_of_scores)} scores. Pass one of each for every row.")
        of_scores = ScoreRows("The label", "The score", "The prediction", titles, intersect)
        of_scores.add(label, values_of_scores, columns, prediction)
        result = _audit_scores(of_scores, thresholds, options, cuts)
    else:
        assert prediction is not None  # or there was nothing to audit
        tally = Tally("The label", "The prediction", titles, intersect, frozenset(cuts))
        weights = None
        if sample_weight is None:
            tally.add(label, prediction, columns)
        else:
            weights = Weights("sample_weight", name_of(sample_weight, "sample_weight"))
            values = numbers_of_array(sample_weight, "sample_weight", OF_WEIGHTS)
            if len(values) != rows:
                raise DataError(f"{rows} labels and {len(values)} weights. Pass one of each for every row.")
            _add_weighted(tally, weights, values, label, prediction, columns)
            weights.check()
        result = _audit(tally, options, cuts, weights)
    if levels and prediction is not None:
        within = _control_tallies(("The label", "The prediction"), titles, of_levels, intersect, frozenset(cuts))
        for tally in within.values():
            tally.add(label, prediction, {name: both[name] for name in tally.groups})
        result = _controlled(result, within, tuple(levels), options, cuts)
    if continuous is not None:
        given = named_columns(continuous) or dict(continuous)
        along = NumberRows([str(name) for name in given])
        numbers = {str(name): numbers_of_array(one, f"The column {quoted(name)}") for name, one in given.items()}
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
    if against is not None and without is not None:
        raise ConfigError("against= and without= both name another model: pass one of them.")
    name, against = ("against=", against) if without is None else ("without=", without)
    if against is None:
        return result
    if prediction is None:
        raise ConfigError(f"{name} compares predicted classes: pass y_pred as well.")
    other = outcome_of(against, "prediction of the other model")
    if len(other[0]) != rows:
        raise DataError(f"{rows} labels and {len(other[0])} predictions of the other model. Pass one for every row.")
    new, old = (PairedRows.of(label, one, columns, titles) for one in (prediction, other))
    if without is not None:
        return _compared(result, new, old, options, ("without", "with"), personal=True)
    return _compared(result, new, old, options)


def audit_file(
    path: Path | str,
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
    bins: Bins | Sequence[str] | None = None,
    missing: str = LEAVE_OUT,
    reference: Sequence[str] | str | None = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    positive_name: str | None = None,
    about: Mapping[str, str] | None = None,
    adjust: str = BONFERRONI,
    gedi: int | None = None,
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
        on: name of a column of ids, by which the rows of the two files are matched. None: by their order.
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
    names, path = list(dict.fromkeys(groups)), Path(path)
    options = _Options(
        positive, intersect, min_count, level, replicates, seed, missing, reference, LabelMap(label_map),
        positive_name, about_of(about), label, adjust,
    )  # fmt: skip
    options.check(len(names))
    thresholds = check_thresholds(threshold, score is not None)
    _check_gedi(gedi, bool(continuous))
    if weight is not None:
        check_without(
            {
                "a score": score,
                "another model to compare with": against if without is None else without,
                "a continuous column": tuple(continuous),
                "a control column": tuple(control),
            }
        )
    if prediction is None and score is None:
        raise ConfigError("There is nothing to audit: name the column of predicted classes, or that of scores.")
    if against is not None and prediction is None:
        raise ConfigError("A comparison with another model is one of predicted classes: name their column as well.")
    if without is not None and (
        against is not None or prediction is None or score is not None or without == prediction
    ):
        raise ConfigError(
            "A model without the groups is compared with predicted classes of one with them, in another column of the "
            "same file: leave out scores and other files."
        )
    if on is not None and against is None:
        raise ConfigError("Ids match the rows of two files: name the other file with --against, or leave out --on.")
    outcomes = [name for name in (label, prediction) if name is not None]
    of_score = [one for one in (score, weight) if one is not None]  # columns of numbers; never both
    # A column may be cut into groups and looked at as a number, too.
    numbers = [*of_score, *(name for name in dict.fromkeys(continuous) if name not in (*names, *of_score))]
    levels = list(dict.fromkeys(control))
    _check_control(levels, names, prediction is not None)
    titles = {name: f"{path}, column {quoted(name)}" for name in (*outcomes, *numbers, *names, *levels)}
    of_groups = {name: titles[name] for name in names}
    decided = titles[outcomes[1] if prediction is not None else of_score[0]]
    along = NumberRows(list(dict.fromkeys(continuous)))
    cuts = cuts_of(bins, [*names, *levels])
    for name, cut in cuts.items():
        if cut.quantiles:  # they need all values of the column before the first row is counted
            cut.find((batch[name] for batch in read_batches(path, [], [name])), titles[name])

    def cut_column(name: str, column: Column) -> Column:
        return cuts[name].cut(column, titles[name]) if name in cuts else column

    tally = Tally(titles[label], decided, of_groups, intersect, frozenset(cuts))
    weights = None if weight is None else Weights(titles[weight], weight)
    of_scores = None if score is None else ScoreRows(titles[label], titles[score], decided, of_groups, intersect)
    of_levels = {name: titles[name] for name in levels}
    within = _control_tallies((titles[label], decided), of_groups, of_levels, intersect, frozenset(cuts))
    for batch, values in read_batches_with_numbers(path, outcomes, [*names, *levels], numbers):
        columns = {name: cut_column(name, batch[name]) for name in names}
        predicted = None if prediction is None else batch[prediction]
        if of_scores is not None and score is not None:
            of_scores.add(batch[label], values[score], columns, predicted)
        elif predicted is not None and weights is not None:
            _add_weighted(tally, weights, values[weights.name], batch[label], predicted, columns)
        elif predicted is not None:
            tally.add(batch[label], predicted, columns)
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
        _audit(tally, options, cuts, weights)
        if of_scores is None
        else _audit_scores(of_scores, thresholds, options, cuts)
    )
    if within:
        result = _controlled(result, within, tuple(levels), options, cuts)
    if along.names:
        if prediction is None and of_scores is not None and result.scores is not None:
            along.decide(of_scores.scores >= result.scores.thresholds[0], str(result.positive))
        result = _along(result, along, options, gedi)
    if without is not None and prediction is not None:
        new, old = (read_rows(path, label, one, names, None, cut_column) for one in (prediction, without))
        return _compared(result, new, old, options, names=(without, prediction), personal=True)
    if against is None or prediction is None:
        return result
    new, old = (read_rows(one, label, prediction, names, on, cut_column) for one in (path, Path(against)))
    return _compared(result, new, old, options, names=(Path(against).name, path.name))


def _audit_scores(
    rows: ScoreRows, thresholds: tuple[float, ...], options: _Options, cuts: Mapping[str, Cuts]
) -> AuditResult:
    """Audit the decisions at the first threshold, or the given predictions, and what scores show beside them."""
    rows.check()
    positive, other = rows.positive(options.positive, options.label_map.targets)
    thresholds = thresholds or (default_threshold(*rows.ends()),)
    result = _audit(
        rows.tally(thresholds[0], positive, other, frozenset(cuts)), replace(options, positive=positive), cuts
    )
    groups = {key: list(part.groups) for key, part in result.by_attribute.items()}
    scores = audit_scores(
        rows,
        positive,
        thresholds,
        groups={key: [*members] for key, members in groups.items()},
        left_out=options.leaves_out,
        min_count=options.min_count,
        level=options.level,
        replicates=options.replicates,
        seed=options.seed,
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
    options: _Options,
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


def _along(result: AuditResult, rows: NumberRows, options: _Options, gedi: int | None) -> AuditResult:
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
    options: _Options,
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
    said = [one for one in compared.warnings if one not in result.warnings]
    return replace(result, against=compared, warnings=[*result.warnings, *said])


@dataclass(frozen=True)
class _Options:
    """The options that both ways to audit share, as :func:`audit` describes them."""

    positive: Hashable
    intersect: bool
    min_count: int
    level: float
    replicates: int
    seed: int
    missing: str = LEAVE_OUT
    reference: Sequence[str] | str | None = None
    label_map: LabelMap = field(default_factory=lambda: LabelMap(None))
    positive_name: str | None = None
    about: Mapping[str, str] = field(default_factory=dict)
    label: str = "label"
    adjust: str = BONFERRONI

    def leaves_out(self, group: Key) -> bool:
        """Whether no gap compares a group, because it stands for rows without one."""
        return self.missing == LEAVE_OUT and MISSING_GROUP in _listed(group)

    def check(self, columns: int) -> None:
        """Raise an error, before anything is counted, if there are too few columns or an option is out of range."""
        check_grouping(columns, self.min_count, self.intersect, self.missing)
        if self.adjust not in (BONFERRONI, MAX_T):
            raise ConfigError(f"adjust={quoted(self.adjust)} is unknown. Pass {BONFERRONI!r} or {MAX_T!r}.")
        if self.positive_name is not None and not self.positive_name.strip():
            raise ConfigError("The positive class's name is empty. Write a verb or a noun, or leave it out.")


def check_grouping(columns: int, min_count: int, intersect: bool, missing: str, *, fewest: int = 1) -> None:
    """Raise an error if there are too few columns, or an option about groups is out of range."""
    if not columns:
        raise DataError("There is no sensitive column. Pass at least one.")
    if min_count < fewest:
        raise ConfigError(
            f"min_count={min_count} is below {fewest}. Pass the smallest group to compare, for example 10."
        )
    if intersect and columns < 2:
        raise ConfigError("Crossing groups needs two sensitive columns or more. Name another one.")
    if missing not in (LEAVE_OUT, AS_GROUP):
        raise ConfigError(f"missing={quoted(missing)} is unknown. Pass {LEAVE_OUT!r} or {AS_GROUP!r}.")


def about_of(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return what is said of an audit, in the order of :data:`ABOUT`; errors name what is unknown."""
    unknown = [name for name in given or {} if name not in ABOUT]
    if unknown:
        raise ConfigError(f"about has {quoted(unknown[0])}. Known: {listed(ABOUT)}.")
    return {name: str((given or {})[name]) for name in ABOUT if (given or {}).get(name)}


def name_of(values: object, otherwise: str = "label") -> str:
    """Return the name of a pandas or polars column; else ``otherwise``."""
    name = getattr(values, "name", None)
    return name if isinstance(name, str) and name else otherwise


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


def _vocabulary(
    tally: Tally, options: _Options
) -> tuple[Mapping[Hashable, Hashable], Mapping[Hashable, Hashable], list[Hashable], int | None, list[str]]:
    """Return the class of each label and of each prediction, all classes, the positive one's place, and warnings."""
    labelled, predicted = tally.labels, tally.predictions
    as_label: Mapping[Hashable, Hashable] = {value: value for value in labelled}
    as_prediction: Mapping[Hashable, Hashable] = {value: value for value in predicted}
    positive = options.positive
    if options.label_map:
        as_label, as_prediction = options.label_map.apply(labelled, predicted)
        labelled, predicted = _merged(labelled, as_label), _merged(predicted, as_prediction)
        positive = options.label_map.targets.get(str(positive), positive) if positive is not None else None
    warnings = check_predictions(labelled, predicted)
    # Labels first: where a prediction is the same number in another type, the label says how it is written.
    classes = in_order({**labelled, **predicted})
    chosen = positive_index(classes, positive)
    return as_label, as_prediction, classes, chosen, warnings


def _levels_of(features: Any, rows: int) -> dict[str, Column]:
    """Bring control features into named columns."""
    if not isinstance(features, (pd.DataFrame, Mapping)):
        table = named_columns(features)
        named = table is None and getattr(features, "name", None) is not None
        features = features if named else {"control": features} if table is None else table
    return columns_of(features, rows)


def _check_control(levels: Sequence[str], groups: Sequence[str], decided: bool) -> None:
    """Raise an error where gaps within the levels of a column cannot be what is meant."""
    if clash := [name for name in levels if name in groups]:
        raise ConfigError(
            f"{quoted(clash[0])} is a group column and a control column: within its levels there is one group only. "
            "Leave it out of one of them."
        )
    if levels and not decided:
        raise ConfigError(
            "Gaps within levels compare predicted classes, not scores: name predictions (--prediction, in Python "
            "y_pred) as well, or leave out the control column."
        )


def _control_tallies(
    outcomes: tuple[str, str],
    groups: Mapping[str, str],
    levels: Mapping[str, str],
    intersect: bool,
    numbered: frozenset[str],
) -> dict[Key, Tally]:
    """Return a tally of each sensitive column, and of their crossing, crossed with the levels; none without levels."""
    if not levels:
        return {}
    keys: list[Key] = [*groups, *([tuple(groups)] if intersect else [])]
    return {
        key: Tally(*outcomes, {name: groups[name] for name in _listed(key)} | dict(levels), True, numbered)
        for key in keys
    }


def _controlled(
    result: AuditResult,
    tallies: Mapping[Key, Tally],
    levels: tuple[str, ...],
    options: _Options,
    cuts: Mapping[str, Cuts],
) -> AuditResult:
    """Add the gaps within the levels of the control columns."""
    names, warnings = attribute_names(result.by_attribute), list(result.warnings)
    columns: list[LevelCounts] = []
    for key, tally in tallies.items():
        as_label, as_prediction, classes, positive, _ = _vocabulary(tally, options)
        place = {value: position for position, value in enumerate(classes)}
        parts = len(_listed(key))
        patterns = {
            pattern: rows
            for pattern, rows in tally.counts[(*_listed(key), *levels)].items()
            if isinstance(pattern[2], tuple) and None not in pattern[2][parts:]  # crossings are always tuples
        }
        without = sum(tally.labels.values()) - sum(patterns.values())
        if without and not columns:
            warnings.append(
                f"{printable(group_name(levels if len(levels) > 1 else levels[0]))}: {counted(without, 'row')} "
                f"{'has' if without == 1 else 'have'} no level and {'is' if without == 1 else 'are'} left out of what "
                "is compared within levels."
            )
        if not patterns:
            raise DataError(f"No row has a level of {listed(levels)}. Name another control column, or leave it out.")
        crossed = [pattern[2] for pattern in patterns if isinstance(pattern[2], tuple)]
        own: list[Hashable] = [one[0] if isinstance(key, str) else one[:parts] for one in crossed]
        its: list[Hashable] = [one[parts] if len(levels) == 1 else one[parts:] for one in crossed]
        group_codes, groups = ordered_groups(own, key, cuts)
        level_codes, there = ordered_groups(its, levels[0] if len(levels) == 1 else levels, cuts)
        table = np.zeros((len(there), len(groups), len(classes), len(classes)), np.int64)
        labels = np.array([place[as_label[pattern[0]]] for pattern in patterns])
        predictions = np.array([place[as_prediction[pattern[1]]] for pattern in patterns])
        np.add.at(table, (level_codes, group_codes, labels, predictions), list(patterns.values()))
        kept = [at for at, group in enumerate(groups) if not options.leaves_out(group)]
        columns.append(
            LevelCounts(
                names[key],
                table[:, kept],
                tuple(map(group_name, there)),
                tuple(group_name(groups[at]) for at in kept),
                tuple(map(str, classes)),
            )
        )
    found = controlled(
        columns,
        group_name(levels if len(levels) > 1 else levels[0]),
        positive=positive,
        min_count=options.min_count,
        level=options.level,
        reference=result.more.get("reference", {}),
    )
    return replace(result, warnings=warnings, more={**result.more, "control": found})


def _audit(tally: Tally, options: _Options, cuts: Mapping[str, Cuts], weights: Weights | None = None) -> AuditResult:
    as_label, as_prediction, classes, chosen, warnings = _vocabulary(tally, options)
    if weights is not None:
        warnings += weights.sentences()
    place = {value: position for position, value in enumerate(classes)}
    names = attribute_names(tally.counts)
    counted, members = {}, {}
    weighted: dict[Key, WeightedCounts] = {}
    for attribute, patterns in tally.counts.items():
        codes, groups = ordered_groups([group for _, _, group in patterns], attribute, cuts)
        labels = np.array([place[as_label[pattern[0]]] for pattern in patterns])
        predictions = np.array([place[as_prediction[pattern[1]]] for pattern in patterns])
        rows = np.fromiter(patterns.values(), np.int64, len(patterns))
        if isinstance(attribute, str) and (attribute not in cuts or cuts[attribute].values):
            warnings += alike(attribute, "groups", groups)
        texts = [group_name(group) for group in groups]
        counted[attribute] = Counts.from_codes(codes, labels, predictions, texts, classes, rows)
        members[attribute] = groups
        if weights is not None:
            sums = np.array([tally.weights[attribute][pattern] for pattern in patterns])
            tables = np.zeros((2, *counted[attribute].table.shape))
            for table, part in zip(tables, sums.T, strict=True):
                np.add.at(table, (codes, labels, predictions), part)
            weighted[attribute] = WeightedCounts(counted[attribute], *tables)
    chosen_references = references(options.reference, members)
    by_attribute, compared, missing = {}, {}, []
    for attribute, counts in counted.items():
        name, groups = names[attribute], members[attribute]
        absent = [group for group in groups if MISSING_GROUP in _listed(group)]
        if absent:
            rows_without = int(counts.keep([group_name(group) for group in absent]).n)
            left_out = options.missing == LEAVE_OUT
            missing.append(
                {"attribute": name, "rows": rows_without, "share": rows_without / counts.n, "left_out": left_out}
            )
            warnings.append(_missing_sentence(missing[-1], counts.n))
        by_attribute[attribute], compared[name], more = _audit_column(
            name,
            groups,
            counts,
            chosen,
            options,
            absent if options.missing == LEAVE_OUT else [],
            weighted.get(attribute),
        )
        warnings += more
    pooled = next(iter(counted.values()))
    pooled = Counts(pooled.table.sum(0, keepdims=True), ("all",), pooled.classes)
    compared_classes = group_metrics.classes_compared(len(classes), chosen)
    only = str(classes[compared_classes[0]]) if len(compared_classes) == 1 else None
    reference = {names[attribute]: group_name(group) for attribute, group in chosen_references.items()}
    for name, group in reference.items():
        if group not in compared[name].groups:
            warnings.append(
                f"{printable(name)}: the reference group {quoted(group)} is left out of the gaps, so that no pair with "
                "it is compared."
            )
    found = find(
        compared,
        pooled,
        next(iter(by_attribute.values())).metrics["balanced_accuracy"],
        positive=chosen,
        min_count=options.min_count,
        level=options.level,
        seed=options.seed,
        reference=reference,
        weighted={names[attribute]: one.keep(compared[names[attribute]].groups) for attribute, one in weighted.items()},
        adjust=options.adjust,
    )
    words: dict[str, Any] = {"label": options.label, "order": [str(value) for value in classes]}
    if options.positive_name:
        words["positive"] = options.positive_name
    if options.label_map:
        words["classes"] = options.label_map.shown
    more_found: dict[str, Any] = {**found, "words": words}
    if weights is not None:
        more_found["weights"] = weights_found(weights, next(iter(weighted.values())), classes)
    if missing:
        more_found["missing"] = missing
    if reference:
        more_found["reference"] = reference
    if options.about:
        more_found["about"] = dict(options.about)
    if weights is not None:  # what follows knows unweighted rows alone; the weights' sentence says so
        return AuditResult(by_attribute, warnings, options.level, only, more_found)
    amplified = {}
    for attribute, counts in counted.items():
        kept = [group_name(group) for group in members[attribute] if not options.leaves_out(group)]
        words_of = tuple(str(value) for value in classes)
        amplified[attribute] = audited_amplification(
            counts.keep(kept).table, tuple(kept), words_of, level=options.level
        )
    rates = {} if only is None else _more_rates(counted, members, chosen_references, compared_classes[0], options)
    return AuditResult(by_attribute, warnings, options.level, only, more_found, rates=rates, amplification=amplified)


def _more_rates(
    counted: Mapping[Key, Counts],
    members: Mapping[Key, Sequence[Key]],
    chosen: Mapping[Key, Key],
    positive: int,
    options: _Options,
) -> dict[Key, MoreRates]:
    """Return ratios, precision and balanced error by column, to its reference where one was named."""
    found = {}
    for attribute, counts in counted.items():
        groups = [group for group in members[attribute] if not options.leaves_out(group)]
        reference = chosen.get(attribute)
        found[attribute] = more_rates(
            counts.keep([group_name(group) for group in groups]),
            groups,
            positive,
            reference=None if reference is None else group_name(reference),
            min_count=options.min_count,
            level=options.level,
            replicates=options.replicates,
            seed=options.seed,
        )
    return found


def _merged(rows: Mapping[Hashable, int], as_class: Mapping[Hashable, Hashable]) -> dict[Hashable, int]:
    """Return the rows of each class, of rows by what is written."""
    merged: dict[Hashable, int] = {}
    for value, count in rows.items():
        merged[as_class[value]] = merged.get(as_class[value], 0) + count
    return merged


def _missing_sentence(one: Mapping[str, Any], rows: int) -> str:
    where = f"{printable(one['attribute'])}: {one['rows']:,} of {rows:,} rows ({100 * one['share']:.1f}%)"
    if one["left_out"]:
        return f"{where} have no group and are left out of the gaps; with --missing group they are a group."
    return f"{where} have no group and are compared as the group {MISSING_GROUP}."


def ordered_groups(
    members: list[Hashable], attribute: Key, cuts: Mapping[str, Cuts]
) -> tuple[NDArray[np.int64], list[Key]]:
    """Sort groups, part by part in a crossing; return the codes of ``members`` and the groups."""
    parts = [group if isinstance(group, tuple) else (group,) for group in members]
    ordered = [
        cuts[column].names if column in cuts and not cuts[column].values else in_order(set(values) - {None})
        for column, values in zip(_listed(attribute), zip(*parts, strict=True), strict=True)
    ]
    ranks = [{value: rank for rank, value in enumerate([*values, None])} for values in ordered]
    order = sorted(set(parts), key=lambda group: [rank[part] for rank, part in zip(ranks, group, strict=True)])
    place = {group: position for position, group in enumerate(order)}
    texts = [tuple(MISSING_GROUP if part is None else str(part) for part in group) for group in order]
    crossed = isinstance(members[0], tuple)
    return np.array([place[group] for group in parts]), [group if crossed else group[0] for group in texts]


def _audit_column(
    column: str,
    keys: Sequence[Key],
    counts: Counts,
    positive: int | None,
    options: _Options,
    absent: Sequence[Key],
    weighted: WeightedCounts | None = None,
) -> tuple[AttributeAudit, Counts, list[str]]:
    """Audit one sensitive column, or a crossing, without the gaps of the ``absent`` groups.

    Returns the figures, by the ``keys`` of the groups, the counts that gaps compare, and warnings.
    """
    level, replicates, seed, min_count = options.level, options.replicates, options.seed, options.min_count
    warnings = []
    sizes = dict(zip(counts.groups, counts.group_sizes.tolist(), strict=True))
    unknown = {group_name(group) for group in absent}
    kept = [group for group, size in sizes.items() if size >= min_count and group not in unknown]
    for group, size in sizes.items():
        if size < min_count and group not in unknown:
            members = "1 member" if size == 1 else f"{size} members"
            warnings.append(
                f"{printable(column)}: group {quoted(str(group))} has {members}, fewer than {min_count}, and is "
                "left out of the gaps."
            )
    compared = counts.keep(kept)
    if weighted is not None:
        own = weighted.keep(kept)
        metrics = weighted_estimates(own, positive=positive, level=level, min_count=min_count)
        whole = weighted_estimates(weighted.pooled(), positive=positive, level=level, min_count=0)
    else:
        metrics = estimate_all(
            compared, positive=positive, level=level, replicates=replicates, seed=seed, min_count=min_count
        )
    # Accuracies do not compare groups: the whole file is what they are about.
    # One pooled group makes them the same for every sensitive column, interval and all.
    pooled = Counts(counts.table.sum(0, keepdims=True), ("all",), counts.classes)
    for name in ("accuracy", "balanced_accuracy"):
        metrics[name] = (
            estimate(pooled, name, positive=positive, level=level, replicates=replicates, seed=seed)
            if weighted is None
            else whole[name]
        )
    for name, figure in metrics.items():
        if not figure.defined:
            warnings.append(f"{printable(column)}: {name} is undefined: {figure.reason}.")
    left_out, few = _left_out(column, compared, positive, min_count)
    warnings += few
    several = len(group_metrics.classes_compared(len(counts.classes), positive)) > 1
    worst = {}
    if several:
        for name in (key for key in metrics if key in METRICS and METRICS[key].kind == "gap"):
            if metrics[name].defined:
                of_class = (
                    worst_class(compared, name, min_count=min_count)
                    if weighted is None
                    else weighted_worst_class(own, name, positive, min_count)
                )
                worst[name] = str(counts.classes[of_class])
    groups = {
        key: _group_figures(counts, i, positive, left_out.get(counts.groups[i]), level, weighted)
        for i, key in enumerate(keys)
    }
    return AttributeAudit(metrics, groups, worst), compared, warnings


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
            ending, of_class = (f"[{labels[k]}]", f" of class {quoted(labels[k])}") if len(chosen) > 1 else ("", "")
            if not enough.rates["true_positive_rate"][position, i]:
                without, words = _gaps_of("true_positive_rate")
                gaps += [f"{gap}{ending}" for gap in without]
                lacking.append((f"label {quoted(labels[k])}", rows, f"{words}{of_class}"))
            if not enough.rates["false_positive_rate"][position, i]:
                without, words = _gaps_of("false_positive_rate")
                gaps += [f"{gap}{ending}" for gap in without]
                others = (
                    f"label {quoted(labels[1 - k])}" if len(labels) == 2 else f"a label other than {quoted(labels[k])}"
                )
                lacking.append((others, int(counts.group_sizes[i]) - rows, f"{words}{of_class}"))
        for label, size, kept in zip(labels, counts.cell_sizes[i], enough.cells[i], strict=True):
            if not kept:
                lacking.append((f"label {quoted(label)}", int(size), "the worst (group, label) accuracy"))
        left_out[group] = tuple(dict.fromkeys(gaps))
        for label, rows in dict.fromkeys((label, rows) for label, rows, _ in lacking):
            count = "no rows" if rows == 0 else "1 row" if rows == 1 else f"{rows} rows"
            figures = " and of ".join(figure for one, _, figure in lacking if one == label)
            warnings.append(
                f"{printable(column)}: group {quoted(str(group))} has {count} with {label}, fewer than {min_count}, "
                f"and is left out of {figures}."
            )
    return left_out, warnings


def _gaps_of(rate: str) -> tuple[list[str], str]:
    """Return the gaps that compare a rate, by name and in words."""
    gaps = [metric for metric in METRICS.values() if rate in metric.rates_used]
    words = dict.fromkeys(metric.subject.partition(" (")[0] for metric in gaps)
    return [metric.name for metric in gaps], " and ".join(words)


def _group_figures(
    counts: Counts,
    i: int,
    positive: int | None,
    left_out: tuple[str, ...] | None,
    level: float,
    weighted: WeightedCounts | None = None,
) -> GroupFigures:
    """Return the figures of one group; ``left_out`` None: it is in no gap at all."""
    rows = {str(label): int(size) for label, size in zip(counts.classes, counts.cell_sizes[i], strict=True)}
    if weighted is not None:
        by_label = dict(zip(rows, weighted.cell_worth[i].tolist(), strict=True))
        rates = weighted_rates(weighted, i, positive, level)
        of_group = left_out is not None, left_out or ()
        return GroupFigures(sum(rows.values()), rows, rates, *of_group, float(weighted.worth[i]), by_label)
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
                figure = Estimate.undefined(f"no {label} {quoted(str(counts.classes[k]))}")
            rates[name + ending] = figure
    return GroupFigures(int(table.sum()), rows, rates, left_out is not None, left_out or ())


def outcome_of(values: ArrayLike, what: str) -> Column:
    """Return codes and values of a column of labels or predictions; a missing value is an error."""
    codes, names = distinct(values, f"The {what} column")
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        shown = ", ".join(str(row + 1) for row in missing[:5]) + (", ..." if len(missing) > 5 else "")
        plural = "" if len(missing) == 1 else "s"
        raise DataError(
            f"{len(missing)} missing {what}{plural}, first in row {shown} (counted from 1). "
            f"Fill in the {what}s or leave those rows out."
        )
    return codes, names


def columns_of(
    features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike], rows: int
) -> dict[str, Column]:
    """Bring every accepted form of sensitive features into named columns."""
    if isinstance(features, pd.DataFrame):
        given: list[tuple[Any, Any]] = [(name, features.iloc[:, at]) for at, name in enumerate(features.columns)]
    elif isinstance(features, Mapping):
        given = list(features.items())
    elif (named := named_columns(features)) is not None:
        given = list(named.items())
    else:
        name = getattr(features, "name", None)
        given = [("group" if name is None else name, features)]
    columns: dict[str, Column] = {}
    for key, values in given:
        name = str(key)
        if name in columns:
            raise DataError(f"Two sensitive columns are named {quoted(name)}. Rename or remove one of them.")
        codes, names = distinct(values, column_title(name))
        if len(codes) != rows:
            raise DataError(
                f"Sensitive column {quoted(name)} has shape {codes.shape}, but there are {rows} rows. "
                "Pass one group for every row; several columns go into a frame or a dict."
            )
        # Code -1 marks missing values.
        columns[name] = np.where(codes < 0, len(names), codes), [*names, None]
    return columns


def column_title(name: str) -> str:
    """Return what errors call a sensitive column."""
    return f"The sensitive column {quoted(name)}"


def positive_index(classes: list[Hashable], positive: Hashable) -> int | None:
    """Find the positive class by value, or by its text (as a command line passes it)."""
    if positive is None:
        return None
    if positive in classes:
        return classes.index(positive)
    as_text = [str(value) for value in classes]
    if str(positive) in as_text:
        return as_text.index(str(positive))
    raise ConfigError(f"The positive class {quoted(positive)} is not among the classes: {listed(as_text)}.")


def _rate_titles(part: AttributeAudit) -> dict[str, str]:
    """Headings of the rates in the order of the first group."""
    titles = {}
    for key in next(iter(part.groups.values())).rates:
        name, _, ending = key.partition("[")
        titles[key] = RATE_TITLES[name] + (f" [{ending}" if ending else "")
    return titles


def _listed(key: Key) -> list[str]:
    return [key] if isinstance(key, str) else list(key)


def _percent(figure: Estimate) -> str:
    return f"{100 * figure.value:.1f}" if figure.defined else "undefined"


def _interval(figure: Estimate) -> str:
    return f"[{100 * figure.low:.1f}, {100 * figure.high:.1f}]" if figure.defined else ""


def _span(figure: Estimate) -> str:
    return f"{100 * figure.low:.1f}–{100 * figure.high:.1f}" if figure.defined else ""


def _corrected(figure: Estimate) -> str:
    return "" if figure.corrected is None else f"{100 * figure.corrected:.1f}"
