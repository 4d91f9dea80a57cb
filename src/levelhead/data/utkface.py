"""UTKFace (Zhang, Song, Qi, CVPR 2017) as parquet: 64x64 pictures with age, gender and race as annotated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from torch import Tensor

from levelhead.data.base import SPLITS, Card, DataSet, Examples, Groups, Split
from levelhead.data.parquet import check_columns, dataset_folder, read_column, read_examples, split_files
from levelhead.types import ConfigError

_CODES: dict[str, tuple[str, ...]] = {
    "gender": ("male", "female"),
    "race": ("White", "Black", "Asian", "Indian", "Other"),
}


@dataclass(frozen=True)
class UTKFace(DataSet):
    """Tell perceived gender as annotated (or white / not white) from a face.

    ``sensitive`` is ``white`` (white / not white as annotated: the paper's), ``race`` (five groups) or ``gender``. The
    folder ``utkface64`` holds ``train.parquet``, ``validation.parquet`` and ``test.parquet``.
    """

    target: Literal["gender", "white"] = "gender"
    sensitive: Literal["white", "race", "gender"] = "white"

    card: ClassVar[Card] = Card(
        title="UTKFace, 64x64",
        task="perceived gender as annotated",
        groups="white / not white as annotated; race (5) by option",
        licence="non-commercial research",
        citation="Zhang, Song, Qi: Age Progression/Regression by Conditional Adversarial Autoencoder, CVPR 2017",
        url="https://susanqq.github.io/UTKFace/",
        caution="Labels are estimates of how a person is perceived, by a model and annotators; not who a person is.",
    )

    def __post_init__(self) -> None:
        column = {"white": "race"}
        if column.get(self.target, self.target) == column.get(self.sensitive, self.sensitive):
            raise ConfigError(
                f"data.target {self.target!r} and data.sensitive {self.sensitive!r} come from one column: a model "
                "would be audited against its own task. Choose another sensitive attribute."
            )

    def check(self) -> None:
        """Raise :class:`DataError` if a split or the picture or target column is absent."""
        for split in SPLITS:
            check_columns(self._files(split), ["image", "race" if self.target == "white" else self.target])

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, 64, 64) and labels of ``split``; opens no other column."""
        labels, names = self._column(split, self.target)
        return read_examples(self._files(split), self.target, labels, names)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive attribute of ``split``."""
        values, names = self._column(split, self.sensitive)
        return (Groups(self.sensitive, values, names),)

    def _files(self, split: Split) -> list[Path]:
        return split_files(dataset_folder(self.root, "utkface64"), split)

    def _column(self, split: Split, attribute: str) -> tuple[Tensor, tuple[str, ...]]:
        column = "race" if attribute == "white" else attribute
        names = _CODES[column]
        values = read_column(self._files(split), column, len(names))
        if attribute == "white":
            return (values == 0).long(), ("not white", "white")
        return values, names
