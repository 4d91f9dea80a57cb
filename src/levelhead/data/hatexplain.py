"""HateXplain (Mathew, Saha, Yimam, Biemann, Goyal, Mukherjee, AAAI 2021): hateful or offensive posts, or normal ones.

::

    hatexplain/dataset.json, post_id_divisions.json       the owners' files ("owners")
    hatexplain/train.csv.gz, val.csv.gz, test.csv.gz      text, y, a_women ("csv"); also .csv

In the owners' files, three annotators label a post and name the communities that it targets, all in one record. The
reader for training drops the named communities while it parses: labels never depend on them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from levelhead.data.base import SPLITS, Card, Groups, Inputs, Split, dataset_folder
from levelhead.data.table_set import FileTable, KnownSet, Roles, Rows, Table
from levelhead.data.text_files import find_layout, table_files
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

WORDS, LABEL, TARGET = "post_tokens", "label", "target"
FIELDS = {WORDS, LABEL, TARGET}
UNUSED = ("rationales", "annotator_id")
LAYOUT_SUFFIXES = (".csv", ".csv.gz")


@dataclass(frozen=True)
class Posts(Table):
    """The posts of one split as annotators left them, in one file of all posts and one of the ids of each split."""

    folder: Path = Path()

    def header(self) -> list[str]:
        """Return the fields of posts and of their annotators' notes; what they hold is dropped."""
        posts = self._posts(FIELDS)
        return list(dict.fromkeys(key for post in posts for part in (post, *post["annotators"]) for key in part))

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return words with blanks between them, and "0" or "1" of labels and of targets."""
        found = {name: self._cells(name) for name in columns}
        return found, len(next(iter(found.values())))

    def _cells(self, field: str) -> list[str]:
        posts = self._posts(FIELDS - {field})
        if field == WORDS:
            return [" ".join(post.get(WORDS) or ()) for post in posts]
        if any(field not in note for post in posts for note in post["annotators"]):
            raise DataError(f"{self.name}: a post has an annotator without {field!r}; fetch {POSTS} again.")
        said = ([note[field] for note in post["annotators"]] for post in posts)
        return list(map(_label if field == LABEL else _target, said))

    def _posts(self, closed: Iterable[str]) -> list[dict[str, Any]]:
        """Return the owners' records of the split, in its order, without the ``closed`` fields."""
        divisions, posts = _load(self.folder / DIVISIONS, ()), _load(self.folder / POSTS, [*UNUSED, *closed])
        require_columns(sorted(divisions), list(DIVISION_NAMES.values()), str(self.folder / DIVISIONS))
        assert self.split is not None
        ids = divisions[DIVISION_NAMES[self.split]]
        lacking = [name for name in ids if not (posts.get(name) or {}).get("annotators")]
        if lacking:
            raise DataError(
                f"{self.folder / POSTS} lacks {len(lacking)} of {len(ids)} posts of {DIVISIONS}, or their annotators; "
                "fetch both again."
            )
        return [posts[name] for name in ids]


@dataclass(frozen=True)
class HateXplain(KnownSet):
    """Tell hateful or offensive posts from normal ones; the group is whether women are targeted, as annotated.

    A post is ``normal`` if most of its annotators say so, and ``hateful or offensive`` otherwise, also where all three
    say different things (the owners' splits hold no such post). Women are targeted if the annotators name them more
    than once. ``layout`` is found by what the folder holds; name it where there are several.
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

    def _folder(self) -> Path:
        return dataset_folder(self.root, "hatexplain", "HateXplain")

    def _layout(self) -> str:
        return find_layout(self._folder(), LAYOUTS, self.layout)

    def _tables(self) -> Sequence[Table]:
        folder, layout = self._folder(), self._layout()
        if layout != "csv":
            return [Posts(f"{folder}, {split}", split, folder) for split in SPLITS]
        names = {split: dict.fromkeys((DIVISION_NAMES[split], split)) for split in SPLITS}
        return [
            FileTable(str(path), split, path)
            for split in SPLITS
            for path in table_files(folder, *names[split], suffixes=LAYOUT_SUFFIXES)
        ]


def _target(named: Sequence[list[str] | None]) -> str:
    """Return "1" if a post's annotators name women more than once, else "0"."""
    return str(int(sum((names or []).count(COMMUNITY) for names in named) > 1))


def _label(labels: Sequence[str]) -> str:
    """Return "0" if most of a post's labels are ``normal``, else "1"; others than the owners' as they are."""
    if strange := [label for label in labels if label not in LABELS]:
        return ", ".join(map(str, strange))
    return str(int(2 * labels.count("normal") <= len(labels)))


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
