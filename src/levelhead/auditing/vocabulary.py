"""Whether labels and predictions speak of the same classes, in the same words.

Values are compared exactly: numbers with numbers, texts with texts, character by character. What would match only as
something else (``1`` and ``1.0``, ``Yes`` and ``yes``, the number 1 and the text ``1``) is never matched silently.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Number

from levelhead.types import ConfigError, DataError, quoted

# A code of more digits is a name, and an exponent of more is a curiosity.
NUMBER = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})(e[+-]?[0-9]{1,4})?")
# Beyond, each prediction that no label has is an id or a score, and not a class that happens not to occur.
MOST_STRAYS = 10


def in_order(values: Iterable[Hashable]) -> list[Hashable]:
    """Sort classes or groups: as numbers where all of them are, or are written like numbers, else as texts."""
    known = list(values)
    numbers = {value: _number(value) for value in known}
    if all(number is not None for number in numbers.values()):
        return sorted(known, key=lambda value: (numbers[value], str(value)))
    return sorted(known, key=lambda value: (type(value).__name__, value if isinstance(value, str) else str(value)))


def check_predictions(labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int]) -> list[str]:
    """Say what is odd about predictions.

    Args:
        labels: rows of each label.
        predictions: rows of each prediction.

    Returns:
        warnings, full sentences.

    Raises:
        DataError: predictions that are scores or ids, that match a label only if numbers, case or blanks were written
            differently, or of which none is a label.
    """
    known, strays = in_order(labels), in_order(predictions.keys() - labels.keys())
    fractions = [value for value in strays if is_fraction(value)]
    half = sum(predictions.values()) / 2
    if fractions and (
        not any(map(is_fraction, known))
        or len(fractions) >= len(known)
        or sum(predictions[value] for value in fractions) > half
    ):
        raise DataError(
            f"The predictions hold {_counted(len(fractions), 'number')} that no label is, such as "
            f"{quoted(fractions[0])}: an audit needs classes, not scores. {threshold_advice(known)}"
        )
    meant = {_loosely(label): label for label in known}
    for stray in strays:
        if (form := _loosely(stray)) in meant:
            raise DataError(_written_differently(meant[form], stray))
    if len(strays) == len(predictions):
        raise DataError(
            f"No prediction is ever one of the labels: labels are {_some(known)}, predictions {_some(strays)}. Pass "
            "predicted classes in the labels' own words (or --label-map), and scores as --score."
        )
    if len(strays) > MOST_STRAYS * len(known):
        raise DataError(
            f"{len(strays)} different predictions, such as {quoted(strays[0])}, are none of the "
            f"{_counted(len(known), 'label')}: are the predictions ids or scores? Scores are named with --score. If "
            "they are classes that no row has, write one word for all of them."
        )
    warnings = alike("The labels", "classes", known)
    if strays:
        rows = sum(predictions[value] for value in strays)
        warnings.append(f"{rows} predictions have values that no label has: {_some(strays)}.")
    if len(known) == 1:
        warnings.append(
            f"Every label is {quoted(str(known[0]))}: gaps that need positives and negatives are undefined."
        )
    return warnings


def alike(title: str, what: str, values: Iterable[Hashable]) -> list[str]:
    """Warn of values that differ only in how a number, case or blanks are written: they are counted apart."""
    met: dict[Hashable, Hashable] = {}
    pairs = [(met[form], value) for value in values if met.setdefault(form := _loosely(value), value) != value]
    if not pairs:
        return []
    first, second = pairs[0]
    more = f", like {_counted(len(pairs) - 1, 'other pair')}" if len(pairs) > 1 else ""
    return [
        f"{title}: {quoted(first)} and {quoted(second)} differ only in how a number, case or blanks are written{more}; "
        f"they are counted as different {what}."
    ]


class LabelMap:
    """Which class of the predictions each label stands for, as ``{">50K": 1, "<=50K": 0}`` or ``>50K=1,<=50K=0``."""

    def __init__(self, given: Mapping[Hashable, Hashable] | Sequence[str] | str | None) -> None:
        self.targets: dict[str, str] = {}
        pairs: list[tuple[str, str]] = []
        if isinstance(given, Mapping):
            pairs = [(str(label), str(target)) for label, target in given.items()]
        else:
            for text in [given] if isinstance(given, str) else given or ():
                for part in str(text).split(","):
                    label, equals, target = part.rpartition("=")
                    if not equals or not label:
                        raise ConfigError(
                            f"--label-map has {quoted(part)}. Write label=prediction, for example '>50K=1,<=50K=0'."
                        )
                    pairs.append((label, target))
        for label, target in pairs:
            if self.targets.setdefault(label, target) != target:
                raise ConfigError(f"The label {quoted(label)} is mapped twice, to different classes.")

    def __bool__(self) -> bool:
        return bool(self.targets)

    @property
    def shown(self) -> dict[str, str]:
        """Classes by the label that stands for them, where it is one label alone."""
        times = Counter(self.targets.values())
        return {target: label for label, target in self.targets.items() if times[target] == 1}

    def apply(
        self, labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int]
    ) -> tuple[dict[Hashable, Hashable], dict[Hashable, Hashable]]:
        """Return what each label, and each prediction, is counted as.

        Raises:
            DataError: a label is not in the map.
        """
        written = {str(value): value for value in predictions}

        def target(value: Hashable) -> Hashable:
            return written.get(self.targets[str(value)], self.targets[str(value)])

        unknown = in_order(value for value in labels if str(value) not in self.targets)
        if unknown:
            raise DataError(
                f"The label map has no class for the label {quoted(unknown[0])}"
                f"{_more(len(unknown) - 1)}. Labels there: {_some(in_order(labels))}."
            )
        ends = set(self.targets.values())
        return {value: target(value) for value in labels}, {
            value: target(value) if str(value) in self.targets and str(value) not in ends else value
            for value in predictions
        }


def _more(count: int) -> str:
    return f" (and {count} more)" if count > 0 else ""


def is_fraction(value: Hashable) -> bool:
    """Whether a value is, or is written like, a number that is not whole."""
    number = _number(value)
    return number is not None and number != number.to_integral_value()


def mostly_fractions(values: Sequence[Hashable]) -> bool:
    """Whether more than half of the values are numbers that are not whole; a thousand of them tell."""
    tried = values[:1000]
    return 2 * sum(map(is_fraction, tried)) > len(tried)


def all_numbers(values: Iterable[Hashable]) -> bool:
    """Whether all values are, or are written like, numbers."""
    return all(_number(value) is not None for value in values)


def threshold_advice(labels: Iterable[Hashable]) -> str:
    """Say how scores become classes."""
    known = in_order(labels)
    if len(known) == 2:
        return (
            "Name the column with --score instead of --prediction (in Python scores=), or write "
            f"{quoted(known[1])} where the score is at least a threshold (0.5 for a probability, 0 for a logit), and "
            f"{quoted(known[0])} elsewhere."
        )
    return "Write the class with the highest score."


def _written_differently(label: Hashable, prediction: Hashable) -> str:
    if not (isinstance(label, str) and isinstance(prediction, str)):
        kinds = f"one is {_kind(label)}, the other {_kind(prediction)}"
    elif _number(label) is not None:
        kinds = "one number, written in two ways"
    else:
        kinds = "they differ only in case, blanks or how letters are composed"
    return (
        f"The prediction {quoted(prediction)} is no label, but {quoted(label)} is: {kinds}. Values are compared "
        "exactly; write labels and predictions in the same way."
    )


def _kind(value: Hashable) -> str:
    if isinstance(value, str):
        return "a text"
    return "a truth value" if isinstance(value, bool) else "a number" if isinstance(value, Number) else "no text"


def _number(value: Hashable) -> Decimal | None:
    """Return the number that a value is, or that a text spells out; None for all else."""
    if isinstance(value, bool) or not isinstance(value, (str, Number)):
        return None
    if isinstance(value, int):
        return Decimal(value)
    text = str(value).strip().lower()
    return Decimal(text) if NUMBER.fullmatch(text) else None


def _loosely(value: Hashable) -> Hashable:
    """Return what is left of a value once numbers, case, blanks and composed letters do not matter."""
    number = _number(value)
    return number if number is not None else " ".join(unicodedata.normalize("NFKC", str(value)).casefold().split())


def _some(values: Sequence[Hashable], shown: int = 5) -> str:
    return ", ".join(map(quoted, values[:shown])) + (", ..." if len(values) > shown else "")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
