"""Read a column of numbers: scores, probabilities, ages, weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import array_of, as_decimals
from levelhead.spelling import NUMBER, shape_of
from levelhead.types import DataError, quoted

FloatArray = NDArray[np.float64]
OF_TWO = "Of predict_proba, pass the column of the positive class, [:, 1]."
OF_SCORES = "Pass the probability or the log odds of the positive class, written like 0.25."


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
