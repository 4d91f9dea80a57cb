"""Weights under the names that transformers saves them by, back under those that the network has.

transformers saves some networks under older names (a ViT's layers as ``vit.encoder.layer.0``), and ``from_pretrained``
renames them as it loads. Trainer reads the file and does not rename: ``resume_from_checkpoint`` and
``load_best_model_at_end`` would leave most weights as they are, with nothing but a list of missing keys in the log
(transformers' issue 43701).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def in_own_names(model: Any, weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``weights`` by the names of ``model.state_dict()``; a name that neither has is left as it is."""
    own = model.state_dict()
    if weights.keys() <= own.keys():
        return weights
    from transformers.core_model_loading import revert_weight_conversion

    saved = revert_weight_conversion(model, dict(own))
    names = {id(tensor): name for name, tensor in own.items()}
    back = {name: names[id(tensor)] for name, tensor in saved.items() if id(tensor) in names}
    return {name if name in own else back.get(name, name): tensor for name, tensor in weights.items()}
