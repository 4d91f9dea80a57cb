"""MultiNLI (Williams, Nangia, Bowman, NAACL 2018): does a premise contradict, entail, or leave open a hypothesis?

::

    multinli/multinli_1.0_train.jsonl, multinli_1.0_dev_matched.jsonl, ..._dev_mismatched.jsonl     ("owners")
    multinli/train-00000-of-00001.parquet, validation_matched-..., validation_mismatched-...        ("hub"; or in data/)
    multinli/train.csv.gz, val.csv.gz with the columns premise, hypothesis, label                   ("csv"; or .csv)

The owners' files may also lie in ``multinli_1.0``, as their archive unpacks them.
"""

from __future__ import annotations

import json
import logging
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import pyarrow.parquet as pq
import torch

from levelhead.data.base import Card, DataSet, Examples, Groups, Split, dataset_folder, refuse_one_class
from levelhead.data.parquet import check_columns, split_files
from levelhead.data.splits import position_of, split_of
from levelhead.data.text_files import find_layout, read_columns, table_file, table_header
from levelhead.data.texts import Texts
from levelhead.types import DataError, require_columns

LAYOUTS: dict[str, tuple[str, ...]] = {
    "owners": ("multinli_1.0_train.jsonl",),
    "hub": ("train.parquet", "train-*.parquet", "data/train-*.parquet"),
    "csv": ("train.csv", "train.csv.gz"),
}
CLASS_NAMES = ("contradiction", "entailment", "neutral")
HUB_NAMES = ("entailment", "neutral", "contradiction")  # by the hub's codes
WITHOUT_LABEL = ("-", -1)  # what the owners, and the hub, write where the annotators did not agree
NEGATIONS = frozenset(("nobody", "no", "never", "nothing"))
VALIDATION_SHARE = 0.1
COLUMNS = ["premise", "hypothesis", "label"]
FIELDS = ["sentence1", "sentence2", "gold_label"]

logger = logging.getLogger(__name__)


class Pairs(NamedTuple):
    """Premises and hypotheses with the codes of their labels."""

    premises: list[str]
    hypotheses: list[str]
    labels: list[int]


@dataclass(frozen=True)
class MultiNLI(DataSet):
    """Classify pairs as contradiction, entailment or neutral; the group is whether the hypothesis holds a negation.

    The owners' test labels are not public, so ``test`` is the development file: the ``matched`` one, the
    ``mismatched`` one (genres that training lacks), or ``both``; the csv layout has only one, and ignores ``dev``.
    ``validation`` is a tenth of the training file, fixed by a hash of the premise alone: premises come several times
    with different labels, and those of one premise stay together. Pairs without a label, or with a blank text, are left
    out. ``layout`` is found by what the folder holds; name it where it holds several.

    Negation: the lower-cased hypothesis without ASCII punctuation holds nobody, no, never or nothing, as in Sagawa,
    Koh, Hashimoto, Liang (ICLR 2020). It is computed here, from the hypothesis, in every layout. A network reads the
    hypothesis, so it can find the word alone, as it can find hair and glasses in a picture: that is the shortcut
    under study. Training is blind all the same: nothing tells it which words make a group, and only :meth:`groups`,
    which it never calls, looks for them.
    """

    layout: Literal["owners", "hub", "csv"] | None = None
    dev: Literal["matched", "mismatched", "both"] = "matched"

    card: ClassVar[Card] = Card(
        title="MultiNLI",
        task="contradiction, entailment or neutral",
        groups="the hypothesis holds a negation word / not",
        licence="mostly the OANC's (free to use); parts CC BY 3.0 and CC BY-SA 3.0, see the paper",
        citation="Williams, Nangia, Bowman: A Broad-Coverage Challenge Corpus for Sentence Understanding through "
        "Inference, NAACL 2018",
        url="https://cims.nyu.edu/~sbowman/multinli/",
        caution="A negation is a property of a sentence, not of a person. Few neutral and entailment pairs hold one: "
        "report intervals.",
    )

    def check(self) -> None:
        """Raise an error if a file or a column is absent; there is no sensitive column that could be."""
        layout = self._layout()
        for split in ("train", "test"):
            if layout == "csv":
                path = self._table(split)
                require_columns(table_header(path), COLUMNS, str(path))
            elif layout == "hub":
                check_columns(self._parquet(split), COLUMNS)
            else:
                for path in self._jsonl(split):
                    with path.open("rb") as lines:
                        _record(lines.readline(), path, 1)

    def examples(self, split: Split) -> Examples:
        """Return premises, hypotheses and labels of ``split``; opens no other column."""
        pairs, where = self._pairs(split), f"{self._folder()}, {split}"
        labels = torch.tensor(pairs.labels, dtype=torch.int64)
        refuse_one_class(labels, CLASS_NAMES, "label", where)
        texts = Texts(pairs.premises, pairs.hypotheses, where=where)
        return texts.with_labels(labels, CLASS_NAMES)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return whether each hypothesis of ``split`` holds a negation."""
        values = [int(holds_negation(text)) for text in self._pairs(split).hypotheses]
        return (Groups("negation", torch.tensor(values, dtype=torch.int64), ("no negation", "negation")),)

    def _folder(self) -> Path:
        return dataset_folder(self.root, "multinli", "multinli_1.0")

    def _layout(self) -> str:
        return find_layout(self._folder(), LAYOUTS, self.layout)

    def _source(self, split: str, train: str, dev: str) -> list[str]:
        """Return the names of the files that ``split`` is taken from."""
        if split != "test":
            return [train]
        return [dev + kind for kind in (("matched", "mismatched") if self.dev == "both" else (self.dev,))]

    def _table(self, split: str) -> Path:
        stems = ("val", "dev", "validation") if split == "test" else ("train",)
        return table_file(self._folder(), *stems, suffixes=(".csv", ".csv.gz"))

    def _parquet(self, split: str) -> list[Path]:
        folder = self._folder()
        folder = folder / "data" if any(folder.glob("data/train-*.parquet")) else folder
        names: list[Any] = self._source(split, "train", "validation_")  # the set's own names of its splits
        return [file for name in names for file in split_files(folder, name)]

    def _jsonl(self, split: str) -> list[Path]:
        paths = [self._folder() / f"multinli_1.0_{name}.jsonl" for name in self._source(split, "train", "dev_")]
        for path in paths:
            if not path.is_file():
                raise DataError(f"There is no file {path}. Unpack the owners' archive there, or change data.dev.")
        return paths

    def _pairs(self, split: Split) -> Pairs:
        """Return the labelled pairs of ``split``, in the order of the files."""
        readers: dict[str, Callable[[Split], list[tuple[Any, Any, Any]]]] = {
            "owners": self._read_jsonl,
            "hub": self._read_parquet,
            "csv": self._read_table,
        }
        rows = readers[self._layout()](split)
        code: dict[Any, int] = {name: position for position, name in enumerate(CLASS_NAMES)}
        code |= {position: code[name] for position, name in enumerate(HUB_NAMES)}
        wrong = [row for row, (_, _, label) in enumerate(rows) if label not in code and label not in WITHOUT_LABEL]
        if wrong:
            raise DataError(
                f"{self._folder()}, {split}: the label is none of {', '.join(CLASS_NAMES)} in {len(wrong)} of "
                f"{len(rows)} rows, first row {wrong[0]} (from 0)."
            )
        rows = [row for row in rows if row[2] in code]
        whole = [row for row in rows if (row[0] or "").strip() and (row[1] or "").strip()]
        if len(whole) < len(rows):
            logger.warning("%s: left out %d pairs with a blank text.", self._folder(), len(rows) - len(whole))
        if split != "test":
            whole = [row for row in whole if split_of(position_of(row[0], 0), VALIDATION_SHARE, 0.0) == split]
        if not whole:
            raise DataError(f"{self._folder()}: the {split} split has no labelled pair.")
        return Pairs([row[0] for row in whole], [row[1] for row in whole], [code[row[2]] for row in whole])

    def _read_table(self, split: Split) -> list[tuple[Any, Any, Any]]:
        columns = read_columns(self._table(split), COLUMNS)
        return list(zip(*(columns[name] for name in COLUMNS), strict=True))

    def _read_parquet(self, split: Split) -> list[tuple[Any, Any, Any]]:
        files = self._parquet(split)
        check_columns(files, COLUMNS)
        tables = [pq.read_table(file, columns=COLUMNS) for file in files]
        return [
            row for table in tables for row in zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
        ]

    def _read_jsonl(self, split: Split) -> list[tuple[Any, Any, Any]]:
        rows = []
        for path in self._jsonl(split):
            with path.open("rb") as lines:
                rows += [_record(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]
        return rows


def holds_negation(hypothesis: str) -> bool:
    """Tell whether a hypothesis holds nobody, no, never or nothing as a word, whatever its case."""
    # Punctuation goes and leaves no gap, as in the reference: of "no-one", "noone" remains, which is none of them.
    plain = hypothesis.lower().translate(str.maketrans("", "", string.punctuation))
    return not NEGATIONS.isdisjoint(plain.split())


def _record(line: bytes, path: Path, number: int) -> tuple[Any, Any, Any]:
    """Return premise, hypothesis and label of one line of the owners' file."""
    try:
        record = json.loads(line)
    except ValueError:
        raise DataError(f"{path}: line {number} is not JSON in UTF-8; fetch it again.") from None
    if not isinstance(record, dict):
        raise DataError(f"{path}: line {number} holds no JSON object; fetch it again.")
    require_columns(list(record), FIELDS, f"{path}, line {number}")
    return record["sentence1"], record["sentence2"], record["gold_label"]
