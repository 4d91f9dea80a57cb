"""Any task loss plus alignment: the loss of a model with debiased attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from levelhead.attention import alignment
from levelhead.objectives.base import Objective
from levelhead.types import Batch


class WithAlignment(Objective):
    """L = L_task + alpha L_align.

    ``task`` is any objective whose model carries debiased attention (:func:`levelhead.attach` or
    :func:`levelhead.append_encoder`) and which calls it once, without labels; cross-entropy in the paper. Both terms
    are weighted by the batch's weights. ``pairs`` gives the weights of an anchor's contrast for a batch, as
    :func:`levelhead.alignment` takes them; None for equal ones.

    Source: Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ, section 3.2.
    """

    def __init__(self, task: Objective, alpha: float, pairs: Callable[[Batch], Tensor] | None = None) -> None:
        super().__init__()
        self.task, self.alpha, self.pairs = task, alpha, pairs

    @property
    def model(self) -> Any:  # type: ignore[override]
        """The task's network, which is kept."""
        return self.task.model

    def check_weights(self, weight: Tensor) -> None:
        """Ask the task: alignment can use all weights."""
        self.task.check_weights(weight)

    def param_groups(self) -> list[dict[str, Any]]:
        """Return the task's parameter groups: the projector belongs to the network."""
        return self.task.param_groups()

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of both terms, and each term for the log."""
        task, logs = self.task(batch)
        if self.alpha == 0:
            return task, {"task": task.detach(), **logs}
        pairs = None if self.pairs is None else self.pairs(batch)
        align = alignment(self.model, batch.labels, batch.weight, pairs)
        return task + self.alpha * align, {"task": task.detach(), "align": align.detach(), **logs}
