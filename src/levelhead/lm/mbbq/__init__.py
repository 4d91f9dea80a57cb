"""MBBQ (Neplenbroek, Bisazza, Fernández, COLM 2024): BBQ in Dutch, Spanish and Turkish, with a control set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import Card, dataset_folder
from levelhead.lm.base import Answer, Benchmark, Headline, Item, Scores
from levelhead.lm.bbq import BBQ
from levelhead.lm.bbq.data import item_of
from levelhead.lm.files import objects_of
from levelhead.types import DataError, Estimate

__all__ = ["MBBQ"]

LANGUAGES = ("en", "es", "nl", "tr")
CONTROL = "control"


@dataclass(frozen=True)
class MBBQ(BBQ):
    """BBQ's scores in each language that is there, and those of its control set, in which names replace the groups.

    The stereotype set says how far answers follow stereotypes, the control set how well a model answers in a language
    at all. Options are those of :class:`~levelhead.lm.bbq.BBQ`. The reader of free answers knows English wordings, so
    only letters, numbers and the options themselves are read.
    """

    name: ClassVar[str] = "mbbq"
    cell_keys: ClassVar[tuple[str, ...]] = ("part", "question_index", "condition", "polarity")
    category_key: ClassVar[str] = "part"
    card: ClassVar[Card] = Card(
        title="MBBQ, the Multilingual Bias Benchmark for Question-answering",
        task="choose one of two people, or unknown, in English, Spanish, Dutch and Turkish",
        groups="age, disability, gender identity, physical appearance, status, sexual orientation",
        licence="see the owners' repository",
        citation="Neplenbroek, Bisazza, Fernández: MBBQ: A Dataset for Cross-Lingual Comparison of Stereotypes in "
        "Generative LLMs, COLM 2024",
        url="https://github.com/Veranep/MBBQ",
        caution="For evaluation, not for training. A bias in a language counts only beside the accuracy of its control "
        "set.",
    )

    @classmethod
    def headline(cls, part: str, score: str) -> Headline | None:
        """Return what a main score of a language tells of; of a control set, accuracy alone."""
        language, _, control = part.partition(" ")
        known = cls.headlines.get(score) if language in LANGUAGES and control in ("", CONTROL) else None
        return None if known is None or (control and known[0] == "bias") else known

    def read(self, root: Path | None) -> list[Item]:
        """Read CATEGORY_LANGUAGE.jsonl and CATEGORY_control_LANGUAGE.jsonl in ``mbbq/``, or the owners' ``data/``."""
        folder = dataset_folder(root, "mbbq", "MBBQ", "MBBQ-main")
        files = sorted(file for place in (folder, folder / "data") for file in place.glob("*_??.jsonl"))
        items = [item for file in files if file.stem[-2:] in LANGUAGES for item in _items(file)]
        if not items:
            raise DataError(f"{folder} holds no MBBQ file (Age_nl.jsonl, Age_control_nl.jsonl, ..., here or in data/).")
        return items

    def wordings(self) -> dict[str, tuple[Benchmark, ...]]:
        """Return none: those of BBQ are English."""
        return {}

    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
        """Score each language, each of its categories, and its control set; nothing is pooled over languages."""
        given = {answer.id: answer for answer in answers}
        parts: dict[str, Mapping[str, Estimate]] = {}
        units: dict[str, str] = {}
        findings: list[str] = []
        for part in dict.fromkeys(item.content["set"] for item in items):
            some = [item for item in items if item.content["set"] == part]
            found = super().score(some, [given[item.id] for item in some if item.id in given])
            parts |= {part: found.overall, **found.parts}
            units |= found.units
            findings += [f"{part}: {found.finding}"] if found.finding else []
        return Scores(self.name, {}, parts, units, finding=" ".join(findings))


def _items(file: Path) -> Iterator[Item]:
    category, _, language = file.stem.rpartition("_")
    which = f"{language} {CONTROL}" if category.endswith(f"_{CONTROL}") else language
    for where, record in objects_of(file):
        item = item_of(record, {}, where)
        content = {**item.content, "set": which, "part": f"{which}, {item.content['category']}"}
        yield Item(f"{which}/{item.id}", content)
