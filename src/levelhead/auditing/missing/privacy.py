"""Collect group labels under local differential privacy: each person's answer is randomised before it is stored."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from levelhead.arrays import array_of, checked
from levelhead.metrics.counts import distinct
from levelhead.types import ConfigError, DataError, check_seed


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
        (rows,) reports, of the kind of ``values``. Audit them with ``levelhead audit --randomized-response epsilon=E``.

    Raises:
        ConfigError: ``epsilon`` is not above 0 and finite, or there are fewer than two categories.
        DataError: a value is missing, or is none of the categories.

    Examples:
        >>> from levelhead.auditing.missing import privacy
        >>> reports = privacy.randomize(["f", "m"] * 500, epsilon=1.0, seed=0)
        >>> sorted(set(reports.tolist()))
        ['f', 'm']
    """
    from levelhead.auditing.missing.responses import Response  # not at once: the package's name needs no statistics

    kept = array_of(values, "The column of values")
    distinct(kept, "The column of values")  # which refuses what cannot be told apart
    if seed is not None:
        check_seed(seed)
    given = kept.tolist()
    missing = int(pd.isna(kept).sum())
    if missing:
        raise DataError(f"{missing} values are missing. Make not answering a category of its own, or leave them out.")
    known = list(dict.fromkeys(categories)) if categories is not None else sorted(set(given), key=str)
    place = {value: position for position, value in enumerate(known)}
    if any(value not in place for value in given):
        raise DataError("Some values are none of the categories. Name every possible answer in categories=.")
    if len(known) < 2:
        raise ConfigError("There are fewer than two categories, so there is nothing to protect. Name them all.")
    chance = Response(epsilon=float(epsilon)).matrix(len(known))[0, 1] * (len(known) - 1)
    rng = np.random.default_rng(seed)
    codes = np.array([place[value] for value in given], np.int64)
    step = np.where(rng.random(len(codes)) < chance, rng.integers(1, len(known), len(codes)), 0)
    # Values of the categories' kind, for a text column cuts longer words that `values` happened not to hold.
    answers = np.array(known, dtype=object)[(codes + step) % len(known)]
    return answers if kept.dtype == object else answers.astype(np.array(known).dtype)
