"""Two networks that each learn from one half of the rows, and correct each other's labels.

Source: Pezeshki, Bouchacourt, Ibrahim, Ballas, Vincent, Lopez-Paz, "Discovering environments with XRM", ICML 2024.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies
from levelhead.objectives.group import group_means
from levelhead.types import Batch


def flip_chances(held_out: Tensor) -> tuple[Tensor, Tensor]:
    """Return the probability that a row's label becomes the held-out network's answer, and that answer: (batch,) each.

    The probability is (p - 1/K) K / (K - 1), with p the largest of the K probabilities: 0 for a network that knows
    nothing, 1 for one that is sure. ``held_out`` (batch, K) are logits.

    Source: Pezeshki et al., ICML 2024, arXiv:2309.16748.

    Examples:
        >>> import torch
        >>> chance, answer = flip_chances(torch.tensor([[0.9, 0.1]]).log())
        >>> round(chance.item(), 6), answer.item()
        (0.8, 0)
    """
    classes = held_out.shape[-1]
    largest, answer = held_out.detach().float().softmax(-1).max(-1)
    return (largest - 1 / classes) * classes / (classes - 1), answer


class CrossRisk(Objective):
    """Cross risk minimisation: twins learn from halves of the rows, and each answers for the half it does not learn.

    ``side`` (train,) bool says which rows the first twin learns from; the second learns from the others. The loss is
    the sum over classes of the mean cross-entropy, by the labels as they stand; a class that the batch lacks adds 0. In
    each step the twin that does not learn from a row may change its label (:func:`flip_chances`). ``current`` (train,)
    are the labels as they stand; they begin as ``labels`` (train,) int64. The chances are drawn from ``seed`` and the
    number of the step alone, so they are the same in every process and when a run resumes.

    Source: Pezeshki, Bouchacourt, Ibrahim, Ballas, Vincent, Lopez-Paz, "Discovering environments with XRM", ICML 2024,
    arXiv:2309.16748.
    """

    current: Tensor
    side: Tensor
    steps: Tensor

    def __init__(self, model: nn.Module, twin: nn.Module, labels: Tensor, side: Tensor, seed: int) -> None:
        super().__init__()
        self.model, self.twin, self.seed = model, twin, seed
        self.register_buffer("current", labels.clone())
        self.register_buffer("side", side, persistent=False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def loss(self, first: Tensor, second: Tensor, index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the held-out logits of the rows ``index`` (batch,), from both twins' (batch, classes)."""
        side = self.side[index][:, None]
        learnt, held_out = torch.where(side, first, second), torch.where(side, second, first)
        labels = self.current[index]
        losses = cross_entropies(learnt, labels)
        return group_means(losses, labels, weight, first.shape[-1]).sum(), held_out

    def flip(self, held_out: Tensor, index: Tensor) -> None:
        """Give the rows ``index`` (batch,) the answers of their ``held_out`` logits (batch, classes), by chance."""
        chance, answer = flip_chances(held_out)
        drawn = np.random.default_rng((self.seed, int(self.steps))).random(len(index), dtype=np.float32)
        flipped = torch.from_numpy(drawn).to(chance) < chance
        self.current[index] = torch.where(flipped, answer, self.current[index])
        self.steps += 1

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of both twins, and for the log the share of the batch's rows whose label is another now."""
        first, second = self.model(**batch.inputs).logits, self.twin(**batch.inputs).logits
        loss, held_out = self.loss(first, second, batch.index, batch.weight)
        self.flip(held_out, batch.index)
        return loss, {"flipped": (self.current[batch.index] != batch.labels).float().mean()}
