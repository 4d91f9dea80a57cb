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

from levelhead.data.base import SPLITS, Card, Inputs, Split, check_image_size, dataset_folder
from levelhead.data.cache import picture_inputs
from levelhead.data.images import PictureFiles
from levelhead.data.splits import check_shares, position_of, split_of
from levelhead.data.table_set import Roles, Rows, Table
from levelhead.data.utkface import CODES, UTKFace, UTKFaceAttributes, column_of
from levelhead.types import DataError

FIELDS = ("age", "gender", "race")
FILE = "file"
FOLDERS = ("utkface", "UTKFace")


@dataclass(frozen=True)
class UTKFaceFolder(UTKFaceAttributes):
    """Tell perceived gender as annotated (or white / not white) from a face, from the files of UTKFace's owners.

    The folder is ``utkface`` or ``UTKFace``, with files such as ``26_1_2_20170116.jpg`` or
    ``26_1_2_20170116.jpg.chip.jpg``. Pictures are cropped to their central square and resized to ``image_size`` pixels.
    ``validation_share``, ``test_share`` and ``split_seed`` deal the splits. Names that do not fit are left out with a
    warning that counts them.
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
        return Roles(column_of(self.target), inputs=(FILE,))

    def _tables(self) -> list[NamedFiles]:
        name = str(dataset_folder(self.root, *FOLDERS))
        return [NamedFiles(name, split, self) for split in SPLITS]

    def check(self) -> None:
        """Raise :class:`DataError` if the folder is absent or no name in it can be used."""
        self._rows("train")

    def _load(self, rows: Rows, split: Split) -> Inputs:
        return self._pictures(rows.chosen(FILE))

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, image_size, image_size) of ``split``; reads the date of the names alone.

        Names are taken whose target field is no known code, too.
        """
        return self._pictures([file.name for file in self._rows(split, labelled=False)])

    def _pictures(self, names: Sequence[str]) -> Inputs:
        folder = dataset_folder(self.root, *FOLDERS)
        encoded = PictureFiles(folder, names, lambda position: f"picture {folder / names[position]}")
        return picture_inputs(encoded, encoded.where, self.image_size)

    def _rows(self, split: Split, *, labelled: bool = True) -> list[Path]:
        """Return the files of ``split`` in an order that hangs on their dates, contents and targets alone.

        Without ``labelled`` the target's field is not looked at either.
        """
        folder = dataset_folder(self.root, *FOLDERS)
        column = column_of(self.target) if labelled else None
        pattern, known = _pattern(column), {str(code) for code in range(len(CODES[column]))} if column else {""}
        found: list[tuple[str, str, Path]] = []
        misfits = 0
        for file in folder.iterdir():
            if file.suffix.lower() != ".jpg" or file.name.startswith("."):
                continue
            match = pattern.match(file.name)
            if match and match[1] in known:
                found.append((match[2], match[1], file))
            else:
                misfits += 1
        if not found:
            raise DataError(
                f"{folder} holds no picture named [age]_[gender]_[race]_[date&time].jpg ({misfits} other .jpg files)."
            )
        if misfits:
            warnings.warn(
                f"{misfits} of {misfits + len(found)} pictures in {folder} are left out: their names are not "
                "[age]_[gender]_[race]_[date&time].jpg with a known target.",
                stacklevel=1,  # from one line, so that Python shows it once and not for each split
            )
        repeats = Counter(date for date, _, _ in found)
        pictures = PictureFiles(folder, [file.name for *_, file in found], lambda row: f"picture {found[row][-1]}")
        keyed = []
        for row, (date, code, file) in enumerate(found):
            position = position_of(date, self.split_seed)
            if split_of(position, self.validation_share, self.test_share) == split:
                # Two pictures of one date: what is in them decides, never the rest of the name. The name comes last
                # and decides only between copies, which training cannot distinguish.
                content = hashlib.blake2b(pictures[row]).hexdigest() if repeats[date] > 1 else ""
                keyed.append((position, date, content, code, file.name, file))
        if not keyed:
            raise DataError(f"{folder}: no picture falls into the {split} split; there are {len(found)} in all.")
        return [key[-1] for key in sorted(keyed)]


def _pattern(column: str | None) -> re.Pattern[str]:
    """Return a pattern that yields one field and the date; the other fields need only be whole numbers.

    For None the field that it yields is always empty.
    """
    fields = (r"(\d+)" if field == column else r"\d+" for field in FIELDS)
    first = "()" if column is None else ""
    return re.compile(first + "_".join(fields) + r"_([^_.]+)(?:\.[^_]*)?\.jpg$", re.IGNORECASE)


@dataclass(frozen=True)
class NamedFiles(Table):
    """The files of one split with the fields of their names."""

    data: UTKFaceFolder | None = None

    def header(self) -> list[str]:
        """Return the fields of a name, and the name itself."""
        return [*FIELDS, FILE]

    def read(self, columns: Sequence[str]) -> tuple[dict[str, list[str]], int]:
        """Return fields as texts without leading zeros, and the number of files."""
        assert self.data is not None
        assert self.split is not None
        names = [file.name for file in self.data._rows(self.split)]
        found = {name: names if name == FILE else [_field(one, _pattern(name)) for one in names] for name in columns}
        return found, len(names)


def _field(name: str, pattern: re.Pattern[str]) -> str:
    match = pattern.match(name)
    return str(int(match[1])) if match else ""
