"""The last layer's attention weights of a language model, and its last hidden states; no other layer's are kept.

Fast attention (sdpa) never forms its weights. So the last attention module, and it alone, attends in the plain way:
it gets a configuration of its own, which names :func:`weights_attention`, and continues doing so until :func:`release`,
because gradient checkpointing runs it again during the backward pass. Depth then costs no memory. Three kinds of model
are switched to plain ("eager") attention as a whole, and a warning says so: those that cap attention logits
(Gemma-2), which fast attention leaves out, those with flash or flex attention, whose masks this file cannot read, and
those whose attention module does not ask :class:`~transformers.AttentionInterface` (Falcon).
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout as drop
from transformers import AttentionInterface

from levelhead.attention.interface import INDEXED, refuse_ignored, whole_mask
from levelhead.types import UnsupportedModelError

logger = logging.getLogger(__name__)

NAME = "levelhead_weights"


def _eager(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Return the plain attention function of the module's own family, which knows its heads and its logit cap."""
    for kind in type(module).__mro__:
        found = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if found is not None:
            return found
    return None


def weights_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attend as the family's eager attention does, and return weights before dropout.

    ``query`` (batch, heads, tokens, head size), ``key`` and ``value`` (batch, key heads, tokens, head size); the mask
    is that of sdpa (boolean, True: may look; None: causal) or of eager attention (additive). Returns (batch, tokens,
    heads, head size) and (batch, heads, tokens, tokens).

    Errors: :class:`~levelhead.UnsupportedModelError` for keys that an indexer selects, which eager attention ignores.
    """
    refuse_ignored(module, kwargs, INDEXED)
    eager = _eager(module)
    assert eager is not None  # prepare() has looked
    mask = whole_mask(module, query, attention_mask, kwargs.get("is_causal"))
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    output, weights = eager(module, query, key, value, mask, scaling=scaling, dropout=0.0, **kwargs)
    if dropout and module.training:  # the weights that are compared should not be those with holes
        spread = value.repeat_interleave(weights.shape[1] // value.shape[1], dim=1)
        output = (drop(weights, dropout) @ spread).transpose(1, 2).contiguous()
    return output, weights


AttentionInterface.register(NAME, weights_attention)


@dataclass
class CapturedPass:
    """What one forward pass left: both None until then, and where they were not requested.

    Attributes:
        attention: (batch, heads, tokens, tokens), the last layer's probabilities before dropout, in the model's type.
        hidden: (batch, tokens, width), the last hidden states after the final norm: what the output layer reads.
    """

    attention: Tensor | None = None
    hidden: Tensor | None = None


@dataclass
class _Last:
    """The last attention module of a model, its configuration before, and what all configurations named if changed."""

    module: nn.Module
    config: Any = None
    named: list[tuple[Any, Any]] = field(default_factory=list)


_known: WeakKeyDictionary[nn.Module, _Last] = WeakKeyDictionary()


def unwrapped(model: nn.Module) -> Any:
    """Return the Hugging Face model inside data-parallel and PEFT wrappers."""
    inner: Any = getattr(model, "module", model)
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


def prepare(model: nn.Module, input_ids: Tensor) -> nn.Module:
    """Make the last attention module form its weights, and return it; the second call finds the work done.

    ``input_ids`` (batch, tokens): a few tokens of the first row are sent through the model to see which module is last.

    Errors: :class:`~levelhead.UnsupportedModelError` for an encoder-decoder, for debiased attention, and for a model
    without attention modules or without eager attention.
    """
    inner = unwrapped(model)
    if inner in _known:
        return _known[inner].module
    name = type(inner).__name__
    if not hasattr(inner, "config") or getattr(inner.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{name} is not a Hugging Face decoder: its last attention cannot be read.")
    if any("debias" in part._modules or getattr(part, "tap", None) is not None for part in inner.modules()):
        raise UnsupportedModelError(
            f"The attention of {name} is debiased, and forms no weights. Call levelhead.detach(model) first."
        )
    named = _switch_as_a_whole(inner)  # first, because transformers refuses to run a capped model with sdpa
    module = _last_attention(inner, input_ids)
    last = _known[inner] = _Last(module, named=named)
    config = getattr(module, "config", None)
    if _eager(module) is None or config is None:  # an attention of the old kind, which forms its weights when eager
        if inner.config._attn_implementation == "sdpa":
            last.named = _switched(inner, "its sdpa attention never forms its weights", by_config=True)
        return module
    current = config._attn_implementation
    if current == "sdpa":
        logger.info("The last layer of %s now attends in eager mode; the others stay with sdpa.", name)
    if current != NAME:
        last.config, own = config, copy.copy(config)
        own._attn_implementation_internal = NAME
        module.config = own
    return module


def release(model: nn.Module) -> None:
    """Undo :func:`prepare`; nothing happens to a model that was not prepared."""
    last = _known.pop(unwrapped(model), None)
    if last is None:
        return
    if last.config is not None:
        last.module.config = last.config
    for config, implementation in last.named:
        config._attn_implementation_internal = implementation


def _switch_as_a_whole(inner: Any) -> list[tuple[Any, Any]]:
    """Give eager attention to a model of which one layer cannot have it; return what its configurations named."""
    current = inner.config._attn_implementation or "eager"
    capped = any(getattr(part, "attn_logit_softcapping", None) is not None for part in inner.modules())
    if current == "eager" or (current == "sdpa" and not capped):
        return []
    return _switched(inner, "it caps attention logits" if capped else f"{current!r} attention never forms its weights")


def _switched(inner: Any, why: str, *, by_config: bool = False) -> list[tuple[Any, Any]]:
    """Give eager attention to all layers, with a warning; return what the configurations named."""
    current, name = inner.config._attn_implementation, type(inner).__name__
    logger.warning("%s is switched to eager attention in all layers, because %s.", name, why)
    configs = {id(found): found for part in inner.modules() if (found := getattr(part, "config", None)) is not None}
    named = [(found, getattr(found, "_attn_implementation_internal", None)) for found in configs.values()]
    if by_config:  # transformers refuses to switch what does not ask its AttentionInterface
        for found in configs.values():
            found._attn_implementation_internal = "eager"
    else:
        inner.set_attn_implementation("eager")
    if inner.config._attn_implementation != "eager":
        raise UnsupportedModelError(
            f'{name} cannot be switched from {current!r} to eager attention. Load it with attn_implementation="eager".'
        )
    return named


def _last_attention(inner: Any, input_ids: Tensor) -> nn.Module:
    """Return the innermost attention module that runs last; its place in the module tree would prove nothing."""
    candidates = [
        module
        for module in inner.modules()
        if "Attention" in type(module).__name__
        and not any("Attention" in type(part).__name__ for part in module.modules() if part is not module)
    ]
    seen: list[nn.Module] = []
    handles = [module.register_forward_hook(lambda module, *_: seen.append(module)) for module in candidates]
    devices = [input_ids.device] if input_ids.device.type == "cuda" else []
    try:
        # Dropout must not use up random numbers of the training; checkpointing warns where nothing has a gradient.
        with torch.no_grad(), torch.random.fork_rng(devices), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inner(input_ids=input_ids[:1, :2], use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise UnsupportedModelError(
            f"No attention module was found in {type(inner).__name__}: its last attention cannot be read."
        )
    return seen[-1]


@contextmanager
def captured(
    model: nn.Module, input_ids: Tensor, *, attention: bool = True, hidden: bool = True
) -> Iterator[CapturedPass]:
    """Keep last attention and last hidden states of the forward pass inside the block, with their gradients.

    ``input_ids`` (batch, tokens) are those of that pass. Errors as :func:`prepare`, and at the end of the block for a
    model that gave no weights, or gave them without a gradient.
    """
    result, inner, handles = CapturedPass(), unwrapped(model), []
    if attention:
        handles.append(_watch(prepare(model, input_ids), result))
    if hidden:
        output = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
        if output is None:
            raise UnsupportedModelError(
                f"{type(inner).__name__} has no output embeddings: use a causal language model "
                "(transformers.AutoModelForCausalLM)."
            )

        def keep(module: nn.Module, args: tuple[Any, ...]) -> None:
            result.hidden = args[0]

        handles.append(output.register_forward_pre_hook(keep))
    try:
        yield result
    finally:
        for handle in handles:
            handle.remove()
    learns = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in model.parameters())
    rows, tokens = input_ids.shape
    if attention:
        _check_attention(inner, result.attention, rows, tokens, learns)
    if hidden and (result.hidden is None or result.hidden.shape[:2] != (rows, tokens)):
        raise UnsupportedModelError(f"{type(inner).__name__} does not read the hidden states of all tokens at its end.")


def _watch(module: nn.Module, result: CapturedPass) -> Any:
    """Register the hook that keeps the weights; a later call overwrites them, so one tensor is kept at most."""
    holes = getattr(module, "attn_dropout", None)
    fixed = getattr(module, "config", None) is None or _eager(module) is None
    if fixed and isinstance(holes, nn.Dropout):  # GPT-Neo drops weights before it returns them

        def before(module: nn.Module, args: tuple[Any, ...]) -> None:
            result.attention = args[0]

        return holes.register_forward_pre_hook(before)

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        found = output[1] if isinstance(output, tuple) and len(output) > 1 else None
        result.attention = found if isinstance(found, Tensor) else None

    return module.register_forward_hook(after)


def _check_attention(inner: Any, weights: Tensor | None, rows: int, tokens: int, learns: bool) -> None:
    name = type(inner).__name__
    if weights is None or weights.ndim != 4 or (weights.shape[0], *weights.shape[2:]) != (rows, tokens, tokens):
        raise UnsupportedModelError(
            f"The last attention of {name} gives no weights (batch, heads, tokens, tokens). Load the model with "
            'attn_implementation="eager"; a model that has no eager attention cannot be aligned.'
        )
    if learns and not weights.requires_grad:
        raise UnsupportedModelError(
            f"The attention weights of {name} have no gradient. Gradient checkpointing must be the kind with "
            "use_reentrant=False, which transformers takes by default; otherwise, train the last layer's queries and "
            "keys, or a layer below."
        )
