"""Any texts in a table: one row a text (or a pair), columns for target, groups and split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import SPLITS, Card, Examples, Split
from levelhead.data.own_table import OwnTable
from levelhead.data.splits import SPLIT_WORDS
from levelhead.data.text_files import ANY_SUFFIXES, table_files
from levelhead.data.texts import Texts, text_fingerprint, texts_of
from levelhead.types import ConfigError, DataError


@dataclass(frozen=True)
class TextCsv(OwnTable):
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
        citation="none",
        url="",
        caution="Say who wrote and who labelled the texts, and how, with every figure.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_column is not None and self.file is None:
            raise ConfigError("data.split_column needs data.file: without it, there is one file a split.")

    @property
    def _roles(self) -> dict[str, str | None]:
        return {
            "text_column": self.text_column,
            "pair_column": self.pair_column,
            "id_column": self.id_column,
            "person_column": self.person_column if self.person_column != self.id_column else None,
        }

    @property
    def _inputs(self) -> tuple[str, ...]:
        return (self.text_column,) if self.pair_column is None else (self.text_column, self.pair_column)

    @property
    def _deals_by(self) -> tuple[str, ...]:
        return self._inputs

    @property
    def _identifier(self) -> str | None:
        return self.id_column

    @property
    def _dealt(self) -> bool:
        return self.file is not None and self.split_column is None

    def examples(self, split: Split) -> Examples:
        """Return texts and labels of ``split``; opens no sensitive column."""
        found = self.labelled(split)
        columns = [[column[row] for row in found.numbers] for column in found.rows.inputs]
        for name, column in zip(self._inputs, columns, strict=True):
            found.rows.refuse_empty(column, name, found.numbers)
        texts = Texts(columns[0], columns[1] if len(columns) > 1 else None, where=found.where)
        return Examples(texts, found.labels, found.names, text_fingerprint(texts, found.labels))

    def new_rows(self, table: Path) -> Texts:
        """Return the texts of a table of new rows; the columns of texts alone are opened."""
        return texts_of(table, self._inputs)

    @property
    def numbered_by_split(self) -> bool:
        """Whether :meth:`ids` are row numbers of several tables."""
        return self.id_column is None and self.file is None

    def ids(self, split: Split) -> Sequence[str]:
        """Return the ``id_column`` of ``split``, else the number of each row in its table, 1 below the header.

        Of a table in parts, rows are counted over all of them, so that no two of a split have one number.
        """
        rows = self._read(self.id_column or self.target, split)
        chosen = self._numbers(rows, split)
        if self.id_column is None:
            return [str(row - (chosen[0] if self.file is None else 0) + 1) for row in chosen]
        values = [rows.values[row] for row in chosen]
        rows.refuse_empty(values, self.id_column, chosen)
        return values

    def _files(self) -> list[tuple[Path, Split | None]]:
        if self.file is None:
            names = {split: [word for word, named in SPLIT_WORDS.items() if named == split] for split in SPLITS}
            folder = self._folder()
            return [
                (path, split) for split in SPLITS for path in table_files(folder, *names[split], suffixes=ANY_SUFFIXES)
            ]
        path = Path(self.file) if Path(self.file).is_absolute() else self._folder() / self.file
        if not path.is_file():
            raise DataError(f"There is no file {path}. Set data.file to a table in {path.parent}, or to a whole path.")
        return [(path, None)]
