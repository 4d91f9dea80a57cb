"""Cross-entropy plus alignment: the loss of a model with debiased attention."""

from __future__ import annotations

from torch import Tensor, nn

from levelhead.attention import alignment
from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import weighted_cross_entropy
from levelhead.types import Batch


class DebiasedCrossEntropy(Objective):
    """L = L_task + alpha L_align (Lu, Wang, Wang, ICLR 2024, section 3.3).

    ``model`` carries debiased attention (:func:`levelhead.attach` or :func:`levelhead.append_encoder`). It is called
    without labels, so that both terms can be weighted per example.
    """

    def __init__(self, model: nn.Module, alpha: float) -> None:
        super().__init__()
        self.model = model
        self.alpha = alpha

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of both terms, and each term for the log."""
        task = weighted_cross_entropy(self.model(**batch.inputs).logits, batch.labels, batch.weight)
        if self.alpha == 0:
            return task, {"task": task.detach()}
        align = alignment(self.model, batch.labels, batch.weight)
        return task + self.alpha * align, {"task": task.detach(), "align": align.detach()}
