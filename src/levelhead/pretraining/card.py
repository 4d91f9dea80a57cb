"""The model card of a pretrained checkpoint: what it was trained on, by what objective, for how many steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from levelhead.data import Card
from levelhead.pretraining.config import MaskedViT
from levelhead.report.card import bullets, card_text, cost, data_lines, made
from levelhead.report.markdown import escaped
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
    network, train, pictures = MaskedViT(**recipe["model"]), recipe["train"], read_json(folder / "data.json")
    entries = {"library_name": "transformers", "pipeline_tag": "image-feature-extraction", "tags": ["levelhead", "vit"]}
    about = ["- Pictures: given as they are, without the name of a data set"]
    if data is not None:
        about = [*data_lines(data), f"- {escaped(data.caution)}"]
    losses = result["epoch_losses"]
    figures = {"steps": result["steps"], "loss, mean of the first epoch": losses[0]}
    figures |= {"loss, mean of the last epoch": losses[-1], **read_json(folder / "cost.json")}
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
        cost("This training", figures, read_json(folder / "environment.json")),
        bullets("Limits", LIMITS),
        made("pretrain config.yaml --data-root DATA --out FOLDER", "this config.yaml", recipe),
    ]
    return card_text(entries, "the data (see below)", sections)
