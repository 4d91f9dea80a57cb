"""Splits for data that comes without: by a hash, so that a row's split depends on its key and on nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from levelhead.data.base import Split
from levelhead.types import ConfigError, DataError, listed, quoted

SPLIT_WORDS: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "development", "eval", "evaluation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""What a split is called in folders, files and columns, in small letters."""
SPLITS_SETTING = """--set 'data.splits={"train": ["A"], "validation": ["B"], "test": ["C"]}'"""
"""How the words of a column are named that are none of these."""


def known_splits(words: Collection[str]) -> dict[str, Split]:
    """Return the split that each of the words names, in any case; others are left out.

    ``eval`` is the test split where another word names the validation split and none the test split.
    """
    found = {word: SPLIT_WORDS[plain] for word in words if (plain := word.strip().lower()) in SPLIT_WORDS}
    late = [word for word in found if word.strip().lower() in ("eval", "evaluation")]
    if "test" not in found.values() and any(found[word] == "validation" for word in found.keys() - set(late)):
        found |= dict.fromkeys(late, "test")
    return found


def check_splits(splits: Mapping[Split, Sequence[str | int]] | None, split_column: str | None) -> None:
    """Raise :class:`~levelhead.types.ConfigError` unless ``splits`` names each value of ``split_column`` once."""
    if splits is None:
        return
    if split_column is None:
        raise ConfigError("data.splits says what the values of a column are: name the column with data.split_column.")
    values = [str(value) for named in splits.values() for value in named]
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise ConfigError(f"data.splits names {quoted(twice)} twice; each row belongs to one split.")
    if not splits.get("train"):
        raise ConfigError("data.splits names no value for train, e.g. {train: [0], validation: [1], test: [2]}.")


def named_splits(
    words: Sequence[str], splits: Mapping[Split, Sequence[str | int]] | None, column: str, where: str
) -> list[Split]:
    """Return the split that each row's word in ``column`` names, or raise :class:`~levelhead.types.DataError`."""
    if splits is None:
        known = known_splits(set(words))
    else:
        known = {str(value): split for split, values in splits.items() for value in values}
    wrong = [row for row, word in enumerate(words) if word not in known]
    if wrong:
        advice = f"write train, validation or test, or say what each value is: {SPLITS_SETTING}"
        raise DataError(
            f"{where}: {column!r} is {quoted(words[wrong[0]])} in row {wrong[0] + 1} and names no split in "
            f"{len(wrong)} rows; {advice if splits is None else f'a split is {listed(known)}.'}"
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
            f"data.validation_share {validation_share} and data.test_share {test_share} leave no rows for training."
        )


def deal(keys: Iterable[str], seed: int, validation_share: float, test_share: float) -> list[Split]:
    """Return the split of each row by a hash of its key and ``seed``: equal keys go to one split."""
    return [split_of(position_of(key, seed), validation_share, test_share) for key in keys]


def position_of(key: str, seed: int) -> float:
    """Return a place in [0, 1) that a key and a seed fix, uniform over keys."""
    digest = hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def split_of(position: float, validation_share: float, test_share: float) -> Split:
    """Return the split of a place in [0, 1): test first, then validation, then train."""
    if position < test_share:
        return "test"
    return "validation" if position < test_share + validation_share else "train"
