"""UTKFace (Zhang, Song, Qi, CVPR 2017) as parquet: 64x64 pictures with age, gender and race as annotated."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor

from levelhead.data.base import SPLITS, Card, DataSet, Examples, Groups, Inputs, Split, dataset_folder, warn_of_absent
from levelhead.data.cache import picture_inputs
from levelhead.data.parquet import check_columns, read_column, read_encoded, read_examples, split_files
from levelhead.types import ConfigError

CODES: dict[str, tuple[str, ...]] = {
    "gender": ("male", "female"),
    "race": ("White", "Black", "Asian", "Indian", "Other"),
}


@dataclass(frozen=True)
class UTKFaceAttributes(DataSet):
    """What the layouts of UTKFace share: targets, groups and their codes.

    ``target`` is ``gender`` (perceived, as annotated) or ``white``; ``sensitive`` is ``white`` (white / not white as
    annotated: the paper's), ``race`` (five groups) or ``gender``. Raises :class:`~levelhead.types.ConfigError` if both
    come from one column.
    """

    target: Literal["gender", "white"] = "gender"
    sensitive: Literal["white", "race", "gender"] = "white"

    def __post_init__(self) -> None:
        if column_of(self.target) == column_of(self.sensitive):
            raise ConfigError(
                f"data.target {self.target!r} and data.sensitive {self.sensitive!r} come from one column: a model "
                "would be audited against its own task. Choose another sensitive attribute."
            )

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive attribute of ``split``."""
        values, names = attribute_of(self.sensitive, self._codes(split, column_of(self.sensitive)))
        return (Groups(self.sensitive, values, names),)

    @abstractmethod
    def _codes(self, split: Split, column: str) -> Tensor:
        """Return the codes of ``gender`` or ``race`` in ``split``, (n,) int64; opens nothing else."""


def column_of(attribute: str) -> str:
    """Return the column that an attribute is read from: ``race`` for ``white``, else the attribute itself."""
    return "race" if attribute == "white" else attribute


def attribute_of(attribute: str, codes: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """Turn a column's codes (n,) int64 into the attribute's values (n,) int64 and their names."""
    if attribute == "white":
        return (codes == 0).long(), ("not white", "white")
    return codes, CODES[attribute]


def utkface_card(title: str) -> Card:
    """Return the card of UTKFace in one of its layouts."""
    return Card(
        title=title,
        task="perceived gender as annotated",
        groups="white / not white as annotated; race (5) by option",
        licence="non-commercial research",
        citation="Zhang, Song, Qi: Age Progression/Regression by Conditional Adversarial Autoencoder, CVPR 2017",
        url="https://susanqq.github.io/UTKFace/",
        caution="Labels are estimates of how a person is perceived, by a model and annotators; not who a person is.",
    )


@dataclass(frozen=True)
class UTKFace(UTKFaceAttributes):
    """Tell perceived gender as annotated (or white / not white) from a face, from parquet files of 64x64 pictures.

    The folder ``utkface64`` holds ``train.parquet``, ``validation.parquet`` and ``test.parquet``.
    """

    card: ClassVar[Card] = utkface_card("UTKFace, 64x64")

    def check(self) -> None:
        """Raise :class:`DataError` if a split or the picture or target column is absent."""
        files = [file for split in SPLITS for file in self._files(split)]
        tables = check_columns(files, ["image", column_of(self.target)])
        warn_of_absent((column_of(self.sensitive),), str(files[0].parent), *tables)

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, 64, 64) and labels of ``split``; opens no other column."""
        labels, names = attribute_of(self.target, self._codes(split, column_of(self.target)))
        return read_examples(self._files(split), self.target, labels, names)

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, 64, 64) of ``split``; opens no other column."""
        return picture_inputs(*read_encoded(self._files(split)))

    def _files(self, split: Split) -> list[Path]:
        return split_files(dataset_folder(self.root, "utkface64"), split)

    def _codes(self, split: Split, column: str) -> Tensor:
        return read_column(self._files(split), column, len(CODES[column]))
