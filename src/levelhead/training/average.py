"""An exponential moving average of a network's weights over its steps, which is scored and kept in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from levelhead.training.checkpoint import load_trained_state, trained_state


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
