"""Contrast of rows that an earlier network gets right with rows that it gets wrong.

Source: Zhang, Sohoni, Zhang, Finn, Ré, "Correct-N-Contrast", ICML 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from levelhead.distributed import gather_rows
from levelhead.objectives.base import Objective
from levelhead.objectives.cross_entropy import cross_entropies, weighted_mean
from levelhead.objectives.features import logits_and_features
from levelhead.types import Batch


def contrast_pairs(labels: Tensor, predicted: Tensor, faultless: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return which rows are positives of which, and which are negatives: two (batch, batch) bool, a row an anchor.

    Anchor and positive have one label, and the earlier network is right about one of them and wrong about the other.
    Anchor and negative have one *predicted* class and different labels, so that it is again right about one of them.
    An anchor whose predicted class is ``faultless`` (classes,) bool, one that the earlier network never predicts
    wrongly, has all rows of other labels as negatives.

    Source: Zhang et al., ICML 2022, arXiv:2203.01517.

    Examples:
        >>> import torch
        >>> labels, predicted = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 1, 0])
        >>> positive, negative = contrast_pairs(labels, predicted)
        >>> positive[0].nonzero().ravel().tolist(), negative[0].nonzero().ravel().tolist()
        ([2], [5])
    """
    right = labels == predicted
    same, differ = labels[:, None] == labels, right[:, None] != right
    negative = (predicted[:, None] == predicted) & ~same & differ
    if faultless is not None:
        negative = negative | (faultless[predicted][:, None] & ~same)
    return same & differ, negative


def contrast(similarity: Tensor, positive: Tensor, negative: Tensor, single_positive: bool = False) -> Tensor:
    """Return -mean_p [s_p - log(sum_positives e^s + sum_negatives e^s)] of each anchor, (anchors,).

    ``similarity`` s (anchors, rows) is already divided by the temperature; ``positive`` and ``negative`` are bool of
    that shape. With ``single_positive`` the first sum is that of the positive p alone. It is 0 for an anchor without a
    positive or without a negative.

    Source: Zhang et al., ICML 2022, arXiv:2203.01517.
    """
    hidden = similarity.new_tensor(torch.finfo(similarity.dtype).min)  # not -inf, whose gradient is not a number
    away = torch.where(negative, similarity, hidden).logsumexp(1, keepdim=True)
    if single_positive:
        whole = torch.logaddexp(similarity, away)
    else:
        whole = torch.logaddexp(torch.where(positive, similarity, hidden).logsumexp(1, keepdim=True), away)
    losses = torch.where(positive, whole - similarity, 0).sum(1) / positive.sum(1).clamp(min=1)
    return torch.where(positive.any(1) & negative.any(1), losses, 0)


class CorrectContrast(Objective):
    """(1 - share) x cross-entropy + share x (contrast of right anchors + contrast of wrong anchors).

    ``layer`` is the last layer of ``model``: what it gets, (batch, width), is compared by the cosine divided by
    ``temperature``. ``predicted`` (train,) int64 are the earlier network's classes, and ``labels`` (train,) int64 the
    true ones. Anchors are those rows of the batch that have a positive and a negative there (:func:`contrast_pairs`);
    each of both terms is the mean over its anchors by the batch's weights, and 0 without one.

    Source: Zhang, Sohoni, Zhang, Finn, Ré, "Correct-N-Contrast: a contrastive approach for improving robustness to
    spurious correlations", ICML 2022, arXiv:2203.01517.
    """

    predicted: Tensor
    faultless: Tensor

    def __init__(
        self,
        model: nn.Module,
        layer: nn.Module,
        predicted: Tensor,
        labels: Tensor,
        *,
        temperature: float = 0.1,
        share: float = 0.75,
        single_positive: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        # By name: a layer kept as such would stand in the checkpoint twice.
        self.layer = next(name for name, module in model.named_modules() if module is layer)
        self.temperature, self.share, self.single_positive = temperature, share, single_positive
        classes = int(torch.maximum(labels, predicted).max()) + 1
        errors = torch.bincount(predicted[predicted != labels], minlength=classes)
        # Not in the state dict: they are made again from the earlier network when a run resumes.
        self.register_buffer("predicted", predicted, persistent=False)
        self.register_buffer("faultless", errors == 0, persistent=False)

    def contrasts(self, features: Tensor, labels: Tensor, predicted: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the terms of right and of wrong anchors, scalars, from ``features`` (batch, width).

        ``labels`` and ``predicted`` int64 and ``weight`` are (batch,).
        """
        # Autocast would silently take the similarities back to half precision.
        with torch.autocast(features.device.type, enabled=False):
            rows = normalize(features.float(), dim=-1)
            positive, negative = contrast_pairs(labels, predicted, self.faultless)
            losses = contrast(rows @ rows.T / self.temperature, positive, negative, self.single_positive)
        anchor = positive.any(1) & negative.any(1)
        right = labels == predicted
        terms = []
        for chosen in (anchor & right, anchor & ~right):
            mass = weight * chosen
            terms.append((mass * losses).sum() / torch.where(mass.sum() > 0, mass.sum(), 1))
        return terms[0], terms[1]

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, and its three terms for the log."""
        logits, features = logits_and_features(self.model, self.model.get_submodule(self.layer), batch.inputs)
        if len(features) < len(batch.labels):  # this process ran its share of the rows
            features = gather_rows(features)
        right, wrong = self.contrasts(features, batch.labels, self.predicted[batch.index], batch.weight)
        task = weighted_mean(cross_entropies(logits, batch.labels), batch.weight)
        loss = (1 - self.share) * task + self.share * (right + wrong)
        return loss, {"task": task.detach(), "right_anchors": right.detach(), "wrong_anchors": wrong.detach()}
