"""Which checkpoint is kept.

A selector scores the validation split after every epoch; the first epoch with the highest score is kept. The
label-only rules see logits and labels. A rule that also sees groups carries ORACLE in its name, and every table that
it touches says so: with it a method is no longer free of demographics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from levelhead.metrics import Counts, equalized_odds


@dataclass(frozen=True)
class Selector:
    """A rule: ``score(logits, labels, groups)``, larger is better; ``groups`` is None unless ``uses_groups``."""

    summary: str
    score: Callable[[Tensor, Tensor, Tensor | None], float]
    uses_groups: bool = False


def _validation_loss(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    return -cross_entropy(logits, labels).item()


def _validation_accuracy(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    return (logits.argmax(-1) == labels).double().mean().item()


def _worst_class_accuracy(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    correct = (logits.argmax(-1) == labels).double()
    return min(correct[labels == label].mean().item() for label in labels.unique())


def _equalized_odds(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    assert groups is not None, "the lab gives groups to a selector that declares them"
    counts = Counts.from_rows(labels.numpy(), logits.argmax(-1).numpy(), groups.cpu().numpy())
    return -float(equalized_odds(counts.table))


SELECTORS: dict[str, Selector] = {
    "last": Selector("the last epoch", lambda logits, labels, groups: 0.0),
    "val_loss": Selector("lowest unweighted cross-entropy on validation", _validation_loss),
    "val_accuracy": Selector("highest accuracy on validation", _validation_accuracy),
    "val_worst_class": Selector("highest accuracy of the worst class on validation", _worst_class_accuracy),
    "ORACLE_val_equalized_odds": Selector(
        "smallest equalized odds gap on validation; sees groups", _equalized_odds, uses_groups=True
    ),
}
