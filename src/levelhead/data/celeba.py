"""CelebA (Liu, Luo, Wang, Tang, ICCV 2015) as hub-style parquet: 64x64 pictures with 40 attributes as bool."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow.parquet as pq
from torch import Tensor

from levelhead.csv_form import whole
from levelhead.data.base import (
    SPLITS,
    Card,
    DataSet,
    Examples,
    Groups,
    Inputs,
    Split,
    dataset_folder,
    refuse_no_groups,
    refuse_own_task,
    warn_of_absent,
)
from levelhead.data.cache import picture_inputs
from levelhead.data.parquet import AGAIN, check_columns, read_column, read_encoded, read_examples, split_files


@dataclass(frozen=True)
class CelebAAttributes(DataSet):
    """What the layouts of CelebA share: any of the 40 attributes can be target or sensitive, under its official name.

    ``sensitive`` names one attribute or several (the first is the task's main one). Raises
    :class:`~levelhead.types.ConfigError` if it is empty or holds the target.
    """

    target: str = "Blond_Hair"
    sensitive: str | tuple[str, ...] = "Male"

    def __post_init__(self) -> None:
        refuse_no_groups(self._sensitive)
        refuse_own_task(self.target, self._sensitive)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive attributes of ``split``."""
        return tuple(Groups(name, self._values(split, name), self._names(name)) for name in self._sensitive)

    @abstractmethod
    def _values(self, split: Split, attribute: str) -> Tensor:
        """Return one attribute of ``split``, (n,) int64 of 0 and 1; opens no other."""

    @staticmethod
    def _names(attribute: str) -> tuple[str, str]:
        return f"not {attribute}", attribute


def celeba_card(title: str) -> Card:
    """Return the card of CelebA in one of its layouts."""
    return Card(
        title=title,
        task="any of the 40 attributes as annotated (Blond_Hair)",
        groups="any of the 40 attributes as annotated (Male)",
        licence="non-commercial research, no redistribution",
        citation="Liu, Luo, Wang, Tang: Deep Learning Face Attributes in the Wild, ICCV 2015",
        url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        caution="Attributes are annotators' impressions; Attractive and Male are not facts about a person.",
    )


@dataclass(frozen=True)
class CelebA(CelebAAttributes):
    """Tell one attribute from a face, from parquet files of 64x64 pictures.

    The folder ``celeba64`` holds ``train.parquet`` (or ``train-00000-of-00002.parquet`` and so on),
    ``validation.parquet`` and ``test.parquet``.
    """

    card: ClassVar[Card] = celeba_card("CelebA, 64x64")

    def check(self) -> None:
        """Raise :class:`DataError` if a split or the picture or target column is absent."""
        files = [file for split in SPLITS for file in self._files(split)]
        warn_of_absent(self._sensitive, str(files[0].parent), *check_columns(files, ["image", self.target]))

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, 64, 64) and labels of ``split``; opens no other column."""
        return read_examples(
            self._files(split), self.target, self._values(split, self.target), self._names(self.target)
        )

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, 64, 64) of ``split``; opens no other column."""
        return picture_inputs(*read_encoded(self._files(split)))

    def _values(self, split: Split, attribute: str) -> Tensor:
        return read_column(self._files(split), attribute, 2)

    def people(self, split: Split) -> list[str] | None:
        """Return the identity of each row, from the column ``celeb_id``; None where the files lack it."""
        files = self._files(split)
        if any("celeb_id" not in columns for columns in check_columns(files, [])):
            return None
        ids: list[str] = []
        for file in files:
            with whole(file, AGAIN):
                ids += map(str, pq.read_table(file, columns=["celeb_id"]).column(0).to_pylist())
        return ids

    def _files(self, split: Split) -> list[Path]:
        return split_files(dataset_folder(self.root, "celeba64"), split)
