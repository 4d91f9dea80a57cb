"""Small examples and networks for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    ViTConfig,
    ViTForImageClassification,
)

from levelhead.attention import append_encoder
from levelhead.attention.block import AppendedClassifier
from levelhead.data.base import Examples, Inputs
from levelhead.data.texts import TokenInputs
from levelhead.methods.base import Method


def slow_but(quick: Iterable[str], names: Iterable[str], *more: pytest.MarkDecorator) -> list[Any]:
    """Return all ``names`` as parameters of a test: those not in ``quick`` with the marker ``slow``, and ``more``."""
    chosen = set(quick)
    return [name if name in chosen else pytest.param(name, marks=[pytest.mark.slow, *more]) for name in names]


def told_groups(method: Method, train: int = 50, validation: int = 20, seed: int = 3) -> dict[str, Tensor | None]:
    """Return what a lab of this many rows tells the method of three groups and of people with two rows."""
    return {
        "groups": torch.arange(train) % 3 if method.uses_groups else None,
        "people": torch.arange(train) // 2 if method.uses_people else None,
        "known_groups": method.validation_groups(lambda: torch.arange(validation) // 2 % 3, validation, seed),
    }


class Pictures(Inputs):
    """Float pictures in memory, or other numbers that a network takes under another ``name``."""

    def __init__(self, pixels: Tensor, name: str = "pixel_values") -> None:
        self.pixels, self.name = pixels, name

    def __len__(self) -> int:
        return len(self.pixels)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return {self.name: self.pixels[index]}


def make_examples(count: int = 48, seed: int = 0) -> Examples:
    """Noise pictures whose brightness tells the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    pixels = torch.randn(count, 3, 16, 16, generator=generator) * 0.5
    pixels += (labels * 2.0 - 1.0)[:, None, None, None] * 0.7
    return Examples(Pictures(pixels), labels, ("dark", "bright"), f"noise-{count}-{seed}")


def tiny_vit(layers: int = 2, dropout: float = 0.1) -> ViTForImageClassification:
    """Width 16, five tokens, with dropout so that the generator's state matters."""
    return ViTForImageClassification(
        ViTConfig(
            hidden_size=16,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=16,
            image_size=16,
            patch_size=8,
            hidden_dropout_prob=dropout,
            num_labels=2,
        )
    )


def make_texts(count: int = 48, seed: int = 0) -> Examples:
    """Token ids of different lengths; every other token, 5 or 6, tells the class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    lengths = torch.randint(4, 9, (count,), generator=generator)
    ids = []
    for label, length in zip(labels.tolist(), lengths.tolist(), strict=True):
        text = torch.randint(10, 40, (length,), generator=generator)
        text[0] = 2
        text[1::2] = 5 + label
        ids.append(text)
    inputs = TokenInputs({"input_ids": torch.cat(ids).int()}, lengths, {"input_ids": 0})
    return Examples(inputs, labels, ("calm", "loud"), f"tokens-{count}-{seed}")


def bert_config(**options: Any) -> BertConfig:
    """Width 16, two layers, with dropout unless ``options`` say otherwise."""
    return BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        num_labels=2,
        **options,
    )


def tiny_bert(layers: int = 2) -> BertForSequenceClassification:
    """A text classifier of width 16."""
    config = bert_config()
    config.num_hidden_layers = layers
    return BertForSequenceClassification(config)


def tiny_appended(layers: int = 1) -> AppendedClassifier:
    """A plain encoder layer on a frozen BERT, always the same one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = BertModel(bert_config(), add_pooling_layer=False)
    return append_encoder(backbone, 2, debias=None, layers=layers)
