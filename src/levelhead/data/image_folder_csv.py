"""Any folder of pictures with a csv that names them: one row a picture, columns for target, groups and split."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import Card, Examples, Inputs, Split, refuse_empty
from levelhead.data.cache import picture_examples, picture_inputs
from levelhead.data.images import PictureFiles, check_image_size
from levelhead.data.own_table import OwnTable
from levelhead.data.text_files import read_columns
from levelhead.types import DataError


@dataclass(frozen=True)
class ImageFolderCsv(OwnTable):
    """Tell the ``target`` column of a csv from pictures in a folder.

    ``folder`` lies below the data root, or is a path of its own; ``csv`` lies in it, or is a path of its own, and is
    UTF-8 with a header. ``file_column`` holds paths below the folder; whole paths, and links out of it, are refused.
    Classes and groups are the distinct values of their columns as text, to the letter, sorted. ``sensitive`` names one
    column or several. ``split_column`` holds train, validation (or val, valid, dev, eval) and test, or what ``splits``
    says that they are called there, as ``{"train": [0], "validation": [1], "test": [2]}``; None: rows are dealt by a
    hash of the file's name and ``split_seed``, and so are the training rows of a column that names no validation or no
    test rows. ``person_column`` says whom each picture is of: rows are then dealt by person, and intervals take a
    person's rows together; an empty cell is somebody of its own. ``label_map`` says which class a value of the target
    represents, as ``{"yes ": "yes"}``; ``threshold`` makes two classes of a target of numbers: at least so much, or
    less. Pictures are cropped to their central square and resized to ``image_size`` pixels.
    """

    csv: str = "labels.csv"
    file_column: str = "file"
    image_size: int = 64

    holds: ClassVar[str] = "pictures"
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
        super().__post_init__()
        check_image_size(self.image_size)

    @property
    def _roles(self) -> dict[str, str | None]:
        return {"file_column": self.file_column, "person_column": self.person_column}

    @property
    def _inputs(self) -> tuple[str, ...]:
        return (self.file_column,)

    @property
    def _deals_by(self) -> tuple[str, ...]:
        return (self.file_column,)  # a row more or less leaves all others where they are

    @property
    def _identifier(self) -> str | None:
        return self.file_column

    def _ordered(self, names: Collection[str]) -> tuple[str, ...]:
        return tuple(sorted(names))

    def check(self) -> None:
        """Raise an error if the folder, the csv, one of its rows or a column that training needs is absent."""
        super().check()
        read_columns(self._csv(), [self.target])

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, image_size, image_size) and labels of ``split``; opens no sensitive column."""
        found = self.labelled(split)
        (paths,) = found.rows.inputs
        encoded = self._encoded(paths, found.numbers)
        return picture_examples(*encoded, found.labels, found.names, self.image_size)

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, image_size, image_size) of ``split``; opens the columns of files and splits alone."""
        rows = self._read(self.file_column, split)
        return picture_inputs(*self._encoded(rows.values, self._numbers(rows, split)), self.image_size)

    def new_rows(self, table: Path) -> Inputs:
        """Return the pictures that a table of new rows names, below its own folder; opens the column of files alone."""
        paths = read_columns(table, [self.file_column])[self.file_column]

        def where(at: int) -> str:
            return f"{table}, row {at + 1}"

        refuse_empty([not path.strip() for path in paths], self.file_column, lambda at: (table, at + 1), file=True)
        files = PictureFiles(table.parent, paths, where)
        return picture_inputs(files, lambda at: f"{where(at)}: {paths[at]}", self.image_size)

    def _encoded(self, paths: Sequence[str], rows: Sequence[int]) -> tuple[PictureFiles, Callable[[int], str]]:
        """Return the pictures of some rows, of the ``paths`` of all, and a function that names one with its file."""
        chosen = [paths[row] for row in rows]

        def where(position: int) -> str:
            return f"{self._csv()}, row {rows[position] + 1}"

        return PictureFiles(self._folder(), chosen, where), lambda at: f"{where(at)}: {chosen[at]}"

    def ids(self, split: Split) -> Sequence[str]:
        """Return the files of ``split`` as the csv names them."""
        rows = self._read(self.file_column, split)
        return [rows.values[row] for row in self._numbers(rows, split)]

    def _csv(self) -> Path:
        return self._folder() / self.csv

    def _files(self) -> list[tuple[Path, Split | None]]:
        path = self._csv()
        if not path.is_file():
            raise DataError(f"There is no file {path}. Set data.csv to a file in {path.parent}, or to a whole path.")
        return [(path, None)]
