"""UTKFace (Zhang, Song, Qi, CVPR 2017) as parquet: 64x64 pictures with age, gender and race as annotated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from levelhead.data.base import Card, check_roles
from levelhead.data.parquet import PICTURES, ParquetSet
from levelhead.data.table_set import KnownSet, Roles

CODES: dict[str, tuple[str, ...]] = {
    "gender": ("male", "female"),
    "race": ("White", "Black", "Asian", "Indian", "Other"),
}


@dataclass(frozen=True)
class UTKFaceAttributes(KnownSet):
    """What the layouts of UTKFace share: targets, groups and their codes.

    ``target`` is ``gender`` (perceived, as annotated) or ``white``; ``sensitive`` is ``white`` (white / not white as
    annotated: the paper's), ``race`` (five groups) or ``gender``. Raises :class:`~levelhead.types.ConfigError` if both
    come from one column.
    """

    target: Literal["gender", "white"] = "gender"
    sensitive: Literal["white", "race", "gender"] = "white"

    def __post_init__(self) -> None:
        check_roles((column_of(self.sensitive),), target=column_of(self.target))

    def _column_of(self, attribute: str) -> str:
        return column_of(attribute)

    def _codes(self, attribute: str) -> tuple[tuple[str, ...], Mapping[str, int]]:
        codes = range(len(CODES[column_of(attribute)]))
        if attribute == "white":
            return ("not white", "white"), {str(code): int(code == 0) for code in codes}
        return CODES[attribute], {str(code): code for code in codes}


def column_of(attribute: str) -> str:
    """Return the column that an attribute is read from: ``race`` for ``white``, else the attribute itself."""
    return "race" if attribute == "white" else attribute


@dataclass(frozen=True)
class UTKFace(UTKFaceAttributes, ParquetSet):
    """Tell perceived gender as annotated (or white / not white) from a face, from parquet files of 64x64 pictures.

    The folder ``utkface64`` holds ``train.parquet``, ``validation.parquet`` and ``test.parquet``.
    """

    card: ClassVar[Card] = Card(
        title="UTKFace, 64x64",
        task="perceived gender as annotated",
        groups="white / not white as annotated; race (5) by option",
        licence="non-commercial research",
        citation="Zhang, Song, Qi: Age Progression/Regression by Conditional Adversarial Autoencoder, CVPR 2017",
        url="https://susanqq.github.io/UTKFace/",
        caution="Labels are estimates of how a person is perceived, by a model and annotators; not who a person is.",
    )
    folder: ClassVar[str] = "utkface64"

    @property
    def _roles(self) -> Roles:
        return Roles(column_of(self.target), needed=(PICTURES,))
