"""Language models: attention alignment (KLAAD) and bias benchmarks.

The public names, and ``BENCHMARKS`` (name to class, with those of installed packages and of a user's own files), are
loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from levelhead.extras import explained

_HOME = {
    "Klaad": "klaad",
    "TripletBatch": "klaad",
    "collate": "klaad",
    "comparison_summary": "comparison",
    "load_klaad": "klaad_training",
    "train_klaad": "klaad_training",
}
_BENCHMARKS = {
    "BBQ": "bbq",
    "BOLD": "bold",
    "Counterfactual": "counterfactual",
    "CrowSPairs": "crows_pairs",
    "DiscrimEval": "discrim_eval",
    "MBBQ": "mbbq",
    "Perplexity": "perplexity",
    "StereoSet": "stereoset",
}

__all__ = ["BENCHMARKS", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name == "BENCHMARKS":
        from levelhead.lm.base import Benchmark
        from levelhead.registry import Registry

        classes = [getattr(importlib.import_module(f"levelhead.lm.{home}"), cls) for cls, home in _BENCHMARKS.items()]
        own = {cls.name: cls for cls in classes}
        return globals().setdefault(name, Registry("benchmark", Benchmark, "levelhead.benchmarks", "card", own))
    if name not in _HOME:
        raise AttributeError(f"module 'levelhead.lm' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"levelhead.lm.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        raise explained(error, f"levelhead.lm.{name}") from error
