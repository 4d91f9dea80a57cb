"""A classifier's last linear layer: where it is, and how it is made again for another number of classes."""

from __future__ import annotations

from typing import Any

from torch import nn

from levelhead.types import UnsupportedModelError


def last_layer(model: Any) -> tuple[str, nn.Linear] | None:
    """Return path and layer of the last linear layer with as many outputs as classes; None if there is none."""
    classes = getattr(getattr(model, "config", None), "num_labels", None)
    found = [
        (path, module)
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and module.out_features == classes
    ]
    return found[-1] if found else None


def with_classes(model: Any, classes: int) -> Any:
    """Give a fresh Hugging Face classifier another number of ``classes``, in place, and return it.

    Its last linear layer with as many outputs as classes is replaced, by one drawn from torch's global generator. Its
    configuration, which other networks may share, still tells of the classes before: the network is for logits alone.

    Errors: :class:`~levelhead.UnsupportedModelError` for a network without such a layer.
    """
    head = last_layer(model)
    if head is None:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no linear layer with as many outputs as classes, so it cannot be given "
            f"{classes} classes instead."
        )
    path, old = head
    new = nn.Linear(old.in_features, classes, bias=old.bias is not None).to(old.weight.device, old.weight.dtype)
    model.set_submodule(path, new)
    return model
