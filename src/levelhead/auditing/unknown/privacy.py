"""Collect group labels under local differential privacy: each person's answer is randomised before it is stored."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import array_of, check_fields, checked
from levelhead.metrics.counts import distinct
from levelhead.types import ConfigError, DataError, check_seed, quoted

FAINTEST = 1e-6
"""The least epsilon, and the least distance of a flip from chance: below it, M cannot be inverted in float64."""


@dataclass(frozen=True)
class Response:
    """How an answer was randomised: exactly one of two numbers.

    Args:
        epsilon: of local differential privacy: the true group is e^epsilon times as likely as each other one.
        flip: chance that the report is another group than the true one; each other one is equally likely.

    Raises:
        ConfigError: neither or both are given, or the number leaves nothing to learn.

    Examples:
        >>> from levelhead.auditing.unknown.privacy import Response
        >>> Response(flip=0.2).matrix(2).tolist()
        [[0.8, 0.2], [0.2, 0.8]]
    """

    epsilon: float | None = None
    flip: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if (self.epsilon is None) == (self.flip is None):
            raise ConfigError("A randomised response is declared by epsilon=E or by flip=Q, exactly one of them.")
        if self.epsilon is not None and not FAINTEST <= self.epsilon < math.inf:
            raise ConfigError(
                f"epsilon={self.epsilon:g}: it must be finite and at least {FAINTEST:g}. Near 0 an answer carries no "
                "information on the group."
            )
        if self.flip is not None and not 0 <= self.flip < 1:
            raise ConfigError(f"flip={self.flip:g} is not a chance from 0 up to 1.")

    @classmethod
    def parse(cls, text: str) -> Response:
        """Read ``epsilon=1.39`` or ``flip=0.2``, as a command line gives it."""
        name, _, number = text.partition("=")
        try:
            return cls(**{name.strip().lower(): float(number)})
        except (TypeError, ValueError):
            raise ConfigError(
                f"Randomised response {quoted(text)}: write epsilon=1.39, or flip=0.2 for the chance of another answer "
                "than the truth."
            ) from None

    def matrix(self, groups: int) -> NDArray[np.float64]:
        """Return M (groups, groups): P(report j | group i), of two groups or more."""
        if self.epsilon is not None:
            odd = 1 / (math.exp(min(self.epsilon, 700.0)) + groups - 1)
        else:
            assert self.flip is not None
            if self.flip >= (groups - 1) / groups - FAINTEST:
                raise ConfigError(
                    f"flip={self.flip:g} with {groups} groups: from {(groups - 1) / groups:.3g} on, a report says no "
                    "more about the group than chance."
                )
            odd = self.flip / (groups - 1)
        return np.full((groups, groups), odd) + np.eye(groups) * (1 - groups * odd)

    def __str__(self) -> str:
        return f"epsilon={self.epsilon:.4g}" if self.epsilon is not None else f"flip={self.flip:g}"


@checked
def randomize(
    values: ArrayLike, epsilon: float, seed: int | None = None, *, categories: Sequence[Hashable] | None = None
) -> NDArray[Any]:
    """Randomise groups, so that an audit can be made and nobody's answer can be held against them.

    Each value stays with chance e^epsilon / (e^epsilon + K - 1), and else becomes one of the other K - 1 categories,
    each equally likely (K-ary randomised response; Kairouz, Bonawitz, Ramage 2016, arXiv:1602.07387).

    Args:
        values: (rows,) groups. None is missing: it is refused, because whether somebody answered is not protected.
        epsilon: the budget of one answer: no report is more than e^epsilon times as likely under one group as under
            another. 1 to 2 is usual. Several answers of a person add their budgets.
        seed: of the generator. None: the system's own randomness, which is what you want for people's data: who knows
            the seed can undo the noise.
        categories: all possible answers. None: those that occur in ``values``; name them where a rare one may not
            occur.

    Returns:
        (rows,) reports, of the kind of ``values``. Audit them with ``levelhead indirect-audit --group REPORTS
        --randomized-response epsilon=E``.

    Raises:
        ConfigError: ``epsilon`` is not above 0 and finite, or there are fewer than two categories.
        DataError: a value is missing, or is none of the categories.

    Examples:
        >>> from levelhead.auditing.unknown import privacy
        >>> reports = privacy.randomize(["f", "m"] * 500, epsilon=1.0, seed=0)
        >>> sorted(set(reports.tolist()))
        ['f', 'm']
    """
    kept = array_of(values, "The column of values")
    distinct(kept, "The column of values")  # which refuses what cannot be distinguished
    if seed is not None:
        check_seed(seed)
    given = kept.tolist()
    missing = int(pd.isna(kept).sum())
    if missing:
        raise DataError(f"{missing} values are missing. Make not answering a category of its own, or leave them out.")
    known = list(dict.fromkeys(categories)) if categories is not None else sorted(set(given), key=str)
    place = {value: position for position, value in enumerate(known)}
    if any(value not in place for value in given):
        raise DataError("Some values are not in categories=. Name every possible answer in categories=.")
    if len(known) < 2:
        raise ConfigError("There are fewer than two categories, so there is nothing to protect. Name them all.")
    chance = Response(epsilon=float(epsilon)).matrix(len(known))[0, 1] * (len(known) - 1)
    rng = np.random.default_rng(seed)
    codes = np.array([place[value] for value in given], np.int64)
    step = np.where(rng.random(len(codes)) < chance, rng.integers(1, len(known), len(codes)), 0)
    # Values of the categories' kind, for a text column cuts longer words that `values` happened not to hold.
    answers = np.array(known, dtype=object)[(codes + step) % len(known)]
    return answers if kept.dtype == object else answers.astype(np.array(known).dtype)
