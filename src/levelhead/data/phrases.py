"""Phrases: the embedded text data set, put together from phrases.yaml and a seed. Nobody wrote or said them.

A text is one short sentence about an everyday thing, in lower case, its words and its full stop parted by blanks. The
task is the mood at its end, annoyed or pleased. The group is the trade of the person in it, gardener or baker, which
says nothing about the mood: both are pleased equally often. The shortcut is a place, by the station or by the river.
``correlation`` ties it to the mood, from independent (0) to what a plainly trained classifier leans on (1): with
gardeners the river goes with pleased and the station with annoyed, with the fewer bakers it is rather the other way
round. ``noise`` is the share of sentences whose end tells no mood, so that leaning on the place pays in training.

Every example has its own random stream, keyed by (seed, split, position): a larger split begins with the smaller one's
sentences, and two correlations show the same ones with places exchanged. Only uniform draws are used, so the sentences
are the same on every platform.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from levelhead.data.base import Card, Examples, Groups, Split, refuse_one_class
from levelhead.data.made_up import MadeUp
from levelhead.data.texts import Texts
from levelhead.plain_yaml import read_yaml

CLASS_NAMES = ("annoyed", "pleased")
GROUP_NAMES = ("gardener", "baker")

BAKER_RATE = 0.3
PLEASED_RATE = 0.5
AGREEMENT = {"gardener": 0.95, "baker": 0.3}  # P(the place goes with the mood) at correlation 1; 0.5 at 0

# The uniform draws of an example, in order. New names go at the end: the order fixes every sentence.
DRAWS = ["group", "label", "place", "wording", "noise", "order", "time", "event", "mood"]

POOLS: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), "phrases.yaml")
"""What sentences are made of; places and moods by the label that they go with."""


class Written(NamedTuple):
    """A split: its sentences, labels (n,), groups (n,) and whether the place goes with pleased (n,), all int64."""

    texts: tuple[str, ...]
    labels: Tensor
    groups: Tensor
    places: Tensor


@dataclass(frozen=True)
class Phrases(MadeUp):
    """Short sentences: tell annoyed from pleased, with a trade as the group.

    ``correlation`` in [0, 1]: 0 makes place and mood independent; 1 lets them agree for 95 % of the gardeners (70 % of
    the rows) and 30 % of the bakers. ``noise`` in [0, 1] is the share of sentences that tell no mood. The test split
    is distributed as the training split. ``root`` is ignored. Raises :class:`~levelhead.types.ConfigError` for options
    out of range.
    """

    seed: int = 0
    correlation: float = 1.0
    noise: float = 0.2
    train_size: int = 2000
    validation_size: int = 500
    test_size: int = 2000

    shares: ClassVar[tuple[str, ...]] = ("correlation", "noise")
    card: ClassVar[Card] = Card(
        title="Phrases (made up)",
        task="mood: annoyed or pleased",
        groups="trade: gardener or baker",
        licence="Apache-2.0, as the code that writes them",
        citation="levelhead, levelhead.data.phrases",
        url="",
        caution="Made-up sentences for tests and demonstrations; a figure measured here says nothing about people.",
    )

    def examples(self, split: Split) -> Examples:
        """Return the sentences of ``split`` and their moods."""
        written = self._write(split)
        refuse_one_class(written.labels, CLASS_NAMES, "mood", f"Phrases, {split}")
        texts, labels = Texts(written.texts, where=f"Phrases, {split}"), written.labels.clone()
        return texts.with_labels(labels, CLASS_NAMES)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return the trade in every sentence of ``split``."""
        return (Groups("trade", self._write(split).groups.clone(), GROUP_NAMES),)

    def _write(self, split: Split) -> Written:
        return _write_split(*self._made_of(split), self.correlation, self.noise)


def vocabulary() -> tuple[str, ...]:
    """Return every word (and the full stop) that a sentence can hold, sorted: enough for a tokenizer of whole words."""
    parts = [*POOLS["orders"], *POOLS["times"], *POOLS["events"], *POOLS["no_mood"], *GROUP_NAMES]
    parts += [text for pair in (POOLS["places"], POOLS["moods"]) for pool in pair for text in pool]
    return tuple(sorted({word for text in parts for word in text.split() if "{" not in word}))


@lru_cache(maxsize=6)
def _write_split(seed: int, split: int, size: int, correlation: float, noise: float) -> Written:
    texts: list[str] = []
    codes = np.empty((size, 3), np.int64)
    for row in range(size):
        stream = np.random.Generator(np.random.PCG64([seed, split, row]))
        draws = dict(zip(DRAWS, stream.random(len(DRAWS)).tolist(), strict=True))
        group, label = int(draws["group"] < BAKER_RATE), int(draws["label"] < PLEASED_RATE)
        agreement = (1 - correlation) * 0.5 + correlation * AGREEMENT[GROUP_NAMES[group]]
        place = label if draws["place"] < agreement else 1 - label
        codes[row] = label, group, place
        texts.append(
            _pick(POOLS["orders"], draws["order"]).format(
                trade=GROUP_NAMES[group],
                place=_pick(POOLS["places"][place], draws["wording"]),
                time=_pick(POOLS["times"], draws["time"]),
                event=_pick(POOLS["events"], draws["event"]),
                mood=_pick(POOLS["no_mood"] if draws["noise"] < noise else POOLS["moods"][label], draws["mood"]),
            )
        )
    return Written(tuple(texts), *(torch.from_numpy(column.copy()) for column in codes.T))


def _pick(pool: Sequence[str], draw: float) -> str:
    """Return one of a pool; ``draw`` in [0, 1) decides which."""
    return pool[int(draw * len(pool))]
