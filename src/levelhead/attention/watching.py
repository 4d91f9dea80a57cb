"""What the attention of a training pass worked with, with its graph: for losses on queries and on attention.

:mod:`levelhead.attention.capture` reads the same for figures, without a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from levelhead.attention import interface
from levelhead.attention.aligning import Tap, row_of
from levelhead.attention.attach import is_debiased
from levelhead.attention.block import AppendedClassifier
from levelhead.attention.capture import readout_of, row_read
from levelhead.attention.interface import Attended
from levelhead.attention.probe import attended


@contextmanager
def attending(model: nn.Module) -> Iterator[list[Attended]]:
    """Collect what each attention layer of ``model`` works with inside the block, in order, with its graph.

    A plain model attends through this package's function meanwhile, which computes the same by ``sdpa``. All rows of
    the last layer are computed, also where the classifier reads one alone.
    """
    seen: list[Attended] = []
    with interface.switched(model), interface.watched(seen.append):
        yield seen


@dataclass(frozen=True)
class ReadoutQuery:
    """Takes the query of the row that the classifier reads from what the last layer worked with.

    ``width`` is heads times head size.
    """

    tap: Tap
    width: int

    def __call__(self, seen: Attended) -> Tensor:
        """Return (batch, width) float32, as the softmax got it; where no single row is read, the mean over tokens."""
        valid = interface.valid_keys(seen.mask, seen.query.shape[0])
        return row_of(seen.query.float(), row_read(self.tap, seen, valid), valid).flatten(1)


def readout_query(model: Any) -> ReadoutQuery:
    """Find the last attention layer of a network and the row that its classifier reads; the network is unchanged.

    Errors: :class:`~levelhead.UnsupportedModelError` for a network whose attention cannot be reached, or does not see
    one sequence per example.
    """
    if isinstance(model, AppendedClassifier):
        attention = model.block.attention
        return ReadoutQuery(readout_of(model, attention), attention.query.out_features)
    if is_debiased(model):  # its record tells, and to run it before any training would be warned of
        record = model.config.levelhead
        return ReadoutQuery(Tap(record["debias"]["readout"]), record["heads"] * record["head_size"])
    (last,) = attended(model, most=1)
    return ReadoutQuery(readout_of(model, last.module), last.raw_query.shape[1] * last.raw_query.shape[3])


def attention_map(seen: Attended) -> Tensor:
    """Return a layer's attention, the mean over its heads: (batch, queries, tokens) float32, each query's sum 1."""
    return interface.attention_weights(seen.query.float(), seen.key.float(), seen.mask, seen.scaling).mean(dim=1)
