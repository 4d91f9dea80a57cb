"""The few records that everything passes around."""

from __future__ import annotations

import difflib
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:  # importing torch takes seconds, and an audit does not need it
    from torch import Tensor


LONGEST_NAME = 80
LONGEST_WORD = 300
LONGEST_MESSAGE = 2000
MOST_LAYERS = 1000
MOST_BYTES = 2**46  # where the system does not tell its memory
"""In characters. A path is a word, and may be longer than a name; a message may list every recipe."""

_MOST_SEED = 2**63 - 1
MOST_SIZE = 1 << 17
"""Of a side of a layer; the largest models have a tenth of it."""


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


def in_quotes(value: object, longest: int = LONGEST_NAME) -> str:
    """Return a value of the user's data as findings and warnings hold it: “Black”.

    Columns and options stay bare there, and so do groups that a headline counts (59% of women) and cells of tables.
    Errors quote what is to be typed again, with :func:`quoted`.
    """
    return f"“{printable(value, longest)}”"


def quoted(value: Any, longest: int = LONGEST_NAME) -> str:
    """Return a name or a value between quotation marks, as sentences hold it: :func:`printable`, of what Python shows.

    A name longer than ``longest`` is cut before it is quoted.
    """
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()  # np.str_('a') and np.int64(1) would show their type
    if isinstance(value, str):
        return repr(value if len(value) <= longest else value[: longest - 1] + "…")
    try:
        return printable(repr(value), longest)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of very many digits"
    except Exception:  # an object of somebody else's, which need not let itself be shown
        return f"a value of type {type(value).__name__}"


def _message(text: str) -> str:
    """Return the text of an error on one line, without control characters, and without anything of great length."""
    line = visible(" ".join(part.strip() for part in re.split(r"[\r\n]+", text.strip())))
    ends = LONGEST_NAME // 2
    line = re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][:ends]}…{word[0][-ends:]}", line)
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"


def reason_of(error: Exception) -> str:
    """Return why something failed, of a system's error without its number and path."""
    return getattr(error, "strerror", None) or str(error)


class LevelheadError(Exception):
    """Base of every error that levelhead raises on purpose; its text says what, where and what to do.

    The text is one line, whatever names are in it, and short: messages never quote file contents.

    Examples:
        >>> import levelhead as lh
        >>> try:
        ...     lh.audit([], [], sensitive_features=[])
        ... except lh.LevelheadError as error:
        ...     print(error)
        There are no rows to audit. Pass at least one labelled prediction.
    """

    def __init__(self, text: object = "") -> None:
        super().__init__(_message(str(text)))


class UnwritableError(LevelheadError, OSError):
    """A file or a folder cannot be written; an OSError, too, for those who can do without that file."""


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

    Examples:
        >>> import torch
        >>> import levelhead as lh
        >>> inputs = {"pixel_values": torch.zeros(2, 3, 8, 8)}
        >>> batch = lh.Batch(inputs, labels=torch.tensor([0, 1]), index=torch.tensor([5, 9]), weight=torch.ones(2))
        >>> batch.group is None
        True
    """

    inputs: dict[str, Tensor]
    labels: Tensor
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    weight: Tensor
    group: Tensor | None = None


@dataclass(frozen=True)
class Estimate:
    """A measured figure (a fraction unless its name says otherwise) with its interval.

    ``n`` is the number of rows that the figure is based on. An undefined figure is NaN, never 0, and ``reason``
    says why. ``corrected`` is the bias-corrected value where the plain one is biased (maxima and absolute gaps).
    ``assumes`` says what the figure takes for granted where the groups were not known (docs/missing-attributes.md), and
    ``refused`` whether a method declined to give a figure, for its ``reason``.

    Examples:
        >>> import levelhead as lh
        >>> print(lh.Estimate(0.75, 0.66, 0.82, n=100))
        75.00 [66.00, 82.00]
        >>> lh.Estimate.undefined("no positives").reason
        'no positives'
    """

    value: float
    low: float
    high: float
    n: int
    reason: str | None = None
    corrected: float | None = None
    assumes: str | None = None
    refused: bool = False

    @property
    def defined(self) -> bool:
        """Whether the figure could be computed at all."""
        return not math.isnan(self.value)

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval leaves out 0; False where there is none."""
        return self.low > 0 or self.high < 0

    @property
    def size(self) -> Estimate:
        """The absolute value of a signed figure; its interval starts at 0 where that of the signed one holds 0."""
        ends = sorted((abs(self.low), abs(self.high)))
        low = ends[0] if self.excludes_zero or math.isnan(self.low) else 0.0
        return replace(self, value=abs(self.value), low=low, high=ends[1])

    @classmethod
    def undefined(cls, reason: str, n: int = 0) -> Estimate:
        """Make a NaN figure that carries the reason for being undefined."""
        return cls(math.nan, math.nan, math.nan, n, reason)

    @classmethod
    def without_interval(cls, value: float, n: int, why: str | None = None, **more: Any) -> Self:
        """Make a figure without an interval, and say why it has none."""
        return cls(value, math.nan, math.nan, n, None if why is None else f"no interval: {why}", **more)

    @classmethod
    def refuse(cls, reason: str, n: int = 0, assumes: str | None = None) -> Estimate:
        """Make the undefined figure of a method that declines to give one."""
        return cls(math.nan, math.nan, math.nan, n, reason, assumes=assumes, refused=True)

    def within(self, lowest: float, highest: float) -> Self:
        """Return the figure with its interval cut at the ends of its scale; no interval stays none."""
        if math.isnan(self.low):
            return self
        return replace(self, low=max(self.low, lowest), high=min(self.high, highest))

    def __str__(self) -> str:
        if not self.defined:
            return "undefined"
        if math.isnan(self.low):
            return f"{100 * self.value:.2f}, no interval"
        return f"{100 * self.value:.2f} [{100 * self.low:.2f}, {100 * self.high:.2f}]"


def check_seed(seed: object, what: str = "seed") -> None:
    """Raise :class:`ConfigError` unless ``seed`` is a whole number that torch and numpy take: 0 to 2^63 - 1."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MOST_SEED:
        raise ConfigError(f"{what} is {quoted(seed)}; it must be a whole number, 0 or more, below 2^63.")


def _most(name: str) -> int:
    """Return the largest value of a count."""
    return 100_000 if name.endswith("epochs") else 1024 if name == "threads" else 2**31 - 1


def check_sizes(**sizes: int) -> None:
    """Raise :class:`ConfigError` unless each size of a layer is 1 or more, and together they can be memory."""
    for name, value in sizes.items():
        if not 1 <= value <= MOST_SIZE:
            raise ConfigError(f"{name} is {quoted(value)}; it must be from 1 to {MOST_SIZE:,}.")
    if math.prod(sizes.values()) > MOST_SIZE**2:
        raise ConfigError(
            f"{', '.join(sizes)} make a layer of {math.prod(sizes.values()):,} numbers: choose smaller ones."
        )


def check_numbers(
    section: str,
    options: object,
    *,
    at_least_one: Sequence[str] = (),
    positive: Sequence[str] = (),
    at_least_zero: Sequence[str] = (),
) -> None:
    """Raise :class:`ConfigError` for a named option that is out of range; None is left alone.

    Numbers of epochs, of threads and counts of anything have a largest value, too: no typing error costs a year.
    """
    for name in (*at_least_one, *positive):
        value = getattr(options, name)
        if isinstance(value, int) and value > (most := _most(name)):
            years = (
                f" At one second an epoch that takes {quoted(value // 31_557_600)} years." if "epochs" in name else ""
            )
            raise ConfigError(f"{section}.{name} is {quoted(value)}; it must be at most {most:,}.{years}")
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


def refuse_absurd_network(what: str, numbers: int, layers: int = 1) -> None:
    """Raise :class:`ConfigError` for a network that this machine cannot hold, before anything of it is made.

    ``what`` names the options that decide its size, ``numbers`` counts its parameters and buffers.
    """
    if layers > MOST_LAYERS:
        raise ConfigError(f"{what} gives {layers:,} layers; at most {MOST_LAYERS:,} are built. Lower it.")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else MOST_BYTES
    if 4 * numbers > memory:
        raise ConfigError(
            f"{what} gives {numbers:,} parameters: {4 * numbers / 1e9:,.0f} GB, and four times that in training. This "
            f"machine has {memory / 1e9:,.0f} GB of memory. Lower it."
        )


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
            hint = _meant(name, there)
            parts = [one.strip() for one in name.split(",")]
            if len(parts) > 1 and set(parts) <= set(there):
                hint = f" For {len(parts)} columns, repeat the option, with one name each."
            raise DataError(f"{where} has no column {quoted(name)}.{hint} Columns there: {listed(there)}.")
    refuse_duplicates(there, wanted, where)


def require_own_columns(there: Sequence[str], wanted: Iterable[str | None], where: str) -> None:
    """Raise :class:`DataError` as :func:`require_columns`; where no column is ``there``, name none that is.

    A recipe of somebody else may name any file of this machine: what its first line says stays unsaid.
    """
    names = [name for name in dict.fromkeys(wanted) if name is not None]
    if not set(names) & set(there):
        raise DataError(f"{where} has none of the columns {listed(names)} that the recipe names. Is it the right file?")
    require_columns(there, names, where)


def refuse_duplicates(there: Sequence[str], names: Iterable[str], where: str) -> None:
    """Raise :class:`DataError` if two columns that are ``there`` bear one of ``names``: which of them is meant?"""
    times = Counter(there)
    for name in names:
        if times[name] > 1:
            raise DataError(f"{where} has {times[name]} columns named {quoted(name)}, rename or remove all but one.")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names the nearest known word, if one is near, and all of them."""
    if not (words := list(known)):
        return "None is known there."
    return f"{_meant(word, words)} Known: {listed(words)}.".lstrip()


def _meant(word: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest known word, if one is near and about as long or begins with it."""
    alike = [one for one in known if one.startswith(word) or 0.6 < len(one) / max(len(word), 1) < 1.7]
    likely = {one.lower(): one for one in alike}
    near = difflib.get_close_matches(word.lower(), likely, 1, cutoff=0.65) if len(word) <= LONGEST_NAME else []
    return f" Did you mean {quoted(likely[near[0]])}?" if near else ""
