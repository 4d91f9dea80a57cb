"""Bring labels, predictions and groups, in any form that Python has for columns, into codes and values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from levelhead.auditing.frames import named_columns
from levelhead.auditing.tally import Column
from levelhead.metrics.counts import distinct
from levelhead.types import ConfigError, DataError, listed, quoted


def outcome_of(values: ArrayLike, what: str) -> Column:
    """Return codes and values of a column of labels or predictions; a missing value is an error."""
    codes, names = distinct(values, f"The {what} column")
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        shown = ", ".join(str(row + 1) for row in missing[:5]) + (", ..." if len(missing) > 5 else "")
        plural = "" if len(missing) == 1 else "s"
        raise DataError(
            f"{len(missing)} missing {what}{plural}, first in row {shown} (counted from 1). "
            f"Fill in the {what}s or leave those rows out."
        )
    return codes, names


def columns_of(
    features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike], rows: int
) -> dict[str, Column]:
    """Bring every accepted form of sensitive features into named columns."""
    if isinstance(features, pd.DataFrame):
        given: list[tuple[Any, Any]] = [(name, features.iloc[:, at]) for at, name in enumerate(features.columns)]
    elif isinstance(features, Mapping):
        given = list(features.items())
    elif (named := named_columns(features)) is not None:
        given = list(named.items())
    else:
        name = getattr(features, "name", None)
        given = [("group" if name is None else name, features)]
    columns: dict[str, Column] = {}
    for key, values in given:
        name = str(key)
        if name in columns:
            raise DataError(f"Two sensitive columns are named {quoted(name)}. Rename or remove one of them.")
        codes, names = distinct(values, column_title(name))
        if len(codes) != rows:
            raise DataError(
                f"Sensitive column {quoted(name)} has shape {codes.shape}, but there are {rows} rows. "
                "Pass one group for every row; several columns go into a frame or a dict."
            )
        # Code -1 marks missing values.
        columns[name] = np.where(codes < 0, len(names), codes), [*names, None]
    return columns


def column_title(name: str) -> str:
    """Return what errors call a sensitive column."""
    return f"The sensitive column {quoted(name)}"


def positive_index(classes: list[Hashable], positive: Hashable) -> int | None:
    """Find the positive class by value, or by its text (as a command line passes it)."""
    if positive is None:
        return None
    if positive in classes:
        return classes.index(positive)
    as_text = [str(value) for value in classes]
    if str(positive) in as_text:
        return as_text.index(str(positive))
    raise ConfigError(f"The positive class {quoted(positive)} is not among the classes: {listed(as_text)}.")


def name_of(values: object, otherwise: str = "label") -> str:
    """Return the name of a pandas or polars column; else ``otherwise``."""
    name = getattr(values, "name", None)
    return name if isinstance(name, str) and name else otherwise
