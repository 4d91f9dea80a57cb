"""The rows of two groups that are looked at, and how much of them is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from levelhead.data.base import Inputs
from levelhead.inspecting.probes import Array, Bools, Ints


@dataclass(frozen=True)
class Options:
    """How much is measured: rows of curves, permutations, the level of intervals, and the seed of all that is drawn."""

    curve_rows: int = 100
    permutations: int = 200
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True)
class Rows:
    """The rows that are looked at, all of two groups.

    ``index`` (rows,) are positions in ``inputs``, ``label`` (rows,) codes, ``member`` (rows,) whether a row belongs to
    the second of ``groups``; ``cluster`` (rows,) codes of rows that belong together; ``grid`` patches down and across;
    ``masks`` (rows, patches) by part.
    """

    inputs: Inputs
    index: Tensor
    label: Ints
    member: Bools
    groups: tuple[str, str]
    cluster: Ints | None = None
    grid: tuple[int, int] | None = None
    masks: Mapping[str, Array] = field(default_factory=dict)

    def inputs_of(self, index: Tensor, device: torch.device | str) -> dict[str, Tensor]:
        """Inputs of the network at ``index``, positions in the inputs, on ``device``."""
        return {name: tensor.to(device) for name, tensor in self.inputs.batch(index).items()}

    def batches(self, size: int) -> list[tuple[slice, Tensor]]:
        """Positions in these rows, and in the inputs."""
        return [(slice(at, at + size), self.index[at : at + size]) for at in range(0, len(self.index), size)]
