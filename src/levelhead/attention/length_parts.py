"""A backbone that runs on parts of a batch of texts, alike in length, because padding costs as much as words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def last_hidden_state(backbone: nn.Module, inputs: Mapping[str, Any], parts: int = 1) -> Tensor:
    """Return the last hidden states (batch, tokens, width) of ``inputs``.

    With several ``parts`` the rows are sorted by length, divided into as many parts, and each part is cut to its
    longest row. The states of real tokens are the same (dropout draws other numbers), those of padding are 0. Done
    where ``attention_mask`` (batch, tokens) pads on the right and every other tensor has its shape; otherwise the batch
    runs whole.
    """
    mask: Any = inputs.get("attention_mask")
    if parts < 2 or torch.compiler.is_compiling() or not _can_be_cut(inputs, mask):
        return cast(Tensor, backbone(**inputs).last_hidden_state)
    lengths = mask.sum(dim=1)
    order = lengths.argsort()
    found = []
    for rows in order.tensor_split(min(parts, len(order))):
        longest = int(lengths[rows].max())
        part = {name: x[rows, :longest] if isinstance(x, Tensor) else x for name, x in inputs.items()}
        hidden = backbone(**part).last_hidden_state
        found.append(F.pad(hidden, (0, 0, 0, mask.shape[1] - longest)))
    return torch.cat(found)[order.argsort()]


def _can_be_cut(inputs: Mapping[str, Any], mask: Any) -> bool:
    if not isinstance(mask, Tensor) or mask.ndim != 2 or not len(mask):
        return False
    if any(isinstance(x, Tensor) and x.shape != mask.shape for x in inputs.values()):
        return False
    falls = mask[:, 1:].long() <= mask[:, :-1].long()  # padding on the right: no word after padding
    return bool(falls.all() & mask[:, 0].bool().all())
