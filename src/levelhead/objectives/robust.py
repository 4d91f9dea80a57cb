"""Losses that lean on the worst examples of a batch: distributionally robust optimisation without groups.

Source: Hashimoto, Srivastava, Namkoong, Liang, ICML 2018 (chi-square ball); Rockafellar, Uryasev 2000 (CVaR).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch, ConfigError


def above_threshold(losses: Tensor, eta: float, power: float, weight: Tensor) -> Tensor:
    """Return the mean of max(loss - eta, 0)^power; for a fixed eta the rest of the dual drops out.

    ``losses`` and ``weight`` (batch,). A batch whose losses all lie below eta gives 0 and trains nothing.

    Source: Hashimoto, Srivastava, Namkoong, Liang, ICML 2018, arXiv:1806.08010.
    """
    return weighted_mean((losses - eta).clamp(min=0) ** power, weight)


def chi_square_dual(losses: Tensor, alpha: float) -> Tensor:
    """Return the largest mean of w x loss over weights w >= 0 with mean 1 in a chi-square ball.

    It equals inf over eta of C sqrt(mean max(loss - eta, 0)^2) + eta with C = sqrt(1 + 2 (1/alpha - 1)^2), which is
    convex in eta. ``losses`` (batch,); ``alpha`` is the share of the smallest group to protect. The gradient is that of
    the largest mean: w / batch, see :func:`chi_square_weights`.

    Source: Hashimoto, Srivastava, Namkoong, Liang, ICML 2018, arXiv:1806.08010.
    """
    return (chi_square_weights(losses, alpha) * losses).mean()


def chi_square_weights(losses: Tensor, alpha: float) -> Tensor:
    """Return the weights (batch,), of mean 1, that make the mean of w x loss largest in the chi-square ball.

    They are a / mean(a) with a = max(loss - eta, 0) at the best eta. Where the best eta is the largest loss itself,
    because the ball lets the losses tied there have all the weight, the weights are equal on these and 0 elsewhere.

    Source: Hashimoto, Srivastava, Namkoong, Liang, ICML 2018, arXiv:1806.08010.
    """
    reach = math.sqrt(2) * (1 / alpha - 1)  # the largest standard deviation of weights in the ball
    if reach == 0:
        return torch.ones_like(losses)
    scale = math.hypot(1, reach)
    exact = losses.detach().double()
    high = exact.max()
    low = exact.min() - (high - exact.min()) / reach  # here the slope is negative whatever the losses are
    for _ in range(60):
        eta = (low + high) / 2
        above = (exact - eta).clamp(min=0)
        rising = scale * above.mean() < above.square().mean().sqrt()
        low, high = torch.where(rising, low, eta), torch.where(rising, eta, high)
    above = (exact - (low + high) / 2).clamp(min=0)
    above = torch.where(above.any(), above, (exact == exact.max()).double())
    above = above / above.max()  # else the mean of the smallest numbers there are is 0
    return (above / above.mean()).to(losses)


def conditional_value_at_risk(losses: Tensor, alpha: float) -> Tensor:
    """Return the mean of the largest ``alpha`` share of ``losses`` (batch,); the last one counts in part.

    Source: Rockafellar, Uryasev, "Optimization of conditional value-at-risk", 2000, DOI 10.21314/JOR.2000.038.
    """
    ordered = losses.sort(descending=True).values
    size = alpha * len(losses)
    weight = (size - torch.arange(len(losses), device=losses.device)).clamp(0, 1).to(losses)
    return (weight * ordered).sum() / size


class DistributionallyRobust(Objective):
    """Minimise the loss of the worst part of each batch.

    ``variant``: ``fixed`` is mean max(loss - eta, 0)^power; ``dual`` the chi-square worst case at its best eta;
    ``cvar`` the mean of the largest share ``alpha``. The last two weight the batch themselves and refuse
    importance weights (:class:`~levelhead.types.ConfigError`).

    Source: Hashimoto, Srivastava, Namkoong, Liang, ICML 2018, arXiv:1806.08010 (chi-square ball); Rockafellar, Uryasev,
    2000, DOI 10.21314/JOR.2000.038 (CVaR).
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

    def check_weights(self, weight: Tensor) -> None:
        """Refuse weights other than 1 where the variant weighs the batch itself."""
        if self.variant != "fixed" and bool((weight != 1).any()):
            raise ConfigError(
                f"method dro with variant {self.variant} weighs the rows of a batch itself and takes no importance "
                "weights. Use variant fixed, or repeat rows (Stage.rows) instead of weighing them."
            )

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the robust loss, and for the log the plain mean and the share of losses above eta."""
        self.check_weights(batch.weight)
        losses = cross_entropies(self.model(**batch.inputs).logits, batch.labels)
        logs = {"mean": losses.detach().mean()}
        if self.variant == "fixed":
            logs["above_eta"] = (losses.detach() > self.eta).float().mean()
            return above_threshold(losses, self.eta, self.power, batch.weight), logs
        robust = chi_square_dual if self.variant == "dual" else conditional_value_at_risk
        return robust(losses, self.alpha), logs
