"""The paper's options and those of the authors' notebooks, by name.

Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, and the code that its authors released.
docs/presets.md says what each option changes, and what of a notebook (layers, optimiser, selection of the checkpoint)
is not a matter of attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """Options of one source: ``debias`` of :class:`~levelhead.DebiasConfig`, ``block`` of the layer that
    :func:`levelhead.append_encoder` makes.
    """

    summary: str
    debias: dict[str, Any]
    block: dict[str, Any]


def _released(notebook: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return what all released notebooks share: unmasked per-position statistics as plain averages, without eps."""
    shared = {"statistics": "position", "unbiased": True, "eps": 0.0, "running": "std", "absolute": True}
    return {**shared, "notebook": {"padding_mask": False, **(notebook or {})}, **options}


PRESETS: dict[str, Preset] = {
    "paper": Preset(
        "the equations to the letter: moving average of the deviation, tokens ranked by their logits",
        {"absolute": True, "running": "std", "ranking": "mean_logit"},
        {"norm": "pre", "activation": "gelu"},
    ),
    "released-vision": Preset(
        "CelebA notebook: the readout token may select itself",
        _released(include_readout=True),
        {"norm": "pre", "activation": "gelu", "num_heads": 8},
    ),
    "released-hatexplain": Preset(
        "HateXplain notebook: near one-hot attention, a second centring in evaluation; alignment has no gradient "
        "once projections are longer than about 2.5",
        _released(
            {
                "attention_temperature": 0.07,
                "twice": True,
                "off_by_one": True,
                "normalize_projection": False,
                "contrastive_smoothing": 1e-5,
            },
            ranking="per_head",
            projection_hidden=None,
            alpha=0.8,
        ),
        {"norm": "post", "activation": "relu", "num_heads": 8},
    ),
    "released-multinli": Preset(
        "MultiNLI notebook: no absolute value; alignment reads a queue and has no gradient",
        _released(
            {"off_by_one": True, "contrastive_smoothing": 1e-5, "queue": 1536},
            absolute=False,
            ranking="per_head",
            projection_hidden=None,
            alpha=0.8,
        ),
        {"norm": "pre", "activation": "relu", "num_heads": 8},
    ),
    "released-dino": Preset(
        "DINO notebook: no division by the deviation, no gradient through the statistics, t = 5",
        _released(
            {"statistics_gradient": False},
            scale=False,
            include_readout=True,
            top_t=5,
            projection_hidden=256,
        ),
        {"norm": "pre", "activation": "relu", "num_heads": 6},
    ),
}
