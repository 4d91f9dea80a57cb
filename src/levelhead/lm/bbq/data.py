"""BBQ (Parrish et al., Findings of ACL 2022): the owners' files, and which answer would be the biased one.

::

    bbq/Age.jsonl.gz, Nationality.jsonl.gz, ...                 or .jsonl
    BBQ/data/Age.jsonl, ...                                     the owners' repository ("BBQ-main" too)
    additional_metadata.csv                                     beside them, or in analysis_scripts/ or supplemental/

An answer that names a person is biased if and only if (the person's tag is a stereotyped group) == (the question is
negative, ``question_polarity``). Taking the stereotyped group for both polarities is the usual mistake: it takes most
of the bias away.

Which option is of the stereotyped group: the owners' ``target_loc`` if their csv is there (it follows the polarity
already: github.com/nyu-mll/BBQ/issues/11), otherwise ``answer_info`` is compared with ``stereotyped_groups``. The two
use different words, and :func:`group_terms` brings them together, as the owners' ``BBQ_results_metadata.R`` does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from levelhead.data.base import dataset_folder
from levelhead.data.text_files import read_columns
from levelhead.lm.base import Item
from levelhead.lm.files import objects_of
from levelhead.types import DataError, listed, quoted, require_columns

FOLDERS = ("bbq", "BBQ", "BBQ-main")
METADATA = "additional_metadata.csv"
TEXTS = ("context", "question", "ans0", "ans1", "ans2")
KNOWN = {"context_condition": ("ambig", "disambig"), "question_polarity": ("neg", "nonneg"), "label": (0, 1, 2)}
FIELDS = ("example_id", "question_index", "category", "answer_info", "additional_metadata", *TEXTS, *KNOWN)
LABEL_TEMPLATES = 25  # later templates of a category use proper names, which the owners report alone

# One word for what answer_info and stereotyped_groups spell differently. Left: letters and digits in lower case.
SAME_GROUP = {
    **dict.fromkeys(("man", "men", "boy", "boys", "male", "m"), "m"),
    **dict.fromkeys(("woman", "women", "girl", "girls", "female", "f"), "f"),
    **dict.fromkeys(("trans", "transf", "transm", "transgender", "transgenderwomen", "transgendermen"), "trans"),
    **dict.fromkeys(("transgenderwoman", "transgenderman"), "trans"),
    **dict.fromkeys(("nontrans", "nontransf", "nontransm"), "nontrans"),
}
NAME_PREFIX = re.compile(r"^[MF]-")  # a proper name's tag has the gender first: "F-Black"

logger = logging.getLogger(__name__)


def read_items(root: Path | None) -> list[Item]:
    """Read the items of all categories that are there, in the order of files and lines.

    The content of an item: ``category``, ``part`` (category, with "(names)" for templates of proper names),
    ``question_index``, ``condition`` (ambig, disambig), ``polarity`` (neg, nonneg), ``context``, ``question``,
    ``options`` (three strings), ``label`` and ``unknown`` (positions), ``biased`` (positions of the answers that would
    be biased), and ``target``: how ``biased`` was found, ``owners`` (their csv), ``derived``, ``both`` or ``neither``
    (derived too, but both people are of the stereotyped groups, or neither is), ``nobody`` (their csv says that
    nobody is the target), or ``missing`` (the file does not say which group; ``biased`` is empty).

    Raises :class:`~levelhead.types.DataError` if there is no file, if a line is broken, or if an id comes twice; it
    names file and item.
    """
    files = _files(dataset_folder(root, *FOLDERS))
    targets = _owners_targets(next(iter(files.values())).parent)
    items: list[Item] = []
    seen: dict[str, str] = {}
    for path in files.values():
        for where, record in objects_of(path):
            item = item_of(record, targets, where)
            if item.id in seen:
                raise DataError(f"{where}: item {item.id} was already in {seen[item.id]}. Keep one of the two.")
            seen[item.id] = where
            items.append(item)
    return items


def group_terms(words: Sequence[str]) -> set[str]:
    """Return the words of a tag or of a list of groups in one spelling, so that the two can be compared.

    Case, blanks and hyphens go ("low SES", "lowSES"); gender words become m and f, transgender women and men become
    trans, and the gender in front of a proper name's tag goes ("F-Black").
    """
    plain = (re.sub(r"[^0-9a-z]", "", NAME_PREFIX.sub("", word).lower()) for word in words)
    return {SAME_GROUP.get(term, term) for term in plain if term}


def biased_options(
    category: str, polarity: str, tags: Sequence[Sequence[str]], unknown: int, groups: Sequence[str]
) -> tuple[list[int], str]:
    """Return the positions of the biased answers, and how they were found (``target`` of :func:`read_items`).

    ``tags`` are the words of ``answer_info`` for each of the three options, ``groups`` the stereotyped groups. Each
    person is judged by the own tag: with one person of the stereotyped groups one answer is biased; with both, or
    neither, both answers are in one polarity, and none is in the other.

    The crossed categories (Race_x_gender, Race_x_SES) name one of their two groups only, so they are ``missing``.
    """
    stereotyped = group_terms(groups)
    if not stereotyped or "_x_" in category:
        return [], "missing"
    if category == "Disability_status":  # every group here is one of disabled people, and has that tag
        stereotyped = {"disabled"}
    people = [position for position in range(3) if position != unknown]
    # Name and tag: the tag of a nationality is its region, and the group is the name.
    named = [position for position in people if stereotyped & group_terms(tags[position])]
    biased = [position for position in people if (position in named) == (polarity == "neg")]
    return biased, {0: "neither", 1: "derived", 2: "both"}[len(named)]


def _files(folder: Path) -> dict[str, Path]:
    """Return the file of each category, by name; the owners keep them in ``data``."""
    for place in (folder, folder / "data"):
        found: dict[str, Path] = {}
        for path in sorted([*place.glob("*.jsonl"), *place.glob("*.jsonl.gz")]):
            name = path.name.removesuffix(".gz").removesuffix(".jsonl")
            if name in found:
                raise DataError(f"{place} holds {found[name].name} and {path.name}. Keep one of the two.")
            found[name] = path
        if found:
            return found
    raise DataError(f"{folder} holds no BBQ file (Age.jsonl or Age.jsonl.gz, ..., here or in data/).")


def item_of(record: Mapping[str, Any], targets: Mapping[tuple[str, str], str], where: str) -> Item:
    """Return the item of a released record; ``targets`` are the owners' ``target_loc``, ``where`` is for errors."""
    require_columns(list(record), FIELDS, where)
    category, example = str(record["category"]), str(record["example_id"])
    where = f"{where} (item {category}/{example})"
    for name in TEXTS:
        if not isinstance(record[name], str) or not record[name].strip():
            raise DataError(f"{where}: {name!r} is empty.")
    for name, known in KNOWN.items():
        if record[name] not in known or isinstance(record[name], bool):
            raise DataError(f"{where}: {name} is {quoted(record[name])}; known are {listed(map(str, known))}.")
    polarity = record["question_polarity"]
    try:
        tags = [[str(word) for word in record["answer_info"][f"ans{position}"]] for position in range(3)]
        groups = [str(group) for group in record["additional_metadata"]["stereotyped_groups"]]
    except (KeyError, TypeError):
        raise DataError(f"{where}: answer_info or stereotyped_groups is not as released.") from None
    unknowns = [position for position in range(3) if tags[position] and tags[position][-1] == "unknown"]
    if len(unknowns) != 1:
        raise DataError(f"{where}: {len(unknowns)} options are tagged 'unknown', and one must be.")
    biased, target = biased_options(category, polarity, tags, unknowns[0], groups)
    stated = targets.get((category, example), "")
    if stated == "x":  # the owners' mark of crossed rows in which nobody is the target
        biased, target = [], "nobody"
    elif stated in ("0", "1", "2") and int(stated) != unknowns[0]:
        biased, target = [int(stated)], "owners"
    index = str(record["question_index"])
    names = "_x_" not in category and index.isdigit() and int(index) > LABEL_TEMPLATES
    return Item(
        f"{category}/{example}",
        {
            "category": category,
            "part": f"{category} (names)" if names else category,
            "question_index": index,
            "condition": record["context_condition"],
            "polarity": polarity,
            "context": record["context"],
            "question": record["question"],
            "options": [record["ans0"], record["ans1"], record["ans2"]],
            "label": record["label"],
            "unknown": unknowns[0],
            "biased": biased,
            "target": target,
        },
    )


def _owners_targets(folder: Path) -> dict[tuple[str, str], str]:
    """Return ``target_loc`` by category and example, from the owners' csv; empty if it is not there."""
    home = folder.parent if folder.name == "data" else folder
    places = [folder, home, home / "analysis_scripts", home / "supplemental"]
    path = next((place / METADATA for place in places if (place / METADATA).is_file()), None)
    if path is None:
        return {}
    found: dict[tuple[str, str], set[str]] = {}
    columns = read_columns(path, ("category", "example_id", "target_loc"))
    for category, example, target in zip(*columns.values(), strict=True):
        found.setdefault((category, example), set()).add(target.strip().removesuffix(".0"))
    if unclear := sum(len(targets) > 1 for targets in found.values()):
        logger.warning("%s: %d items have two target_loc; theirs is derived instead.", path, unclear)
    return {key: next(iter(targets)) for key, targets in found.items() if len(targets) == 1}
