"""Queries that say nothing about the group: an adversary behind a reversed gradient, and equal means.

Source: Sudhakar, Prabhu, Krishnakumar, Hoffman, 2023, and its copy among the baselines of Qiang et al., ECCV 2024.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from levelhead.attention.probe import refuse_unreachable
from levelhead.attention.watching import attending, readout_query
from levelhead.distributed import gather_rows
from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.types import Batch


def reversal_strength(done: Tensor) -> Tensor:
    """Return 2 / (1 + exp(-10 done)) - 1 for the share of the training that is done: from 0 to almost 1.

    Source: Ganin et al., "Domain-adversarial training of neural networks", JMLR 2016, arXiv:1505.07818, section 5.2.2.

    Examples:
        >>> import torch
        >>> round(reversal_strength(torch.tensor(0.1)).item(), 6)
        0.462117
    """
    return torch.tanh(5 * done)  # the same number


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: Tensor) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradient, None


def reversed_gradient(x: Tensor, strength: Tensor) -> Tensor:
    """Return ``x``; in the backward pass its gradient is multiplied by minus ``strength``.

    Source: Ganin et al., JMLR 2016, arXiv:1505.07818.
    """
    return _Reversed.apply(x, strength)


def query_distance(
    query: Tensor,
    labels: Tensor,
    group: Tensor,
    weight: Tensor,
    *,
    classes: int,
    groups: int,
    means: Literal["by_class", "scalar"] = "by_class",
) -> Tensor:
    """Return how far the groups' mean queries lie apart.

    ``by_class``: sum over the classes of the squared distance between the groups' mean queries within the class.
    ``scalar``: the squared difference between the groups' means over rows and features at once, labels left out, as in
    the copy among DSA's baselines: differences of features that cancel out are invisible to it. With more than two
    groups it is the mean over pairs of groups; a pair is left out where one of its groups has no row (of that class).

    ``query`` (batch, width); ``labels``, ``group`` int64 and ``weight`` (batch,). Rows count by their weight.

    Source: Sudhakar, Prabhu, Krishnakumar, Hoffman, 2023, arXiv:2302.04358; the exact form is levelhead's.

    Examples:
        >>> import torch
        >>> query = torch.tensor([[1.0, 0], [3, 2], [0, 1], [2, 2], [4, 0], [1, 1]])
        >>> labels, group = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 0, 1, 1])
        >>> query_distance(query, labels, group, torch.ones(6), classes=2, groups=2).item()
        6.5
    """
    if means == "scalar":
        query, labels, classes = query.mean(dim=1, keepdim=True), torch.zeros_like(labels), 1
    weight = weight.to(query.dtype)
    cell = labels * groups + group
    mass = query.new_zeros(classes * groups).index_add(0, cell, weight)
    sums = query.new_zeros(len(mass), query.shape[1]).index_add(0, cell, weight[:, None] * query)
    mean = (sums / torch.where(mass > 0, mass, 1)[:, None]).unflatten(0, (classes, groups))
    there = (mass > 0).view(classes, groups)
    pairs = (there[:, :, None] & there[:, None, :]).triu(1)  # (classes, groups, groups), each pair once
    distances = (mean[:, :, None] - mean[:, None, :]).square().sum(dim=-1)
    return ((distances * pairs).sum(dim=(1, 2)) / pairs.sum(dim=(1, 2)).clamp(min=1)).sum()


class TargetedAlignment(Objective):
    """Cross-entropy + ``adversary`` x the group's cross-entropy + ``alignment`` x the distance of mean queries.

    Both further terms see the query of the row that the classifier reads in the last layer, of all heads. A linear
    layer predicts the group from it and learns to; the network gets that gradient reversed, times
    :func:`reversal_strength` of the share of ``total_steps`` taken. The distance is :func:`query_distance`.

    Source: Sudhakar, Prabhu, Krishnakumar, Hoffman, "Mitigating bias in visual transformers via targeted alignment",
    2023, arXiv:2302.04358; the reversal is Ganin et al., JMLR 2016, arXiv:1505.07818.
    """

    steps: Tensor

    def __init__(
        self,
        model: nn.Module,
        groups: int,
        total_steps: int,
        *,
        adversary: float = 1.0,
        alignment: float = 1.0,
        means: Literal["by_class", "scalar"] = "by_class",
    ) -> None:
        super().__init__()
        self.model = model
        self.total_steps, self.adversary, self.alignment = total_steps, adversary, alignment
        self.means: Literal["by_class", "scalar"] = means
        self.readout = readout_query(model)
        self.group_head = nn.Linear(self.readout.width, groups)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the three terms, and each for the log, with the strength of the reversal."""
        assert batch.group is not None, "the stage gives groups"
        with attending(self.model) as seen:
            logits = self.model(**batch.inputs).logits
        refuse_unreachable(type(self.model).__name__, bool(seen))
        query = self.readout(seen[-1])
        if len(query) < len(batch.labels):  # this process ran its share of the rows
            query = gather_rows(query)
        strength = reversal_strength(self.steps / self.total_steps)
        self.steps += 1
        task = weighted_mean(cross_entropies(logits, batch.labels), batch.weight)
        guessed = self.group_head(reversed_gradient(query, strength))
        adversary = weighted_mean(cross_entropies(guessed, batch.group), batch.weight)
        distance = query_distance(
            query,
            batch.labels,
            batch.group,
            batch.weight,
            classes=logits.shape[-1],
            groups=self.group_head.out_features,
            means=self.means,
        )
        loss = task + self.adversary * adversary + self.alignment * distance
        return loss, {
            "task": task.detach(),
            "adversary": adversary.detach(),
            "distance": distance.detach(),
            "strength": strength,
        }
