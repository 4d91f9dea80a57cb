"""Automatic feature reweighting (Qiu, Potapczynski, Izmailov, Wilson, ICML 2023)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from scipy.special import softmax

from levelhead.methods.base import Method
from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray, LastLayerMethod, last_inputs, last_layer, solve
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, quoted

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

logger = logging.getLogger(__name__)

FEW = 10  # rows that carry a class's weight, below which the last layer learns those rows


@dataclass(frozen=True)
class AFR(LastLayerMethod):
    """Train on most rows; then refit the last layer on the others, with more weight on what the network gets wrong.

    A held-out row weighs exp(-gamma p) divided by the size of its class, p being the probability of its class after the
    first training. The refitted layer stays near the first one, by ``penalty`` times the squared distance. The
    problem is convex and solved to its end, so there is no step to choose; the authors take 500 steps of gradient
    descent, and choose that number, gamma and the penalty by the worst group on validation, which needs groups. Here
    labels choose: ``gamma=0`` is a class-balanced refit, and belongs beside it in a comparison. Above 2 it can turn
    the order of the scores around; the authors' commands have 14 on Waterbirds and 1.8 on CelebA. ``holdout`` is the
    share of the training rows that the first training does not see; 0 takes the validation rows instead.

    Source: Qiu, Potapczynski, Izmailov, Wilson, "Simple and fast group robustness by automatic feature reweighting",
    ICML 2023, arXiv:2306.11074.
    """

    summary: ClassVar[str] = "refit the last layer on held-out rows, upweighting errors (ICML 2023)"
    gamma: float = 1.0
    penalty: float = 0.1
    holdout: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.gamma < np.inf or not 0 < self.penalty < np.inf or not 0 <= self.holdout < 1:
            raise ConfigError("method afr needs gamma >= 0, penalty > 0 and 0 <= holdout < 1")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train on all rows but the held-out ones; then refit the last layer on these."""
        if self.holdout == 0:
            yield from super().stages(lab)
            return
        order = torch.randperm(len(lab.labels), generator=lab.rng)
        count = round(self.holdout * len(order))
        kept, held = order[count:].sort().values, order[:count].sort().values
        if len(kept) < lab.config.batch_size:
            raise ConfigError(
                f"method.holdout {self.holdout:g} leaves {len(kept)} of {len(order)} training rows, fewer than a batch "
                f"of {lab.config.batch_size}: lower one of the two."
            )
        labels = lab.labels[held]
        absent = sorted(set(lab.labels.tolist()) - set(labels.tolist()))
        if absent:
            name = quoted(lab.validation.class_names[absent[0]])
            raise ConfigError(
                f"method.holdout {self.holdout:g} holds out {count} rows, and none of class {name}: raise it."
            )
        model = lab.new_model()
        last_layer(model)  # a network without one is refused before it is trained
        yield Stage(WeightedCrossEntropy(model), rows=kept)
        self.put(model, HeldOut.of(model, last_inputs(lab, model, held), labels, None, lab.seed))

    @property
    def refits(self) -> Method | None:
        """Plain training, unless training rows are held out: ERM's network has seen them."""
        return None if self.holdout else super().refits

    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return the layer that weighs most what the trained one gets wrong."""
        weights = row_weights(held.logits, held.labels, self.gamma)
        _warn_of_few(weights, held)
        return solve(held.features, held.labels, weights, (held.weight, held.bias), self.penalty)


def row_weights(logits: FloatArray, labels: IntArray, gamma: float) -> FloatArray:
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


def _warn_of_few(weights: FloatArray, held: HeldOut) -> None:
    for label in np.unique(held.labels):
        own = weights[held.labels == label]
        carry = float(own.sum() ** 2 / (own**2).sum())
        if carry < FEW:
            logger.warning(
                "AFR: the effective sample size of class %s is %.1f of its %d held-out rows; the last layer will "
                "overfit them. Lower gamma, or raise holdout",
                quoted((held.names or range(label + 1))[label]),
                carry,
                len(own),
            )
