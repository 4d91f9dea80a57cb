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
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from levelhead.data.base import Card, Examples, Inputs, Split, dataset_folder, refuse_one_class
from levelhead.data.cache import picture_inputs
from levelhead.data.images import PictureFiles, check_image_size
from levelhead.data.splits import check_shares, position_of, split_of
from levelhead.data.utkface import CODES, UTKFaceAttributes, attribute_of, column_of, utkface_card
from levelhead.types import DataError

FIELDS = ("age", "gender", "race")


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

    card: ClassVar[Card] = utkface_card("UTKFace, the owners' files")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_image_size(self.image_size)
        check_shares(self.validation_share, self.test_share)

    def check(self) -> None:
        """Raise :class:`DataError` if the folder is absent or no name in it can be used."""
        self._rows("train")

    def examples(self, split: Split) -> Examples:
        """Return pictures (n, 3, image_size, image_size) and labels of ``split``; reads no other field of the names."""
        files = self._rows(split)
        labels, names = attribute_of(self.target, _codes_of(files, column_of(self.target)))
        refuse_one_class(labels, names, self.target, f"{files[0].parent}, {split}")
        pictures = _pictures(files)
        return picture_inputs(pictures, pictures.where, self.image_size).with_labels(labels, names)

    def inputs(self, split: Split) -> Inputs:
        """Return pictures (n, 3, image_size, image_size) of ``split``; reads the date of the names alone.

        Names are taken whose target field is no known code, too.
        """
        pictures = _pictures(self._rows(split, labelled=False))
        return picture_inputs(pictures, pictures.where, self.image_size)

    def _codes(self, split: Split, column: str) -> Tensor:
        return _codes_of(self._rows(split), column)

    def _rows(self, split: Split, *, labelled: bool = True) -> list[Path]:
        """Return the files of ``split`` in an order that hangs on their dates, contents and targets alone.

        Without ``labelled`` the target's field is not looked at either.
        """
        folder = dataset_folder(self.root, "utkface", "UTKFace")
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


def _pictures(files: Sequence[Path]) -> PictureFiles:
    return PictureFiles(files[0].parent, [file.name for file in files], lambda position: f"picture {files[position]}")


def _pattern(column: str | None) -> re.Pattern[str]:
    """Return a pattern that yields one field and the date; the other fields need only be whole numbers.

    For None the field that it yields is always empty.
    """
    fields = (r"(\d+)" if field == column else r"\d+" for field in FIELDS)
    first = "()" if column is None else ""
    return re.compile(first + "_".join(fields) + r"_([^_.]+)(?:\.[^_]*)?\.jpg$", re.IGNORECASE)


def _codes_of(files: Sequence[Path], column: str) -> Tensor:
    """Return one field of each name, (n,) int64."""
    pattern, count = _pattern(column), len(CODES[column])
    codes = [int(match[1]) if (match := pattern.match(file.name)) else -1 for file in files]
    wrong = [file.name for file, code in zip(files, codes, strict=True) if not 0 <= code < count]
    if wrong:
        raise DataError(
            f"{files[0].parent}: the {column} field is outside 0 to {count - 1} in {len(wrong)} names, first "
            f"{wrong[0]}. Fix or remove these files."
        )
    return torch.tensor(codes, dtype=torch.int64)
