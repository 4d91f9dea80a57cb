"""Whether labels and predictions speak of the same classes, in the same words.

Values are compared exactly: numbers with numbers, texts with texts, character by character. What would match only as
something else (``1`` and ``1.0``, ``Yes`` and ``yes``, the number 1 and the text ``1``) is never matched silently: the
error has the ``--label-map`` to type.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

from levelhead.report.text import counted
from levelhead.spelling import alike_pairs, loosely, number_of, one_spelling, unlabelled
from levelhead.tables.columns import positive_index
from levelhead.types import LONGEST_MESSAGE, LONGEST_WORD, ConfigError, DataError, in_quotes, listed, quoted

# Beyond, each prediction that no label has is an id or a score, and not a class that happens not to occur.
MOST_STRAYS = 10
NO_LABELS = (
    "Pass rows with labels; or, for decisions alone, leave out --label and add --favourable CLASS (favourable= in "
    "Python)."
)
_WHOLE = re.compile(r"-?(0|[1-9]\d*)(\.0*)?")
"""A whole number, but for codes such as 01."""
_KINDS = {str: "a text", bool: "a truth value"}
_READING = re.compile(r"(label|prediction)=(.*)", re.DOTALL)


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
        meant: texts of classes that a label map names: they are what they are, however alike.
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
            f"{quoted(fractions[0])}: an audit needs classes, not scores. {threshold_advice(known)}"
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
    known = [one in labels for one in pairs[0]]
    what = "labels" if all(known) else "predictions" if not any(known) else "label"
    other = f"and the prediction {second}" if what == "label" else f"and {second}"
    more = f", like {counted(len(pairs) - 1, 'other pair')}" if len(pairs) > 1 else ""
    apart = {value: value for pair in pairs for value in pair}
    raise DataError(
        f"The {what} {first} {other} are one value in two writings: {_how(*pairs[0])}{more}. Values are compared "
        "exactly; write labels and predictions in the same way, or map them: "
        f"{_written(suggested_map(labels, predictions, meant), apart)}"
    )


def _refuse_unlabelled(labels: Collection[Hashable], predictions: Collection[Hashable], absent: Sequence[Any]) -> None:
    """Raise :class:`DataError` for a label that means, most often, that there is none; ``absent`` are such labels."""
    if not absent:
        return
    value = absent[0]
    pair = map_text({value: value})
    if len(labels) == 1:
        raise DataError(f"Every label is {quoted(value)}, often for no label. {NO_LABELS} If it is a class: {pair}")
    never = ", never predicted," if predictions else ""
    raise DataError(
        f"The label {quoted(value)}{never} often means no label. Leave its rows out: --ignore-label {_field(value)} "
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
    scores = " Are these scores (--score)?" if len(strays) == len(predictions) and len(absent) == len(labels) else ""
    said = (
        f"No row is predicted as the {_plural('label', absent)}, and none is labelled as the "
        f"{_plural('prediction', strays)}.{scores} If they are the same classes"
    )
    apart = {value: value for value in (*absent, *strays)}
    told = f"{said}, map them: {_written(suggested_map(labels, predictions, meant), apart)}"
    for one in unlabelled(labels, predictions, meant)[:1]:
        told = f"{told.rstrip('.')}. If {one} means no label: --ignore-label {_field(one)}"
    raise DataError(told)


def suggested_map(
    labels: Mapping[Hashable, int], predictions: Mapping[Hashable, int], meant: Collection[str] = ()
) -> dict[Hashable, Hashable]:
    """Return a label map under which :func:`check_predictions` finds nothing: a guess for the user to read.

    Spellings that are alike become the most frequent one, of the predictions if there is one. Labels that are still
    never predicted represent predictions that are still never a label, in their order.
    """
    found: dict[Hashable, Hashable] = {}
    most = sum(labels.values()) + 1
    rows = {value: labels.get(value, 0) + most * predictions.get(value, 0) for value in {**labels, **predictions}}
    for value, target in one_spelling(rows).items():
        if not (str(value) in meant and str(target) in meant):
            found[value] = target
    named = {found.get(value, value) for value in labels}
    said = {found.get(value, value) for value in predictions}
    absent = in_order(value for value in named - said if str(value) not in meant)
    strays = in_order(value for value in said - named if str(value) not in meant)
    if absent and strays:
        pairs = _shifted(named, said) or dict(zip(absent, strays, strict=False))
        found = {value: pairs.get(target, target) for value, target in found.items()} | {
            value: target for value, target in pairs.items() if value != target or value not in said
        }
    # What is neither predicted nor mapped must be named, or it would be taken for forgotten.
    ends = {str(target) for target in found.values()} | {str(value) for value in predictions}
    return found | {value: value for value in labels if value not in found and str(value) not in ends}


def _shifted(labels: Collection[Hashable], predictions: Collection[Hashable]) -> dict[Hashable, Hashable]:
    """Return which number each label is, where both count from different numbers or have other signs; else nothing."""
    known, said = in_order(labels), in_order(predictions)
    if not all_numbers([*known, *said]):
        return {}
    if len(known) == len(said):
        return dict(zip(known, said, strict=True))
    written = {number: value for value in [*known, *said] if (number := number_of(value)) is not None}
    for step in (-1, 1):
        moved = {value: number + step for value in known if (number := number_of(value)) is not None}
        if {number_of(value) for value in said} <= set(moved.values()):
            return {value: written.get(number, f"{number:f}") for value, number in moved.items()}
    return {}


def _written(pairs: Mapping[Hashable, Hashable], apart: Mapping[Hashable, Hashable]) -> str:
    """Return what to type for a label map, and for one that says that classes are different."""
    python = ", ".join(f"{label!r}: {target!r}" for label, target in pairs.items())
    typed, different = map_text(pairs), map_text(apart)
    if len(typed) > LONGEST_MESSAGE / 3:
        return "--label-map 'label=prediction,...' (in Python label_map=)."
    both = f" If they are different classes: {different}" if len(different) < LONGEST_MESSAGE / 3 else ""
    in_python = f" (in Python label_map={{{python}}})." if len(python) < LONGEST_MESSAGE / 3 else "."
    return f"{typed}{in_python}{both}"


def map_text(pairs: Mapping[Hashable, Hashable]) -> str:
    """Return the options that a shell takes; a class that holds ``=``, a comma or a quote stands in quotes."""
    options: list[str] = []
    for label, target in pairs.items():
        pair = f"{_field(label)}={_field(target)}"
        if options and len(options[-1]) + len(pair) < LONGEST_WORD / 2:
            options[-1] += f",{pair}"
        else:
            options.append(pair)
    return " ".join(f"--label-map {shlex.quote(option)}" for option in options)


def _field(value: Hashable) -> str:
    text = _typed(str(value))
    if text and not set('=,"') & set(text) and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


def _typed(text: str) -> str:
    """Spell out characters that nobody sees or can type; :meth:`LabelMap.settle` finds what that represents."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


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


def reading(wanted: Hashable, known: Collection[str] = ()) -> tuple[str | None, Hashable]:
    """Return whether a class is named as a ``label=`` or a ``prediction=``, None of neither, and its name."""
    found = None if str(wanted) in known else _READING.fullmatch(str(wanted))
    return (None, wanted) if found is None else (found[1], found[2])


class LabelMap:
    """Which class of the predictions each label means, as ``{">50K": 1, "<=50K": 0}`` or ``>50K=1,<=50K=0``.

    In text, the last ``=`` divides a pair. A class that holds a comma, and a prediction that holds ``=``, stand in
    double quotes.
    """

    def __init__(self, given: Mapping[Hashable, Hashable] | Mapping[str, str] | Sequence[str] | str | None) -> None:
        self.targets: dict[str, str] = {}
        self._pairs: list[tuple[str, str]] = []
        self._labels: frozenset[str] = frozenset()
        self._seen: frozenset[str] = frozenset()  # of all files that the map was applied to
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
                ``label=x`` and ``prediction=x`` say which is meant.
        """
        known = [*map(str, classes), *self.targets]
        kind, name = reading(wanted, known)
        target = self.targets.get(str(name), name)
        if kind == "label" and self and str(name) not in self._labels | self.targets.keys():
            return positive_index(classes, wanted, what)  # which says that it is no class
        if kind is None and str(target) != str(name) and str(name) in known[: len(classes)]:
            raise ConfigError(
                f"The {what} class {quoted(name)} has two readings: label={name} is the class {quoted(target)}, "
                f"prediction={name} is {quoted(name)}. Write one of them."
            )
        return positive_index(classes, name if kind == "prediction" else target, what)

    @property
    def shown(self) -> dict[str, str]:
        """The labels that represent classes of another name, by class, where it is one label alone."""
        every = {label: label for label in sorted(self._labels)} | self.targets
        times = Counter(every.values())
        return {target: label for label, target in every.items() if times[target] == 1 and label != target}

    @property
    def named(self) -> frozenset[str]:
        """Texts of all classes that the map names."""
        return frozenset(self.targets) | frozenset(self.targets.values())

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
        typed = {_typed(text): text for text in there}
        self.targets = {}
        for pair in self._pairs:
            # Errors spell out what cannot be seen, and a blank behind a comma is most often none of the class.
            label, target = (
                next((one for one in (text, typed.get(text), text.strip()) if one in there), text) for text in pair
            )
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
        self._seen |= {*map(str, labels), *map(str, predictions)}
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
                f"{_more(len(unknown) - 1)}. Labels there: {_named(labels)}."
            )
        return {value: target(value) for value in labels}, {
            value: target(value) if str(value) in self.targets and str(value) not in ends else value
            for value in predictions
        }

    def refuse_unused(self) -> None:
        """Raise :class:`ConfigError` for a class that the map renames, and no label or prediction so far is."""
        whole = copy.copy(self)
        whole.settle(self._seen, ())
        absent = [one for one, target in whole.targets.items() if one != target and one not in self._seen]
        if absent:
            raise ConfigError(
                f"The label map has {quoted(absent[0])}{_more(len(absent) - 1)}, which is neither a label nor a "
                f"prediction. Correct it, or leave it out. Classes there: {_named(self._seen)}."
            )


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


def mostly_fractions(values: Sequence[Hashable]) -> bool:
    """Whether more than half of the values are numbers that are not whole; a thousand of them tell."""
    tried = values[:1000]
    return 2 * sum(map(is_fraction, tried)) > len(tried)


def all_numbers(values: Iterable[Hashable]) -> bool:
    """Whether all values are, or are written like, numbers."""
    return all(number_of(value) is not None for value in values)


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


def _how(first: Hashable, second: Hashable) -> str:
    """Say in what two values differ that are alike."""
    kinds = [_KINDS.get(type(one), "a number") for one in (first, second)]
    return (
        f"one is {kinds[0]}, the other {kinds[1]}" if kinds[0] != kinds[1] else "case, blanks, marks or digits differ"
    )


def _plural(what: str, values: Sequence[Hashable]) -> str:
    return f"{what}{'' if len(values) == 1 else 's'} {_named(values)}"


def _named(classes: Iterable[Hashable]) -> str:
    return listed(map(quoted, in_order(classes)), 5)
