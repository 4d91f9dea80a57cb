"""Refit the last layer of a trained network: its inputs, and a convex problem that has one solution."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
from torch import Tensor, nn

from levelhead.methods.base import Method
from levelhead.methods.erm import ERM
from levelhead.methods.falling import warn_of_fall
from levelhead.models import head
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.objectives.features import logits_and_features
from levelhead.training.stage import Stage
from levelhead.types import LevelheadError, UnsupportedModelError

if TYPE_CHECKING:
    from levelhead.data.base import Inputs
    from levelhead.training.lab import Lab

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

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
            "trained alone."
        )
    return found[1]


@dataclass(frozen=True)
class PeopleRows:
    """Training rows and whom they are of: ``features`` (rows, width), ``labels`` and ``people`` (rows,), from 0."""

    features: FloatArray
    labels: IntArray
    people: IntArray


@dataclass(frozen=True)
class HeldOut:
    """What a last layer is refitted on: rows that its network was not trained on.

    ``features`` (rows, width) are what the layer gets, ``labels`` (rows,) the classes, ``weight`` (classes, width) and
    ``bias`` (classes,) the layer as it was trained. ``groups`` (rows,) are the demographic groups that the method gets,
    -1 for a row without a known group; None if it gets none. ``seed`` is for what is drawn. ``train`` are
    the training rows of a method that gets their people, ``names`` those of the classes. ``inputs`` (rows,) are what
    the network gets, for a method that changes weights below the last layer.
    """

    features: FloatArray
    labels: IntArray
    weight: FloatArray
    bias: FloatArray
    groups: IntArray | None = None
    seed: int = 0
    train: PeopleRows | None = None
    names: tuple[str, ...] = ()
    inputs: Inputs | None = None

    @property
    def logits(self) -> FloatArray:
        """The trained network's logits, (rows, classes)."""
        return self.features @ self.weight.T + self.bias

    @property
    def group(self) -> IntArray:
        """``groups``, of a method that gets them."""
        assert self.groups is not None, "of a method that gets groups"
        return self.groups

    @property
    def known(self) -> HeldOut:
        """The rows with a known group."""
        told = self.group >= 0
        return replace(self, features=self.features[told], labels=self.labels[told], groups=self.group[told])

    @classmethod
    def of(
        cls,
        model: Any,
        features: Tensor,
        labels: Tensor,
        groups: Tensor | None,
        seed: int,
        train: tuple[Tensor, Tensor, Tensor] | None = None,
        inputs: Inputs | None = None,
    ) -> HeldOut:
        """Return what the last layer of ``model`` is refitted on; ``features`` as :func:`watching_last_layer` gives.

        ``train`` are features, labels and people of the training rows.

        Errors: :class:`~levelhead.UnsupportedModelError` for a last layer without a bias.
        """
        layer = last_layer(model)
        if layer.bias is None:
            raise UnsupportedModelError("A last layer is refitted with a bias, and this network's has none.")
        weight, bias = (each.detach().double().cpu().numpy() for each in (layer.weight, layer.bias))
        known = None if groups is None else groups.numpy()
        rows = None if train is None else PeopleRows(train[0].double().numpy(), train[1].numpy(), train[2].numpy())
        named = getattr(getattr(model, "config", None), "id2label", None) or {}
        names = tuple(str(named.get(at, at)) for at in range(len(bias)))
        return cls(features.double().numpy(), labels.numpy(), weight, bias, known, seed, rows, names, inputs)


@dataclass(frozen=True)
class LastLayerMethod(Method):
    """A method that trains a network by plain cross-entropy, and then refits its last layer on held-out rows.

    The held-out rows are those of validation, unless a method keeps training rows back for it. What is refitted is one
    linear layer in the place of another, so the network stays an ordinary one. A finished run of ERM can be refitted as
    well (``levelhead refit``), which takes seconds. ``changes_body`` declares that :meth:`tune` changes weights below
    the last layer, too, so that what the layer gets is computed again.
    """

    changes_at_end: ClassVar[bool] = True
    changes_body: ClassVar[bool] = False

    @property
    def refits(self) -> Method | None:
        """Plain training: what is refitted are its held-out rows."""
        return ERM()

    def validation_groups(self, read: Callable[[], Tensor], rows: int, seed: int) -> Tensor | None:
        """Return the groups of validation rows that the method gets; rows without one are left out of the refit."""
        return read() if self.uses_validation_groups else None

    def tune(self, model: Any, held: HeldOut) -> HeldOut:
        """Change weights of ``model`` below the last layer, in place, and return what that layer gets now."""
        return held

    @abstractmethod
    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return the new layer: weight (classes, width) and bias (classes,)."""

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train on all rows; then refit the last layer on the validation rows."""
        model = lab.new_model()
        last_layer(model)  # a network without one is refused before it is trained
        yield Stage(WeightedCrossEntropy(model))
        features = last_inputs(lab, model, split="validation")
        groups = lab.known_groups if lab.knows_groups else None
        train = (last_inputs(lab, model), lab.labels, lab.people) if self.uses_people else None
        rows = lab.validation
        self.put(model, HeldOut.of(model, features, rows.labels, groups, lab.seed, train, rows.inputs))

    def put(self, model: Any, held: HeldOut) -> None:
        """Refit the last layer of ``model`` in place, and say so if the accuracy on the held-out rows falls far."""
        tuned = self.tune(model, held)
        weight, bias = self.refit(tuned.known if self.uses_validation_groups else tuned)
        layer = last_layer(model)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.copy_(torch.from_numpy(bias))
        before = float((held.logits.argmax(-1) == held.labels).mean())
        after = float(((tuned.features @ weight.T + bias).argmax(-1) == held.labels).mean())
        warn_of_fall(type(self).__name__, before, after, "compare weaker options")


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
    with watching_last_layer(model) as inputs:
        return lab.compute(lambda batch, some: inputs(batch), "features", rows=rows, split=split)


@contextmanager
def watching_last_layer(model: Any) -> Iterator[Callable[[dict[str, Tensor]], Tensor]]:
    """Yield a function from a batch of inputs to what the last layer of ``model`` gets, (batch, width) float32.

    The network is in evaluation mode inside the block.

    Errors: :class:`~levelhead.UnsupportedModelError` if that is not one vector a row.
    """
    layer, was_training = last_layer(model), model.training

    def inputs(batch: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            return logits_and_features(model, layer, batch)[1].float()

    try:
        model.eval()
        yield inputs
    finally:
        model.train(was_training)


def solve(
    features: FloatArray, labels: IntArray, weights: FloatArray, start: tuple[FloatArray, FloatArray], penalty: float
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
