"""Adversarial reweighting: a second network looks for the examples on which the first one errs.

Source: Lahoti et al., "Fairness without demographics through adversarially reweighted learning", NeurIPS 2020.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from levelhead.objectives.base import Objective, learnt
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch


def adversarial_weights(scores: Tensor) -> Tensor:
    """Return lambda_i = 1 + s_i / mean(s) with s = sigmoid(scores), both (batch,): their mean is 2.

    Source: Lahoti et al., NeurIPS 2020, arXiv:2006.13114.
    """
    share = scores.sigmoid()
    return 1 + share / share.mean().clamp(min=1e-4)


class AdversarialReweighting(Objective):
    """The learner minimises mean(lambda x loss); the adversary, which makes lambda, maximises it.

    One backward pass serves both: the learner's term holds lambda fixed, the adversary's term the losses. ``adversary``
    is a classifier like the learner; its logit of the true class is the score, so that it sees the label as in the
    paper. An adversary of one output does not see the label: that output is the score. It begins after
    ``pretrain_steps``.

    Source: Lahoti et al., NeurIPS 2020, arXiv:2006.13114.
    """

    steps: Tensor

    def __init__(self, model: nn.Module, adversary: nn.Module, pretrain_steps: int, rate: float | None) -> None:
        super().__init__()
        self.model, self.adversary = model, adversary
        self.pretrain_steps, self.rate = pretrain_steps, rate
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def param_groups(self) -> list[dict[str, Any]]:
        """Return the learner's parameters and the adversary's, which may have a learning rate of its own."""
        rate = {} if self.rate is None else {"lr": self.rate}
        return [{"params": learnt(self.model)}, {"params": learnt(self.adversary), **rate}]

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of both terms, and for the log the plain mean and the largest lambda."""
        losses = cross_entropies(self.model(**batch.inputs).logits, batch.labels)
        mean = losses.detach().mean()
        self.steps += 1
        if self.steps <= self.pretrain_steps:
            return weighted_mean(losses, batch.weight), {"mean": mean}
        logits = self.adversary(**batch.inputs).logits.float()
        scores = logits if logits.shape[1] == 1 else logits.gather(1, batch.labels[:, None])
        weights = adversarial_weights(scores[:, 0])
        learner = weighted_mean(weights.detach() * losses, batch.weight)
        adversary = -weighted_mean(weights * losses.detach(), batch.weight)
        # Equal in size, opposite in sign: the sum is 0 and says nothing, so the log holds the learner's part.
        return learner + adversary, {
            "mean": mean,
            "learner": learner.detach(),
            "largest_weight": weights.detach().max(),
        }
