"""Which scale scores have: one rule, for every command that reads scores.

One value never decides it. Probabilities that rounding or averaging has put just outside 0 to 1 stay probabilities, and
a column that lies mostly in 0 to 1 and partly outside is nobody's guess: the user says what it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelhead.types import ConfigError, DataError, listed, quoted

AUTO, PROBABILITY, LOG_ODDS, OTHER = "auto", "probability", "log-odds", "other"
SCALES = (PROBABILITY, LOG_ODDS, OTHER)
SLACK = 1e-6
"""Probabilities this far outside 0 to 1 are rounding errors."""
ASK = f"--scale {'|'.join(SCALES)} (in Python scale=)"


def check_scale(scale: object) -> str:
    """Return the name of a scale, or "auto"; raise :class:`ConfigError` for another word."""
    found = str(scale)
    if found not in (AUTO, *SCALES):
        raise ConfigError(
            f"scale={quoted(scale)} is unknown. Known: {listed((AUTO, *SCALES))}. --scale says what the "
            "scores are, --score names their column."
        )
    return found


@dataclass(frozen=True)
class Scale:
    """The scale of a column of scores.

    Attributes:
        name: "probability", "log-odds" or "other".
        rows: number of scores.
        outside: how many probabilities lie outside 0 to 1; they count as 0 or 1.
        low: the lowest score, as it was given.
        high: the highest score, as it was given.
    """

    name: str
    rows: int
    outside: int
    low: float
    high: float

    @property
    def probabilities(self) -> bool:
        """Whether the scores are probabilities."""
        return self.name == PROBABILITY

    def clip(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores (rows,), of which no probability lies outside 0 to 1."""
        return np.clip(scores, 0.0, 1.0) if self.probabilities and self.outside else scores

    def default_threshold(self) -> float:
        """Return 0.5 for probabilities and 0 for log odds; raise :class:`ConfigError` for another scale."""
        if self.name == OTHER:
            raise ConfigError(
                f"Scores range from {self.low:g} to {self.high:g}: neither probabilities nor log odds. Give the "
                "decision threshold with --threshold (threshold= in Python)."
            )
        return 0.5 if self.probabilities else 0.0

    def sentence(self, threshold: float) -> str:
        """Say which scale and which threshold are used."""
        words = {PROBABILITY: "probabilities", LOG_ODDS: "log odds", OTHER: "numbers of another scale"}
        return f"Scores are read as {words[self.name]}; threshold {threshold:g} (--scale and --threshold change both)."

    def warnings(self) -> list[str]:
        """Return a sentence where probabilities were clipped."""
        if not (self.probabilities and self.outside):
            return []
        lie = "probability lies" if self.outside == 1 else "probabilities lie"
        verb = "counts" if self.outside == 1 else "count"
        return [
            f"{self.outside:,} of {self.rows:,} {lie} outside 0 to 1 and {verb} as 0 or 1: scores range from "
            f"{exact(self.low)} to {exact(self.high)}."
        ]


def find_scale(batches: Iterable[NDArray[np.float64]], title: str, wanted: str = AUTO) -> Scale:
    """Find the scale of scores, or check the one that was named.

    Args:
        batches: all scores, finite, some rows at a time.
        title: what errors call the scores.
        wanted: "auto", or the name of a scale.

    Returns:
        the scale. "auto": probabilities where all scores lie between 0 and 1, give or take 1e-6; log odds where some
        are negative and most lie outside 0 to 1; else another scale.

    Raises:
        DataError: most scores lie in 0 to 1 and some outside, or most "probabilities" lie outside.
    """
    rows = near = inside = 0
    low, high = np.inf, -np.inf
    for batch in batches:
        if len(batch):
            rows += len(batch)
            low, high = min(low, float(batch.min())), max(high, float(batch.max()))
            inside += int(((batch >= 0) & (batch <= 1)).sum())
            near += int(((batch >= -SLACK) & (batch <= 1 + SLACK)).sum())
    outside = rows - inside
    if wanted == PROBABILITY and 2 * near <= rows:
        raise DataError(f"{title} ranges from {low:g} to {high:g}; probabilities lie between 0 and 1.")
    if wanted == AUTO:
        if near == rows:
            wanted = PROBABILITY
        elif 2 * near > rows:
            raise DataError(
                f"{title}: {near:,} of {rows:,} scores lie in 0 to 1, the others go as far as {low:g} and {high:g}, "
                f"and probabilities lie between 0 and 1. Say what they are: {ASK}."
            )
        else:
            wanted = LOG_ODDS if low < 0 else OTHER
    return Scale(wanted, rows, outside if wanted == PROBABILITY else 0, low, high)


def exact(value: float) -> str:
    """Write a number so that no other one looks like it: one just outside 0 to 1 is not written 0 or 1."""
    return f"{value:g}" if value in (float(f"{value:g}"),) else repr(float(value))
