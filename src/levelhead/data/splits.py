"""Splits for data that comes without: by a hash, so that a row's split depends on its key and on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from levelhead.data.base import Split
from levelhead.types import ConfigError, DataError, quoted


def named_splits(words: Sequence[str], known: Mapping[str, Split], column: str, path: Path) -> list[Split]:
    """Return the split that each row's word in ``column`` names, or raise :class:`~levelhead.types.DataError`."""
    wrong = [row for row, word in enumerate(words) if word not in known]
    if wrong:
        raise DataError(
            f"{path}: {column!r} is {quoted(words[wrong[0]])} in row {wrong[0] + 1} and names no split in "
            f"{len(wrong)} rows; write train, validation or test."
        )
    return [known[word] for word in words]


def check_shares(validation_share: float, test_share: float) -> None:
    """Raise :class:`~levelhead.types.ConfigError` unless both are shares and leave something to train on.

    A test share of 1 is that of data which are evaluated as a whole, and never trained on: the other one is then
    without meaning.
    """
    if test_share == 1:
        return
    for name, share in (("validation_share", validation_share), ("test_share", test_share)):
        if not 0 < share < 1:
            raise ConfigError(f"data.{name} is {share}; it must lie between 0 and 1.")
    if validation_share + test_share >= 1:
        raise ConfigError(
            f"data.validation_share {validation_share} and data.test_share {test_share} leave nothing to train on."
        )


def deal(keys: Iterable[str], seed: int, validation_share: float, test_share: float) -> list[Split]:
    """Return the split of each row by a hash of its key and ``seed``: equal keys go to one split."""
    return [split_of(position_of(key, seed), validation_share, test_share) for key in keys]


def rows_of(dealt: Sequence[Split], split: Split, where: object, test_share: float) -> list[int]:
    """Return the positions of the rows of ``split``, in order; none is a :class:`~levelhead.types.DataError`."""
    rows = [row for row, name in enumerate(dealt) if name == split]
    if not rows:
        whole = " data.test_share is 1: all of them are test rows, and none is left to train on."
        raise DataError(
            f"{where}: no row is of the {split} split; there are {len(dealt)} rows in all."
            + (whole if test_share == 1 and split != "test" else "")
        )
    return rows


def position_of(key: str, seed: int) -> float:
    """Return a place in [0, 1) that a key and a seed fix, uniform over keys."""
    digest = hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def split_of(position: float, validation_share: float, test_share: float) -> Split:
    """Return the split of a place in [0, 1): test first, then validation, then train."""
    if position < test_share:
        return "test"
    return "validation" if position < test_share + validation_share else "train"
