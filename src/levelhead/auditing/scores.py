"""Audit scores: how well they order the classes in each group, how well they are calibrated, and every threshold.

A threshold turns scores into decisions. What is said here holds whatever the threshold, or for all of them: a gap at
one threshold can be small because of where the threshold happens to lie.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.engine import Pair, Quantity, compare
from levelhead.auditing.options import AuditOptions
from levelhead.auditing.part import Answer, Frame, Part
from levelhead.auditing.scale import Scale, exact
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics import Counts, estimate_all, separation
from levelhead.metrics import scores as score_metrics
from levelhead.metrics.between import Differences, mover, normal_quantile, shared
from levelhead.metrics.clustered import FEWEST, ClusteredCounts, Means, means_within
from levelhead.metrics.clustered_scores import ClusteredAreas, ScoredRows, clustered_areas
from levelhead.metrics.contrasts import FEW, Contrasts, Enough
from levelhead.metrics.names import Key, by_names, gaps, group_name
from levelhead.metrics.scores import ScoreCounts
from levelhead.metrics.weighted import relied, weighted_estimates
from levelhead.report import wide
from levelhead.report.record import Finding, as_json
from levelhead.report.sentences import gap_words, named_group
from levelhead.report.text import Record, percent, percent_ends
from levelhead.report.wide import Fraction
from levelhead.types import Estimate, printable

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CURVE_POINTS, FEW_POINTS = 101, 21
CLUSTERED = "rows come in clusters"
NO_LINE = "the regression has no solution: one class is missing, or the score separates them"


@dataclass(frozen=True)
class GroupScores(Finding):
    """One group: how its scores order and how they are calibrated.

    ``area`` is the area under the ROC curve. Where scores are probabilities, ``residual`` is the mean of label less
    score: above 0, the score is too low for this group. ``slope`` and ``intercept`` are those of the label on the log
    odds of the score (1 and 0 if calibrated). ``kolmogorov_smirnov`` and ``gini`` (2 AUC - 1) say how far scores
    separate the classes, ``brier`` how far they are off.
    ``miscalibrated`` is the residual with an interval that allows for all groups that are compared; None unless the
    interval leaves out 0 and an exact test agrees, with the same allowance, that this is no chance.
    """

    n: int
    positives: int
    included: bool
    area: Estimate
    residual: Estimate
    slope: Estimate
    intercept: Estimate
    kolmogorov_smirnov: Estimate
    gini: Estimate
    brier: Estimate
    miscalibrated: Estimate | None = None


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

    The band holds at each threshold alone, not for all of them at once.
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
    figures of each threshold that was requested, and ``curves`` each gap over all thresholds (of more than 32 groups
    there are none).
    """

    groups: dict[Key, GroupScores]
    pairs: tuple[ScorePair, ...]
    area_gap: Estimate
    at: dict[float, dict[str, Estimate]]
    curves: dict[str, GapCurve]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        kept = ("groups", "area_gap", "pairs", "curves")
        at = [{"threshold": threshold, "metrics": as_json(figures)} for threshold, figures in self.at.items()]
        return {name: as_json(getattr(self, name)) for name in kept} | {"thresholds": at}


@dataclass(frozen=True)
class ScoreAudit(Answer):
    """What scores show: by sensitive column, as :class:`~levelhead.auditing.result.AuditResult` has it.

    ``positive`` is the class that scores are about; ``scale`` says what they were read as: calibration is measured of
    probabilities alone.
    """

    by_attribute: dict[Key, AttributeScores]
    positive: str
    thresholds: tuple[float, ...]
    scale: Scale

    def figures(self) -> Iterator[tuple[str, Key | None, str, Estimate]]:
        """Yield areas, calibration, differences of groups, and the gaps at each threshold but the first."""
        for name, part in by_names(self.by_attribute).items():
            yield name, None, Fraction("area_gap"), part.area_gap
            for threshold in self.thresholds[1:]:
                for gap, one in part.at[threshold].items():
                    yield name, None, Fraction(f"{gap}@{exact(threshold)}"), one
            for group, found in part.groups.items():
                calibration = (Fraction("residual"), "slope", "intercept") if self.scale.probabilities else ()
                brier = (Fraction("brier"),) if self.scale.probabilities else ()
                every = Fraction("area"), *calibration, Fraction("kolmogorov_smirnov"), Fraction("gini"), *brier
                yield from ((name, group, figure, getattr(found, figure)) for figure in every)
            for pair in part.pairs:
                both = wide.Pair(*pair.groups)
                yield name, both, Fraction("area_difference"), pair.area
                yield name, both, Fraction("crossed_area_difference"), pair.crossed_difference
                if self.scale.probabilities:
                    yield name, both, Fraction("residual_difference"), pair.residual

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {
            "positive": self.positive,
            "scale": self.scale.name,
            "threshold": self.thresholds[0],
            "read_as": self.scale.sentence(self.thresholds[0]),
            "clipped": self.scale.outside,
            "thresholds": list(self.thresholds),
            "probabilities": self.scale.probabilities,
            "by_attribute": {
                name: {**part.to_dict(), "sentences": score_sentences(name, part)}
                for name, part in by_names(self.by_attribute).items()
            },
        }


def score_sentences(name: str, part: AttributeScores) -> list[str]:
    """Say what the scores show between groups: gaps at further thresholds, then the largest difference first."""
    gaps = {threshold: found["equalized_odds_worst"] for threshold, found in list(part.at.items())[1:]}
    more = [
        f"By {printable(name)}, at threshold {exact(threshold)}, the larger part of the equalized-odds gap is "
        f"{percent(gap)} points, interval {percent_ends(gap)}."
        for threshold, gap in gaps.items()
        if gap.defined
    ]
    if not part.pairs:
        small = "the reference group has too few positives or negatives"  # the largest gap is then of other groups
        return [*more, f"By {printable(name)}, AUCs cannot be compared: {part.area_gap.reason or small}."]
    pair = part.pairs[0]  # a decided one, if there is one
    first, second = (named_group(name, group) for group in pair.groups)
    areas = {group_name(key): percent(group.area) for key, group in part.groups.items()}
    one, other = (areas[group] for group in pair.groups)
    sentences = [*more, f"The score's AUC is {one}% for {first} and {other}% for {second}: {gap_words(pair.area)}."]
    crossed = pair.crossed_difference
    if crossed.excludes_zero:
        ahead, behind = (first, second) if crossed.value > 0 else (second, first)
        rates = sorted((one.value for one in pair.crossed), reverse=True)
        sentences.append(
            f"Across groups, a positive of {ahead} scores higher than a negative of {behind} in "
            f"{100 * rates[0]:.1f}% of pairs, and vice versa in {100 * rates[1]:.1f}%. The order favours {ahead}."
        )
    wrong = [
        (named_group(name, group_name(key)), one.miscalibrated) for key, one in part.groups.items() if one.miscalibrated
    ]
    if wrong:
        group, figure = max(wrong, key=lambda one: abs(one[1].value))
        side = "too low" if figure.value > 0 else "too high"
        ends = sorted((abs(figure.low), abs(figure.high)))
        sentences.append(
            f"For {group} the score is {side} by {100 * abs(figure.value):.1f} points on average, interval "
            f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}."
        )
    return sentences


class Scores(Part):
    """What scores show by group, whatever the threshold."""

    name = "scores"
    needs = ("score",)
    keeps = ("label", "score", "prediction", "cluster", "groups")

    @classmethod
    def brief(cls, result: Record) -> list[str]:
        """Return the gaps at further thresholds by each column, and its largest difference of areas."""
        found = result.get(cls.name) or {"by_attribute": {}}
        return [one for own in found["by_attribute"].values() for one in own["sentences"][: len(found["thresholds"])]]

    def find(self, frame: Frame) -> ScoreAudit:
        """Return the figures; what cannot be computed is NaN with a reason."""
        rows, scale, options, thresholds = frame.rows, frame.scale, frame.options, frame.thresholds
        assert isinstance(rows, ScoreRows)
        assert scale is not None
        low, high = rows.ends()
        warnings = scale.warnings()
        if low == high:
            warnings.append(f"Every score is {low:g}: the scores carry no order.")
        for one in thresholds:
            if not low < one <= high:
                warnings.append(
                    f"At threshold {one:g} {'every row is' if one <= low else 'no row is'} decided positive: scores go "
                    f"from {low:g} to {high:g}."
                )
        by_attribute, rows_together = {}, None
        for key, there in frame.groups.items():
            batches = functools.partial(rows.parted, frame.label, key, there)
            counts = ScoreCounts.from_batches(batches, len(there), thresholds)
            compared = np.array([not options.leaves_out(group) for group in there])
            rows_together = rows.scored(frame.label, key, there)
            reference = frame.references.get(frame.names[key])
            column = _Column(counts, list(there), compared, scale, options, reference, rows_together)
            by_attribute[key] = column.audit(thresholds)
        if rows_together is not None and scale.probabilities:
            warnings.append(
                "With clusters, slope and intercept of calibration are left out: they assume independent rows."
            )
        frame.warnings.extend(warnings)
        return ScoreAudit(by_attribute, str(frame.label), tuple(thresholds), scale)


@dataclass(frozen=True)
class _Column:
    counts: ScoreCounts
    keys: list[Key]
    compared: NDArray[np.bool_]
    scale: Scale
    options: AuditOptions
    reference: str | None = None
    rows: ScoredRows | None = None

    @property
    def level(self) -> float:
        return self.options.level

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

    def audit(self, thresholds: Sequence[float]) -> AttributeScores:
        counts, sizes = self.counts, self.counts.sizes
        least = max(self.options.min_count, score_metrics.FEWEST)  # fewer have no AUC to compare
        included = (sizes >= least).all(-1) & self.compared & self.areas.enough.all(-1)
        enough = (sizes.sum(-1) >= self.options.min_count) & self.compared
        if self.rows is not None:
            enough &= self.means.clusters >= FEWEST
        grid = counts.grid(CURVE_POINTS if enough.sum() <= FEW else FEW_POINTS)
        tables = counts.tables(grid)
        at = {threshold: self._at(threshold, enough) for threshold in thresholds}
        groups = self._groups(included)
        # A gap at a threshold compares the groups that it compares in an audit's table, rate by rate.
        curves = self._curves(grid, tables, enough)
        few = f"fewer than two groups have {least} positives and {least} negatives"
        few += "" if self.rows is None else f" from {FEWEST} clusters each"
        pairs, gap = self._pairs(np.flatnonzero(included))
        return AttributeScores(groups, pairs, gap or Estimate.undefined(few), at, curves)

    def _at(self, threshold: float, enough: NDArray[np.bool_]) -> dict[str, Estimate]:
        """Return the figures of decisions at a threshold, of the groups that have rows ``enough``."""
        names = [group_name(key) for key in self.keys]
        kept = [names[i] for i in np.flatnonzero(enough)]
        if self.rows is None:
            counts = Counts(self.counts.tables([threshold])[0], tuple(names), (0, 1)).keep(kept)
            drawn: dict[str, Any] = {"replicates": self.options.replicates, "seed": self.options.seed}
            return estimate_all(counts, positive=1, level=self.level, min_count=self.options.min_count, **drawn)
        label, score, group, cluster = self.rows
        clustered = ClusteredCounts.from_rows(cluster, group, label, score >= threshold, names, (0, 1)).keep(kept)
        return weighted_estimates(clustered, positive=1, level=self.level, min_count=self.options.min_count)

    def _groups(self, included: NDArray[np.bool_]) -> dict[Key, GroupScores]:
        sizes, every = self.counts.sizes, np.arange(len(self.keys))
        value, ends = self._ends(every, every, self.level)
        known = self.areas.enough.all(-1) & ~np.isnan(ends[0])
        area = Differences(*(np.where(known, part, np.nan) for part in (value, *ends)))
        slope = intercept = apart = off = Differences(*np.full((3, len(every)), np.nan))
        why = CLUSTERED if self.probabilities else self.no_scale
        if self.rows is None:
            apart = separation.kolmogorov_smirnov(self.counts, self.level)
        if self.probabilities and self.rows is None:
            lines, why = score_metrics.calibration_lines(self.counts), NO_LINE
            off = separation.brier(self.counts).means(0, self.level, skewed=True)
            slope, intercept = (_wald(*one, self.level) for one in (lines[:2], lines[2:4]))
        found = {}
        for i, key in enumerate(self.keys):
            n, positives = int(sizes[i].sum()), int(sizes[i, 1])
            few = f"fewer than {score_metrics.FEWEST} positives or negatives: {positives} and {n - positives}"
            if min(positives, n - positives) >= score_metrics.FEWEST:
                few = f"positives or negatives from fewer than {FEWEST} clusters, or nearly all from one"
            mean, named = Estimate.undefined(f"{n} rows are too few" if self.probabilities else self.no_scale, n), None
            if self.probabilities and n > 1 and self.means.freedom[i] > 0 and positives not in (0, n):
                mean = self._residual(i, self.level)
                named = self._miscalibrated(i, int(included.sum())) if included[i] else None
            one = area.at(i, n, few)
            unlike = str(one.reason) if self.rows is None else CLUSTERED
            found[key] = GroupScores(
                n, positives, bool(included[i]), one, mean, slope.at(i, n, why), intercept.at(i, n, why),
                apart.at(i, n, unlike), _gini(one), off.at(i, n, why), named,
            )  # fmt: skip
        return found

    def _residual(self, at: int, level: float) -> Estimate:
        """Return the mean of label less score of a group."""
        value, variance, freedom = (float(part[at]) for part in self.means[:3])
        return score_metrics.student(value, variance, freedom, int(self.counts.sizes[at].sum()), level)

    def _miscalibrated(self, at: int, groups: int) -> Estimate | None:
        """Return the residual of a group where it differs measurably from 0, adjusted for the number of groups."""
        level = shared(self.level, groups)
        found = self._residual(at, level)
        if not found.excludes_zero or score_metrics.calibration_p(self.counts, at) > 1 - level:
            return None
        return found

    def _ends(
        self, first: IntArray, second: IntArray, level: float
    ) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """Return areas of the first groups' positives and the second groups' negatives, and their ends at a level."""
        at, sizes = (first, second), self.areas.sizes
        value, variance, freedom = (part[at] for part in self.areas.areas)
        return value, score_metrics.area_interval(value, variance, freedom, sizes[first, 1], sizes[second, 0], level)

    def _between(
        self, one: tuple[IntArray, IntArray], other: tuple[IntArray, IntArray], together: FloatArray, level: float
    ) -> Differences:
        """Return the differences of two areas as :meth:`_ends` takes them, which are correlated, at a level."""
        areas = [self._ends(*pair, level) for pair in (one, other)]
        freedom = [self.areas.areas.freedom[pair] for pair in (one, other)]
        return Differences(areas[0][0] - areas[1][0], *mover(*areas[0], *areas[1], relied(together, *freedom)))

    def _pairs(self, kept: IntArray) -> tuple[tuple[ScorePair, ...], Estimate | None]:
        """Return the pairs to name, and the largest difference of all pairs; None without any."""
        names, n = [group_name(self.keys[at]) for at in kept.tolist()], self.counts.sizes.sum(-1)

        def apart(first: IntArray, second: IntArray, *, level: float, comparisons: int) -> Differences:
            i, j = kept[first], kept[second]
            return self._between((i, i), (j, j), self.areas.own[i, j], shared(level, comparisons))

        value = np.diagonal(self.areas.areas.value)[kept]
        every = Quantity("", "area", names, value, n[kept], apart)
        found = compare([replace(every, reference=self.reference)], level=self.level)
        level = shared(self.level, found.comparisons)
        pairs = tuple(
            self._pair(pair, [kept[[names.index(side.group)]] for side in (pair.first, pair.second)], level)
            for pair in found.pairs
        )
        first, second = every.pairs
        if not len(first):
            return pairs, None
        value, low, high = every.apart(first, second, level=self.level, comparisons=len(first))
        away, reach = np.maximum(0, np.maximum(low, -high)), np.maximum(np.abs(low), np.abs(high))
        gap = Estimate(float(np.abs(value).max()), float(away.max()), float(reach.max()), int(n[kept].sum()))
        return pairs, gap

    def _pair(self, pair: Pair, at: Sequence[IntArray], level: float) -> ScorePair:
        """Return a pair of areas with the other figures of both groups, whose places are ``at``, (1,) each."""
        (i, j), rows = at, pair.difference.n
        crossed = []
        for one in ((i, j), (j, i)):
            value, ends = self._ends(*one, self.level)
            crossed.append(Differences(value, *ends).at(0, rows))
        difference = self._between((i, j), (j, i), self.areas.crossed[i, j], level).at(0, rows)
        residual = Estimate.undefined(self.no_scale, rows)
        if self.probabilities:
            residual = score_metrics.student(*self.means.difference(int(i[0]), int(j[0])), rows, level)
        return ScorePair(
            (pair.first.group, pair.second.group), pair.difference.within(-1, 1), (crossed[0], crossed[1]),
            difference.within(-1, 1), residual,
        )  # fmt: skip

    def _curves(self, grid: FloatArray, tables: IntArray, enough: NDArray[np.bool_]) -> dict[str, GapCurve]:
        """Every gap at every threshold, with a band that holds at each threshold alone."""
        if enough.sum() > FEW:  # thousands of pairs at each threshold
            return {}
        if self.rows is None:
            kept = tables[:, enough]
            least = Enough.of(kept[0], 1, self.options.min_count)
            plain, smooth = Contrasts(kept, 1, least, smooth=False), Contrasts(kept, 1, least)
            bands = {name: band(name, plain, smooth, self.level) for name in gaps() if least.classes(name).all()}
        else:
            grid = self.counts.grid(FEW_POINTS)  # each takes as long as an audit
            at = [self._at(threshold, enough) for threshold in grid.tolist()]
            known = [name for name in gaps() if all(one[name].defined for one in at)]
            ends = {name: [(one[name].value, one[name].low, one[name].high) for one in at] for name in known}
            bands = {name: np.array(found).T for name, found in ends.items()}
        return {name: GapCurve(tuple(grid.tolist()), *map(tuple, found.tolist())) for name, found in bands.items()}


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


def _gini(area: Estimate) -> Estimate:
    if not area.defined:
        return area
    return Estimate(2 * area.value - 1, 2 * area.low - 1, 2 * area.high - 1, area.n)


def _wald(value: FloatArray, error: FloatArray, level: float) -> Differences:
    """Return figures with normal intervals, (groups,) each; NaN where there is no standard error."""
    value = np.where(np.isfinite(error), value, np.nan)
    reach = normal_quantile(level) * error
    return Differences(value, value - reach, value + reach)
