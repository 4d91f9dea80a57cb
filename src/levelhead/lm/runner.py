"""A benchmark on a model: answers kept item by item, so that a stopped run continues; then scores with intervals.

A run folder holds, for each benchmark, ``answers-NAME.jsonl`` and ``scores-NAME.json``. The first line of the answers
says which model and which options they are of; every other line is one answer, written as soon as its batch is done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import itertools
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from levelhead._version import __version__
from levelhead.lm.base import (
    Answer,
    Benchmark,
    Item,
    Scores,
    answer_of,
    json_lines,
    model_name,
    spread_over,
)
from levelhead.lm.benchmarks import recorded_class
from levelhead.metrics import estimate_to_dict
from levelhead.storage import check_outputs, write_json, writing
from levelhead.terminal import counted
from levelhead.types import ConfigError, DataError, LevelheadError, quoted

if TYPE_CHECKING:
    from rich.console import Console

    from levelhead.lm.endpoint import Endpoint
    from levelhead.lm.model import LanguageModel

FORMAT = 1
UNASKED_CHAT = "The model has a chat template that was not used: add --chat to ask as its users do."


def run_benchmark(
    benchmark: Benchmark,
    model: LanguageModel | Endpoint | Given,
    root: Path | None,
    folder: Path,
    *,
    limit: int | None = None,
    console: Console | None = None,
) -> Scores:
    """Ask a model what is still unanswered in ``folder``, then score, and write both files.

    Kept answers are taken whatever the benchmark's ``free_options`` were then, since no answer depends on these.
    ``limit`` takes this many items of each category, see :func:`take`; a later run with more keeps the answers that
    there are. A ``console`` gets a bar with the time left.

    Raises:
        ConfigError: if the folder holds answers of another model or of other options, or if it is in use.
        DataError: for answers that cannot be read, or that are of other items than those below ``root``.
    """
    items = take(benchmark, benchmark.read(root), limit)
    header = _header(benchmark, model)
    began = time.monotonic()
    with _opened(path := answers_file(folder, benchmark.name)) as file:
        answers = _continued(file, path, benchmark, header, items)
        missing = [item for item in items if item.id not in answers]
        with _bar(console, benchmark.name, len(items), len(answers)) as advance:
            hashes = {item.id: _hash(item) for item in missing}
            for answer in _asked(benchmark, model, missing):
                if answer.id not in hashes or answer.id in answers:
                    raise DataError(f"{benchmark.name} gave an unexpected answer: {quoted(answer.id)}.")
                kept = _append(file, {"id": answer.id, "item": hashes[answer.id], "content": answer.content})
                answers[answer.id] = Answer(answer.id, kept["content"])
                advance()
    scores = benchmark.score(items, [answers[item.id] for item in items if item.id in answers])
    notes, measured = [*scores.notes], dict[str, Any](items=len(items), asked=len(missing))
    about = {"model": header["name"], "fingerprint": header["model"], "options": options_of(benchmark), "limit": limit}
    about |= {"version": __version__, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    about |= getattr(model, "told", {}) | recorded_class(benchmark)
    if isinstance(model, Given):
        about["given"] = True  # by a system that was asked in its own way
    else:
        notes += [str(model.beginning)] if model.causal else []
        notes += [UNASKED_CHAT] if model.has_chat_template and not getattr(benchmark, "chat", True) else []
        prompt = benchmark.prompt_shown(cast("LanguageModel", model))
        about |= {"prompt": prompt} if prompt else {}
    measured["seconds"] = round(time.monotonic() - began, 1)  # of this process alone
    scores = dataclasses.replace(scores, notes=tuple(notes))
    write_json(scores_file(folder, benchmark.name), scores_to_dict(scores) | about | measured)
    return scores


def _header(benchmark: Benchmark, model: LanguageModel | Endpoint | Given) -> dict[str, Any]:
    """Return what a file of answers says first: which model they are of, and how it was asked."""
    fingerprint = model.fingerprint()
    template = getattr(getattr(model, "tokenizer", None), "chat_template", "")
    if template and getattr(benchmark, "chat", False):
        fingerprint += f"-{hashlib.blake2b(repr(template).encode(), digest_size=4).hexdigest()}"
    settings = getattr(model, "settings", None)
    return {
        "format": FORMAT,
        "benchmark": benchmark.name,
        "options": benchmark.asking(options_of(benchmark)),
        "model": fingerprint,
        "name": model_name(model.name),
        **({"settings": settings} if settings else {}),
    }


def _asked(benchmark: Benchmark, model: LanguageModel | Endpoint | Given, items: Sequence[Item]) -> Iterable[Answer]:
    if isinstance(model, Given):
        return benchmark.read_predictions(model.file, items)
    return benchmark.ask(cast("LanguageModel", model), items) if items else ()  # an endpoint answers the same calls


class Given:
    """Answers of any system in a file, in the place of a model; the benchmark reads them.

    Raises :class:`~levelhead.types.DataError` if there is no file.
    """

    causal = has_chat_template = False

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise DataError(f"{file} is missing: --predictions names a file of answers, one JSON object per line.")
        self.file, self.name = file, file.name

    def fingerprint(self) -> str:
        """Return a hash of the file."""
        return hashlib.blake2b(self.file.read_bytes(), digest_size=16).hexdigest()


def kept_answers(folder: Path, benchmark: Benchmark, items: Sequence[Item]) -> dict[str, Answer]:
    """Return the answers of a run folder to ``items``, by id.

    Raises :class:`~levelhead.types.DataError` if there is no file, or if it cannot be read or answers other contents.
    """
    path = answers_file(folder, benchmark.name)
    if not path.is_file():
        raise DataError(f"{path} is missing.")
    lines, _ = json_lines(path.read_bytes(), path)
    return _known(lines[1:], path, items)


def rescored(
    benchmark: Benchmark, folder: Path, root: Path | None, limit: int | None
) -> tuple[list[tuple[Item, Answer]], Scores]:
    """Return the items with the answers that a run folder keeps, and their scores.

    Raises :class:`~levelhead.types.DataError` without the data, and for missing answers.
    """
    items = take(benchmark, benchmark.read(root), limit)
    answers = kept_answers(folder, benchmark, items)
    if missing := len(items) - len(answers):
        raise DataError(f"{folder} lacks {missing} of {len(items)} answers: run the same command again.")
    return [(item, answers[item.id]) for item in items], benchmark.score(items, list(answers.values()))


def take(benchmark: Benchmark, items: Sequence[Item], limit: int | None) -> list[Item]:
    """Return ``limit`` items of each category, in their order; all of them for None.

    An item's category is ``content[benchmark.category_key]``. Items without one are one category. They are the first
    ones, or spread over the benchmark's ``cell_keys``. Where it has a ``whole_key``, all items of the first ``limit``
    contents under it are taken instead. A smaller limit takes some of the items of a larger one.
    """
    if limit is None:
        return list(items)
    if key := benchmark.whole_key:
        first = set(itertools.islice(dict.fromkeys(item.content[key] for item in items), limit))
        return [item for item in items if item.content[key] in first]
    categories: dict[Any, list[Item]] = {}
    for item in items:
        categories.setdefault(item.content.get(benchmark.category_key), []).append(item)
    keys = benchmark.cell_keys
    kept = {
        item.id for some in categories.values() for item in (spread_over(some, keys, limit) if keys else some[:limit])
    }
    return [item for item in items if item.id in kept]


def answers_file(folder: Path, benchmark: str) -> Path:
    """Return where a run keeps the answers to a benchmark."""
    return folder / f"answers-{benchmark}.jsonl"


def scores_file(folder: Path, benchmark: str) -> Path:
    """Return where a run keeps the scores of a benchmark."""
    return folder / f"scores-{benchmark}.json"


def scored(folder: Path) -> list[str]:
    """Return the names of the benchmarks that have scores in a run folder."""
    return sorted(file.stem.removeprefix("scores-") for file in folder.glob("scores-*.json"))


def scores_to_dict(scores: Scores) -> dict[str, Any]:
    """Return scores as JSON; an undefined figure is null with its reason."""
    return {
        "benchmark": scores.benchmark,
        "overall": {name: estimate_to_dict(figure) for name, figure in scores.overall.items()},
        "parts": {
            part: {name: estimate_to_dict(figure) for name, figure in figures.items()}
            for part, figures in scores.parts.items()
        },
        "units": dict(scores.units),
        "notes": list(scores.notes),
        **({"tests": [dict(test) for test in scores.tests]} if scores.tests else {}),
        **({"finding": scores.finding} if scores.finding else {}),
    }


def options_of(benchmark: Benchmark) -> dict[str, Any]:
    """Return a benchmark's options as JSON gives them back."""
    options: dict[str, Any] = dataclasses.asdict(benchmark) if dataclasses.is_dataclass(benchmark) else {}
    return dict(json.loads(json.dumps(options, default=_plain, sort_keys=True)))


def _plain(value: Any) -> Any:
    """Return a set in one order, which is another one in every process, and anything else as text."""
    return sorted(value) if isinstance(value, frozenset | set) else str(value)


def _hash(item: Item) -> str:
    """Return a short hash of an item's content: answers to an item that has changed since are not taken."""
    content = json.dumps(dict(item.content), sort_keys=True, default=str)
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open answers for this process alone; the lock goes with the process, also when it is killed."""
    check_outputs({"The file of answers": path}, folders={"The folder": path.parent})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:  # each line is with the system as soon as it is written
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"Another process is writing {path}; wait for it or end it.") from None
        yield file


def _append(file: BinaryIO, record: dict[str, Any]) -> dict[str, Any]:
    """Write a record, and return it as it is read; U+FFFD replaces each half of a character, as in decoded tokens."""
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise LevelheadError(
            f"The model gives no finite number for item {quoted(record.get('id'))}. Nothing is scored. If "
            "numbers overflow, use --precision float32 or bfloat16; if its weights hold NaN, restore them."
        ) from None
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    line = memoryview(text.encode() + b"\n")
    with writing(Path(file.name)):
        while line:
            line = line[file.write(line) :]
    return dict(json.loads(text))


def _continued(
    file: BinaryIO, path: Path, benchmark: Benchmark, header: dict[str, Any], items: Sequence[Item]
) -> dict[str, Answer]:
    """Return the answers that are there; write the header into a new file, cut what a kill left half-written."""
    file.seek(0)
    lines, whole = json_lines(file.read(), path)
    os.ftruncate(file.fileno(), whole)
    if not lines:
        _append(file, header)
        return {}
    there = lines[0]
    for key, text in (
        ("benchmark", "another benchmark"),
        ("model", "another model"),
        ("options", "other options of the benchmark"),
        ("settings", "a model of the same weights with another config.json or tokenizer"),
    ):
        if there.get(key) != header.get(key):
            raise ConfigError(
                f"{path} holds answers of {text} ({_shown(there, key)}, now {_shown(header, key)}): "
                "choose another --out, or move that file away."
            )
    return _known(lines[1:], path, items)


def _shown(header: dict[str, Any], key: str) -> str:
    return f"{header.get('name')} {str(header.get(key))[:8]}" if key == "model" else str(header.get(key))


def _known(lines: Sequence[dict[str, Any]], path: Path, items: Sequence[Item]) -> dict[str, Answer]:
    """Return the answers to ``items`` among lines; those to other items of the benchmark are left alone."""
    wanted = {item.id: item for item in items}
    found: dict[str, Answer] = {}
    for number, line in enumerate(lines, start=2):
        answer = answer_of(line, path)
        if answer.id not in wanted:
            continue
        if answer.id in found:
            raise DataError(
                f"{path} line {number} answers {quoted(answer.id)} for the second time: was the file edited?"
            )
        if line.get("item") != _hash(wanted[answer.id]):
            raise DataError(
                f"{path} line {number} answers another content of item {quoted(answer.id)} than the data holds now: "
                "give the data of that run, or choose another --out."
            )
        found[answer.id] = answer
    return found


def _bar(console: Console | None, name: str, total: int, done: int) -> Any:
    return contextlib.nullcontext(lambda: None) if console is None else counted(console, name, total, done)
