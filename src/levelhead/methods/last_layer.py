"""Refit the last layer of a trained network: its inputs, and a convex problem that has one solution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
from torch import Tensor, nn

from levelhead.models import head
from levelhead.objectives.features import logits_and_features
from levelhead.types import LevelheadError, UnsupportedModelError

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

FloatArray = NDArray[np.float64]

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


def last_inputs(
    lab: Lab, model: Any, rows: Tensor | None = None, split: Literal["train", "validation"] = "train"
) -> Tensor:
    """Return what the last layer of ``model`` gets, (some, width) float32 on the CPU, in evaluation mode.

    Args:
        lab: whose rows are meant.
        model: a trained classifier.
        rows: (some,) int64; None for all.
        split: the rows' split.

    Errors: :class:`~levelhead.UnsupportedModelError` if that is not one vector a row.
    """
    layer, was_training = last_layer(model), model.training

    def inputs(batch: dict[str, Tensor], some: Tensor) -> Tensor:
        with torch.no_grad():
            return logits_and_features(model, layer, batch)[1].float()

    try:
        model.eval()
        return lab.compute(inputs, "features", rows=rows, split=split)
    finally:
        model.train(was_training)


def solve(
    features: FloatArray,
    labels: NDArray[np.int64],
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
