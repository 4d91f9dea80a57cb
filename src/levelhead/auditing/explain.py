"""Say what the gap between two groups is made of: base rates, how well the score ranks, and how much of both it uses.

The formulas are those of :mod:`levelhead.metrics.implied`. Nothing here says that a gap is justified: base rates are
those of the labels in these rows, and labels can carry the injustice that an audit looks for.

Intervals are those of the rows. Replicates are Bayesian bootstraps (Rubin, Annals of Statistics 1981): every row gets a
standard exponential weight, so that no replicate loses the few positives of a group. Rows are binned by score for that,
so that their number does not matter. Rows of one cluster, such as a person, get one weight together. Gaps are the
largest of signed contrasts and have the intervals of :mod:`levelhead.metrics.intervals`; rho is a ratio and has
Fieller's (Journal of the Royal Statistical Society B 1954).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from levelhead.arrays import aligned, checked
from levelhead.auditing.clusters import alone_sentence, check_cluster, few_clusters, repeating_id
from levelhead.auditing.explanation import (
    CalibrationBin,
    ExplainedAttribute,
    ExplainedGroup,
    ExplainedPair,
    Explanation,
)
from levelhead.auditing.figures import favourable_of
from levelhead.auditing.options import Roles
from levelhead.auditing.scale import AUTO, OTHER, Scale, check_scale, find_scale
from levelhead.auditing.score_rows import ScoreRows
from levelhead.metrics import Counts, estimate, proportion
from levelhead.metrics.clustered import FEWEST, ClusteredCounts
from levelhead.metrics.explained import Figures, ScoredCells, fieller, gap_estimate, quantile, replicates
from levelhead.metrics.implied import Rates, gap_of, trade_off
from levelhead.metrics.intervals import check_options
from levelhead.metrics.names import MISSING_GROUP
from levelhead.metrics.ranking import area_under_roc
from levelhead.metrics.weighted import weighted_estimates, weighted_proportion
from levelhead.tables.columns import column_title, name_of, outcome_of, outcomes_of, positive_index
from levelhead.tables.files import Stored, source_of
from levelhead.tables.source import Arrays, Source
from levelhead.tables.tally import Tally
from levelhead.tables.vocabulary import LabelMap, agree, alike, check_labels, in_order
from levelhead.types import ConfigError, DataError, Estimate, check_seed, in_quotes, listed, printable, quoted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_GROUPS = 20
"""Most groups that are compared: 190 pairs."""
SMALLEST = 1e-6
"""Probabilities are clipped to this distance from 0 and 1, where log odds are infinite."""
FINE_BINS, BINS = 4096, 256
"""Bins of the score for figures, and for the bootstrap; scores with fewer values are not binned."""
CALIBRATION_BINS = 5


@checked
def explain_gap(
    y_true: ArrayLike,
    score: ArrayLike,
    *,
    sensitive_features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike],
    positive: Hashable = None,
    threshold: float | None = None,
    scale: str = AUTO,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    cluster: ArrayLike | None = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    favourable: Hashable = None,
) -> Explanation:
    """Say what a measured gap is made of: the gap that base rates imply, the share of them that a score uses, the rest.

    The gap is that in equalized odds. A score that is calibrated inside each group has a gap where base rates differ,
    without any shortcut: the implied gap, from the binormal model of :mod:`levelhead.metrics.implied`. How much of the
    difference in base rates the score uses, rho, is estimated by the logistic regression of the label on the score
    with an intercept for each group: rho = 1 - (difference of intercepts) / (difference of logit base rates).

    Args:
        y_true: (rows,) true classes, two of them, or more if ``positive`` is given.
        score: (rows,) probability or log odds of the positive class.
        sensitive_features: (rows,) group of each row, or a frame or dict of such columns, each explained on its own.
            A missing value is a group of its own, named "(missing)". At most 20 groups are compared.
        positive: the class that the score is about. None: the second of two classes in sorted order.
        threshold: rows with at least this score are decided positive. None: 0.5 for a probability, 0 for log odds.
        scale: "probability", "log-odds", or "auto": probabilities where all scores lie in 0 to 1, give or take 1e-6;
            log odds where some are negative and most lie outside 0 to 1.
        min_count: positives, and negatives, that a group needs to be compared.
        level: confidence level of the intervals.
        replicates: bootstrap replicates.
        seed: of the bootstrap.
        cluster: (rows,) what rows that belong together have in common, such as a person's id, as ``cluster`` of
            :func:`levelhead.audit`. A group needs 8 clusters with each label to be compared.
        label_map: which class each label means, as :func:`levelhead.audit` takes it.
        favourable: the favourable outcome, for sentences: a class, or the name of the decision from the threshold on.

    Returns:
        the figures for every pair of groups. What cannot be computed is NaN with a reason.

    Raises:
        DataError: no rows, unequal lengths, missing values, labels of one class, scores that are neither probabilities
            nor log odds or, without ``scale``, lie mostly in 0 to 1 and partly outside, a threshold that all scores or
            none reach, or too many groups.
        ConfigError: ``positive`` is not a class or not named among three or more, or an option is out of range.

    Examples:
        >>> import numpy as np
        >>> import levelhead as lh
        >>> rng = np.random.default_rng(0)
        >>> group = rng.integers(0, 2, 4000)
        >>> label = (rng.random(4000) < np.where(group == 1, 0.65, 0.25)).astype(int)
        >>> ratio = rng.normal(np.where(label == 1, 1, -1), np.sqrt(2))  # the log-likelihood ratio inside each group
        >>> score = ratio + np.where(group == 1, np.log(0.65 / 0.35), np.log(0.25 / 0.75))  # calibrated in each
        >>> pair = lh.explain_gap(label, score, sensitive_features=np.where(group == 1, "a", "b")).pairs[0]
        >>> round(pair.measured.value, 1), round(pair.implied.value, 1), round(pair.rho.value, 1)
        (0.4, 0.4, 1.0)
    """
    columns_given, matched = aligned(
        {"y_true": y_true, "score": score, "sensitive_features": sensitive_features, "cluster": cluster}
    )
    y_true, score, sensitive_features, cluster = columns_given.values()
    outcomes, (positive, favourable), _ = outcomes_of({"label": y_true}, positive, favourable)
    together = None if cluster is None else name_of(cluster, "cluster")
    options = _Options(
        positive, threshold, scale, min_count, level, replicates, seed, LabelMap(label_map), together, favourable
    )
    options.check()
    if cluster is not None:
        outcomes["cluster"] = outcome_of(cluster, "cluster")
    source = Arrays(what="labelled score")
    source.add_outcomes(outcomes)
    source.add_numbers("The score", score, "The score", "scores")
    groups = source.add_words(sensitive_features)
    of_cluster = None if cluster is None else "The cluster"
    found = _explain(source, Roles("The label", None, groups, "The score", cluster=of_cluster), options)
    return replace(found, warnings=[*matched, *found.warnings])


@checked
def explain_file(
    path: Path | str | Stored,
    label: str,
    score: str,
    groups: Sequence[str],
    *,
    positive: Hashable = None,
    threshold: float | None = None,
    scale: str = AUTO,
    min_count: int = 10,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    cluster: str | None = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
    favourable: Hashable = None,
) -> Explanation:
    """Explain the gaps of a file of scores; options and result as for :func:`explain_gap`.

    Args:
        path: a ``.csv``, ``.tsv`` (both also with ``.gz``) or ``.parquet`` file with one score a row.
        label: name of the column with the true classes.
        score: name of the column with the scores.
        groups: names of the group columns, each explained on its own.
        cluster: name of the column that rows which belong together have in common.

    Returns:
        what :func:`explain_gap` returns for the same rows.

    Raises:
        DataError: what :func:`explain_gap` raises, and a file that is missing, unreadable, empty or lacks a column.
        ConfigError: as :func:`explain_gap`, and a column that is named twice.

    Examples:
        >>> import pandas as pd
        >>> import levelhead as lh
        >>> table = pd.DataFrame({"y": [1, 0, 1, 0] * 50, "p": [0.9, 0.2, 0.4, 0.6] * 50, "sex": ["f", "m"] * 100})
        >>> table.to_csv("scores.csv", index=False)
        >>> pair = lh.explain_file("scores.csv", "y", "p", ["sex"]).pairs[0]
        >>> pair.measured.defined, pair.implied.reason
        (False, 'group “f” has no rows without label “1”, fewer than 10; group “m” has ...')
    """
    names = list(dict.fromkeys(groups))
    options = _Options(
        positive, threshold, scale, min_count, level, replicates, seed, LabelMap(label_map), cluster, favourable, label
    )
    options.check()
    if cluster is not None:
        check_cluster(cluster, [label, score, *names])
    if clash := [name for name in (score, *names) if name == label] or [name for name in names if name == score]:
        raise ConfigError(f"Column {quoted(clash[0])} is named twice. Label, score and group are different columns.")
    source = source_of(path)
    found = _explain(source, Roles(label, None, tuple(names), score, cluster=cluster), options)
    if cluster is None:
        found = replace(found, warnings=[*found.warnings, *repeating_id(source, [label, score, *names])])
    return replace(found, reading=tuple(source.taken([label, score, *names])))


@dataclass(frozen=True)
class _Options:
    positive: Hashable
    threshold: float | None
    scale: str
    min_count: int
    level: float
    replicates: int
    seed: int
    label_map: LabelMap
    cluster: str | None = None
    favourable: Hashable = None
    label: str = "label"

    def check(self) -> None:
        """Raise an error, before anything is read, for an option that is out of range."""
        if check_scale(self.scale) == OTHER:
            raise ConfigError("An explanation needs probabilities or log odds; --scores says that these are neither.")
        if self.min_count < 2:
            raise ConfigError(
                f"min_count={self.min_count} is below 2. Pass the fewest rows of a class, for example 10."
            )
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise ConfigError(f"threshold={self.threshold} is not a finite number. Pass one in the units of the score.")
        check_options(self.level, self.replicates)
        check_seed(self.seed)


def _read(source: Source, roles: Roles) -> ScoreRows:
    """Read all rows; the limits of columns, and their errors, are those of an audit."""
    if not roles.groups:
        raise DataError("There is no sensitive column. Pass at least one.")
    rows = ScoreRows(roles.titles(source))
    # An explanation has a limit of its own to the groups of a column, and no ranges.
    groups = {name: source.title(name) for name in roles.groups}
    tally = Tally(rows.titles["label"], rows.titles["label"], groups, numbered=frozenset(groups))
    for columns in roles.batches(source, {}):
        label: Any = columns["label"]
        of_groups: dict[str, Any] = {name: columns[f"group {name}"] for name in groups}
        tally.add(label, label, of_groups)
        texts: dict[str, Any] = {
            f"group {name}": (codes, list(map(_text, values))) for name, (codes, values) in of_groups.items()
        }
        rows.add({**columns, **texts})
    rows.check_finite()
    return rows


def _text(value: Hashable) -> str | None:
    return None if value is None else str(value)


def _explain(source: Source, roles: Roles, options: _Options) -> Explanation:
    rows = _read(source, roles)
    of_label, of_score = rows.titles["label"], rows.titles["score"]
    order = np.argsort(rows.whole("score"), kind="stable")  # sums of floats are then those of any order of the rows
    label, score = rows.whole("label")[order], rows.whole("score")[order]
    used = {value: code for value, code in rows.labels.items() if (label == code).any()}
    class_of, _, merged, _ = agree(dict.fromkeys(used, 1), {}, options.label_map)
    options.label_map.refuse_unused()
    check_labels(merged, options.label_map.named)
    classes = in_order(merged)
    if len(classes) < 2:
        raise DataError(f"{of_label}: every label is {quoted(classes[0])}. A gap needs rows of both classes.")
    wanted = options.positive
    chosen = positive_index(classes, wanted if wanted is None else options.label_map.targets.get(str(wanted), wanted))
    if chosen is None and len(classes) > 2:
        raise ConfigError(
            f"{of_label} has {len(classes)} classes: {listed(classes)}. Name the class that the score is about as the "
            "positive class."
        )
    positive = classes[1 if chosen is None else chosen]
    best, decision = favourable_of(options.favourable, classes, classes.index(positive), options.label_map, scored=True)
    words: dict[str, Any] = {}
    if best is not None:
        words = {"label": options.label, "order": list(map(str, classes)), "favourable": str(classes[best])}
        words |= {} if decision is None else {"decision": decision}
    truth = np.isin(label, [code for value, code in used.items() if class_of[value] == positive])
    scale, log_odds, warnings = _log_odds(score, of_score, check_scale(options.scale))
    score = scale.clip(score)
    threshold = options.threshold if options.threshold is not None else scale.default_threshold()
    if scale.probabilities and not 0 < threshold < 1:
        raise ConfigError(f"threshold={threshold:g} is not between 0 and 1, but the scores are probabilities.")
    decided = score >= threshold
    if decided.all() or not decided.any():
        raise DataError(
            f"{of_score}: {'every' if decided.all() else 'no'} score reaches the threshold {threshold:g}, so all rows "
            f"get one decision. Scores range from {score.min():g} to {score.max():g}; pass another threshold."
        )
    cut = float(special.logit(np.clip(threshold, SMALLEST, 1 - SMALLEST))) if scale.probabilities else threshold
    by_attribute = {}
    cluster = None
    if options.cluster is not None:
        cluster = rows.whole("cluster").astype(np.int64)[order]
        number = len(np.unique(cluster))
        if number == len(cluster):
            warnings.append(alone_sentence(options.cluster))
            cluster = None
        else:
            warnings.append(
                f"Intervals are clustered by {printable(options.cluster)}: {len(label):,} rows in {number:,} clusters."
            )
    for name in roles.groups:
        known, codes = rows.known[f"group {name}"], rows.whole(f"group {name}")[order]
        present = [group for group, code in known.items() if (codes == code).any()]
        warnings += alike(name, "groups", [group for group in present if group is not None])
        ordered = [*in_order([group for group in present if group is not None]), *([None] if None in present else [])]
        place = np.zeros(len(known), np.int64)
        for position, group in enumerate(ordered):
            place[known[group]] = position
        names = [MISSING_GROUP if group is None else str(group) for group in ordered]
        column = _Attribute(
            name, names, place[codes], truth, score, log_odds, decided, cut, str(positive), options, cluster
        )
        by_attribute[name] = column.explain()
        warnings += column.warnings
    return Explanation(
        by_attribute,
        warnings,
        str(positive),
        float(threshold),
        scale.name,
        options.level,
        options.replicates,
        words=words,
    )


def _log_odds(score: FloatArray, title: str, wanted: str) -> tuple[Scale, FloatArray, list[str]]:
    """Return the scale of scores, their log odds, and warnings."""
    low, high = float(score.min()), float(score.max())
    if low == high:
        raise DataError(f"{title}: every score is {low:g}. There is nothing to explain.")
    if set(np.unique(score[:1000]).tolist()) <= {0.0, 1.0} and np.isin(score, (0.0, 1.0)).all():
        raise DataError(
            f"{title} holds 0 and 1 alone: these are decisions, not scores. Pass the probability or the log odds "
            "behind them."
        )
    scale = find_scale([score], title, wanted)
    if scale.name == OTHER:
        raise DataError(
            f"{title} ranges from {low:g} to {high:g}: neither probabilities (0 to 1) nor log odds (some below 0). "
            "Divide percentages by 100; if they are log odds, say so with --scores log-odds."
        )
    if not scale.probabilities:
        return scale, score, []
    near = int(((score < SMALLEST) | (score > 1 - SMALLEST)).sum())
    warnings = scale.warnings()
    if near:
        warnings.append(
            f"{near:,} of {len(score):,} probabilities lie within {SMALLEST:g} of 0 or 1 and were clipped, because "
            "their log odds are infinite. Pass log odds if you have them."
        )
    return scale, special.logit(np.clip(score, SMALLEST, 1 - SMALLEST)), warnings


@dataclass
class _Attribute:
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
    options: _Options
    cluster: IntArray | None = None
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def clustered(self) -> ClusteredCounts | None:
        """The counts with the clusters that rows come in; None if they are independent."""
        if self.cluster is None:
            return None
        return ClusteredCounts.from_rows(
            self.cluster, self.group, self.truth, self.decided, self.names, ("negative", "positive")
        )

    def explain(self) -> ExplainedAttribute:
        """Compute the figures of all groups and pairs."""
        count = len(self.names)
        table = np.zeros((count, 2, 2), np.int64)
        np.add.at(table, (self.group, self.truth.astype(int), self.decided.astype(int)), 1)
        sizes = table.sum(-1)
        kept = [a for a in range(count) if sizes[a].min() >= self.options.min_count]
        units = sizes  # what varies alone: rows, or clusters
        if self.clustered is not None:
            assert self.clustered.cells.clusters is not None
            units = self.clustered.cells.clusters
            kept = [a for a in kept if units[a].min() >= FEWEST]
        self.units = units
        if len(kept) > MOST_GROUPS:
            raise DataError(
                f"{column_title(self.name)} has {len(kept)} groups with at least {self.options.min_count} rows of each "
                f"class; at most {MOST_GROUPS} can be compared. Merge groups, or raise --min-count."
            )
        lacking = {a: self._lacking(a, sizes[a], units[a]) for a in range(count) if a not in kept}
        for reason in lacking.values():
            self.warnings.append(f"{printable(self.name)}: {reason}, and is left out.")
        if len(lacking) > MOST_GROUPS:
            self.warnings = [
                f"{printable(self.name)}: {len(lacking)} groups have fewer than {self.options.min_count} rows of a "
                "class, and are left out."
            ]
        self.areas = [self._area(a, sizes[a]) for a in range(count)]
        pairs = combinations(range(count) if count <= MOST_GROUPS else kept, 2)
        observed = bins = None
        if kept:
            observed, bins = self._figures(kept)
        found = []
        counts = Counts(table, tuple(self.names), ("negative", "positive"))
        for a, b in pairs:
            few = [lacking[c] for c in (a, b) if c in lacking]
            if few or observed is None or bins is None:
                none = Estimate.undefined("; ".join(few), int(sizes[[a, b]].sum()))
                found.append(ExplainedPair((self.names[a], self.names[b]), none, none, none, none, none))
            else:
                found.append(self._pair(a, b, kept.index(a), kept.index(b), counts, observed, bins))
        groups = {}
        for a, name in enumerate(self.names):
            place = kept.index(a) if a in kept else None
            own = [pair for pair in found if name in pair.groups]
            said = any(pair.predicted.defined for pair in own), any(pair.implied.defined for pair in own)
            groups[name] = self._group(a, table[a], observed if place is not None else None, place or 0, said)
        if len(self.names) < 2:
            self.warnings.append(
                f"{printable(self.name)}: only one group is large enough; there is nothing to compare."
            )
        return ExplainedAttribute(groups, tuple(found))

    def _lacking(self, a: int, size: IntArray, units: IntArray) -> str:
        if size.min() >= self.options.min_count:
            least = int(units.argmin())
            which = f"{'with' if least else 'without'} label {in_quotes(self.positive)}"
            return f"group {in_quotes(self.names[a])} has rows {which} {few_clusters(int(units[least]))}".rstrip(",")
        few = [
            f"{f'{rows:,}' if rows else 'no'} row{'' if rows == 1 else 's'} {which} label {in_quotes(self.positive)}"
            for which, rows in (("without", int(size[0])), ("with", int(size[1])))
            if rows < self.options.min_count
        ]
        return f"group {in_quotes(self.names[a])} has {' and '.join(few)}, fewer than {self.options.min_count}"

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

    def _figures(self, kept: list[int]) -> tuple[Figures, tuple[Figures, list[Figures]]]:
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
        return seen, (start, list(replicates(coarse, self.cut / unit, start.fit, number=number, seed=seed)))

    def _pair(
        self, a: int, b: int, i: int, j: int, counts: Counts, seen: Figures, bins: tuple[Figures, list[Figures]]
    ) -> ExplainedPair:
        options, pair = self.options, (self.names[a], self.names[b])
        two = Counts(counts.table[[a, b]], pair, counts.classes)
        if self.clustered is None:
            measured = estimate(
                two, "equalized_odds", positive=1, level=options.level, replicates=options.replicates, seed=options.seed
            )
        else:
            own = self.clustered.keep(pair)
            measured = weighted_estimates(own, positive=1, level=options.level, min_count=1)["equalized_odds"]
        rows, fewest = measured.n, int(self.units[[a, b]].min())
        reason = self._no_model(a, b)
        if reason is not None:
            none = Estimate.undefined(reason, rows)
            return ExplainedPair(pair, measured, none, none, none, none)
        coarse, replicates = bins

        def moved(which: str) -> FloatArray:
            """Differences (replicates, 2) of both rates, less those of the same bins without resampling."""
            parts = [getattr(one, which) for one in (*replicates, coarse)]
            joined = [np.atleast_2d(np.stack([rate[..., i] - rate[..., j] for rate in part], -1)) for part in parts]
            return np.concatenate(joined[:-1]) - joined[-1]

        def now(which: str) -> FloatArray:
            return np.array([rate[..., i] - rate[..., j] for rate in getattr(seen, which)])

        fail = "the AUC of a group is too close to 1/2 or 1 for an interval"
        implied = gap_estimate(now("implied"), moved("implied"), rows, fewest, options.level, fail)
        if not np.isfinite(seen.fit.slope):
            none = Estimate.undefined("no increasing logistic curve of the label on the score can be fitted", rows)
            return ExplainedPair(pair, measured, implied, none, none, none)
        fail = "the logistic regression of the label on the score is too unstable for an interval"
        predicted = gap_estimate(now("predicted"), moved("predicted"), rows, fewest, options.level, fail)
        rest = Estimate.undefined(predicted.reason or "", rows)
        if predicted.defined:
            draws = np.concatenate([gap_of(one.measured, i, j) - gap_of(one.predicted, i, j) for one in replicates])
            center = measured.value - predicted.value
            half = quantile(options.level, fewest) * float(draws[np.isfinite(draws)].std())
            rest = Estimate(center, center - half, center + half, rows)
        rho = self._rho(seen, replicates, i, j, rows, fewest)
        # What another share would do is a matter of these two figures: without them there is nothing to say.
        trade = self._trade_off(seen, i, j) if implied.defined and rho.defined else ()
        return ExplainedPair(pair, measured, implied, rho, predicted, rest, trade)

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
        found = fieller(used, base, draws, quantile(self.options.level, fewest))
        if found is None:
            shown = " and ".join(f"{100 * seen.base[c]:.1f}%" for c in (i, j))
            return Estimate.undefined(f"the base rates, {shown}, do not differ measurably", rows)
        return Estimate(used / base, *found, rows)

    def _trade_off(self, seen: Figures, i: int, j: int) -> tuple[tuple[float, float, float], ...]:
        two = [i, j]
        share, base = seen.share[two] / seen.share[two].sum(), seen.base[two]
        implied = Rates(*(rate[two] for rate in seen.implied))
        rate = float((share * (base * implied.true_positive + (1 - base) * implied.false_positive)).sum())
        line = trade_off(seen.area[two], base, share, rate)
        return tuple((point.rho, point.accuracy - line[0].accuracy, point.gap) for point in line)

    def _group(
        self, a: int, table: IntArray, seen: Figures | None, place: int, said: tuple[bool, bool]
    ) -> ExplainedGroup:
        """Return one group; ``said``: whether a pair with it has a predicted, and an implied, gap."""
        level, (negatives, positives) = self.options.level, (int(size) for size in table.sum(-1))
        n = positives + negatives
        predicted = implied = (math.nan, math.nan)
        if seen is not None and said[0]:
            predicted = (float(seen.predicted[0][place]), float(seen.predicted[1][place]))
        if seen is not None and said[1]:
            implied = (float(seen.implied[0][place]), float(seen.implied[1][place]))
        base = proportion(positives, n, level=level)
        found = proportion(int(table[1, 1]), positives, level=level)
        alarm = proportion(int(table[0, 1]), negatives, level=level)
        if self.clustered is not None:
            rates = [
                self.clustered.swapped(1).rate("selection_rate", 1),
                self.clustered.rate("true_positive_rate", 1),
                self.clustered.rate("false_positive_rate", 1),
            ]
            base, found, alarm = (weighted_proportion(rate, (0, a), level) for rate in rates)
        return ExplainedGroup(
            n,
            positives,
            base,
            self.areas[a],
            found,
            alarm,
            predicted,
            implied,
            seen is not None,
            self._calibration(a),
        )

    def _calibration(self, a: int) -> tuple[CalibrationBin, ...]:
        """Return means of neighbouring scores, as probabilities, beside the shares of positives."""
        score, truth = self.log_odds[self.group == a], self.truth[self.group == a]
        edges = np.unique(np.quantile(score, np.arange(1, CALIBRATION_BINS) / CALIBRATION_BINS))
        code = np.searchsorted(edges, score, side="right")  # equal scores stay together
        found = []
        for one in np.unique(code):
            probability = float(special.expit(score[code == one]).mean())
            found.append(CalibrationBin(int((code == one).sum()), probability, float(truth[code == one].mean())))
        return tuple(found)
