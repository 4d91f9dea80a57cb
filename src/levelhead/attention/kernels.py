"""Standardising a batch and dropping the sign in one step of the graph: less memory than the operations one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Replacement(NamedTuple):
    """Rows with statistics of their own: token ``at`` (batch,) int64 of each example becomes ``row``.

    ``row`` is (batch, heads, 1, head size), standardised already.
    """

    at: Tensor
    row: Tensor


def standardize_batch(
    x: Tensor, eps: float, *, per_position: bool, absolute: bool, replacement: Replacement | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``|(x - mean) / sqrt(variance + eps)|``, with the gradient through the moments, mean and variance (by n).

    The first is (batch, heads, tokens, head size) and alone carries a graph; the moments are (heads, rows, head size),
    with one row where positions share their statistics. Moments are taken over the batch, each position apart or over
    batch and positions. What waits for the backward pass is the result, which the layer keeps anyway, and one byte a
    number for its sign.

    Args:
        x: (batch, heads, tokens, head size), float32 or float64, with at least two numbers for each moment.
        eps: added to the variance, above 0.
        per_position: keep positions apart.
        absolute: drop the sign.
        replacement: what stands in the result for one token of each example, which still counts in the moments; to put
            it there afterwards would keep a second copy of the result. Only without ``per_position``.
    """
    tokens_first = x.transpose(1, 2)  # as projections lay them out, so that flattening copies nothing
    rows = tokens_first.flatten(1) if per_position else tokens_first.flatten(0, 1).flatten(1)
    index = row = None
    if replacement is not None:
        batch, tokens = tokens_first.shape[:2]
        index = torch.arange(batch, device=x.device) * tokens + replacement.at
        row = replacement.row.flatten(1)
    clean, mean, variance = _Standardize.apply(rows, eps, absolute, index, row)
    shape = tokens_first.shape[1:] if per_position else (1, *tokens_first.shape[2:])
    mean, variance = (moment.view(shape).transpose(0, 1) for moment in (mean, variance))
    return clean.view(tokens_first.shape).transpose(1, 2), mean, variance


class _Standardize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, eps: float, absolute: bool, index: Tensor | None, row: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1])
        # With a momentum of 1, what the kernel would remember are this batch's moments.
        clean, _, inverse = torch.native_batch_norm(x, None, None, mean, variance, True, 1.0, eps)
        variance *= (len(x) - 1) / len(x)  # it is remembered by n - 1
        sign = None
        if absolute:
            sign = (clean > 0).view(torch.int8) - (clean < 0).view(torch.int8)
            clean.abs_()
        replaced = None
        if index is not None and row is not None:
            replaced = clean[index]
            clean[index] = row
        ctx.save_for_backward(clean, sign, inverse, index, replaced)
        ctx.mark_non_differentiable(mean, variance)
        return clean, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, None, None, None, Tensor | None]:
        clean, sign, inverse, index, replaced = ctx.saved_tensors
        # With y the result and s its sign: dx = (s (g - y mean(g y)) - mean(s g)) / deviation, and as s y has the mean
        # 0, one mean serves for both. In a replaced row g is 0, and its gradient goes to what replaced it.
        along = (gradient * clean).mean(dim=0)
        of_row = None
        if index is not None:
            of_row = gradient[index]
            along -= (of_row * clean[index]).sum(dim=0) / len(clean)
        result = torch.addcmul(gradient, clean, along, value=-1)
        if index is not None:
            result[index] = -replaced * along
        if sign is not None:
            result *= sign
        return result.sub_(result.mean(dim=0)).mul_(inverse), None, None, None, of_row
