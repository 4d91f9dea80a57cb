"""HateXplain (Mathew, Saha, Yimam, Biemann, Goyal, Mukherjee, AAAI 2021): hateful or offensive posts, or normal ones.

::

    hatexplain/dataset.json, post_id_divisions.json       the owners' files ("owners")
    hatexplain/train-00000-of-00001.parquet ...           the form of the Hugging Face hub ("hub"), also in data/
    hatexplain/train.csv.gz, val.csv.gz, test.csv.gz      text, y, a_women ("csv"); also .csv

In the first two, three annotators label a post and name the communities that it targets, all in one record. The reader
for training drops the named communities while it parses (owners) or leaves their column closed (hub): labels never
depend on them.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow.parquet as pq
import torch
from torch import Tensor

from levelhead.data.base import (
    SPLITS,
    Card,
    DataSet,
    Examples,
    Groups,
    Split,
    dataset_folder,
    refuse_one_class,
    warn_of_absent,
)
from levelhead.data.parquet import check_columns, split_files
from levelhead.data.text_files import find_layout, read_columns, table_file, table_header
from levelhead.data.texts import Texts
from levelhead.types import DataError, require_columns

POSTS, DIVISIONS = "dataset.json", "post_id_divisions.json"
LAYOUTS: dict[str, tuple[str, ...]] = {
    "owners": (POSTS, DIVISIONS),
    "hub": ("train.parquet", "train-*.parquet", "data/train-*.parquet"),
    "csv": ("train.csv", "train.csv.gz"),
}
DIVISION_NAMES: dict[Split, str] = {"train": "train", "validation": "val", "test": "test"}
LABELS = ("hatespeech", "normal", "offensive")  # by the hub's codes
CLASS_NAMES = ("normal", "hateful or offensive")
GROUP_NAMES = ("women not targeted", "women targeted")
COMMUNITY = "Women"
NO_COMMUNITY = ("None", "Other")
MOST_FREQUENT = 10

Named = list[list[str]]
"""The communities that each annotator of a post names."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HateXplain(DataSet):
    """Tell hateful or offensive posts from normal ones; the group is whether women are targeted, as annotated.

    A post is ``normal`` if most of its annotators say so, and ``hateful or offensive`` otherwise, also where all three
    say different things (the owners' splits hold no such post). Women are targeted if the annotators name them more
    than once, and if they are one of the ten communities that are named so in most posts of the whole set; ``None``
    and ``Other`` do not count among the ten. ``layout`` is found by what the folder holds; name it where there are
    several.
    """

    layout: Literal["owners", "hub", "csv"] | None = None

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

    def check(self) -> None:
        """Raise an error if a file or a column that training needs is absent."""
        folder, layout = self._folder(), self._layout()
        if layout == "owners":
            for split in SPLITS:
                self._division(split)
            there = {
                key
                for post in self._posts((), ["target", "annotator_id"])
                for note in post["annotators"]
                for key in note
            }
            warn_of_absent(("target",), str(folder / POSTS), sorted(there))
        elif layout == "hub":
            files = [file for split in SPLITS for file in self._parquet(split)]
            check_columns(files, ["post_tokens", "annotators"])
            for file in files:
                require_columns(_fields(file), ["label"], f"{file}: annotators")
            warn_of_absent(("target",), f"{folder}: annotators", *map(_fields, files))
        else:
            tables = {file: table_header(file) for file in map(self._table, SPLITS)}
            for file, columns in tables.items():
                require_columns(columns, ["text", "y"], str(file))
            warn_of_absent(("a_women",), str(folder), *tables.values())

    def examples(self, split: Split) -> Examples:
        """Return the posts of ``split`` and their labels; named communities stay closed."""
        layout, where = self._layout(), f"{self._folder()}, {split}"
        if layout == "csv":
            path = self._table(split)
            columns = read_columns(path, ["text", "y"])
            posts, codes = columns["text"], _codes(columns["y"], "y", path)
        elif layout == "hub":
            tokens = self._read(split, lambda file: _leaf(file, "post_tokens"))
            posts = _joined(tokens, where)
            codes = [_code(labels, where, row) for row, labels in enumerate(self._annotated(split, "label"))]
        else:
            records = self._posts(self._division(split), closed=("target", "rationales", "annotator_id"))
            posts = _joined([post.get("post_tokens") for post in records], where)
            codes = [_code(_said(post, "label", where, row), where, row) for row, post in enumerate(records)]
        labels = torch.tensor(codes, dtype=torch.int64)
        refuse_one_class(labels, CLASS_NAMES, "label", where)
        texts = Texts(posts, where=where)
        return texts.with_labels(labels, CLASS_NAMES)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return whether women are targeted by each post of ``split``; opens neither posts nor labels."""
        layout, where = self._layout(), f"{self._folder()}, {split}"
        if layout == "csv":
            values = self._column_of_women(self._table(split))
        elif layout == "hub":
            files = [file for name in SPLITS for file in self._parquet(name)]
            for file in files:
                require_columns(_fields(file), ["target"], f"{file}: annotators")
            named = {name: self._annotated(name, "target") for name in SPLITS}
            frequent = most_frequent(chain.from_iterable(named.values()))
            values = torch.tensor([_is_targeted(post, frequent) for post in named[split]], dtype=torch.int64)
        else:
            closed = ("label", "rationales", "annotator_id", "post_tokens")
            whole = [_said(post, "target", where, row) for row, post in enumerate(self._posts((), closed))]
            frequent = most_frequent(whole)
            chosen = self._posts(self._division(split), closed)
            targeted = [_is_targeted(_said(post, "target", where, row), frequent) for row, post in enumerate(chosen)]
            values = torch.tensor(targeted, dtype=torch.int64)
        return (Groups("women_targeted", values, GROUP_NAMES),)

    def _folder(self) -> Path:
        return dataset_folder(self.root, "hatexplain", "HateXplain")

    def _layout(self) -> str:
        return find_layout(self._folder(), LAYOUTS, self.layout)

    def _table(self, split: Split) -> Path:
        names = dict.fromkeys((DIVISION_NAMES[split], split))
        return table_file(self._folder(), *names, suffixes=(".csv", ".csv.gz"))

    def _column_of_women(self, path: Path) -> Tensor:
        cells = read_columns(path, ["a_women"])["a_women"]
        empty = sum(not cell.strip() for cell in cells)
        if empty:
            raise DataError(
                f"{path}: 'a_women' is empty in {empty} of {len(cells)} rows: this copy has no targets for these "
                "posts. Evaluate another split, or fetch the owners' files."
            )
        return torch.tensor(_codes(cells, "a_women", path), dtype=torch.int64)

    def _division(self, split: Split) -> list[str]:
        """Return the ids of the owners' split; an id in two splits is an error."""
        path = self._folder() / DIVISIONS
        divisions = _load(path, ())
        require_columns(sorted(divisions), list(DIVISION_NAMES.values()), str(path))
        twice = [name for name, count in Counter(chain.from_iterable(divisions.values())).items() if count > 1]
        if twice:
            raise DataError(f"{path} lists {len(twice)} posts more than once; fetch it again.")
        ids: list[str] = divisions[DIVISION_NAMES[split]]
        if not ids:
            raise DataError(f"{path} has no post in the {split} split; fetch it again.")
        return ids

    def _posts(self, ids: Sequence[str], closed: Iterable[str] = ()) -> list[dict[str, Any]]:
        """Return records of the owners' file without the ``closed`` fields: those of ``ids``, or all of them."""
        path = self._folder() / POSTS
        posts = _load(path, closed)
        absent = [name for name in ids if name not in posts]
        if absent:
            raise DataError(f"{path} lacks {len(absent)} of {len(ids)} posts of {DIVISIONS}; fetch both again.")
        chosen = [posts[name] for name in ids] if ids else list(posts.values())
        wrong = [row for row, post in enumerate(chosen) if not isinstance(post, dict) or not post.get("annotators")]
        if wrong:
            raise DataError(f"{path}: {len(wrong)} posts have no annotators, first number {wrong[0]}.")
        return chosen

    def _parquet(self, split: Split) -> list[Path]:
        folder = self._folder()
        return split_files(folder / "data" if any(folder.glob("data/train-*.parquet")) else folder, split)

    def _read(self, split: Split, leaf: Callable[[Path], list[Any]]) -> list[Any]:
        files = self._parquet(split)
        check_columns(files, ["post_tokens", "annotators"])
        return [value for file in files for value in leaf(file)]

    def _annotated(self, split: Split, field: str) -> list[list[Any]]:
        """Return what each annotator of each post of the hub's split says in one field; opens no other."""

        def leaf(file: Path) -> list[list[Any]]:
            require_columns(_fields(file), [field], f"{file}: annotators")
            # One library version writes a struct of lists, another a list of structs.
            return [
                post[field] if isinstance(post, dict) else [note[field] for note in post or ()]
                for post in _leaf(file, "annotators", field)
            ]

        return self._read(split, leaf)


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
    """Return 0 if most labels are ``normal``, else 1; a label is a name, or the hub's code of one."""
    names = [LABELS[label] if isinstance(label, int) and 0 <= label < len(LABELS) else label for label in labels]
    if not names or any(name not in LABELS for name in names):
        raise DataError(
            f"{where}: the labels of post {row} (from 0) are not all of {', '.join(LABELS)} (or 0 to 2); fetch the "
            "data again."
        )
    return int(2 * names.count("normal") <= len(names))


def _codes(cells: Sequence[str], column: str, path: Path) -> list[int]:
    wrong = [row for row, cell in enumerate(cells) if cell not in ("0", "1")]
    if wrong:
        raise DataError(
            f"{path}: {column!r} is neither 0 nor 1 in {len(wrong)} of {len(cells)} rows, first row "
            f"{wrong[0] + 1} (row 1 is the first below the header)."
        )
    return [int(cell) for cell in cells]


def _said(post: dict[str, Any], field: str, where: str, row: int) -> list[Any]:
    """Return what each annotator says in one field."""
    if any(field not in note for note in post["annotators"]):
        raise DataError(f"{where}: post {row} (from 0) has an annotator without {field!r}; fetch {POSTS} again.")
    return [note[field] for note in post["annotators"]]


def _joined(tokens: Sequence[Any], where: str) -> list[str]:
    wrong = [row for row, words in enumerate(tokens) if not words]
    if wrong:
        raise DataError(f"{where}: {len(wrong)} posts have no post_tokens, first post {wrong[0]} (from 0).")
    return [" ".join(words) for words in tokens]


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


def _paths(file: Path, *fields: str) -> list[str]:
    """Return the leaves of a parquet file whose path begins with the first field and holds the others."""
    schema = pq.ParquetFile(file).schema
    paths = [schema.column(position).path for position in range(len(schema))]
    return [path for path in paths if path.split(".")[0] == fields[0] and set(fields) <= set(path.split("."))]


def _fields(file: Path) -> list[str]:
    """Return the fields of an annotator's record."""
    return [field for field in ("label", "annotator_id", "target") if _paths(file, "annotators", field)]


def _leaf(file: Path, *fields: str) -> list[Any]:
    """Return one column of a parquet file, or one field below it, and open nothing else."""
    column: list[Any] = pq.ParquetFile(file).read(columns=_paths(file, *fields)).column(0).to_pylist()
    return column
