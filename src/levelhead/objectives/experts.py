"""Learn what a bias-only network does not know already: products with its probabilities.

Source: Clark, Yatskar, Zettlemoyer, "Don't take the easy way out: ensemble based methods for avoiding known dataset
biases", EMNLP 2019, arXiv:1909.03683; He, Zha, Wang, "Unlearn dataset bias in natural language inference by fitting the
residual", 2019, arXiv:1908.10763.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, softplus

from levelhead.distributed import gather_rows
from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.objectives.features import logits_and_features
from levelhead.types import Batch


def product_cross_entropies(logits: Tensor, bias: Tensor, labels: Tensor, strength: float | Tensor) -> Tensor:
    """Return the cross-entropy of each example (batch,) under softmax(log softmax(logits) + strength x bias).

    Args:
        logits: (batch, classes) of the network that is kept.
        bias: (batch, classes) log-probabilities of the bias-only network.
        labels: (batch,) int64.
        strength: lambda, one for all or (batch,).

    Examples:
        >>> import torch
        >>> z, bias = torch.tensor([[1.0, 0, -1]]), torch.tensor([[0.7, 0.2, 0.1]]).log()
        >>> round(product_cross_entropies(z, bias, torch.tensor([1]), 0.5).item(), 5)
        1.84776
    """
    lambdas = torch.as_tensor(strength, dtype=bias.dtype, device=bias.device)
    return cross_entropies(log_softmax(logits.float(), dim=-1) + lambdas[..., None] * bias, labels)


def scaled_entropies(bias: Tensor, strength: Tensor) -> Tensor:
    """Return the entropy of softmax(strength x bias) of each example, (batch,) in nats.

    ``bias`` (batch, classes) log-probabilities, ``strength`` (batch,).
    """
    logarithms = log_softmax(strength[:, None] * bias, dim=-1)
    return -(logarithms.exp() * logarithms).sum(dim=-1)


class ProductOfExperts(Objective):
    """CE(log softmax(z) + strength x b, y); the network predicts by z alone.

    ``bias`` (train, classes) are log-probabilities b of the bias-only network of all training rows, computed once.

    Source: Clark, Yatskar, Zettlemoyer, EMNLP 2019, arXiv:1909.03683; He, Zha, Wang, 2019, arXiv:1908.10763.
    """

    bias: Tensor

    def __init__(self, model: nn.Module, bias: Tensor, strength: float) -> None:
        super().__init__()
        self.model, self.strength = model, strength
        # Not in the state dict: it is made again from the trained bias-only networks when a run resumes.
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted mean loss of the batch."""
        logits = self.model(**batch.inputs).logits
        losses = product_cross_entropies(logits, self.bias[batch.index], batch.labels, self.strength)
        return weighted_mean(losses, batch.weight), {}


class LearnedProduct(Objective):
    """CE(log softmax(z) + lambda_i b, y) + entropy_weight x H(softmax(lambda_i b)), with lambda_i = softplus(w . h_i).

    h_i (width,) is what ``layer``, the network's last linear one, gets; w (width,) is learned, from 0. Without the
    entropy the network could choose lambda_i near 0 and so do without the bias-only network. ``bias`` as in
    :class:`ProductOfExperts`.

    Source: Clark, Yatskar, Zettlemoyer, EMNLP 2019, arXiv:1909.03683.
    """

    bias: Tensor

    def __init__(self, model: nn.Module, layer: nn.Linear, bias: Tensor, entropy_weight: float) -> None:
        super().__init__()
        self.model, self.entropy_weight = model, entropy_weight
        self._layer = (layer,)  # in a tuple: it belongs to the model, and is no second part of this module
        self.w = nn.Parameter(torch.zeros(layer.in_features))
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted mean loss of the batch, and for the log both terms and the mean lambda."""
        logits, hidden = logits_and_features(self.model, self._layer[0], batch.inputs)
        hidden = hidden.float()
        if len(hidden) < len(batch.labels):  # this process ran its share of the rows
            hidden = gather_rows(hidden)
        lambdas, bias = softplus((hidden * self.w).sum(dim=-1)), self.bias[batch.index]
        product = weighted_mean(product_cross_entropies(logits, bias, batch.labels, lambdas), batch.weight)
        entropy = weighted_mean(scaled_entropies(bias, lambdas), batch.weight)
        logs = {"product": product.detach(), "entropy": entropy.detach(), "mean_lambda": lambdas.detach().mean()}
        return product + self.entropy_weight * entropy, logs
