"""Parts of classes found by clustering: k-means, and silhouettes that say how well its clusters are parted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from torch import Tensor

from levelhead.types import ConfigError, quoted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TRIES = 3
"""Runs of k-means, of which the one with the smallest sum of squared distances is kept."""

SAMPLE = 5_000
"""Rows, drawn by chance, that silhouettes are computed on: time and memory grow with the square of their number."""

ROUNDS = 100


def k_means(points: FloatArray, clusters: int, generator: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Return the cluster of each point, (rows,), and the clusters' centres, (clusters, width).

    The best of 3 runs of Lloyd's algorithm, each begun at points drawn by k-means++. With fewer different points than
    clusters some clusters are empty.

    Args:
        points: (rows, width).
        clusters: at most as many as rows.
        generator: which points a run begins at.

    Source: Arthur, Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007, DOI
    10.5555/1283383.1283494.

    Examples:
        >>> import numpy as np
        >>> found, centres = k_means(np.array([[0.0], [0.2], [5.0]]), 2, np.random.default_rng(0))
        >>> bool(found[0] == found[1] != found[2]), centres[found].ravel().tolist()
        (True, [0.1, 0.1, 5.0])
    """
    best = np.inf
    for _ in range(TRIES):
        centres = _first_centres(points, clusters, generator)
        nearest = np.full(len(points), -1)
        for _ in range(ROUNDS):
            before, (nearest, squared) = nearest, nearest_centres(points, centres)
            if np.array_equal(nearest, before):
                break
            sums = np.zeros_like(centres)
            np.add.at(sums, nearest, points)
            sizes = np.bincount(nearest, minlength=clusters)[:, None]
            centres = np.where(sizes > 0, sums / np.maximum(sizes, 1), centres)
        if squared.sum() < best:
            best, found = squared.sum(), (nearest, centres)
    return found


def nearest_centres(points: FloatArray, centres: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the nearest of ``centres`` (clusters, width) for ``points`` (rows, width), and its squared distance."""
    squared = cdist(points, centres, "sqeuclidean")
    nearest = squared.argmin(axis=1)
    return nearest, squared[np.arange(len(points)), nearest]


def _first_centres(points: FloatArray, clusters: int, generator: np.random.Generator) -> FloatArray:
    """Draw points one after the other, each with a chance that grows with its squared distance to those drawn."""
    chosen = [int(generator.integers(len(points)))]
    squared = np.square(points - points[chosen[0]]).sum(axis=1)
    for _ in range(clusters - 1):
        total = squared.sum()
        chances = squared / total if total > 0 else None
        chosen.append(int(generator.choice(len(points), p=chances)))
        squared = np.minimum(squared, np.square(points - points[chosen[-1]]).sum(axis=1))
    return points[chosen]


def silhouettes(points: FloatArray, found: IntArray, generator: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Return the silhouettes of at most 5,000 points, drawn by chance, and the clusters of these: (some,) each.

    A point's silhouette is (b - a) / max(a, b): a is its mean distance to the other points of its own cluster, b that
    to the points of the nearest other cluster. It is 0 for a point alone in its cluster, and for all points where there
    is one cluster.

    Args:
        points: (rows, width).
        found: (rows,) clusters.
        generator: which points are drawn.

    Source: Rousseeuw, "Silhouettes: a graphical aid to the interpretation and validation of cluster analysis", 1987,
    DOI 10.1016/0377-0427(87)90125-7.

    Examples:
        >>> import numpy as np
        >>> points = np.array([[0.0], [0.2], [5.0]])
        >>> silhouettes(points, np.array([0, 0, 1]), np.random.default_rng(0))[0].round(3).tolist()
        [0.96, 0.958, 0.0]
    """
    if len(points) > SAMPLE:
        drawn = generator.choice(len(points), SAMPLE, replace=False)
        points, found = points[drawn], found[drawn]
    names, found = np.unique(found, return_inverse=True)
    if len(names) < 2:
        return np.zeros(len(points)), names[found]
    member = np.eye(len(names))[found]
    # The distances of a few hundred points at a time: those of all would fill some hundred megabytes.
    sums = np.concatenate([cdist(part, points) @ member for part in np.array_split(points, -(-len(points) // 500))])
    rows, sizes = np.arange(len(points)), member.sum(axis=0)
    own = sums[rows, found] / np.maximum(sizes[found] - 1, 1)
    others = sums / sizes
    others[rows, found] = np.inf
    other = others.min(axis=1)
    widest = np.maximum(own, other)
    parted = (other - own) / np.where(widest > 0, widest, 1)
    return np.where(sizes[found] > 1, parted, 0.0), names[found]


def rows_of_classes(labels: Tensor, clusters: int, method: str, names: Sequence[str]) -> list[IntArray]:
    """Return the rows of each class, from class 0 to the highest; errors name the ``method`` and a class of ``names``.

    Errors: :class:`~levelhead.ConfigError` where a class has fewer rows than ``clusters``, or none.
    """
    sizes = np.bincount(labels.numpy())
    few = int(sizes.argmin())
    if sizes[few] < clusters:
        raise ConfigError(
            f"Method {method} divides each class into {clusters} parts or fewer, and class {quoted(names[few])} has "
            f"{sizes[few]} training rows: set fewer parts, or drop the class."
        )
    return [np.flatnonzero(labels.numpy() == label) for label in range(len(sizes))]
