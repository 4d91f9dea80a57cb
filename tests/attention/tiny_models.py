"""The families of Hugging Face models that are tested, each as a tiny network with random weights; batches for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers

import levelhead as lh
from levelhead.data.base import Inputs

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PICTURE = {**SMALL, "image_size": 8, "patch_size": 4}
TEXT = {"vocab_size": 50, "max_position_embeddings": 32, "pad_token_id": 0}
# ModernBERT's own special tokens lie far outside a vocabulary of 50.
MODERN = {
    **SMALL, **TEXT, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
    "attention_dropout": 0.0, "embedding_dropout": 0.0, "mlp_dropout": 0.0, "classifier_dropout": 0.0,
}  # fmt: skip
LABELS = torch.tensor([0, 1, 0, 1, 2, 0])


@dataclass(frozen=True)
class Family:
    """One row: how to build the classifier and the bare backbone, and what the probe must find.

    ``projections`` are the names of query, key and value below the debiased attention module (one name three times
    where one layer makes all of them). ``positions``: left padding needs explicit ``position_ids``.
    """

    name: str
    config: Callable[..., Any]
    classifier: str
    backbone: str
    readout: str
    projections: tuple[str, str, str]
    appended_readout: str = "first"
    image: bool = False
    rotary: bool = False
    positions: bool = True
    heads: int = 2
    key_heads: int = 2

    def __str__(self) -> str:
        return self.name

    def classify(self, **options: Any) -> Any:
        """Build the classifier with three classes, the same weights each time."""
        torch.manual_seed(0)
        return getattr(transformers, self.classifier)(self.config(num_labels=3, **options))

    def encoder(self, **options: Any) -> Any:
        """Build the bare backbone, the same weights each time."""
        torch.manual_seed(0)
        config = self.config(**options)
        config = config.vision_config if self.backbone == "CLIPVisionModel" else config
        return getattr(transformers, self.backbone)(config)

    def batch(self, seed: int = 1) -> dict[str, torch.Tensor]:
        """Six examples, two of them shorter than the others where they are texts."""
        generator = torch.Generator().manual_seed(seed)
        if self.image:
            return {"pixel_values": torch.randn(6, 3, 8, 8, generator=generator)}
        mask = torch.ones(6, 7, dtype=torch.int64)
        mask[0, 4:] = mask[3, 5:] = 0
        return {"input_ids": torch.randint(3, 50, (6, 7), generator=generator) * mask, "attention_mask": mask}

    def padded(self, inputs: dict[str, torch.Tensor], left: bool, extra: int = 3) -> dict[str, torch.Tensor]:
        """Pad every text further: on the right, or with all padding on the left, as a careful user does it."""
        longer = {name: torch.nn.functional.pad(tensor, (0, extra)) for name, tensor in inputs.items()}
        if not left:
            return longer
        mask = longer["attention_mask"]
        order = (torch.arange(mask.shape[1]) + mask.sum(1, keepdim=True)) % mask.shape[1]
        shifted = {name: tensor.gather(1, order) for name, tensor in longer.items()}
        if self.positions:
            # transformers counts positions from the first column, padding included: learned positions would be
            # wrong, and rotated keys would have other means (only their differences do not depend on the start).
            shifted["position_ids"] = (shifted["attention_mask"].cumsum(1) - 1).clamp(min=0)
        return shifted


def _clip(num_labels: int = 2, **options: Any) -> Any:
    text = {**SMALL, **TEXT, "projection_dim": 8}
    vision = {**PICTURE, "projection_dim": 8, **options}
    return transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8, num_labels=num_labels)


def _made(name: str, **fixed: Any) -> Callable[..., Any]:
    return lambda **options: getattr(transformers, name)(**{**fixed, **options})


NEW = ("q_proj", "k_proj", "v_proj")
OLD = ("query", "key", "value")
FAMILIES = [
    Family("vit", _made("ViTConfig", **PICTURE, **NO_DROPOUT), "ViTForImageClassification", "ViTModel", "first", NEW,
           image=True),
    Family("deit", _made("DeiTConfig", **PICTURE, **NO_DROPOUT), "DeiTForImageClassification", "DeiTModel", "first",
           NEW, image=True),
    Family("dinov2", _made("Dinov2Config", **PICTURE, **NO_DROPOUT), "Dinov2ForImageClassification", "Dinov2Model",
           "none", NEW, image=True),
    Family("clip", _clip, "CLIPForImageClassification", "CLIPVisionModel", "none", NEW, image=True),
    Family("bert", _made("BertConfig", **SMALL, **TEXT, **NO_DROPOUT), "BertForSequenceClassification", "BertModel",
           "first", OLD),
    # RoBERTa counts real tokens only, so left padding needs nothing from the user.
    Family("roberta", _made("RobertaConfig", **SMALL, **TEXT, **NO_DROPOUT), "RobertaForSequenceClassification",
           "RobertaModel", "first", OLD, positions=False),
    Family("distilbert", _made("DistilBertConfig", dim=16, n_layers=2, n_heads=2, hidden_dim=16, dropout=0.0,
                               attention_dropout=0.0, seq_classif_dropout=0.0, **TEXT),
           "DistilBertForSequenceClassification", "DistilBertModel", "first", ("q_lin", "k_lin", "v_lin")),
    Family("modernbert", _made("ModernBertConfig", **MODERN, classifier_pooling="cls"),
           "ModernBertForSequenceClassification", "ModernBertModel", "first", ("Wqkv",) * 3, rotary=True),
    Family("modernbert-mean", _made("ModernBertConfig", **MODERN, classifier_pooling="mean"),
           "ModernBertForSequenceClassification", "ModernBertModel", "none", ("Wqkv",) * 3, rotary=True),
    Family("llama", _made("LlamaConfig", **{**SMALL, "num_attention_heads": 4}, **TEXT, num_key_value_heads=2),
           "LlamaForSequenceClassification", "LlamaModel", "last", NEW, "last", rotary=True, heads=4),
    Family("gpt2", _made("GPT2Config", n_embd=16, n_layer=2, n_head=2, n_positions=32, vocab_size=50, pad_token_id=0,
                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2),
           "GPT2ForSequenceClassification", "GPT2Model", "last", ("c_attn",) * 3, "last"),
]  # fmt: skip
TEXTS = [family for family in FAMILIES if not family.image]


def named(name: str | Family) -> Family:
    """Find one row by its name."""
    return name if isinstance(name, Family) else next(family for family in FAMILIES if family.name == name)


def build(name: str | Family, **options: Any) -> Any:
    """Build the plain classifier of a family."""
    return named(name).classify(**options)


def backbone(name: str | Family, **options: Any) -> Any:
    """Build the bare backbone of a family."""
    return named(name).encoder(**options)


def make(kind: str, name: str | Family, debias: lh.DebiasConfig | None = None, **options: Any) -> Any:
    """Build the debiased model of a family; rotary families keep the sign, and must say so."""
    family, debias = named(name), debias or lh.DebiasConfig()
    if kind == "append":
        below = family.encoder(**options)
        torch.manual_seed(1)
        return lh.append_encoder(below, 3, debias=debias)
    model = family.classify(**options)
    torch.manual_seed(1)
    with pytest.warns(UserWarning, match="absolute=False") if family.rotary else contextlib.nullcontext():
        return lh.attach(model, debias)


def batch(name: str | Family, seed: int = 1) -> dict[str, torch.Tensor]:
    """Six examples of a family."""
    return named(name).batch(seed)


class Rows(Inputs):
    """A batch of model inputs, addressed by row."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(next(iter(self.tensors.values())))

    def batch(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: tensor[index] for name, tensor in self.tensors.items()}


def step(model: Any, inputs: dict[str, torch.Tensor], labels: torch.Tensor = LABELS) -> torch.Tensor:
    """Take the gradient of one training pass; return its loss."""
    loss: torch.Tensor = model.train()(**inputs, labels=labels).loss
    loss.backward()
    return loss


def fit(model: Any, batches: Iterable[dict[str, torch.Tensor]], labels: torch.Tensor = LABELS) -> list[float]:
    """Take a step on each batch; return their losses."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = []
    for inputs in batches:
        optimizer.zero_grad()
        losses.append(step(model, inputs, labels).item())
        optimizer.step()
    return losses


def trained(model: Any, inputs: dict[str, torch.Tensor], labels: torch.Tensor = LABELS) -> Any:
    """Let a model see one training batch, so that it has statistics; return it for evaluation."""
    with torch.no_grad():
        model.train()(**inputs, labels=labels)
    return model.eval()
