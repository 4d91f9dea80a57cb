"""Whether labels and predictions speak of the same classes, in the same words.

Values are compared exactly: numbers with numbers, texts with texts, character by character. What would match only as
something else (``1`` and ``1.0``, ``Yes`` and ``yes``, the number 1 and the text ``1``) is never matched silently: the
error lists the values of both columns for a ``--label-map``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from levelhead.report.text import counted
from levelhead.spelling import alike_pairs, loosely, number_of, unlabelled
from levelhead.tables.columns import positive_index
from levelhead.types import ConfigError, DataError, in_quotes, listed, quoted

# Beyond, each prediction that no label has is an id or a score, and not a class that happens not to occur.
MOST_STRAYS = 10
NO_LABELS = (
    "Pass rows with labels; or, for decisions alone, leave out --label and add --favourable CLASS (favourable= in "
    "Python)."
)
_WHOLE = re.compile(r"-?(0|[1-9]\d*)(\.0*)?")
"""A whole number, but for codes such as 01."""
TO_CLASSES = (
    "Scores are named with --score instead of --prediction (scores= in Python); or write the class with the highest "
    "score."
)
"""What to do with scores where classes are needed."""


def in_order(values: Iterable[Hashable]) -> list[Hashable]:
    """Sort classes or groups: as numbers where all of them are, or are written like numbers, else as texts."""
    known = list(values)
    numbers = {value: number_of(value) for value in known}
    if all(number is not None for number in numbers.values()):
        return sorted(known, key=lambda value: (numbers[value], str(value)))
    return sorted(known, key=lambda value: (type(value).__name__, value if isinstance(value, str) else str(value)))


def check_labels(labels: Mapping[Hashable, int], meant: Collection[str] = ()) -> None:
    """Raise :class:`DataError` for labels of scores that are most often one or none, as :func:`check_predictions`."""
    _refuse_alike(labels, {}, meant)
    _refuse_unlabelled(labels, {}, unlabelled(labels, {}, meant, signed=True))


def check_predictions(
    labels: Mapping[Hashable, int],
    predictions: Mapping[Hashable, int],
    meant: Collection[str] = (),
    *,
    scored: bool = False,
) -> list[str]:
    """Say what is odd about predictions.

    Args:
        labels: rows of each label.
        predictions: rows of each prediction.
        meant: texts of classes that a label map maps to themselves: they are what they are, however alike.
        scored: the predictions are decided scores, whose labels :func:`check_labels` has seen.

    Returns:
        warnings, full sentences.

    Raises:
        DataError: predictions that are scores or ids; labels that are shares; two classes that differ only in case,
            blanks, a final mark or the format of a number; a label that is never predicted beside a prediction that is
            never a label, or that often means that there is no label.
    """
    known, strays = in_order(labels), in_order(predictions.keys() - labels.keys())
    _refuse_fractions(known, strays, predictions)
    if not scored and (len(known) == 1 or len(known) != len(predictions)):  # else -1, 1 may be 0, 1
        _refuse_unlabelled(labels, predictions, unlabelled(labels, predictions, meant))
    _refuse_alike(labels, predictions, meant)
    if len(strays) > MOST_STRAYS * len(known) and len(strays) < len(predictions):
        raise DataError(
            f"{len(strays)} different predictions are none of the "
            f"{counted(len(known), 'label')}: are the predictions ids or scores? Scores are named with --score. If "
            "they are classes that no row has, write one word for all of them."
        )
    _refuse_unpaired(labels, predictions, meant)
    warnings = []
    if strays:
        rows = sum(predictions[value] for value in strays)
        warnings.append(f"{rows} predictions have values that no label has: {_named(strays)}.")
    if len(known) == 1:
        warnings.append(
            f"Every label is {quoted(str(known[0]))}: gaps that need positives and negatives are undefined."
        )
    return warnings


def _refuse_fractions(
    known: Sequence[Hashable], strays: Sequence[Hashable], predictions: Mapping[Hashable, int]
) -> None:
    fractions = [value for value in strays if is_fraction(value)]
    half = sum(predictions.values()) / 2
    if fractions and (
        not any(map(is_fraction, known))
        or len(fractions) >= len(known)
        or sum(predictions[value] for value in fractions) > half
    ):
        raise DataError(
            f"The predictions hold {counted(len(fractions), 'number')} that no label is, such as "
            f"{quoted(fractions[0])}: an audit needs classes, not scores. {TO_CLASSES}"
        )
    shares = [value for value in known if is_fraction(value)]
    if are_shares(known) and not any(map(is_fraction, predictions)):
        raise DataError(
            f"The labels hold shares, such as {quoted(shares[0])}, and the predictions classes. Write a class for each "
            "share: 1 where it is at least 0.5, for example, and 0 elsewhere."
        )


def _refuse_alike(labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int], meant: Collection[str]) -> None:
    """Raise :class:`DataError` for two classes that are alike, unless both are meant."""
    every = [*in_order(labels), *in_order(predictions.keys() - labels.keys())]
    pairs = [pair for pair in alike_pairs(every) if not all(str(value) in meant for value in pair)]
    if not pairs:
        return
    first, second = map(quoted, pairs[0])
    more = f", like {counted(len(pairs) - 1, 'other pair')}" if len(pairs) > 1 else ""
    raise DataError(f"{first} and {second} are one value in two writings{more}. {_to_map(labels, predictions)}")


def _to_map(labels: Collection[Hashable], predictions: Collection[Hashable]) -> str:
    """Say how values become one, or stay two, with those that there are."""
    beside = f"; predictions: {_named(predictions)}" if predictions else ""
    return (
        f"Labels: {_named(labels)}{beside}. Map each to one class: --label-map 'LABEL=CLASS,...' (in Python "
        f"label_map={{LABEL: CLASS}}). Map a class to itself to keep it.{_with_signs((*labels, *predictions))}"
    )


def _with_signs(values: Iterable[Hashable]) -> str:
    signs = any({"=", ","} & set(str(value)) for value in values)
    return " Put a class with = or a comma in double quotes." if signs else ""


def _refuse_unlabelled(labels: Collection[Hashable], predictions: Collection[Hashable], absent: Sequence[Any]) -> None:
    """Raise :class:`DataError` for a label that means, most often, that there is none; ``absent`` are such labels."""
    if not absent:
        return
    value = absent[0]
    pair = f"--label-map {value}={value}"
    if len(labels) == 1:
        raise DataError(f"Every label is {quoted(value)}, often for no label. {NO_LABELS} If it is a class: {pair}")
    never = ", never predicted," if predictions else ""
    raise DataError(
        f"The label {quoted(value)}{never} often means no label. Leave its rows out: --ignore-label {value} "
        f"(ignore_label={value!r} in Python). If it is a class: {pair} (label_map={{{value!r}: {value!r}}})."
    )


def _refuse_unpaired(
    labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int], meant: Collection[str]
) -> None:
    """Raise :class:`DataError` for labels that are never predicted beside predictions that are never a label."""
    absent = [value for value in in_order(labels.keys() - predictions.keys()) if str(value) not in meant]
    strays = [value for value in in_order(predictions.keys() - labels.keys()) if str(value) not in meant]
    if not absent or not strays:
        return
    scores = " Are these scores (--score)?" if len(strays) > len(absent) and all_numbers(strays) else ""
    told = (
        f"No row is predicted as the {_plural('label', absent)}, and none is labelled as the "
        f"{_plural('prediction', strays)}.{scores} {_to_map(labels, predictions)}"
    )
    for one in unlabelled(labels, predictions, meant)[:1]:
        told = f"{told} If {one} means no label: --ignore-label {one}"
    raise DataError(told)


def alike(title: str, what: str, values: Iterable[Hashable]) -> list[str]:
    """Warn of values that differ only in how a number, case or blanks are written: they are counted apart."""
    pairs = alike_pairs(values)
    if not pairs:
        return []
    first, second = pairs[0]
    more = f", like {counted(len(pairs) - 1, 'other pair')}" if len(pairs) > 1 else ""
    return [
        f"{title}: {in_quotes(first)} and {in_quotes(second)} differ only in how a number, case or blanks are "
        f"written{more}; "
        f"they are counted as different {what}."
    ]


_QUOTED = r'"(?:[^"]|"")*"'
_IN_QUOTES = re.compile(_QUOTED)
_PAIRS = (
    re.compile(rf'({_QUOTED}|[^",][^,]*?)=({_QUOTED})(?:,|$)'),
    re.compile(rf"({_QUOTED}|[^,]+)=([^,=]*)(?:,|$)"),  # of several =, the last one divides
)


class LabelMap:
    """Which class of the predictions each label means, as ``{">50K": 1, "<=50K": 0}`` or ``>50K=1,<=50K=0``.

    In text, the last ``=`` divides a pair. A class that holds a comma, and a prediction that holds ``=``, stand in
    double quotes.
    """

    def __init__(self, given: Mapping[Hashable, Hashable] | Mapping[str, str] | Sequence[str] | str | None) -> None:
        self.targets: dict[str, str] = {}
        self._pairs: list[tuple[str, str]] = []
        self._labels: frozenset[str] = frozenset()
        self._first: dict[Any, str] = {}  # how a number was first written, of several ways
        self.said: list[str] = []
        if isinstance(given, Mapping):
            self._pairs = [(str(label), str(target)) for label, target in given.items()]
        else:
            for text in [given] if isinstance(given, str) else given or ():
                self._pairs += _read_pairs(str(text))
        self._given = bool(self._pairs)
        self.settle((), ())

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def place(self, wanted: Hashable, classes: list[Hashable], what: str = "positive") -> int | None:
        """Return the place of a class that a user names by a label or a prediction; None of no name.

        Raises:
            ConfigError: there is no such class; or the name is a label of one class and the prediction of another.
        """
        target = self.targets.get(str(wanted), wanted)
        if str(target) != str(wanted) and str(wanted) in map(str, classes):
            raise ConfigError(
                f"The {what} class {quoted(wanted)} has two readings: the label {wanted} is the class "
                f"{quoted(target)}, the prediction {wanted} is another. Map labels to words that no label has."
            )
        return positive_index(classes, target, what)

    @property
    def shown(self) -> dict[str, str]:
        """The labels that represent classes of another name, by class, where it is one label alone."""
        every = {label: label for label in sorted(self._labels)} | self.targets
        times = Counter(every.values())
        return {target: label for label, target in every.items() if times[target] == 1 and label != target}

    @property
    def kept(self) -> frozenset[str]:
        """Texts of the classes that the map keeps: those that it maps to themselves."""
        return frozenset(label for label, target in self.targets.items() if label == target)

    def join_numbers(self, labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int]) -> None:
        """Take whole numbers in two writings, 1 and 1.0, for one class where all classes are such and no map is given.

        ``said`` then has a note.
        """
        texts = [one for one in (*in_order(labels), *in_order(predictions)) if isinstance(one, str)]
        if self._given or len(texts) < len(labels) + len(predictions) or not all(map(_WHOLE.fullmatch, texts)):
            return
        first = {one: self._first.setdefault(number_of(one), one) for one in texts}
        pairs = [pair for pair in first.items() if pair[0] != pair[1] and pair not in self._pairs]
        self._pairs += pairs
        if pairs and not self.said:
            one, other = map(in_quotes, pairs[0])
            self.said = [f"{other} and {one} are one number and count as one class; --label-map says otherwise."]

    def settle(self, labels: Collection[Hashable], predictions: Collection[Hashable]) -> None:
        """Find out which class each side of a pair is, now that the values are known.

        Raises:
            ConfigError: one label is mapped to two classes.
        """
        self._labels = frozenset(map(str, labels))
        there = self._labels | set(map(str, predictions))
        self.targets = {}
        for pair in self._pairs:  # a blank behind a comma is most often none of the class
            label, target = (text.strip() if text not in there and text.strip() in there else text for text in pair)
            if self.targets.setdefault(label, target) != target:
                raise ConfigError(f"The label {quoted(label)} is mapped twice, to different classes.")

    def apply(
        self, labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int]
    ) -> tuple[dict[Hashable, Hashable], dict[Hashable, Hashable]]:
        """Return what each label, and each prediction, is counted as.

        A label that is not in the map represents itself if it is a class of the predictions or of the map.

        Raises:
            DataError: a label is not in the map and no such class.
            ConfigError: as :meth:`settle`.
        """
        self.settle(labels, predictions)
        ends = set(self.targets.values())
        written = {str(value): value for value in labels if str(value) in ends and str(value) not in self.targets}
        written |= {str(value): value for value in predictions}

        def target(value: Hashable) -> Hashable:
            text = self.targets.get(str(value), str(value))
            return written.get(text, value if text == str(value) else text)

        for text in self._labels & self.targets.keys() & set(map(str, predictions)) - ends:
            if loosely(text) != loosely(self.targets[text]):
                raise DataError(
                    f"The label map makes the label {quoted(text)} the class {quoted(self.targets[text])}, and "
                    f"{quoted(text)} is a prediction, too. Rename one of them."
                )
        unknown = in_order(
            value
            for value in labels
            if str(value) not in self.targets and str(value) not in ends and str(value) not in written
        )
        if unknown:
            raise DataError(
                f"The label map has no class for the label {quoted(unknown[0])}"
                f"{_more(len(unknown) - 1)}. Labels there: {_named(labels)}.{_with_signs(labels)}"
            )
        return {value: target(value) for value in labels}, {
            value: target(value) if str(value) in self.targets and str(value) not in ends else value
            for value in predictions
        }


def _read_pairs(text: str) -> list[tuple[str, str]]:
    """Return each pair of a label map."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text) or not found:
        pair = next((one for pattern in _PAIRS if (one := pattern.match(text, at))), None)
        if pair is None:
            raise ConfigError(
                f"--label-map has {quoted(text[at:])}. Write label=prediction, for example '>50K=1,<=50K=0'; a class "
                "with a comma, or a prediction with =, in double quotes."
            )
        label, target = (one[1:-1].replace('""', '"') if _IN_QUOTES.fullmatch(one) else one for one in pair.groups())
        found.append((label, target))
        at = pair.end()
    return found


def agree(
    labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int], label_map: LabelMap
) -> tuple[dict[Hashable, Hashable], dict[Hashable, Hashable], dict[Hashable, int], dict[Hashable, int]]:
    """Return the class of each label and of each prediction, and the rows of each class in both."""
    as_label: dict[Hashable, Hashable] = {value: value for value in labels}
    as_prediction: dict[Hashable, Hashable] = {value: value for value in predictions}
    label_map.join_numbers(labels, predictions)
    if label_map:
        as_label, as_prediction = label_map.apply(labels, predictions)
    return as_label, as_prediction, _merged(labels, as_label), _merged(predictions, as_prediction)


def _merged(rows: Mapping[Hashable, int], as_class: Mapping[Hashable, Hashable]) -> dict[Hashable, int]:
    """Return the rows of each class, of rows by what is written."""
    merged: dict[Hashable, int] = {}
    for value, count in rows.items():
        merged[as_class[value]] = merged.get(as_class[value], 0) + count
    return merged


def _more(count: int) -> str:
    return f" (and {count} more)" if count > 0 else ""


def is_fraction(value: Hashable) -> bool:
    """Whether a value is, or is written like, a number that is not whole."""
    number = number_of(value)
    return number is not None and number != number.to_integral_value()


def are_shares(values: Collection[Hashable]) -> bool:
    """Whether values are all numbers from 0 to 1, and some are neither."""
    numbers = [number_of(value) for value in values]
    return any(map(is_fraction, values)) and all(number is not None and 0 <= number <= 1 for number in numbers)


def all_numbers(values: Iterable[Hashable]) -> bool:
    """Whether all values are, or are written like, numbers."""
    return all(number_of(value) is not None for value in values)


def _plural(what: str, values: Sequence[Hashable]) -> str:
    return f"{what}{'' if len(values) == 1 else 's'} {_named(values)}"


def _named(classes: Iterable[Hashable]) -> str:
    return listed(map(quoted, in_order(classes)), 5)
