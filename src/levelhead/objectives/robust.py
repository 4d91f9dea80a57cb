"""Losses that lean on the worst examples of a batch: distributionally robust optimisation without groups.

Source: Hashimoto, Srivastava, Namkoong, Liang, ICML 2018 (chi-square ball); Rockafellar, Uryasev 2000 (CVaR).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch


def above_threshold(losses: Tensor, eta: float, power: float, weight: Tensor) -> Tensor:
    """Return the mean of max(loss - eta, 0)^power; for a fixed eta the rest of the dual drops out.

    ``losses`` and ``weight`` (batch,). A batch whose losses all lie below eta gives 0 and trains nothing.
    """
    return weighted_mean((losses - eta).clamp(min=0) ** power, weight)


def chi_square_dual(losses: Tensor, alpha: float) -> Tensor:
    """Return the largest mean of w x loss over weights w >= 0 with mean 1 in a chi-square ball.

    It equals inf over eta of C sqrt(mean max(loss - eta, 0)^2) + eta with C = sqrt(1 + 2 (1/alpha - 1)^2), which is
    convex in eta. ``losses`` (batch,); ``alpha`` is the share of the smallest group to protect.
    """
    scale = (1 + 2 * (1 / alpha - 1) ** 2) ** 0.5
    spread = float(losses.detach().max() - losses.detach().min())
    if scale == 1 or spread == 0:  # one weighting, or one loss: nothing to choose
        return losses.mean()
    with torch.no_grad():
        exact = losses.double()
        high = exact.max()
        low = exact.min() - spread / (scale**2 - 1) ** 0.5  # here the slope is negative whatever the losses are
        for _ in range(60):
            eta = (low + high) / 2
            above = (exact - eta).clamp(min=0)
            slope = 1 - scale * above.mean() / above.square().mean().sqrt()
            low, high = (low, eta) if slope > 0 else (eta, high)
        eta = ((low + high) / 2).to(losses)
    # At the best eta its own derivative is 0, so the gradient needs only the losses.
    return scale * (losses - eta).clamp(min=0).square().mean().sqrt() + eta


def conditional_value_at_risk(losses: Tensor, alpha: float) -> Tensor:
    """Return the mean of the largest ``alpha`` share of ``losses`` (batch,); the last one counts in part."""
    ordered = losses.sort(descending=True).values
    size = alpha * len(losses)
    weight = (size - torch.arange(len(losses), device=losses.device)).clamp(0, 1).to(losses)
    return (weight * ordered).sum() / size


class DistributionallyRobust(Objective):
    """Minimise the loss of the worst part of each batch.

    ``variant``: ``fixed`` is mean max(loss - eta, 0)^power; ``dual`` the chi-square worst case at its best eta;
    ``cvar`` the mean of the largest share ``alpha``. The last two weight the batch themselves and refuse
    importance weights.
    """

    def __init__(
        self,
        model: nn.Module,
        variant: Literal["fixed", "dual", "cvar"] = "fixed",
        *,
        eta: float = 0.1,
        power: float = 2.0,
        alpha: float = 0.5,
    ) -> None:
        super().__init__()
        self.model = model
        self.variant, self.eta, self.power, self.alpha = variant, eta, power, alpha

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the robust loss, and for the log the plain mean and the share of losses above eta."""
        losses = cross_entropies(self.model(**batch.inputs).logits, batch.labels)
        logs = {"mean": losses.detach().mean()}
        if self.variant == "fixed":
            logs["above_eta"] = (losses.detach() > self.eta).float().mean()
            return above_threshold(losses, self.eta, self.power, batch.weight), logs
        robust = chi_square_dual if self.variant == "dual" else conditional_value_at_risk
        return robust(losses, self.alpha), logs
