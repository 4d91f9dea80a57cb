"""The model card of a pretrained checkpoint: what it was trained on, by what objective, for how many steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from levelhead.data import Card
from levelhead.pretraining.config import MaskedViT
from levelhead.report.card import bullets, card_text, data_lines, escaped, without_paths, yaml_block
from levelhead.report.markdown import markdown_table
from levelhead.storage import read_json

PAPER = "He et al.: Masked Autoencoders Are Scalable Vision Learners, CVPR 2022, arXiv:2111.06377"
LIMITS = (
    "It is no DINO and no published checkpoint: a small network, few pictures, and another objective. Figures on it "
    "cannot be compared with figures on one.",
    "It has seen one data set. What that data lacks, and how it was collected, is in the features.",
    "No label and no group was read. That does not make features fair: measure what is trained on them.",
)


def checkpoint_card(folder: Path, recipe: Mapping[str, Any], result: Mapping[str, Any], data: Card | None) -> str:
    """Return the card, YAML front matter and Markdown; ``folder`` holds data.json, cost.json and environment.json."""
    model, train, pictures = recipe["model"], recipe["train"], read_json(folder / "data.json")
    cost, place = read_json(folder / "cost.json"), read_json(folder / "environment.json")
    entries = {"library_name": "transformers", "pipeline_tag": "image-feature-extraction", "tags": ["levelhead", "vit"]}
    network = MaskedViT(**model)
    about = ["- Pictures: given as they are, without the name of a data set"]
    if data is not None:
        about = [*data_lines(data), f"- {escaped(data.caution)}"]
    figures = [
        ("Optimiser steps", f"{result['steps']:,}"),
        ("Loss, mean of the first epoch", f"{result['epoch_losses'][0]:.4f}"),
        ("Loss, mean of the last epoch", f"{result['epoch_losses'][-1]:.4f}"),
        ("Seconds", _number(cost["seconds"])),
        ("Peak memory of the process, MiB", _number(cost.get("process_peak_memory_mib"))),
    ]
    if "peak_gpu_memory_mib" in cost:
        figures.append(("Peak memory of the GPU, MiB", _number(cost["peak_gpu_memory_mib"])))
    device = place["device"] if place["device"] != "cpu" else place["cpu"]
    sections = [
        "A plain `ViTModel` of transformers, pretrained without labels by reconstructing masked patches (MAE-like).",
        "```python\nfrom transformers import ViTModel\n\n"
        'backbone = ViTModel.from_pretrained("FOLDER", add_pooling_layer=False)\n```',
        "A classifier on top of it: `levelhead train RECIPE --set 'model={backbone: FOLDER}'`.",
        "# A small vision transformer, pretrained on masked patches",
        "## Data\n\n" + "\n".join([*about, f"- Rows: {pictures['rows']:,} pictures of the training split; no other"]),
        "## Objective\n\n"
        f"- The encoder sees {network.visible} of {network.patches} patches of a picture, drawn again each time; a "
        "decoder predicts the pixels of the others. The decoder was left out.\n"
        f"- {train['epochs']} epochs, batches of {train['batch_size']}, seed {recipe['seed']}\n"
        f"- {PAPER}",
        f"## This training\n\n{markdown_table(['', ''], figures)}\n\n"
        f"On {escaped(device)}; threads: {place['threads']}.",
        bullets("Limits", LIMITS),
        "## How it was made\n\n```\nlevelhead pretrain config.yaml --data-root DATA --out FOLDER\n```\n\n"
        f"with this config.yaml:\n\n{yaml_block(without_paths(recipe))}",
    ]
    return card_text(entries, "the data (see below)", sections)


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.0f}"
