"""What is said when a loss, a gradient, a weight or an answer is not a finite number, and what may help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from levelhead.types import LevelheadError


def gradient_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the global norm of the gradients, a number on their device."""
    return get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])


def refuse_not_finite(found: Tensor, what: str, where: str) -> None:
    """Raise :class:`~levelhead.types.LevelheadError` unless what a network gave for each row (rows, ...) is finite.

    ``what`` is its name in the plural, such as ``logits of runs/erm``, and ``where`` what the rows are of.
    """
    bad = (~torch.isfinite(found.flatten(1)).all(dim=1)).nonzero().flatten().tolist()
    if bad:
        first = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        raise LevelheadError(
            f"The {what} are not finite for {len(bad):,} of {len(found):,} rows {where} (rows {first}, counted from "
            "0). Nothing was scored or saved. If its weights hold NaN, restore them from a copy or train again; if "
            "numbers overflow, compute in float32."
        )


def loss_not_finite(what: str, value: float, where: str, config: Any, *, first: bool) -> str:
    """Say that a step was not taken because of its loss; ``config`` has the options of :class:`TrainConfig`."""
    return f"The {what} is {value} at {where}. Weights were not updated by this step. {advice(config, first=first)}"


def gradient_not_finite(value: float, where: str, config: Any, *, first: bool) -> str:
    """Say that a step was not taken because of its gradient."""
    return (
        f"The gradient's norm is {value} at {where}, although the loss is finite: a derivative overflows, or the loss "
        f"has none here. Weights were not updated by this step. {advice(config, first=first, clip=False)}"
    )


def weights_not_finite(value: float, where: str, config: Any) -> str:
    """Say that a step was taken and ruined the weights."""
    return (
        f"The weights' norm is {value} after {where}: this step updated them to numbers that are not finite, or too "
        f"large to compute with. Nothing of it was saved. {advice(config, clip=False)}"
    )


def advice(config: Any, *, first: bool = False, clip: bool = True) -> str:
    """Return what may help, leaving out what is done already or cannot help.

    A clip does not make a gradient finite, nor AdamW's steps smaller, which do not depend on the gradient's size.
    """
    ways = [] if first else [f"lower train.learning_rate (now {config.learning_rate:g})"]
    if clip and not first and config.gradient_clip is None:
        ways.append("set train.gradient_clip=1.0")
    if config.precision != "no":
        ways.append(f"train with train.precision=no (now {config.precision})")
    ways.append("change the options of the method or of its loss")
    if first:  # no learning rate has acted yet
        ways.append("look for broken inputs or starting weights")
    text = "; or ".join(ways)
    return f"{text[0].upper()}{text[1:]}."
