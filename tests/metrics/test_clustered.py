"""Means of rows in clusters, by loops over the clusters."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.metrics.clustered import means_within


@pytest.mark.parametrize("weighted", [False, True])
def test_means_and_their_covariances_are_those_of_sums_within_clusters(weighted: bool) -> None:
    rng = np.random.default_rng(int(weighted))
    rows, units = 200, 4  # the last unit has no row
    cluster, unit, values = rng.integers(0, 25, rows), rng.integers(0, 3, rows), rng.normal(1, 2, rows)
    weight = rng.uniform(0.1, 0.9, rows) if weighted else np.ones(rows)
    found = means_within(cluster, unit, units, values, weight if weighted else None)
    total, mean = np.zeros(3), np.zeros(3)
    parts = np.zeros((25, 3))
    sizes = np.zeros((25, 3))
    for u in range(3):
        inside = unit == u
        total[u] = weight[inside].sum()
        mean[u] = (weight * values)[inside].sum() / total[u]
        for c in range(25):
            one = inside & (cluster == c)
            sizes[c, u] = weight[one].sum()
            parts[c, u] = (weight * (values - mean[u]))[one].sum() / (1 - sizes[c, u] / total[u])
    known = np.array([len(set(cluster[unit == u])) for u in range(3)])
    variance = (parts**2).sum(0) * (known - 1) / known / total**2
    np.testing.assert_allclose(found.value[:3], mean)
    np.testing.assert_allclose(found.variance[:3], variance)
    np.testing.assert_allclose(found.total[:3], total)
    np.testing.assert_allclose(found.freedom[:3], total**2 / (sizes**2).sum(0) - 1)
    assert found.clusters.tolist() == [*known, 0]
    assert np.isnan(found.value[3])
    assert (found.total[3], found.freedom[3], found.variance[3]) == (0, 0, 0)
    covariance = parts.T @ parts
    scale = np.sqrt(np.diag(covariance))
    assert found.correlation is not None
    np.testing.assert_allclose(found.correlation[:3, :3], covariance / np.outer(scale, scale))
    own, n, sums, squares = found.parts
    for at, u in enumerate(own):
        assert n[at] in sizes[:, u]
        assert squares[at] >= sums[at] ** 2 / n[at] - 1e-9
    assert sums.sum() == pytest.approx((weight * values).sum())
    assert squares.sum() == pytest.approx((weight * values**2).sum())

    difference, its, freedom = found.difference(0, 1)
    both = variance[:2].sum()
    free = total**2 / (sizes**2).sum(0) - 1
    together = found.correlation[0, 1]
    together = min(together, 0.9 if free[:2].min() >= 7 else 0.0)
    assert difference == pytest.approx(mean[0] - mean[1])
    assert its == pytest.approx(both - 2 * together * np.sqrt(variance[0] * variance[1]))
    assert freedom == pytest.approx(both**2 / (variance[:2] ** 2 / free[:2]).sum())


def test_units_that_share_no_cluster_are_independent() -> None:
    cluster, values = np.array([0, 0, 1, 2, 2, 3]), np.array([1.0, 2.0, 4.0, 0.0, 1.0, 3.0])
    unit = np.array([0, 0, 0, 1, 1, 1])
    assert means_within(cluster, unit, 2, values).correlation is None
    assert means_within(cluster % 2, unit, 2, values).correlation is not None
    assert means_within(cluster % 2, unit, 2, values, spanning=False).correlation is None


def test_clusters_of_one_row_are_worth_their_rows_and_copies_are_worth_one() -> None:
    values = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    copied = means_within(np.repeat(np.arange(8), 5), np.zeros(40, int), 1, np.repeat(values, 5))
    single = means_within(np.arange(8), np.zeros(8, int), 1, values)
    assert copied.variance == pytest.approx(single.variance)
    assert copied.worth[0] <= single.worth[0] + 1e-9 <= 8 + 1e-6
    alike = means_within(np.arange(8), np.zeros(8, int), 1, np.ones(8))
    assert alike.worth[0] == 8  # nothing varies: as many as there are clusters


def test_a_mean_of_clusters_by_hand() -> None:
    # Clusters of 3, 1, 2 and 2 rows; the last two have weights. Residuals over 1 - share, t with sum^2 / squares - 1.
    cluster, values = np.array([0, 0, 0, 1, 2, 2, 3, 3]), np.array([1.0, 2, 3, 5, 0, 4, 2, 7])
    weight = np.array([1.0, 1, 1, 1, 2, 0.5, 1, 3])
    found = means_within(cluster, np.zeros(8, int), 1, values, weight)
    mean = float((weight * values).sum() / weight.sum())
    n = np.array([weight[cluster == c].sum() for c in range(4)])
    sums = np.array([(weight * (values - mean))[cluster == c].sum() for c in range(4)])
    assert found.value[0] == pytest.approx(mean)
    total = weight.sum()
    assert found.variance[0] == pytest.approx(3 / 4 * ((sums / (1 - n / total)) ** 2).sum() / total**2)
    assert found.freedom[0] == pytest.approx(total**2 / (n**2).sum() - 1)
    alone = means_within(np.arange(8), np.zeros(8, int), 1, values)
    assert alone.variance[0] == pytest.approx(values.var(ddof=1) / 8)
    assert alone.freedom[0] == pytest.approx(7)
