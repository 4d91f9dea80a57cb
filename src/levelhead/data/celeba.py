"""CelebA (Liu, Luo, Wang, Tang, ICCV 2015) as hub-style parquet: 64x64 pictures with 40 attributes as bool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from levelhead.data.base import Card, Split, check_roles
from levelhead.data.parquet import PICTURES, ParquetSet
from levelhead.data.table_set import KnownSet, Roles

PERSON = "celeb_id"


@dataclass(frozen=True)
class CelebAAttributes(KnownSet):
    """What the layouts of CelebA share: any of the 40 attributes can be target or sensitive, under its official name.

    ``sensitive`` names one attribute or several (the first is the task's main one). Raises
    :class:`~levelhead.types.ConfigError` if it holds the target.
    """

    target: str = "Blond_Hair"
    sensitive: str | tuple[str, ...] = "Male"

    codes: ClassVar[Mapping[str, int]]
    """What each cell says: 1, that a picture has the attribute, or 0."""

    def __post_init__(self) -> None:
        check_roles(self._sensitive, target=self.target)

    def _codes(self, attribute: str) -> tuple[tuple[str, ...], Mapping[str, int]]:
        return (f"not {attribute}", attribute), self.codes


@dataclass(frozen=True)
class CelebA(CelebAAttributes, ParquetSet):
    """Tell one attribute from a face, from parquet files of 64x64 pictures.

    The folder ``celeba64`` holds ``train.parquet`` (or ``train-00000-of-00002.parquet`` and so on),
    ``validation.parquet`` and ``test.parquet``. People are those of the column ``celeb_id``, if it is there.
    """

    card: ClassVar[Card] = Card(
        title="CelebA, 64x64",
        task="any of the 40 attributes as annotated (Blond_Hair)",
        groups="any of the 40 attributes as annotated (Male)",
        licence="non-commercial research, no redistribution",
        citation="Liu, Luo, Wang, Tang: Deep Learning Face Attributes in the Wild, ICCV 2015",
        url="https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        caution="Attributes are annotators' impressions; Attractive and Male are not facts about a person.",
    )
    folder: ClassVar[str] = "celeba64"
    codes: ClassVar[Mapping[str, int]] = {"False": 0, "True": 1, "0": 0, "1": 1}

    @property
    def _roles(self) -> Roles:
        return Roles(self.target, needed=(PICTURES,), person=PERSON)

    def people(self, split: Split) -> Sequence[str] | None:
        """Return the identity of each row; None where the files lack it."""
        return super().people(split) if all(PERSON in table.header() for table in self._tables()) else None
