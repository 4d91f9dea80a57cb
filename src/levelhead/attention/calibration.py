"""Running statistics from data, without training: ``calibrate``.

The running averages of a training run forget all but its last batches, and a model that was only attached has none.
Here they become the mean and spread of the whole data, exactly: each batch gives a count, a mean and a sum of
squares, and these are merged by the formula of Chan, Golub and LeVeque (1983).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from levelhead.arrays import checked
from levelhead.attention.aligning import debiased_attention, standardizers_of
from levelhead.attention.interface import evaluating
from levelhead.attention.standardize import QueryKeyStandardizer, RunningMoments, merged
from levelhead.types import ConfigError

AnyModel = TypeVar("AnyModel", bound=nn.Module)


class Pool:
    """Count, mean and sum of squared deviations of everything that one :class:`RunningMoments` would see.

    On the CPU in float64, of shapes (rows,) and (heads, rows, head size); ``batches`` (rows,) counts the batches
    that had a real token at each position.
    """

    def __init__(self, moments: RunningMoments):
        self.moments, rows = moments, moments.mean.shape[1]
        self.count = torch.zeros(rows, dtype=torch.float64)
        self.mean, self.squares = torch.zeros(2, *moments.mean.shape, dtype=torch.float64)
        self.batches = torch.zeros(rows, dtype=torch.int64)

    def add(self, x: Tensor, valid: Tensor | None) -> None:
        """Take in ``x`` (batch, heads, tokens, head size); ``valid`` (batch, tokens) is False at padding."""
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        counts, mean, squares, _ = self.moments.of_rows(exact, valid, per_position=len(self.count) > 1)
        both = ((self.count, counts), (self.mean, mean), (self.squares, squares))
        self.count, self.mean, self.squares = merged(*(torch.stack([one, new.cpu().double()]) for one, new in both))
        self.batches += counts.cpu() > 0

    def write(self) -> None:
        """Make the pooled statistics the running ones; a position without any real token keeps its own."""
        moments, count = self.moments, self.count[:, None]
        variance = self.squares / (count - 1 if moments.unbiased else count).clamp(min=1)
        spread = variance if moments.running == "variance" else (variance + moments.eps).sqrt()
        seen = (count > 0).to(moments.mean.device)
        for buffer, value in ((moments.mean, self.mean), (moments.get_buffer(moments.spread_name), spread)):
            buffer.copy_(torch.where(seen, value.to(buffer), buffer))
        moments.num_batches_tracked.copy_(self.batches)


class Collector:
    """Forward hook of a standardizer: pools its queries, keys and readout rows before they are debiased."""

    def __init__(self, standardizer: QueryKeyStandardizer):
        self.signature = inspect.signature(standardizer.forward)
        self.standardizer = standardizer
        self.pools = {
            name: Pool(child) for name, child in standardizer.named_children() if isinstance(child, RunningMoments)
        }

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Take in one call of the standardizer."""
        given = self.signature.bind(*args, **kwargs).arguments
        query, key, valid, readout = given["query"], given["key"], given.get("valid"), given.get("readout")
        self.pools["query"].add(query, valid if query.shape[2] == key.shape[2] else None)
        self.pools["key"].add(key, valid)
        if "readout" in self.pools and readout is not None:
            here = readout[:, None, None, None].expand(-1, query.shape[1], 1, query.shape[3])
            self.pools["readout"].add(query.gather(2, here), None)

    def write(self) -> None:
        """Make the pooled statistics the running ones."""
        for pool in self.pools.values():
            pool.write()


@torch.no_grad()
@checked
def calibrate(model: AnyModel, loader: Iterable[Mapping[str, Any]]) -> AnyModel:
    """Set the running statistics of a debiased model to those of data, without training anything.

    For a pretrained model whose last layer was attached: until it is trained, evaluation would standardise queries
    and keys with mean 0 and spread 1, whatever the data. Calibrated statistics make evaluation meaningful, not good:
    the sign of queries and keys is still gone, so train the model on. Also of use after training, when the last
    batches are no fair sample of the data. Training passes use the statistics of their own batch, before as after.

    Mean and variance are pooled over all batches exactly (no moving average), over the axes that the model's
    ``statistics`` name, without padding. Dropout is off; weights, modes and random numbers stay as they were.

    Args:
        model: from :func:`attach` or :func:`append_encoder` (also wrapped by PEFT), changed in place.
        loader: batches as the model takes them: mappings of tensors, on any device. Labels are left out. Once through:
            the loader must come to an end.

    Returns:
        The model.

    Errors: :class:`~levelhead.ConfigError` for a model without debiased attention, or with ``normalize=False`` or
    ``notebook.twice=True``, a loader without batches, a batch that is no mapping; :class:`LengthError` for another
    length than per-position statistics were made for. The statistics are unchanged after an error. One process: ranks
    are not pooled.

    Source: the pooling of T. Chan, G. Golub, R. LeVeque, "Algorithms for computing the sample variance", 1983, DOI
    10.1080/00031305.1983.10483115; the statistics of Lu, Wang, Wang, ICLR 2024, openreview.net/forum?id=jLIUfrAcMQ.

    Examples:
        >>> from transformers import ViTConfig, ViTForImageClassification
        >>> import torch
        >>> import levelhead as lh
        >>> network = ViTForImageClassification(ViTConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=2))
        >>> model = lh.attach(network)
        >>> loader = [{"pixel_values": torch.randn(4, 3, 224, 224)} for _ in range(3)]
        >>> lh.describe(lh.calibrate(model, loader)).batches
        3
    """
    standardizers = standardizers_of(debiased_attention(model))
    if not standardizers:
        raise ConfigError("This model was made with normalize=False: it keeps no statistics, so none can be set.")
    if any(standardizer.twice for standardizer in standardizers):
        raise ConfigError(
            "calibrate does not set the second mean that debias.notebook.twice=True keeps: train the model instead."
        )
    collectors = [Collector(standardizer) for standardizer in standardizers]
    device = next(model.parameters()).device
    with evaluating(model), ExitStack() as stack:
        for collector in collectors:
            one = collector.standardizer
            stack.callback(setattr, one, "_known_updated", one._known_updated)
            one._known_updated = True  # no warning that there are no statistics yet
            stack.callback(one.register_forward_hook(collector, with_kwargs=True).remove)
        taken = 0
        for batch in loader:
            if not isinstance(batch, Mapping) or not any(isinstance(value, Tensor) for value in batch.values()):
                raise ConfigError(
                    f"Batch {taken} of the loader is a {type(batch).__name__}, not a mapping from the names of the "
                    "model's inputs to tensors; for a levelhead Batch, pass (batch.inputs for batch in ...)."
                )
            inputs = {
                name: value.to(device) if isinstance(value, Tensor) else value
                for name, value in batch.items()
                if name not in ("labels", "label", "label_ids")
            }
            model(**inputs)
            taken += 1
    if not taken:
        raise ConfigError("The loader gave no batch, so there is nothing to take the statistics from.")
    for collector in collectors:
        collector.write()
    return model
