"""Which texts a language model reads together, and pure helpers on lists of token ids."""

from __future__ import annotations

import difflib
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

Part = TypeVar("Part")
SPREAD = 8  # an eighth of a context's tokens: by so much may those of one batch be shorter


def batches(
    lengths: list[int],
    limit: int,
    *,
    together: bool = False,
    rows: list[int] | None = None,
    most: int | None = None,
    spread: bool = False,
    equal: bool = False,
) -> Iterator[list[int]]:
    """Yield indices of like length, the longest first: what is too much for memory shows at once.

    ``limit`` bounds the tokens of a batch, padding included, and ``most`` its rows. An index has ``rows`` rows (None:
    one); ``together``: they count as one length. ``spread`` and ``equal`` bound how far apart the lengths of
    a batch are: by :data:`SPREAD`, or not at all.
    """
    batch: list[int] = []
    members = tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        more = 1 if rows is None else rows[index]
        if batch:
            longest = lengths[batch[0]]
            apart = longest - lengths[index]
            far = (equal and apart > 0) or (spread and apart > longest // SPREAD)
            many = most is not None and members + more > most
            if far or many or tokens + (1 if together else more) * longest > limit:
                yield batch
                batch, members, tokens = [], 0, 0
        batch.append(index)
        members += more
        tokens += (1 if together else more) * lengths[batch[0]]
    if batch:
        yield batch


def gathered(
    parts: Iterable[tuple[tuple[int, int], Part]], counts: Mapping[int, int]
) -> Iterator[tuple[int, list[Part]]]:
    """Yield ``(index, its parts in order)`` as soon as all are there, of parts ``((index, number), part)``."""
    waiting: dict[int, dict[int, Part]] = {}
    for (index, number), part in parts:
        waiting.setdefault(index, {})[number] = part
        if len(waiting[index]) == counts[index]:
            yield index, [part for _, part in sorted(waiting.pop(index).items(), key=lambda one: one[0])]


def shared_prefix(first: list[int], second: list[int]) -> int:
    """Return how many tokens both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def shared_positions(first: Sequence[int], second: Sequence[int], autojunk: bool = True) -> list[tuple[int, int]]:
    """Return the positions of the tokens that both hold, in order, as pairs; ``autojunk`` is difflib's.

    >>> shared_positions([1, 7, 2, 3], [1, 8, 9, 2, 3])
    [(0, 0), (2, 3), (3, 4)]
    """
    blocks = difflib.SequenceMatcher(None, first, second, autojunk).get_matching_blocks()
    return [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]


def uniform_draws(seed: int, text: str, count: int) -> np.ndarray:
    """Return draws (count,) in [0, 1) that depend on the seed and the text alone."""
    digest = hashlib.blake2b(f"{seed}\n{text}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).random(count)


def until(tokens: list[int], ends: set[int]) -> list[int]:
    """Return the tokens before the first that ends a text."""
    return list(itertools.takewhile(lambda token: token not in ends, tokens))


def name_of(names: Sequence[str] | None, index: int) -> str:
    """Return what an error calls the text at ``index``: its name, or the index where no names are given."""
    return str(index) if names is None else names[index]
