"""The target column of a user's own table: which class each row has, and columns that hold no classes."""

from __future__ import annotations

import json
import logging
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from itertools import compress

from levelhead.data.text_files import NUMBER
from levelhead.spelling import MOST_CLASSES, alike_pairs, is_value, number_of, one_spelling, unlabelled
from levelhead.types import ConfigError, DataError, listed, quoted

logger = logging.getLogger(__name__)


def check_target_options(label_map: Mapping[str, str] | None, threshold: float | None) -> None:
    """Raise :class:`~levelhead.types.ConfigError` if a target has a threshold and a map, or one that is no number."""
    if threshold is not None and label_map:
        raise ConfigError("data.threshold makes two classes of numbers, and data.label_map names classes. Take one.")
    if threshold is not None and not abs(threshold) < float("inf"):
        raise ConfigError(f"data.threshold is {threshold}; it must be a finite number.")


def classes_of(
    values: Sequence[str],
    column: str,
    where: object,
    *,
    label_map: Mapping[str, str] | None = None,
    threshold: float | None = None,
    ignore_label: str | int | None = None,
) -> tuple[list[str], tuple[str, ...]]:
    """Return the class of each row, and the classes in order: as numbers where all are numbers, else as texts.

    Args:
        values: (rows,) the cells of the target column, in all splits, none empty.
        column: its name.
        where: its table, for errors.
        label_map: which class each value represents; others represent themselves.
        ignore_label: the value of rows without a class, which no split has; None: there are none.
        threshold: rows with at least this number are of the second class, which is called after the column.

    Raises:
        DataError: two classes differ only in spelling, the column holds shares or more than 200 values, or, with a
            threshold, a text.
    """
    if ignore_label is not None:
        kept = [not is_value(value, ignore_label) for value in values]
        found, names = classes_of(list(compress(values, kept)), column, where, label_map=label_map, threshold=threshold)
        classes = iter(found)
        return [next(classes) if one else "" for one in kept], names
    if threshold is not None:
        return _above(values, column, where, threshold)
    if label_map:
        # No error: a table for evaluation alone need not hold every spelling of the one for training.
        if absent := [one for one, name in label_map.items() if one != name and one not in set(values)]:
            logger.warning("%s: no row has %s in %r, which data.label_map renames.", where, listed(absent), column)
        values = [label_map.get(value, value) for value in values]
    rows = Counter(values)
    meant = {*(label_map or {}), *(label_map or {}).values()}
    _refuse_shares(rows, column, where, meant)
    if len(rows) > MOST_CLASSES:
        raise DataError(
            f"{where}: {column!r} has {len(rows):,} different values, and at most {MOST_CLASSES} classes are "
            "supported. Is it an id or a score? Name another column with data.target"
            + (f", or make two classes of it: {_setting('threshold', 0.5)}." if _all_numbers(rows) else ".")
        )
    _refuse_alike(rows, column, where, meant)
    odd = unlabelled(rows, (), meant, signed=True)
    if odd and {number_of(one) for one in rows.keys() - odd} in ({None}, set(range(len(rows) - len(odd)))):
        one = str(odd[0])  # beside names, or codes from 0
        raise DataError(
            f"{where}: {column!r} holds {quoted(one)}, which often means no label. Leave its rows out: "
            f"{_setting('ignore_label', one)}. If it is a class: {_setting('label_map', {one: one})}."
        )
    return list(values), ordered(rows)


def ordered(names: Collection[str]) -> tuple[str, ...]:
    """Return distinct values in order: that of numbers where all are numbers, else that of texts."""
    if not all(NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: (Decimal(name), name)))


def _above(values: Sequence[str], column: str, where: object, threshold: float) -> tuple[list[str], tuple[str, ...]]:
    numbers = {value: number_of(value) for value in set(values)}
    texts = sorted(value for value, number in numbers.items() if number is None)
    if texts:
        raise DataError(
            f"{where}: {column!r} has {len(texts):,} values that are not numbers: leave out data.threshold, or their "
            "rows."
        )
    names = (f"not {column}", column)
    above = {value: names[int(float(number or 0) >= threshold)] for value, number in numbers.items()}
    return [above[value] for value in values], names


def _refuse_shares(rows: Mapping[str, int], column: str, where: object, meant: set[str]) -> None:
    numbers = {value: number for value in rows if (number := number_of(value)) is not None}
    fractions = [value for value, number in numbers.items() if 0 < number < 1 and value not in meant]
    if len(numbers) < len(rows) or not fractions or not all(0 <= number <= 1 for number in numbers.values()):
        return
    classes = "" if len(rows) > 10 else f" If these are classes: {_setting('label_map', {one: one for one in rows})}."
    raise DataError(
        f"{where}: {column!r} holds {len(rows):,} different numbers from 0 to 1, such as {quoted(min(fractions))}: a "
        f"share of annotators? Two classes of it: {_setting('threshold', 0.5)} (data.threshold: 0.5 in a recipe)."
        + classes
    )


def _refuse_alike(rows: Mapping[str, int], column: str, where: object, meant: set[str]) -> None:
    pairs = [pair for pair in alike_pairs(sorted(rows)) if not {str(one) for one in pair} <= meant]
    if not pairs:
        return
    first, second = pairs[0]
    numbers = number_of(first) is not None and number_of(second) is not None
    how = "one number written in two ways" if numbers else "which differ only in case, blanks, quotes or a final mark"
    one = {str(value): str(name) for value, name in one_spelling(dict(rows.items())).items()}
    two = {str(value): str(value) for pair in pairs for value in pair}
    raise DataError(
        f"{where}: {column!r} holds {quoted(first)} and {quoted(second)}, {how}. One class: "
        f"{_setting('label_map', one)}. Two classes: {_setting('label_map', two)}."
    )


def _setting(option: str, value: object) -> str:
    """Return an option as a command takes it."""
    return f"--set {shlex.quote(f'data.{option}={json.dumps(value)}')}"


def _all_numbers(values: Mapping[str, int]) -> bool:
    return all(number_of(value) is not None for value in values)
