"""The attention function registered with transformers; the only file that knows how Hugging Face attends.

A model whose ``config._attn_implementation`` is :data:`NAME` calls :func:`levelhead_attention` in each layer. An
attention module with a child ``debias`` gets its queries and keys debiased; one with a ``tap`` is read for alignment;
all others attend as with ``sdpa``, to which the work is delegated in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from levelhead.types import UnsupportedModelError

NAME = "levelhead"
# Where the configuration names neither eager nor sdpa, transformers leaves it to the function to apply these.
IGNORED = {
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "softcap": "capped logits",
    "indices": "keys that an indexer selects",
    "block_indices": "blocks of keys that an indexer selects",
}


@dataclass
class Attended:
    """What one attention module worked with, in the model's own type and place.

    ``raw_query`` and ``raw_key`` as projected, ``query`` and ``key`` as the softmax got them; ``mask`` boolean (True:
    may look) or additive, broadcastable to (batch, heads, queries, keys), or None; ``row`` (batch,) of a tapped module.
    ``value`` (batch, key heads, keys, value size) is never debiased.
    """

    module: nn.Module
    raw_query: Tensor
    raw_key: Tensor
    query: Tensor
    key: Tensor
    mask: Tensor | None
    scaling: float
    row: Tensor | None
    value: Tensor | None = None


_watchers: list[Callable[[Attended], None]] = []


@contextmanager
def _holding(several: list[Any], one: Any) -> Iterator[None]:
    """Keep ``one`` in a list inside the block."""
    several.append(one)
    try:
        yield
    finally:
        several.remove(one)


def watched(take: Callable[[Attended], None]) -> AbstractContextManager[None]:
    """Give every call of :func:`levelhead_attention` inside the block to ``take``, with its tensors."""
    return _holding(_watchers, take)


Edit = Callable[[nn.Module, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
_edits: list[Edit] = []


def edited(change: Edit) -> AbstractContextManager[None]:
    """Let ``change`` replace queries, keys and values just before each softmax inside the block."""
    return _holding(_edits, change)


_wanting: list[bool] = []


def returning_weights(wanted: bool = True) -> AbstractContextManager[None]:
    """Let :func:`levelhead_attention` form and return attention weights inside the block, where ``wanted``."""
    return _holding(_wanting, True) if wanted else nullcontext()


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None, scaling: float, bias: Any = None) -> Tensor:
    """Return softmax(scaling q k^T), (batch, heads, queries, keys) in the type of ``query``; computed in float32.

    ``key`` may have fewer heads; ``mask`` is boolean (True: may look) or additive; ``bias`` is added to the logits.
    """
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    logits = query @ key.transpose(2, 3) * scaling
    if bias is not None:
        logits = logits + bias
    if mask is not None:
        least = torch.finfo(logits.dtype).min  # not -inf: a row of padding alone would be NaN
        logits = logits.masked_fill(~mask, least) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(dim=-1, dtype=torch.float32).to(query.dtype)


def _refuse_ignored(module: nn.Module, arguments: Mapping[str, Any]) -> None:
    """Raise :class:`~levelhead.UnsupportedModelError` for an argument that sdpa would ignore, such as sinks."""
    for name, meaning in IGNORED.items():
        if arguments.get(name) is not None:
            raise UnsupportedModelError(
                f"{type(module).__name__} attends with {meaning} ({name}), which levelhead cannot compute."
            )


def is_observed() -> bool:
    """Return whether somebody collects calls now, who would miss a layer that attends without this function."""
    return bool(_watchers or _edits)


def _whole_mask(module: nn.Module, query: Tensor, mask: Tensor | None, is_causal: bool | None) -> Tensor | None:
    """Spell out the mask that sdpa applies: without one it looks back only, unless the module says otherwise."""
    looks_back = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if mask is not None or not looks_back or query.shape[2] == 1:
        return mask
    return torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=query.device).tril()[None, None]


def _biased(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Add what a family such as T5 adds to the logits for the distance of two tokens."""
    if bias is None or mask is None:
        return mask if bias is None else bias
    return torch.where(mask, bias, -torch.inf) if mask.dtype == torch.bool else bias + mask


def valid_keys(mask: Tensor | None, batch: int) -> Tensor | None:
    """Turn an attention mask (batch or 1, heads or 1, queries, keys) into valid keys (batch, keys).

    A key that no query may look at is padding, also under a causal mask. Boolean masks hold True, additive masks 0
    where a query may look. None, which transformers passes for an unpadded batch, stays None.
    """
    if mask is None:
        return None
    return _allowed(mask).any(dim=2).any(dim=1).expand(batch, -1)


def _allowed(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def is_local(mask: Tensor | None) -> bool:
    """Whether some query may not look at a key that another query of the same example may look at."""
    if mask is None:
        return False
    allowed = _allowed(mask)
    return bool((allowed.any(dim=2, keepdim=True).any(dim=1, keepdim=True) & ~allowed).any())


def levelhead_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attend with debiased queries and keys.

    ``query`` (batch, heads, queries, head size), ``key`` and ``value`` (batch, key heads, keys, ...). Returns
    (batch, queries, heads, value size), and the attention weights (batch, heads, queries, keys) where they are
    requested (``output_attentions``, or inside :func:`returning_weights`); otherwise None, since sdpa never forms them.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ: softmax(q_de k_de^T / sqrt(d)) v, where only
    q and k are debiased.

    Errors: :class:`~levelhead.UnsupportedModelError` for an argument that sdpa ignores and that changes the weights.
    """
    _refuse_ignored(module, kwargs)
    raw_query, raw_key, row = query, key, None
    tap = getattr(module, "tap", None)
    if tap is not None:
        tap.used = True
        valid = valid_keys(attention_mask, query.shape[0])
        row = tap.row(key, valid)
        if not tap.padding_mask:
            attention_mask = valid = None
        scaling = (query.shape[-1] ** -0.5 if scaling is None else scaling) / tap.attention_temperature
        if "debias" in module._modules:
            query, key = module.debias(query, key, valid, row)  # type: ignore[operator]
        tap.take(query, key, value, row, valid, scaling)
    for change in _edits:
        query, key, value = change(module, query, key, value)
    weights, wanted = None, bool(_wanting or kwargs.get("output_attentions"))
    if _watchers or wanted:
        factor = query.shape[-1] ** -0.5 if scaling is None else scaling
        mask, bias = _whole_mask(module, query, attention_mask, kwargs.get("is_causal")), kwargs.get("position_bias")
    for take in _watchers:
        take(Attended(module, raw_query, raw_key, query, key, _biased(mask, bias), factor, row, value))
    if wanted:
        weights = attention_weights(query, key, mask, factor, bias)
        weights = torch.nn.functional.dropout(weights, kwargs.get("dropout", 0.0), training=module.training)
        output = (weights @ value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)).transpose(1, 2)
        output = output.contiguous()
    else:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    if tap is not None:
        tap.watch(output, module)
    return output, weights


AttentionInterface.register(NAME, levelhead_attention)
# Without a mask function of the same name, padding and causality would silently vanish.
AttentionMaskInterface.register(NAME, sdpa_mask)


def _configs(model: nn.Module) -> list[Any]:
    """Return the configurations that name how the modules below ``model`` attend, each once."""
    every = (getattr(module, "config", None) for module in model.modules())
    return list({id(one): one for one in every if hasattr(one, "_attn_implementation_internal")}.values())


def switch(model: nn.Module, implementation: str) -> None:
    """Make every attention module below ``model`` use ``implementation``."""
    for config in _configs(model):
        config._attn_implementation_internal = implementation


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time of the block; then each module gets its own mode back, as a frozen one has one."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def switched(model: nn.Module, implementation: str = NAME) -> Iterator[None]:
    """Make every attention module below ``model`` use ``implementation`` inside the block, and then its own again."""
    before = [(config, config._attn_implementation_internal) for config in _configs(model)]
    switch(model, implementation)
    try:
        yield
    finally:
        for config, own in before:
            config._attn_implementation_internal = own
