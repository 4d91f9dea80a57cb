"""StereoSet's items from the owners' file or from the compact one.

::

    stereoset/dev.json              the owners' file: {"version", "data": {"intrasentence": [...], "intersentence":
                                    [...]}}
    stereoset/stereoset_dev.jsonl   one item a line: id, task, bias_type, target, context, stereotype, anti_stereotype,
                                    unrelated

Both may be gzipped (``.gz``). In the owners' file an item holds a list of sentences, each with its ``gold_label``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from levelhead.data.base import dataset_folder
from levelhead.data.text_files import table_files
from levelhead.lm.base import Item
from levelhead.lm.files import json_of, lines_of, objects_of, text_of
from levelhead.types import ConfigError, DataError, quoted

INTRA, INTER = "intrasentence", "intersentence"
TASKS = (INTRA, INTER)
SENTENCES = ("stereotype", "anti_stereotype", "unrelated")
FIELDS = ("task", "bias_type", "target", "context", *SENTENCES)
SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")


def stereoset_file(root: Path | None) -> Path:
    """Return the one StereoSet file below ``root`` (None: ``$LEVELHEAD_DATA``, then ``data``), in ``stereoset/``."""
    return table_files(dataset_folder(root, "stereoset"), "dev", "stereoset_dev", suffixes=SUFFIXES)[0]


def read_stereoset(path: Path) -> list[Item]:
    """Read all items of a file in either layout, in its order.

    The content of an item holds ``task``, ``bias_type``, ``target``, ``context`` and the three sentences
    ``stereotype``, ``anti_stereotype`` and ``unrelated``, as they stand in the file. In an intrasentence item the
    context is the template with BLANK, in an intersentence item it is the sentence before.

    Raises :class:`~levelhead.types.DataError` that names file and item, never a sentence, for anything missing, empty
    or doubled.
    """
    compact = path.name.removesuffix(".gz").endswith(".jsonl")
    records = [record for _, record in objects_of(path)] if compact else _owners_records(path)
    items = [_item(record, path, row) for row, record in enumerate(records)]
    if not items:
        raise DataError(f"{path} holds no items.")
    if doubled := [name for name, times in Counter(item.id for item in items).items() if times > 1]:
        raise DataError(f"{path}: item {quoted(doubled[0])} is there twice. Leave one of the two.")
    return items


def read_terms(path: Path) -> frozenset[str]:
    """Read target terms, one a line in UTF-8; blank lines are left out."""
    terms = frozenset(line.strip() for _, line in lines_of(path))
    if not terms:
        raise DataError(f"{path} has no terms. Write one target term per line.")
    return terms


def same_term(term: str) -> str:
    """Return the form in which target terms are compared: case and outer spaces do not make another term."""
    return term.strip().casefold()


def keep_terms(items: Sequence[Item], terms: Iterable[str]) -> list[Item]:
    """Return the items whose target is one of ``terms``.

    Raises :class:`~levelhead.types.ConfigError` for no terms at all and for a term that no item has: a list of held-out
    terms that does not fit the data would otherwise score less than it says.
    """
    wanted = {same_term(term): term for term in terms}
    there = {same_term(item.content["target"]) for item in items}
    for key, term in wanted.items():
        if key not in there:
            raise ConfigError(f"terms: StereoSet has no target term {term!r}. It has {len(there)} others.")
    return [item for item in items if same_term(item.content["target"]) in wanted]


def _owners_records(path: Path) -> list[Any]:
    content = json_of(text_of(path), str(path))
    data = content.get("data") if isinstance(content, dict) else None
    records = []
    for task in TASKS:
        examples = data.get(task) if isinstance(data, dict) else None
        if not isinstance(examples, list):
            raise DataError(f'{path} has no list "data": {{"{task}": [...]}}. Is it the owners\' dev.json?')
        records += [_flat(example, task, path, row) for row, example in enumerate(examples)]
    return records


def _flat(example: Any, task: str, path: Path, row: int) -> Any:
    """Return an item of the owners' file as the compact one has it."""
    try:
        texts = {one["gold_label"].replace("-", "_"): one["sentence"] for one in example["sentences"]}
    except (KeyError, TypeError, AttributeError):
        raise DataError(f"{path}: item {row} (from 0) of {task} has no sentences with a gold_label.") from None
    return {**example, **texts, "task": task}


def _item(record: Any, path: Path, row: int) -> Item:
    if not isinstance(record, Mapping):
        raise DataError(f"{path}: item {row} (from 0) is not a JSON object.")
    name = record.get("id")
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{path}: item {row} (from 0) has no id.")
    for field in FIELDS:
        if not isinstance(record.get(field), str) or not record[field].strip():
            kind = "sentence" if field in SENTENCES else "text"
            raise DataError(f"{path}: item {quoted(name)} has no {kind} {field!r}. Complete the item, or leave it out.")
    if record["task"] not in TASKS:
        raise DataError(
            f"{path}: item {quoted(name)} has the task {quoted(record['task'])}; known are {' and '.join(TASKS)}."
        )
    return Item(name, {field: record[field] for field in FIELDS})
