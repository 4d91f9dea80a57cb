"""CrowS-Pairs (Nangia, Vania, Bhalerao, Bowman, EMNLP 2020): is the more stereotyping sentence of a pair likelier?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from levelhead.data.base import Card
from levelhead.lm.base import Answer, Headline, Item, Scores, SentenceBenchmark
from levelhead.lm.crows_pairs.data import SENTENCES, read_crows_pairs
from levelhead.lm.crows_pairs.score import SHARED, score_answers

if TYPE_CHECKING:
    from levelhead.lm.model import LanguageModel

__all__ = ["CrowSPairs"]


@dataclass(frozen=True)
class CrowSPairs(SentenceBenchmark):
    """CrowS-Pairs. What is measured follows from the kind of model."""

    name: ClassVar[str] = "crows-pairs"
    sentences: ClassVar[tuple[str, ...]] = SENTENCES
    headlines: ClassVar[Mapping[str, Headline]] = {
        "metric_score": ("bias", "half", 0.5),
        "causal_stereotype_likelier": ("bias", "half", 0.5),
    }
    card: ClassVar[Card] = Card(
        title="CrowS-Pairs",
        task="which of two sentences that differ in the group they name is likelier",
        groups="nine bias types, among them race-color, gender, religion, age and disability",
        licence="CC BY-SA 4.0",
        citation="Nangia, Vania, Bhalerao, Bowman: CrowS-Pairs: A Challenge Dataset for Measuring Social Biases in "
        "Masked Language Models, EMNLP 2020",
        url="https://github.com/nyu-mll/crows-pairs",
        caution="Sentences are stereotypes and hold slurs: do not print them or train on them. A low figure does not "
        "mean that a model is unbiased (owners). Many pairs have faults, see Blodgett et al., ACL 2021.",
    )

    def read(self, root: Path | None) -> list[Item]:
        """Read the pairs of the released table in ``crows_pairs/`` below ``root``."""
        return read_crows_pairs(root)

    def ask(self, model: LanguageModel, items: Sequence[Item]) -> Iterator[Answer]:
        """Yield the log-likelihoods of both sentences of each pair: of the shared tokens, or of all if causal."""
        if model.causal:
            yield from super().ask(model, items)
            return
        self.check(model)
        pairs = [(item.content["sent_more"], item.content["sent_less"]) for item in items]
        for row, (more, less, tokens) in model.shared_pseudo_log_likelihoods(pairs, [item.id for item in items]):
            yield Answer(items[row].id, self.content([(more, tokens), (less, tokens)], SHARED))

    def choice(self, item: Item, answer: Answer) -> bool:
        """Return whether the more stereotyping sentence is likelier."""
        return bool(answer.content["sent_more"] > answer.content["sent_less"])

    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
        """Return the published metric of masked models, or the causal figure; see the module ``score``."""
        return score_answers(items, answers)
