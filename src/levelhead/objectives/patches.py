"""Patches of pictures, replaced by what makes a network err.

Source: Qiang, Li, Khanduri, Zhu, "Fairness-aware vision transformer via debiased self-attention", ECCV 2024; the attack
is that of Fu et al., "Patch-Fool", ICLR 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from levelhead.attention.probe import as_probed, refuse_unreachable
from levelhead.attention.watching import attending, attention_map
from levelhead.objectives.cross_entropy import cross_entropies
from levelhead.types import ConfigError, UnsupportedModelError


@dataclass(frozen=True)
class PatchLayout:
    """How a network cuts pictures: squares of ``size`` pixels, ``count`` of them, row by row.

    Its ``layers`` of attention see ``prefix`` tokens (CLS and the like) and then one a patch.
    """

    size: int
    count: int
    prefix: int
    layers: int


def patch_layout(model: Any, picture: Tensor) -> PatchLayout:
    """Find out by a trial run on one ``picture`` (1, channels, height, width) how a vision transformer cuts pictures.

    The network is unchanged.

    Errors: :class:`~levelhead.UnsupportedModelError` for a network that reads no pictures, or whose attention layers do
    not all see the patches of one whole picture.
    """
    name = type(model).__name__
    if getattr(model, "main_input_name", None) != "pixel_values":
        raise UnsupportedModelError(f"{name} reads no pictures, and there are no patches to replace.")
    cuts = [
        module
        for module in model.modules()
        if isinstance(module, nn.Conv2d) and module.kernel_size == module.stride and len(set(module.kernel_size)) == 1
    ]
    if not cuts:
        raise UnsupportedModelError(f"{name} has no layer that cuts pictures into square patches.")
    size = int(cuts[0].kernel_size[0])
    with as_probed(model), attending(model) as seen:
        model(pixel_values=picture.to(model.device))
    refuse_unreachable(name, bool(seen))
    height, width = picture.shape[-2:]
    count = (height // size) * (width // size)
    shapes = {(layer.query.shape[0], layer.query.shape[2], layer.key.shape[2]) for layer in seen}
    batch, queries, keys = next(iter(shapes))
    whole = len(shapes) == 1 and batch == 1 and queries == keys >= count and height % size == width % size == 0
    if not whole:
        raise UnsupportedModelError(
            f"The attention layers of {name} do not all see every patch of a picture (windows, pooling, or a size that "
            f"is no multiple of {size} pixels), so no patch can be chosen by attention."
        )
    return PatchLayout(size, count, queries - count, len(seen))


def replace_patch(pixels: Tensor, place: Tensor, content: Tensor) -> Tensor:
    """Return pictures (batch, channels, height, width) whose patch ``place`` (batch,) int64 is ``content``.

    ``content`` is (batch, channels, size, size). Patches are counted row by row, from 0.

    Examples:
        >>> import torch
        >>> replace_patch(torch.zeros(1, 1, 2, 4), torch.tensor([1]), torch.ones(1, 1, 2, 2)).squeeze().tolist()
        [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]
    """
    size = content.shape[-1]
    batch, channels, height, width = pixels.shape
    rows, columns = height // size, width // size
    tiles = pixels.reshape(batch, channels, rows, size, columns, size)
    chosen = nn.functional.one_hot(place, rows * columns).bool().view(batch, 1, rows, 1, columns, 1)
    return torch.where(chosen, content[:, :, None, :, None, :], tiles).reshape(pixels.shape)


def without_conflict(gradient: Tensor, other: Tensor) -> Tensor:
    """Return ``gradient`` without what works against ``other``, row by row; both (batch, ...).

    Where their product is negative, the projection on ``other`` is taken off: g - (g . o / |o|^2) o.

    Source: Yu et al., "Gradient surgery for multi-task learning", NeurIPS 2020, arXiv:2001.06782, algorithm 1.

    Examples:
        >>> import torch
        >>> without_conflict(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[0.0, 2.0], [0.0, 2.0]])).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    flat, against = gradient.flatten(1), other.flatten(1)
    product = (flat * against).sum(dim=1, keepdim=True).clamp(max=0)
    length = against.square().sum(dim=1, keepdim=True)
    share = product / torch.where(length > 0, length, 1)
    return (flat - share * against).view_as(gradient)


@dataclass(frozen=True)
class PatchAttack:
    """Replaces, in each picture, the patch that gets most attention by one that makes ``model`` err.

    ``layer`` (from 0) is the one whose attention, the mean over heads and queries, chooses the patch. Its pixels start
    from noise, and climb ``steps`` steps of Adam with the rate ``rate``, 5% less after every 10, between ``low`` and
    ``high`` (channels,): up the cross-entropy, and with the weight ``attention`` up the logarithm of what the patch
    gets of each query's attention in the layers of the lower half but the first; that part's gradient is freed of what
    works against the cross-entropy's (:func:`without_conflict`). No row depends on the others of its batch.

    Errors: :class:`~levelhead.ConfigError` for a ``layer`` that is not there.

    Source: Qiang, Li, Khanduri, Zhu, ECCV 2024, arXiv:2301.13803; Fu et al., ICLR 2022, arXiv:2203.08392.
    """

    model: nn.Module
    layout: PatchLayout
    low: Tensor
    high: Tensor
    layer: int
    steps: int = 20
    rate: float = 0.22
    attention: float = 0.002

    def __post_init__(self) -> None:
        if not 0 <= self.layer < self.layout.layers:
            raise ConfigError(
                f"method.layer is {self.layer}, and the network has {self.layout.layers} attention layers: choose "
                f"0 to {self.layout.layers - 1}."
            )

    def __call__(self, pixels: Tensor, answers: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the place of the patch (batch,) int64 and its content (batch, channels, size, size).

        ``pixels`` (batch, channels, height, width), ``answers`` (batch,) int64 are the right ones, and ``noise``, of
        the content's shape, lies between 0 and 1.
        """
        prefix, was_training = self.layout.prefix, self.model.training
        low, high = (bound.to(pixels)[:, None, None] for bound in (self.low, self.high))
        self.model.eval()
        with torch.no_grad(), attending(self.model) as seen:
            self.model(pixel_values=pixels)
            place = attention_map(seen[self.layer]).mean(dim=1)[:, prefix:].argmax(dim=1)
        content = (low + (high - low) * noise.to(pixels)).requires_grad_()
        optimizer = torch.optim.Adam([content], lr=self.rate)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.95)
        for _ in range(self.steps):
            content.grad = -self._uphill(replace_patch(pixels, place, content), answers, place, content)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                content.copy_(content.maximum(low).minimum(high))
        self.model.train(was_training)
        return place, content.detach()

    def _uphill(self, pixels: Tensor, answers: Tensor, place: Tensor, content: Tensor) -> Tensor:
        """Return the direction in which the content makes the model err more."""
        with attending(self.model) as seen:
            logits = self.model(pixel_values=pixels).logits
        direct = torch.autograd.grad(cross_entropies(logits, answers).sum(), content, retain_graph=True)[0]
        total = direct.clone()
        if self.attention:
            where = (place + self.layout.prefix)[:, None, None]
            for layer in seen[1 : len(seen) // 2]:
                weights = attention_map(layer)
                given = weights.gather(2, where.expand(-1, weights.shape[1], 1)).clamp(min=1e-12)
                drawn = torch.autograd.grad(given.log().mean(dim=(1, 2)).sum(), content, retain_graph=True)[0]
                total += self.attention * without_conflict(drawn, direct)
        return total
