"""Automatic feature reweighting (Qiu, Potapczynski, Izmailov, Wilson, ICML 2023)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from levelhead.methods.base import Method
from levelhead.methods.falling import warn_of_fall
from levelhead.methods.last_layer import FloatArray, last_inputs, last_layer, solve
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, UnsupportedModelError, quoted

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

logger = logging.getLogger(__name__)

FEW = 10  # rows that carry a class's weight, below which the last layer learns those rows


@dataclass(frozen=True)
class AFR(Method):
    """Train on most rows; then refit the last layer on the others, with more weight on what the network gets wrong.

    A held-out row weighs exp(-gamma p) divided by the size of its class, p being the probability of its class after the
    first training. The refitted layer stays near the first one, by ``penalty`` times the squared distance. The
    problem is convex and solved to its end, so there is no step to choose; the authors take 500 steps of gradient
    descent, and choose that number, gamma and the penalty by the worst group on validation, which needs groups. Here
    labels choose: ``gamma=0`` is a class-balanced refit, and belongs beside it in a comparison. ``holdout`` is the
    share of the training rows that the first training does not see.

    Source: Qiu, Potapczynski, Izmailov, Wilson, "Simple and fast group robustness by automatic feature reweighting",
    ICML 2023, arXiv:2306.11074.
    """

    summary: ClassVar[str] = "refit the last layer on held-out rows, more weight on what was missed (ICML 2023)"
    changes_at_end: ClassVar[bool] = True
    gamma: float = 4.0
    penalty: float = 0.1
    holdout: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < np.inf or not 0 < self.penalty < np.inf or not 0 < self.holdout < 1:
            raise ConfigError("method afr needs gamma >= 0, penalty > 0 and 0 < holdout < 1")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train on all rows but the held-out ones; then refit the last layer on these."""
        order = torch.randperm(len(lab.labels), generator=lab.rng)
        count = round(self.holdout * len(order))
        kept, held = order[count:].sort().values, order[:count].sort().values
        if len(kept) < lab.config.batch_size:
            raise ConfigError(
                f"method.holdout {self.holdout:g} leaves {len(kept)} of {len(order)} training rows, fewer than a batch "
                f"of {lab.config.batch_size}: lower one of the two."
            )
        labels = lab.labels[held].numpy()
        absent = sorted(set(lab.labels.tolist()) - set(labels.tolist()))
        if absent:
            raise ConfigError(
                f"method.holdout {self.holdout:g} holds out {count} rows, and none of class {quoted(absent[0])}: raise "
                "it."
            )
        model = lab.new_model()
        layer = last_layer(model)
        if layer.bias is None:
            raise UnsupportedModelError("AFR refits a last layer with a bias, and this network's has none.")
        yield Stage(WeightedCrossEntropy(model), rows=kept)
        before = lab.validation_accuracy(model)
        features = last_inputs(lab, model, held).double().numpy()
        weight, bias = (each.detach().double().cpu().numpy() for each in (layer.weight, layer.bias))
        logits = features @ weight.T + bias
        weights = row_weights(logits, labels, self.gamma)
        _warn_of_few(weights, labels)
        found_weight, found_bias = solve(features, labels, weights, (weight, bias), self.penalty)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(found_weight))
            layer.bias.copy_(torch.from_numpy(found_bias))
        warn_of_fall("AFR", before, lab.validation_accuracy(model), f"compare a smaller gamma (now {self.gamma:g})")


def row_weights(logits: FloatArray, labels: NDArray[np.int64], gamma: float) -> FloatArray:
    """Return exp(-gamma p_i[y_i]) n / n_y, scaled to sum to 1, (rows,); large gammas do not underflow.

    Args:
        logits: (rows, classes) of the first training's network.
        labels: (rows,) classes.
        gamma: 0 or more.

    Examples:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0], [1, 0], [-1, 0], [0, 3], [0, 1], [0.5, 0]])
        >>> row_weights(logits, np.array([0, 0, 0, 1, 1, 1]), 4).round(4)
        array([0.0409, 0.0745, 0.473 , 0.0307, 0.0745, 0.3064])
    """
    probability = softmax(logits, axis=1)[np.arange(len(labels)), labels]
    return np.asarray(softmax(-gamma * probability - np.log(np.bincount(labels))[labels]))


def _warn_of_few(weights: FloatArray, labels: NDArray[np.int64]) -> None:
    for label in np.unique(labels):
        own = weights[labels == label]
        carry = float(own.sum() ** 2 / (own**2).sum())
        if carry < FEW:
            logger.warning(
                "AFR: the weight of class %d lies on about %.1f of its %d held-out rows; the last layer will learn "
                "these. Lower gamma, or raise holdout",
                label,
                carry,
                len(own),
            )
