"""The few records that everything passes around."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # importing torch takes seconds, and an audit does not need it
    from torch import Tensor


LONGEST_QUOTE = 80
MOST_LISTED = 20
"""How many characters of a value, and how many names of columns, an error shows."""


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


def require_columns(there: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Raise :class:`DataError` if one of ``wanted`` is not ``there``, or is there more than once.

    The text names the nearest and lists the rest. Two columns of one name that nobody wants do no harm.
    """
    for name in wanted:
        if name not in there:
            likely = [other for other in there if len(other) <= LONGEST_QUOTE]
            near = difflib.get_close_matches(name[:LONGEST_QUOTE], likely, 1) or [
                other for other in likely if other.lower() == name.lower()
            ]
            hint = f" Did you mean {near[0]!r}?" if near else ""
            listed = ", ".join(map(_plain, there[:MOST_LISTED]))
            more = f" and {len(there) - MOST_LISTED} more" if len(there) > MOST_LISTED else ""
            raise DataError(f"{where} has no column {quoted(name)}.{hint} Columns there: {listed}{more}.")
        if (times := there.count(name)) > 1:
            raise DataError(
                f"{where} has {times} columns named {quoted(name)}, and which of them is meant cannot be known. "
                "Rename or remove all but one."
            )


def quoted(value: object) -> str:
    """Return a value as an error names it: on one line, control characters spelled out, cut when it is long."""
    text = " ".join(repr(value[: LONGEST_QUOTE + 1] if isinstance(value, str) else value).splitlines())
    return text if len(text) <= LONGEST_QUOTE + 2 else f"{text[:LONGEST_QUOTE]}…"


def _plain(name: str) -> str:
    return name if name.isprintable() and len(name) <= LONGEST_QUOTE else quoted(name)
