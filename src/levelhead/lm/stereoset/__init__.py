"""StereoSet (Nadeem, Bethke, Reddy, ACL 2021): is the stereotype likelier than its opposite, and both than nonsense?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from levelhead.arrays import check_fields
from levelhead.data.base import Card
from levelhead.lm.base import Answer, Headline, Item, Scores, SentenceBenchmark
from levelhead.lm.stereoset.data import INTER, SENTENCES, keep_terms, read_stereoset, stereoset_file
from levelhead.lm.stereoset.score import score_answers

__all__ = ["StereoSet"]


@dataclass(frozen=True)
class StereoSet(SentenceBenchmark):
    """The options of StereoSet.

    Compared is the mean log-probability of a token, as in the owners' code for generative models: sentences differ in
    length.
    ``intersentence`` says what a causal model is asked there: the sentence given its context ("given_context"; the
    context is the same for all three, and in a mean over the whole text it would favour long sentences) or the whole
    text, context and sentence ("whole").
    ``terms`` keep only the items of these target terms: the held-out ones of a
    model that was trained on StereoSet.
    """

    intersentence: Literal["given_context", "whole"] = "given_context"
    terms: frozenset[str] | None = None

    name: ClassVar[str] = "stereoset"
    sentences: ClassVar[tuple[str, ...]] = SENTENCES
    causal_only: ClassVar[bool] = True
    headlines: ClassVar[Mapping[str, Headline]] = {
        "stereotype_score": ("bias", "half", 0.5),
        "icat": ("both", "high", 1.0),
        "language_modeling_score": ("utility", "high", 1.0),
    }
    free_options: ClassVar[frozenset[str]] = frozenset({"terms"})
    card: ClassVar[Card] = Card(
        title="StereoSet, development set",
        task="which of three sentences is likelier: stereotype, anti-stereotype, unrelated",
        groups="target terms in four bias types: gender, profession, race, religion",
        licence="CC BY-SA 4.0",
        citation="Nadeem, Bethke, Reddy: StereoSet: Measuring stereotypical bias in pretrained language models, "
        "ACL 2021",
        url="https://github.com/moinnadeem/StereoSet",
        caution="Sentences are stereotypes: do not print them. Never score a model on terms that it was trained on. "
        "Many items have faults, see Blodgett et al., ACL 2021.",
    )

    def __post_init__(self) -> None:
        check_fields(self, "stereoset")

    def read(self, root: Path | None) -> list[Item]:
        """Read the items of the owners' ``dev.json`` or of the compact file in ``stereoset/`` below ``root``."""
        items = read_stereoset(stereoset_file(root))
        return items if self.terms is None else keep_terms(items, self.terms)

    def context(self, item: Item) -> str:
        """Return the lead, and the sentence before where it is given."""
        return " ".join(filter(None, (self.lead, item.content["context"] if self._given(item) else "")))

    def options(self, item: Item) -> Sequence[str]:
        """Return the three sentences, each with its context where that is not given."""
        texts = [item.content[name] if self._given(item) else whole_text(item, name) for name in SENTENCES]
        return [f" {text}" for text in texts] if self.context(item) else texts

    def _given(self, item: Item) -> bool:
        return item.content["task"] == INTER and self.intersentence == "given_context"

    def choice(self, item: Item, answer: Answer) -> bool:
        """Return whether the stereotype is likelier than its opposite."""
        values, tokens = answer.content, answer.content["tokens"]
        pro, anti = (values[name] / tokens[name] for name in ("stereotype", "anti_stereotype"))
        return bool(pro > anti)

    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
        """Return stereotype score, language modeling score and ICAT; see :mod:`levelhead.lm.stereoset.score`."""
        return score_answers(items, answers)


def whole_text(item: Item, name: str) -> str:
    """Return the sentence ``name`` of an item, in an intersentence item after its context."""
    sentence: str = item.content[name]
    return f"{item.content['context']} {sentence}" if item.content["task"] == INTER else sentence
