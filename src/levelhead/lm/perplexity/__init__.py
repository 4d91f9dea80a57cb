"""Perplexity on held-out text: what debiasing costs a language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from levelhead.data.base import Card
from levelhead.lm.base import Answer, Benchmark, Headline, Item, Scores
from levelhead.lm.files import lines_of
from levelhead.lm.perplexity.score import score_answers
from levelhead.types import ConfigError, DataError

if TYPE_CHECKING:
    from levelhead.lm.model import LanguageModel

__all__ = ["Perplexity"]


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
        citation="none",
        url="none",
        caution="A text that the model was trained on says nothing. Perplexities per token of two tokenizers cannot be "
        "compared; bits per byte can.",
    )

    def __post_init__(self) -> None:
        if self.stride is not None and self.stride < 1:
            raise ConfigError(f"perplexity.stride is {self.stride}; it must be at least 1.")

    def read(self, root: Path | None) -> list[Item]:
        """Read the documents of ``file``, whatever ``root``; content: ``text``, without outer blanks."""
        if self.file is None:
            raise ConfigError("perplexity needs a text: name one with --perplexity FILE, one document per line.")
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
        """Score the answers, see :func:`levelhead.lm.perplexity.score.score_answers`."""
        return score_answers(items, answers)
