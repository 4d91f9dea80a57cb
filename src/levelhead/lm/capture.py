"""The last layer's attention weights of a language model, and its last hidden states; no other layer's are kept.

Fast attention never forms its weights, so a model is switched to plain ("eager") attention: sentences are short, and
plain attention knows what belongs to each family (caps, sinks). Gradient checkpointing runs layers again during the
backward pass, so the switch stays: :func:`attending_plainly` undoes it behind the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from levelhead.attention import interface
from levelhead.attention.capture import unwrapped
from levelhead.types import UnsupportedModelError

EAGER = "eager"


@dataclass
class CapturedPass:
    """What one forward pass left: both None until then, and where they were not requested.

    Attributes:
        attention: (batch, heads, tokens, tokens), the last layer's probabilities before dropout, in the model's type.
        hidden: (batch, tokens, width), the last hidden states after the final norm: what the output layer reads.
    """

    attention: Tensor | None = None
    hidden: Tensor | None = None


@contextmanager
def attending_plainly(model: nn.Module) -> Iterator[None]:
    """Give all layers of a model plain attention inside the block, and then their own again."""
    with interface.switched(unwrapped(model), EAGER):
        yield


@contextmanager
def captured(
    model: nn.Module, input_ids: Tensor, *, attention: bool = True, hidden: bool = True
) -> Iterator[CapturedPass]:
    """Keep last attention and last hidden states of the forward pass inside the block, with their gradients.

    ``input_ids`` (batch, tokens) are those of that pass. With ``attention`` the model attends plainly from now on, and
    its last attention is in evaluation mode until the next ``model.train()``: dropout would make holes in the weights.

    Errors: :class:`~levelhead.UnsupportedModelError` for an encoder-decoder, for debiased attention, for a model
    without attention modules or output embeddings, and at the end of the block for one that gave no weights, or gave
    them without a gradient.
    """
    result, inner, handles = CapturedPass(), unwrapped(model), []
    name = type(inner).__name__
    if attention:

        def keep_weights(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            found = output[1] if isinstance(output, tuple) and len(output) > 1 else None
            result.attention = found if isinstance(found, Tensor) else None

        modules = _attention_modules(inner)
        interface.switch(inner, EAGER)
        modules[-1].eval()
        handles += [module.register_forward_hook(keep_weights) for module in modules]  # what runs last is kept
    if hidden:
        output = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
        if output is None:
            raise UnsupportedModelError(
                f"{name} has no output embeddings: use a causal language model (transformers.AutoModelForCausalLM)."
            )

        def keep_hidden(module: nn.Module, args: tuple[Any, ...]) -> None:
            result.hidden = args[0]

        handles.append(output.register_forward_pre_hook(keep_hidden))
    try:
        yield result
    finally:
        for handle in handles:
            handle.remove()
    learns = torch.is_grad_enabled() and any(parameter.requires_grad for parameter in model.parameters())
    rows, tokens = input_ids.shape
    if attention:
        _check_attention(name, result.attention, rows, tokens, learns)
    if hidden and (result.hidden is None or result.hidden.shape[:2] != (rows, tokens)):
        raise UnsupportedModelError(f"{name} does not read the hidden states of all tokens at its end.")


def _attention_modules(inner: Any) -> list[nn.Module]:
    """Return the innermost attention modules, or raise for a model whose weights would not be its attention."""
    name = type(inner).__name__
    if not hasattr(inner, "config") or getattr(inner.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{name} is not a Hugging Face decoder: its last attention cannot be read.")
    if any("debias" in part._modules or getattr(part, "tap", None) is not None for part in inner.modules()):
        raise UnsupportedModelError(
            f"The attention of {name} is debiased, and forms no weights. Call levelhead.detach(model) first."
        )
    called = [part for part in inner.modules() if "Attention" in type(part).__name__]
    found = [part for part in called if not any(other in called for other in part.modules() if other is not part)]
    if not found:
        raise UnsupportedModelError(f"No attention module was found in {name}: its last attention cannot be read.")
    return found


def _check_attention(name: str, weights: Tensor | None, rows: int, tokens: int, learns: bool) -> None:
    if weights is None or weights.ndim != 4 or (weights.shape[0], *weights.shape[2:]) != (rows, tokens, tokens):
        raise UnsupportedModelError(
            f"The last attention of {name} gives no weights (batch, heads, tokens, tokens): a model without eager "
            "attention cannot be aligned."
        )
    if learns and not weights.requires_grad:
        raise UnsupportedModelError(
            f"The attention weights of {name} have no gradient. Gradient checkpointing must be the kind with "
            "use_reentrant=False, which transformers takes by default; otherwise, train the last layer's queries and "
            "keys, or a layer below."
        )
