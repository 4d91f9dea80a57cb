"""BMFT: bias-based weight masking fine-tuning (Xue et al., MICCAI workshop 2024)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from levelhead.methods.directions import standardized
from levelhead.methods.few_label import FEWEST, FewGroups
from levelhead.methods.last_layer import FloatArray, HeldOut, last_layer, solve, watching_last_layer
from levelhead.training.finite import refuse_not_finite
from levelhead.training.loop import mixed_seed
from levelhead.types import ConfigError, DataError, UnsupportedModelError, check_numbers

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BMFT(FewGroups):
    """Tune the weights that matter more to the gap than to the loss, then fit a new last layer.

    The rows with a known group tell two importances of each weight below the last layer: the squared gradient of
    :func:`odds_gap`, and that of the cross-entropy, averaged over batches of ``batch_size``. The ``share`` of weights
    with the largest ratio is tuned on the sum of both losses, for ``epochs`` at ``rate``. Then a new last layer is
    fitted to the same rows, from zero, with ``penalty`` times its squared weights; within a class each group weighs the
    same. No group is needed to predict.

    Source: Xue, Yan, Dutt, Haider, Liu, McDonagh, Tsaftaris, "BMFT: achieving fairness via bias-based weight masking
    fine-tuning", MICCAI FAIMI workshop 2024, arXiv:2408.06890.
    """

    summary: ClassVar[str] = "a few group labels: tune the weights behind the gap, then a new last layer (2024)"
    changes_body: ClassVar[bool] = True
    share: float = 0.5
    epochs: int = 5
    rate: float = 3e-4
    batch_size: int = 64
    penalty: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("method", self, at_least_one=("epochs", "batch_size"), positive=("rate", "penalty"))
        if not 0 < self.share <= 1:
            raise ConfigError(f"method.share is {self.share}; it must be above 0, and at most 1.")

    def tune(self, model: Any, held: HeldOut) -> HeldOut:
        """Tune the chosen weights; the network is in evaluation mode, so without dropout.

        Errors: :class:`~levelhead.UnsupportedModelError` for a network that trains nothing below its last layer, and
        :class:`~levelhead.DataError` for known groups that are all the same.
        """
        received = self.received(held)
        if len(np.unique(received.known.group)) < 2:
            raise DataError("bmft compares groups, and the rows with a known group hold fewer than two: give more.")
        head = {id(one) for one in last_layer(model).parameters()}
        body = [one for one in model.parameters() if one.requires_grad and id(one) not in head]
        if not body:
            raise UnsupportedModelError("bmft tunes weights below the last layer, and this network trains none there.")
        model.eval()
        gap = importance(body, (odds_gap(*rows) for rows in self.answers(model, received, 0)))
        task = importance(body, (cross_entropy(*rows[:2]) for rows in self.answers(model, received, 0)))
        optimizer, chosen = torch.optim.SGD(body, self.rate, momentum=0.9), largest_ratio(gap, task, self.share)
        for epoch in range(self.epochs):
            for logits, labels, groups in self.answers(model, received, epoch):
                loss = cross_entropy(logits, labels) + odds_gap(logits, labels, groups)
                for one, slope, own in zip(body, slopes(loss, body), chosen, strict=True):
                    one.grad = slope * own
                optimizer.step()
        optimizer.zero_grad()
        with watching_last_layer(model) as inputs:
            rows = torch.arange(len(held.labels)).split(self.batch_size)
            features = torch.cat([inputs(batch_of(model, held, some)).cpu() for some in rows])
        refuse_not_finite(features, "inputs of the last layer", "of the validation split, as bmft has tuned it")
        return replace(held, features=features.double().numpy())

    def answers(self, model: Any, held: HeldOut, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield logits (batch, classes), labels and groups (batch,) of the rows with a known group, in random order."""
        told = torch.from_numpy(np.flatnonzero(held.group >= 0))
        generator = torch.Generator().manual_seed(mixed_seed(held.seed, self.draw, epoch))
        for rows in told[torch.randperm(len(told), generator=generator)].split(self.batch_size):
            logits = model(**batch_of(model, held, rows)).logits.float()
            labels, groups = (torch.from_numpy(each)[rows].to(logits.device) for each in (held.labels, held.group))
            yield logits, labels, groups

    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return a new layer, fitted to the rows with a known group."""
        known = self.received(held).known
        group = np.unique(known.group, return_inverse=True)[1]
        sizes = np.zeros((len(held.bias), group.max() + 1))
        np.add.at(sizes, (known.labels, group), 1)
        if sizes.min() < FEWEST:
            text = (
                "bmft got %d rows of a class of a group: what it learns of their gap is mostly chance. Give more rows"
            )
            logger.warning(text, sizes.min())
        each = sizes.sum(1) / (sizes > 0).sum(1).clip(min=1)  # rows that each group of a class counts as
        weights = each[known.labels] / sizes[known.labels, group] / len(group)
        mean, scale = standardized(known)
        zero = (0 * held.weight, 0 * held.bias)
        weight, bias = solve((known.features - mean) / scale, known.labels, weights, zero, self.penalty)
        return weight / scale, bias - (weight / scale) @ mean


def odds_gap(logits: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
    """Return the mean over classes of the largest difference between groups in the mean probability of that class.

    ``logits`` (batch, classes); ``labels`` and ``groups`` (batch,). Only rows of the class count: for two classes it is
    the mean gap in equalized odds, of probabilities for answers. A class of one group has no gap.
    """
    right = logits.softmax(-1).gather(1, labels[:, None])[:, 0]
    gaps = []
    for label in labels.unique():
        own = labels == label
        means = torch.stack([right[own & (groups == group)].mean() for group in groups[own].unique()])
        gaps.append(means.max() - means.min())
    return torch.stack(gaps).mean()


def slopes(loss: Tensor, body: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradient of a scalar in each tensor of ``body``; 0 where it has none."""
    return list(torch.autograd.grad(loss, body, allow_unused=True, materialize_grads=True))


def importance(body: Sequence[Tensor], losses: Iterable[Tensor]) -> list[Tensor]:
    """Return the mean over ``losses`` of the squared gradient in each tensor of ``body``: a diagonal Fisher matrix."""
    squares = [[slope.square() for slope in slopes(loss, body)] for loss in losses]
    return [torch.stack(each).mean(0) for each in zip(*squares, strict=True)]


def largest_ratio(above: Sequence[Tensor], below: Sequence[Tensor], share: float) -> list[Tensor]:
    """Return masks, True for the ``share`` of all entries that have the largest ratio ``above`` / ``below``."""
    # Not by 0, which weights without a gradient have: their ratio is 0.
    ratios = [over / under.clamp(min=torch.finfo(under.dtype).tiny) for over, under in zip(above, below, strict=True)]
    every = torch.cat([ratio.flatten() for ratio in ratios])
    lowest = every.sort(descending=True).values[max(1, round(share * len(every))) - 1]
    return [ratio >= lowest for ratio in ratios]


def batch_of(model: Any, held: HeldOut, rows: Tensor) -> dict[str, Tensor]:
    """Return what ``model`` gets of ``rows`` (batch,) int64, on its device."""
    assert held.inputs is not None, "of a network that is refitted"
    device = last_layer(model).weight.device
    return {name: value.to(device) for name, value in held.inputs.batch(rows).items()}
