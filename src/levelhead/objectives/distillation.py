"""Distillation: learn from a teacher's probabilities.

Source: Chai, Jang, Wang, "Fairness without demographics through knowledge distillation", NeurIPS 2022.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import log_softmax

from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch


def soft_cross_entropies(logits: Tensor, probabilities: Tensor) -> Tensor:
    """Return -sum_c p_c log softmax(logits)_c of each example (batch,); both arguments are (batch, classes)."""
    return -(probabilities * log_softmax(logits.float(), dim=-1)).sum(-1)


class Distillation(Objective):
    """(1 - soft) x cross-entropy with the label + soft x cross-entropy with the teacher's probabilities.

    ``teacher`` (train, classes) holds the teacher's probabilities of all training rows, computed once.

    Source: Chai, Jang, Wang, NeurIPS 2022, openreview.net/forum?id=8gjwWnN5pfy.
    """

    teacher: Tensor

    def __init__(self, model: nn.Module, teacher: Tensor, soft: float) -> None:
        super().__init__()
        self.model, self.soft = model, soft
        # Not in the state dict: it is made again from the trained teacher when a run resumes.
        self.register_buffer("teacher", teacher, persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mixed loss, and both parts for the log."""
        logits = self.model(**batch.inputs).logits
        hard = weighted_mean(cross_entropies(logits, batch.labels), batch.weight)
        soft = weighted_mean(soft_cross_entropies(logits, self.teacher[batch.index]), batch.weight)
        return (1 - self.soft) * hard + self.soft * soft, {"hard": hard.detach(), "soft": soft.detach()}
