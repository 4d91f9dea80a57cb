"""Queries and keys of the last attention layer, before and after debiasing, for plain and debiased models alike.

What a figure of the paper needs (Lu, Wang, Wang, ICLR 2024, figures 3 and 4): the numbers that the softmax of the last
layer saw, the row that the classifier reads, and that row's attention. Nothing here changes a model: modes and the
choice of attention are put back after every batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from levelhead.attention import interface
from levelhead.attention.aligning import Tap
from levelhead.attention.block import AppendedClassifier
from levelhead.attention.probe import as_probed, attended, find_readout, path_of, probe_inputs
from levelhead.data.base import Inputs
from levelhead.types import UnsupportedModelError


@dataclass(frozen=True)
class Captured:
    """Last attention layer of one batch, float32 on the CPU.

    Attributes:
        query: (batch, heads, tokens, head size), as projected.
        key: (batch, key heads, tokens, head size), as projected; fewer heads than the query with grouped queries.
        debiased_query: after the standardizer; the raw one again where nothing is debiased.
        debiased_key: likewise.
        scaling: factor on the dot products.
        valid: (batch, tokens) bool, False at padding, or None where nothing is padded (or the layer saw none).
        readout: (batch,) int64 index of the row that the classifier reads, or None where it reads no single row or
            none could be proved.
        mask: what the softmax sees besides: boolean (True: may look) or additive, broadcastable to (batch,
            heads, tokens, tokens), or None.
    """

    query: Tensor
    key: Tensor
    debiased_query: Tensor
    debiased_key: Tensor
    scaling: float
    valid: Tensor | None
    readout: Tensor | None
    mask: Tensor | None = None


def capture(model: nn.Module, inputs: Inputs, batch_size: int, device: torch.device | str) -> Iterator[Captured]:
    """Run ``model`` over ``inputs`` in row order and yield what its last attention layer worked with, batch by batch.

    The model lies on ``device`` already, and may be wrapped by PEFT; it runs in evaluation mode, without gradients. A
    plain model attends through this package's function for the time of a batch, which computes the same by ``sdpa``.
    The readout row of a plain model is proved with noise, as :func:`~levelhead.attach` does.

    Errors: :class:`~levelhead.UnsupportedModelError` for a model whose attention cannot be reached, or whose last
    attention does not see one sequence per example.
    """
    tap: Tap | None = None
    for index in torch.arange(len(inputs)).split(batch_size):
        batch = {name: tensor.to(device) for name, tensor in inputs.batch(index).items()}
        (seen,) = attended(model, batch, most=1)
        tap = tap or readout_of(model, seen.module)
        yield captured(tap, seen)


def unwrapped(model: Any) -> Any:
    """Return the network inside of what PEFT wrapped; any other model as it is."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def readout_of(model: Any, last: nn.Module) -> Tap:
    """Return which row a classifier reads: as recorded of it and its ``last`` attention, or else proved with noise."""
    inner = unwrapped(model)
    if isinstance(inner, AppendedClassifier):
        return inner.readout
    if isinstance(tap := getattr(last, "tap", None), Tap):
        return tap
    try:
        example = probe_inputs(model)
        with as_probed(model):
            (seen,) = attended(model, example, most=1)
            return Tap(find_readout(model, path_of(model, last), example, seen.raw_query.shape[2]))
    except UnsupportedModelError:  # no example to try it on, or layers that cannot be distinguished
        return Tap("none")


def row_read(tap: Tap, seen: interface.Attended, valid: Tensor | None) -> Tensor | None:
    """Return the row (batch,) of a layer's pass that is read, or None; ``valid`` is False at padding."""
    return seen.row if seen.row is not None else tap.row(seen.query, valid)


def captured(tap: Tap, seen: interface.Attended) -> Captured:
    """Take what a layer worked with off its device, in float32."""
    valid, mask = interface.valid_keys(seen.mask, len(seen.query)), seen.mask
    row = row_read(tap, seen, valid)
    if valid is not None and bool(valid.all()):
        valid = None
    if mask is not None:
        mask = mask.cpu() if mask.dtype == torch.bool else settled(mask)
    return Captured(
        settled(seen.raw_query),
        settled(seen.raw_key),
        settled(seen.query),
        settled(seen.key),
        seen.scaling,
        None if valid is None else valid.cpu(),
        None if row is None else row.cpu(),
        mask,
    )


def settled(tensor: Tensor) -> Tensor:
    """Return a tensor off its device, in float32 and without its graph."""
    return tensor.detach().float().cpu()


def attention_weights(captured: Captured, logits: Tensor | None = None) -> Tensor:
    """Attention of the readout row, (batch, heads, tokens): softmax of the debiased logits, the mask respected.

    Only that row is computed. Without a readout row, the mean over the query rows that are no padding. ``logits`` are
    those of :func:`attention_logits` where they are known.
    """
    weights = (attention_logits(captured) if logits is None else logits).softmax(dim=-1)
    if captured.readout is not None:
        return weights[:, :, 0]
    if captured.valid is None:
        return weights.mean(dim=2)
    rows = captured.valid[:, None, :, None]  # not a product: the row of a padded query may hold NaN
    return torch.where(rows, weights, 0).sum(dim=2) / rows.sum(dim=2).clamp(min=1)


def attention_logits(captured: Captured) -> Tensor:
    """Debiased logits (batch, heads, queries, tokens), -inf where the mask forbids to look.

    ``queries`` is the readout row alone, or all rows where the classifier reads no single one.
    """
    query, key, mask = captured.debiased_query, captured.debiased_key, captured.mask
    batch, heads = query.shape[:2]
    here = torch.arange(batch)
    if captured.readout is not None:
        query = query[here, :, captured.readout][:, :, None]
        if mask is not None and mask.shape[2] > 1:
            mask = mask.expand(batch, -1, -1, -1)[here, :, captured.readout][:, :, None]
    key = key.repeat_interleave(heads // key.shape[1], dim=1)
    logits = captured.scaling * query @ key.transpose(2, 3)
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    return logits
