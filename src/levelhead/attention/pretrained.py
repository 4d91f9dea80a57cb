"""Load what ``model.save_pretrained(folder)`` wrote, with its debiased attention.

Saving needs no function of its own: ``config.json`` carries a ``levelhead`` entry, and the weights carry projector
and statistics. Loading rebuilds the model from that entry, without the probing run of :func:`attach`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, PreTrainedModel

from levelhead.attention.attach import debiased_class
from levelhead.attention.block import AppendedClassifier
from levelhead.types import LevelheadError


def from_pretrained(path: str | Path, **options: Any) -> PreTrainedModel:
    """Load a model made by :func:`attach` or :func:`append_encoder` and saved with ``save_pretrained``.

    Args:
        path: the folder, or a name on the Hugging Face Hub.
        options: as for ``from_pretrained`` of transformers, such as ``dtype=torch.bfloat16`` (the statistics stay
            float32).

    Returns:
        The model in evaluation mode, giving the same outputs as the saved one.

    Errors: :class:`~levelhead.LevelheadError` for a folder without a debiased model, for damaged weights (naming the
    file) and for weights that do not fit the recorded model.
    """
    try:
        config = AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise LevelheadError(f"{path} holds no model configuration that can be read: {error}") from error
    record = getattr(config, "levelhead", None)
    if not record:
        raise LevelheadError(
            f"{path} holds a plain model: its config.json has no levelhead entry. Load it with transformers, then use "
            "levelhead.attach or levelhead.append_encoder."
        )
    if record["kind"] == "append":
        model_class: type[PreTrainedModel] = AppendedClassifier
    else:
        name = (config.architectures or [""])[0]
        base = getattr(transformers, name, None)
        if base is None:
            raise LevelheadError(f"{path} was saved from {name!r}, which this version of transformers does not have.")
        model_class = debiased_class(base)
    try:
        model, report = model_class.from_pretrained(path, output_loading_info=True, **options)
    except (SafetensorError, OSError) as error:
        damaged = _first_damaged(Path(path))
        where = damaged if damaged is not None else path
        raise LevelheadError(f"The weights in {where} cannot be read ({error}): copy the file again.") from error
    wrong = {kind: sorted(map(str, report[kind])) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if any(wrong.values()):
        details = "; ".join(f"{kind}: {', '.join(keys[:3])}" for kind, keys in wrong.items() if keys)
        raise LevelheadError(f"The weights in {path} do not fit the model that its config.json describes. {details}")
    return model


def _first_damaged(folder: Path) -> Path | None:
    """Find the first weight file of ``folder`` that safetensors cannot open."""
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else []:
        try:
            with safe_open(file, framework="pt"):
                pass
        except (SafetensorError, OSError):
            return file
    return None
