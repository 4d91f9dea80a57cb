"""Any texts in a table: one row a text (or a pair), columns for target, groups and split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import SPLITS, Card, Split
from levelhead.data.own_table import OwnFiles
from levelhead.data.splits import SPLIT_WORDS
from levelhead.data.table_set import FileTable, Rows
from levelhead.data.text_files import ANY_SUFFIXES, table_files
from levelhead.data.texts import Texts, texts_of
from levelhead.types import ConfigError


@dataclass(frozen=True)
class TextCsv(OwnFiles):
    """Tell the ``target`` column of a table from its ``text_column``, and its ``pair_column`` if there are two texts.

    ``folder`` lies below the data root, or is a path of its own. ``file`` is one table in it, or a path of its own;
    None: one table a split, named train, validation (or val, valid, dev, eval) and test, also in parts
    (``train-00000-of-00002.parquet``, or all tables in a folder ``train``). A table is ``.csv``, ``.tsv``
    or ``.jsonl``, also ``.gz``, or ``.parquet``. Semicolons or tabs instead of a csv's commas are seen and
    said, and so are UTF-16 and Latin-1 instead of UTF-8. Classes and groups are the distinct
    values of their columns in all rows as text, to the letter, sorted: as numbers where all of them are, else as texts.
    ``sensitive`` names one column or several; empty, or without a column ``group``, no groups are known.
    ``id_column`` is written beside predictions (None: the number of the row in its file), so that groups can be joined
    later. ``split_column`` holds train, validation (or val, valid, dev, eval) and test, or what ``splits`` says that
    they are called there, as ``{"train": [0], "validation": [1], "test": [2]}``; None with one file: rows are dealt by
    a hash of their text and ``split_seed``, so that rows with the same text go to the same split. So are, of a column
    that names no validation or no test rows, its training rows.
    ``person_column`` says whom each row is of, such as its author. Rows are then dealt by person and not by text, and
    intervals take a person's rows together; an empty cell is somebody of its own.

    ``label_map`` says which class a value of the target represents, as ``{"yes ": "yes"}``. ``threshold`` makes two
    classes of a target of numbers: at least so much, or less.
    """

    file: str | None = None
    text_column: str = "text"
    pair_column: str | None = None
    id_column: str | None = None

    card: ClassVar[Card] = Card(
        title="Texts in a csv",
        task="the target column",
        groups="the sensitive columns",
        licence="that of your data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_column is not None and self.file is None:
            raise ConfigError("data.split_column needs data.file: without it, there is one file a split.")

    def _load(self, rows: Rows, split: Split) -> Texts:
        return rows.texts(self._inputs, f"{rows.place(rows.numbers[0])[0].name}, {split}")

    def new_rows(self, table: Path) -> Texts:
        """Return the texts of a table of new rows; the columns of texts alone are opened."""
        return texts_of(table, self._inputs)

    def _tables(self) -> list[FileTable]:
        if self.file is not None:
            return self._table("file")
        folder, tables = self._folder(), []
        for split in SPLITS:
            names = [word for word, named in SPLIT_WORDS.items() if named == split]
            for path in table_files(folder, *names, suffixes=ANY_SUFFIXES):
                tables.append(FileTable(str(path), split, path))
        return tables
