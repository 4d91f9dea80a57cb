"""Debiased attention: attach it to a model, or append a debiased layer to a pretrained backbone."""

from levelhead.attention.adapters import lora_config
from levelhead.attention.aligning import alignment
from levelhead.attention.append import append_encoder
from levelhead.attention.attach import attach, detach, readout_only
from levelhead.attention.block import DebiasedBlock
from levelhead.attention.calibration import calibrate
from levelhead.attention.config import DebiasConfig, NotebookOptions
from levelhead.attention.description import describe
from levelhead.attention.pretrained import from_pretrained
from levelhead.attention.standardize import QueryKeyStandardizer

__all__ = [
    "DebiasConfig",
    "DebiasedBlock",
    "NotebookOptions",
    "QueryKeyStandardizer",
    "alignment",
    "append_encoder",
    "attach",
    "calibrate",
    "describe",
    "detach",
    "from_pretrained",
    "lora_config",
    "readout_only",
]
