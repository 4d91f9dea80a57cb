"""Audit scores: how well they order the classes in each group, how well they are calibrated, and every threshold.

A threshold turns scores into decisions. What is said here holds whatever the threshold, or for all of them: a gap at
one threshold can be small because of where the threshold happens to lie.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.scale import AUTO, Scale, find_scale
from levelhead.metrics import Counts, estimate_all
from levelhead.metrics import scores as score_metrics
from levelhead.metrics.between import Differences, mover, normal_quantile, shared
from levelhead.metrics.clustered import FEWEST, ClusteredCounts, Means, means_within
from levelhead.metrics.clustered_scores import ClusteredAreas, ScoredRows, clustered_areas
from levelhead.metrics.contrasts import FEW, Contrasts, Enough
from levelhead.metrics.names import Key, attribute_names, gaps, group_name
from levelhead.metrics.scores import ScoreCounts
from levelhead.metrics.weighted import relied, weighted_estimates
from levelhead.report.record import Finding, as_json
from levelhead.tables.columns import Column
from levelhead.tables.rows import Rows
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import LabelMap, agree, check_labels, in_order
from levelhead.types import ConfigError, DataError, Estimate, listed, printable, quoted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_PAIRS = 190
"""Pairs of groups that are listed, those of 20 groups; of more, the one with the largest difference alone."""
CURVE_POINTS, FEW_POINTS = 101, 21
CLUSTERED = "rows come in clusters"

NOTE = (
    "AUC is the share of pairs of a positive and a negative in which the positive has the higher score; 50% is chance. "
    "Equal AUCs do not mean equal treatment: compare the positives of each group with the negatives of the other, too."
)


@dataclass(frozen=True)
class GroupScores(Finding):
    """One group: how its scores order and how they are calibrated.

    ``area`` is the area under the ROC curve. Where scores are probabilities, ``residual`` is the mean of label less
    score: above 0, the score is too low for this group. ``squared_error`` is the squared calibration error with the
    noise of its bins taken off, ``slope`` and ``intercept`` those of the label on the log odds of the score (1 and 0
    if calibrated). ``roc`` has pairs of false and true positive rate over the thresholds, from strict to lenient.
    ``miscalibrated`` is the residual with an interval that allows for all groups that are compared; None unless the
    interval leaves out 0 and an exact test agrees, with the same allowance, that this is no chance.
    """

    n: int
    positives: int
    included: bool
    area: Estimate
    residual: Estimate
    squared_error: float
    slope: Estimate
    intercept: Estimate
    roc: tuple[tuple[float, float], ...] = ()
    miscalibrated: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        found = super().to_dict()
        error = found.pop("squared_error")
        return {**found, "squared_calibration_error": error}


@dataclass(frozen=True)
class ScorePair(Finding):
    """Two groups compared: differences are the first group's figure less the second's, of ``area`` and ``residual``.

    ``crossed`` are the first group's positives against the second's negatives, and the second's positives against the
    first's negatives; ``crossed_difference`` is the first of these less the second. Intervals of differences hold for
    all pairs together (Bonferroni).
    """

    groups: tuple[str, str]
    area: Estimate
    crossed: tuple[Estimate, Estimate]
    crossed_difference: Estimate
    residual: Estimate


@dataclass(frozen=True)
class GapCurve(Finding):
    """One gap at every threshold: ``thresholds``, ``values``, ``low`` and ``high``, one of each a point.

    The band holds at each threshold by itself, not for all of them at once.
    """

    thresholds: tuple[float, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class AttributeScores(Finding):
    """The figures of one sensitive column, or of a crossing.

    ``groups`` by key; ``pairs`` of the groups compared (with a reference, those with it), first those whose difference
    of areas is decided, largest first; ``area_gap`` is the largest difference of areas over all pairs; ``at`` has the
    figures of each threshold that was asked for, ``curves`` each gap over all thresholds (of more than 32 groups there
    are none).
    """

    groups: dict[Key, GroupScores]
    pairs: tuple[ScorePair, ...]
    area_gap: Estimate
    at: dict[float, dict[str, Estimate]]
    curves: dict[str, GapCurve]
    pairs_in_all: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        kept = ("groups", "area_gap", "pairs", "pairs_in_all", "curves")
        at = [{"threshold": threshold, "metrics": as_json(figures)} for threshold, figures in self.at.items()]
        return {name: as_json(getattr(self, name)) for name in kept} | {"thresholds": at}


@dataclass(frozen=True)
class ScoreAudit:
    """What :func:`audit_scores` found: by sensitive column, as :class:`~levelhead.auditing.result.AuditResult` has it.

    ``positive`` is the class that scores are about; ``probabilities`` says whether the scores are probabilities, so
    that their calibration can be measured; ``scale`` says what they were read as. ``warnings`` are full sentences.
    """

    by_attribute: dict[Key, AttributeScores]
    positive: str
    thresholds: tuple[float, ...]
    probabilities: bool
    exact: bool
    level: float
    scale: Scale
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        names = attribute_names(self.by_attribute)
        return {
            "positive": self.positive,
            "scale": self.scale.name,
            "threshold": self.thresholds[0],
            "read_as": self.scale.sentence(self.thresholds[0]),
            "clipped": self.scale.outside,
            "thresholds": list(self.thresholds),
            "probabilities": self.probabilities,
            "exact": self.exact,
            "by_attribute": {
                names[key]: {**part.to_dict(), "sentences": score_sentences(names[key], part)}
                for key, part in self.by_attribute.items()
            },
        }


def score_sentences(name: str, part: AttributeScores) -> list[str]:
    """Say what the scores show between groups, the largest difference first."""
    if not part.pairs:
        return [f"By {printable(name)}, AUCs cannot be compared: {part.area_gap.reason}."]
    pair = part.pairs[0]  # a decided one, if there is one
    first, second = (quoted(group) for group in pair.groups)
    areas = {group_name(key): group.area for key, group in part.groups.items()}
    values = [areas[group].value for group in pair.groups]
    worse, better = (first, second) if pair.area.value < 0 else (second, first)
    low, high = sorted(values)
    span = sorted((abs(pair.area.low), abs(pair.area.high)))
    if pair.area.low <= 0 <= pair.area.high:
        verdict = f"these rows cannot tell whether the AUCs differ; if they do, by at most {100 * span[1]:.1f} points"
    else:
        verdict = f"{100 * abs(pair.area.value):.1f} points less, interval {100 * span[0]:.1f} to {100 * span[1]:.1f}"
    sentences = [
        f"The score's AUC is {100 * low:.1f}% in group {worse} and {100 * high:.1f}% in group {better}: {verdict}."
    ]
    crossed = pair.crossed_difference
    if crossed.defined and not crossed.low <= 0 <= crossed.high:
        ahead, behind = (first, second) if crossed.value > 0 else (second, first)
        rates = sorted((one.value for one in pair.crossed), reverse=True)
        sentences.append(
            f"Across groups, a positive of {ahead} has the higher score than a negative of {behind} in "
            f"{100 * rates[0]:.1f}% of pairs; the other way round in {100 * rates[1]:.1f}%. The order favours {ahead}."
        )
    wrong = [(quoted(group_name(key)), one.miscalibrated) for key, one in part.groups.items() if one.miscalibrated]
    if wrong:
        group, figure = max(wrong, key=lambda one: abs(one[1].value))
        side = "too low" if figure.value > 0 else "too high"
        ends = sorted((abs(figure.low), abs(figure.high)))
        sentences.append(
            f"For group {group} the score is {side} by {100 * abs(figure.value):.1f} points on average, interval "
            f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}."
        )
    return sentences


class ScoreRows(Rows):
    """Rows with a ``label``, a ``score`` and groups, and perhaps a ``prediction`` and a ``cluster``."""

    @property
    def labels(self) -> dict[Hashable, int]:
        """The labels, with their codes."""
        return self.known["label"]

    def settle(self, wanted: str = AUTO) -> Scale:
        """Check the scores, find their scale (:func:`find_scale`), and keep probabilities between 0 and 1."""
        self.check()
        scale = find_scale((batch["score"] for batch in self.batches()), self.titles["score"], wanted)
        self.parts["score"] = [scale.clip(part) for part in self.parts["score"]]
        return scale

    def ends(self) -> tuple[float, float]:
        """Return the lowest and the highest score."""
        each = [(batch["score"].min(), batch["score"].max()) for batch in self.batches()]
        return float(min(low for low, _ in each)), float(max(high for _, high in each))

    def merge(self, label_map: LabelMap) -> dict[Hashable, Hashable]:
        """Join labels of one class under one of them, and return the class of each that is left.

        Raises:
            DataError: two labels are alike, and the map does not say what they are; or as :meth:`LabelMap.apply`.
        """
        predictions = dict.fromkeys(self.known.get("prediction", ()), 1)
        as_label, _, classes, _ = agree(dict.fromkeys(self.labels, 1), predictions, label_map)
        check_labels(classes, label_map.named)
        first: dict[Hashable, Hashable] = {}
        for label in sorted(self.labels, key=lambda label: str(label) != str(as_label[label])):
            first.setdefault(as_label[label], label)
        if len(first) < len(self.labels):
            kept = {label: at for at, label in enumerate(first.values())}
            codes = np.array([kept[first[as_label[label]]] for label in self.labels], np.int64)
            self.parts["label"] = [codes.astype(part.dtype)[part] for part in self.parts["label"]]
            self.known["label"] = kept
        return {label: as_label[label] for label in self.labels}

    def positive(self, wanted: Hashable, class_of: Mapping[Hashable, Hashable]) -> tuple[Hashable, Hashable]:
        """Return the label that scores are about, and the other; ``class_of`` is what :meth:`merge` returned."""
        labels = {class_of[label]: label for label in self.labels}
        classes = [labels[one] for one in in_order(labels)]
        if len(classes) != 2:
            raise DataError(
                f"{self.titles['label']} has {len(classes)} {'class' if len(classes) == 1 else 'classes'}: "
                f"{listed(classes, 10)}. A score orders two classes; give predicted classes where there are more."
            )
        if wanted is None:
            return classes[1], classes[0]
        meant = [label for label in classes if wanted == label or str(wanted) in (str(label), str(class_of[label]))]
        if not meant:
            raise ConfigError(f"The positive class {quoted(wanted)} is not among the classes: {listed(classes)}.")
        return meant[0], classes[1 - classes.index(meant[0])]

    def decided(
        self,
        found: ScoreAudit,
        wanted: Hashable,
        label_map: LabelMap,
        scores: Sequence[FloatArray] | None = None,
    ) -> Column:
        """Return the classes of scores, these or others, by the scale and the first threshold of ``found``."""
        class_of = self.merge(label_map)
        positive, other = self.positive(wanted, class_of)
        low, high = (0.0, 1.0) if found.scale.probabilities else (-np.inf, np.inf)
        parts = self.parts["score"] if scores is None else scores
        reached = [np.clip(part, low, high) >= found.thresholds[0] for part in parts]
        return np.concatenate(reached).astype(np.int64), [class_of[other], class_of[positive]]

    def check_finite(self) -> None:
        """Raise :class:`DataError` where there are no rows, or a score is missing or infinite."""
        rows, wrong, first = 0, 0, 0
        for batch in self.batches():
            if len(found := np.flatnonzero(~np.isfinite(batch["score"]))):
                first, wrong = first if wrong else rows + int(found[0]) + 1, wrong + len(found)
            rows += len(batch["score"])
        if not rows:
            raise DataError("There are no rows to audit. Pass at least one labelled score.")
        if wrong:
            raise DataError(
                f"{self.titles['score']}: {wrong} scores are missing or not finite, first in row {first} (counted "
                "from 1). Fill them in or leave those rows out."
            )

    def check(self) -> None:
        """Raise :class:`DataError` for scores that are none."""
        self.check_finite()
        decisions = all(
            np.isin(batch["score"][:1000], (0.0, 1.0)).all() and np.isin(batch["score"], (0.0, 1.0)).all()
            for batch in self.batches()
        )
        if decisions and self.ends() == (0.0, 1.0):
            raise DataError(
                f"{self.titles['score']} holds 0 and 1 alone: these are decisions, not scores. Give that column as the "
                "prediction."
            )

    def tally(self, tally: Tally, threshold: float, positive: Hashable, other: Hashable) -> None:
        """Count rows by label, group and prediction: the given one, or whether the score reaches the threshold.

        ``positive`` and ``other`` are classes of predictions.
        """
        for batch in self.batches():
            decided = (batch["score"] >= threshold).astype(np.int64), [other, positive]
            tally.add(
                self.column("label", batch),
                self.column("prediction", batch) if "prediction" in batch else decided,
                {name: self.column(f"group {name}", batch) for name in tally.groups},
                cluster=self.column("cluster", batch) if "cluster" in batch else None,
            )

    def scored(self, positive: Hashable, key: Key, there: Sequence[Key]) -> ScoredRows | None:
        """Return the rows and their clusters, with the place of the group among ``there``; None where none repeats."""
        if not 0 < len(self.known.get("cluster", ())) < len(self):
            return None
        label, score, group = map(np.concatenate, zip(*self.parted(positive, key, there), strict=True))
        return ScoredRows(label, score, group.astype(np.int64), self.whole("cluster").astype(np.int64))

    def parted(
        self, positive: Hashable, key: Key, there: Sequence[Key]
    ) -> Iterator[tuple[NDArray[np.bool_], FloatArray, NDArray[np.int16]]]:
        """Yield label (True for positives), score, and the place of the group among ``there``, some rows at a time."""
        group_of = self.members(key, there)
        for batch in self.batches():
            yield batch["label"] == self.labels[positive], batch["score"], group_of(batch)


def check_thresholds(
    threshold: float | Sequence[float] | None, scored: bool, decided: bool = False
) -> tuple[float, ...]:
    """Return thresholds, each once, in the order given; raise :class:`ConfigError` for what is none.

    ``decided`` says that predicted classes are given.
    """
    given = () if threshold is None else threshold if isinstance(threshold, Sequence) else (threshold,)
    if given and not scored:
        raise ConfigError("A threshold is one of scores: name their column with --score (scores= in Python).")
    if given and decided:
        raise ConfigError(
            "Predictions and a threshold both decide the rows. Leave out the threshold to audit the predictions, or "
            "the predictions to audit decisions at the threshold."
        )
    for one in given:
        if not math.isfinite(one):
            raise ConfigError(f"threshold={one} is not a finite number. Pass one in the units of the score.")
    return tuple(dict.fromkeys(float(one) for one in given))


def audit_scores(
    rows: ScoreRows,
    positive: Hashable,
    thresholds: Sequence[float],
    *,
    scale: Scale,
    groups: Mapping[Key, Sequence[Key]],
    left_out: Callable[[Key], bool],
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    reference: Mapping[str, str] | None = None,
) -> ScoreAudit:
    """Measure what scores show by group.

    Args:
        rows: labels, scores and groups.
        positive: the class that scores are about.
        thresholds: rows with at least this score are decided positive; all gaps are given at each.
        scale: what :meth:`ScoreRows.settle` found.
        groups: the groups of every column and crossing, in their order.
        left_out: whether a group is in no gap.
        min_count: positives, and negatives, that a group needs to be compared.
        level: confidence level of the intervals.
        replicates: bootstrap replicates of the gaps at the thresholds.
        seed: of the bootstrap.
        reference: the group of each column, by its name, that the others are compared with; None: all pairs.

    Returns:
        the figures; what cannot be computed is NaN with a reason.
    """
    low, high = rows.ends()
    warnings = scale.warnings()
    if low == high:
        warnings.append(f"Every score is {low:g}: the scores order nothing.")
    for one in thresholds:
        if not low < one <= high:
            warnings.append(
                f"At threshold {one:g} {'every row is' if one <= low else 'no row is'} decided positive: scores go "
                f"from {low:g} to {high:g}."
            )
    by_attribute, exact, rows_together = {}, True, None
    for key, there in groups.items():
        batches = functools.partial(rows.parted, positive, key, there)
        counts = ScoreCounts.from_batches(batches, len(there), thresholds)
        exact &= counts.exact
        compared = np.array([not left_out(group) for group in groups[key]])
        named = (reference or {}).get(attribute_names(groups)[key])
        rows_together = rows.scored(positive, key, there)
        column = _Column(counts, list(groups[key]), compared, scale, min_count, level, named, rows_together)
        by_attribute[key] = column.audit(thresholds, replicates, seed)
    if rows_together is not None and scale.probabilities:
        warnings.append(
            "With clusters, the slope, intercept and squared error of calibration are left out: they take rows for "
            "independent."
        )
    return ScoreAudit(
        by_attribute,
        str(positive),
        tuple(thresholds),
        scale.probabilities,
        exact,
        level,
        scale,
        tuple(warnings),
    )


@dataclass(frozen=True)
class _Column:
    counts: ScoreCounts
    keys: list[Key]
    compared: NDArray[np.bool_]
    scale: Scale
    min_count: int
    level: float
    reference: str | None = None
    rows: ScoredRows | None = None

    @cached_property
    def areas(self) -> ClusteredAreas:
        """The areas; without clusters none are correlated."""
        if self.rows is not None:
            return clustered_areas(self.counts, self.rows)
        sizes, apart = self.counts.sizes, np.zeros((len(self.keys), len(self.keys)))
        return ClusteredAreas(score_metrics.areas(self.counts), sizes, np.ones(sizes.shape, bool), apart, apart)

    @cached_property
    def means(self) -> Means:
        """Mean of label less score of each group."""
        if self.rows is not None:
            label, score, group, cluster = self.rows
            return means_within(cluster, group, len(self.keys), label - score)
        n = self.counts.sizes.sum(-1)
        return Means(*score_metrics.residuals(self.counts), n - 1.0, n.astype(np.float64), n)

    @property
    def probabilities(self) -> bool:
        return self.scale.probabilities

    @property
    def no_scale(self) -> str:
        outside = self.scale.low < 0 or self.scale.high > 1
        return f"the scores are not probabilities{': some lie outside 0 to 1' if outside else ''}"

    def audit(self, thresholds: Sequence[float], replicates: int, seed: int) -> AttributeScores:
        counts, sizes = self.counts, self.counts.sizes
        included = (sizes >= self.min_count).all(-1) & self.compared & self.areas.enough.all(-1)
        enough = (sizes.sum(-1) >= self.min_count) & self.compared
        if self.rows is not None:
            enough &= self.means.clusters >= FEWEST
        kept = np.flatnonzero(included)
        grid = counts.grid(CURVE_POINTS if enough.sum() <= FEW else FEW_POINTS)
        tables = counts.tables(grid)
        at = {threshold: self._at(threshold, enough, replicates, seed) for threshold in thresholds}
        groups = self._groups(tables, included)
        # A gap at a threshold compares the groups that it compares in an audit's table, rate by rate.
        curves = self._curves(grid, tables[:, enough]) if self.rows is None else self._clustered_curves(enough)
        pairs = list(itertools.combinations(kept.tolist(), 2))
        if not pairs:
            few = f"fewer than two groups have {self.min_count} positives and {self.min_count} negatives"
            few += "" if self.rows is None else f" from {FEWEST} clusters each"
            return AttributeScores(groups, (), Estimate.undefined(few), at, curves, 0)
        found, gap = self._pairs(np.array(pairs))
        if self.reference is not None:
            names = [group_name(key) for key in self.keys]
            place = names.index(self.reference)
            pairs = [(one, place) for one in kept.tolist() if one != place] if included[place] else []
            found = self._pairs(np.array(pairs))[0] if pairs else ()
        return AttributeScores(groups, found, gap, at, curves, len(pairs))

    def _at(self, threshold: float, enough: NDArray[np.bool_], replicates: int, seed: int) -> dict[str, Estimate]:
        """Return the figures of decisions at a threshold, of the groups that have rows ``enough``."""
        names = [group_name(key) for key in self.keys]
        kept = [names[i] for i in np.flatnonzero(enough)]
        if self.rows is None:
            counts = Counts(self.counts.tables([threshold])[0], tuple(names), (0, 1)).keep(kept)
            return estimate_all(
                counts, positive=1, level=self.level, replicates=replicates, seed=seed, min_count=self.min_count
            )
        label, score, group, cluster = self.rows
        clustered = ClusteredCounts.from_rows(cluster, group, label, score >= threshold, names, (0, 1)).keep(kept)
        return weighted_estimates(clustered, positive=1, level=self.level, min_count=self.min_count)

    def _clustered_curves(self, enough: NDArray[np.bool_]) -> dict[str, GapCurve]:
        """Return what :meth:`_curves` does, of rows in clusters, at fewer thresholds."""
        if enough.sum() > FEW:
            return {}
        grid = self.counts.grid(FEW_POINTS)
        found = [self._at(threshold, enough, 0, 0) for threshold in grid.tolist()]
        curves = {}
        for name in gaps():
            if all(one[name].defined for one in found):
                points = np.array([(one[name].value, one[name].low, one[name].high) for one in found]).T.tolist()
                curves[name] = GapCurve(tuple(grid.tolist()), *map(tuple, points))
        return curves

    def _groups(self, tables: IntArray, included: NDArray[np.bool_]) -> dict[Key, GroupScores]:
        counts, level, z = self.counts, self.level, normal_quantile(self.level)
        sizes, rest = counts.sizes, self.areas.sizes
        value, variance, freedom = (np.diagonal(one) for one in self.areas.areas)
        low, high = score_metrics.area_interval(value, variance, freedom, rest[:, 1], rest[:, 0], level)
        low = np.where(self.areas.enough.all(-1), low, np.nan)
        if self.probabilities:
            residual, spread, free = self.means[:3]
            lines = score_metrics.calibration_lines(counts)
            error = score_metrics.squared_calibration_error(counts)
        found = {}
        for i, key in enumerate(self.keys):
            n, positives = int(sizes[i].sum()), int(sizes[i, 1])
            few = f"fewer than {score_metrics.FEWEST} positives or negatives: {positives} and {n - positives}"
            if min(positives, n - positives) >= score_metrics.FEWEST:
                few = f"positives or negatives from fewer than {FEWEST} clusters, or nearly all from one"
            own = Estimate.undefined(few, n)
            if not math.isnan(low[i]):
                own = Estimate(float(value[i]), float(low[i]), float(high[i]), n)
            no_scale = Estimate.undefined(self.no_scale, n)
            mean, slope, intercept, squared, named = no_scale, no_scale, no_scale, math.nan, None
            if self.probabilities:
                short_of = Estimate.undefined(f"{n} rows are too few", n)
                mean = short_of
                if n > 1 and free[i] > 0 and positives not in (0, n):
                    mean = score_metrics.student(float(residual[i]), float(spread[i]), float(free[i]), n, level)
                if included[i]:
                    named = self._miscalibrated(i, float(residual[i]), float(spread[i]), free[i], int(included.sum()))
                slope = intercept = Estimate.undefined(CLUSTERED, n)
                if self.rows is None:
                    slope = _wald(lines.slope[i], lines.slope_error[i], n, z)
                    intercept = _wald(lines.intercept[i], lines.intercept_error[i], n, z)
                    squared = float(error[i])
            rates = tables[:, i, :, 1] / np.maximum(1, tables[:, i].sum(-1))
            roc = [(0.0, 0.0), *map(tuple, rates[::-1].tolist())] if included[i] else []
            found[key] = GroupScores(
                n, positives, bool(included[i]), own, mean, squared, slope, intercept, tuple(dict.fromkeys(roc)), named
            )
        return found

    def _miscalibrated(self, at: int, residual: float, variance: float, freedom: float, groups: int) -> Estimate | None:
        """Return the residual of a group where it is told from 0, with as many groups as are compared allowed for."""
        n, error = int(self.counts.sizes[at].sum()), (1 - self.level) / groups
        found = score_metrics.student(residual, variance, freedom, n, 1 - error)
        if found.low <= 0 <= found.high or score_metrics.calibration_p(self.counts, at) > error:
            return None
        return found

    def _pairs(self, pairs: IntArray) -> tuple[tuple[ScorePair, ...], Estimate]:
        """Return the pairs that are listed, largest difference first, and the largest difference with its interval."""
        area, sizes = self.areas[:2]
        first, second = pairs.T
        level = shared(self.level, len(pairs))

        def ends(g: IntArray, h: IntArray, at: float) -> tuple[FloatArray, FloatArray]:
            return score_metrics.area_interval(
                area.value[g, h], area.variance[g, h], area.freedom[g, h], sizes[g, 1], sizes[h, 0], at
            )

        own = [(area.value[one, one], ends(one, one, level)) for one in (first, second)]
        free = (area.freedom[first, first], area.freedom[second, second])
        difference = own[0][0] - own[1][0]
        low, high = mover(*own[0], *own[1], relied(self.areas.own[first, second], *free))
        n = self.counts.sizes.sum(-1)
        order = Differences(difference, low, high).order
        listed_pairs = order if len(pairs) <= MOST_PAIRS else order[:1]
        top = int(np.argmax(np.abs(difference)))
        away = np.maximum(0, np.maximum(low, -high))  # how far from 0 each interval stays
        value = float(abs(difference[top]))
        widest = Estimate(
            value, float(away.max()), float(np.maximum(np.abs(low), np.abs(high)).max()), int(n[np.unique(pairs)].sum())
        )
        crossed = [(area.value[g, h], ends(g, h, level)) for g, h in ((first, second), (second, first))]
        single = [ends(g, h, self.level) for g, h in ((first, second), (second, first))]
        together = relied(self.areas.crossed[first, second], area.freedom[first, second], area.freedom[second, first])
        crossed_low, crossed_high = mover(*crossed[0], *crossed[1], together)
        found = []
        for at in listed_pairs.tolist():
            i, j = pairs[at]
            rows = int(n[i] + n[j])
            residual = Estimate.undefined(self.no_scale, rows)
            if self.probabilities:
                residual = score_metrics.student(*self.means.difference(i, j), rows, level)
            found.append(
                ScorePair(
                    (group_name(self.keys[i]), group_name(self.keys[j])),
                    Estimate(float(difference[at]), max(-1.0, float(low[at])), min(1.0, float(high[at])), rows),
                    (
                        Estimate(float(crossed[0][0][at]), float(single[0][0][at]), float(single[0][1][at]), rows),
                        Estimate(float(crossed[1][0][at]), float(single[1][0][at]), float(single[1][1][at]), rows),
                    ),
                    Estimate(
                        float(crossed[0][0][at] - crossed[1][0][at]),
                        max(-1.0, float(crossed_low[at])),
                        min(1.0, float(crossed_high[at])),
                        rows,
                    ),
                    residual,
                )
            )
        return tuple(found), widest

    def _curves(self, grid: FloatArray, tables: IntArray) -> dict[str, GapCurve]:
        """Every gap at every threshold, with a band that holds at each threshold by itself."""
        if tables.shape[1] > FEW:  # thousands of pairs at each threshold
            return {}
        enough = Enough.of(tables[0], 1, self.min_count)
        plain, smooth = Contrasts(tables, 1, enough, smooth=False), Contrasts(tables, 1, enough)
        curves = {name: band(name, plain, smooth, self.level) for name in gaps() if enough.classes(name).all()}
        return {
            name: GapCurve(tuple(grid.tolist()), *(tuple(one.tolist()) for one in found))
            for name, found in curves.items()
        }


def band(name: str, plain: Contrasts, smooth: Contrasts, level: float) -> FloatArray:
    """Return value, low and high of a gap for a stack of tables (tables, groups, 2, 2): (3, tables).

    A gap is the largest of signed contrasts. The lower end takes the union bound over all of them; the upper end need
    not, because the largest is at least the one that is truly largest (see :mod:`levelhead.metrics.intervals`).
    """
    kept = plain.enough.contrasts(name)
    delta, variance = (one[..., kept] for one in smooth.contrasts(name))
    spread = np.sqrt(variance)
    critical = float(special.ndtri(shared(level, 2 * kept.sum())))
    low = np.maximum(0, (np.abs(delta) - critical * spread).max(-1))
    high = (np.abs(delta) + normal_quantile(level) * spread).max(-1)
    value = plain.values(name)
    return np.stack([value, np.minimum(low, value), np.clip(high, value, 1)])


def _wald(value: float, error: float, n: int, z: float) -> Estimate:
    if not math.isfinite(value) or not math.isfinite(error):
        return Estimate.undefined(
            "the regression has no solution: one class is missing, or the score separates them", n
        )
    return Estimate(float(value), float(value - z * error), float(value + z * error), n)


__all__ = ["ScoreAudit", "ScoreRows", "audit_scores", "score_sentences"]
