"""Means of rows in clusters, by loops over the clusters."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.metrics.clustered import ClusteredCounts, means_within


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


def counted(rows: int = 90, classes: int = 2) -> ClusteredCounts:
    """Rows of 12 clusters that span three groups."""
    rng = np.random.default_rng(classes)
    label = rng.integers(classes, size=rows)
    prediction = np.where(rng.random(rows) < 0.7, label, rng.integers(classes, size=rows))
    cluster, group = rng.integers(12, size=rows), rng.integers(3, size=rows)
    return ClusteredCounts.from_rows(cluster, group, label, prediction, ("a", "b", "c"), tuple(range(classes)))


def test_labels_and_predictions_change_over_with_their_rows() -> None:
    found = counted()
    np.testing.assert_array_equal(found.swapped(1).counts.table, found.counts.table.transpose(0, 2, 1))
    np.testing.assert_array_equal(found.swapped(0).counts.table, found.counts.table.transpose(0, 2, 1)[:, ::-1, ::-1])
    assert found.members.rows.max() > 1


def test_groups_are_kept_with_their_clusters() -> None:
    found = counted()
    kept = found.keep(["c", "a"])
    assert kept.counts.groups == ("c", "a")
    np.testing.assert_array_equal(kept.counts.table, found.counts.table[[2, 0]])
    for name in ("selection_rate", "true_positive_rate", "false_positive_rate"):
        whole, part = found.rate(name, 1), kept.rate(name, 1)
        np.testing.assert_allclose(part.value, whole.value[:, [2, 0]])
        np.testing.assert_allclose(part.worth, whole.worth[:, [2, 0]])
    pooled = found.pooled()
    assert pooled.counts.table.tolist() == [found.counts.table.sum(0).tolist()]
    assert pooled.clusters == found.clusters == 12
    assert set(pooled.members.group) == {0}


def test_a_rate_needs_rows_and_eight_clusters() -> None:
    cluster = np.array([*range(8), *range(8), *range(7), *range(7)])
    group = np.repeat([0, 0, 1, 1], [8, 8, 7, 7])
    label = np.repeat([1, 0, 1, 0], [8, 8, 7, 7])
    found = ClusteredCounts.from_rows(cluster, group, label, label, ("a", "b"), (0, 1))
    for positive in (0, 1):
        enough = found.enough(positive, 5)
        assert set(enough.rates) == {"selection_rate", "true_positive_rate", "false_positive_rate"}
        assert all(rates.tolist() == [[True, False]] for rates in enough.rates.values())
        assert enough.cells.tolist() == [[True, True], [False, False]]
        assert not found.enough(positive, 9).rates["true_positive_rate"].any()
    one_sided = ClusteredCounts.from_rows(cluster, group, np.ones(30, int), label, ("a", "b"), (0, 1))
    assert one_sided.enough(1, 5).rates["true_positive_rate"].tolist() == [[True, False]]
    assert one_sided.enough(0, 5).rates["true_positive_rate"].tolist() == [[False, False]]


def test_why_a_figure_of_clusters_is_undefined() -> None:
    cluster, group = np.tile(np.arange(9), 4), np.repeat([0, 0, 1, 1], 9)
    label = np.tile(np.repeat([0, 1], 9), 2)

    def said(counts: ClusteredCounts, name: str, min_count: int = 2) -> str | None:
        return counts.undefined_reason(name, 1, min_count, counts.enough(1, min_count))

    whole = ClusteredCounts.from_rows(cluster, group, label, label, ("a", "b"), (0, 1))
    assert [said(whole, name) for name in ("equal_opportunity", "accuracy", "worst_group_accuracy")] == [None] * 3
    few = ClusteredCounts.from_rows(cluster % 7, group, label, label, ("a", "b"), (0, 1))
    assert said(few, "equal_opportunity") == "fewer than two groups have rows from 8 clusters under each rate"
    assert said(few, "worst_group_accuracy") == "no group has rows of a label from 8 clusters"
    assert said(few, "accuracy") is None
    assert said(whole.keep([]), "accuracy") == "no group has 2 rows from 8 clusters"
    assert said(whole.keep([]), "accuracy", 0) == "no group has 1 rows from 8 clusters"


def test_classes_whose_groups_share_no_cluster_are_uncorrelated_beside_those_that_do() -> None:
    cluster, group = np.array([0, 1, 2, 0, 1, 2, 3, 4, 5, 6]), np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1])
    label = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    prediction = np.array([0, 1, 0, 0, 1, 1, 1, 0, 1, 0])
    found = ClusteredCounts.from_rows(cluster, group, label, prediction, ("a", "b"), (0, 1, 2)).rate(
        "true_positive_rate", None
    )
    assert found.correlation is not None
    assert found.correlation.shape == (3, 2, 2)
    assert found.correlation[0, 0, 1] != 0
    assert not found.correlation[1:].any()
    np.testing.assert_allclose(found.value[:2], [[2 / 3, 1 / 3], [1 / 2, 1 / 2]])


def test_weights_below_one_row_have_a_mean_and_equal_means_one_degree_of_freedom() -> None:
    light = means_within(np.arange(3), np.zeros(3, int), 1, np.array([0.0, 3.0, 6.0]), np.array([0.1, 0.2, 0.1]))
    assert light.value[0] == pytest.approx(3.0)
    assert light.variance[0] > 0
    equal = means_within(np.arange(8), np.repeat([0, 1], 4), 2, np.repeat([2.0, 1.5], 4))
    assert equal.difference(0, 1) == (0.5, 0.0, 1.0)


def test_what_rows_of_clusters_are_worth() -> None:
    """By the variance of sums and by the correlation within clusters, and never more than there are rows."""
    values = np.array([1.0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0])
    cluster = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 4, 4, 5, 6, 6, 7])
    found = means_within(cluster, np.zeros(16, int), 1, values)
    n = np.bincount(cluster)
    own = np.array([values[cluster == c].mean() for c in range(8)])
    spread = values.var()
    within = sum(((values[cluster == c] - own[c]) ** 2).sum() for c in range(8)) / (16 - 8)
    rho = min(max(1 - within / spread, 0), 1)
    by_rho = 16**2 / ((1 - rho) * 16 + rho * (n**2).sum())
    assert found.worth[0] == pytest.approx(min(spread / found.variance[0], by_rho, 16))


def test_cells_of_one_group_are_correlated_and_those_of_several_are_not_asked_for() -> None:
    found = counted()
    assert found.cells.correlation is None
    assert found.pooled().cells.correlation is not None
    assert found.swapped(1).counts.classes == (0, 1)
