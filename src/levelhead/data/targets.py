"""The target column of a user's own table: which class each row has, and columns that hold no classes."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from decimal import Decimal

from levelhead.data.text_files import NUMBER
from levelhead.spelling import MOST_CLASSES, alike_pairs, number_of, one_spelling, unlabelled
from levelhead.types import ConfigError, DataError, quoted


def check_target_options(label_map: Mapping[str, str] | None, threshold: float | None) -> None:
    """Raise :class:`~levelhead.types.ConfigError` if a target has a threshold and a map, or one that is no number."""
    if threshold is not None and label_map:
        raise ConfigError("data.threshold makes two classes of numbers, and data.label_map names classes. Take one.")
    if threshold is not None and not abs(threshold) < float("inf"):
        raise ConfigError(f"data.threshold is {threshold}; it must be a finite number.")


def classes_of(
    values: Mapping[str, int],
    column: str,
    where: object,
    *,
    label_map: Mapping[str, str] | None = None,
    threshold: float | None = None,
) -> dict[str, str]:
    """Return the class that each value of the target represents, in their order.

    Args:
        values: the different cells of the target column in all splits, none empty, and how many rows have each.
        column: its name.
        where: its table, for errors.
        label_map: which class a value represents; others represent themselves.
        threshold: numbers of at least so much are of the class that is called after the column, others of "not" it.

    Raises:
        DataError: two classes differ only in spelling, the column holds shares or more than 200 values, or, with a
            threshold, a text.
    """
    if threshold is not None:
        return _above(values, column, where, threshold)
    meaning = label_map or {}
    classes = {value: meaning.get(value, value) for value in values}
    names: Counter[str] = Counter()
    for value, rows in values.items():
        names[classes[value]] += rows
    meant = {*meaning, *meaning.values()}
    _refuse_shares(names, column, where, meant)
    if len(names) > MOST_CLASSES:
        raise DataError(
            f"{where}: {column!r} has {len(names):,} different values, and at most {MOST_CLASSES} classes are "
            "supported. Is it an id or a score? Name another column with data.target, or make two classes of numbers "
            "with data.threshold."
        )
    _refuse_alike(names, column, where, meant)
    odd = unlabelled(names, (), meant, signed=True)
    if odd and {number_of(one) for one in names.keys() - odd} in ({None}, set(range(len(names) - len(odd)))):
        one = str(odd[0])  # beside names, or codes from 0
        raise DataError(
            f"{where}: {column!r} holds {quoted(one)}, which often means no label. Leave its rows out: "
            f"{_setting('ignore_label', one)}. If it is a class: {_setting('label_map', {one: one})}."
        )
    return classes


def ordered(names: Collection[str]) -> tuple[str, ...]:
    """Return distinct values in order: that of numbers where all are numbers, else that of texts."""
    if not all(NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names))
    return tuple(sorted(names, key=lambda name: (Decimal(name), name)))


def _above(values: Collection[str], column: str, where: object, threshold: float) -> dict[str, str]:
    numbers = {value: number_of(value) for value in values}
    texts = sorted(value for value, number in numbers.items() if number is None)
    if texts:
        raise DataError(
            f"{where}: {column!r} has {len(texts):,} values that are not numbers: leave out data.threshold, or their "
            "rows."
        )
    return {value: column if float(number or 0) >= threshold else f"not {column}" for value, number in numbers.items()}


def _refuse_shares(rows: Collection[str], column: str, where: object, meant: set[str]) -> None:
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
    one = {str(value): str(name) for value, name in one_spelling(dict(rows.items())).items()}
    two = {str(value): str(value) for pair in pairs for value in pair}
    raise DataError(
        f"{where}: {column!r} holds {quoted(first)} and {quoted(second)}, two spellings of one value. One class: "
        f"{_setting('label_map', one)}. Two classes: {_setting('label_map', two)}."
    )


def _setting(option: str, value: object) -> str:
    """Return an option as a command takes it."""
    return f"--set {shlex.quote(f'data.{option}={json.dumps(value)}')}"
