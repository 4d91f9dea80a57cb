"""Cross-entropy with a weight per example."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from levelhead.objectives.base import Objective
from levelhead.types import Batch


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each example (batch,), in fp32; ``logits`` (batch, classes), ``labels`` (batch,)."""
    return cross_entropy(logits.float(), labels, reduction="none")


def weighted_mean(losses: Tensor, weight: Tensor) -> Tensor:
    """Return sum(weight x loss) / sum(weight) over (batch,); with equal weights it is the plain mean."""
    return (weight * losses).sum() / weight.sum()


def weighted_cross_entropy(logits: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean of the cross-entropy, in fp32.

    ``logits`` (batch, classes), ``labels`` (batch,) int64, ``weight`` (batch,) non-negative.
    """
    return weighted_mean(cross_entropies(logits, labels), weight)


class WeightedCrossEntropy(Objective):
    """Empirical risk minimisation: sum_i w_i CE(f(x_i), y_i) / sum_i w_i over the batch."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted mean cross-entropy of the batch."""
        loss = weighted_cross_entropy(self.model(**batch.inputs).logits, batch.labels, batch.weight)
        return loss, {}
