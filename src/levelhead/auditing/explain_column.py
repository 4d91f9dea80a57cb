"""Explain the gaps of one sensitive column: the figures of its groups, and of every pair of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from levelhead.auditing.clusters import few_clusters
from levelhead.auditing.explanation import ExplainedAttribute, ExplainedGroup, ExplainedPair
from levelhead.auditing.options import AuditOptions
from levelhead.metrics import Counts, estimate
from levelhead.metrics.between import shared
from levelhead.metrics.clustered import FEWEST, ClusteredCounts
from levelhead.metrics.explained import Figures, ScoredCells, fieller, gap_estimate, quantile, replicates
from levelhead.metrics.implied import gap_of
from levelhead.metrics.intervals import check_options
from levelhead.metrics.ranking import area_under_roc
from levelhead.metrics.weighted import WeightedCounts, WeightedRate, weighted_estimates, weighted_proportion
from levelhead.tables.columns import column_title
from levelhead.types import ConfigError, DataError, Estimate, check_seed, in_quotes, printable

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_GROUPS = 20
"""Most groups that are compared: 190 pairs."""
CLASSES = ("negative", "positive")
FINE_BINS, BINS = 4096, 256
"""Bins of the score for figures, and for the bootstrap; scores with fewer values are not binned."""


def check(options: AuditOptions) -> None:
    """Raise :class:`~levelhead.types.ConfigError` for an option that is out of range for an explanation."""
    if options.min_count < 2:
        raise ConfigError(f"min_count={options.min_count} is below 2. Pass the fewest rows of a class, for example 10.")
    check_options(options.level, options.replicates)
    check_seed(options.seed)


@dataclass
class ExplainedColumn:
    """One sensitive column: rows by group, and all that is computed from them."""

    name: str
    names: list[str]
    group: IntArray
    truth: NDArray[np.bool_]
    score: FloatArray
    log_odds: FloatArray
    decided: NDArray[np.bool_]
    cut: float
    positive: str
    options: AuditOptions
    cluster: IntArray | None = None
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def clustered(self) -> ClusteredCounts | None:
        """The counts with the clusters that rows come in; None if they are independent."""
        if self.cluster is None:
            return None
        return ClusteredCounts.from_rows(self.cluster, self.group, self.truth, self.decided, self.names, CLASSES)

    def explain(self) -> ExplainedAttribute:
        """Compute the figures of all groups and pairs."""
        outcomes = self.truth.astype(np.int64), self.decided.astype(np.int64)
        counts, every = Counts.from_codes(self.group, *outcomes, self.names, CLASSES), range(len(self.names))
        sizes = counts.cell_sizes
        # What varies alone: rows, or clusters.
        self.units = sizes if self.clustered is None else np.asarray(self.clustered.cells.clusters)
        lacking = {a: reason for a in every if (reason := self._lacking(a, sizes[a]))}
        kept = [a for a in every if a not in lacking]
        self.pair_level = shared(self.options.level, math.comb(len(kept), 2))
        if len(kept) > MOST_GROUPS:
            raise DataError(
                f"{column_title(self.name)} has {len(kept)} groups with at least {self.options.min_count} rows of each "
                f"class; at most {MOST_GROUPS} can be compared. Merge groups, or raise --min-count."
            )
        title = printable(self.name)
        self.warnings = [f"{title}: {reason}, and is left out." for reason in lacking.values()]
        self.areas = [self._area(a, sizes[a]) for a in every]
        figures = self._figures(kept) if len(kept) > 1 else None
        both = combinations(range(len(kept)), 2)
        found = [self._pair(kept[i], kept[j], i, j, counts, *figures) for i, j in both] if figures else []
        weighted = WeightedCounts.equal(counts) if self.clustered is None else self.clustered
        rates = (
            weighted.swapped(1).rate("selection_rate", 1),
            weighted.rate("true_positive_rate", 1),
            weighted.rate("false_positive_rate", 1),
        )
        groups = {name: self._group(a, sizes[a], a in kept, rates) for a, name in enumerate(self.names)}
        if len(kept) < 2:
            self.warnings.append(f"{title}: fewer than two groups are large enough; there is nothing to compare.")
        return ExplainedAttribute(groups, tuple(found))

    def _lacking(self, a: int, size: IntArray) -> str:
        """Say why a group, with ``size`` negatives and positives, is not compared; empty if it is."""
        group, least = f"group {in_quotes(self.names[a])}", self.options.min_count
        named = [f"{which} label {in_quotes(self.positive)}" for which in ("without", "with")]
        if few := [
            f"{f'{rows:,}' if rows else 'no'} row{'' if rows == 1 else 's'} {which}"
            for which, rows in zip(named, size.tolist(), strict=True)
            if rows < least
        ]:
            return f"{group} has {' and '.join(few)}, fewer than {least}"
        if self.clustered is not None and (clusters := int(self.units[a].min())) < FEWEST:
            return f"{group} has rows {named[int(self.units[a].argmin())]} {few_clusters(clusters)}".rstrip(",")
        return ""

    def _area(self, a: int, size: IntArray) -> Estimate:
        inside = self.group == a
        if size.min() < 2:
            return Estimate.undefined("fewer than two rows of a class", int(size.sum()))
        one = np.full(int(inside.sum()), "all")
        scores = {"score": self.score[inside]}
        together = None if self.cluster is None else self.cluster[inside]
        areas = area_under_roc(
            self.truth[inside], one, scores, positive=True, level=self.options.level, clusters=together
        )
        # That no variance over training seeds is known goes without saying where the scores are those of a file.
        return replace(areas["score"]["all"][0], reason=None)

    def _figures(self, kept: list[int]) -> tuple[Figures, Figures, list[Figures]]:
        """Return the figures of the rows, and the same on coarser bins with bootstrap replicates."""
        largest = float(abs(self.log_odds).max())
        unit = largest * (float((self.log_odds / largest).std()) or 1.0)  # no square of it overflows
        place = np.full(len(self.names), -1)
        place[kept] = range(len(kept))
        inside = place[self.group] >= 0
        rows = ScoredCells(
            place[self.group[inside]],
            self.truth[inside],
            self.score[inside],
            self.log_odds[inside] / unit,
            self.decided[inside],
            None if self.cluster is None else self.cluster[inside],
        )
        fine, coarse = (rows.binned(most) for most in (FINE_BINS, BINS))
        seen, start = (Figures(*one.weights, one.score, one.decided, self.cut / unit) for one in (fine, coarse))
        number, seed = self.options.replicates, self.options.seed
        return seen, start, list(replicates(coarse, self.cut / unit, start.fit, number=number, seed=seed))

    def _pair(
        self, a: int, b: int, i: int, j: int, counts: Counts, seen: Figures, coarse: Figures, replicates: list[Figures]
    ) -> ExplainedPair:
        options, level, pair = self.options, self.pair_level, (self.names[a], self.names[b])
        two = Counts(counts.table[[a, b]], pair, counts.classes)
        if self.clustered is None:
            measured = estimate(
                two, "equalized_odds", positive=1, level=level, replicates=options.replicates, seed=options.seed
            )
        else:
            own = self.clustered.keep(pair)
            measured = weighted_estimates(own, positive=1, level=level, min_count=1)["equalized_odds"]
        rows, fewest = measured.n, int(self.units[[a, b]].min())
        reason = self._no_model(a, b)
        if reason is not None:
            none = Estimate.undefined(reason, rows)
            return ExplainedPair(pair, measured, none, none, none, none)

        def moved(which: str) -> FloatArray:
            """Differences (replicates, 2) of both rates, less those of the same bins without resampling."""
            parts = [getattr(one, which) for one in (*replicates, coarse)]
            joined = [np.atleast_2d(np.stack([rate[..., i] - rate[..., j] for rate in part], -1)) for part in parts]
            return np.concatenate(joined[:-1]) - joined[-1]

        def now(which: str) -> FloatArray:
            return np.array([rate[..., i] - rate[..., j] for rate in getattr(seen, which)])

        fail = "the AUC of a group is too close to 1/2 or 1 for an interval"
        implied = gap_estimate(now("implied"), moved("implied"), rows, fewest, level, fail)
        if not np.isfinite(seen.fit.slope):
            none = Estimate.undefined("no increasing logistic curve of the label on the score can be fitted", rows)
            return ExplainedPair(pair, measured, implied, none, none, none)
        fail = "the logistic regression of the label on the score is too unstable for an interval"
        predicted = gap_estimate(now("predicted"), moved("predicted"), rows, fewest, level, fail)
        rest = Estimate.undefined(predicted.reason or "", rows)
        if predicted.defined:
            draws = np.concatenate([gap_of(one.measured, i, j) - gap_of(one.predicted, i, j) for one in replicates])
            center = measured.value - predicted.value
            half = quantile(level, fewest) * float(draws[np.isfinite(draws)].std())
            rest = Estimate(center, center - half, center + half, rows)
        rho = self._rho(seen, replicates, i, j, rows, fewest)
        return ExplainedPair(pair, measured, implied, rho, predicted, rest)

    def _no_model(self, a: int, b: int) -> str | None:
        for c in (a, b):
            area = self.areas[c].value
            if area <= 0.5:
                return (
                    f"the score does not rank the classes in group {in_quotes(self.names[c])}: its area under the ROC "
                    f"curve is {area:.3f}. Is it a score of {in_quotes(self.positive)}?"
                )
            if area >= 1:
                return f"the score separates the classes of group {in_quotes(self.names[c])} perfectly"
        return None

    def _rho(self, seen: Figures, replicates: list[Figures], i: int, j: int, rows: int, fewest: int) -> Estimate:
        """Return 1 - (difference of intercepts) / (difference of logit base rates) with Fieller's interval."""
        base = float(seen.logit[i] - seen.logit[j])
        used = float(seen.offset[i] - seen.offset[j])
        both = [(one.offset[:, i] - one.offset[:, j], one.logit[:, i] - one.logit[:, j]) for one in replicates]
        draws = np.concatenate([np.stack(pair, -1) for pair in both])
        draws = draws[np.isfinite(draws).all(-1)]
        if 20 * len(draws) < 19 * self.options.replicates:
            return Estimate.undefined("the logistic regression is too unstable for an interval", rows)
        found = fieller(used, base, draws, quantile(self.pair_level, fewest))
        if found is None:
            shown = " and ".join(f"{100 * seen.base[c]:.1f}%" for c in (i, j))
            return Estimate.undefined(f"the base rates, {shown}, do not differ measurably", rows)
        return Estimate(used / base, *found, rows)

    def _group(self, a: int, size: IntArray, included: bool, rates: Sequence[WeightedRate]) -> ExplainedGroup:
        """Return one group; ``included``: whether it is compared; ``rates``: base, true and false positive rates."""
        base, found, alarm = (weighted_proportion(rate, (0, a), self.options.level) for rate in rates)
        return ExplainedGroup(int(size.sum()), int(size[1]), base, self.areas[a], found, alarm, included)
