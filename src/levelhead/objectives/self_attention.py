"""Debiased self-attention: learn from pictures and from what is left of them without the patch that tells the group.

Source: Qiang, Li, Khanduri, Zhu, "Fairness-aware vision transformer via debiased self-attention", ECCV 2024.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from levelhead.attention.watching import attending, attention_map
from levelhead.distributed import gather_rows
from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_cross_entropy, weighted_mean
from levelhead.objectives.patches import replace_patch
from levelhead.types import Batch


class GroupPrediction(Objective):
    """The weighted mean cross-entropy of the group instead of the label: what a picture tells about it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss."""
        assert batch.group is not None, "the stage gives groups"
        return weighted_cross_entropy(self.model(**batch.inputs).logits, batch.group, batch.weight), {}


def attention_divergence(plain: Tensor, changed: Tensor) -> Tensor:
    """Return 4.5 KL(changed || plain) of attention on patches (batch, patches), each made to sum to 1: (batch,).

    4.5 is the T^2 / 2 of the authors' code with its T = 3. That code applies a softmax to the probabilities of one side
    alone, and the other does not sum to 1: such a term is not smallest where both maps are equal. This one is.

    Source: Qiang, Li, Khanduri, Zhu, ECCV 2024, arXiv:2301.13803; the form is levelhead's.

    Examples:
        >>> import torch
        >>> attention_divergence(torch.tensor([[0.4, 0.3, 0.1]]), torch.tensor([[0.2, 0.5, 0.1]])).item()
        0.656906...
    """
    mine, target = (shares.clamp(min=1e-12) for shares in (plain, changed))
    mine, target = mine / mine.sum(dim=1, keepdim=True), target / target.sum(dim=1, keepdim=True)
    return 4.5 * (target * (target.log() - mine.log())).sum(dim=1)


class DebiasedSelfAttention(Objective):
    """CE of the pictures + ``adversarial`` x CE of the changed ones + ``alignment`` x the divergence of attention.

    In the changed picture of row i the patch ``place[i]`` is ``content[i]``; ``place`` (train,) int64 and ``content``
    (train, channels, size, size) belong to all training rows. The divergence is :func:`attention_divergence` of what
    each patch gets in both passes, the mean over heads and queries, without the ``prefix`` tokens, summed over layers.

    Source: Qiang, Li, Khanduri, Zhu, "Fairness-aware vision transformer via debiased self-attention", ECCV 2024,
    arXiv:2301.13803.
    """

    place: Tensor
    content: Tensor

    def __init__(
        self,
        model: nn.Module,
        place: Tensor,
        content: Tensor,
        *,
        prefix: int = 1,
        adversarial: float = 1.0,
        alignment: float = 1.0,
    ) -> None:
        super().__init__()
        self.model, self.prefix = model, prefix
        self.adversarial, self.alignment = adversarial, alignment
        # Not in the state dict: both are made again from the trained network of the stage before when a run resumes.
        self.register_buffer("place", place, persistent=False)
        self.register_buffer("content", content, persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum of the three terms, and each for the log."""
        pixels = batch.inputs["pixel_values"]
        changed = replace_patch(pixels, self.place[batch.index], self.content[batch.index].to(pixels))
        with attending(self.model) as after:
            logits_after = self.model(**{**batch.inputs, "pixel_values": changed}).logits
        with attending(self.model) as before:  # last: debiased attention aligns the pass before the loss
            logits = self.model(**batch.inputs).logits
        task = weighted_mean(cross_entropies(logits, batch.labels), batch.weight)
        adversarial = weighted_mean(cross_entropies(logits_after, batch.labels), batch.weight)
        divergences = torch.stack(
            [
                attention_divergence(*(attention_map(seen).mean(dim=1)[:, self.prefix :] for seen in layer))
                for layer in zip(before, after, strict=True)
            ]
        ).sum(dim=0)
        if len(divergences) < len(batch.labels):  # this process ran its share of the rows
            divergences = gather_rows(divergences)
        divergence = weighted_mean(divergences, batch.weight)
        loss = task + self.adversarial * adversarial + self.alignment * divergence
        parts = {"task": task, "adversarial": adversarial, "divergence": divergence}
        return loss, {name: part.detach() for name, part in parts.items()}
