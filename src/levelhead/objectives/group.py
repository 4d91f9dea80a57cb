"""Losses over groups that are known, or inferred by a method itself: GroupDRO and IRM.

Source: Sagawa, Koh, Hashimoto, Liang, ICLR 2020; Arjovsky, Bottou, Gulrajani, Lopez-Paz, 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch


def group_means(losses: Tensor, group: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Return the weighted mean loss of each group, (groups,); 0 for a group without a row.

    ``losses``, ``group`` int64 and ``weight`` are (batch,).
    """
    zeros = losses.new_zeros(groups)
    total = zeros.index_add(0, group, weight)
    return zeros.index_add(0, group, weight * losses) / torch.where(total > 0, total, 1)


class WorstGroup(Objective):
    """GroupDRO: sum_g q_g L_g, where q moves towards the groups with the larger loss.

    L_g is the mean loss of group g in the batch (0 if none is there), q_g <- q_g exp(step (L_g + C / sqrt(n_g))),
    normalised; the loss uses the q just moved. ``sizes`` (groups,) are the n_g of the training rows; ``adjustment`` is
    C.

    Source: Sagawa, Koh, Hashimoto, Liang, ICLR 2020, arXiv:1911.08731.
    """

    q: Tensor
    sizes: Tensor

    def __init__(self, model: nn.Module, sizes: Tensor, *, step: float = 0.01, adjustment: float = 0.0) -> None:
        super().__init__()
        self.model, self.step, self.adjustment = model, step, adjustment
        self.register_buffer("q", torch.full((len(sizes),), 1 / len(sizes)))
        self.register_buffer("sizes", sizes.float(), persistent=False)

    def loss(self, losses: Tensor, group: Tensor, weight: Tensor) -> Tensor:
        """Move q by the ``losses`` (batch,) of ``group`` (batch,), and return the loss to minimise."""
        means = group_means(losses, group, weight, len(self.q))
        with torch.no_grad():
            # A group that the training rows do not hold (size 0) is never in a batch, and gets no adjustment.
            raised = means + self.adjustment / self.sizes.clamp(min=1).sqrt() * (self.sizes > 0)
            q = self.q * torch.exp(self.step * raised)
            self.q.copy_(q / q.sum())
        return (self.q.clone() * means).sum()

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, and for the log the plain mean and the largest q."""
        assert batch.group is not None, "the stage gives groups"
        losses = cross_entropies(self.model(**batch.inputs).logits, batch.labels)
        loss = self.loss(losses, batch.group, batch.weight)
        return loss, {"mean": losses.detach().mean(), "largest_q": self.q.max()}


class InvariantRisk(Objective):
    """IRM: the mean loss plus a penalty on each environment's squared slope in a common scale of the logits.

    The slope of the loss in that scale is mean_i sum_c (p_c - 1[y=c]) z_c. The penalty's weight is 1 for
    ``anneal_steps`` steps, then ``penalty``, by which the whole loss is then divided.

    Source: Arjovsky, Bottou, Gulrajani, Lopez-Paz, "Invariant risk minimization", 2019, arXiv:1907.02893.
    """

    steps: Tensor

    def __init__(self, model: nn.Module, environments: int, *, penalty: float = 1e4, anneal_steps: int = 100) -> None:
        super().__init__()
        self.model, self.environments = model, environments
        self.penalty, self.anneal_steps = penalty, anneal_steps
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the penalised loss, and both parts for the log."""
        assert batch.group is not None, "the stage gives groups"
        logits = self.model(**batch.inputs).logits.float()
        mean = weighted_mean(cross_entropies(logits, batch.labels), batch.weight)
        slopes = scale_slopes(logits, batch.labels)
        zeros = slopes.new_zeros(self.environments)
        count = zeros.index_add(0, batch.group, torch.ones_like(slopes))
        by_environment = zeros.index_add(0, batch.group, slopes) / count.clamp(min=1)
        penalty = by_environment.square().sum() / (count > 0).sum()
        self.steps += 1
        factor = 1.0 if self.steps <= self.anneal_steps else self.penalty
        loss = (mean + factor * penalty) / max(1.0, factor)
        return loss, {"mean": mean.detach(), "penalty": penalty.detach()}


def scale_slopes(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the derivative of each example's cross-entropy in a common scale of its logits, at scale 1: (batch,).

    g_i = sum_c (p_c - 1[y=c]) z_c; for two classes with logits (0, z) it is (sigmoid(z) - y) z.
    """
    wrong = logits.softmax(-1) - nn.functional.one_hot(labels, logits.shape[-1])
    return (wrong * logits).sum(-1)
