"""Correct-N-Contrast (Zhang et al., ICML 2022)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from levelhead.methods.base import Method
from levelhead.methods.falling import warn_of_fall
from levelhead.methods.last_layer import last_layer
from levelhead.objectives.correct_contrast import CorrectContrast
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CnC(Method):
    """Train briefly; then pull rows of a class together, those that were got right and those that were missed.

    The first network is trained for ``reference_epochs``. In the second training a row that it got right is pulled
    towards missed rows of its class, and pushed away from rows of other classes that were taken for its class; and the
    other way round. Pairs are formed inside the batch, half of which are rows that were missed. ``temperature``
    divides the cosine of the last layer's inputs, ``share`` is the weight of the contrast beside cross-entropy, and
    ``single_positive`` compares each positive with the negatives alone.

    Source: Zhang, Sohoni, Zhang, Finn, Ré, "Correct-N-Contrast: a contrastive approach for improving robustness to
    spurious correlations", ICML 2022, arXiv:2203.01517.
    """

    summary: ClassVar[str] = "contrastive learning between a short training's hits and errors (ICML 2022)"
    trains_twice: ClassVar[bool] = True
    reference_epochs: int = 1
    temperature: float = 0.1
    share: float = 0.75
    single_positive: bool = False

    def __post_init__(self) -> None:
        check_numbers("method", self, at_least_one=("reference_epochs",), positive=("temperature",))
        if not 0 <= self.share <= 1:
            raise ConfigError(f"method.share is {self.share}; it must be 0 or more, and at most 1.")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train briefly, find what is missed, train again on pairs."""
        classes = len(lab.labels.unique())
        if lab.config.batch_size < 2 * classes:
            raise ConfigError(
                f"Method cnc pairs rows of each class inside a batch, and train.batch_size is {lab.config.batch_size} "
                f"with {classes} classes: it must be at least {2 * classes}."
            )
        reference = lab.new_auxiliary()
        yield Stage(WeightedCrossEntropy(reference), epochs=self.reference_epochs, select="last")
        before, predicted = lab.validation_accuracy(reference), lab.logits(reference).argmax(-1)
        missed = predicted != lab.labels
        share = missed.double().mean()
        if not 0 < share < 1:
            logger.warning(
                "CnC: the first training missed %s, so there are no pairs; the second is plain ERM",
                "everything" if share else "nothing",
            )
            sampling = None
        else:
            sampling = torch.where(missed, 0.5 / share, 0.5 / (1 - share))
        model = lab.new_model()
        objective = CorrectContrast(
            model,
            last_layer(model),
            predicted,
            lab.labels,
            temperature=self.temperature,
            share=self.share,
            single_positive=self.single_positive,
        )
        yield Stage(objective, sampling=sampling)
        warn_of_fall("CnC", before, lab.validation_accuracy(model), f"compare a smaller share (now {self.share:g})")
