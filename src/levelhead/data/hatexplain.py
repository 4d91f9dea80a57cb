"""HateXplain (Mathew, Saha, Yimam, Biemann, Goyal, Mukherjee, AAAI 2021): hateful or offensive posts, or normal ones.

::

    hatexplain/dataset.json, post_id_divisions.json       the owners' files ("owners")
    hatexplain/train.csv.gz, val.csv.gz, test.csv.gz      text, y, a_women ("csv"); also .csv

In the owners' files, three annotators label a post and name the communities that it targets, all in one record. The
reader for training drops the named communities while it parses: labels never depend on them.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

from levelhead.data.base import SPLITS, Card, Groups, Inputs, Split, dataset_folder
from levelhead.data.table_set import FileTable, KnownSet, Roles, Rows, Table
from levelhead.data.text_files import find_layout, table_file
from levelhead.types import DataError, require_columns

POSTS, DIVISIONS = "dataset.json", "post_id_divisions.json"
LAYOUTS: dict[str, tuple[str, ...]] = {
    "owners": (POSTS, DIVISIONS),
    "csv": ("train.csv", "train.csv.gz"),
}
DIVISION_NAMES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}
LABELS = ("hatespeech", "normal", "offensive")
CLASS_NAMES = ("normal", "hateful or offensive")
GROUP_NAMES = ("women not targeted", "women targeted")
COMMUNITY = "Women"
NO_COMMUNITY = ("None", "Other")
MOST_FREQUENT = 10

WORDS, LABEL, TARGET = "post_tokens", "label", "target"
LAYOUT_SUFFIXES = (".csv", ".csv.gz")

Named = list[list[str]]
"""The communities that each annotator of a post names."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Posts(Table):
    """The posts of one split as annotators left them, in one file of all posts and one of the ids of each split."""

    folder: Path = Path()

    def header(self) -> list[str]:
        """Return the fields of posts and of their annotators' notes; what they hold is dropped."""
        self._division()
        posts = self._posts([], [WORDS, TARGET, LABEL])
        return list(dict.fromkeys(key for post in posts for part in (post, *post["annotators"]) for key in part))

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return words with blanks between them, and "0" or "1" of labels and of targets."""
        found = {name: self._cells(name) for name in columns}
        return found, len(next(iter(found.values())))

    def _cells(self, field: str) -> list[str]:
        posts = self._each(field)
        if field == LABEL:
            return [str(_code(labels, self.name, row)) for row, labels in enumerate(posts)]
        if field == TARGET:
            frequent = most_frequent(self._each(TARGET, everywhere=True))
            return [str(_is_targeted(post, frequent)) for post in posts]
        wrong = [row for row, words in enumerate(posts) if not words]
        if wrong:
            raise DataError(f"{self.name}: {len(wrong)} posts have no post_tokens, first post {wrong[0]} (from 0).")
        return [" ".join(words) for words in posts]

    def _each(self, field: str, *, everywhere: bool = False) -> list[Any]:
        """Return the words of each post, or what each of its annotators says in a field; opens no other field.

        ``everywhere``: of the posts of the whole set.
        """
        posts = self._posts([] if everywhere else self._division(), {WORDS, TARGET, LABEL} - {field})
        if field == WORDS:
            return [post.get(WORDS) for post in posts]
        for row, post in enumerate(posts):
            if any(field not in note for note in post["annotators"]):
                raise DataError(
                    f"{self.name}: post {row} (from 0) has an annotator without {field!r}; fetch {POSTS} again."
                )
        return [[note[field] for note in post["annotators"]] for post in posts]

    def _division(self) -> list[str]:
        """Return the ids of the owners' split; an id in two splits is an error."""
        path = self.folder / DIVISIONS
        divisions = _load(path, ())
        require_columns(sorted(divisions), list(DIVISION_NAMES.values()), str(path))
        twice = [name for name, count in Counter(chain.from_iterable(divisions.values())).items() if count > 1]
        if twice:
            raise DataError(f"{path} lists {len(twice)} posts more than once; fetch it again.")
        assert self.split is not None
        ids: list[str] = divisions[DIVISION_NAMES[self.split]]
        if not ids:
            raise DataError(f"{path} has no post in the {self.split} split; fetch it again.")
        return ids

    def _posts(self, ids: Sequence[str], closed: Iterable[str]) -> list[dict[str, Any]]:
        """Return records of the owners' file without the ``closed`` fields: those of ``ids``, or all of them."""
        path = self.folder / POSTS
        posts = _load(path, ["rationales", "annotator_id", *closed])
        absent = [name for name in ids if name not in posts]
        if absent:
            raise DataError(f"{path} lacks {len(absent)} of {len(ids)} posts of {DIVISIONS}; fetch both again.")
        chosen = [posts[name] for name in ids] if ids else list(posts.values())
        wrong = [row for row, post in enumerate(chosen) if not isinstance(post, dict) or not post.get("annotators")]
        if wrong:
            raise DataError(f"{path}: {len(wrong)} posts have no annotators, first number {wrong[0]}.")
        return chosen


@dataclass(frozen=True)
class HateXplain(KnownSet):
    """Tell hateful or offensive posts from normal ones; the group is whether women are targeted, as annotated.

    A post is ``normal`` if most of its annotators say so, and ``hateful or offensive`` otherwise, also where all three
    say different things (the owners' splits hold no such post). Women are targeted if the annotators name them more
    than once, and if they are one of the ten communities that are named so in most posts of the whole set; ``None``
    and ``Other`` do not count among the ten. ``layout`` is found by what the folder holds; name it where there are
    several.
    """

    layout: Literal["owners", "csv"] | None = None

    card: ClassVar[Card] = Card(
        title="HateXplain",
        task="hateful or offensive post / normal post, by the majority of three annotators",
        groups="women are targeted, as named by two annotators / not",
        licence="MIT (the owners' repository; the hub's page says CC BY 4.0)",
        citation="Mathew, Saha, Yimam, Biemann, Goyal, Mukherjee: HateXplain: A Benchmark Dataset for Explainable Hate "
        "Speech Detection, AAAI 2021",
        url="https://github.com/hate-alert/HateXplain",
        caution="Posts are hateful: do not print or share them. 21 normal test posts target women: one of them is "
        "4.8 points of a rate, so report intervals.",
    )

    @property
    def _sensitive(self) -> tuple[str, ...]:
        return ("women_targeted",)

    @property
    def _roles(self) -> Roles:
        return Roles("y", inputs=("text",)) if self._layout() == "csv" else Roles(LABEL, inputs=(WORDS,))

    def _column_of(self, attribute: str) -> str:
        return "a_women" if self._layout() == "csv" else TARGET

    def _codes(self, attribute: str) -> tuple[tuple[str, ...], Mapping[str, int]]:
        return GROUP_NAMES if attribute in self._sensitive else CLASS_NAMES, {"0": 0, "1": 1}

    def _group(self, attribute: str, rows: Rows) -> Groups:
        if not any(rows.chosen(self._column_of(attribute))):
            raise DataError(
                f"{rows.tables[0][0].name}: this copy has no targets of its posts. Evaluate another split, or fetch "
                "the owners' files."
            )
        return super()._group(attribute, rows)

    def _load(self, rows: Rows, split: Split) -> Inputs:
        return rows.texts(self._roles.inputs, f"{self._folder()}, {split}")

    @property
    def _title(self) -> str:
        return str(self._folder())

    def _folder(self) -> Path:
        return dataset_folder(self.root, "hatexplain", "HateXplain")

    def _layout(self) -> str:
        return find_layout(self._folder(), LAYOUTS, self.layout)

    def _tables(self) -> Sequence[Table]:
        folder, layout = self._folder(), self._layout()
        if layout != "csv":
            return [Posts(f"{folder}, {split}", split, folder) for split in SPLITS]
        names = {split: dict.fromkeys((DIVISION_NAMES[split], split)) for split in SPLITS}
        paths = {split: table_file(folder, *names[split], suffixes=LAYOUT_SUFFIXES) for split in SPLITS}
        return [FileTable(str(path), split, path) for split, path in paths.items()]


def most_frequent(posts: Iterable[Named]) -> list[str]:
    """Return the ten communities that more than one annotator names in most posts, without ``None`` and ``Other``.

    Of two that are named equally often, the one that comes first in the data. (The owners' notebook also counts, for a
    post without such a community, the last one named; Women's place, the fifth, is the same either way.)
    """
    counts = Counter(name for post in posts for name in _agreed(post) if name not in NO_COMMUNITY)
    frequent = [name for name, _ in counts.most_common(MOST_FREQUENT)]
    if COMMUNITY not in frequent:
        logger.warning(
            "HateXplain: %r is not among the %d communities that are named most often here, so no post counts as "
            "targeting women. Is the set whole?",
            COMMUNITY,
            MOST_FREQUENT,
        )
    return frequent


def _agreed(post: Named) -> list[str]:
    """Return the communities that are named more than once."""
    return [name for name, count in Counter(chain.from_iterable(names or () for names in post)).items() if count > 1]


def _is_targeted(post: Named, frequent: Sequence[str]) -> int:
    return int(COMMUNITY in frequent and COMMUNITY in _agreed(post))


def _code(labels: Sequence[Any], where: str, row: int) -> int:
    """Return 0 if most labels are ``normal``, else 1."""
    if not labels or any(label not in LABELS for label in labels):
        raise DataError(
            f"{where}: the labels of post {row} (from 0) are not all of {', '.join(LABELS)}; fetch the data again."
        )
    return int(2 * labels.count("normal") <= len(labels))


def _load(path: Path, closed: Iterable[str]) -> dict[str, Any]:
    """Read a JSON file; what the ``closed`` fields hold is dropped as soon as it is parsed, their names stay."""
    dropped = frozenset(closed)
    if not path.is_file():
        raise DataError(f"There is no file {path}; {POSTS} and {DIVISIONS} belong together. Fetch both.")
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(
                file,
                object_pairs_hook=lambda pairs: {key: None if key in dropped else value for key, value in pairs},
            )
    except ValueError as error:
        # Without the error's own text: it may hold a piece of a post.
        raise DataError(f"{path} is not JSON in UTF-8 ({type(error).__name__}); fetch it again.") from None
    if not isinstance(content, dict):
        raise DataError(f"{path} holds no JSON object; fetch it again.")
    return content
