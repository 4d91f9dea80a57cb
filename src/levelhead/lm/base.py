"""What the bias benchmarks share: items in, answers of a model, scores with intervals out.

A benchmark is a folder: ``data.py`` reads the owners' file into items, ``score.py`` turns answers into scores and knows
no model, ``README.md`` has citation, licence and how it was checked against the original. Answers are plain JSON, one
line an item, so that a stopped run continues, and so that the answers of any system can be scored.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from levelhead.data.base import Card
from levelhead.lm.files import objects_of
from levelhead.types import ConfigError, DataError, Estimate, quoted

if TYPE_CHECKING:
    from levelhead.lm.model import LanguageModel


LEADS = {
    "none": "",
    "labelled": "Sentence:",
    "reading": "I read this today:",
    "hearing": "Somebody told me the following.",
    "text": "Here is a line of a text:",
}
"""Texts that a model reads before a sentence: wordings of the benchmarks that compare whole sentences."""


THOUGHTS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("[THINK]", "[/THINK]"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
    ("", "assistantfinal"),  # the same where a server leaves special tokens out
)
"""How models mark their thoughts: begin, empty where a text without thoughts may begin so, and end."""
FIELD = re.compile(r"\{(\w+)\}")
LIKELIHOOD = "log_likelihood"
"""What sentences are compared by in causal models."""
CUT, FILTERED, TOOL_CALL = WORDLESS = ("<|cut|>", "<|filtered|>", "<|tool call|>")
"""Texts kept of answers without words."""


@dataclass(frozen=True)
class Item:
    """One question to a model: ``id`` is unique in its benchmark, ``content`` holds what the benchmark needs of it."""

    id: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a model (or any system) gave for the item of this ``id``; ``content`` is plain JSON."""

    id: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Scores:
    """The scores of one benchmark.

    ``overall`` and each part of ``parts`` map a score's name to its estimate with a 95% interval over items
    (clustered where items share a template). Figures are shares or nats, as ``units`` says by name. ``parts`` are
    categories such as ``Age``. ``notes`` are sentences for people: what could not be scored, and why. ``tests`` hold
    ``score``, ``p`` and ``p_holm`` (adjusted over all of them) where a benchmark tests scores. ``finding`` is what to
    say first where the model did not do what was asked, such as answering.
    """

    benchmark: str
    overall: Mapping[str, Estimate]
    parts: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tests: tuple[Mapping[str, Any], ...] = ()
    finding: str = ""


Headline = tuple[Literal["bias", "utility", "both"], Literal["high", "low", "half", "zero", ""], float | None]
"""What a main score tells of, where its ideal lies (empty: unknown), and the ideal if there is one."""


def answers_by_id(items: Sequence[Item], answers: Sequence[Answer], benchmark: str) -> dict[str, Answer]:
    """Return the answer to each item, in the order of the items; answers to other items are left out.

    Raises :class:`~levelhead.types.DataError` that names ``benchmark`` and the first few ids doubled or missing.
    """
    wanted = {item.id for item in items}
    counted = Counter(answer.id for answer in answers if answer.id in wanted)
    for problem, names in (
        ("more than one answer", [name for name, times in counted.items() if times > 1]),
        ("no answer", [item.id for item in items if item.id not in counted]),
    ):
        if names:
            which = f"{len(names):,} of {len(wanted):,} items have {problem}, first {', '.join(map(quoted, names[:3]))}"
            raise DataError(f"{benchmark}: {which}. Give each item exactly one.")
    given = {answer.id: answer for answer in answers}
    return {item.id: given[item.id] for item in items}


def fields_of(template: str) -> list[str]:
    """Return the fields of a template, such as context of "{context}", each once and in order."""
    return list(dict.fromkeys(FIELD.findall(template)))


def filled(template: str, texts: Mapping[str, str]) -> str:
    """Return a template with a text in the place of each field; a brace that is no field's stays."""
    return FIELD.sub(lambda field: texts[field[1]], template)


def finite_number(answer: Answer, content: Mapping[str, Any], name: str, benchmark: str) -> float:
    """Return the number under ``name``; raises :class:`~levelhead.types.DataError` that names the item without one."""
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"The answer to the {benchmark} item {quoted(answer.id)} has no finite number for {name!r}.")
    return float(value)


def drawn_by(items: Sequence[Item], keys: Sequence[str], count: int) -> list[Item]:
    """Return ``count`` items of each combination of contents under ``keys``, in their order: a fixed random draw.

    Those whose ids have the smallest hashes. So a larger count holds all the items of a smaller one, and neither order
    nor machine matter.
    """
    if count < 1:
        raise ConfigError(f"A draw of {count} items of each kind is empty: give 1 or more.")
    kept = {item.id for cell in _cells(items, keys) for item in cell[:count]}
    return [item for item in items if item.id in kept]


def spread_over(items: Sequence[Item], keys: Sequence[str], count: int) -> list[Item]:
    """Return ``count`` items in all, in their order: in turns one of each combination of contents under ``keys``.

    Which cells come first, and which of their items, is a fixed random draw, as in :func:`drawn_by`.
    """
    cells = sorted(_cells(items, keys), key=lambda cell: _draw(cell[0]))
    turns = (item for turn in itertools.zip_longest(*cells) for item in turn if item is not None)
    kept = {item.id for item in itertools.islice(turns, min(count, len(items)))}
    return [item for item in items if item.id in kept]


def _cells(items: Sequence[Item], keys: Sequence[str]) -> list[list[Item]]:
    """Return the items of each combination of contents under ``keys``, in a fixed random order."""
    cells: dict[tuple[Any, ...], list[Item]] = {}
    for item in sorted(items, key=_draw):
        cells.setdefault(tuple(item.content[key] for key in keys), []).append(item)
    return list(cells.values())


def _draw(item: Item) -> bytes:
    return hashlib.blake2b(item.id.encode()).digest()


class Benchmark(ABC):
    """Base of a bias benchmark: a frozen dataclass of its options.

    ``free_options`` names those that no answer depends on: they choose items, or act when answers are scored. Changing
    them does not make the kept answers of a run worthless. ``caveat`` stands behind what is said of its scores.
    ``category_key`` is where an item's content names its
    category, of each of which a run's ``limit`` takes the first items. Where ``cell_keys`` name what items are built
    from (such as BBQ's question templates), it draws them spread over these cells. Where ``whole_key`` is given, items
    of one such content belong together, and a limit counts contents instead of items. ``headlines`` are the main scores
    by name. ``causal_only``: a masked model cannot be asked.
    """

    name: ClassVar[str]
    card: ClassVar[Card]
    free_options: ClassVar[frozenset[str]] = frozenset()
    category_key: ClassVar[str] = "category"
    cell_keys: ClassVar[tuple[str, ...]] = ()
    whole_key: ClassVar[str] = ""
    headlines: ClassVar[Mapping[str, Headline]] = {}
    causal_only: ClassVar[bool] = False
    caveat: ClassVar[str] = ""

    @abstractmethod
    def read(self, root: Path | None) -> list[Item]:
        """Read the items below ``root`` (None: ``$LEVELHEAD_DATA``, then ``data``), in the owners' layout or ours.

        Raises :class:`~levelhead.types.DataError` that names file and item for anything missing or broken.
        """

    def check(self, model: LanguageModel) -> None:
        """Raise :class:`~levelhead.types.ConfigError` if this model cannot be asked, or its answers not be scored.

        ``levelhead lm bench`` calls it for every benchmark before any item is asked.
        """
        if self.causal_only and not model.causal:
            raise ConfigError(f"{self.name} is for causal models, which continue a text; {model.name} is a masked one.")

    @abstractmethod
    def ask(self, model: LanguageModel, items: Sequence[Item]) -> Iterator[Answer]:
        """Yield the model's answers, in any order, as soon as each batch is done."""

    @abstractmethod
    def score(self, items: Sequence[Item], answers: Sequence[Answer]) -> Scores:
        """Score answers to ``items``; raises :class:`~levelhead.types.DataError` for missing or doubled ids."""

    def wordings(self) -> dict[str, tuple[Benchmark, ...]]:
        """Return this benchmark in each of a fixed set of wordings, under each order of the options that it lists.

        The first of all is the benchmark itself. Empty: no other wording is known, and prompt noise cannot be measured.
        """
        return {}

    def prompt_shown(self, model: LanguageModel) -> str:
        """Return the prompt, with fields for an item's texts, which nobody should read; empty: none."""
        return ""

    def choice(self, item: Item, answer: Answer) -> Hashable:
        """Return what an answer chose, in the same terms for every wording; None where it chose nothing."""
        raise NotImplementedError

    @classmethod
    def asking(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that answers depend on: answers of others that agree in these are kept."""
        return {name: value for name, value in options.items() if name not in cls.free_options}

    @classmethod
    def headline(cls, part: str, score: str) -> Headline | None:
        """Return what a main score tells of, None for any other; ``part`` is empty for the whole benchmark."""
        return None if part else cls.headlines.get(score)

    def read_predictions(self, path: Path, items: Sequence[Item]) -> list[Answer]:
        """Read the answers of any system to ``items``: lines ``{"id": ..., "content": {...}}``, as in those of a run.

        Raises :class:`~levelhead.types.DataError` that names the line for one that cannot be read.
        """
        wanted = {item.id for item in items}
        answers = (answer_of(line, path) for _, line in objects_of(path) if "benchmark" not in line)
        return [answer for answer in answers if answer.id in wanted]


@dataclass(frozen=True)
class Task(Benchmark):
    """Base of those that choose between options behind a context: items, contexts, options, score.

    A subclass reads items (:meth:`read`), makes the context and the options of one, and scores answers whose content
    has ``log_likelihoods`` (nats, one an option) and ``tokens``.
    """

    causal_only: ClassVar[bool] = True

    @abstractmethod
    def context(self, item: Item) -> str:
        """Return what a model reads before an option, without a blank at its end."""

    @abstractmethod
    def options(self, item: Item) -> Sequence[str]:
        """Return the options as they are appended to the context."""

    def contexts(self, model: LanguageModel, items: Sequence[Item]) -> list[str]:
        """Return the contexts of items, as this model reads them."""
        return [self.context(item) for item in items]

    def content(self, found: Sequence[tuple[float, int]]) -> dict[str, Any]:
        """Return the content of an answer of (log-likelihood, tokens), one an option."""
        # Half precision can overflow: such an option has no number.
        values = [value if math.isfinite(value) else None for value, _ in found]
        return {"log_likelihoods": values, "tokens": [count for _, count in found]}

    def ask(self, model: LanguageModel, items: Sequence[Item]) -> Iterator[Answer]:
        """Yield the log-likelihoods of the options of each item, and their numbers of tokens."""
        self.check(model)
        contexts, options = self.contexts(model, items), [self.options(item) for item in items]
        for index, found in model.option_log_likelihoods(contexts, options, [item.id for item in items]):
            yield Answer(items[index].id, self.content(found))


@dataclass(frozen=True)
class SentenceBenchmark(Task):
    """Base of those that compare whole sentences: a causal model reads a ``lead`` before each, if one is given.

    ``sentences`` are their names in the content of an item, and of its answer.
    """

    lead: str = ""

    sentences: ClassVar[tuple[str, ...]] = ()
    causal_only: ClassVar[bool] = False

    def check(self, model: LanguageModel) -> None:
        """Raise :class:`~levelhead.types.ConfigError` for a lead before the sentences of a masked model."""
        super().check(model)
        if self.lead and not model.causal:
            raise ConfigError(f"{self.name}: other wordings are for causal models; {model.name} is a masked one.")

    def wordings(self) -> dict[str, tuple[Benchmark, ...]]:
        """Return the items behind each of the leads."""
        return {name: (replace(self, lead=lead),) for name, lead in LEADS.items()}

    @classmethod
    def asking(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that answers depend on; without an empty lead, as answers are kept that know no leads."""
        needed = super().asking(options)
        return needed if needed.get("lead") else {name: value for name, value in needed.items() if name != "lead"}

    def context(self, item: Item) -> str:
        """Return the lead."""
        return self.lead

    def options(self, item: Item) -> Sequence[str]:
        """Return the sentences, behind a blank where something stands before them."""
        blank = " " if self.lead else ""
        return [blank + item.content[name] for name in self.sentences]

    def content(self, found: Sequence[tuple[float, int]], measure: str = LIKELIHOOD) -> dict[str, Any]:
        """Return the log-likelihood of each sentence by its name, their ``tokens``, and what was measured."""
        values, tokens = zip(*found, strict=True)
        named = dict(zip(self.sentences, values, strict=True))
        return {**named, "tokens": dict(zip(self.sentences, tokens, strict=True)), "measure": measure}


def answer_of(line: Mapping[str, Any], path: Path) -> Answer:
    """Return the answer that a line of ``path`` holds, or raise :class:`~levelhead.types.DataError`."""
    if not isinstance(line.get("id"), str) or not isinstance(line.get("content"), dict):
        raise DataError(f'{path} has a line that is no answer: it needs "id" and "content".')
    return Answer(line["id"], line["content"])


def spoken(text: str, more: Sequence[str] = ()) -> str:
    """Return a text without its thoughts; :data:`CUT` for one that ends within them, :data:`TOOL_CALL` for a call.

    ``more``: marks beside :data:`THOUGHTS`, each "BEGIN,END".

    >>> spoken("<think>A or B?</think> B"), spoken("[THINK]Is it"), spoken("<plan>A</plan>B", ["<plan>,</plan>"])
    ('B', '<|cut|>', 'B')
    >>> spoken("analysisIs it A?assistantfinalB")
    'B'
    """
    marks = [*THOUGHTS, *map(thought_marks, more)]
    said = text[max(text.rfind(end) + len(end) if end in text else 0 for _, end in marks) :].strip()
    if any(begin and said.startswith(begin) for begin, _ in marks):
        return CUT
    return TOOL_CALL if said.startswith(("<tool_call>", "[TOOL_CALLS]")) else said


def thought_marks(text: str) -> tuple[str, str]:
    """Return begin and end of "BEGIN,END"; raises :class:`~levelhead.types.ConfigError` for anything else."""
    begin, _, end = (part.strip() for part in text.partition(","))
    if not (begin and end):
        raise ConfigError(f"--thought {quoted(text)} must be two marks, e.g. '<plan>,</plan>'.")
    return begin, end


def words_of(text: str, more: Sequence[str] = ()) -> str:
    """Return what a continuation says, see :func:`spoken`: nothing where it has no words."""
    said = spoken(text, more)
    return "" if said in WORDLESS else text if said == text.strip() else said


def model_name(place: str | Path) -> str:
    """Return what a model is called: the last part of its name; of a folder ``model``, as KLAAD saves, the run's."""
    path = Path(place).expanduser()
    if not path.is_dir():
        return path.name
    folder = path.absolute()
    return (folder.parent.name if folder.name == "model" else "") or folder.name


def json_lines(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the JSON objects of whole lines, and where they end; what a kill left of a last line is dropped."""
    *whole, _ = content.split(b"\n")
    found = []
    for number, line in enumerate(whole, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise DataError(f"{path} line {number} is no JSON object: was the file edited? Delete that line.")
        found.append(record)
    return found, sum(len(line) + 1 for line in whole)
