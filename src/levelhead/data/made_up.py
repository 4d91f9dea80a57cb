"""What data sets that are made from a seed have in common: checks of their options, and the size of a split."""

from __future__ import annotations

from typing import ClassVar

from levelhead.data.base import SPLITS, DataSet, Split
from levelhead.types import ConfigError

MOST = 1_000_000
"""Examples of a split: 16 GB of pictures."""


class MadeUp(DataSet):
    """A data set made from ``seed``, with ``SPLIT_size`` examples in each split; ``shares`` name options in [0, 1].

    ``root`` is ignored. Raises :class:`~levelhead.types.ConfigError` for options out of range.
    """

    shares: ClassVar[tuple[str, ...]]
    seed: int  # a field of each class that derives from this one

    def __post_init__(self) -> None:
        kind = type(self).__name__
        for name in self.shares:
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise ConfigError(f"{kind}: {name} must lie in [0, 1], not {share}")
        for name in (f"{split}_size" for split in SPLITS):
            if not 1 <= getattr(self, name) <= MOST:
                raise ConfigError(f"{kind}: {name} must be 1 to {MOST:,}, not {getattr(self, name):,}")
        if self.seed < 0:
            raise ConfigError(f"{kind}: seed must not be negative, not {self.seed}")

    def check(self) -> None:
        """Do nothing: examples are made when they are requested."""

    def _made_of(self, split: Split) -> tuple[int, int, int]:
        """Return what the examples of a split are made of: seed, place of the split, and how many there are."""
        return self.seed, SPLITS.index(split), getattr(self, f"{split}_size")
