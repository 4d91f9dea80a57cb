"""LoRA and other adapters of PEFT on a debiased model: the base that they stand on, and how they load again.

PEFT itself would load the base with an Auto class of transformers, which refuses the type of a debiased model (ADR
0016); so the base is loaded here, and PEFT puts the adapter on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from levelhead.loading import ADAPTER, explained
from levelhead.types import ConfigError

OPTION = "The adapter"


def is_adapter(place: str | Path) -> bool:
    """Return whether a folder holds an adapter of PEFT and no whole model."""
    return (Path(place) / ADAPTER).is_file() and not (Path(place) / "config.json").is_file()


def load_adapter(place: str | Path, load_base: Callable[[str], Any]) -> Any:
    """Load the base model that the adapter in ``place`` names, and put the adapter on it.

    Args:
        place: a folder that ``save_pretrained`` of a PEFT model wrote.
        load_base: loads a model by its folder or its name on the Hub.

    Returns:
        the ``PeftModel`` in evaluation mode.

    Errors: :class:`~levelhead.ConfigError` without peft, for an adapter that names no base, and for one that does not
    fit it.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise ConfigError(f"{place} holds an adapter, which needs peft: pip install 'levelhead[peft]'") from None
    with explained(OPTION, str(place), None, "configuration"):
        base = json.loads((Path(place) / ADAPTER).read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise ConfigError(
            f"The adapter {place} names no base model in {ADAPTER}. Load the base yourself, with "
            "levelhead.from_pretrained, then peft.PeftModel.from_pretrained(base, adapter)."
        )
    if not Path(base).is_dir() and (Path(place) / base).is_dir():  # moved together
        base = str(Path(place) / base)
    network = load_base(base)
    with explained(OPTION, str(place), None, "weights"):
        return PeftModel.from_pretrained(network, str(place)).eval()
