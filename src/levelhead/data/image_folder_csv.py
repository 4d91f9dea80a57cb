"""Any folder of pictures with a csv that names them: one row a picture, columns for target, groups and split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import Card, Inputs, Split, check_image_size
from levelhead.data.own_table import OwnFiles
from levelhead.data.table_set import FileTable, Rows


@dataclass(frozen=True)
class ImageFolderCsv(OwnFiles):
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

    card: ClassVar[Card] = Card(
        title="Pictures with a csv",
        task="the target column",
        groups="the sensitive columns",
        licence="that of your data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_image_size(self.image_size)

    @property
    def _inputs(self) -> tuple[str, ...]:
        return (self.file_column,)  # which deals them: a row more or less leaves all others where they are

    @property
    def _identifier(self) -> str | None:
        return self.file_column

    def _in_order(self, classes: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted(classes))

    def _load(self, rows: Rows, split: Split) -> Inputs:
        return self._pictures(self._folder(), rows)

    def new_rows(self, table: Path) -> Inputs:
        """Return the pictures that a table of new rows names, below its own folder; opens the column of files alone."""
        found = FileTable(str(table), path=table)
        cells, count = found.read(self._inputs)
        rows = Rows([(found, count)], cells, [], list(range(count)))
        rows.refuse_empty(self.file_column)
        return self._pictures(table.parent, rows)

    def _pictures(self, folder: Path, rows: Rows) -> Inputs:
        """Return the pictures (n, 3, image_size, image_size) of the rows wanted."""
        from levelhead.data.cache import files_inputs

        return files_inputs(folder, rows.chosen(self.file_column), rows.where, self.image_size)

    def _tables(self) -> list[FileTable]:
        return self._table("csv")
