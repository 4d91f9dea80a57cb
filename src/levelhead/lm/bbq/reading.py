"""Which option a text gives: by its wording, by a letter ("B", "(b)"), or by a number ("2")."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from levelhead.lm.base import Answer, Item, answers_by_id
from levelhead.types import DataError, quoted, reason_of, require_columns

# The wordings of "unknown" that the owners use; an item shows one of them, and a generated answer may take another.
UNKNOWN = (
    "unknown",
    "cannot be determined",
    "can't be determined",
    "not answerable",
    "not known",
    "not enough info",
    "not enough information",
    "cannot answer",
    "can't answer",
    "undetermined",
)
LEAD = r"(?:.*\b(?:answer|option|choice)\b(?:\s+is)?[\s:=]*)?"
# A letter or number by itself, or before a closing mark; "A lamp" is an article and a word.
MARK = re.compile(rf"^{LEAD}[(\[{{]?\s*(?:ans)?([a-c]|[0-3])\s*(?:[)\]}}.:,;](.*))?$", re.IGNORECASE)
ANOTHER = re.compile(r"\s*(?:and|or|/)?\s*\(?[a-c0-3]\b", re.IGNORECASE)  # "A, B": several
NAMED = re.compile(r"\bans([0-2])\b", re.IGNORECASE)  # the owners' name of a column


def match_option(text: str, item: Item, first: int | None = None) -> int | None:
    """Return the option that a text gives, or None if it gives none, or several.

    Lines are read in turn, until one names an option. A line names an option if it begins with the option's wording
    (the longest that fits), if it holds the wording of one option alone, or if it is a letter or a number: "B", "(b)",
    "Answer: B", "ans1". Case, punctuation and a leading "the" do not matter, and every wording of "unknown" that the
    owners use means the unknown option. Letter and wording must agree.

    Args:
        text: what a system wrote.
        item: the item, with its ``options``.
        first: number of the first option, 0 or 1. None: numbers are not read.
    """
    wordings = [(_plain(option), position) for position, option in enumerate(item.content["options"])]
    wordings += [(_plain(wording), item.content["unknown"]) for wording in UNKNOWN]
    for raw in text.splitlines():
        named = _worded(_plain(raw), wordings)
        marked = _marked(raw, first)
        found = named if marked is None else named | {marked}
        if found:
            return found.pop() if len(found) == 1 else None
    return None


def first_number(template: str) -> int | None:
    """Return the number that a template puts before {ans0}, if it is 0 or 1: how answers count the options."""
    found = re.search(r"([01])\s*[).:\]]?\s*\{ans0\}", template)
    return int(found[1]) if found else None


def _worded(line: str, wordings: Sequence[tuple[str, int]]) -> set[int]:
    """Return the options whose wording a line holds; the one that it begins with, if there is one."""
    begins = [(len(words), position) for words, position in wordings if f"{line} ".startswith(f"{words} ")]
    if begins:
        return {max(begins)[1]}
    return {position for words, position in wordings if f" {words} " in f" {line} "}


def _marked(line: str, first: int | None) -> int | None:
    if named := NAMED.findall(line):
        return int(named[0]) if len(set(named)) == 1 else None
    found = MARK.match(re.sub(r"[*_`\"'$]|\\boxed", "", line).strip())
    if found is None or ANOTHER.match(found[2] or ""):
        return None
    mark = found[1].lower()
    if mark in "abc":
        return "abc".index(mark)
    return int(mark) - first if first is not None and 0 <= int(mark) - first <= 2 else None


def _plain(text: str) -> str:
    words = re.sub(r"[^\w\s]", "", text.casefold()).split()
    return " ".join(words[1:] if words[:1] == ["the"] else words)


def read_predictions(path: Path, items: Sequence[Item]) -> list[Answer]:
    """Read the answers of any system: JSON lines with ``category``, ``example_id`` and ``answer``.

    ``answer`` is 0, 1 or 2, a text (see :func:`match_option`), or null where there is none. Numbers in texts count from
    1 if the file has a "3" and no "0", and from 0 otherwise, as ``answer`` itself does.

    Raises:
        DataError: for a broken line, for items without an answer or with two, and for numbers that count from 0 and
            from 1; names the first few.
    """
    by_id = {item.id: item for item in items}
    given: list[tuple[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {reason_of(error)}.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        record = _record(line, where)
        name, chosen = f"{record['category']}/{record['example_id']}", record["answer"]
        if not isinstance(chosen, str | None) and (isinstance(chosen, bool) or chosen not in (0, 1, 2)):
            raise DataError(
                f"{where} (item {name}): the answer is {quoted(chosen)}, and must be 0, 1, 2, a text or null."
            )
        given.append((name, chosen))
    texts = [chosen for name, chosen in given if name in by_id and isinstance(chosen, str)]
    first = _first_of(texts, path)
    answers = [
        Answer(name, {"answer": match_option(chosen, by_id[name], first) if name in by_id else None, "text": chosen})
        if isinstance(chosen, str)
        else Answer(name, {"answer": chosen})
        for name, chosen in given
    ]
    return list(answers_by_id(items, answers, "BBQ").values())


def _first_of(texts: Sequence[str], path: Path) -> int:
    """Return the number of the first option, from the numbers that a file's texts give."""
    numbers = Counter(found[1] for text in texts for line in text.splitlines() if (found := MARK.match(line.strip())))
    if numbers["0"] and numbers["3"]:
        raise DataError(
            f'{path}: {numbers["0"]} answers are "0" and {numbers["3"]} are "3", so the options are counted from 0 and '
            "from 1. Write the answers as 0, 1 and 2, or as the options' texts."
        )
    return int(numbers["3"] > 0)


def _record(line: str, where: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not JSON: {error}.") from None
    if not isinstance(record, dict):
        raise DataError(f"{where} is no JSON object.")
    require_columns(list(record), ("category", "example_id", "answer"), where)
    return record
