"""Bring labels, predictions and groups, in any form that Python has for columns, into codes and values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from levelhead.arrays import class_names
from levelhead.auditing.tally import Column
from levelhead.metrics.counts import distinct
from levelhead.types import ConfigError, DataError, listed, quoted, refuse_duplicates


def outcomes_of(
    given: Mapping[str, Any], positive: Hashable, *others: Hashable
) -> tuple[dict[str, Column], list[Hashable], list[str]]:
    """Return columns of labels and predictions, where columns of class labels (``datasets.ClassLabel``) have names.

    Classes are matched by those names. Numbers beside them are positions in the names of the first such column.

    Args:
        given: columns by what errors call them, the labels first; None is left out.
        positive: the positive class, by value, name or position.
        others: further classes that a caller named, likewise.

    Returns:
        the columns, the positive class and the others in their words, and a warning where numbers were taken as
        positions. Of two classes with names the positive one is the second, where nobody named it.

    Raises:
        DataError: a value is missing, or a column names a class that the first does not.
    """
    labels = next(iter(given))
    columns = {what: outcome_of(one, what) for what, one in given.items() if what == labels or one is not None}
    known = {what: names for what in columns if (names := class_names(given[what])) is not None}
    if not known:
        return columns, [positive, *others], []
    first, names = next(iter(known.items()))
    numbered = [
        what
        for what, (_, values) in columns.items()
        if what not in known and all(isinstance(value, Number) for value in values)
    ]  # fmt: skip
    for what, own in known.items():
        codes, values = columns[what]
        if unknown := [own[int(str(code))] for code in values if own[int(str(code))] not in names]:
            raise DataError(
                f"The {what} column has the class {quoted(unknown[0])}, and the {first} column has {listed(names)}. "
                "Give both the same names."
            )
        columns[what] = codes, [own[int(str(code))] for code in values]
        if numbered:
            columns[what] = codes, [names.index(name) for name in columns[what][1]]
    if numbered:
        said = (
            f"The {first} column has the class names {listed(names, 5)}; the numbers of the {numbered[0]} column are "
            "read as positions in these names, from 0."
        )
        at = [names.index(one) if isinstance(one, str) and one in names else one for one in (positive, *others)]
        return columns, at, [said]
    if positive is None and len(names) == 2 and any(names[1] in values for _, values in columns.values()):
        positive = names[1]
    positions = dict(enumerate(names))
    named = [one if isinstance(one, bool) else positions.get(one, one) for one in (positive, *others)]  # type: ignore[call-overload]
    return columns, named, []


def outcome_of(values: ArrayLike, what: str) -> Column:
    """Return codes and values of a column of labels or predictions; a missing value is an error."""
    codes, names = distinct(values, f"The {what} column", names=False)
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
    columns: dict[str, Column] = {}
    for name, values in by_name(features, "group").items():
        codes, names = distinct(values, column_title(name), hint="Several columns go into a frame or a dict.")
        if len(codes) != rows:
            raise DataError(
                f"Sensitive column {quoted(name)} has shape {codes.shape}, but there are {rows} rows. "
                "Pass one group for every row; several columns go into a frame or a dict."
            )
        # Code -1 marks missing values.
        columns[name] = np.where(codes < 0, len(names), codes), [*names, None]
    return columns


def by_name(columns: Any, otherwise: str, what: str = "sensitive columns") -> dict[str, Any]:
    """Return the columns of a frame, a table or a dict by their names; a single column by its own, or ``otherwise``.

    Raises:
        DataError: two columns have one name.
    """
    if isinstance(columns, pd.DataFrame):
        given: list[tuple[Any, Any]] = [(name, columns.iloc[:, at]) for at, name in enumerate(columns.columns)]
    elif isinstance(columns, Mapping):
        given = list(columns.items())
    elif (named := named_columns(columns)) is not None:
        given = list(named.items())
    else:
        name = None if callable(columns) else getattr(columns, "name", None)
        given = [(otherwise if name is None else name, columns)]
    found: dict[str, Any] = {}
    for key, values in given:
        if str(key) in found:
            raise DataError(f"Two {what} are named {quoted(str(key))}. Rename or remove one of them.")
        found[str(key)] = values
    return found


def named_columns(features: Any) -> dict[str, Any] | None:
    """Return the columns of a table of pandas, polars, pyarrow or datasets by name; None of anything else.

    The library need not be there: ``column_names`` (pyarrow, datasets) or ``columns`` (polars) name the columns.
    """
    names = getattr(features, "column_names", None)
    names = getattr(features, "columns", None) if names is None else names
    if (
        names is None
        or isinstance(features, (Mapping, type))
        or isinstance(names, str)
        or not all(isinstance(name, str) for name in names)
    ):
        return None
    refuse_duplicates(list(names), names, "The table")
    return {name: features[name] for name in names}


def column_title(name: str) -> str:
    """Return what errors call a sensitive column."""
    return f"The sensitive column {quoted(name)}"


def positive_index(classes: list[Hashable], positive: Hashable, what: str = "positive") -> int | None:
    """Find the positive class by value, or by its text (as a command line passes it); ``what`` else errors call it."""
    if positive is None:
        return None
    if positive in classes:
        return classes.index(positive)
    as_text = [str(value) for value in classes]
    if str(positive) in as_text:
        return as_text.index(str(positive))
    raise ConfigError(f"The {what} class {quoted(positive)} is not among the classes: {listed(as_text)}.")


def name_of(values: object, otherwise: str = "label") -> str:
    """Return the name of a pandas or polars column; else ``otherwise``."""
    name = getattr(values, "name", None)
    return name if isinstance(name, str) and name else otherwise
