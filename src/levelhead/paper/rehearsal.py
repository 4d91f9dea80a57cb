"""What stands in for data and networks when a reproduction is only rehearsed: drawn pictures, made-up texts, tiny nets.

Every step runs as it would with the real data, in seconds and without a download. What comes out says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from levelhead.bench.grid import Grid
from levelhead.data.phrases import Phrases
from levelhead.loading import without_bars
from levelhead.pretraining.masked import processor
from levelhead.runs.options import section
from levelhead.storage import write_json

ROWS = {"train_size": 64, "validation_size": 48, "test_size": 160}
EVEN = {"angular_rate": 0.5, "light_given_round": 0.5, "light_given_angular": 0.5}  # so that no cell is empty
PICTURES: dict[str, Any] = {"name": "portraits", **EVEN, **ROWS}
TEXTS: dict[str, Any] = {"name": "phrases", **ROWS}
READ_TEXTS = ("hatexplain", "multinli")
NETWORK = {"hidden_size": 16, "layers": 2, "heads": 2}
TRAINING = {"train.epochs": 2, "train.batch_size": 16, "train.warmup_steps": 0, "train.precision": "no"}
TRAINING |= {"train.threads": 1, "train.device": "cpu"}
METHODS = {
    "kd": {"method.teacher_layers": 2},
    "jtt": {"method.identification_epochs": 1},
}
"""Options that a tiny training can bear, where a method makes networks or trainings of its own."""


def rehearsed(grid: Grid, folder: Path) -> Grid:
    """Return ``grid`` on drawn data with tiny networks; a pretrained one that it wants is drawn into ``folder``."""
    texts = section(grid.base, "data").get("name") in READ_TEXTS
    model = section(grid.base, "model")
    shared = {key: value for key, value in grid.shared.items() if key != "model.backbone" and key[:5] != "data."}
    shared |= TRAINING
    if "backbone" in model:
        backbone = _text_backbone(folder / "text-backbone") if texts else _picture_backbone(folder / "picture-backbone")
        model = model | {"backbone": str(backbone.absolute())} | ({"max_length": 24} if texts else {})
    else:
        model = model | NETWORK
    base = grid.base | {"data": TEXTS if texts else PICTURES, "model": model}
    return replace(grid, base=base, shared=shared, rows={row: _tiny(each) for row, each in grid.rows.items()})


def _tiny(settings: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in settings.items() if key not in TRAINING}
    for key, value in METHODS.get(str(kept.get("method.name")), {}).items():
        kept[key] = min(value, kept.get(key, value))
    return kept


def _text_backbone(folder: Path) -> Path:
    """Write a BERT of width 16, always the same, and a tokenizer of the phrases' words, unless they are there."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return folder
    texts = Phrases(**{key: value for key, value in TEXTS.items() if key != "name"}).examples("train").inputs.texts  # type: ignore[attr-defined]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: position for position, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=32, **named).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    with torch.random.fork_rng(devices=[]), without_bars():
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def _picture_backbone(folder: Path) -> Path:
    """Write a ViT of width 16, always the same, and how it takes pictures, unless they are there."""
    from transformers import ViTConfig, ViTModel

    if (folder / "config.json").exists():
        return folder
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=64, patch_size=16
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "preprocessor_config.json", processor(64))
    with torch.random.fork_rng(devices=[]), without_bars():
        torch.manual_seed(0)
        ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder
