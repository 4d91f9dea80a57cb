"""Which checkpoint is kept.

A selector scores the validation split after every epoch; the first epoch with the highest score is kept. The
label-only rules see logits and labels. One of them also sees the parts into which a method itself has divided the
validation split, from inputs and labels. A rule that sees groups carries ORACLE in its name, and every table that
it touches says so: with it a method is no longer free of demographics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn.functional import cross_entropy

from levelhead.metrics import Counts, contrasts


@dataclass(frozen=True)
class Selector:
    """A rule: ``score(logits, labels, groups)``, larger is better. Of a loss or a gap the score is the negative.

    ``groups`` are the demographic ones of a rule with ``uses_groups``, the parts that the method has inferred of one
    with ``uses_parts`` (:attr:`levelhead.methods.Stage.validation_parts`), and otherwise None.
    """

    summary: str
    score: Callable[[Tensor, Tensor, Tensor | None], float]
    uses_groups: bool = False
    uses_parts: bool = False
    negated: bool = False


def measured(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the scores of rules as what was measured, for files and logs: a loss is positive there."""
    return {
        name: abs(score) if score is not None and name in SELECTORS and SELECTORS[name].negated else score
        for name, score in scores.items()
    }


def score_of(rule: str, value: float) -> float:
    """Return the score, larger being better, of what a file holds, where a loss is positive."""
    return -value if rule in SELECTORS and SELECTORS[rule].negated else value


def _validation_loss(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    return -cross_entropy(logits, labels).item()


def _validation_accuracy(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    return (logits.argmax(-1) == labels).double().mean().item()


def _worst_class_accuracy(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    return _worst_part_accuracy(logits, labels, labels)


def _worst_part_accuracy(logits: Tensor, labels: Tensor, parts: Tensor | None) -> float:
    assert parts is not None, "the lab gives parts to a selector that declares them"
    correct = (logits.argmax(-1) == labels).double()
    return min(correct[parts == part].mean().item() for part in parts.unique())


def _equalized_odds(logits: Tensor, labels: Tensor, groups: Tensor | None) -> float:
    assert groups is not None, "the lab gives groups to a selector that declares them"
    counts = Counts.from_rows(labels.numpy(), logits.argmax(-1).numpy(), groups.cpu().numpy())
    return -float(contrasts.measured(counts.table, "equalized_odds"))


SELECTORS: dict[str, Selector] = {
    "last": Selector("the last epoch", lambda logits, labels, groups: 0.0),
    "val_loss": Selector("lowest unweighted cross-entropy on validation", _validation_loss, negated=True),
    "val_accuracy": Selector("highest accuracy on validation", _validation_accuracy),
    "val_worst_class": Selector("highest accuracy of the worst class on validation", _worst_class_accuracy),
    "val_worst_inferred": Selector(
        "highest accuracy of the worst part that the method itself inferred on validation",
        _worst_part_accuracy,
        uses_parts=True,
    ),
    "ORACLE_val_equalized_odds": Selector(
        "smallest equalized odds gap on validation; sees groups", _equalized_odds, uses_groups=True, negated=True
    ),
}

FOR_ANY_METHOD = [name for name, rule in SELECTORS.items() if not rule.uses_groups and not rule.uses_parts]
"""The rules that need labels alone, and nothing that a method has inferred."""
