"""Perplexity from the log-likelihoods of documents; no model is needed.

With L the sum of log-likelihoods (nats) over all documents, and T their scored tokens::

    perplexity per token  = exp(-L / T)
    bits per byte         = -L / (ln 2 * bytes in UTF-8)          bits per character alike

So long documents weigh more than short ones. Tokens differ between tokenizers, bytes do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.lm.base import Answer, Item, Scores, answers_by_id, finite_number
from levelhead.lm.intervals import bootstrap, ratio

UNITS = {
    "perplexity_per_token": "perplexity, at least 1; comparable for one tokenizer alone",
    "bits_per_byte": "bits",
    "bits_per_character": "bits",
}


def score_answers(items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
    """Score answers whose content has ``log_likelihood`` and ``tokens``; intervals draw documents.

    Raises :class:`~levelhead.types.DataError` for missing or doubled answers, and for one without finite numbers.
    """
    given = answers_by_id(items, answers, "perplexity")
    likelihoods, tokens = (
        np.array([finite_number(answer, answer.content, name, "perplexity") for answer in given.values()])
        for name in ("log_likelihood", "tokens")
    )
    texts = [item.content["text"] for item in items]
    named: list[Any] = [item.id for item in items]
    cut = list(zip(named, tokens.tolist(), strict=True))  # tokens of another tokenizer are no pair to these
    sizes = {
        "perplexity_per_token": (tokens, _perplexity),
        "bits_per_byte": (np.array([len(text.encode()) for text in texts], dtype=float), _bits),
        "bits_per_character": (np.array([len(text) for text in texts], dtype=float), _bits),
    }
    return Scores(
        benchmark="perplexity",
        overall={
            name: bootstrap(
                np.stack([-likelihoods, size], axis=1),
                None,
                statistic,
                ids=cut if statistic is _perplexity else named,
            )
            for name, (size, statistic) in sizes.items()
        },
        units=UNITS,
        notes=(f"{len(items):,} documents, {int(tokens.sum()):,} scored tokens; intervals draw documents.",),
    )


def _perplexity(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # a model that foresees nothing at all
        return np.exp(ratio(sums))


def _bits(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return ratio(sums) / math.log(2)
