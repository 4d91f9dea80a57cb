"""LoRA and other adapters of PEFT on a debiased model: what they must save, their base, and how they load again.

PEFT itself would load the base with an Auto class of transformers, which refuses the type of a debiased model (ADR
0016); so the base is loaded here, and PEFT puts the adapter on it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from levelhead.arrays import checked
from levelhead.loading import (
    ADAPTER,
    adapter_tensors,
    explained,
    refuse_strange_adapter,
)
from levelhead.types import ConfigError

OPTION = "The adapter"


@checked
def lora_config(model: nn.Module, **options: Any) -> Any:
    """Return PEFT's ``LoraConfig`` for a debiased model, with all that its adapter has to save.

    LoRA's matrices go into the original layers. The debiased layer's running statistics, the projector and what is new
    (the head, and with :func:`append_encoder` the appended layers) are trained and saved whole.

    Args:
        model: from :func:`attach`, or from :func:`append_encoder` with ``freeze=False``; not yet wrapped by PEFT.
        options: of ``LoraConfig``, such as ``r=8``; ``target_modules`` is ``"all-linear"`` unless given. Not
            ``modules_to_save``.

    Returns:
        A ``peft.LoraConfig``, for ``peft.get_peft_model(model, config)``.

    Errors: :class:`~levelhead.ConfigError` without peft, for a model that is not debiased or wrapped already, and for
    a frozen backbone.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> import levelhead as lh
        >>> small = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
        >>> model = lh.attach(BertForSequenceClassification(small))
        >>> sorted(lh.lora_config(model, r=4).modules_to_save)
        ['alignment_head', 'classifier', 'debias']
    """
    try:
        from peft import LoraConfig
    except ImportError:
        raise ConfigError("lora_config needs peft: pip install 'levelhead[peft]'") from None
    record = getattr(getattr(model, "config", None), "levelhead", None)
    if not isinstance(record, dict) or hasattr(model, "peft_config"):
        raise ConfigError(
            f"lora_config takes a model of levelhead.attach or levelhead.append_encoder, before peft.get_peft_model; "
            f"it got a {type(model).__name__}."
        )
    if record.get("freeze"):
        raise ConfigError(
            "The backbone is frozen, so LoRA in it would get no gradient. Use append_encoder(..., freeze=False): PEFT "
            "freezes the backbone's own weights."
        )
    parts = dict(model.named_children())
    original = "backbone" if record["kind"] == "append" else record["attention"].partition(".")[0]
    new = [name for name, part in parts.items() if name != original and any(True for _ in part.parameters())]
    kept = [name for part in new for name in _apart(part, parts[part], parts[original])]
    if record["kind"] == "attach" and "debias" in model.get_submodule(record["attention"])._modules:
        kept.append("debias")
    return LoraConfig(modules_to_save=sorted(kept), **{"target_modules": "all-linear", **options})


def _apart(name: str, part: nn.Module, original: nn.Module) -> list[str]:
    """Return names for ``part`` that PEFT, which compares the ends of paths, finds nowhere in the original model.

    PEFT wraps no list of modules, only its members.
    """
    elsewhere = any(path.split(".")[-1].endswith(name) for path, _ in original.named_modules())
    if not elsewhere and not isinstance(part, nn.ModuleList):
        return [name]
    return [f"{name}.{child}" for child, _ in part.named_children()] or [name]


def is_adapter(place: str | Path) -> bool:
    """Return whether a folder holds an adapter of PEFT and no whole model."""
    adapter, config = (os.path.isfile(Path(place) / name) for name in (ADAPTER, "config.json"))  # noqa: PTH113
    return adapter and not config  # no file at all has a name that is too long


def load_adapter(place: str | Path, load_base: Callable[[str], Any]) -> Any:
    """Load the base model that the adapter in ``place`` names, and put the adapter on it.

    Args:
        place: a folder that ``save_pretrained`` of a PEFT model wrote.
        load_base: loads a model by its folder or its name on the Hub.

    Returns:
        the ``PeftModel`` in evaluation mode.

    Errors: :class:`~levelhead.ConfigError` without peft, for an adapter that names no base, for one that does not fit
    it, and for one that was saved without the running statistics of the debiased layer.
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
    refuse_strange_adapter(OPTION, str(place))
    if not Path(base).is_dir() and (Path(place) / base).is_dir():  # moved together
        base = str(Path(place) / base)
    network = load_base(base)
    with explained(OPTION, str(place), None, "weights"):
        there = set(adapter_tensors(str(place)))
    lost = [
        name for name in network.state_dict() if ".debias." in name and not {name, f"base_model.model.{name}"} & there
    ]
    if lost:
        raise ConfigError(
            f"{OPTION} {place} was saved without the running statistics of the debiased layer ({lost[0]}), so it would "
            "predict with those of its base. Train it with levelhead.lora_config(model)."
        )
    with explained(OPTION, str(place), None, "weights"):
        return PeftModel.from_pretrained(network, str(place)).eval()
