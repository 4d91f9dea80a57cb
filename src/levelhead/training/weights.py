"""The weights that training changes, and their moving average over steps, which is scored and kept in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from levelhead.types import DataError


def trained_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the part of ``module.state_dict()`` that training changes: all but parameters that need no gradient.

    A frozen backbone is the one that the recipe's model is built with; a checkpoint need not repeat it. Buffers stay.
    """
    # Tied parameters have several names, and a state dict has all of them.
    named = module.named_parameters(remove_duplicate=False)
    untrained = {name for name, parameter in named if not parameter.requires_grad}
    return {name: tensor for name, tensor in module.state_dict().items() if name not in untrained}


def load_trained_state(module: nn.Module, tensors: Mapping[str, Tensor], where: object = "The checkpoint") -> None:
    """Load what :func:`trained_state` gave, into a module built in the same way.

    Raises :class:`~levelhead.types.DataError` unless the names are exactly those, and the shapes fit; ``where`` names
    the source.
    """
    expected = trained_state(module)
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    bent = [name for name in sorted(expected.keys() & tensors.keys()) if tensors[name].shape != expected[name].shape]
    if missing or unexpected or bent:
        found = (("lacks", missing), ("has besides", unexpected), ("has in another shape", bent))
        raise DataError(
            f"{where} does not fit this model: it "
            + "; it ".join(f"{verb} {_some(names)}" for verb, names in found if names)
            + ". It was written by a run with another model, or with other parts of it frozen. Restore the recipe, or "
            "delete the run folder and train again."
        )
    module.load_state_dict(dict(tensors), strict=False)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class WeightAverage:
    """Averages what training changes of ``model``: trained parameters, and buffers such as running statistics.

    After step n (from 0) the average is m times itself plus 1 - m times the weights, where m is the smaller of
    ``decay`` in (0, 1) and n / (n + 1): a plain mean at first, so that the initial weights have no part in it.
    Integer tensors are those of the last step.

    Source: Polyak and Juditsky, SIAM J. Control Optim. 30(4), 1992 (averaging); the moving form is usual for vision
    transformers.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay, self.steps = model, decay, 0
        self.tensors = {name: tensor.detach().clone() for name, tensor in trained_state(model).items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step."""
        weight = 1 - min(self.decay, self.steps / (self.steps + 1))
        self.steps += 1
        for name, tensor in trained_state(self.model).items():
            if tensor.is_floating_point():
                self.tensors[name].lerp_(tensor, weight)
            else:
                self.tensors[name].copy_(tensor)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the model hold the average inside the block."""
        own = {name: tensor.detach().clone() for name, tensor in trained_state(self.model).items()}
        load_trained_state(self.model, self.tensors)
        try:
            yield
        finally:
            load_trained_state(self.model, own)

    def state(self) -> dict[str, Tensor]:
        """Return what a checkpoint keeps."""
        return {**self.tensors, "": torch.tensor(self.steps)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state` gave, of a model built in the same way."""
        for name, tensor in self.tensors.items():
            tensor.copy_(state[name])
        self.steps = int(state[""])
