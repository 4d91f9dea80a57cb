"""MultiNLI (Williams, Nangia, Bowman, NAACL 2018): does a premise contradict, entail, or leave open a hypothesis?

::

    multinli/multinli_1.0_train.jsonl, multinli_1.0_dev_matched.jsonl, ..._dev_mismatched.jsonl     ("owners")
    multinli/train-00000-of-00001.parquet, validation_matched-..., validation_mismatched-...        ("hub"; or in data/)
    multinli/train.csv.gz, val.csv.gz with the columns premise, hypothesis, label                   ("csv"; or .csv)

The owners' files may also lie in ``multinli_1.0``, as their archive unpacks them.
"""

from __future__ import annotations

import logging
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch

from levelhead.data.base import Card, Groups, Inputs, Split, dataset_folder
from levelhead.data.table_set import KnownSet, Roles, Rows, Table
from levelhead.data.text_files import find_layout, read_columns, table_files, table_header

LAYOUTS: dict[str, tuple[str, ...]] = {
    "owners": ("multinli_1.0_train.jsonl",),
    "hub": ("train.parquet", "train-*.parquet", "data/train-*.parquet"),
    "csv": ("train.csv", "train.csv.gz"),
}
SUFFIXES = {"owners": (".jsonl",), "hub": (".parquet",), "csv": (".csv", ".csv.gz")}
CLASS_NAMES = ("contradiction", "entailment", "neutral")
HUB_NAMES = ("entailment", "neutral", "contradiction")  # by the hub's codes
WITHOUT_LABEL = ("-", "-1")  # what the owners, and the hub, write where the annotators did not agree
NEGATIONS = frozenset(("nobody", "no", "never", "nothing"))
VALIDATION_SHARE = 0.1
COLUMNS = ("premise", "hypothesis", "label")
FIELDS = ("sentence1", "sentence2", "gold_label")  # what the owners call them

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairTable(Table):
    """The labelled pairs of some files; those without a label, or with a blank text, are left out."""

    paths: tuple[Path, ...] = ()
    columns: tuple[str, ...] = COLUMNS

    def header(self) -> list[str]:
        """Return the columns that all files have."""
        headers = [table_header(path) for path in self.paths]
        return [name for name in headers[0] if all(name in header for header in headers)]

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return columns as texts, and the number of labelled pairs."""
        first, second, label = self.columns
        tables = [read_columns(path, [*dict.fromkeys((*self.columns, *columns))]) for path in self.paths]
        cells = {name: [cell for table in tables for cell in table[name]] for name in tables[0]}
        labelled = [row for row, cell in enumerate(cells[label]) if cell not in WITHOUT_LABEL]
        whole = [row for row in labelled if cells[first][row].strip() and cells[second][row].strip()]
        if len(whole) < len(labelled):
            logger.warning("%s: left out %d pairs with a blank text.", self.name, len(labelled) - len(whole))
        return {name: [cells[name][row] for row in whole] for name in columns}, len(whole)


@dataclass(frozen=True)
class MultiNLI(KnownSet):
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

    @property
    def _sensitive(self) -> tuple[str, ...]:
        return ("negation",)

    @property
    def _columns(self) -> tuple[str, str, str]:
        return FIELDS if self._layout() == "owners" else COLUMNS

    @property
    def _roles(self) -> Roles:
        first, second, label = self._columns
        return Roles(label, inputs=(first, second), deals_by=(first,), shares=(VALIDATION_SHARE, 0.0))

    def _column_of(self, attribute: str) -> str:
        return self._columns[1]

    def _codes(self, attribute: str) -> tuple[tuple[str, ...], Mapping[str, int]]:
        codes = {name: code for code, name in enumerate(CLASS_NAMES)}
        return CLASS_NAMES, codes | {str(code): codes[name] for code, name in enumerate(HUB_NAMES)}

    def _group(self, attribute: str, rows: Rows) -> Groups:
        values = [int(holds_negation(text)) for text in rows.chosen(self._column_of(attribute))]
        return Groups(attribute, torch.tensor(values, dtype=torch.int64), ("no negation", "negation"))

    def _load(self, rows: Rows, split: Split) -> Inputs:
        return rows.texts(self._columns[:2], f"{self._folder()}, {split}")

    def _folder(self) -> Path:
        return dataset_folder(self.root, "multinli", "multinli_1.0")

    def _layout(self) -> str:
        return find_layout(self._folder(), LAYOUTS, self.layout)

    def _tables(self) -> list[PairTable]:
        layout, folder = self._layout(), self._folder()
        folder = folder / "data" if layout == "hub" and any(folder.glob("data/train-*.parquet")) else folder
        before = "multinli_1.0_" if layout == "owners" else ""
        dev = {"owners": "multinli_1.0_dev_", "hub": "validation_"}.get(layout, "")
        kinds = ("matched", "mismatched") if self.dev == "both" else (self.dev,)
        tests = [[dev + kind] for kind in kinds] if dev else [["val", "dev", "validation"]]

        def files(*names: str) -> list[Path]:
            return table_files(folder, *names, suffixes=SUFFIXES[layout])

        test = tuple(path for names in tests for path in files(*names))
        train = tuple(files(f"{before}train"))
        return [PairTable(str(folder), None, train, self._columns), PairTable(str(folder), "test", test, self._columns)]


def holds_negation(hypothesis: str) -> bool:
    """Tell whether a hypothesis holds nobody, no, never or nothing as a word, whatever its case."""
    # Punctuation goes and leaves no gap, as in the reference: of "no-one", "noone" remains, which is none of them.
    plain = hypothesis.lower().translate(str.maketrans("", "", string.punctuation))
    return not NEGATIONS.isdisjoint(plain.split())
