"""The weights that training changes, and how they are loaded."""

from __future__ import annotations

from collections.abc import Mapping

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
