"""The disparity of attention: how far the groups' mean logits lie apart, beside the bound that the same rows allow.

Equation 2 of Lu, Wang, Wang, ICLR 2024: delta = E[w | group i] - E[w | group j], for one head, query and key of the
last attention layer. Bounds on the groups' shares alone are in :mod:`levelhead.inspecting.theory`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelhead.attention.capture import Captured

Array = NDArray[np.float64]

MIN_ROWS = 30
"""A mean over fewer rows is large by chance: where a group has fewer, it is not compared."""


class Gap(NamedTuple):
    """Two groups, each array (heads, 1 + queries, keys): query 0 is the readout row, NaN if the model has none.

    ``delta`` is the mean logit of the first less that of the second, ``bound`` the most that second moments of queries
    and keys over all rows allow it to be (for moments of 1: theory.distribution_free_bound), ``rows`` those of the
    smaller group. Where these are fewer than :data:`MIN_ROWS`, delta and bound are NaN.
    """

    delta: Array
    bound: Array
    rows: Array


class Disparity:
    """Sums of attention logits by group, over batches of captured queries and keys; no row is kept."""

    def __init__(self, groups: int) -> None:
        self.scaling = 1.0
        self.sums: list[Tensor | None] = [None] * groups
        self.counts: list[Tensor | None] = [None] * groups
        self.query_squares: Tensor | None = None
        self.key_squares: Tensor | None = None

    def add(self, batch: Captured, members: Tensor) -> None:
        """Add a batch, of which ``members`` (batch,) int64 says the group of each row."""
        self.scaling = batch.scaling
        query, query_valid = _rows(batch)
        key, key_valid = _tokens(batch.debiased_key, batch.valid)
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)  # grouped queries share key heads
        self.query_squares = _added(self.query_squares, query.square().sum(0))
        self.key_squares = _added(self.key_squares, key.square().sum(0))
        for group in range(len(self.sums)):
            mine = members == group
            # One product per head sums over rows and features together.
            left, right = (x[mine].permute(1, 2, 0, 3).flatten(2) for x in (query, key))
            self.sums[group] = _added(self.sums[group], left @ right.transpose(1, 2))
            both = query_valid[mine].double().T @ key_valid[mine].double()
            self.counts[group] = _added(self.counts[group], both)

    def between(self, one: int, other: int) -> Gap:
        """Compare two groups of what was added."""
        assert self.query_squares is not None
        assert self.key_squares is not None
        # Cauchy-Schwarz: the sum over features of sqrt(S_q S_k), where S is the sum of squares over all rows.
        limit = self.scaling * (self.query_squares.sqrt() @ self.key_squares.sqrt().transpose(1, 2)).numpy()
        (first, first_rows), (second, second_rows) = self._mean(one, limit.shape), self._mean(other, limit.shape)
        rows = np.minimum(first_rows, second_rows)
        enough = rows >= MIN_ROWS
        bound = limit / np.maximum(rows, 1)
        return Gap(np.where(enough, first - second, np.nan), np.where(enough, bound, np.nan), rows)

    def _mean(self, group: int, shape: tuple[int, ...]) -> tuple[Array, Array]:
        sums, counts = self.sums[group], self.counts[group]
        assert sums is not None
        assert counts is not None
        rows = np.broadcast_to(_grown(counts, shape[1:]).numpy(), shape)
        total = self.scaling * _grown(sums, shape).numpy()
        return np.divide(total, rows, out=np.full(shape, np.nan), where=rows > 0), rows


def _rows(batch: Captured) -> tuple[Tensor, Tensor]:
    """Queries (batch, heads, 1 + tokens, head size) with the readout row in front, and who is valid (batch, ...).

    Row 0 repeats a position where the readout row is fixed; where it moves (the last real token), it is one more row.
    """
    tokens, valid = _tokens(batch.debiased_query, batch.valid)
    if not batch.other_rows:
        valid = torch.zeros_like(valid)
    if batch.readout is None:
        first = torch.zeros_like(tokens[:, :, :1])
    else:
        first = tokens[torch.arange(len(tokens)), :, batch.readout][:, :, None]
    marked = torch.full((len(tokens), 1), batch.readout is not None)
    return torch.cat([first, tokens], dim=2), torch.cat([marked, valid], dim=1)


def _tokens(x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
    """Queries or keys in float64, 0 at padding, and who is valid (batch, tokens)."""
    if valid is None:
        valid = torch.ones(len(x), x.shape[2], dtype=torch.bool)
    return x.double().where(valid[:, None, :, None], 0.0), valid


def _added(total: Tensor | None, x: Tensor) -> Tensor:
    """Add sums of batches, which differ in length where they are padded."""
    if total is None:
        return x
    shape = tuple(map(max, total.shape, x.shape))
    return _grown(total, shape) + _grown(x, shape)


def _grown(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Pad ``x`` with zeros at the end of each axis."""
    result = x.new_zeros(shape)
    result[tuple(slice(size) for size in x.shape)] = x
    return result
