"""The few records that everything passes around."""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # importing torch takes seconds, and an audit does not need it
    from torch import Tensor


LONGEST_NAME = 80
"""In characters."""


def visible(text: str, keep: str = "") -> str:
    """Spell out characters that cannot be seen, that command a terminal, or that turn text around, e.g. ``\\x1b``.

    Control characters, line separators, bidirectional overrides, halves of surrogate pairs and unassigned characters
    are written as in Python, but for those in ``keep``. Zero-width joiners stay: emoji and several scripts need them.
    """
    if text.isprintable():
        return text
    return "".join(character if _is_shown(character, keep) else _spelled(character) for character in text)


def _is_shown(character: str, keep: str) -> bool:
    joiner = character in "\u200c\u200d"
    return character.isprintable() or joiner or character in keep or unicodedata.category(character) == "Zs"


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def printable(name: object, longest: int = LONGEST_NAME) -> str:
    """Return a name out of data as tables show it: on one line, nothing hidden, at most ``longest`` characters.

    For the names of groups, classes, columns and files. A cut is marked with an ellipsis.
    """
    text = str(name)
    shown = visible(text[: longest + 1])
    return shown if len(shown) <= longest and len(text) <= longest else shown[: longest - 1] + "…"


def quoted(value: object, longest: int = LONGEST_NAME) -> str:
    """Return a name or a value between quotation marks, as sentences hold it: :func:`printable`, of what Python shows.

    A name longer than ``longest`` is cut before it is quoted.
    """
    if isinstance(value, str):
        return repr(value if len(value) <= longest else value[: longest - 1] + "…")
    try:
        return printable(repr(value), longest)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of very many digits"


class LevelheadError(Exception):
    """Base of every error that levelhead raises on purpose; its text says what, where and what to do."""


class ConfigError(LevelheadError):
    """A recipe, an option or an argument cannot be right."""


class DataError(LevelheadError):
    """The data on disk or in memory is not what it should be."""


class DemographicsHidden(LevelheadError):  # noqa: N818  (reads as the state it reports)
    """A method that does not declare ``uses_groups`` asked who belongs to which group."""


class UnsupportedModelError(LevelheadError):
    """Debiased attention cannot be put into this model; the text names the reason and the way out."""


class Batch(NamedTuple):
    """One training batch.

    ``inputs`` is exactly what the Hugging Face model takes; ``labels`` (batch,) int64; ``index`` (batch,)
    position in the training set; ``weight`` (batch,) float32, 1.0 unless an earlier stage decided otherwise;
    ``group`` (batch,) int64, or None unless the method declares ``uses_groups`` or inferred the groups itself.
    """

    inputs: dict[str, Tensor]
    labels: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    weight: Tensor
    group: Tensor | None = None


@dataclass(frozen=True)
class Estimate:
    """A measured figure (a fraction unless its name says otherwise) with its interval.

    ``n`` is the number of rows that the figure rests on. An undefined figure is NaN, never 0, and ``reason``
    says why. ``corrected`` is the bias-corrected value where the plain one is biased (maxima and absolute gaps).
    """

    value: float
    low: float
    high: float
    n: int
    reason: str | None = None
    corrected: float | None = None

    @property
    def defined(self) -> bool:
        """Whether the figure could be computed at all."""
        return not math.isnan(self.value)

    @classmethod
    def undefined(cls, reason: str, n: int = 0) -> Estimate:
        """Make a NaN figure that carries the reason for being undefined."""
        return cls(math.nan, math.nan, math.nan, n, reason)

    def __str__(self) -> str:
        if not self.defined:
            return "undefined"
        return f"{100 * self.value:.2f} [{100 * self.low:.2f}, {100 * self.high:.2f}]"


def check_numbers(
    section: str,
    options: object,
    *,
    at_least_one: Sequence[str] = (),
    positive: Sequence[str] = (),
    at_least_zero: Sequence[str] = (),
) -> None:
    """Raise :class:`ConfigError` for a named option that is out of range; None is left alone."""
    for name in at_least_one:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ConfigError(f"{section}.{name} is {value}; it must be at least 1.")
    for name in positive:
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"{section}.{name} is {value}; it must be positive and finite.")
    for name in at_least_zero:
        value = getattr(options, name)
        if value is not None and not 0 <= value < math.inf:
            raise ConfigError(f"{section}.{name} is {value}; it must be 0 or more, and finite.")


def listed(names: Iterable[object], most: int = 60) -> str:
    """Return names with commas between them; of more than ``most``, how many are left out."""
    every = list(names)
    shown = [printable(name) for name in every[:most]]
    return ", ".join(shown) + (f" and {len(every) - most:,} more" if len(every) > most else "")


def require_columns(there: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Raise :class:`DataError` if one of ``wanted`` is not ``there``, or is there more than once.

    The text names the nearest and lists the rest. Two columns of one name that nobody wants do no harm.
    """
    for name in wanted:
        if name not in there:
            likely = [other for other in there if len(other) <= LONGEST_NAME]
            near = difflib.get_close_matches(name[:LONGEST_NAME], likely, 1) or [
                other for other in likely if other.lower() == name.lower()
            ]
            hint = f" Did you mean {quoted(near[0])}?" if near else ""
            raise DataError(f"{where} has no column {quoted(name)}.{hint} Columns there: {listed(there)}.")
        if (times := there.count(name)) > 1:
            raise DataError(
                f"{where} has {times} columns named {quoted(name)}, and nothing says which of them is meant. Rename or "
                "remove all but one."
            )
