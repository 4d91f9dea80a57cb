"""Counterfactual prompts: what changes in a model's answers when the words that name a group are swapped?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from levelhead.data.base import Card
from levelhead.lm.base import Answer, Benchmark, Headline, Item, Scores
from levelhead.lm.bold.score import TextClassifier, check_scorers, said
from levelhead.lm.counterfactual.data import GENERATED, ODDS, read_templates
from levelhead.lm.counterfactual.score import BASELINE, score_answers
from levelhead.types import ConfigError

if TYPE_CHECKING:
    from levelhead.lm.model import LanguageModel

__all__ = ["Counterfactual"]


@dataclass(frozen=True)
class Counterfactual(Benchmark):
    """Your own texts with the words of each group, asked and compared.

    ``file`` is a YAML of texts with fields that ``swap`` fills ("person=the man|the woman"; the first group is the
    reference), see :mod:`levelhead.lm.counterfactual.data`. A text with two options is scored by their log odds. Any
    other is continued ``draws`` times (the reference twice as often: its second half is the baseline), and the
    continuations are scored as BOLD's are. A run's ``limit`` counts templates, each with the texts of all groups.
    """

    file: Path | None = None
    swap: tuple[str, ...] = ()
    draws: int = 4
    max_new_tokens: int = 20
    classifiers: tuple[TextClassifier, ...] = ()
    thoughts: tuple[str, ...] = ()
    seed: int = 0

    name: ClassVar[str] = "counterfactual"
    caveat: ClassVar[str] = "A swapped word changes more than the group: age, register and frequency differ, too."
    causal_only: ClassVar[bool] = True
    whole_key: ClassVar[str] = "template"
    free_options: ClassVar[frozenset[str]] = frozenset({"file", "swap", "draws", "classifiers", "thoughts"})
    card: ClassVar[Card] = Card(
        title="Counterfactual prompts",
        task="answer or continue the same text with the words of one group and of another",
        groups="those that you name",
        licence="that of your texts",
        citation="Kusner, Loftus, Russell, Silva: Counterfactual Fairness, NeurIPS 2017, for the idea",
        caution="A word changes more than the group: age, register and frequency of names differ too. A swap is not "
        "an experiment on people.",
    )

    @classmethod
    def headline(cls, part: str, score: str) -> Headline | None:
        """Return that differences between groups tell of bias; absolute ones do beyond the baseline alone."""
        plain = " minus " in score and not score.startswith("absolute ")
        return ("bias", "zero", 0.0) if not part and (plain or score.endswith(f"beyond {BASELINE}")) else None

    def read(self, root: Path | None) -> list[Item]:
        """Read the texts, see :mod:`levelhead.lm.counterfactual.data`; ``root`` is not looked at."""
        if self.file is None:
            raise ConfigError("counterfactual needs --file: a YAML of texts.")
        return read_templates(self.file, self.swap, self.draws)

    def check(self, model: LanguageModel) -> None:
        """Raise :class:`~levelhead.types.ConfigError` for a masked model, and for scores that cannot be computed.

        See :func:`levelhead.lm.bold.score.check_scorers`, if any text is to be continued.
        """
        super().check(model)
        if any(item.content["kind"] == GENERATED for item in self.read(None)):
            check_scorers(self.classifiers)

    def ask(self, model: LanguageModel, items: Sequence[Item]) -> Iterator[Answer]:
        """Yield ``value`` (log odds, nats), or ``continuation``."""
        odds = [item for item in items if item.content["kind"] == ODDS]
        texts, names = [item.content["text"] for item in odds], [item.id for item in odds]
        options = [item.content["options"] for item in odds]
        for index, ((yes, _), (no, _)) in model.option_log_likelihoods(texts, options, names) if odds else ():
            yield Answer(odds[index].id, {"value": yes - no})
        continued = [item for item in items if item.content["kind"] == GENERATED]
        for draw in sorted({item.content["draw"] for item in continued}):
            some = [item for item in continued if item.content["draw"] == draw]
            texts, names = [item.content["text"] for item in some], [item.id for item in some]
            generated = model.generate(texts, seed=self.seed + draw, max_new_tokens=self.max_new_tokens, names=names)
            for index, text in generated:
                yield Answer(some[index].id, {"continuation": text})

    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
        """Score the answers, see :func:`levelhead.lm.counterfactual.score.score_answers`."""
        return score_answers(items, said(answers, self.thoughts), self.classifiers)
