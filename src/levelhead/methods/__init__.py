"""Training methods, one paper a file. A new one is a file here and a line in :data:`METHODS`."""

from levelhead.methods.balanced import Balanced
from levelhead.methods.base import Method, Stage
from levelhead.methods.dam import DAM
from levelhead.methods.erm import ERM

METHODS: dict[str, type[Method]] = {"erm": ERM, "balanced": Balanced, "dam": DAM}

__all__ = ["DAM", "ERM", "METHODS", "Balanced", "Method", "Stage"]
