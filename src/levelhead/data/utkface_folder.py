"""UTKFace (Zhang, Song, Qi, CVPR 2017) in the owners' layout: ``utkface/[age]_[gender]_[race]_[date&time].jpg``.

The names hold the labels, so they hold what a trainer must not see. Training reads the target's field and the date:
rows are put in order, and assigned to splits, by a hash of the date alone. Exchange the race fields of all names, and
pictures, labels and their order stay the same to the bit. Pictures of one date go to one split; the set has no
official one.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from levelhead.data.base import Card, Inputs, Split, check_image_size, dataset_folder
from levelhead.data.cache import files_inputs
from levelhead.data.images import PictureFiles
from levelhead.data.splits import check_shares, position_of
from levelhead.data.table_set import Roles, Rows, Table
from levelhead.data.utkface import UTKFace, UTKFaceAttributes, column_of
from levelhead.types import DataError

FIELDS = ("age", "gender", "race")
DATE, FILE = "date", "file"
FOLDERS = ("utkface", "UTKFace")


@dataclass(frozen=True)
class NamedFiles(Table):
    """The files of ``folder`` with the fields of their names, in an order of their dates, contents and targets alone.

    Names that do not fit are left out with a warning that counts them.
    """

    folder: Path = Path()
    target: str = ""
    seed: int = 0

    def header(self) -> list[str]:
        """Return the fields of a name, and the name itself."""
        return [*FIELDS, DATE, FILE]

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return fields as texts, those before the date without leading zeros, and the number of files."""
        asked = [column for column in columns if column in FIELDS]
        dates, names = zip(*self._ordered(self.target if asked else None), strict=True)
        cells = {DATE: [*dates], FILE: [*names]} | {field: [_field(name, field) for name in names] for field in asked}
        return {column: cells[column] for column in columns}, len(names)

    def _ordered(self, target: str | None) -> list[tuple[str, str]]:
        """Return the date and the name of each file. Without a target, copies of a picture stand in any order."""
        files = [one.name for one in self.folder.iterdir() if one.suffix.lower() == ".jpg" and one.name[0] != "."]
        dates = {name: match[2] for name in files if (match := _pattern(None).match(name))}
        if not dates:
            raise DataError(
                f"{self.folder} holds no picture named [age]_[gender]_[race]_[date&time].jpg ({len(files)} other .jpg "
                "files)."
            )
        if len(dates) < len(files):
            warnings.warn(
                f"{len(files) - len(dates)} of {len(files)} pictures in {self.folder} are left out: their names are "
                "not [age]_[gender]_[race]_[date&time].jpg.",
                stacklevel=1,  # from one line, so that Python shows it once and not for each split
            )
        repeats = Counter(dates.values())
        pictures = PictureFiles(self.folder, [*dates], lambda row: f"picture {self.folder / [*dates][row]}")
        keyed = []
        for row, (name, date) in enumerate(dates.items()):
            # Two pictures of one date: what is in them decides, never the rest of the name. The name comes last
            # and decides only between copies, which training cannot distinguish.
            content = hashlib.blake2b(pictures[row]).hexdigest() if repeats[date] > 1 else ""
            code = "" if target is None else _field(name, target)
            keyed.append((position_of(date, self.seed), date, content, code, name))
        return [(date, name) for _, date, _, _, name in sorted(keyed)]


@dataclass(frozen=True)
class UTKFaceFolder(UTKFaceAttributes):
    """Tell perceived gender as annotated (or white / not white) from a face, from the files of UTKFace's owners.

    The folder is ``utkface`` or ``UTKFace``, with files such as ``26_1_2_20170116.jpg`` or
    ``26_1_2_20170116.jpg.chip.jpg``. Pictures are cropped to their central square and resized to ``image_size`` pixels.
    ``validation_share``, ``test_share`` and ``split_seed`` deal the splits.
    """

    image_size: int = 64
    validation_share: float = 0.1
    test_share: float = 0.2
    split_seed: int = 0

    card: ClassVar[Card] = replace(UTKFace.card, title="UTKFace, the owners' files")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_image_size(self.image_size)
        check_shares(self.validation_share, self.test_share)

    @property
    def _roles(self) -> Roles:
        shares = self.validation_share, self.test_share
        return Roles(column_of(self.target), inputs=(FILE,), deals_by=(DATE,), shares=shares, seed=self.split_seed)

    def _tables(self) -> list[NamedFiles]:
        folder = dataset_folder(self.root, *FOLDERS)
        return [NamedFiles(str(folder), folder=folder, target=column_of(self.target), seed=self.split_seed)]

    def check(self) -> None:
        """Raise :class:`DataError` if the folder is absent or no name in it can be used."""
        self._tables()[0].read([FILE])

    def _load(self, rows: Rows, split: Split) -> Inputs:
        folder, names = rows.tables[0][0].folder, rows.chosen(FILE)
        return files_inputs(folder, names, lambda at: f"picture {folder / names[at]}", self.image_size)


def _pattern(field: str | None) -> re.Pattern[str]:
    """Return a pattern that yields one field and the date; the other fields need only be whole numbers.

    For None the field that it yields is always empty.
    """
    fields = (r"(\d+)" if one == field else r"\d+" for one in FIELDS)
    first = "()" if field is None else ""
    return re.compile(first + "_".join(fields) + r"_([^_.]+)(?:\.[^_]*)?\.jpg$", re.IGNORECASE)


def _field(name: str, field: str) -> str:
    match = _pattern(field).match(name)
    return str(int(match[1])) if match else ""
