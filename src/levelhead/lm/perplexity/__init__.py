"""Perplexity on held-out text: what debiasing costs a language model.

With L the sum of log-likelihoods (nats) over all documents, and T their scored tokens::

    perplexity per token  = exp(-L / T)
    bits per byte         = -L / (ln 2 * bytes in UTF-8)          bits per character alike

So long documents weigh more than short ones. Tokens differ between tokenizers, bytes do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from levelhead.data.base import Card
from levelhead.lm.base import Answer, Benchmark, Headline, Item, Scores, answers_by_id, finite_number
from levelhead.lm.files import lines_of
from levelhead.lm.intervals import estimated, ratio
from levelhead.types import ConfigError, DataError

if TYPE_CHECKING:
    from levelhead.lm.model import LanguageModel

__all__ = ["Perplexity"]


UNITS = {
    "perplexity_per_token": "perplexity, at least 1; comparable for one tokenizer alone",
    "bits_per_byte": "bits",
    "bits_per_character": "bits",
}


@dataclass(frozen=True)
class Perplexity(Benchmark):
    """How well a causal model foresees the documents of ``file``, one a line.

    Documents beyond the model's limit are read in windows, each ``stride`` tokens further (None: half a window), see
    :meth:`levelhead.lm.model.LanguageModel.window_log_likelihoods`.
    """

    file: Path | None = None
    stride: int | None = None

    name: ClassVar[str] = "perplexity"
    causal_only: ClassVar[bool] = True
    headlines: ClassVar[Mapping[str, Headline]] = {
        "perplexity_per_token": ("utility", "low", None),
        "bits_per_byte": ("utility", "low", None),
    }
    free_options: ClassVar[frozenset[str]] = frozenset({"file"})
    card: ClassVar[Card] = Card(
        title="Perplexity on held-out text",
        task="foresee each token of a document from those before it",
        groups="none: it measures the use of a model, not its bias",
        licence="that of the text which the user names",
        caution="A text that the model was trained on says nothing. Perplexities per token of two tokenizers cannot be "
        "compared; bits per byte can.",
    )

    def read(self, root: Path | None) -> list[Item]:
        """Read the documents of ``file``, whatever ``root``; content: ``text``, without outer blanks."""
        if self.file is None:
            raise ConfigError("perplexity needs a text: name one with --file, one document per line.")
        items = [Item(f"line {number}", {"text": line.strip()}) for number, line in lines_of(self.file)]
        if not items:
            raise DataError(f"{self.file} has no text. Write one document per line.")
        return items

    def check(self, model: LanguageModel) -> None:
        """Raise :class:`~levelhead.types.ConfigError` for a masked model, an endpoint, and a ``stride`` too long."""
        super().check(model)
        list(model.window_log_likelihoods([], self.stride, []))

    def ask(self, model: LanguageModel, items: Sequence[Item]) -> Iterator[Answer]:
        """Yield ``log_likelihood`` (nats, summed over tokens) and ``tokens``, the number of scored ones."""
        texts, names = [item.content["text"] for item in items], [item.id for item in items]
        for row, (value, tokens) in model.window_log_likelihoods(texts, self.stride, names):
            yield Answer(items[row].id, {"log_likelihood": value, "tokens": tokens})

    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
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
                name: estimated(
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
