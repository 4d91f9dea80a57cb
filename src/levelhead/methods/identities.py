"""Take what stays the same over several records of one person out of a score; no groups are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy import linalg

from levelhead.methods.directions import less_means, standardized, without_directions
from levelhead.methods.last_layer import FloatArray, HeldOut, IntArray, LastLayerMethod
from levelhead.report.marks import IDENTITIES, PLACEBO
from levelhead.training.stage import Stage
from levelhead.types import ConfigError, DataError, check_numbers

if TYPE_CHECKING:
    from levelhead.training.lab import Lab


@dataclass(frozen=True)
class Identities(LastLayerMethod):
    """Find the directions in which people differ most, and take them out of the last layer as accuracy allows.

    Training rows say whom they are of (``data.person_column``), several rows a person. Inside a class, what differs
    between people but not within one person is who the person is, and the groups that a score uses are part of it.
    The first ``directions`` discriminants between people are taken out by
    :func:`~levelhead.methods.directions.without_directions`, at a cost of at most ``budget`` of the validation rows.
    No group is needed, and no id to predict. At least ``fewest_people`` people need two rows or more.
    ``placebo=True`` shuffles the ids: what the same steps do without any knowledge.

    Source: derived here, docs/methods/identities.md. Linear discriminants are those of Fisher, Annals of Eugenics 1936;
    to refit the last layer alone is the idea of Kirichenko et al., ICLR 2023, arXiv:2204.02937.
    """

    summary: ClassVar[str] = "ids of people, no groups: removes directions between people from the last layer"
    knowledge: ClassVar[str | None] = IDENTITIES
    uses_people: ClassVar[bool] = True
    directions: int = 3
    penalty: float = 0.1
    budget: float = 0.005
    fewest_people: int = 200
    placebo: bool = False

    def __post_init__(self) -> None:
        check_numbers("method", self, at_least_one=("directions", "fewest_people"))
        if not 0 < self.penalty < np.inf or not 0 < self.budget < 1:
            raise ConfigError("method identities needs penalty > 0 and 0 < budget < 1")

    @property
    def told(self) -> str | None:
        """The mark, and whether the ids are shuffled."""
        return IDENTITIES + PLACEBO * self.placebo

    def stages(self, lab: Lab) -> Iterator[Stage]:
        """Count the people before anything is trained; then train and refit."""
        self.check(lab.people.numpy())
        yield from super().stages(lab)

    def check(self, people: IntArray) -> None:
        """Raise :class:`~levelhead.types.DataError` where too few people (rows,) have two rows or more."""
        several = int((np.bincount(people) > 1).sum())
        if several < self.fewest_people:
            raise DataError(
                f"identities needs {self.fewest_people} people with at least two training rows each; here "
                f"{several} of {len(np.unique(people))} have two. Lower method.fewest_people, or take few-label."
            )

    def refit(self, held: HeldOut) -> tuple[FloatArray, FloatArray]:
        """Return the layer without the directions between people."""
        train = held.train
        assert train is not None, "of a method that uses people"
        self.check(train.people)
        if self.directions > train.features.shape[1]:
            raise ConfigError(
                f"method.directions is {self.directions}, and the last layer has {train.features.shape[1]} inputs."
            )
        people = train.people
        if self.placebo:
            people = np.random.default_rng((held.seed, 1)).permutation(people)
        mean, scale = standardized(held)
        found = between_people((train.features - mean) / scale, train.labels, people, self.directions, self.penalty)
        return without_directions(held, found, self.budget)


def scatters(features: FloatArray, labels: IntArray, people: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the covariances within and between people inside the classes, (width, width) each.

    With A the features (rows, width) centred inside the classes, the first one is W, the pooled covariance within
    people, and the second one A'A / n - W.
    """
    centred = less_means(features, labels)
    own = less_means(centred, people)
    within = own.T @ own / (len(own) - len(np.unique(people)))
    return within, centred.T @ centred / len(own) - within


def between_people(features: FloatArray, labels: IntArray, people: IntArray, count: int, penalty: float) -> FloatArray:
    """Return the directions in which people differ most inside the classes, (width, count), the first one first.

    With W and B of :func:`scatters`, they are the eigenvectors of B u = e (W + penalty I) u with the largest e.

    Args:
        features: (rows, width), standardized.
        labels: (rows,) classes.
        people: (rows,) codes, from 0.
        count: how many directions.
        penalty: added to the variances within people.
    """
    within, between = scatters(features, labels, people)
    width = features.shape[1]
    _, vectors = linalg.eigh(between, within + penalty * np.eye(width), subset_by_index=(width - count, width - 1))
    return np.asarray(vectors[:, ::-1])
