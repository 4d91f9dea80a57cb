"""BOLD, the Bias in Open-ended Language generation Dataset: continuations about people of several groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from levelhead.data.base import Card
from levelhead.lm.base import Answer, Benchmark, Headline, Item, Scores, drawn_by
from levelhead.lm.bold.data import read_items
from levelhead.lm.bold.score import TextClassifier, check_scorers, said, score_answers

if TYPE_CHECKING:
    from levelhead.lm.model import LanguageModel

__all__ = ["BOLD", "TextClassifier"]

SHARES = ("sentiment_positive_gap", "sentiment_negative_gap", "sentiment_neutral_gap")


@dataclass(frozen=True)
class BOLD(Benchmark):
    """Continue the beginnings of sentences about people; score the continuations, and compare groups in a domain.

    ``per_group`` draws this many prompts of each group (the same ones always; from
    all its articles, while a run's ``limit`` takes the first). Continuations are sampled with ``seed``, up to
    ``max_new_tokens`` tokens (``greedy``: the likeliest token each). ``classifiers`` add toxicity, regard and the like
    to the sentiment, see :mod:`levelhead.lm.bold.score`.
    """

    per_group: int | None = None
    seed: int = 0
    max_new_tokens: int = 20
    greedy: bool = False
    classifiers: tuple[TextClassifier, ...] = ()
    thoughts: tuple[str, ...] = ()

    name: ClassVar[str] = "bold"
    causal_only: ClassVar[bool] = True
    free_options: ClassVar[frozenset[str]] = frozenset({"per_group", "classifiers", "thoughts"})
    category_key: ClassVar[str] = "group"
    card: ClassVar[Card] = Card(
        title="BOLD, the Bias in Open-ended Language generation Dataset",
        task="continue the beginning of a sentence",
        groups="43 groups in five domains: gender, race, religious ideology, political ideology, profession, by the "
        "Wikipedia list or article that a sentence is from",
        licence="CC BY-SA 4.0",
        citation="Dhamala, Sun, Kumar, Krishna, Pruksachatkun, Chang, Gupta. BOLD: Dataset and Metrics for Measuring "
        "Biases in Open-Ended Language Generation. FAccT 2021.",
        url="https://github.com/amazon-science/bold",
        caution="Prompts differ between groups in more than the group (time, profession, length of article), so a gap "
        "is not the effect of the group alone. Sentiment and classifiers have biases of their own.",
    )

    def read(self, root: Path | None) -> list[Item]:
        """Read the prompts, see :func:`levelhead.lm.bold.data.read_items`."""
        items = read_items(root)
        return items if self.per_group is None else drawn_by(items, ("domain", "group"), self.per_group)

    def check(self, model: LanguageModel) -> None:
        """Raise :class:`~levelhead.types.ConfigError` for a masked model, and for scores that cannot be computed.

        Such as those of a classifier that cannot be loaded; see :func:`levelhead.lm.bold.score.check_scorers`.
        """
        super().check(model)
        check_scorers(self.classifiers)

    def ask(self, model: LanguageModel, items: Sequence[Item]) -> Iterator[Answer]:
        """Yield ``continuation``, without the prompt.

        The blank at the end of a prompt is left to the model, since its tokens begin with one.
        """
        prompts = [item.content["prompt"].rstrip() for item in items]
        names = [item.id for item in items]
        generated = model.generate(
            prompts, seed=self.seed, max_new_tokens=self.max_new_tokens, greedy=self.greedy, names=names
        )
        for index, text in generated:
            yield Answer(items[index].id, {"continuation": text})

    @classmethod
    def headline(cls, part: str, score: str) -> Headline | None:
        """Return that every gap, of a domain or of all, tells of bias; but for shares of the sentiment."""
        # VADER's shares of positive, negative and neutral texts say again what its mean says.
        return ("bias", "low", 0.0) if score.endswith("_gap") and score not in SHARES else None

    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
        """Score the continuations, see :func:`levelhead.lm.bold.score.score_answers`."""
        return score_answers(items, said(answers, self.thoughts), self.classifiers)
