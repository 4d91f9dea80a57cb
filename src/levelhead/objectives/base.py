"""What one stage of training minimises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from levelhead.types import Batch


def learnt(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of a module that training changes: those that need a gradient."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


class Objective(nn.Module, ABC):
    """A loss together with the network it trains.

    ``model`` is the network kept at the end. State that must survive a restart (per-sample memories, group
    weights) is a registered buffer, so that checkpoints and devices come from ``nn.Module``.
    """

    model: nn.Module

    @abstractmethod
    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the scalar loss to minimise, and detached scalars for the log."""

    def check_weights(self, weight: Tensor) -> None:
        """Raise :class:`~levelhead.types.ConfigError` for importance weights (rows,) that the objective cannot use.

        By default it can use all. A stage asks as soon as it is made, before any step.
        """

    def param_groups(self) -> list[dict[str, Any]]:
        """Return the optimiser's parameter groups; by default every trainable parameter in one group."""
        return [{"params": learnt(self)}]
