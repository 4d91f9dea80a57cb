"""The disparity of attention: how far the groups' mean logits lie apart, beside the bound that the same rows allow.

Equation 2 of Lu, Wang, Wang, ICLR 2024: delta = E[w | group i] - E[w | group j], for each head and key of the last
attention layer, and the query of the row that the classifier reads. Bounds on the groups' shares alone are in
:mod:`levelhead.inspecting.theory`.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from levelhead.attention.capture import Captured

Array = NDArray[np.float64]

MIN_ROWS = 30
"""A mean over fewer rows is large by chance: where a group has fewer, it is not compared."""


class Disparity:
    """Sums of the readout row's attention logits by group, over batches of queries and keys; no row is kept."""

    def __init__(self) -> None:
        self.scaling = 1.0
        self.sums = self.counts = self.query_squares = self.key_squares = torch.zeros(1, 0, dtype=torch.float64)

    def add(self, batch: Captured, members: Tensor) -> None:
        """Add a batch, of which ``members`` (batch,) int64 says whether a row belongs to the second group."""
        self.scaling = batch.scaling
        readout = torch.zeros_like(members) if batch.readout is None else batch.readout
        query = batch.debiased_query[torch.arange(len(members)), :, readout].double()
        key = batch.debiased_key.double()
        valid = torch.ones(key.shape[0], key.shape[2], dtype=torch.bool) if batch.valid is None else batch.valid
        key = key.where(valid[:, None, :, None], 0.0)
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)  # grouped queries share key heads
        logits = self.scaling * (key @ query[..., None])[..., 0]
        side = F.one_hot(members, 2).double() * (batch.readout is not None)  # without such a row nothing is compared
        self.sums = _added(self.sums, torch.einsum("bg,bhk->ghk", side, logits))
        self.counts = _added(self.counts, side.T @ valid.double())
        self.query_squares = _added(self.query_squares, query.square().sum(0))
        self.key_squares = _added(self.key_squares, key.square().sum(0).transpose(1, 2))

    def between(self) -> tuple[Array, Array]:
        """Return the mean logit of the first group less that of the second, and its bound, both (heads, keys).

        The bound is the most that second moments of queries and keys over all rows allow (for moments of 1:
        theory.distribution_free_bound). Where a group has fewer rows than :data:`MIN_ROWS`, both are NaN.
        """
        means, rows = self.sums / self.counts.clamp(min=1)[:, None], self.counts.amin(0)
        # Cauchy-Schwarz: the sum over features of sqrt(S_q S_k), where S is the sum of squares over all rows.
        limit = self.scaling * torch.einsum("hd,hdk->hk", self.query_squares.sqrt(), self.key_squares.sqrt())
        both = means[0] - means[1], limit / rows.clamp(min=1)
        delta, bound = (one.where(rows >= MIN_ROWS, torch.nan).numpy() for one in both)
        return delta, bound


def _added(total: Tensor, x: Tensor) -> Tensor:
    """Add sums of batches, which differ in keys, their last axis, where they are padded."""
    most = max(total.shape[-1], x.shape[-1])
    return F.pad(total, (0, most - total.shape[-1])) + F.pad(x, (0, most - x.shape[-1]))
