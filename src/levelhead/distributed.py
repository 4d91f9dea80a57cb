"""Rows of tensors from all data-parallel processes, with the gradient.

What a batch shares over its rows (statistics, contrastive negatives, the loss of a method) is that of the whole
batch, also where processes hold parts of it. ADR 0003 proves that the gradients are then those of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable


def process_count() -> int:
    """Return the number of processes of ``torch.distributed``; 1 where it does not run."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def shares(rows: int) -> list[int]:
    """Return how many of ``rows`` each process takes, in order; like ``tensor_split``, the first ones take one more."""
    processes = process_count()
    return [rows // processes + (process < rows % processes) for process in range(processes)]


def agreed(decision: bool, device: torch.device) -> bool:
    """Return what the main process has decided: clocks differ. ``device`` is what the processes exchange tensors on."""
    if process_count() == 1:
        return decision
    flag = torch.tensor(int(decision), device=device)
    distributed.broadcast(flag, 0)
    return bool(flag)


def row_counts(rows: Tensor) -> list[int]:
    """Return the number of rows that each process holds of a tensor."""
    if process_count() == 1:
        return [len(rows)]
    mine = torch.tensor([len(rows)], device=rows.device)
    counts = [torch.empty_like(mine) for _ in range(process_count())]
    distributed.all_gather(counts, mine)
    return [int(count) for count in counts]


def gather_rows(rows: Tensor, counts: Sequence[int] | None = None) -> Tensor:
    """Return the rows of all processes, in their order; without several processes, ``rows`` itself.

    ``rows`` (own rows, ...) has the same type and the same further axes everywhere; ``counts`` are the numbers of rows
    of all processes, requested if None. Every process must call this the same number of times, in the same order.

    The gradient of the own rows is the sum of what all processes have derived for them, not the mean: see ADR 0003.
    """
    if process_count() == 1:
        return rows
    gathered: Tensor = _GatherRows.apply(rows, list(row_counts(rows) if counts is None else counts))
    return gathered


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        most = max(counts)
        # Backends want tensors of one size, so shorter ones are filled up.
        padded = F.pad(rows, (0, 0) * (rows.ndim - 1) + (0, most - len(rows))).contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)  # others may hold the same gradient
        distributed.all_reduce(total)
        return total.split(ctx.counts)[distributed.get_rank()], None
