"""Gaps as plain functions: ``compute_metrics`` of Hugging Face's Trainer, and scores of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import any_array, array_of, checked
from levelhead.metrics import Counts, estimate
from levelhead.metrics.counts import distinct
from levelhead.metrics.names import gaps
from levelhead.spelling import unlabelled
from levelhead.tables.columns import positive_index
from levelhead.tables.source import Ignored
from levelhead.types import ConfigError, DataError, listed, quoted

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds_worst")
"""Metrics that :func:`gap_metrics` logs; equalized odds is fairlearn's, the larger of the two differences."""
LONGEST_PERIOD = 100
"""Rows after which labels are seen to repeat."""


@checked
def gap_score(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    groups: ArrayLike,
    metric: str = "equalized_odds_worst",
    positive: Hashable = None,
    min_count: int = 10,
    ignore_label: Hashable = None,
) -> float:
    """Return the largest difference between groups: a function for ``sklearn.metrics.make_scorer``.

    Args:
        y_true: (rows,) labels.
        y_pred: (rows,) predicted classes.
        groups: (rows,) the group of each row; rows without one are left out.
        metric: ``demographic_parity``, ``equal_opportunity``, ``equalized_odds`` or ``equalized_odds_worst``.
        positive: the positive class; None: the second of two, and of more classes the one with the largest gap.
        min_count: smallest denominator for a rate to enter the gap.
        ignore_label: the label of rows that have none, such as -1: they are left out.

    Returns:
        the gap as a fraction, smaller is better; NaN where fewer than two groups have enough rows, and of error rates
        where all labels and predictions are one class, which may be the negative one.

    Raises:
        DataError: lengths differ, a label or a prediction is missing, or a label such as -1 is never predicted.
        ConfigError: unknown metric or class.

    Example:
        >>> import levelhead as lh
        >>> lh.gap_score([1, 1, 1, 1], [1, 1, 1, 0], groups=list("aabb"), metric="demographic_parity", min_count=2)
        0.5
    """
    _known([metric])
    codes, _ = distinct(groups, "groups", hint="")
    labels, predictions = array_of(y_true, "y_true"), array_of(y_pred, "y_pred")
    if len({len(codes), len(labels), len(predictions)}) > 1:
        raise DataError(
            f"{len(labels)} labels, {len(predictions)} predictions and {len(codes)} groups. Pass one of each a row."
        )
    known = (codes >= 0) & Ignored(ignore_label).mask(distinct(labels, "y_true", hint=""))
    if not known.any():
        return float("nan")
    counts = Counts.from_rows(labels[known], predictions[known], codes[known])
    true, told = counts.table.sum((0, 2)) > 0, counts.table.sum((0, 1)) > 0
    both = [[counts.classes[at] for at in np.flatnonzero(one)] for one in (true, told)]
    if ignore_label is None and (odd := unlabelled(both[0], both[1], signed=True)):
        raise DataError(
            f"The label {odd[0]!r}, never predicted, often means no label: pass ignore_label={odd[0]!r}. If it is a "
            "class, pass a label that never occurs."
        )
    if not (true & told).any() and len(counts.classes) > 2:  # every rate would be 0, and so every gap
        raise DataError(
            f"No prediction is ever one of the labels: labels are {listed(map(quoted, both[0]), 5)}, predictions "
            f"{listed(map(quoted, both[1]), 5)}. Write both alike."
        )
    place = positive_index(list(counts.classes), positive)
    if len(counts.classes) < 2 and positive is None and metric != "demographic_parity":
        return float("nan")
    return estimate(counts, metric, positive=place, min_count=min_count, replicates=100).value


@checked
def gap_metrics(
    groups: Any,
    *,
    labels: Any = None,
    metrics: Sequence[str] = GAPS,
    positive: int | None = None,
    min_count: int = 10,
    level: float = 0.95,
    ignore_label: int = -100,
) -> Callable[[Any], dict[str, float]]:
    """Return a ``compute_metrics`` for ``transformers.Trainer`` that logs gaps between groups of evaluation rows.

    Groups stay in this function: the model and the training rows never get them. It is for watching. With
    ``load_best_model_at_end`` and a gap as ``metric_for_best_model``, groups would choose the checkpoint.

    Args:
        groups: (rows,) the group of each row of ``eval_dataset``, in its order; or several columns by name. Rows
            without a group count for accuracy alone.
        labels: (rows,) the label of each row, as a number, in the same order. Trainer says of no evaluation which rows
            it has: by their labels, another set of as many rows, or another order, is refused.
        metrics: gaps to log.
        positive: index of the positive class; None: 1 of two, and of more classes the one with the largest gap.
        min_count: smallest denominator for a rate to enter a gap.
        level: of the intervals.
        ignore_label: the label of rows that do not count; -100 is Hugging Face's.

    Returns:
        a function of an ``EvalPrediction``. It returns ``accuracy``, and each gap with the ends of its interval under
        ``NAME_low`` and ``NAME_high``, all as fractions; with several columns, under ``COLUMN_NAME``. A gap that
        cannot be computed is NaN.

    Raises:
        DataError: there are no groups, columns differ in length, or labels are sorted or repeat, as those of other rows
            may. The function raises it where the evaluation has another number of rows or other ``labels``, or its
            predictions are not logits or classes.
        ConfigError: unknown metric, or no ``labels``.

    Example:
        >>> import numpy as np
        >>> from transformers import EvalPrediction
        >>> import levelhead as lh
        >>> labels = np.random.default_rng(0).integers(0, 2, 40)
        >>> watch = lh.gap_metrics(["a", "b"] * 20, labels=labels)
        >>> watch(EvalPrediction(np.eye(2)[labels], labels))["accuracy"]
        1.0
    """
    _known(metrics)
    columns = {str(name): one for name, one in groups.items()} if isinstance(groups, Mapping) else {"": groups}
    if labels is None:
        raise ConfigError("gap_metrics needs labels=, those of eval_dataset: they show which rows Trainer evaluates.")
    read = {
        name: distinct(one, f"groups {quoted(name)}" if name else "groups", hint="") for name, one in columns.items()
    }
    sizes = {len(codes) for codes, _ in read.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise DataError(f"The columns of groups have lengths {sorted(sizes)}. Pass one value for each evaluation row.")
    (size,) = sizes
    at, values = distinct(labels, "labels", hint="")
    if len(at) != size:
        raise DataError(f"There are {size} groups and {len(at)} labels. Pass one of each for each evaluation row.")
    if _is_regular(at):
        raise DataError(
            "labels are sorted or repeat, and other rows can have the same: shuffle eval_dataset once, before its "
            "groups and labels are taken."
        )
    expected = [ignore_label if place < 0 else values[place] for place in at]

    def compute(prediction: Any) -> dict[str, float]:
        labels, predictions, classes = _classes(prediction, ignore_label)
        if labels.tolist() != expected:
            wrong = "labels are not those" if len(labels) == size else f"{len(labels)} rows are not the {size}"
            raise DataError(
                f"The evaluation's {wrong} that gap_metrics was given. Evaluate another set alone, with "
                "trainer.compute_metrics = lh.gap_metrics(its groups, labels=its labels); leave out "
                'dataloader_drop_last=True, which drops evaluation rows, and train_sampling_strategy="group_by_length".'
            )
        counted = labels != ignore_label
        found = {"accuracy": float(np.mean(labels[counted] == predictions[counted])) if counted.any() else float("nan")}
        for name, (codes, values) in read.items():
            known = counted & (codes >= 0)
            counts = Counts.from_codes(
                codes[known], labels[known], predictions[known], [str(value) for value in values], range(classes)
            )
            for metric in metrics:
                gap = estimate(counts, metric, positive=positive, min_count=max(1, min_count), level=level)
                title = f"{name}_{metric}" if name else metric
                found |= {title: gap.value, f"{title}_low": gap.low, f"{title}_high": gap.high}
        return found

    return compute


def _is_regular(codes: NDArray[np.int64]) -> bool:
    """Whether labels (rows,) are sorted by class, or repeat, so that they do not tell rows from others."""
    blocks = 1 + np.count_nonzero(codes[1:] != codes[:-1])
    periods = range(1, min(len(codes) // 2, LONGEST_PERIOD) + 1)
    return bool(blocks <= len(set(codes.tolist())) or any((codes[one:] == codes[:-one]).all() for one in periods))


def _known(metrics: Sequence[str]) -> None:
    if unknown := [one for one in metrics if one not in gaps()]:
        raise ConfigError(f"Unknown gap {quoted(unknown[0])}. Known: {listed(gaps())}.")


def _classes(prediction: Any, ignored: int) -> tuple[Any, Any, int]:
    """Return labels and predicted classes (rows,) int64, and how many classes there are."""
    given, labels = prediction.predictions, prediction.label_ids
    # A model that returns more than logits gives a tuple, with the logits first.
    logits = any_array(given[0] if isinstance(given, tuple) else given, "predictions", False)
    labels = any_array(labels[0] if isinstance(labels, tuple) else labels, "label_ids", False)
    whole = logits.ndim == 1 and logits.dtype.kind in "iu"
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not (whole or (logits.ndim == 2 and logits.shape[1] > 1)):
        raise DataError(
            f"gap_metrics needs one label a row and logits (rows, classes) or classes (rows,); predictions have shape "
            f"{logits.shape}, labels {labels.shape}."
        )
    predictions = logits if whole else logits.argmax(1)
    if len(predictions) != len(labels):
        raise DataError(f"There are {len(predictions)} predictions for {len(labels)} labels.")
    if not whole and (np.isnan(logits).any()):
        raise DataError(f"{int(np.isnan(logits).any(1).sum())} rows have logits that are NaN. Lower the learning rate.")
    counted = labels[labels != ignored]
    highest = int(max(predictions.max(initial=0), counted.max(initial=0)))
    classes = highest + 1 if whole else logits.shape[1]
    if highest >= classes or predictions.min(initial=0) < 0 or counted.min(initial=0) < 0:
        raise DataError(
            f"A label or a prediction is not a class from 0 to {classes - 1}. If it means no "
            "label: gap_metrics(..., ignore_label=-1)."
        )
    return labels.astype(np.int64), predictions.astype(np.int64), max(2, classes)
