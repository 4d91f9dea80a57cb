"""The network of an experiment: a vision transformer trained from scratch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelhead.attention import from_pretrained
from levelhead.types import ConfigError


@dataclass(frozen=True)
class ModelConfig:
    """A ViT classifier. The paper's has 8 layers, 8 heads, width 768, and 64x64 pictures in 16 patches.

    ``intermediate_size`` None means the hidden size, as in the paper; ``dropout`` is a probability.
    """

    hidden_size: int = 768
    layers: int = 8
    heads: int = 8
    intermediate_size: int | None = None
    image_size: int = 64
    patch_size: int = 16
    dropout: float = 0.0

    def __post_init__(self) -> None:
        for name in ("hidden_size", "layers", "heads", "image_size", "patch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"model.{name} is {getattr(self, name)}; it must be at least 1.")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"model.dropout is {self.dropout}; it must lie in [0, 1).")
        if self.hidden_size % self.heads:
            raise ConfigError(
                f"model.hidden_size {self.hidden_size} is not a multiple of model.heads {self.heads}: "
                "change one of them."
            )
        if self.image_size % self.patch_size:
            raise ConfigError(
                f"model.image_size {self.image_size} is not a multiple of model.patch_size {self.patch_size}."
            )

    def build(self, class_names: tuple[str, ...]) -> Any:
        """Return a freshly initialised ``ViTForImageClassification``; draws from torch's global generator."""
        from transformers import ViTConfig, ViTForImageClassification

        return ViTForImageClassification(
            ViTConfig(
                hidden_size=self.hidden_size,
                num_hidden_layers=self.layers,
                num_attention_heads=self.heads,
                intermediate_size=self.intermediate_size or self.hidden_size,
                image_size=self.image_size,
                patch_size=self.patch_size,
                hidden_dropout_prob=self.dropout,
                attention_probs_dropout_prob=self.dropout,
                num_labels=len(class_names),
                id2label=dict(enumerate(class_names)),
                label2id={name: position for position, name in enumerate(class_names)},
            )
        )


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars for a single small file."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_model(folder: Path) -> Any:
    """Load a trained classifier, debiased or not, in evaluation mode."""
    from transformers import AutoConfig, AutoModelForImageClassification

    with without_bars():
        if getattr(AutoConfig.from_pretrained(folder), "levelhead", None):
            return from_pretrained(folder).eval()
        return AutoModelForImageClassification.from_pretrained(folder).eval()
