"""Queries and keys of the last attention layer, before and after debiasing, for plain and debiased models alike.

What a figure of the paper needs (Lu, Wang, Wang, ICLR 2024, figures 3 and 4): the numbers that the softmax of the last
layer saw, the row that the classifier reads, and that row's attention. Nothing here changes a model: modes and the
choice of attention are put back after every batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from levelhead.attention import interface
from levelhead.attention.aligning import Tap, debiased_attention
from levelhead.attention.block import AppendedClassifier, BlockAttention
from levelhead.attention.probe import as_probed, attended, find_readout, path_of, probe_inputs
from levelhead.attention.standardize import QueryKeyStandardizer
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
        other_rows: whether queries of other rows mean anything. A layer that was trained on the readout row alone has
            no statistics for them.
    """

    query: Tensor
    key: Tensor
    debiased_query: Tensor
    debiased_key: Tensor
    scaling: float
    valid: Tensor | None
    readout: Tensor | None
    mask: Tensor | None = None
    other_rows: bool = True


def capture(model: nn.Module, inputs: Inputs, batch_size: int, device: torch.device | str) -> Iterator[Captured]:
    """Run ``model`` over ``inputs`` in row order and yield what its last attention layer worked with, batch by batch.

    The model lies on ``device`` already, and may be wrapped by PEFT; it runs in evaluation mode, without gradients. A
    plain model attends through this package's function for the time of a batch, which computes the same by ``sdpa``.
    The readout row of a plain model is proved with noise, as :func:`~levelhead.attach` does.

    Errors: :class:`~levelhead.UnsupportedModelError` for a model whose attention cannot be reached, or whose last
    attention does not see one sequence per example.
    """
    rule: str | None = None
    wrapper: Any = model
    inner = wrapper.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT wraps what it adapts
    for index in torch.arange(len(inputs)).split(batch_size):
        batch = {name: tensor.to(device) for name, tensor in inputs.batch(index).items()}
        if isinstance(inner, AppendedClassifier):
            yield _of_block(model, inner, batch)
            continue
        (seen,) = attended(model, batch, most=1)
        if rule is None:
            rule = readout_rule(model, seen.module)
        valid = interface.valid_keys(seen.mask, len(index))
        if valid is not None and bool(valid.all()):
            valid = None
        captured = captured_of(seen, valid, _row(rule, seen, valid))
        yield replace(captured, other_rows=not _row_alone(seen.module._modules.get("debias")))


def attention_weights(captured: Captured) -> Tensor:
    """Attention of the readout row, (batch, heads, tokens): softmax of the debiased logits, the mask respected.

    Only that row is computed. Without a readout row, the mean over the query rows that are no padding.
    """
    weights = attention_logits(captured).softmax(dim=-1)
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


def captured_of(seen: interface.Attended, valid: Tensor | None, row: Tensor | None) -> Captured:
    """Take what a layer worked with off its device, in float32."""

    def settled(tensor: Tensor) -> Tensor:
        return tensor.detach().float().cpu()

    mask = seen.mask
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


def readout_rule(model: Any, module: nn.Module) -> str:
    """``first``, ``last`` or ``none``: as recorded by attach, otherwise proved with noise."""
    tap = getattr(module, "tap", None)
    if isinstance(tap, Tap):
        return tap.readout
    try:
        example = probe_inputs(model)
        with as_probed(model):
            (last,) = attended(model, example, most=1)
            return find_readout(model, path_of(model, module), example, last.raw_query.shape[2])
    except UnsupportedModelError:  # no example to try it on, or layers that cannot be distinguished
        return "none"


def _row(rule: str, seen: interface.Attended, valid: Tensor | None) -> Tensor | None:
    return seen.row if seen.row is not None else Tap(rule).row(seen.raw_query, valid)


def _of_block(model: nn.Module, appended: AppendedClassifier, batch: dict[str, Tensor]) -> Captured:
    """Run ``model``, which is ``appended`` or wraps it, and read the appended layer."""
    attention = cast(BlockAttention, debiased_attention(appended))
    raw: dict[str, Tensor] = {}
    handles = [
        layer.register_forward_hook(lambda module, args, output, name=name: raw.__setitem__(name, output))
        for name, layer in (("query", attention.query), ("key", attention.key))
    ]
    shown: list[tuple[Any, ...]] = []

    def take(
        query: Tensor, key: Tensor, value: Tensor, row: Tensor | None, valid: Tensor | None, scaling: float
    ) -> None:
        shown[:] = [(query, key, row, valid, scaling)]

    vars(attention.tap)["take"] = take  # hides the method of this one tap, which keeps nothing in evaluation anyway
    try:
        with interface.evaluating(model), torch.no_grad():
            model(**batch)
    finally:
        del vars(attention.tap)["take"]
        for handle in handles:
            handle.remove()
    query, key, row, valid, scaling = shown[0]
    if row is None:  # the plain layer of the same size has no row of its own, but the head reads one
        row = appended.readout.row(query, valid, first_real=True)
    split = {name: output.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for name, output in raw.items()}
    mask = None if valid is None else valid[:, None, None, :]
    seen = interface.Attended(attention, split["query"], split["key"], query, key, mask, scaling, row)
    return replace(captured_of(seen, valid, row), other_rows=not _row_alone(attention.debias))


def _row_alone(debias: Any) -> bool:
    """Whether a layer has computed the readout row alone, even once: other queries' statistics are out of date then."""
    if not isinstance(debias, QueryKeyStandardizer):
        return False
    return bool((debias.query.num_batches_tracked < debias.key.num_batches_tracked).any())
