"""Separate early and resample (Yang et al., AISTATS 2024)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from levelhead.methods.base import Method
from levelhead.methods.clusters import FloatArray, IntArray, k_means, rows_of_classes, silhouettes
from levelhead.methods.falling import warn_of_fall
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage
from levelhead.types import check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

CLEAR = 0.9
"""The mean silhouette of a class from which its clusters count as well parted."""


@dataclass(frozen=True)
class SPARE(Method):
    """Divide each class by the logits of a short training; then draw rows of small parts more often.

    The first network is trained for ``reference_epochs``. K-means divides its logits into ``clusters`` parts a class. A
    row is then drawn in proportion to the size of its part to the power of minus ``power``, so that 1 draws the parts
    of a class equally often, and 2 the small ones more often than the large ones; every class is drawn equally often.
    ``power=None`` takes 1 for a class whose parts are well divided (a mean silhouette of 0.9 or more), and 2 otherwise.

    Source: Yang, Gan, Dziugaite, Mirzasoleiman, "Identifying spurious biases early in training through the
    lens of simplicity bias", AISTATS 2024, arXiv:2305.18761.
    """

    summary: ClassVar[str] = "clusters of early logits; upsamples small ones (AISTATS 2024)"
    reference_epochs: int = 1
    clusters: int = 2
    power: float | None = None

    def __post_init__(self) -> None:
        check_numbers("method", self, at_least_one=("reference_epochs", "clusters"), at_least_zero=("power",))

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train briefly, divide the classes, train again on rows drawn by the sizes of the parts."""
        classes = rows_of_classes(lab.labels, self.clusters, "spare", lab.validation.class_names)
        reference = lab.new_auxiliary()
        yield Stage(WeightedCrossEntropy(reference), epochs=self.reference_epochs, select="last")
        before, logits = lab.validation_accuracy(reference), lab.logits(reference).double().numpy()
        generator = np.random.default_rng(lab.seed)
        chances, groups = np.empty(len(logits)), torch.empty_like(lab.labels)
        for label, rows in enumerate(classes):
            parts, _ = k_means(logits[rows], self.clusters, generator)
            groups[rows] = torch.from_numpy(parts + label * self.clusters)
            parted = silhouettes(logits[rows], parts, generator)[0].mean()
            power = (1 if parted >= CLEAR else 2) if self.power is None else self.power
            chances[rows] = drawing_chances(parts, power) / len(classes)
        stage = Stage(WeightedCrossEntropy(lab.new_model()), groups=groups, sampling=torch.from_numpy(chances))
        yield stage
        warn_of_fall("SPARE", before, lab.validation_accuracy(stage.objective.model), "compare power 0 and 1")


def drawing_chances(parts: IntArray, power: float) -> FloatArray:
    """Return size^-power of the part that each row is of, scaled to sum to 1: (rows,).

    ``parts`` (rows,) are those of one class, from 0.

    Source: Yang et al., AISTATS 2024, arXiv:2305.18761.

    Examples:
        >>> import numpy as np
        >>> parts = np.repeat([0, 1], [90, 10])
        >>> [drawing_chances(parts, power)[[0, 99]].round(6).tolist() for power in (1, 2)]
        [[0.005556, 0.05], [0.001111, 0.09]]
    """
    raw = np.bincount(parts)[parts] ** -float(power)
    return np.asarray(raw / raw.sum())
