"""Bring columns, in any form that Python has for them, into codes and values, or into numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import array_of, as_decimals, class_names
from levelhead.metrics.counts import distinct
from levelhead.report.text import counted
from levelhead.spelling import number_of, shape_of
from levelhead.types import ConfigError, DataError, listed, quoted, refuse_duplicates

FloatArray = NDArray[np.float64]
LARGEST = 1e100
"""Beyond this, squares of numbers can no longer be distinguished from infinity."""
OF_TWO = "Of predict_proba, pass the column of the positive class, [:, 1]."
OF_NUMBERS = "Pass a number for every row, written like 0.25."
OF_SCORES = "Pass the probability or the log odds of the positive class, written like 0.25."

Column = tuple[NDArray[np.int64], list[Hashable]]
"""Codes of the rows of a batch, and what each code represents; None where the value is missing."""


def outcomes_of(
    given: Mapping[str, Any], positive: Hashable, *others: Hashable
) -> tuple[dict[str, Column], list[Hashable]]:
    """Return columns of labels and predictions, those of class labels (``datasets.ClassLabel``) by their names.

    Numbers beside class labels are positions in the names of the first such column.

    Args:
        given: columns by what errors call them; None is left out.
        positive: the positive class, by value, name or position.
        others: further classes that a caller named, likewise.

    Returns:
        the columns, and the positive class and the others in their words. Of two classes with names the positive one
        is the second, where nobody named it.

    Raises:
        DataError: a value is missing.
        ConfigError: a number is the position of one class and the name of another.
    """
    columns = {what: outcome_of(one, what) for what, one in given.items() if one is not None}
    known = {what: names for what in columns if (names := class_names(given[what])) is not None}
    if not known:
        return columns, [positive, *others]
    names = next(iter(known.values()))
    for what, (codes, values) in columns.items():
        if what in known or all(isinstance(value, Number) for value in values):
            named: dict[Any, str] = dict(enumerate(known.get(what, names)))
            columns[what] = codes, [named.get(value, value) for value in values]
    if positive is None and len(names) == 2 and any(names[1] in values for _, values in columns.values()):
        positive = names[1]
    chosen = [positive, *others]
    for at, one in enumerate(chosen):
        if type(one) is int and 0 <= one < len(names):
            if str(one) in names and names[one] != str(one):
                raise ConfigError(
                    f"{one} is the position of one class and the name of another. Write the name in quotes."
                )
            chosen[at] = names[one]
    return columns, chosen


def outcome_of(values: ArrayLike, what: str) -> Column:
    """Return codes and values of a column of labels or predictions; a missing value is an error."""
    codes, names = distinct(values, f"The {what} column", names=False)
    missing = np.flatnonzero(codes < 0)
    if len(missing) and what == "label" and class_names(values) is not None:  # kept secret, which the library writes -1
        return np.where(codes < 0, len(names), codes), [*names, -1]
    if len(missing):
        shown = ", ".join(str(row + 1) for row in missing[:5]) + (", ..." if len(missing) > 5 else "")
        plural = "" if len(missing) == 1 else "s"
        raise DataError(
            f"{len(missing)} missing {what}{plural}, first in row {shown} (counted from 1). "
            f"Fill in the {what}s or leave those rows out."
        )
    return codes, names


def columns_of(
    features: ArrayLike | pd.Series | pd.DataFrame | Mapping[str, ArrayLike], rows: int, what: str = "sensitive columns"
) -> dict[str, Column]:
    """Bring every accepted form of sensitive features into named columns; ``what`` errors call them."""
    columns: dict[str, Column] = {}
    for name, values in by_name(features, "group").items():
        codes, names = distinct(values, column_title(name, what), hint="Several columns go into a frame or a dict.")
        if len(codes) != rows:
            raise DataError(
                f"{column_title(name, what)} has shape {codes.shape}, but there are {rows} rows. "
                "Pass one group for every row; several columns go into a frame or a dict."
            )
        # Code -1 marks missing values.
        columns[name] = np.where(codes < 0, len(names), codes), [*names, None]
    return columns


def by_name(columns: Any, otherwise: str, what: str = "sensitive columns") -> dict[str, Any]:
    """Return the columns of a frame, a table or a dict by their names; a single column by its own, or ``otherwise``.

    Raises:
        DataError: column names are not unique.
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


def column_title(name: str, what: str = "sensitive columns") -> str:
    """Return what errors call a column, ``what`` several of its kind."""
    return f"The {what.removesuffix('s')} {quoted(name)}"


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


def occurring(column: Column) -> tuple[NDArray[np.int64], list[Hashable], list[int]]:
    """Drop the values that no row has; return codes, values and the rows of each value."""
    codes, values = column
    rows = np.bincount(codes, minlength=len(values))
    used = np.flatnonzero(rows)
    if len(used) and used[-1] >= len(used):
        codes = (np.cumsum(rows > 0) - 1)[codes]
    return codes, [values[code] for code in used.tolist()], rows[used].tolist()


def numbers_of_array(score: ArrayLike, title: str, advice: str = OF_NUMBERS) -> FloatArray:
    """Return one number a row, NaN where it is missing; errors name it by ``title`` and end in ``advice``."""
    array = array_of(score, title, hint="" if advice == OF_NUMBERS else OF_TWO, names=False, one="number")
    if array.dtype.kind in "iuf":
        return as_decimals(array)
    if array.dtype.kind in "mM":
        raise DataError(f"{title} holds dates or times, and no numbers. {advice}")
    return numbers_of_column(array.tolist(), title, advice)


def numbers_of_column(values: Sequence[Any], title: str, advice: str = OF_NUMBERS) -> FloatArray:
    """Turn values into numbers, missing ones into NaN; errors name them by ``title``.

    Texts must be written as numbers, with a point, exactly as a label's number is.
    """
    found = np.empty(len(values))
    for position, value in enumerate(values):
        number = _float(value)
        if number is None:
            said = f"{quoted(shape_of(value))} (a: a letter, 9: a digit)" if isinstance(value, str) else quoted(value)
            raise DataError(f"{title} holds {said}, which is no finite number. {advice}")
        found[position] = number
    return found


def _float(value: Any) -> float | None:
    """Return the number that a value is, NaN where it is missing; None of what is no number."""
    if value is None or value is pd.NA:
        return math.nan
    number = number_of(value) if isinstance(value, str) else None if isinstance(value, (bool, np.bool_)) else value
    try:
        return None if number is None else float(number)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


def finite(values: FloatArray, title: str, advice: str) -> FloatArray:
    """Return numbers (rows,); raise :class:`~levelhead.types.DataError` where one is missing, infinite or too large."""
    wrong = np.flatnonzero(~(np.abs(values) <= LARGEST))
    if len(wrong):
        value = float(values[wrong[0]])
        kind = "missing" if math.isnan(value) else "infinite" if math.isinf(value) else f"beyond {LARGEST:g}"
        raise DataError(
            f"{title}: {counted(len(wrong), 'value')} {'is' if len(wrong) == 1 else 'are'} missing or too large, the "
            f"first, in row {wrong[0] + 1:,} (counted from 1), {kind}. {advice}"
        )
    return values
