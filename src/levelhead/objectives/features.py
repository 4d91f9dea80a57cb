"""What a layer inside a network gets, beside the network's logits."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from levelhead.types import UnsupportedModelError


def logits_and_features(model: Any, layer: nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits of ``inputs``, (batch, classes), and what ``layer`` of ``model`` gets for them, (batch, width).

    In a data-parallel step of a :class:`~levelhead.training.lab.Lab` the logits are those of the whole batch, and the
    features those of this process's rows.

    Errors: :class:`~levelhead.UnsupportedModelError` if the layer does not get one vector a row.
    """
    taken: list[Tensor] = []

    def take(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        taken[:] = arguments[:1]

    handle = layer.register_forward_pre_hook(take)
    try:
        logits = model(**inputs).logits
    finally:
        handle.remove()
    if not taken or taken[0].ndim != 2:
        raise UnsupportedModelError(
            f"The last layer of {type(model).__name__} does not get one vector a row, so it cannot be read or trained "
            "alone."
        )
    return logits, taken[0]
