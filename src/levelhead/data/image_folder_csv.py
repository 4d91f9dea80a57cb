"""Any folder of pictures with a csv that names them: one row a picture, columns for target, groups and split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd

from levelhead.data.base import (
    GROUP,
    Card,
    DataSet,
    Examples,
    Groups,
    Inputs,
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
from levelhead.data.cache import picture_examples, picture_inputs
from levelhead.data.images import PictureFiles, check_image_size
from levelhead.data.splits import (
    absent_splits,
    check_shares,
    check_splits,
    deal,
    fill_splits,
    named_splits,
    rows_of,
    say_filled,
)
from levelhead.data.targets import check_target_options, classes_of
from levelhead.data.text_files import read_columns, table_header
from levelhead.types import ConfigError, DataError, require_columns


@dataclass(frozen=True)
class ImageFolderCsv(DataSet):
    """Tell the ``target`` column of a csv from pictures in a folder.

    ``folder`` lies below the data root, or is a path of its own; ``csv`` lies in it, or is a path of its own, and is
    UTF-8 with a header. ``file_column`` holds paths below the folder; whole paths, and links out of it, are refused.
    Classes and groups are the distinct values of their columns as text, to the letter, sorted. ``sensitive`` names one
    column or several. ``split_column`` holds train, validation (or val, valid, dev, eval) and test, or what ``splits``
    says that they are called there, as ``{"train": [0], "validation": [1], "test": [2]}``; None: rows are dealt by a
    hash of their number and ``split_seed``, and so are the training rows of a column that names no validation or no
    test rows. ``person_column`` says whom each picture is of: rows are then dealt by person, and intervals take a
    person's rows together; an empty cell is somebody of its own. ``label_map`` says which class a value of the target
    represents, as ``{"yes ": "yes"}``; ``threshold`` makes two classes of a target of numbers: at least so much, or
    less. Pictures are cropped to their central square and resized to ``image_size`` pixels.
    """

    folder: str = ""
    csv: str = "labels.csv"
    file_column: str = "file"
    target: str = "label"
    sensitive: str | tuple[str, ...] = GROUP
    split_column: str | None = None
    person_column: str | None = None
    image_size: int = 64
    validation_share: float = 0.1
    test_share: float = 0.2
    split_seed: int = 0
    splits: Mapping[Split, Sequence[str | int]] | None = None
    label_map: Mapping[str, str] | None = None
    threshold: float | None = None

    card: ClassVar[Card] = Card(
        title="Pictures with a csv",
        task="the target column",
        groups="the sensitive columns",
        licence="that of your data",
        citation="none",
        url="",
        caution="Say who labelled the pictures, and how, with every figure.",
    )

    def __post_init__(self) -> None:
        check_shares(self.validation_share, self.test_share)
        check_splits(self.splits, self.split_column)
        check_target_options(self.label_map, self.threshold)
        check_image_size(self.image_size)
        check_roles(
            self._sensitive,
            self.target,
            file_column=self.file_column,
            split_column=self.split_column,
            person_column=self.person_column,
        )

    def check(self) -> None:
        """Raise an error if the folder, the csv or a column that training needs is absent."""
        self._read([])
        header = table_header(self._csv())
        warn_of_absent(named_or_default(self._sensitive, header), str(self._csv()), header)

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, image_size, image_size) and labels of ``split``; opens no sensitive column."""
        frame = self._read([self.file_column, self.target])
        rows = self._rows(frame, split)
        classes, names = self._classes(frame)
        labels = codes_of([classes[row] for row in rows], names)
        refuse_one_class(labels, names, self.target, f"{self._csv()}, {split}")
        return picture_examples(*self._encoded(frame, rows), labels, names, self.image_size)

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, image_size, image_size) of ``split``; opens the columns of files and splits alone."""
        frame = self._read([self.file_column])
        return picture_inputs(*self._encoded(frame, self._rows(frame, split)), self.image_size)

    def new_rows(self, table: Path) -> Inputs:
        """Return the pictures that a table of new rows names, below its own folder; opens the column of files alone."""
        paths = read_columns(table, [self.file_column])[self.file_column]

        def where(at: int) -> str:
            return f"{table}, row {at + 1}"

        refuse_empty([not path.strip() for path in paths], self.file_column, lambda at: (table, at + 1), file=True)
        files = PictureFiles(table.parent, paths, where)
        return picture_inputs(files, lambda at: f"{where(at)}: {paths[at]}", self.image_size)

    def _encoded(self, frame: pd.DataFrame, rows: list[int]) -> tuple[PictureFiles, Callable[[int], str]]:
        """Return the pictures of some rows, and a function that names one with its file."""
        paths = frame[self.file_column].iloc[rows].tolist()

        def where(position: int) -> str:
            return f"{self._csv()}, row {rows[position] + 1}"

        return PictureFiles(self._folder(), paths, where), lambda at: f"{where(at)}: {paths[at]}"

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive columns of ``split``; an empty cell is no group, a column without any is an error."""
        sensitive = named_or_default(self._sensitive, table_header(self._csv()))
        if not sensitive:
            return ()
        frame = self._read(sensitive)
        rows = self._rows(frame, split)
        result = []
        for name in sensitive:
            every = frame[name].where(frame[name].str.strip() != "", "")
            values = every.iloc[rows]
            if not values.any():
                self._refuse_empty(values, name, rows)
            names = tuple(sorted(set(every) - {""}))
            result.append(Groups(name, codes_of(values, names), names))
        return tuple(result)

    @property
    def id_name(self) -> str:
        """The name of the column of ids."""
        return id_name_of(self.file_column)

    def ids(self, split: Split) -> Sequence[str]:
        """Return the files of ``split`` as the csv names them."""
        frame = self._read([self.file_column])
        found: list[str] = frame[self.file_column].iloc[self._rows(frame, split)].tolist()
        return found

    def people(self, split: Split) -> Sequence[str] | None:
        """Return the ``person_column`` of ``split``; None without one. An empty cell is somebody of its own.

        Opens this column and that of splits; people in two splits are a logged warning.
        """
        if self.person_column is None:
            return None
        frame = self._read([self.person_column])
        people, splits = self._people(frame), self._splits(frame)
        say_shared_people(zip(people, splits, strict=True), str(self._csv()), self.person_column)
        return [people[row] for row in self._rows(frame, split)]

    def _people(self, frame: pd.DataFrame) -> list[str]:
        """Return whom each row is of, of the csv if the column is not among those that were read."""
        column = str(self.person_column)
        return people_of(frame[column] if column in frame else self._read([column])[column])

    def _folder(self) -> Path:
        if not self.folder:
            raise ConfigError("data.folder is empty; name the folder of the pictures, below the data root.")
        return dataset_folder(self.root, self.folder)

    def _csv(self) -> Path:
        return self._folder() / self.csv

    def _read(self, columns: Sequence[str]) -> pd.DataFrame:
        """Read columns, and the split column, as text; every column that training needs must be there."""
        path = self._csv()
        split = [] if self.split_column is None else [self.split_column]
        person = [] if self.person_column is None else [self.person_column]
        if not path.is_file():
            raise DataError(f"There is no file {path}. Set data.csv to a file in {path.parent}, or to a whole path.")
        require_columns(table_header(path), [self.file_column, self.target, *split, *person, *columns], str(path))
        return pd.DataFrame(read_columns(path, [*(columns or [self.target]), *split]), dtype=str)

    def _rows(self, frame: pd.DataFrame, split: Split) -> list[int]:
        """Return the positions of the rows of ``split``, in the order of the csv."""
        return rows_of(self._splits(frame), split, self._csv(), self.test_share if self.split_column is None else 0)

    def _keys(self, frame: pd.DataFrame) -> list[str]:
        """Return what decides the split of each row: whom it is of, else its number."""
        return list(map(str, range(len(frame)))) if self.person_column is None else self._people(frame)

    def _splits(self, frame: pd.DataFrame) -> list[Split]:
        """Return the split of each row."""
        if self.split_column is None:
            return deal(self._keys(frame), self.split_seed, self.validation_share, self.test_share)
        words = frame[self.split_column].str.strip().tolist()
        named = named_splits(words, self.splits, self.split_column, self._csv())
        if absent := absent_splits(named):
            say_filled(self._csv(), self.split_column, absent)
            named = fill_splits(named, self._keys(frame), self.split_seed, self.validation_share, self.test_share)
        return named

    def class_names(self) -> tuple[str, ...]:
        """Return the classes of the target, of all rows; errors are those of :meth:`examples`."""
        return self._classes(self._read([self.target]))[1]

    def _classes(self, frame: pd.DataFrame) -> tuple[list[str], tuple[str, ...]]:
        self._refuse_empty(frame[self.target], self.target, list(range(len(frame))))
        values = frame[self.target].tolist()
        classes, names = classes_of(
            values, self.target, self._csv(), label_map=self.label_map, threshold=self.threshold
        )
        return classes, names if self.threshold is not None else tuple(sorted(names))

    def _refuse_empty(self, values: pd.Series[str], column: str, rows: Sequence[int]) -> None:
        empty = [not value.strip() for value in values]
        refuse_empty(empty, column, lambda at: (self._csv(), rows[at] + 1), file=True)
