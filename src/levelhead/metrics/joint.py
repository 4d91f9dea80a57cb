"""Methods compared over test rows and training seeds at once, by :mod:`levelhead.metrics.paired`.

*Equivalence.* That a difference is within a margin is claimed where both one-sided tests of it reject (two one-sided
tests, Schuirmann 1987), with the standard errors of the interval; the larger of the two p-values is theirs together.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from numpy.typing import ArrayLike

from levelhead.arrays import checked, table_of
from levelhead.metrics.between import holm
from levelhead.metrics.intervals import check_options, estimate_to_dict, finite_or_none
from levelhead.metrics.names import metric_of
from levelhead.metrics.paired import Inference, Paired
from levelhead.types import ConfigError, Estimate, quoted

MARGIN = 0.02
Verdict = Literal["smaller", "larger", "within", "smaller within", "larger within", "undecided"]


@dataclass(frozen=True)
class JointRow:
    """One method's figure for one metric.

    ``estimate`` is the mean over seeds; its interval holds both sources of chance. ``rows_only`` is the same value
    with chance from the test rows alone. ``by_seed`` are the figures of the seeds, ``degrees_of_freedom``
    Satterthwaite's (infinite without seed variance). Against the baseline (None for the baseline itself):
    ``difference`` (method minus baseline), its ``p_value``, and ``p_holm``, adjusted over the methods; ``p_within`` is
    that of the difference being as large as the table's margin, adjusted likewise: where it is small, the two are equal
    within the margin. ``p_best`` is
    the same for the difference to the method with the best value (None for that one): where it is not small, these
    rows and seeds do not distinguish the two.
    """

    estimate: Estimate
    rows_only: Estimate
    by_seed: tuple[float, ...]
    degrees_of_freedom: float
    difference: Estimate | None = None
    p_value: float | None = None
    p_holm: float | None = None
    p_best: float | None = None
    p_within: float | None = None

    def verdict(self, error: float) -> Verdict | None:
        """Return what is decided about the difference at this error probability; None for the baseline.

        A difference is ``smaller`` or ``larger``; or ``within`` the margin; or ``smaller within`` and ``larger within``
        where there is one and it is known to be that small. Everything else is ``undecided``, also where the variance
        over seeds is not known.
        """
        if self.difference is None:
            return None
        if not self.difference.defined or self.difference.reason is not None:
            return "undecided"
        found = self.p_holm is not None and self.p_holm < error and self.difference.excludes_zero
        within = self.p_within is not None and self.p_within < error
        if not found:
            return "within" if within else "undecided"
        if self.difference.value < 0:
            return "smaller within" if within else "smaller"
        return "larger within" if within else "larger"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; NaN and infinity become null."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, tuple):
                found[name] = [finite_or_none(one) for one in value]
            elif isinstance(value, Estimate):
                found[name] = estimate_to_dict(value)
            else:
                found[name] = None if value is None else finite_or_none(value)
        return found


@dataclass(frozen=True)
class JointTable:
    """What :func:`joint` found: ``rows[method][metric]``, the baseline's name, confidence level and margin.

    ``at_chance`` are the methods whose balanced accuracy the test rows alone do not show to be above 1 / classes, that
    of a constant or random answer; ``few_seeds`` those that the rows do show to be above it, but not rows and seeds
    together. Constant answers have small gaps, so neither is ever the best. Nor is one of ``less_accurate``, whose
    accuracy is below the baseline's by a decided amount. ``p_best`` compares with the best of the others, and is NaN
    where there is none.
    """

    rows: dict[str, dict[str, JointRow]]
    baseline: str
    level: float
    at_chance: tuple[str, ...] = ()
    few_seeds: tuple[str, ...] = ()
    margin: float = MARGIN

    @property
    def less_accurate(self) -> tuple[str, ...]:
        """The methods whose accuracy is measurably below the baseline's; with one seed, the rows alone decide."""
        return tuple(
            method
            for method, row in self.rows.items()
            if (change := row["accuracy"]).difference is not None and change.difference.high < 0
            if change.p_holm is not None and change.p_holm < 1 - self.level
        )

    def can_be_best(self, method: str) -> bool:
        """Say whether a method is one of those compared with the best value."""
        return len(self.rows) > 1 and method not in (*self.at_chance, *self.few_seeds, *self.less_accurate)

    def verdict(self, method: str, metric: str) -> Verdict | None:
        """Return what is decided about a method's difference to the baseline, see :meth:`JointRow.verdict`."""
        return self.rows[method][metric].verdict(1 - self.level)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        methods = {
            method: {name: row.to_dict() | {"verdict": self.verdict(method, name)} for name, row in figures.items()}
            for method, figures in self.rows.items()
        }
        return {
            "baseline": self.baseline,
            "level": self.level,
            "margin": self.margin,
            "at_chance": list(self.at_chance),
            "few_seeds": list(self.few_seeds),
            "less_accurate": list(self.less_accurate),
            "methods": methods,
        }


@checked
def joint(
    y_true: ArrayLike,
    group: ArrayLike,
    predictions: Mapping[str, ArrayLike],
    *,
    baseline: str,
    positive: int | None = None,
    level: float = 0.95,
    replicates: int = 1000,
    seed: int = 0,
    shared_seeds: bool = False,
    clusters: ArrayLike | None = None,
    margin: float = MARGIN,
    classes: Sequence[Hashable] = (),
    min_count: int = 0,
    left_out: Collection[Hashable] = (),
) -> JointTable:
    """Compare methods over test rows and training seeds at once.

    A method's figure is the mean over its seeds of each seed's figure; for a gap, the mean of absolute gaps. Its
    variance is that of the mean under joint resampling of the test rows (all methods and seeds see the same resample)
    plus what the variance between seeds has beyond the noise of (seed x row), divided by the number of seeds; the
    interval uses Student's t with Satterthwaite's degrees of freedom, and with fewer than four seeds Cochran's wider
    critical value. Ends are clipped to [0, 1] (differences to [-1, 1]). A method's figures depend on its own
    predictions and on ``seed``, not on the other methods.

    Args:
        y_true: (rows,) true classes.
        group: (rows,) groups.
        predictions: for each method an array (seeds, rows) of predicted classes.
        baseline: the method that the others are set against.
        positive: index of the positive class, see :func:`estimate`.
        level: confidence level.
        replicates: number of bootstrap replicates.
        seed: of the bootstrap.
        shared_seeds: whether the seed at one position is the same training seed for every method (same split, same
            initialisation). True pairs the differences over seeds by position; False treats the seeds of two
            methods as independent. Rows are always paired.
        clusters: (rows,) integers, equal for rows that belong together, such as pictures of one person; they are
            resampled together. None: every row alone.
        margin: a difference smaller than this is equivalent to none; between 0 and 1.
        classes: classes that exist, beside those that occur in these rows.
        min_count: smallest denominator for a rate to enter a gap, as in :func:`estimate`. With 0, a rate over no rows
            makes the gap undefined.
        left_out: groups that no gap compares, such as that of rows without a group; accuracies count their rows.

    Returns:
        figures, intervals, differences to the baseline and p-values adjusted by Holm over methods, metric by
        metric. With one seed the variance over seeds is unknown: the interval holds test rows only and says so.

    Raises:
        DataError: lengths differ or values are missing.
        ConfigError: unknown baseline, shared seeds of unequal number, or an option out of range.
    """
    arrays = {method: table_of(values, f"Predictions of {quoted(method)}") for method, values in predictions.items()}
    check_margin(margin)
    check_options(level, replicates)
    if baseline not in arrays:
        raise ConfigError(f"The baseline {baseline!r} has no predictions. Methods: {', '.join(arrays)}.")
    if shared_seeds and len({len(values) for values in arrays.values()}) > 1:
        raise ConfigError("shared_seeds=True needs the same number of seeds for every method.")
    options = (positive, level, replicates, seed, clusters, classes, min_count, left_out)
    analysis = Paired.build(y_true, group, arrays, *options)
    others = [method for method in arrays if method != baseline]
    rows: dict[str, dict[str, JointRow]] = {method: {} for method in arrays}
    own = {name: {method: analysis.level_of(name, method) for method in arrays} for name in analysis.names}
    for name in analysis.names:
        differences = {method: analysis.difference(name, method, baseline, shared_seeds) for method in others}
        p_holm = _adjusted({method: found.p_value for method, found in differences.items()})
        p_within = _adjusted({method: found.p_within(margin) for method, found in differences.items()})
        for method, figure in own[name].items():
            against = differences.get(method)
            rows[method][name] = JointRow(
                figure.estimate,
                figure.rows_only,
                tuple(analysis.values(name, method).tolist()),
                figure.degrees_of_freedom,
                None if against is None else against.estimate,
                None if against is None else against.p_value,
                p_holm.get(method),
                p_within=p_within.get(method),
            )
    table = JointTable(rows, baseline, level, *_at_chance(analysis, own["balanced_accuracy"]), margin)
    contenders = [method for method in arrays if table.can_be_best(method)]
    for name in analysis.names:
        sign = 1 if metric_of(name).larger_is_better else -1
        p_best = dict.fromkeys(arrays, math.nan)
        if contenders:
            best = max(contenders, key=lambda method: _ranked(sign * own[name][method].estimate.value))
            to_best = {one: analysis.difference(name, one, best, shared_seeds) for one in arrays if one != best}
            p_best = _adjusted({method: found.p_value for method, found in to_best.items()})
        for method, row in rows.items():
            row[name] = replace(row[name], p_best=p_best.get(method))
    return table


def _at_chance(analysis: Paired, balanced: Mapping[str, Inference]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return ``at_chance`` and ``few_seeds`` of :class:`JointTable`."""
    chance = 1 / len(analysis.counts.classes)
    reaching = {
        method: (figure.rows_only.low <= chance < 1, figure.estimate.low <= chance < 1)
        for method, figure in balanced.items()  # NaN, where it is undefined, reaches nothing
    }
    at_chance = tuple(method for method, (by_rows, _) in reaching.items() if by_rows)
    few_seeds = tuple(method for method, (by_rows, by_both) in reaching.items() if by_both and not by_rows)
    return at_chance, few_seeds


def check_margin(margin: float) -> None:
    """Raise :class:`ConfigError` unless ``margin`` is a share between 0 and 1."""
    if not 0 < margin < 1:
        raise ConfigError(f"margin={margin} is not between 0 and 1. Pass 0.02 for 2 points.")


def _adjusted(p_values: Mapping[str, float]) -> dict[str, float]:
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _ranked(value: float) -> float:
    return -math.inf if math.isnan(value) else value
