"""GEORGE: clusters of each class, then GroupDRO on them (Sohoni et al., NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from torch.nn.functional import normalize

from levelhead.methods.base import Method
from levelhead.methods.clusters import FloatArray, IntArray, k_means, nearest_centres, rows_of_classes, silhouettes
from levelhead.methods.falling import warn_of_fall
from levelhead.methods.group_dro import worst_group_stage
from levelhead.methods.last_layer import last_inputs, last_layer
from levelhead.objectives.cross_entropy import WeightedCrossEntropy
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab

SPLITS: tuple[Literal["train"], Literal["validation"]] = ("train", "validation")


@dataclass(frozen=True)
class GEORGE(Method):
    """Cluster what the last layer of a trained network gets, class by class; then serve the worst cluster.

    The first network is trained for ``reference_epochs`` (None: the recipe's number). What its last layer gets is
    scaled to length 1 and reduced to two numbers a row, by ``reduction``: the two directions of most variance
    (``pca``), or, with two classes, how far the row lies on the wrong side and the direction of most variance in what
    is left (``hardness``). K-means divides each class into 2 to ``most_clusters`` clusters, the number with the best
    silhouettes. GroupDRO with ``step`` and ``adjustment`` (C in L_g + C / sqrt(n_g)) trains the kept network on them.

    Source: Sohoni, Dunnmon, Angus, Gu, Ré, "No subclass left behind: fine-grained robustness in coarse-grained
    classification problems", NeurIPS 2020, arXiv:2011.12945.
    """

    summary: ClassVar[str] = "GroupDRO on clusters of each class (NeurIPS 2020)"
    trains_twice: ClassVar[bool] = True
    infers_parts: ClassVar[bool] = True
    reference_epochs: int | None = None
    reduction: Literal["pca", "hardness"] = "pca"
    most_clusters: int = 10
    step: float = 0.01
    adjustment: float = 2.0

    def __post_init__(self) -> None:
        check_numbers(
            "method", self, at_least_one=("reference_epochs",), positive=("step",), at_least_zero=("adjustment",)
        )
        if self.most_clusters < 2:
            raise ConfigError(f"method.most_clusters is {self.most_clusters}; it must be at least 2.")

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Train the reference, cluster each class, train the kept network on the clusters."""
        classes = rows_of_classes(lab.labels, self.most_clusters, "george", lab.validation.class_names)
        if self.reduction == "hardness" and len(classes) != 2:
            raise ConfigError(f"method.reduction=hardness needs two classes, and there are {len(classes)}: choose pca.")
        reference = lab.new_auxiliary()
        layer = last_layer(reference)
        yield Stage(WeightedCrossEntropy(reference), epochs=self.reference_epochs, select="last")
        before = lab.validation_accuracy(reference)
        train, held_out = (normalize(last_inputs(lab, reference, split=split)).numpy() for split in SPLITS)
        weight = layer.weight.detach().double().cpu().numpy()
        generator = np.random.default_rng(lab.seed)
        clusters, count = torch.empty_like(lab.labels), 0
        parts = torch.full_like(lab.validation.labels, -1)  # which a class without training rows keeps
        for label, rows in enumerate(classes):
            theirs = np.flatnonzero(lab.validation.labels.numpy() == label)
            points, others = self._reduced(train[rows], held_out[theirs], weight)
            found, centres = best_clusters(points, self.most_clusters, generator)
            clusters[rows] = torch.from_numpy(found + count)
            parts[theirs] = torch.from_numpy(nearest_centres(others, centres)[0] + count)
            count += len(centres)
        stage = worst_group_stage(lab, clusters, self.step, self.adjustment, balanced=False, validation_parts=parts)
        yield stage
        warn_of_fall("GEORGE", before, lab.validation_accuracy(stage.objective.model), "compare it with method erm")

    def _reduced(self, points: FloatArray, others: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return two numbers a row, (rows, 2), for ``points`` and for ``others``, in directions found by ``points``."""
        points, others = points.astype(np.float64), others.astype(np.float64)
        if self.reduction == "pca":
            centre, directions = principal_directions(points, 2)
            return (points - centre) @ directions, (others - centre) @ directions
        (hard, rest), (theirs, left) = hardness(points, weight), hardness(others, weight)
        centre, directions = principal_directions(rest, 1)
        return (
            np.column_stack([hard, (rest - centre) @ directions]),
            np.column_stack([theirs, (left - centre) @ directions]),
        )


def principal_directions(points: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of ``points`` (rows, width), and their directions of most variance, (width, ``count``)."""
    centre = points.mean(axis=0)
    _, directions = np.linalg.eigh((points - centre).T @ (points - centre))  # the smallest variance first
    return centre, directions[:, ::-1][:, :count]


def hardness(features: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return how far features lie towards class 1, (rows,), and what is left of them without that, (rows, width).

    The direction is that of w_1 - w_0, of the rows of ``weight`` (2, width); ``features`` are (rows, width).

    Source: Sohoni et al., NeurIPS 2020, arXiv:2011.12945.

    Examples:
        >>> import numpy as np
        >>> towards, rest = hardness(np.array([[1.0, 1, 0]]), np.array([[1.0, 2, 0], [0, 2, 1]]))
        >>> towards.round(6).tolist(), rest.round(6).tolist()
        ([-0.707107], [[0.5, 1.0, 0.5]])
    """
    direction = (weight[1] - weight[0]) / np.linalg.norm(weight[1] - weight[0])
    towards = features @ direction
    return towards, features - towards[:, None] * direction


def best_clusters(points: FloatArray, most: int, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Return the clusters of ``points`` (rows, width), (rows,), and their centres, with the best silhouettes.

    A number from 2 to ``most`` is scored by the mean, over its clusters, of their mean silhouettes; of equal scores the
    larger number wins.

    Source: Sohoni et al., NeurIPS 2020, arXiv:2011.12945.
    """
    best = -np.inf
    for clusters in range(2, most + 1):
        found, centres = k_means(points, clusters, generator)
        score = mean_of_clusters(*silhouettes(points, found, generator))
        if score >= best:
            names, compact = np.unique(found, return_inverse=True)  # without clusters that are empty
            best, kept = score, (compact, centres[names])
    return kept


def mean_of_clusters(values: FloatArray, found: IntArray) -> float:
    """Return the mean, over the clusters ``found`` (rows,), of the mean of ``values`` (rows,) in each."""
    return float(np.mean([values[found == cluster].mean() for cluster in np.unique(found)]))
