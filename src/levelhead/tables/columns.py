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
from levelhead.spelling import NUMBER, shape_of
from levelhead.types import ConfigError, DataError, listed, quoted, refuse_duplicates

FloatArray = NDArray[np.float64]
LARGEST = 1e100
"""Beyond this, squares of numbers can no longer be distinguished from infinity."""
OF_TWO = "Of predict_proba, pass the column of the positive class, [:, 1]."
OF_SCORES = "Pass the probability or the log odds of the positive class, written like 0.25."

Column = tuple[NDArray[np.int64], list[Hashable]]
"""Codes of the rows of a batch, and what each code represents; None where the value is missing."""


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
        named = [own[place] if (place := int(str(code))) >= 0 else place for code in values]
        if unknown := [one for one in named if one not in (*names, -1)]:
            raise DataError(
                f"The {what} column has the class {quoted(unknown[0])}, and the {first} column has {listed(names)}. "
                "Give both the same names."
            )
        columns[what] = codes, [names.index(str(one)) if numbered and one != -1 else one for one in named]
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
    for one in (positive, *others):
        if type(one) is int and str(one) in names and positions.get(one) != str(one):
            raise ConfigError(f"{one} is the position of one class and the name of another. Write the name in quotes.")
    chosen = [one if isinstance(one, bool) else positions.get(one, one) for one in (positive, *others)]  # type: ignore[call-overload]
    return columns, chosen, []


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


def numbers_of_array(score: ArrayLike, title: str, advice: str = OF_SCORES) -> FloatArray:
    """Return one number a row, NaN where it is missing; errors name it by ``title`` and end in ``advice``."""
    array = array_of(score, title, hint=OF_TWO, names=False, one="number")
    if array.dtype.kind in "iuf":
        return as_decimals(array)
    if array.dtype.kind in "mM":
        raise DataError(f"{title} holds dates or times, and no numbers. {advice}")
    return numbers_of_column(array.tolist(), title, advice)


def numbers_of_column(values: Sequence[Any], title: str, advice: str = OF_SCORES) -> FloatArray:
    """Turn values into numbers, missing ones into NaN; errors name them by ``title``.

    Texts must be written as numbers, with a point, exactly as a label's number is.
    """
    found = np.empty(len(values))
    for position, value in enumerate(values):
        if isinstance(value, str):
            good = NUMBER.fullmatch(value.strip().lower()) is not None
        else:
            good = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.bool_))
        if not good and not isinstance(value, (str, bool, np.bool_)):
            try:  # decimals of parquet files, and missing values
                good = value is None or value is pd.NA or float(value) == float(value)
            except (TypeError, ValueError, OverflowError):
                good = False
        if not good:
            said = f"{quoted(shape_of(value))} (a: a letter, 9: a digit)" if isinstance(value, str) else quoted(value)
            raise DataError(f"{title} holds {said}, which is no finite number. {advice}")
        try:
            found[position] = math.nan if value is None or value is pd.NA else float(value)
        except OverflowError:
            found[position] = math.inf
    return found


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
