"""Small examples and networks for tests."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from levelhead.data.base import Examples, Inputs


class Pictures(Inputs):
    """Float pictures in memory."""

    def __init__(self, pixels: Tensor) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return {"pixel_values": self.pixels[index]}


def make_examples(count: int = 48, seed: int = 0) -> Examples:
    """Noise pictures whose brightness tells the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    pixels = torch.randn(count, 3, 16, 16, generator=generator) * 0.5
    pixels += (labels * 2.0 - 1.0)[:, None, None, None] * 0.7
    return Examples(Pictures(pixels), labels, ("dark", "bright"), f"noise-{count}-{seed}")


def tiny_vit(layers: int = 2) -> ViTForImageClassification:
    """Width 16, five tokens, with dropout so that the generator's state matters."""
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=16,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=16,
            patch_size=8,
            hidden_dropout_prob=0.1,
            num_labels=2,
        )
    )
