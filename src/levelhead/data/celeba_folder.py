"""CelebA (Liu, Luo, Wang, Tang, ICCV 2015) in the owners' layout: a folder of JPEG files and two tables.

::

    celeba/img_align_celeba/000001.jpg ...
    celeba/list_attr_celeba.txt           the number of rows, the names, then "000001.jpg -1 1 ..." in each line
    celeba/list_eval_partition.txt        "000001.jpg 0" in each line; 0 train, 1 validation, 2 test

The two tables are also taken as csv (``image_id`` and the names in the first line), as a common mirror has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas as pd
import torch
from torch import Tensor

from levelhead.data.base import SPLITS, Card, Examples, Inputs, Split, dataset_folder, refuse_one_class, warn_of_absent
from levelhead.data.cache import picture_inputs
from levelhead.data.celeba import CelebAAttributes, celeba_card
from levelhead.data.images import PictureFiles, check_image_size
from levelhead.data.text_files import read_columns, table_header
from levelhead.types import DataError, quoted, refuse_duplicates, require_columns

ATTRIBUTES, PARTITION, PICTURES = "list_attr_celeba", "list_eval_partition", "img_align_celeba"


@dataclass(frozen=True)
class CelebAFolder(CelebAAttributes):
    """Tell one attribute from a face, from the files that CelebA's owners give out, with their splits.

    Pictures are cropped to their central square and resized to ``image_size`` pixels.
    """

    image_size: int = 64

    card: ClassVar[Card] = celeba_card("CelebA, the owners' files")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_image_size(self.image_size)

    def check(self) -> None:
        """Raise :class:`DataError` if the pictures, a table or the target column is absent."""
        self._pictures()
        for table in (ATTRIBUTES, PARTITION):
            self._table(table)
        path, columns = self._table(ATTRIBUTES), self._columns()
        require_columns(columns, [self.target], str(path))
        warn_of_absent(self._sensitive, str(path), columns)

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, image_size, image_size) and labels of ``split``; opens no other column."""
        labels, names = self._values(split, self.target), self._names(self.target)
        refuse_one_class(labels, names, self.target, f"{self._table(ATTRIBUTES)}, {split}")
        encoded = self._encoded(split)
        return picture_inputs(encoded, encoded.where, self.image_size).with_labels(labels, names)

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, image_size, image_size) of ``split``; opens the table of the splits alone."""
        encoded = self._encoded(split)
        return picture_inputs(encoded, encoded.where, self.image_size)

    def _encoded(self, split: Split) -> PictureFiles:
        folder, files = self._pictures(), self._files(split)
        return PictureFiles(folder, files, lambda position: f"{folder.parent}: picture {files[position]}")

    def _folder(self) -> Path:
        return dataset_folder(self.root, "celeba")

    def _table(self, stem: str) -> Path:
        for suffix in (".txt", ".csv"):
            if (self._folder() / (stem + suffix)).is_file():
                return self._folder() / (stem + suffix)
        raise DataError(f"{self._folder()} holds neither {stem}.txt nor {stem}.csv; fetch it from CelebA's owners.")

    def _pictures(self) -> Path:
        folder = self._folder() / PICTURES
        if not folder.is_dir():
            raise DataError(f"There is no folder {folder}. Unpack img_align_celeba.zip there.")
        return folder / PICTURES if (folder / PICTURES).is_dir() else folder  # the mirror's archive nests it

    def _files(self, split: Split) -> list[str]:
        """Return the file names of ``split``, in the order of the table."""
        path = self._table(PARTITION)
        frame = _read(path, [0, 1])
        wrong = frame[~frame.iloc[:, 1].isin(["0", "1", "2"])]
        if len(wrong):
            raise DataError(
                f"{path}: {len(wrong)} rows name no split, first {quoted(wrong.iloc[0, 0])}; a split is 0, 1 or 2."
            )
        files: list[str] = frame.iloc[:, 0][frame.iloc[:, 1] == str(SPLITS.index(split))].tolist()
        if not files:
            raise DataError(f"{path}: the {split} split is empty.")
        return files

    def _columns(self) -> list[str]:
        """Return the names of the attributes."""
        path = self._table(ATTRIBUTES)
        if path.suffix == ".csv":
            return table_header(path)[1:]
        try:
            with path.open(encoding="utf-8-sig") as lines:
                first, second = lines.readline(), lines.readline()
        except ValueError as error:
            raise DataError(f"{path} cannot be read ({error}); fetch it again.") from None
        columns = second.split()
        if not first.strip().isdigit():
            raise DataError(
                f"{path} does not begin with the number of its pictures: line 1 is that number, line 2 the attributes. "
                "Put the number there, or fetch the file again."
            )
        refuse_duplicates(columns, columns, str(path))
        return columns

    def _values(self, split: Split, attribute: str) -> Tensor:
        path, columns = self._table(ATTRIBUTES), self._columns()
        require_columns(columns, [attribute], str(path))
        frame = _read(path, [0, columns.index(attribute) + 1])
        wrong = frame[~frame.iloc[:, 1].isin(["-1", "1"])]
        if len(wrong):
            raise DataError(
                f"{path}: {attribute!r} is neither -1 nor 1 in {len(wrong)} rows, first that of "
                f"{quoted(wrong.iloc[0, 0])}; fetch it again."
            )
        if path.suffix == ".txt":
            with path.open(encoding="utf-8") as lines:
                promised = lines.readline().strip()
            if promised != str(len(frame)):
                raise DataError(f"{path}: the first line promises {promised} rows and there are {len(frame)}.")
        values = frame.iloc[:, 1].set_axis(frame.iloc[:, 0])
        if not values.index.is_unique:
            raise DataError(f"{path}: {quoted(values.index[values.index.duplicated()][0])} is there twice.")
        chosen = values.reindex(self._files(split))
        absent = chosen[chosen.isna()]
        if len(absent):
            raise DataError(f"{path} lacks {len(absent)} pictures of {PARTITION}, first {quoted(absent.index[0])}.")
        return torch.from_numpy((chosen == "1").to_numpy(dtype="int64", copy=True))


def _read(path: Path, columns: list[int]) -> pd.DataFrame:
    """Read two columns of a table as text; a missing cell is an empty text."""
    if path.suffix == ".csv":
        header = table_header(path)
        if len(header) <= max(columns):
            raise DataError(f"{path} has {len(header)} columns, and needs {max(columns) + 1}; fetch it again.")
        return pd.DataFrame(read_columns(path, [header[at] for at in columns]), dtype=str)
    try:
        return pd.read_csv(
            path,
            sep=r"\s+",
            header=None,
            index_col=False,  # a blank at the end of each row would make the file names an index
            skiprows=2 if path.stem == ATTRIBUTES else 0,
            usecols=columns,
            dtype=str,
            keep_default_na=False,
        ).fillna("")
    except (ValueError, pd.errors.ParserError) as error:
        raise DataError(f"{path} cannot be read ({str(error).splitlines()[0]}); fetch it again.") from None
