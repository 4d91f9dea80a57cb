"""Attention over the patches of pictures: the row that the classifier reads, the grid, and what patches show."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from levelhead.attention.capture import Captured, attention_logits
from levelhead.data.portraits import MASK_NAMES, Portraits
from levelhead.inspecting.source import Array, OpenedRun


def shares_of_patches(captured: Captured, outside: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Share of the attention on patches that each patch gets (batch, patches), and the attention elsewhere (batch,).

    Attention is averaged over heads, and over query rows where the classifier reads no single one. The first
    ``outside`` tokens are no patches. In float64 and by logarithms: all that a row has left for patches may be less
    than the smallest number, and its shares of that still count.
    """
    logs = attention_logits(captured).double().log_softmax(dim=-1)
    if captured.readout is None and captured.valid is not None:  # averaging leaves padded query rows out
        logs = logs.masked_fill(~captured.valid[:, None, :, None], -torch.inf)
    # Summed, not averaged: a constant factor cancels in the shares.
    logs = logs.logsumexp(dim=(1, 2))
    patches = logs[:, outside:]
    return patches.softmax(dim=1), 1 - (patches.logsumexp(dim=1) - logs.logsumexp(dim=1)).exp()


def patch_grid(model: Any) -> tuple[int, int] | None:
    """Patches down and across, from the network's config; None where it does not cut pictures into a fixed grid."""
    config = model.backbone.config if hasattr(getattr(model, "backbone", None), "config") else model.config
    config = getattr(config, "vision_config", config)
    size, patch = getattr(config, "image_size", None), getattr(config, "patch_size", None)
    if size is None or patch is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    tall, wide = (patch, patch) if isinstance(patch, int) else patch
    return height // tall, width // wide


def part_fractions(opened: OpenedRun, index: Tensor, down: int, across: int) -> Array | None:
    """Fraction of each patch's pixels that show each part (rows, patches, parts) of the rows at ``index`` (rows,).

    None but for drawn portraits.
    """
    data = opened.experiment.data
    if not isinstance(data, Portraits):
        return None
    masks = data.masks(opened.split)[index]
    blocks = masks.unflatten(1, (down, -1)).unflatten(3, (across, -1))  # rows, down, tall, across, wide
    shares = [(blocks == code).double().mean(dim=(2, 4)).flatten(1) for code in range(len(MASK_NAMES))]
    return cast(Array, torch.stack(shares, dim=2).numpy())
