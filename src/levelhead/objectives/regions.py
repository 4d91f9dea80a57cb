"""Adversarial debiasing that weights the regions in which the adversary succeeds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from levelhead.objectives.base import Objective, learnt
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch

ADVERSARY = (64, 32, 16)
"""Units of the adversary's hidden layers, as in the authors' code."""


def boltzmann_weights(losses: Tensor, cell: Tensor, weight: Tensor, tau: float) -> Tensor:
    """Return r_i = exp(-L_i / tau) / mean over rows j of the same cell of exp(-L_j / tau), (batch,).

    Their mean is 1 in each cell, and each is 1 as ``tau`` grows.

    Args:
        losses: L (batch,), the adversary's.
        cell: (batch,) int64, a group within a class.
        weight: (batch,) of the mean.
        tau: temperature, above 0.

    Source: Grari, Laugel, Hashimoto, Lamprier, Detyniecki, ICLR 2024, arXiv:2310.18413, algorithm 2.

    Examples:
        >>> import torch
        >>> losses, cell = torch.tensor([0.0, 2.0, 1.0]), torch.tensor([0, 0, 1])
        >>> boltzmann_weights(losses, cell, torch.ones(3), 1.0)
        tensor([1.7616, 0.2384, 1.0000])
    """
    logarithm = -losses / tau
    mass = weight.clamp(min=torch.finfo(losses.dtype).tiny).log().to(losses)  # of a cell of rows that count nothing
    others = torch.where(cell[:, None] == cell, mass, -torch.inf)
    return (logarithm - (logarithm + others).logsumexp(1) + others.logsumexp(1)).exp()


class RegionalDebiasing(Objective):
    """Cross-entropy - ``strength`` x mean(r_i L_i), L being an adversary's cross-entropy of the group.

    The adversary gets the logits, less their mean over classes, and the true class. On each batch it takes
    ``adversary_steps`` steps of a fresh Adam at ``adversary_rate``; then the classifier takes one, against the
    adversary as it is. The weights r are :func:`boltzmann_weights` of each group within each class, without a gradient.

    Source: Grari, Laugel, Hashimoto, Lamprier, Detyniecki, "On the fairness ROAD: robust optimization for adversarial
    debiasing", ICLR 2024, arXiv:2310.18413.
    """

    def __init__(
        self,
        model: nn.Module,
        classes: int,
        groups: int,
        *,
        strength: float,
        tau: float,
        adversary_steps: int,
        adversary_rate: float,
    ) -> None:
        super().__init__()
        self.model, self.classes, self.groups = model, classes, groups
        self.strength, self.tau = strength, tau
        self.adversary_steps, self.adversary_rate = adversary_steps, adversary_rate
        sizes = (2 * classes, *ADVERSARY)
        hidden = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.ReLU())]
        self.adversary = nn.Sequential(*hidden, nn.Linear(ADVERSARY[-1], groups))

    def param_groups(self) -> list[dict[str, Any]]:
        """Return the classifier's parameters: the adversary's steps are its own, not those of the stage's optimiser."""
        return [{"params": learnt(self.model)}]

    def adversary_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the adversary's cross-entropy of each row's group, (batch,); ``logits`` (batch, classes)."""
        assert batch.group is not None, "the stage gives groups"
        with torch.autocast(logits.device.type, enabled=False):
            score = logits - logits.mean(-1, keepdim=True)
            known = torch.cat([score, one_hot(batch.labels, self.classes).to(score)], dim=-1)
            return cross_entropies(self.adversary(known), batch.group)

    def train_adversary(self, logits: Tensor, batch: Batch) -> None:
        """Take the adversary's steps on one batch."""
        optimizer = torch.optim.Adam(self.adversary.parameters(), lr=self.adversary_rate)
        for _ in range(self.adversary_steps):
            weighted_mean(self.adversary_losses(logits, batch), batch.weight).backward()
            optimizer.step()
            optimizer.zero_grad()

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, and for the log the cross-entropy, the adversary's mean loss and the largest weight."""
        assert batch.group is not None, "the stage gives groups"
        logits = self.model(**batch.inputs).logits.float()
        self.train_adversary(logits.detach(), batch)
        task = weighted_mean(cross_entropies(logits, batch.labels), batch.weight)
        self.adversary.requires_grad_(False)  # as it is: this loss trains the classifier alone
        losses = self.adversary_losses(logits, batch)
        self.adversary.requires_grad_(True)  # a checkpoint keeps what learns
        weights = boltzmann_weights(losses.detach(), batch.labels * self.groups + batch.group, batch.weight, self.tau)
        loss = task - self.strength * weighted_mean(weights * losses, batch.weight)
        return loss, {"task": task.detach(), "adversary": losses.detach().mean(), "largest_weight": weights.max()}
