"""Per-item logs of lm-evaluation-harness (``--log_samples``): scores with intervals, and models compared item by item.

A log is read line by line; of a line some numbers are kept. What a document holds says how it is scored:

- BBQ (``bbq``, ``bbq_generate``) and CrowS-Pairs: as :class:`~levelhead.lm.bbq.BBQ` and
  :class:`~levelhead.lm.crows_pairs.CrowSPairs`. Free answers are read again from the responses.
- discrim-eval: differences between groups in the log odds of "yes".
- any other task: means of all metrics that are numbers.

Intervals draw templates where a document names its own (BBQ, Winogender, discrim-eval), otherwise documents.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from levelhead.lm.base import LIKELIHOOD, Answer, Benchmark, Headline, Item, Scores
from levelhead.lm.bbq import BBQ
from levelhead.lm.bbq.data import FIELDS, item_of
from levelhead.lm.crows_pairs import CrowSPairs
from levelhead.lm.crows_pairs.data import SENTENCES
from levelhead.lm.discrim_eval import REFERENCES, DiscrimEval
from levelhead.lm.intervals import SHARE, estimated, ratio
from levelhead.types import ConfigError, DataError, Estimate, quoted, reason_of

Record = Mapping[str, Any]
NAMED = re.compile(r"samples_(.+?)_\d{4}-\d\d-\d\dT.+")
ABOUT = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash"}
ABOUT |= {"prompt_hash", "target_hash"}
CATEGORIES = ("category", "bias_type", "gender", "subject", "domain")
TEMPLATES = (("occupation", "participant"), ("decision_question_id",))
RIGHT = re.compile(r"(acc|exact_match|f1|em)\b|acc_")  # metrics of which more is better
MOST_CATEGORIES = 100
UNNAMED = "an unnamed task"
"""The task of a log whose file was given another name; such logs are compared by their documents."""

Keep = Collection[int] | None
"""The documents to score, or all."""


@dataclass
class SampleLog:
    """One log: the model's name, the task, and what was kept of its lines."""

    name: str
    path: Path
    task: str
    rows: Rows
    notes: list[str] = field(default_factory=list)


def read_log(path: Path, *, cluster: str = "", by: str = "") -> SampleLog:
    """Read a log of one task of one model.

    ``cluster`` and ``by`` are fields of its documents: whose equal values are drawn together in intervals, and which
    are categories. A last line that is cut off is left out with a note.

    Raises :class:`~levelhead.types.DataError` that names the line for what cannot be read.
    """
    named = NAMED.fullmatch(path.name.removesuffix(".gz").removesuffix(".jsonl"))
    model = path.resolve().parent.name.split("__")[-1] if named else path.stem
    _refuse_others(path)
    rows: Rows | None = None
    notes: list[str] = []
    documents, seen = dict[int, list[Any]](), set[tuple[int, str]]()
    for where, record in _records(path, notes):
        doc = record.get("doc")
        if not isinstance(doc, dict):
            raise DataError(f"{where} has no field doc: give a samples_*.jsonl that lm-eval --log_samples wrote.")
        rows = rows or _rows_for(record, cluster, by)
        key = _key(record, documents)
        if (line := (key, str(record.get("filter", "none")))) in seen:
            raise DataError(f"{where} is a second line of one document: delete it.")
        seen.add(line)
        rows.add(record, key, where)
    if rows is None:
        raise DataError(f"{path} holds no whole line of a log.")
    return SampleLog(model, path, named[1] if named else UNNAMED, rows, notes)


def _refuse_others(path: Path) -> None:
    """Raise :class:`~levelhead.types.DataError` that names a log of another tool as what it is."""
    try:
        with path.open("rb") as file:
            head = file.read(2**16)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason_of(error)}.") from error
    for tool, found in (
        ("inspect_ai", head.startswith(b"PK") or (b'"eval"' in head and b'"eval_id"' in head)),
        ("HELM", b'"request_states"' in head or b'"train_trial_index"' in head),
    ):
        if found:
            raise DataError(
                f"{path} is a log of {tool}: write its answers as lines of id and content, and score them with "
                "`lm bench BENCHMARK --predictions FILE`."
            )


def _records(path: Path, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                where = f"{path} line {number}"
                if number == 1 and line.lstrip().startswith("["):
                    raise DataError(f"{path} is one JSON list, of an early harness: write lines with `jq -c '.[]'`.")
                try:
                    record = json.loads(line) if line.strip() else None
                except ValueError:
                    if line.endswith("\n"):
                        raise DataError(f"{where} is not JSON: delete that line.") from None
                    notes.append(f"The last line of {path.name} is cut off and left out.")
                    return
                if isinstance(record, dict):
                    yield where, record
                elif record is not None:
                    raise DataError(f"{where} is no JSON object: delete that line.")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {reason_of(error)}.") from error


def _hashed(value: Any) -> int:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _document(record: Record) -> int:
    """Return the hash that the harness gives of a document, or one of its content."""
    return _hashed(record.get("doc_hash") or record["doc"])


def _key(record: Record, documents: dict[int, list[Any]]) -> int:
    """Return the key of a document: its hash, and of several with one hash also the order of their ids.

    An id alone is no key: some versions of the harness write wrong ones beside right hashes.
    """
    document, own = _document(record), record.get("doc_id")
    ids = documents.setdefault(document, [])
    if own not in ids:
        ids.append(own)
    return _hashed(f"{document} {ids.index(own)}")


def _rows_for(record: Record, cluster: str, by: str) -> Rows:
    if not (cluster or by):
        choices = len(_likelihoods(record))
        for kind in KINDS:
            if kind.fields <= record["doc"].keys() and (not kind.choices or choices in kind.choices):
                return _Items(kind)
    return _Metrics(cluster, by)


def _likelihoods(record: Record) -> list[float]:
    """Return the log-likelihoods of a document's choices, NaN where there is none; of a generation nothing."""
    found = []
    for response in record.get("resps") or ():
        inner = response[0] if isinstance(response, list) and response else response
        if not (isinstance(inner, list) and inner):
            return []
        found.append(_number(inner[0]))
    return found


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _text(record: Record, where: str) -> str:
    text: Any = record.get("resps") or record.get("filtered_resps") or ""
    while isinstance(text, list):
        if len(text) > 1:
            raise DataError(f"{where} holds {len(text)} responses to one document: run the harness with `repeats: 1`.")
        text = text[0] if text else ""
    return str(text)


@dataclass(frozen=True)
class _Kind:
    """Documents of a ``benchmark``: fields, numbers of choices (none: any), and how one is read."""

    fields: frozenset[str]
    choices: tuple[int, ...]
    read: Callable[[Record, str], tuple[dict[str, Any], dict[str, Any]]]
    benchmark: Benchmark


def _bbq(record: Record, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    likelihoods = _likelihoods(record)
    needless = ("context", "question", *(["options"] if likelihoods else ()))
    item = item_of(record["doc"], {}, where)
    content = {name: value for name, value in item.content.items() if name not in needless}
    if not likelihoods:
        return content, {"text": _text(record, where)}
    if any(math.isnan(value) for value in likelihoods):
        return content, {"answer": None}
    best, unknown = int(np.argmax(likelihoods)), content["unknown"]
    if len(likelihoods) > 3:  # the harness offers both people, and then many words for unknown
        people = [option for option in range(3) if option != unknown]
        best = people[best] if best < 2 else unknown
    return content, {"answer": best}


def _crows_pairs(record: Record, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    likelihoods = _likelihoods(record)
    if len(likelihoods) != 2 or not np.isfinite(likelihoods).all():
        raise DataError(f"{where} has no two finite log-likelihoods: delete that line.")
    kind = str(record["doc"].get("bias_type", "all"))
    return {"bias_type": kind}, dict(zip(SENTENCES, likelihoods, strict=True)) | {"measure": LIKELIHOOD}


def _discrimination(record: Record, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    doc, values = record["doc"], [one if math.isfinite(one) else None for one in _likelihoods(record)]
    content = {name: str(doc.get(name)).lower() for name in REFERENCES}
    answer = {"log_likelihoods": values if len(values) == 4 else [None] * 4}
    return content | {"question": str(doc["decision_question_id"])}, answer


KINDS = (
    _Kind(frozenset(FIELDS), (), _bbq, BBQ()),
    _Kind(frozenset(SENTENCES), (2,), _crows_pairs, CrowSPairs()),
    _Kind(frozenset(("decision_question_id", *REFERENCES)), (4,), _discrimination, DiscrimEval()),
)


class _Items:
    """The documents of a kind: items and answers, without the texts that no score needs."""

    def __init__(self, kind: _Kind) -> None:
        self.kind, self.found = kind, dict[int, tuple[Item, Answer]]()

    def add(self, record: Record, key: int, where: str) -> None:
        """Keep a document; a second line of it is of another filter, and the responses are the same."""
        content, answer = self.kind.read(record, where)
        self.found.setdefault(key, (Item(str(key), content), Answer(str(key), answer)))

    def keys(self) -> list[int]:
        return sorted(self.found)

    def headline(self, score: str) -> Headline | None:
        return self.kind.benchmark.headline("", score)

    def score(self, task: str, keep: Keep) -> Scores:
        chosen = [self.found[key] for key in self.keys() if keep is None or key in keep]
        return self.kind.benchmark.score([item for item, _ in chosen], [answer for _, answer in chosen])


class _Metrics:
    """The metrics of any other task, with cluster and category of each document."""

    def __init__(self, cluster: str, by: str) -> None:
        self.cluster, self.by, self.not_finite = cluster, by, 0
        self.columns: dict[str, dict[int, float]] = {}
        self.documents: dict[int, tuple[int, str | None]] = {}

    def add(self, record: Record, key: int, where: str) -> None:
        doc = record["doc"]
        for name in filter(None, (self.cluster, self.by)):
            if name not in doc:
                raise DataError(f"{where}: its document has no field {quoted(name)}. There are: {', '.join(doc)}.")
        fields = next((some for some in TEMPLATES if set(some) <= doc.keys()), ())
        fields = (self.cluster,) if self.cluster else fields
        cluster = _hashed([doc[name] for name in fields]) if fields else _document(record)
        name = self.by or next((name for name in CATEGORIES if isinstance(doc.get(name), str | int)), "")
        self.documents[key] = (cluster, sys.intern(str(doc[name])) if name else None)
        kind = str(record.get("filter", "none"))
        named = record.get("metrics")
        for name in named if isinstance(named, list) else [name for name in record if name not in ABOUT]:
            value = record.get(name)
            if not isinstance(value, int | float):
                continue
            column = self.columns.setdefault(name if kind == "none" else f"{name} ({kind})", {})
            column[key] = float(value)

    def headline(self, score: str) -> Headline | None:
        return ("utility", "high", None) if RIGHT.match(score) else None

    def keys(self) -> list[int]:
        return sorted({key for some in self.columns.values() for key, value in some.items() if math.isfinite(value)})

    def score(self, task: str, keep: Keep) -> Scores:
        overall: dict[str, Estimate] = {}
        parts: dict[str, dict[str, Estimate]] = {}
        categories = sorted({category for _, category in self.documents.values() if category is not None})
        notes, left = [], 0
        if len(categories) > MOST_CATEGORIES:
            notes.append(f"There are more than {MOST_CATEGORIES} categories: none is scored. Choose a field with --by.")
        for name, column in self.columns.items():
            # A value that is not finite in one log alone is a document less: a difference then has no pairs.
            values = {key: column[key] for key in sorted(column) if math.isfinite(column[key])}
            left += len(column) - len(values)
            own = [key for key in values if keep is None or key in keep]
            ends = SHARE if {values[key] for key in own} <= {0.0, 1.0} else None
            overall[name] = self._mean(values, own, ends)
            for category in categories if 1 < len(categories) <= MOST_CATEGORIES else ():
                if of := [key for key in own if self.documents[key][1] == category]:
                    parts.setdefault(category, {})[name] = self._mean(values, of, ends)
        if left:
            notes.insert(0, f"{left} values are not finite and left out.")
        return Scores(task, overall, parts, dict.fromkeys(overall, "mean over documents"), tuple(notes))

    def _mean(self, values: Mapping[int, float], keys: Sequence[int], ends: Any) -> Estimate:
        clusters = [self.documents[key][0] for key in keys]
        return estimated([(values[key], 1.0) for key in keys], clusters, ratio, ends=ends, ids=keys)


Rows = _Items | _Metrics
"""What is kept of the lines of one kind of task."""


def common_documents(logs: Sequence[SampleLog]) -> tuple[frozenset[int], list[str]]:
    """Return the documents that all logs hold, and notes on the others.

    Raises :class:`~levelhead.types.ConfigError` for logs of several tasks, and
    :class:`~levelhead.types.DataError` for logs without a common document.
    """
    kinds = {(log.task, getattr(log.rows, "kind", None)) for log in logs}
    if len(kinds) > 1:
        tasks = ", ".join(dict.fromkeys(log.task for log in logs))
        raise ConfigError(f"The logs are of several tasks ({tasks}): give the logs of one task at a time.")
    keys = [frozenset(log.rows.keys()) for log in logs]
    if empty := [log.path.name for log, own in zip(logs, keys, strict=True) if not own]:
        raise DataError(f"{empty[0]} has no document with a finite score: it cannot be scored.")
    common = frozenset.intersection(*keys)
    if not common:
        raise DataError("The logs have no document in common: their tasks or versions differ.")
    notes = [
        f"{log.name}: {len(own) - len(common):,} of {len(own):,} documents are not in every log and left out."
        for log, own in zip(logs, keys, strict=True)
        if len(own) > len(common)
    ]
    return common, notes


def names_of(logs: Sequence[SampleLog]) -> list[str]:
    """Return the models' names, numbered where two are alike."""
    plain = [log.name for log in logs]
    return [name if plain.count(name) == 1 else f"{name}, log {at}" for at, name in enumerate(plain, start=1)]
