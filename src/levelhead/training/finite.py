"""What is said when a loss, a gradient, a weight or an answer is not a finite number, and what may help."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from levelhead.types import LevelheadError


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


def advice(config: Any, *, first: bool = False, clip: bool = True) -> str:
    """Return what may help a training with ``config``, leaving out what is done already or cannot help.

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
