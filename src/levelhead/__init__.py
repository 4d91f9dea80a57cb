"""levelhead: fair transformers without demographics.

The public names are loaded when they are first used, so that an audit does not wait for torch.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

from levelhead._version import __version__
from levelhead.auto_classes import register_when_imported as _register_when_imported
from levelhead.extras import explained as _explained

if _typing.TYPE_CHECKING:
    from levelhead.attention import DebiasConfig as DebiasConfig
    from levelhead.attention import DebiasedBlock as DebiasedBlock
    from levelhead.attention import NotebookOptions as NotebookOptions
    from levelhead.attention import QueryKeyStandardizer as QueryKeyStandardizer
    from levelhead.attention import alignment as alignment
    from levelhead.attention import append_encoder as append_encoder
    from levelhead.attention import attach as attach
    from levelhead.attention import calibrate as calibrate
    from levelhead.attention import describe as describe
    from levelhead.attention import detach as detach
    from levelhead.attention import from_pretrained as from_pretrained
    from levelhead.attention import lora_config as lora_config
    from levelhead.attention import readout_only as readout_only
    from levelhead.auditing.bias_rule import BiasRule as BiasRule
    from levelhead.auditing.door import audit as audit
    from levelhead.auditing.door import audit_table as audit_table
    from levelhead.auditing.explain import explain as explain
    from levelhead.auditing.plan import plan_audit as plan_audit
    from levelhead.auditing.result import AuditResult as AuditResult
    from levelhead.auditing.scoring import gap_metrics as gap_metrics
    from levelhead.auditing.scoring import gap_score as gap_score
    from levelhead.inspecting.inspect import inspect as inspect
    from levelhead.methods.fit import fit as fit
    from levelhead.own.card import model_card as model_card
    from levelhead.own.compare import compare_models as compare_models
    from levelhead.pretraining.config import PretrainConfig as PretrainConfig
    from levelhead.pretraining.train import pretrain as pretrain
    from levelhead.training.callback import DebiasLog as DebiasLog
    from levelhead.training.config import TrainConfig as TrainConfig
    from levelhead.training.lab import Lab as Lab
    from levelhead.types import Batch as Batch
    from levelhead.types import Estimate as Estimate
    from levelhead.types import LevelheadError as LevelheadError

_HOME = {
    "AuditResult": "auditing.result",
    "Batch": "types",
    "BiasRule": "auditing.bias_rule",
    "DebiasConfig": "attention",
    "DebiasLog": "training.callback",
    "DebiasedBlock": "attention",
    "Estimate": "types",
    "Lab": "training.lab",
    "LevelheadError": "types",
    "NotebookOptions": "attention",
    "PretrainConfig": "pretraining.config",
    "QueryKeyStandardizer": "attention",
    "TrainConfig": "training.config",
    "alignment": "attention",
    "append_encoder": "attention",
    "attach": "attention",
    "audit": "auditing.door",
    "audit_table": "auditing.door",
    "calibrate": "attention",
    "compare_models": "own.compare",
    "describe": "attention",
    "detach": "attention",
    "gap_metrics": "auditing.scoring",
    "gap_score": "auditing.scoring",
    "inspect": "inspecting.inspect",
    "explain": "auditing.explain",
    "fit": "methods.fit",
    "from_pretrained": "attention",
    "lora_config": "attention",
    "model_card": "own.card",
    "plan_audit": "auditing.plan",
    "pretrain": "pretraining.train",
    "readout_only": "attention",
}

__all__ = ["__version__", "lm", *sorted(_HOME)]


_register_when_imported()
del annotations


def __getattr__(name: str) -> _typing.Any:
    if name == "lm":
        return _importlib.import_module("levelhead.lm")
    if name not in __all__:
        raise AttributeError(f"module 'levelhead' has no attribute {name!r}")
    try:
        return getattr(_importlib.import_module(f"levelhead.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        raise _explained(error, f"levelhead.{name}") from error


def __dir__() -> list[str]:
    return sorted(__all__)
