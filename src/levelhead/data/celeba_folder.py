"""CelebA (Liu, Luo, Wang, Tang, ICCV 2015) in the owners' layout: a folder of JPEG files and two tables.

::

    celeba/img_align_celeba/000001.jpg ...
    celeba/list_attr_celeba.txt           the number of rows, the names, then "000001.jpg -1 1 ..." in each line
    celeba/list_eval_partition.txt        "000001.jpg 0" in each line; 0 train, 1 validation, 2 test

The two tables are also taken as csv (``image_id`` and the names in the first line), as a common mirror has them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import SPLITS, Card, Inputs, Split, check_image_size, dataset_folder
from levelhead.data.cache import files_inputs
from levelhead.data.celeba import CelebA, CelebAAttributes
from levelhead.data.table_set import Roles, Rows, Table
from levelhead.types import DataError, quoted, refuse_duplicates, require_columns

ATTRIBUTES, PARTITION, PICTURES = "list_attr_celeba", "list_eval_partition", "img_align_celeba"
FILE, SPLIT = "image_id", "partition"


@dataclass(frozen=True)
class OwnersTable(Table):
    """The attributes and the split of all pictures, in the order of the table of splits."""

    folder: Path = Path()

    def header(self) -> list[str]:
        """Return the names of the attributes, and those of the file and its split."""
        path, _ = self._path(ATTRIBUTES), self._path(PARTITION)
        names = next(self._lines(path))
        refuse_duplicates(names, names, str(path))
        return [*names, SPLIT]

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return columns as texts, and the number of rows."""
        header, path, splits = self.header(), self._path(ATTRIBUTES), self._path(PARTITION)
        require_columns(header, columns, str(path))
        rows = self._column(splits, 1)
        found = {FILE: [*rows], SPLIT: [*rows.values()]}
        for name in set(columns) - found.keys():
            values = self._column(path, header.index(name))
            if absent := [file for file in rows if file not in values]:
                raise DataError(f"{path} lacks {len(absent)} pictures of {PARTITION}, first {quoted(absent[0])}.")
            found[name] = [values[file] for file in rows]
        return {name: found[name] for name in columns}, len(rows)

    def _path(self, stem: str) -> Path:
        for suffix in (".txt", ".csv"):
            if (self.folder / (stem + suffix)).is_file():
                return self.folder / (stem + suffix)
        raise DataError(f"{self.folder} holds neither {stem}.txt nor {stem}.csv; fetch it from CelebA's owners.")

    def _column(self, path: Path, place: int) -> dict[str, str]:
        """Return one column of a table by file; other fields are dropped line by line."""
        rows = itertools.islice(self._lines(path), 1, None)
        return {row[0]: row[place] if place < len(row) else "" for row in rows}

    def _lines(self, path: Path) -> Iterator[list[str]]:
        """Yield the fields of the names, then those of each row."""
        try:
            lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        except ValueError as error:
            raise DataError(f"{path} cannot be read ({error}); fetch it again.") from None
        if path.suffix == ".csv":
            return (line.split(",") for line in lines)
        if path.stem == PARTITION:
            return (line.split() for line in [f"{FILE} partition", *lines])
        if not (len(lines) > 1 and lines[0].strip().isdigit()):
            raise DataError(
                f"{path} does not begin with the number of its pictures: line 1 is that number, line 2 the attributes. "
                "Put the number there, or fetch the file again."
            )
        return (line.split() for line in [f"{FILE} {lines[1]}", *lines[2:]])


@dataclass(frozen=True)
class CelebAFolder(CelebAAttributes):
    """Tell one attribute from a face, from the files that CelebA's owners give out, with their splits.

    Pictures are cropped to their central square and resized to ``image_size`` pixels.
    """

    image_size: int = 64

    card: ClassVar[Card] = replace(CelebA.card, title="CelebA, the owners' files")
    codes: ClassVar[Mapping[str, int]] = {"-1": 0, "1": 1}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_image_size(self.image_size)

    @property
    def _roles(self) -> Roles:
        words = {split: (code,) for code, split in enumerate(SPLITS)}
        return Roles(self.target, inputs=(FILE,), split=SPLIT, words=words)

    def _tables(self) -> list[OwnersTable]:
        folder = dataset_folder(self.root, "celeba")
        return [OwnersTable(str(folder), folder=folder)]

    def check(self) -> None:
        """Raise :class:`DataError` if the pictures, a table or the target column is absent."""
        self._pictures()
        super().check()

    def _load(self, rows: Rows, split: Split) -> Inputs:
        names = rows.chosen(FILE)
        where = rows.tables[0][0].name
        return files_inputs(self._pictures(), names, lambda at: f"{where}: picture {names[at]}", self.image_size)

    def _pictures(self) -> Path:
        folder = dataset_folder(self.root, "celeba") / PICTURES
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder}. Unpack img_align_celeba.zip there.")
        return folder / PICTURES if (folder / PICTURES).is_dir() else folder  # the mirror's archive nests it
