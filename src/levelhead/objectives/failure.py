"""Learning from failure: a network that is led astray shows which examples are hard without the shortcut.

Source: Nam, Cha, Ahn, Lee, Shin, "Learning from failure: training debiased classifier from biased classifier",
NeurIPS 2020; the generalised cross-entropy is Zhang, Sabuncu, NeurIPS 2018.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch


def generalised_cross_entropies(logits: Tensor, labels: Tensor, q: float, form: str = "exact") -> Tensor:
    """Return (1 - p_y^q) / q of each example (batch,), or with ``form="surrogate"`` q p_y^q CE with p_y^q held fixed.

    The gradient of the exact form is p_y^q times that of the cross-entropy: easy examples count more. The surrogate,
    of the authors' code, has that gradient times q.

    Source: Zhang, Sabuncu, "Generalized cross entropy loss for training deep neural networks with noisy labels",
    NeurIPS 2018, arXiv:1805.07836.
    """
    losses = cross_entropies(logits, labels)
    power = (-q * losses).exp()
    return (1 - power) / q if form == "exact" else q * power.detach() * losses


class LearningFromFailure(Objective):
    """A biased network learns what is easy; the kept one weights an example by how badly the biased one does on it.

    Both cross-entropies of every training row are remembered as moving averages: ``averages`` (2, train), biased first,
    and ``visited`` (train,). A first visit stores the loss itself. Each is divided by the largest average of the row's
    class (rows not yet visited count as 0), and the weight is biased / (biased + kept).

    Source: Nam, Cha, Ahn, Lee, Shin, NeurIPS 2020, arXiv:2007.02561.
    """

    averages: Tensor
    visited: Tensor
    train_labels: Tensor

    def __init__(
        self,
        model: nn.Module,
        biased: nn.Module,
        labels: Tensor,
        *,
        q: float = 0.7,
        decay: float = 0.7,
        form: Literal["exact", "surrogate"] = "surrogate",
    ) -> None:
        super().__init__()
        self.model, self.biased = model, biased
        self.q, self.decay, self.form = q, decay, form
        self.register_buffer("averages", torch.zeros(2, len(labels)))
        self.register_buffer("visited", torch.zeros(len(labels), dtype=torch.bool))
        self.register_buffer("train_labels", labels, persistent=False)

    def weights(self, index: Tensor, biased: Tensor, kept: Tensor) -> Tensor:
        """Move the averages at ``index`` (batch,) by both losses (batch,), and return the weights (batch,)."""
        with torch.no_grad():
            losses = torch.stack([biased, kept]).to(self.averages)
            before = self.averages[:, index]
            moved = torch.where(self.visited[index], self.decay * before + (1 - self.decay) * losses, losses)
            self.averages[:, index] = moved
            self.visited[index] = True
            classes = int(self.train_labels.max()) + 1
            shape = self.averages.new_zeros(2, classes)
            largest = shape.scatter_reduce(1, self.train_labels.expand(2, -1), self.averages, "amax")
            scaled = moved / largest[:, self.train_labels[index]].clamp(min=1e-8)
            return scaled[0] / (scaled[0] + scaled[1] + 1e-8)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of both networks' losses, and for the log the kept one's and the mean weight."""
        kept_losses = cross_entropies(self.model(**batch.inputs).logits, batch.labels)
        biased_logits = self.biased(**batch.inputs).logits
        biased_losses = cross_entropies(biased_logits, batch.labels)
        weights = self.weights(batch.index, biased_losses.detach(), kept_losses.detach())
        easy = generalised_cross_entropies(biased_logits, batch.labels, self.q, self.form)
        kept = weighted_mean(weights * kept_losses, batch.weight)
        return kept + weighted_mean(easy, batch.weight), {"kept": kept.detach(), "mean_weight": weights.mean()}
