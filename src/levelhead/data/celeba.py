"""CelebA (Liu, Luo, Wang, Tang, ICCV 2015) as hub-style parquet: 64x64 pictures with 40 attributes as bool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import SPLITS, Card, DataSet, Examples, Groups, Split
from levelhead.data.parquet import check_columns, dataset_folder, read_column, read_examples, split_files
from levelhead.types import ConfigError


@dataclass(frozen=True)
class CelebA(DataSet):
    """Tell one attribute from a face; any of the 40 attributes can be target or sensitive, under its official name.

    ``sensitive`` names one attribute or several (the first is the task's main one). The folder ``celeba64`` holds
    ``train.parquet`` (or ``train-00000-of-00002.parquet`` and so on), ``validation.parquet`` and ``test.parquet``.
    """

    target: str = "Blond_Hair"
    sensitive: str | tuple[str, ...] = "Male"

    card: ClassVar[Card] = Card(
        title="CelebA, 64x64",
        task="any of the 40 attributes as annotated (Blond_Hair)",
        groups="any of the 40 attributes as annotated (Male)",
        licence="non-commercial research, no redistribution",
        citation="Liu, Luo, Wang, Tang: Deep Learning Face Attributes in the Wild, ICCV 2015",
        url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        caution="Attributes are annotators' impressions; Attractive and Male are not facts about a person.",
    )

    def __post_init__(self) -> None:
        if not self._sensitive:
            raise ConfigError("data.sensitive is empty; name at least one attribute, e.g. Male.")
        if self.target in self._sensitive:
            raise ConfigError(
                f"data.target and data.sensitive are both {self.target!r}: a model would be audited against its own "
                "task. Choose another sensitive attribute."
            )

    @property
    def _sensitive(self) -> tuple[str, ...]:
        return (self.sensitive,) if isinstance(self.sensitive, str) else tuple(self.sensitive)

    def check(self) -> None:
        """Raise :class:`DataError` if a split or the picture or target column is absent."""
        for split in SPLITS:
            check_columns(self._files(split), ["image", self.target])

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, 64, 64) and labels of ``split``; opens no other column."""
        files = self._files(split)
        return read_examples(files, self.target, read_column(files, self.target, 2), self._names(self.target))

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the sensitive attributes of ``split``."""
        files = self._files(split)
        return tuple(Groups(name, read_column(files, name, 2), self._names(name)) for name in self._sensitive)

    def _files(self, split: Split) -> list[Path]:
        return split_files(dataset_folder(self.root, "celeba64"), split)

    @staticmethod
    def _names(attribute: str) -> tuple[str, str]:
        return f"not {attribute}", attribute
