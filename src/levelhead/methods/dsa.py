"""DSA: debiased self-attention (Qiang et al., ECCV 2024); a reference that sees groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from levelhead.methods.base import Method
from levelhead.methods.group_dro import group_count
from levelhead.objectives.patches import PatchAttack, patch_layout
from levelhead.objectives.self_attention import DebiasedSelfAttention, GroupPrediction
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class DSA(Method):
    """Replace the patch that tells the group, and learn from the pictures with and without it.

    It sees demographic labels in training, and is marked ORACLE. A first network learns to tell the group
    (``bias_epochs``, None: the recipe's number). Each training picture then gets one patch replaced: the one with the
    most attention in layer ``layer`` (from 0; None: a third of the way up) of that network, by ``attack_steps`` steps
    of Adam, of the rate ``attack_rate``, that make it err and, weighted by ``attack_attention``, look there. The kept
    network is trained on both pictures, with weights ``adversarial`` of the changed one and ``alignment`` of the
    divergence of their attention. Pictures alone, and a network whose weights are all trained.

    Source: Qiang, Li, Khanduri, Zhu, "Fairness-aware vision transformer via debiased self-attention", ECCV 2024,
    arXiv:2301.13803.
    """

    summary: ClassVar[str] = (
        "debiased self-attention: replaces the patch that reveals the group; sees groups (ECCV 2024)"
    )
    uses_groups: ClassVar[bool] = True
    changes_pixels: ClassVar[bool] = True
    bias_epochs: int | None = None
    layer: int | None = None
    attack_steps: int = 20
    attack_rate: float = 0.22
    attack_attention: float = 0.002
    adversarial: float = 1.0
    alignment: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(
            "method",
            self,
            at_least_one=("bias_epochs", "attack_steps"),
            positive=("attack_rate",),
            at_least_zero=("layer", "attack_attention", "adversarial", "alignment"),
        )

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the network that tells the group, replace patches once, train the kept network on both."""
        groups = group_count(lab, "dsa")
        low, high, picture = pixel_range(lab)
        scout = lab.new_auxiliary(classes=groups)
        layout = patch_layout(scout, picture)
        attack = PatchAttack(
            scout,
            layout,
            low,
            high,
            layout.layers // 3 if self.layer is None else self.layer,
            self.attack_steps,
            self.attack_rate,
            self.attack_attention,
        )
        yield Stage(GroupPrediction(scout), epochs=self.bias_epochs, groups=lab.groups, select="last", scored=False)
        scout.requires_grad_(False)
        shape = (len(low), layout.size, layout.size)
        noise = torch.rand(len(lab.labels), *shape, generator=lab.rng, dtype=torch.float16)

        def attacked(inputs: dict[str, Tensor], rows: Tensor) -> Tensor:
            answers = lab.groups[rows].to(lab.device)
            place, content = attack(inputs["pixel_values"], answers, noise[rows].to(lab.device))
            return torch.cat([place[:, None].float(), content.flatten(1).float()], dim=1)

        found = lab.compute(attacked, "replacing patches")
        yield Stage(
            DebiasedSelfAttention(
                lab.new_model(),
                found[:, 0].long(),
                found[:, 1:].half().unflatten(1, shape),  # finer than the 256 levels of a picture, at half the memory
                prefix=layout.prefix,
                adversarial=self.adversarial,
                alignment=self.alignment,
            )
        )


def pixel_range(lab: Lab) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smallest and the largest value of each channel (channels,) in the training pictures, and a picture.

    The picture is one of them, (1, channels, height, width).

    Errors: :class:`~levelhead.ConfigError` where the network gets no pictures: texts, or kept features of a backbone.
    """
    pictures: list[Tensor] = []

    def extremes(inputs: dict[str, Tensor], rows: Tensor) -> Tensor:
        if "pixel_values" not in inputs:
            raise ConfigError(
                f"Method dsa changes pixels, and the network gets {', '.join(inputs)}: choose a data set of pictures, "
                "and a network whose weights are all trained (no frozen backbone: model.mode=fine_tune)."
            )
        pixels = inputs["pixel_values"].float()
        pictures[:] = [pixels[:1]]
        return torch.stack([pixels.amin(dim=(2, 3)), pixels.amax(dim=(2, 3))], dim=-1)

    found = lab.compute(extremes)
    return found[..., 0].amin(dim=0), found[..., 1].amax(dim=0), pictures[0]
