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
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.lm.base import Answer, Headline, Item, Scores
from levelhead.lm.bbq import BBQ
from levelhead.lm.bbq.data import FIELDS, item_of
from levelhead.lm.bbq.score import score_answers as score_bbq
from levelhead.lm.crows_pairs import CrowSPairs
from levelhead.lm.crows_pairs.data import SENTENCES
from levelhead.lm.crows_pairs.score import FULL
from levelhead.lm.crows_pairs.score import score_answers as score_crows_pairs
from levelhead.lm.discrim_eval import REFERENCES
from levelhead.lm.discrim_eval import score_answers as score_discrimination
from levelhead.lm.intervals import SHARE, estimated, ratio
from levelhead.types import ConfigError, DataError, Estimate, quoted, reason_of

NAMED = re.compile(r"samples_(.+?)_\d{4}-\d\d-\d\dT.+")
ABOUT = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "doc_hash"}
ABOUT |= {"prompt_hash", "target_hash"}
CATEGORIES = ("category", "bias_type", "gender", "subject", "domain")
TEMPLATES = (("occupation", "participant"), ("decision_question_id",))
RIGHT = re.compile(r"(acc|exact_match|f1|em)\b|acc_")  # metrics of which more is better
MOST_CATEGORIES = 100
UNNAMED = "an unnamed task"
"""The task of a log whose file was given another name; such logs are compared by their documents."""

Keep = NDArray[np.int64] | None
"""The documents to score, or all."""


@dataclass
class SampleLog:
    """One log: the model's name, the task, and what was kept of its lines."""

    name: str
    path: Path
    task: str
    rows: Rows
    lines: int
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
    lines, keys = 0, _Keys()
    for where, record in _records(path, notes):
        doc = record.get("doc")
        if not isinstance(doc, dict):
            raise DataError(f"{where} has no field doc: give a samples_*.jsonl that lm-eval --log_samples wrote.")
        rows = rows or _rows_for(record, cluster, by)
        rows.add(record, keys.of(record), where)
        lines += 1
    if rows is None:
        raise DataError(f"{path} holds no whole line of a log.")
    return SampleLog(model, path, named[1] if named else UNNAMED, rows, lines, notes)


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
                f"{path} is a log of {tool}: write its answers as lines of id and answer, and score them with "
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


def _document(record: Mapping[str, Any]) -> str:
    """Return the hash of a document that the harness gives; of a log without it, the same hash of its content."""
    given = record.get("doc_hash")
    if isinstance(given, str):
        return given
    content = json.dumps(record["doc"], indent=2, default=str, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()


class _Keys:
    """Keys of documents: by their hash, and of several with one hash also by the order of their ids.

    An id alone is no key: some versions of the harness write wrong ones beside right hashes.
    """

    def __init__(self) -> None:
        self.first: dict[int, Any] = {}
        self.more: dict[int, list[Any]] = {}

    def of(self, record: Mapping[str, Any]) -> int:
        """Return the key of a line's document."""
        document, own = _hashed(_document(record)), record.get("doc_id")
        if self.first.setdefault(document, own) == own:
            return document
        others = self.more.setdefault(document, [])
        if own not in others:
            others.append(own)
        return _hashed(f"{document} {others.index(own)}")


def _rows_for(record: Mapping[str, Any], cluster: str, by: str) -> Rows:
    doc = record["doc"]
    if not (cluster or by):
        if set(FIELDS) <= doc.keys():
            return _Bbq()
        if set(SENTENCES) <= doc.keys():
            return _CrowsPairs()
        if {"decision_question_id", *REFERENCES} <= doc.keys() and len(_likelihoods(record)) == 4:
            return _Discrimination()
    return _Metrics(cluster, by)


def _likelihoods(record: Mapping[str, Any]) -> list[float]:
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


def _text(record: Mapping[str, Any], where: str) -> str:
    text: Any = record.get("resps") or record.get("filtered_resps") or ""
    while isinstance(text, list):
        if len(text) > 1:
            raise DataError(f"{where} holds {len(text)} responses to one document: run the harness with `repeats: 1`.")
        text = text[0] if text else ""
    return str(text)


class _Items:
    """Documents of a benchmark that is scored here: items and answers, without the texts that no score needs."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Item, Answer]] = {}
        self.filters: dict[str, set[int]] = {}

    def keys(self) -> NDArray[np.int64]:
        return np.sort(np.fromiter(self.found, np.int64, len(self.found)))

    def kept(self, keep: Keep) -> tuple[list[Item], list[Answer]]:
        chosen = [self.found[int(key)] for key in (self.keys() if keep is None else keep)]
        return [item for item, _ in chosen], [answer for _, answer in chosen]

    def keep(self, record: Mapping[str, Any], key: int, where: str, item: Item, answer: Answer) -> None:
        """Keep a document; a second line of it is of another filter, and the responses are the same."""
        seen = self.filters.setdefault(str(record.get("filter", "none")), set())
        if key in seen:
            raise DataError(f"{where} is a second line of one document: delete it.")
        seen.add(key)
        self.found.setdefault(key, (item, answer))


class _Bbq(_Items):
    headlines = BBQ.headlines

    def add(self, record: Mapping[str, Any], key: int, where: str) -> None:
        item = item_of(record["doc"], {}, where)
        content = {name: value for name, value in item.content.items() if name not in ("context", "question")}
        likelihoods = _likelihoods(record)
        if not likelihoods:
            answer: dict[str, Any] = {"text": _text(record, where)}
        else:
            del content["options"]
            answer = {"answer": self._option(likelihoods, content["unknown"])}
        content = {name: sys.intern(value) if isinstance(value, str) else value for name, value in content.items()}
        self.keep(record, key, where, Item(item.id, content), Answer(item.id, answer))

    @staticmethod
    def _option(likelihoods: Sequence[float], unknown: int) -> int | None:
        """Return the likeliest option; the harness offers both people, and then other words for unknown."""
        if any(math.isnan(value) for value in likelihoods):
            return None
        best = int(np.argmax(likelihoods))
        if len(likelihoods) == 3:
            return best
        people = [option for option in range(3) if option != unknown]
        return people[best] if best < 2 else unknown

    def score(self, task: str, keep: Keep) -> Scores:
        return score_bbq(*self.kept(keep))


class _CrowsPairs(_Items):
    headlines = CrowSPairs.headlines

    def add(self, record: Mapping[str, Any], key: int, where: str) -> None:
        likelihoods = _likelihoods(record)
        if len(likelihoods) != 2:
            raise DataError(f"{where} has {len(likelihoods)} log-likelihoods; a pair has two.")
        if not np.isfinite(likelihoods).all():
            raise DataError(f"{where} has a log-likelihood that is not finite: delete that line.")
        kind = sys.intern(str(record["doc"].get("bias_type", "all")))
        content = dict(zip(SENTENCES, likelihoods, strict=True)) | {"measure": FULL}
        self.keep(record, key, where, Item(str(key), {"bias_type": kind}), Answer(str(key), content))

    def score(self, task: str, keep: Keep) -> Scores:
        return score_crows_pairs(*self.kept(keep))


class _Column:
    """The values of one metric, with document, cluster and category of each."""

    def __init__(self) -> None:
        self.keys, self.values, self.clusters, self.categories = array("q"), array("d"), array("q"), array("h")

    def add(self, key: int, value: float, cluster: int, category: int) -> None:
        self.keys.append(key)
        self.values.append(value)
        self.clusters.append(cluster)
        self.categories.append(category)

    def arrays(self, keep: Keep) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int16], list[int]]:
        keys = np.asarray(self.keys)
        if twice := len(keys) - len(np.unique(keys)):
            raise DataError(f"{twice:,} lines of a log are second lines of one document: delete them.")
        order = np.argsort(keys, kind="stable")
        order = order if keep is None else order[np.isin(keys[order], keep)]
        own = [np.asarray(one)[order] for one in (self.values, self.clusters, self.categories)]
        return own[0], own[1], own[2], keys[order].tolist()


class _Metrics:
    def __init__(self, cluster: str, by: str) -> None:
        self.cluster, self.by, self.columns = cluster, by, dict[str, _Column]()
        self.categories: dict[str, int] = {}
        self.not_finite = 0

    def add(self, record: Mapping[str, Any], key: int, where: str) -> None:
        doc = record["doc"]
        for name in filter(None, (self.cluster, self.by)):
            if name not in doc:
                raise DataError(f"{where}: its document has no field {quoted(name)}. There are: {', '.join(doc)}.")
        fields = next((some for some in TEMPLATES if set(some) <= doc.keys()), ())
        fields = (self.cluster,) if self.cluster else fields
        cluster = _hashed([doc[name] for name in fields]) if fields else _hashed(_document(record))
        category = self._category(doc)
        kind = str(record.get("filter", "none"))
        named = record.get("metrics")
        names = named if isinstance(named, list) else [name for name in record if name not in ABOUT]
        for name in names:
            value = record.get(name)
            if isinstance(value, int | float):
                if not math.isfinite(value):
                    self.not_finite += 1
                    continue
                column = name if kind == "none" else f"{name} ({kind})"
                self.columns.setdefault(column, _Column()).add(key, float(value), cluster, category)

    def _category(self, doc: Mapping[str, Any]) -> int:
        name = self.by or next((name for name in CATEGORIES if isinstance(doc.get(name), str | int)), "")
        if not name or len(self.categories) > MOST_CATEGORIES:
            return -1  # of no category
        return self.categories.setdefault(str(doc.get(name)), len(self.categories))

    @property
    def headlines(self) -> Mapping[str, Headline]:
        right = [name for name in self.columns if RIGHT.match(name)]
        return dict.fromkeys(right, ("utility", "high", None))

    def keys(self) -> NDArray[np.int64]:
        found = [np.asarray(column.keys) for column in self.columns.values()]
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    def score(self, task: str, keep: Keep) -> Scores:
        overall: dict[str, Estimate] = {}
        parts: dict[str, dict[str, Estimate]] = {}
        many = len(self.categories) > MOST_CATEGORIES
        for name, column in self.columns.items():
            # A value that is not finite in one log alone is a document less: a difference then has no pairs.
            values, clusters, categories, ids = column.arrays(keep)
            rows = np.stack([values, np.ones(len(values))], axis=1)
            ends = SHARE if np.isin(values, (0, 1)).all() else None
            overall[name] = estimated(rows, clusters, ratio, ends=ends, ids=ids)
            for category, code in sorted(self.categories.items()) if len(self.categories) > 1 and not many else ():
                of = categories == code
                if of.any():
                    own = [one for one, chosen in zip(ids, of.tolist(), strict=True) if chosen]
                    figure = estimated(rows[of], clusters[of], ratio, ends=ends, ids=own)
                    parts.setdefault(category, {})[name] = figure
        notes = [f"{self.not_finite} values are not finite and left out."] if self.not_finite else []
        if many:
            notes.append(f"There are more than {MOST_CATEGORIES} categories: none is scored. Choose a field with --by.")
        return Scores(task, overall, parts, dict.fromkeys(overall, "mean over documents"), tuple(notes))


class _Discrimination(_Items):
    def __init__(self) -> None:
        super().__init__()
        self.headlines: dict[str, Headline] = {}

    def add(self, record: Mapping[str, Any], key: int, where: str) -> None:
        doc, values = record["doc"], [one if math.isfinite(one) else None for one in _likelihoods(record)]
        values = values if len(values) == 4 else [None] * 4
        content = {name: sys.intern(str(doc.get(name)).lower()) for name in REFERENCES}
        content |= {"question": str(doc["decision_question_id"])}
        self.keep(record, key, where, Item(str(key), content), Answer(str(key), {"log_likelihoods": values}))

    def score(self, task: str, keep: Keep) -> Scores:
        scores = score_discrimination(*self.kept(keep))
        self.headlines = dict.fromkeys(scores.overall, ("bias", "zero", 0.0))
        return scores


Rows = _Bbq | _CrowsPairs | _Discrimination | _Metrics
"""What is kept of the lines of one kind of task."""


def common_documents(logs: Sequence[SampleLog]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the documents that all logs hold, in order, and notes on the others.

    Raises :class:`~levelhead.types.ConfigError` for logs of several tasks, and
    :class:`~levelhead.types.DataError` for logs without a common document.
    """
    if len({(log.task, type(log.rows)) for log in logs}) > 1:
        tasks = ", ".join(dict.fromkeys(log.task for log in logs))
        raise ConfigError(f"The logs are of several tasks ({tasks}): give the logs of one task at a time.")
    keys = [log.rows.keys() for log in logs]
    if empty := [log.path.name for log, own in zip(logs, keys, strict=True) if not len(own)]:
        raise DataError(f"{empty[0]} has no document with a finite score: it cannot be scored.")
    common = keys[0]
    for more in keys[1:]:
        common = np.intersect1d(common, more)
    if not len(common):
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
