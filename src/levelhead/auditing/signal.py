"""What a signal knows of the group beyond label and score: whether a method that follows it can reach the group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from levelhead.arrays import checked
from levelhead.auditing.clusters import check_cluster
from levelhead.metrics.between import check_level
from levelhead.metrics.counts import distinct
from levelhead.metrics.ranking import area_under_roc
from levelhead.report.record import Finding
from levelhead.report.text import counted, number
from levelhead.tables.columns import numbers_of_array, outcome_of
from levelhead.tables.files import Stored, source_of
from levelhead.tables.rows import Rows
from levelhead.tables.vocabulary import LabelMap, agree, in_order
from levelhead.types import DataError, Estimate, check_seed, listed

FloatArray = NDArray[np.float64]
Codes = tuple[NDArray[np.int64], Sequence[Hashable]]

FOLDS = 5
FEWEST = 20
"""Rows of each group that are needed, or clusters."""
ROWS_A_DEGREE, MOST_DEGREES = 30, 6
"""Rows (clusters) of the smaller group for each degree of the polynomial of the score's rank, and the most degrees."""


@dataclass(frozen=True)
class SignalArea(Finding):
    """Areas under the ROC curve for one group against the others.

    ``without`` is that of the best guess from label and score, ``with_signal`` of that from label, score and signal,
    ``difference`` their paired difference, ``alone`` that of the signal alone, which misleads: what it knows of the
    group may stand in label and score as well. ``group`` names the group.
    """

    group: str
    without: Estimate
    with_signal: Estimate
    difference: Estimate
    alone: Estimate

    def sentence(self, signal: str) -> str:
        """Return the finding as one plain sentence."""
        one = self.difference
        difference, low, high = (number(100 * value, signed=True) for value in (one.value, one.low, one.high))
        return (
            f"Label and score predict the group with an AUC of {100 * self.without.value:.1f}; adding {signal} gives "
            f"{100 * self.with_signal.value:.1f} ({difference} points, interval {low} to {high}). Alone, {signal} has "
            f"an AUC of {100 * self.alone.value:.1f}."
        )


@checked
def signal_area(
    y_true: ArrayLike,
    score: ArrayLike,
    signal: ArrayLike,
    *,
    group: ArrayLike,
    cluster: ArrayLike | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> SignalArea:
    """Say what a signal knows of the group beyond label and score: the area under the ROC curve with and without it.

    A method that sees no groups can act on what it has: losses, errors, clusters, a view of the input. If such a signal
    adds nothing to label and score, a method that follows it treats alike all who get the same score.
    Both areas are those of a logistic regression of the group on the label, the score, polynomials of its rank (of
    degree 6 with 180 rows of each group or more) and their products with the label, without and with the signal and its
    product with the label; each row is guessed by coefficients from the other four fifths.

    Args:
        y_true: (rows,) labels, two of them.
        score: (rows,) numbers.
        signal: (rows,) numbers.
        group: (rows,) group of each row, two of them. Rows without a group are left out.
        cluster: (rows,) what rows that belong together have in common, such as a person's id. They are guessed
            together, and count together in the intervals. None: rows are independent.
        level: confidence level of the intervals.
        seed: of the division into fifths.

    Raises:
        DataError: not two labels or groups, a group with fewer than 20 rows (clusters, where given), unequal
            lengths, or numbers that are missing, not finite, or all the same.

    Examples:
        >>> import numpy as np
        >>> import levelhead as lh
        >>> rng = np.random.default_rng(0)
        >>> group, label = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
        >>> score = label + group + rng.normal(size=4000)
        >>> loss = np.where(label == 1, -score, score)  # it varies with the group, and score and label know all of it
        >>> found = lh.signal_area(label, score, loss, group=group)
        >>> abs(found.difference.value) < 0.01
        True
        >>> view = group + rng.normal(size=4000)
        >>> lh.signal_area(label, score, view, group=group).difference.low > 0.02
        True
    """
    check_seed(seed)
    check_level(level)
    labels, classes = outcome_of(y_true, "label")
    members, groups = distinct(group, "The group column")
    if len(members) != len(labels):
        raise DataError(f"{len(labels)} labels and {len(members)} groups. Pass one of each for every row.")
    numbers = {"score": numbers_of_array(score, "The score"), "signal": numbers_of_array(signal, "The signal")}
    together = None if cluster is None else outcome_of(cluster, "cluster")[0]
    if together is not None and len(together) != len(labels):
        raise DataError(f"{len(labels)} labels and {len(together)} clusters. Pass one of each for every row.")
    return _area((labels, classes), (members, groups), numbers, together, level, seed)


def _area(
    label: Codes,
    group: Codes,
    numbers: dict[str, FloatArray],
    cluster: NDArray[np.int64] | None,
    level: float = 0.95,
    seed: int = 0,
) -> SignalArea:
    """Measure by the codes of label, group (-1 is none) and cluster."""
    (labels, classes), (members, groups) = label, group
    known = members >= 0
    for name, values in numbers.items():
        if len(values) != len(labels):
            raise DataError(
                f"{len(labels)} labels and {len(values)} numbers of the {name}. Pass one of each for every row."
            )
        numbers[name] = values = values[known]
        if not np.isfinite(values).all():
            raise DataError(
                f"The {name} has {(~np.isfinite(values)).sum()} missing or infinite numbers: leave those rows out."
            )
        if len(values) and np.ptp(values) == 0:
            raise DataError(f"The {name} is {values[0]:g} in every row: it carries no information.")
    labels, members = labels[known], members[known]
    second = []
    for what, codes, column in (("label", labels, classes), ("group", members, groups)):
        there = [column[code] for code in np.unique(codes).tolist()]
        if len(there) != 2:
            raise DataError(f"The {what} must have two values; it has {len(there)}: {listed(there, 5)}.")
        second.append(in_order(there)[-1])
    truth, inside = labels == classes.index(second[0]), members == groups.index(second[1])
    # Sorted, so that folds and rounding do not depend on the order of the rows.
    order = np.lexsort((truth, inside, *numbers.values()))
    truth, inside, numbers = truth[order], inside[order], {name: values[order] for name, values in numbers.items()}
    together = np.arange(len(order)) if cluster is None else cluster[known][order]
    fewest = min(len(np.unique(together[one])) for one in (inside, ~inside))
    if fewest < FEWEST:
        size = counted(fewest, "row" if cluster is None else "cluster")
        raise DataError(f"The smaller group has {size}; at least {FEWEST} are needed.")
    scaled = {name: (values - values.mean()) / values.std() for name, values in numbers.items()}
    # A signal such as a loss bends the score: polynomials of its rank, as many as rows allow, leave that no news.
    degree = int(np.clip(fewest // ROWS_A_DEGREE, 1, MOST_DEGREES))
    places = 2 * stats.rankdata(scaled["score"]) / len(labels) - 1
    bent = np.column_stack([scaled["score"], np.polynomial.legendre.legvander(places, degree)[:, 1:]])
    plain = np.column_stack([truth, bent, truth[:, None] * bent]).astype(float)
    more = np.column_stack([plain, scaled["signal"], truth * scaled["signal"]])
    _, first, place = np.unique(together, return_index=True, return_inverse=True)
    fold = (np.random.default_rng(seed).permutation(len(first)) % FOLDS)[np.argsort(np.argsort(first))[place]]
    guesses = {name: _cross_fitted(inputs, inside, fold) for name, inputs in (("without", plain), ("with", more))}
    guesses["alone"] = scaled["signal"] * (1 if np.corrcoef(scaled["signal"], inside)[0, 1] >= 0 else -1)
    everyone = np.zeros(len(labels), int)
    clusters = None if len(first) == len(order) else together
    areas = area_under_roc(inside, everyone, guesses, positive=True, baseline="without", level=level, clusters=clusters)
    found, difference = areas["with"]["all"]
    assert difference is not None, "a baseline exists"
    return SignalArea(str(second[1]), areas["without"]["all"][0], found, difference, areas["alone"]["all"][0])


def signal_areas_of_file(
    path: Path | str | Stored,
    label: str,
    score: str,
    group: str,
    signals: list[str],
    *,
    cluster: str | None = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
) -> Mapping[str, SignalArea]:
    """Return :func:`signal_area` for each of the columns ``signals`` of a file of scores.

    Rows without a group are left out.

    Args:
        path: as :func:`levelhead.explain_file` takes it.
        label: name of the column with the true classes.
        score: name of the column with the scores.
        group: name of the group column.
        signals: names of the columns with signals.
        cluster: name of the column that rows which belong together have in common.
        label_map: which class each label means, as :func:`levelhead.audit` takes it.

    Raises:
        DataError: as :func:`signal_area`, and a file that is missing, unreadable or lacks a column.
    """
    return signals_by_column(path, label, score, [group], signals, cluster=cluster, label_map=label_map)[group]


def signals_by_column(
    path: Path | str | Stored,
    label: str,
    score: str,
    columns: Sequence[str],
    signals: Sequence[str],
    *,
    cluster: str | None = None,
    label_map: Mapping[Hashable, Hashable] | Sequence[str] | str | None = None,
) -> dict[str, dict[str, SignalArea]]:
    """Return :func:`signal_areas_of_file` for each group column; of several, those without two groups have nothing.

    Raises:
        DataError: as :func:`signal_areas_of_file`, before anything is measured where no column has two groups.
    """
    outcomes = {"label": label} | ({} if cluster is None else {"cluster": cluster})
    if cluster is not None:
        check_cluster(cluster, [label, score, *columns, *signals])
    source, names = source_of(path), list(dict.fromkeys([score, *signals]))
    titles = {f"group {name}": source.title(name) for name in columns}
    rows = Rows({"label": source.title(label), **titles})
    for batch in source.batches([*outcomes.values()], columns, names):
        rows.add({role: batch.outcomes[name] for role, name in outcomes.items()})
        rows.add({f"group {name}": batch.words[name] for name in columns})
        rows.add({f"number {name}": batch.numbers[name] for name in names})
    class_of, *_ = agree(dict.fromkeys(rows.known["label"], 1), {}, LabelMap(label_map))
    classes = list(dict.fromkeys(class_of.values()))
    groups = {name: [one for one in rows.known[f"group {name}"] if one is not None] for name in columns}
    if all(len(one) != 2 for one in groups.values()):
        name, found = next(iter(groups.items()))
        raise DataError(
            f"{source.title(name)} has {counted(len(found), 'group')}: {listed(found, 5)}. A signal is measured "
            "between two groups. Name a column of two groups, or leave out --signal."
        )
    labels = rows.coded("label", {value: classes.index(one) for value, one in class_of.items()})
    together = None if cluster is None else rows.whole("cluster").astype(np.int64)
    areas: dict[str, dict[str, SignalArea]] = {name: {} for name in columns}
    for name, there in groups.items():
        if len(there) == 2:
            members = rows.coded(f"group {name}", {value: at for at, value in enumerate(there)}), there
            for signal in signals:
                numbers = {"score": rows.whole(f"number {score}"), "signal": rows.whole(f"number {signal}")}
                areas[name][signal] = _area((labels, classes), members, numbers, together)
    return areas


def _cross_fitted(inputs: FloatArray, inside: NDArray[np.bool_], fold: NDArray[np.int64]) -> FloatArray:
    found = np.empty(len(inputs))
    for one in range(FOLDS):
        own = fold == one
        coefficients = _logistic(inputs[~own], inside[~own])
        found[own] = inputs[own] @ coefficients[:-1] + coefficients[-1]
    return found


def _logistic(inputs: FloatArray, inside: NDArray[np.bool_]) -> FloatArray:
    """Return coefficients and intercept; a slight penalty keeps them finite where the groups are separated."""
    inputs = np.column_stack([inputs, np.ones(len(inputs))])

    def objective(values: FloatArray) -> tuple[float, FloatArray]:
        logits = inputs @ values
        loss = np.logaddexp(0, logits) - inside * logits
        gradient = inputs.T @ (special.expit(logits) - inside) / len(inputs)
        return float(loss.mean() + 1e-6 * values @ values), gradient + 2e-6 * values

    def curvature(values: FloatArray) -> FloatArray:
        p = special.expit(inputs @ values)
        return np.asarray((inputs.T * (p * (1 - p))) @ inputs / len(inputs) + 2e-6 * np.eye(len(values)))

    start, ends = np.zeros(inputs.shape[1]), {"gtol": 1e-8, "maxiter": 100}
    found = optimize.minimize(objective, start, jac=True, hess=curvature, method="trust-exact", options=ends)
    return np.asarray(found.x)
