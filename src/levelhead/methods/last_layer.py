"""Refit the last layer of a trained network: its inputs, and a convex problem that has one solution."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
from torch import Tensor, nn

from levelhead.methods.base import Method
from levelhead.methods.erm import ERM
from levelhead.models import head
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.objectives.experts import entering
from levelhead.training.stage import Stage
from levelhead.types import LevelheadError, UnsupportedModelError

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

logger = logging.getLogger(__name__)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FALL = 0.1
"""Of the accuracy on validation, from which a warning is due."""

SMALLEST_GRADIENT = 1e-6
"""The largest entry of the gradient that a solution may have."""


def last_layer(model: Any) -> nn.Linear:
    """Return the linear layer that a classifier ends in.

    Errors: :class:`~levelhead.UnsupportedModelError` for a network without one.
    """
    found = head.last_layer(model)
    if found is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no linear layer with as many outputs as classes, so its last layer cannot be "
            "trained by itself."
        )
    return found[1]


@dataclass(frozen=True)
class HeldOut:
    """What a last layer is refitted on: rows that its network was not trained on.

    ``features`` (rows, width) are what the layer gets, ``labels`` (rows,) the classes, ``weight`` (classes, width) and
    ``bias`` (classes,) the layer as it was trained. ``groups`` (rows,) are the demographic groups that the method is
    told, -1 for a row whose group it is not told; None if it is told none. ``seed`` is for what is drawn.
    """

    features: FloatArray
    labels: IntArray
    weight: FloatArray
    bias: FloatArray
    groups: IntArray | None = None
    seed: int = 0

    @property
    def logits(self) -> FloatArray:
        """The trained network's logits, (rows, classes)."""
        return self.features @ self.weight.T + self.bias

    @classmethod
    def of(cls, model: Any, features: Tensor, labels: Tensor, groups: Tensor | None, seed: int) -> HeldOut:
        """Return what the last layer of ``model`` is refitted on; ``features`` as :func:`watching_last_layer` gives.

        Errors: :class:`~levelhead.UnsupportedModelError` for a last layer without a bias.
        """
        layer = last_layer(model)
        if layer.bias is None:
            raise UnsupportedModelError("A last layer is refitted with a bias, and this network's has none.")
        weight, bias = (each.detach().double().cpu().numpy() for each in (layer.weight, layer.bias))
        known = None if groups is None else groups.numpy()
        return cls(features.double().numpy(), labels.numpy(), weight, bias, known, seed)


@dataclass(frozen=True)
class LastLayerMethod(Method):
    """A method that trains a network by plain cross-entropy, and then refits its last layer on held-out rows.

    The held-out rows are those of validation, unless a method keeps training rows back for it. What is refitted is one
    linear layer in the place of another, so the network stays an ordinary one. A finished run of ERM can be refitted as
    well (``levelhead refit``), which takes seconds.
    """

    changes_at_end: ClassVar[bool] = True

    @property
    def refits(self) -> Method | None:
        """Plain training: what is refitted are its held-out rows."""
        return ERM()

    @abstractmethod
    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return the new layer: weight (classes, width) and bias (classes,)."""

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train on all rows; then refit the last layer on the validation rows."""
        model = lab.new_model()
        last_layer(model)  # a network without one is refused before it is trained
        yield Stage(WeightedCrossEntropy(model))
        examples = lab.validation
        with watching_last_layer(model) as inputs:
            features = lab.compute(lambda batch, rows: inputs(batch), "features", inputs=examples.inputs)
        groups = lab.known_groups if lab.knows_groups else None
        self.put(model, HeldOut.of(model, features, examples.labels, groups, lab.seed))

    def put(self, model: Any, held: HeldOut) -> None:
        """Refit the last layer of ``model`` in place, and say so if the accuracy on the held-out rows falls far."""
        weight, bias = self.refit(held)
        layer = last_layer(model)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        before = float((held.logits.argmax(-1) == held.labels).mean())
        after = float(((held.features @ weight.T + bias).argmax(-1) == held.labels).mean())
        if after < before - FALL:
            logger.warning(
                "%s: the refit lowers the accuracy on the held-out rows from %.1f%% to %.1f%%. With no shortcut in the "
                "data it may give weight to rows that are merely hard: compare weaker options",
                type(self).__name__,
                100 * before,
                100 * after,
            )


@contextmanager
def watching_last_layer(model: Any) -> Iterator[Callable[[Mapping[str, Tensor]], Tensor]]:
    """Yield a function from a batch of inputs to what the last layer of ``model`` gets, (batch, width) float32.

    The network is in evaluation mode inside the block.

    Errors: :class:`~levelhead.UnsupportedModelError` if that is not one vector a row.
    """
    layer = last_layer(model)

    def inputs(batch: Mapping[str, Tensor]) -> Tensor:
        with torch.no_grad(), entering(layer, model) as taken:
            model(**batch)
        return taken[-1].float()

    was_training = model.training
    try:
        model.eval()
        yield inputs
    finally:
        model.train(was_training)


def solve(
    features: FloatArray,
    labels: IntArray,
    weights: FloatArray,
    start: tuple[FloatArray, FloatArray],
    penalty: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the weight and bias that minimise sum w_i CE_i + penalty (||W - W0||^2 + ||b - b0||^2).

    The problem is convex, and with a penalty strictly so: there is one solution, and no step to stop at.

    Args:
        features: (rows, width).
        labels: (rows,) classes.
        weights: (rows,), not negative.
        start: W0 (classes, width) and b0 (classes,).
        penalty: above 0.

    Errors: :class:`~levelhead.LevelheadError` if no solution is reached.
    """
    first = np.concatenate([start[0].ravel(), start[1]])
    shape, rows = start[0].shape, np.arange(len(labels))

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        weight, bias = flat[: shape[0] * shape[1]].reshape(shape), flat[shape[0] * shape[1] :]
        logits = features @ weight.T + bias
        logarithms = logits - special.logsumexp(logits, axis=1, keepdims=True)
        slope = np.exp(logarithms)
        slope[rows, labels] -= 1
        slope *= weights[:, None]
        away = flat - first
        gradient = np.concatenate([(slope.T @ features).ravel(), slope.sum(0)]) + 2 * penalty * away
        return float(-weights @ logarithms[rows, labels] + penalty * away @ away), gradient

    found = optimize.minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 10_000, "ftol": 0, "gtol": SMALLEST_GRADIENT / 10},
    )
    steepest = float(np.abs(objective(found.x)[1]).max())
    if not steepest < SMALLEST_GRADIENT:
        raise LevelheadError(
            f"The last layer could not be refitted: the gradient is still {steepest:.2g} after {found.nit} steps. Its "
            "inputs may be very large; raise method.penalty."
        )
    return found.x[: shape[0] * shape[1]].reshape(shape), found.x[shape[0] * shape[1] :]
