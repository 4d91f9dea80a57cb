"""The configuration of an appended model, known to the Auto classes of transformers.

It imports no torch. The classes of the network are registered when the first configuration is made, which is what the
Auto classes and pipelines do first with a folder.
"""

from __future__ import annotations

import importlib
from typing import Any

from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import AutoConfig


class AppendedConfig(PreTrainedConfig):
    """Config of an appended classifier: the backbone's config as a dict, and how the block was made."""

    model_type = "levelhead_appended"

    def __init__(
        self, backbone: dict[str, Any] | None = None, levelhead: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        importlib.import_module("levelhead.attention.block")  # stands above this part, and registers its classes
        self.backbone = backbone or {}
        self.levelhead = levelhead or {}
        super().__init__(**kwargs)


AutoConfig.register(AppendedConfig.model_type, AppendedConfig, exist_ok=True)
