"""Every public function that takes several columns: those of pandas stand in one order, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_api import CALLS, LABEL, PREDICTION, ROWS, SCORE, SEX

import levelhead as lh
from levelhead.types import DataError

LOGITS = np.stack([1 - SCORE, SCORE], 1)
TIMES = np.where(np.arange(ROWS) < 6, "2024-01", "2024-02")


def is_column(value: Any) -> bool:
    return isinstance(value, (np.ndarray, list)) and np.ndim(value) == 1 and len(value) == ROWS


def columns(given: Any, change: Callable[[Any], Any]) -> Any:
    """Change each column in an argument, also in a dict or a list of columns."""
    if is_column(given):
        return change(given)
    if isinstance(given, Mapping):
        return {key: columns(one, change) for key, one in given.items()}
    return [columns(one, change) for one in given] if isinstance(given, list) else given


def holds_columns(given: Any) -> bool:
    seen: list[Any] = []
    columns(given, seen.append)
    return bool(seen)


def shuffled(one: Any) -> pd.Series:
    return pd.Series(one).sample(frac=1, random_state=1)


def of_other_rows(one: Any) -> pd.Series:
    return pd.Series(one, range(1000, 1000 + len(one)))


def found_by(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """What a function finds, in a form that can be compared."""
    found = function(**given)
    if callable(found):  # compute_metrics of a Trainer
        from transformers import EvalPrediction

        found = found(EvalPrediction(LOGITS, PREDICTION))
    if isinstance(found, lh.BiasRule):
        found = found.rule_
    return repr(found.to_dict() if hasattr(found, "to_dict") else found)


OF_SEVERAL = {
    name: (function, base)
    for name, (function, base) in CALLS.items()
    if sum(map(holds_columns, base().values())) > 1
} | {
    "audit of all": (
        lh.audit,
        lambda: {
            "y_true": LABEL, "y_pred": LABEL, "sensitive_features": {"sex": SEX}, "scores": SCORE, "time": TIMES,
            "counts": np.arange(ROWS) + 1, "replicates": 100, "min_count": 2,
        },
    ),
    "gap_score": (
        lh.gap_score,
        lambda: {
            "y_true": LABEL, "y_pred": np.where(SCORE > 0.55, 1, 0), "groups": SEX, "min_count": 2,
        },
    ),
}  # fmt: skip


def test_the_functions_that_take_several_columns_are_here() -> None:
    assert {
        "audit", "audit of decisions", "audit of a ranking", "audit of numbers", "gap_score",
        "gap_metrics", "fit_rule", "BiasRule.fit", "BiasRule.predict", "FittedRule.decide", "Counts.from_rows",
        "JointCounts.from_rows", "joint", "area_under_roc",
    } <= set(OF_SEVERAL)  # fmt: skip


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_columns_of_two_indices_are_refused(name: str) -> None:
    function, base = OF_SEVERAL[name]
    _, *others = [argument for argument, value in base().items() if holds_columns(value)]
    ordered = {argument: columns(value, pd.Series) for argument, value in base().items()}
    assert found_by(function, ordered) == found_by(function, base())
    for other in others:
        for change in (shuffled, of_other_rows):
            with pytest.raises(DataError, match=r"index of .* has other rows .* or another order"):
                found_by(function, {**ordered, other: columns(base()[other], change)})
