"""A backbone that runs on parts of a batch: texts of like length, or few rows at a time where memory is short.

What comes after the backbone sees the whole batch, so that batch statistics, alignment and objectives are those of one
batch. Gradient accumulation would make them those of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def last_hidden_state(
    backbone: nn.Module,
    inputs: Mapping[str, Any],
    parts: int = 1,
    micro_batch: int | None = None,
    *,
    padding_is_text: bool = False,
) -> Tensor:
    """Return the last hidden states (batch, tokens, width) of ``inputs``.

    With several ``parts`` the rows are sorted by length, divided into as many parts, and each part is cut to its
    longest row. The states of real tokens are the same (dropout draws other numbers), those of padding are 0. Done
    where ``attention_mask`` (batch, tokens) pads on the right and every other tensor has its shape, unless what follows
    reads padding as text; otherwise the batch runs whole.

    With ``micro_batch`` the backbone runs on at most this many rows at a time, and once more on each part in the
    backward
    pass, with the same dropout: the activations of one part are all that memory has to hold. Gradients are those of the
    whole batch.

    Source of the second: Gao, Zhang, Han, Callan, "Scaling deep contrastive learning batch size under memory limited
    setup", RepL4NLP 2021, section 3 (GradCache), done by recomputation (Chen et al., arXiv 1604.06174).
    """
    mask: Any = inputs.get("attention_mask")
    if torch.compiler.is_compiling() or (parts < 2 and not micro_batch):
        return _states(backbone, inputs)
    rows = max((len(x) for x in inputs.values() if isinstance(x, Tensor) and x.ndim), default=0)
    most = micro_batch or rows
    parts = max(parts, -(-rows // most) if most else 1)
    if parts < 2:
        return _states(backbone, inputs)
    run: Callable[..., Tensor] = _recomputed if micro_batch and torch.is_grad_enabled() else _states
    if padding_is_text or not _can_be_cut(inputs, mask):
        chunks = [slice(start, start + most) for start in range(0, rows, most)]
        return torch.cat([run(backbone, _of(inputs, rows, chunk)) for chunk in chunks])
    lengths = mask.sum(dim=1)
    order = lengths.argsort()
    found = []
    for some in order.tensor_split(min(parts, len(order))):
        longest = int(lengths[some].max())
        part = {name: x[some, :longest] if isinstance(x, Tensor) else x for name, x in inputs.items()}
        found.append(F.pad(run(backbone, part), (0, 0, 0, mask.shape[1] - longest)))
    return torch.cat(found)[order.argsort()]


def _states(backbone: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    return cast(Tensor, backbone(**inputs).last_hidden_state)


def _recomputed(backbone: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
    return cast(Tensor, checkpoint(_states, backbone, inputs, use_reentrant=False))


def _of(inputs: Mapping[str, Any], rows: int, chunk: slice) -> dict[str, Any]:
    """Return the inputs of some rows; what is not one value a row, such as positions (1, tokens), is for all."""
    return {name: x[chunk] if isinstance(x, Tensor) and x.ndim and len(x) == rows else x for name, x in inputs.items()}


def _can_be_cut(inputs: Mapping[str, Any], mask: Any) -> bool:
    if not isinstance(mask, Tensor) or mask.ndim != 2 or not len(mask):
        return False
    if any(isinstance(x, Tensor) and x.shape != mask.shape for x in inputs.values()):
        return False
    falls = mask[:, 1:].long() <= mask[:, :-1].long()  # padding on the right: no word after padding
    return bool(falls.all() & mask[:, 0].bool().all())
