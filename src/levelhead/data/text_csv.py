"""Any texts in a table: one row a text (or a pair), columns for target, groups and split."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import (
    GROUP,
    SPLITS,
    Card,
    DataSet,
    Examples,
    Groups,
    Split,
    check_roles,
    codes_of,
    dataset_folder,
    id_name_of,
    named_or_default,
    people_of,
    refuse_empty,
    refuse_one_class,
    say_shared_people,
    warn_of_absent,
)
from levelhead.data.splits import (
    SPLIT_WORDS,
    absent_splits,
    check_shares,
    check_splits,
    deal,
    fill_splits,
    named_splits,
    rows_of,
    say_filled,
)
from levelhead.data.targets import check_target_options, classes_of, ordered
from levelhead.data.text_files import ANY_SUFFIXES, read_columns, table_files, table_header
from levelhead.data.texts import Texts, text_fingerprint, texts_of
from levelhead.types import ConfigError, DataError, require_columns

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextCsv(DataSet):
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

    folder: str = ""
    file: str | None = None
    text_column: str = "text"
    pair_column: str | None = None
    target: str = "label"
    sensitive: str | tuple[str, ...] = GROUP
    split_column: str | None = None
    id_column: str | None = None
    person_column: str | None = None
    validation_share: float = 0.1
    test_share: float = 0.2
    split_seed: int = 0
    splits: Mapping[Split, Sequence[str | int]] | None = None
    label_map: Mapping[str, str] | None = None
    threshold: float | None = None

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
        check_shares(self.validation_share, self.test_share)
        check_splits(self.splits, self.split_column)
        check_target_options(self.label_map, self.threshold)
        check_roles(
            self._sensitive,
            self.target,
            text_column=self.text_column,
            pair_column=self.pair_column,
            split_column=self.split_column,
            id_column=self.id_column,
            person_column=self.person_column if self.person_column != self.id_column else None,
        )
        if self.split_column is not None and self.file is None:
            raise ConfigError("data.split_column needs data.file: without it, there is one file a split.")

    @property
    def _texts(self) -> tuple[str, ...]:
        return (self.text_column,) if self.pair_column is None else (self.text_column, self.pair_column)

    def check(self) -> None:
        """Raise an error if the folder, a file or a column that training needs is absent."""
        tables = []
        for path, _ in self._files():
            tables.append(table_header(path))
            required = [*self._texts, self.target, *self._split, *filter(None, (self.id_column, self.person_column))]
            require_columns(tables[-1], required, str(path))
        sensitive = named_or_default(self._sensitive, *tables)
        warn_of_absent(sensitive, ", ".join(str(path) for path, _ in self._files()), *tables)

    def examples(self, split: Split) -> Examples:
        """Return texts and labels of ``split``; opens no sensitive column."""
        rows = self._read(self.target, split)
        classes, names = self._classes(rows)
        chosen = self._rows(rows, split)
        where = f"{rows.file_of(chosen[0])}, {split}"
        labels = codes_of([classes[row] for row in chosen], names)
        refuse_one_class(labels, names, self.target, where)
        lacking = [name for code, name in enumerate(names) if not bool((labels == code).any())]
        if lacking:
            logger.warning(
                "%s: no row is %s in %r, but other splits hold it. A spelling?", where, ", ".join(lacking), self.target
            )
        columns = [[column[row] for row in chosen] for column in rows.texts]
        for name, column in zip(self._texts, columns, strict=True):
            _refuse_empty([text if text.strip() else "" for text in column], name, chosen, rows)
        texts = Texts(columns[0], columns[1] if len(columns) > 1 else None, where=where)
        return Examples(texts, labels, names, text_fingerprint(texts, labels))

    def new_rows(self, table: Path) -> Texts:
        """Return the texts of a table of new rows; the columns of texts alone are opened."""
        return texts_of(table, self._texts)

    def class_names(self) -> tuple[str, ...]:
        """Return the classes of the target, of all rows; errors are those of :meth:`examples`."""
        return self._classes(self._read(self.target, None))[1]

    def _classes(self, rows: _Rows) -> tuple[list[str], tuple[str, ...]]:
        where = rows.files[0][0]
        return classes_of(rows.values, self.target, where, label_map=self.label_map, threshold=self.threshold)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive columns of ``split``; an empty cell is no group, a column without any is an error.

        Opens the texts as well where they decide the split, and never the target.
        """
        result = []
        for name in named_or_default(self._sensitive, *(table_header(path) for path, _ in self._files())):
            rows = self._read(name, split)
            chosen = self._rows(rows, split)
            values = [rows.values[row] for row in chosen]
            if not any(values):
                _refuse_empty(values, name, chosen, rows)
            names = ordered(set(rows.values) - {""})
            result.append(Groups(name, codes_of(values, names), names))
        return tuple(result)

    @property
    def id_name(self) -> str:
        """The name of the column of ids."""
        return id_name_of(self.id_column)

    def ids(self, split: Split) -> Sequence[str]:
        """Return the ``id_column`` of ``split``, else the number of each row in its table, 1 below the header.

        Of a table in parts, rows are counted over all of them, so that no two of a split have one number.
        """
        rows = self._read(self.id_column or self.target, split)
        chosen = self._rows(rows, split)
        if self.id_column is None:
            return [str(row - (chosen[0] if self.file is None else 0) + 1) for row in chosen]
        values = [rows.values[row] for row in chosen]
        _refuse_empty(values, self.id_column, chosen, rows)
        return values

    def people(self, split: Split) -> Sequence[str] | None:
        """Return the ``person_column`` of ``split``; None without one. An empty cell is somebody of its own.

        Opens this column, and those that decide the split; people in two splits are a logged warning.
        """
        if self.person_column is None:
            return None
        rows = self._read(self.person_column, split)
        people = people_of(rows.values)
        say_shared_people(zip(people, rows.splits, strict=True), str(rows.files[0][0]), self.person_column)
        return [people[row] for row in self._rows(rows, split)]

    @property
    def _split(self) -> tuple[str, ...]:
        return () if self.split_column is None else (self.split_column,)

    def _folder(self) -> Path:
        if not self.folder:
            raise ConfigError("data.folder is empty; name the folder of the tables, below the data root.")
        return dataset_folder(self.root, self.folder)

    def _files(self) -> list[tuple[Path, Split | None]]:
        """Return the one table, or those of train, validation and test, each with its split."""
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

    def _read(self, column: str, wanted: Split | None) -> _Rows:
        """Read one column of all rows, beside the texts of those that may be of the split ``wanted``; None: no texts.

        The target is checked wherever it is read.
        """
        rows = _Rows([], [], [], [[] for _ in self._texts])
        dealt = wanted is not None and self.file is not None and self.split_column is None
        by_text = dealt and self.person_column is None
        opened = self._texts if wanted is not None and (column == self.target or by_text) else ()
        person = [self.person_column] if dealt and self.person_column is not None else []
        files = self._files()
        of_splits = [split for _, split in files]
        for path, split in files:
            here = opened if split in (None, wanted) else ()
            table = read_columns(path, [column, *here, *person, *self._split], part=of_splits.count(split) > 1)
            values = [_value(cell) for cell in table[column]]
            rows.files.append((path, len(values)))
            for kept, name in zip(rows.texts, opened, strict=False):
                kept += table[name] if here else [""] * len(values)
            if self.split_column is not None:
                words = [cell.strip() for cell in table[self.split_column]]
                rows.splits += self._named(path, words, table, wanted)
            elif dealt:
                keys = self._keys(path, table)
                rows.splits += deal(keys, self.split_seed, self.validation_share, self.test_share)
            elif split is not None:
                rows.splits += [split] * len(values)
            rows.values += values
        if column == self.target:
            _refuse_empty(rows.values, column, range(len(rows.values)), rows)
        return rows

    def _named(
        self, path: Path, words: Sequence[str], table: Mapping[str, Sequence[str]], wanted: Split | None
    ) -> list[Split]:
        """Return the split that each word names; one that none names takes its share of the training rows."""
        named = named_splits(words, self.splits, str(self.split_column), path)
        absent = absent_splits(named)
        if wanted is None or not absent:
            return named
        say_filled(path, str(self.split_column), absent)
        return fill_splits(named, self._keys(path, table), self.split_seed, self.validation_share, self.test_share)

    def _keys(self, path: Path, table: Mapping[str, Sequence[str]]) -> list[str]:
        """Return what decides the split of each row: whom it is of, else its texts; reads what ``table`` lacks."""
        names = self._texts if self.person_column is None else (self.person_column,)
        unread = [name for name in names if name not in table]
        table = {**table, **(read_columns(path, unread) if unread else {})}
        if self.person_column is not None:
            return people_of(table[self.person_column])
        return ["\n".join(row) for row in zip(*(table[name] for name in names), strict=True)]

    def _rows(self, rows: _Rows, split: Split) -> list[int]:
        carved = self.file is not None and self.split_column is None
        return rows_of(rows.splits, split, rows.files[0][0], self.test_share if carved else 0)


@dataclass
class _Rows:
    """All rows of the tables: ``files`` with their numbers of rows, one column's ``values``, splits, and the texts."""

    files: list[tuple[Path, int]]
    values: list[str]
    splits: list[Split]
    texts: list[list[str]]

    def place(self, row: int) -> tuple[Path, int]:
        """Return the file of a row, and its number there, 1 being the first below the header."""
        for path, count in self.files:
            if row < count:
                return path, row + 1
            row -= count
        raise IndexError(row)

    def file_of(self, row: int) -> Path:
        """Return the file of a row."""
        return self.place(row)[0]


def _value(cell: str) -> str:
    """Return a cell to the letter; a blank one, and what pandas writes for a missing number, is empty."""
    return "" if cell.strip().lower() in ("", "nan") else cell


def _refuse_empty(values: Sequence[str], column: str, numbers: Sequence[int], rows: _Rows) -> None:
    refuse_empty([not value for value in values], column, lambda at: rows.place(numbers[at]), file=True)
