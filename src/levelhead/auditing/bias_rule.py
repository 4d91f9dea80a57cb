"""A rule that flips decisions, as an object to fit, to keep and to decide with. USES GROUPS, to fit and to decide."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import any_array, array_of, checked, option
from levelhead.auditing.postprocess import (
    LABELS,
    FittedRule,
    FloatArray,
    IntArray,
    check_rule,
    fit_rule,
    group_codes,
    rows_of_rule,
)
from levelhead.auditing.scale import LOG_ODDS, PROBABILITY
from levelhead.metrics.counts import distinct
from levelhead.metrics.scores import ScoreCounts, calibration_lines
from levelhead.storage import read_json, write_json
from levelhead.tables.columns import positive_index
from levelhead.tables.vocabulary import in_order
from levelhead.terminal import tracked
from levelhead.types import ConfigError, DataError, check_seed, quoted

TRIED = (2.0, 1.5, 1.25, 1.0, 0.75, 0.5, 0.25, 0.0)
"""Bounds tried on labelled rows, in deltas: probabilities can be miscalibrated, and labels show by how much."""
THRESHOLDS = 400
"""Thresholds tried where one is for all rows, at quantiles of the probabilities."""
CORRECTIONS = 2
FEWEST_CORRECTED = 50
"""Smallest number of labelled rows for their rate to come from labels; below it probabilities are more precise."""
SHOW_PROGRESS_FROM = 10_000  # rows; fewer take a few seconds


@dataclass(frozen=True)
class SavedRule:
    """A fitted rule and all that applying it needs: ``values``, the negative and the positive class, and much else.

    ``file`` is the SHA-256 of the file that holds those ``rows``. ``scale`` is that of the scores; the rule itself
    takes probabilities. ``columns`` are the names of the columns with the score, the group and, if there are any, the
    ``cluster``; ``chance`` is the seed of decisions. ``label_map`` says which class each label meant.
    """

    rule: FittedRule
    values: tuple[str | float, str | float]
    file: str = ""
    scale: str = PROBABILITY
    columns: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    chance: int = 0
    label_map: dict[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, str]:
        """The texts of both classes."""
        return str(self.values[0]), str(self.values[1])

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        return {
            "rule": self.rule.to_dict(),
            "classes": list(self.values),
            **({"label_map": dict(self.label_map)} if self.label_map else {}),
            "columns": dict(self.columns),
            "fitted": {"sha256": self.file, "rows": self.rows},
            "scale": self.scale,
            "seed": self.chance,
            "cutoffs": {name: [list(part) for part in parts] for name, parts in self.rule.cutoffs().items()},
        }

    @classmethod
    def read(cls, path: Path | str) -> SavedRule:
        """Read a rule; raises :class:`DataError` for any other file."""
        record: Any = read_json(Path(path))
        try:
            rule, fitted = FittedRule.from_dict(record["rule"]), record["fitted"]
            negative, positive = record["classes"]
            if not _is_whole(rule) or record["scale"] not in (PROBABILITY, LOG_ODDS):
                raise ValueError
            columns, meant = (
                {str(one): str(name) for one, name in record.get(part, {}).items()} for part in ("columns", "label_map")
            )
            digest, rows, chance = str(fitted["sha256"]), int(fitted["rows"]), int(record["seed"])
            return cls(rule, (negative, positive), digest, record["scale"], columns, rows, chance, meant)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            raise DataError(
                f"{path} holds no rule. Pass a file that `levelhead postprocess --rule` or BiasRule.save wrote."
            ) from None


def _is_whole(rule: FittedRule) -> bool:
    """Whether the parts of a rule that was read fit together."""
    labels = LABELS.get(rule.metric, ())
    rates = {(a, label) for a in range(len(rule.groups)) for label in labels}
    numbers = [rule.delta, rule.threshold, rule.fit_gap or 0.0, *rule.prices.values(), *rule.shares.values()]
    return (
        rates == rule.prices.keys() == rule.shares.keys() != set()
        and bool(np.isfinite(np.array([*numbers, *np.ravel(rule.lines)], np.float64)).all())
        and len(rule.lines) == len(rule.groups) == len(set(rule.groups)) >= 2
        and min(rule.shares.values()) > 0
    )


def half(seed: int, rows: int, cluster: NDArray[np.int64] | None = None) -> NDArray[np.bool_]:
    """Return which rows (rows,) a rule is fitted on where one file has to serve for both.

    ``cluster`` (rows,) are clusters, numbered in the order of the rows: all rows of one are in the same half.
    """
    drawn = np.random.default_rng([seed, 1]).random(rows) < 0.5
    return drawn if cluster is None else drawn[cluster]


def choose_rule(
    probability: FloatArray,
    group: NDArray[Any],
    label: NDArray[np.bool_] | None,
    *,
    metric: str,
    delta: float,
    threshold: float,
    seed: int = 0,
    one_threshold: bool = False,
) -> FittedRule:
    """Fit rules with several bounds; of those whose gap by the labels is within delta, keep the one that costs least.

    A false positive costs ``threshold``, a false negative the rest to 1: at 0.5 the most accurate rule costs least.
    With labels the probabilities are first calibrated in each group (Platt 1999). Where no gap is within delta: the
    smallest. ``fit_gap`` of the rule is that gap. Without labels: the rule whose expected gap is ``delta``.
    ``one_threshold``: the rules tried are thresholds for all rows, which read no group.

    Raises:
        DataError: a group has no row of a label whose rate the metric compares; and what :func:`fit_rule` raises.
    """
    if label is None:
        return fit_rule(probability, group, metric=metric, delta=delta, threshold=threshold, seed=seed)
    # Probabilities that are off in one group would bound another gap than the true one.
    names, codes = group_codes(group)
    for one in LABELS[metric]:
        rows = _of_label(label, one)
        if (lacking := names[np.bincount(codes[rows], minlength=len(names)) == 0]).size:
            raise DataError(
                f"Group {quoted(lacking[0])} has no {'positive' if one else 'negative'} row to fit on: its gap in "
                f"{metric} cannot be measured. Pass rows that have both labels, or bound demographic_parity."
            )
    if one_threshold:
        return _best_threshold(probability, names, codes, label, metric, delta, threshold)
    fitted = calibration_lines(ScoreCounts.from_rows(label, probability, codes, len(names)))
    lines = {
        str(name): (float(intercept), float(slope))
        for name, intercept, slope in zip(names, fitted.beside_slope, fitted.slope, strict=True)
        if np.isfinite([intercept, slope]).all() and slope > 0
    }
    found: list[tuple[float, float, int, FittedRule]] = []

    def tried(bound: float, shift: dict[tuple[int, int | None], float] | None = None) -> NDArray[np.bool_]:
        options: dict[str, Any] = {"metric": metric, "threshold": threshold, "lines": lines, "seed": seed}
        rule = fit_rule(probability, group, delta=bound, shift=shift, **options)
        decided = rule.decide(probability, group, seed=seed)
        gap = measured_gap(decided, label, group, metric)
        cost = float(np.where(label, (1 - threshold) * ~decided, threshold * decided).mean())
        found.append((max(0.0, gap - delta), cost, len(found), replace(rule, fit_gap=gap)))
        return decided

    # A bound of 1 flips nothing: where that is best, no other rule may make the gap larger.
    bounds = list(dict.fromkeys([1.0, *(min(1.0, factor * delta) for factor in TRIED)]))
    for bound in tracked(bounds, "Trying bounds", shown=len(label) >= SHOW_PROGRESS_FROM):
        decided = tried(bound)
    for _ in range(CORRECTIONS):  # of the last bound, which is 0, by what labels say of its rates
        rule = found[-1][-1]
        chance = rule.calibrated(probability, codes)
        shift = {}
        for a, one in rule.shares:
            own, expected = (codes == a) & decided, {None: None, 1: chance, 0: 1 - chance}[one]
            inside = (codes == a) & _of_label(label, one)
            if expected is not None and inside.sum() >= FEWEST_CORRECTED:
                by_labels = (own & inside).sum() / inside.sum()
                shift[a, one] = float(by_labels - expected[own].sum() / expected[codes == a].sum())
        decided = tried(bound, shift)
    return replace(min(found, key=lambda one: one[:3])[-1], delta=delta)


def _best_threshold(
    probability: FloatArray,
    names: NDArray[np.str_],
    codes: IntArray,
    label: NDArray[np.bool_],
    metric: str,
    delta: float,
    threshold: float,
) -> FittedRule:
    """Return the best threshold for all rows; of equally good ones, the nearest to the ``threshold`` before."""
    tried = np.unique(np.append(np.quantile(probability, np.linspace(0, 1, THRESHOLDS), method="higher"), threshold))
    reached = np.searchsorted(tried, probability, side="right")  # how many thresholds decide a row positive
    shape = len(names), 2, len(tried) + 1
    places = np.ravel_multi_index((codes, label.astype(np.int64), reached), shape)
    rows = np.bincount(places, minlength=np.prod(shape)).reshape(shape)
    size = rows.sum(-1, keepdims=True)
    positive = rows[..., ::-1].cumsum(-1)[..., -2::-1]  # (groups, labels, thresholds)
    labels = [[0, 1] if one is None else [one] for one in LABELS[metric]]
    gap = np.max([np.ptp(positive[:, one].sum(1) / size[:, one].sum(1), axis=0) for one in labels], axis=0)
    cost = threshold * positive[:, 0].sum(0) + (1 - threshold) * (size - positive)[:, 1].sum(0)
    best = np.lexsort((np.abs(tried - threshold), cost, np.maximum(0, gap - delta)))[0]
    lines = ((0.0, 1.0),) * len(names)
    return FittedRule(metric, delta, tuple(map(str, names)), float(tried[best]), {}, {}, lines, float(gap[best]))


def measured_gap(decided: NDArray[np.bool_], label: NDArray[np.bool_], group: NDArray[Any], metric: str) -> float:
    """Largest difference of the rates that a metric is about; NaN where a group lacks a label."""
    gaps = []
    for rows in (_of_label(label, one) for one in LABELS[metric]):
        own = [decided[rows & (group == one)] for one in np.unique(group)]
        gaps.append(np.ptp([one.mean() if len(one) else np.nan for one in own]))
    return float(np.max(gaps))


def _of_label(label: NDArray[np.bool_], one: int | None) -> NDArray[np.bool_]:
    """Return which rows (rows,) have a label; None: all of them."""
    return np.ones(len(label), bool) if one is None else label == bool(one)


@dataclass(eq=False)
class BiasRule:
    """A rule that flips the decisions that cost least, to bring a gap between groups within a bound. USES GROUPS.

    Bias scoring (Chen, Klochkov and Liu, ICLR 2024; :mod:`levelhead.auditing.postprocess`). It takes the scores of a
    fitted model and the group of each row, to fit and to decide. The bound is on the gap that the scores predict;
    ``rule_.fit_gap`` is the gap by the labels of the rows fitted on.

    Args:
        metric: "demographic_parity", "equal_opportunity" or "equalized_odds" (both rates, each within ``delta``).
        delta: largest gap to aim at, a fraction: 0.02 is 2 points.
        threshold: rows with at least this probability are positive before any flip.
        positive: the class that probabilities are about. None: the second of two in sorted order.
        seed: of the chance that equalized odds need.

    Attributes:
        rule_: the fitted rule, once :meth:`fit` was called.
        classes_: (2,) the classes, negative and positive.
        groups_: names of the groups that the rule was fitted on; it decides no others.

    Examples:
        >>> import levelhead as lh
        >>> probability = [(row + 0.5) / 400 for row in range(400)]
        >>> group = ["a" if 7 * row % 400 < row else "b" for row in range(400)]
        >>> y = [int(11 * row % 400 < row) for row in range(400)]
        >>> rule = lh.BiasRule(metric="demographic_parity").fit(probability, y, sensitive_features=group)
        >>> rule.predict([0.65, 0.65], sensitive_features=["a", "b"]).tolist()
        [0, 1]
    """

    metric: str = "equalized_odds"
    delta: float = 0.02
    threshold: float = 0.5
    positive: Any = None
    seed: int = 0

    @checked
    def fit(self, probability: ArrayLike, y: ArrayLike | None = None, *, sensitive_features: ArrayLike) -> BiasRule:
        """Choose the rule on rows that the model was not trained on.

        Args:
            probability: (rows,) probability of the positive class, or (rows, 2) as ``predict_proba`` returns it.
            y: (rows,) true classes, two of them. None: probabilities are taken for calibrated, and classes are 0, 1.
            sensitive_features: (rows,) group of each row.

        Returns:
            this object. A ``UserWarning`` says where the gap by ``y`` is above ``delta`` on these very rows.

        Raises:
            DataError: what :func:`levelhead.auditing.postprocess.fit_rule` raises, and classes that are not two.
            ConfigError: parameters that cannot be.
        """
        options: dict[str, Any] = {name: getattr(self, name) for name in ("metric", "delta", "threshold", "seed")}
        options |= {name: option(name, options[name], float) for name in ("delta", "threshold")}
        check_seed(options["seed"])
        check_rule(options["metric"], options["delta"], options["threshold"])
        label: NDArray[np.bool_] | None = None
        classes = np.array([0, 1])
        if y is not None:
            codes, values = distinct(y, "y")
            if len(values) != 2 or (codes < 0).any():
                raise DataError(f"y must have two classes and no missing values; classes found: {len(values)}.")
            ordered = in_order(values)
            named = positive_index(ordered, self.positive)
            at = 1 if named is None else named
            label = codes == list(values).index(ordered[at])
            classes = array_of([ordered[1 - at], ordered[at]], "y")
        scores, group = rows_of_rule(_second(probability), sensitive_features)
        if label is not None and len(label) != len(group):
            raise DataError(f"{len(group)} probabilities and {len(label)} labels. Pass one of each for every row.")
        self.rule_ = choose_rule(scores, group, label, **options)
        self.classes_, self.groups_, self.n_rows_ = classes, self.rule_.groups, len(scores)
        if self.rule_.missed:
            warnings.warn(self.rule_.missed_sentence(), UserWarning, stacklevel=3)
        return self

    @checked
    def predict(self, probability: ArrayLike, *, sensitive_features: ArrayLike) -> NDArray[Any]:
        """Return the class of each row, (rows,); a group that the rule was not fitted on is a ``DataError``."""
        return np.asarray(self.classes_of_fit()[self.decide(probability, sensitive_features).astype(int)])

    @checked
    def decide(self, probability: ArrayLike, sensitive_features: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each row is decided positive, (rows,)."""
        self.classes_of_fit()
        return self.rule_.decide(_second(probability), sensitive_features, seed=self.seed)

    def classes_of_fit(self) -> NDArray[Any]:
        """Return the classes; raise :class:`~levelhead.types.ConfigError` before :meth:`fit`."""
        if not hasattr(self, "rule_"):
            raise ConfigError("This rule is not fitted: call fit first, or read one with BiasRule.load(path).")
        return self.classes_

    @property
    def saved(self) -> SavedRule:
        """The fitted rule with its classes, as ``levelhead apply`` reads it."""
        negative, positive = (
            one if isinstance(one, str | int | float) else str(one) for one in self.classes_of_fit().tolist()
        )
        return SavedRule(self.rule_, (negative, positive), rows=self.n_rows_, chance=self.seed)

    def save(self, path: Path | str) -> None:
        """Write the rule as JSON, in one step; ``levelhead apply`` and :meth:`load` read it."""
        write_json(Path(path), {"kind": "rule", **self.saved.to_dict()})

    @classmethod
    def load(cls, path: Path | str) -> BiasRule:
        """Read a rule that :meth:`save` or ``levelhead postprocess`` wrote; of the latter, classes are texts.

        Raises:
            DataError: the file holds no rule, or one of a later schema.
        """
        saved = SavedRule.read(path)
        if saved.scale != PROBABILITY:
            raise DataError(f"{path} reads log odds: decide with `levelhead apply`, or fit a rule on probabilities.")
        fitted = saved.rule
        rule = cls(fitted.metric, fitted.delta, fitted.threshold, saved.values[1], saved.chance)
        rule.rule_, rule.classes_, rule.groups_ = fitted, array_of(saved.values, "classes"), fitted.groups
        rule.n_rows_ = saved.rows
        return rule


def _second(probability: Any) -> Any:
    """Return the second column of what ``predict_proba`` returns; one column as it is."""
    shape = getattr(probability, "shape", None)
    if shape is None or len(shape) != 2 or shape[1] not in (1, 2):
        return probability
    if hasattr(probability, "iloc"):  # its index is kept
        return probability.iloc[:, -1]
    array = any_array(probability, "The probability")
    return array[:, -1] if array.ndim == 2 else array
