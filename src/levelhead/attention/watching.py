"""What the attention of a training pass worked with, with its graph: for losses on queries and on attention.

:mod:`levelhead.attention.capture` reads the same for figures, without a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from levelhead.attention import interface
from levelhead.attention.aligning import Tap
from levelhead.attention.attach import is_debiased
from levelhead.attention.block import AppendedClassifier
from levelhead.attention.interface import Attended
from levelhead.attention.probe import as_probed, find_readout, probe_inputs
from levelhead.types import UnsupportedModelError


@contextmanager
def attending(model: nn.Module) -> Iterator[list[Attended]]:
    """Collect what each attention layer of ``model`` works with inside the block, in order, with its graph.

    A plain model attends through this package's function meanwhile, which computes the same by ``sdpa``. All rows of
    the last layer are computed, also where the classifier reads one alone.
    """
    seen: list[Attended] = []
    with interface.switched(model), interface.watched(seen.append):
        yield seen


@dataclass(frozen=True)
class ReadoutQuery:
    """Takes the query of the row that the classifier reads from what the last layer worked with.

    ``rule`` and ``first_real`` are those of :meth:`~levelhead.attention.aligning.Tap.row`; ``width`` is heads times
    head size.
    """

    rule: str
    first_real: bool
    width: int

    def __call__(self, seen: Attended) -> Tensor:
        """Return (batch, width) float32, as the softmax got it; where no single row is read, the mean over tokens."""
        query = seen.query.float()
        valid = interface.valid_keys(seen.mask, query.shape[0])
        row = seen.row
        if row is None:
            row = Tap(self.rule).row(query, valid, first_real=self.first_real)
        if row is not None:
            return query[torch.arange(len(query), device=query.device), :, row].flatten(1)
        if valid is None:
            return query.mean(dim=2).flatten(1)
        weight = valid[:, None, :, None].to(query.dtype)
        return ((query * weight).sum(dim=2) / weight.sum(dim=2).clamp(min=1)).flatten(1)


def readout_query(model: Any) -> ReadoutQuery:
    """Find the last attention layer of a network and the row that its classifier reads; the network is unchanged.

    Errors: :class:`~levelhead.UnsupportedModelError` for a network whose attention cannot be reached, or does not see
    one sequence per example.
    """
    if isinstance(model, AppendedClassifier):
        return ReadoutQuery(model.readout.readout, True, model.block.attention.query.out_features)
    name = type(model).__name__
    if is_debiased(model):  # its record tells, and to run it before any training would be warned of
        record = model.config.levelhead
        return ReadoutQuery(record["debias"]["readout"], False, record["heads"] * record["head_size"])
    if not hasattr(model, "config") or getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{name} is not a Hugging Face encoder or decoder: its queries cannot be read.")
    with as_probed(model):
        inputs = probe_inputs(model)
        with interface.recorded() as calls:
            model(**inputs)
        refuse_unreachable(name, bool(calls))
        last = calls[-1]
        batch = next(value.shape[0] for value in inputs.values() if isinstance(value, Tensor))
        if last.query[0] != batch or last.query[2] != last.key[2]:
            raise UnsupportedModelError(
                f"The last attention of {name} does not see one sequence per example (windows or cross-attention)."
            )
        path = next(path for path, module in model.named_modules() if module is last.module)
        try:
            rule = find_readout(model, path, inputs, last.query[2])
        except UnsupportedModelError:  # layers that cannot be distinguished: no row can be proved
            rule = "none"
        return ReadoutQuery(rule, False, last.query[1] * last.query[3])


def refuse_unreachable(name: str, seen: bool) -> None:
    """Raise :class:`~levelhead.UnsupportedModelError` for a network none of whose attention was seen."""
    if not seen:
        raise UnsupportedModelError(
            f"{name} does not use the attention interface of transformers, so its queries and keys cannot be read."
        )


def attention_map(seen: Attended) -> Tensor:
    """Return a layer's attention, the mean over its heads: (batch, queries, tokens) float32, each query's sum 1."""
    query, key = seen.query.float(), seen.key.float()
    logits = seen.scaling * query @ key.repeat_interleave(query.shape[1] // key.shape[1], dim=1).transpose(2, 3)
    if seen.mask is not None:
        mask = seen.mask
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(dim=-1).mean(dim=1)
