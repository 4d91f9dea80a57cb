"""Columns of a test as the table that a door takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

import levelhead as lh


def explain_columns(y_true: Any, score: Any, *, sensitive_features: Any, cluster: Any = None, **options: Any) -> Any:
    """Explain the gaps of columns."""
    groups = _named(sensitive_features, "group")
    table = {"label": y_true, "score": score, **groups} | ({} if cluster is None else {"cluster": cluster})
    named = {"label": "label", "score": "score", "cluster": None if cluster is None else "cluster"}
    return lh.explain(_frame(table), **named, groups=list(groups), **options)


def audit_unrecorded(y_true: Any, y_pred: Any, **asked: Any) -> Any:
    """Audit columns whose groups are not recorded: each is passed by what it tells, and named by it."""
    columns = {"label": y_true, "prediction": y_pred}
    named: dict[str, Any] = {"prediction": "prediction"} | ({} if y_true is None else {"label": "label"})
    if (values := asked.pop("labelled", None)) is not None:
        columns["group"], named["labelled_group"] = values, "group"
    for given, role, name in (("proxies", "proxy", "proxy"), ("responses", "groups", "group")):
        if (values := asked.pop(given, None)) is not None:
            found = _named(values, name)
            columns |= found
            named[role] = list(found)
    if (chances := asked.pop("proxy_probabilities", None)) is not None:
        columns |= _named(chances, "p")
        named["proxy_probabilities"] = {name: name for name in _named(chances, "p")}
    if "response" in asked:
        named["randomized_response"] = asked.pop("response")
    return lh.audit_table(_frame(columns), **named, **asked)


def _named(values: Any, name: str) -> dict[str, Any]:
    if isinstance(values, pd.DataFrame):
        return {str(one): values[one] for one in values}
    return dict(values) if isinstance(values, Mapping) else {getattr(values, "name", None) or name: values}


def _frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame({name: list(values) for name, values in columns.items() if values is not None})
