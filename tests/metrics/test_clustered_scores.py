"""Areas under ROC curves of rows in clusters: Obuchowski's variance by hand, and how often intervals hold the area."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from levelhead.metrics import scores as score_metrics
from levelhead.metrics.between import mover
from levelhead.metrics.clustered_scores import ClusteredAreas, ScoredRows, clustered_areas
from levelhead.metrics.scores import ScoreCounts
from levelhead.metrics.weighted import relied

Floats = NDArray[np.float64]


def drawn(rng: np.random.Generator, people: tuple[int, int], records: int, *, spanning: bool = False) -> ScoredRows:
    """Return scores of people, with an area of 76% in both groups; labels are drawn row by row."""
    own = np.repeat([0, 1], people)
    person = np.repeat(np.arange(len(own)), records)
    group = rng.integers(0, 2, len(person)) if spanning else own[person]
    label = rng.random(len(person)) < 0.4
    score = label + 0.8 * rng.normal(size=len(own))[person] + 0.6 * rng.normal(size=len(person))
    return ScoredRows(label, score.round(1), group, person)


def measured(rows: ScoredRows) -> tuple[ScoreCounts, ClusteredAreas]:
    counts = ScoreCounts.from_rows(rows.label, rows.score, rows.group, 2)
    return counts, clustered_areas(counts, rows)


def components(rows: ScoredRows, g: int, h: int) -> tuple[float, Floats, Floats]:
    """Return the area of positives of g and negatives of h, and each cluster's centred sums of placements, by pairs."""
    up, down = rows.label & (rows.group == g), ~rows.label & (rows.group == h)
    wins = (rows.score[up][:, None] > rows.score[down]) + 0.5 * (rows.score[up][:, None] == rows.score[down])
    area, clusters = float(wins.mean()), int(rows.cluster.max()) + 1
    sums = []
    for one, placed in ((up, wins.mean(1)), (down, wins.mean(0))):
        total = np.zeros(clusters)
        for cluster, value in zip(rows.cluster[one], placed, strict=True):
            total[cluster] += value - area
        sums.append(total)
    return area, sums[0], sums[1]


def jackknifed(rows: ScoredRows, g: int, h: int) -> tuple[Floats, Floats]:
    """Return what the positives of g and the negatives of h in each cluster add to the area, over 1 - their share."""
    _, up, down = components(rows, g, h)
    found = []
    for sums, one in ((up, rows.label & (rows.group == g)), (down, ~rows.label & (rows.group == h))):
        size = np.bincount(rows.cluster[one], minlength=len(sums))
        found.append(sums / one.sum() / (1 - size / one.sum()))
    return found[0], found[1]


@pytest.mark.parametrize("spanning", [False, True])
def test_the_variance_is_obuchowskis_of_sums_over_one_less_their_share(spanning: bool) -> None:
    rows = drawn(np.random.default_rng(5), (90, 120), 6, spanning=spanning)
    _, found = measured(rows)
    for g, h in ((0, 0), (1, 1), (0, 1), (1, 0)):
        area, *_ = components(rows, g, h)
        positive, negative = rows.label & (rows.group == g), ~rows.label & (rows.group == h)
        a, b = (len(np.unique(rows.cluster[one])) for one in (positive, negative))
        either = len(np.unique(rows.cluster[positive | negative]))
        assert found.areas.value[g, h] == pytest.approx(area, rel=1e-12)
        up, down = jackknifed(rows, g, h)
        exact = (up**2).sum() * (a - 1) / a + (down**2).sum() * (b - 1) / b
        exact += 2 * (up * down).sum() * (either - 1) / either
        assert found.areas.variance[g, h] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("spanning", [False, True])
def test_correlations_of_areas_are_those_of_sums_over_clusters(spanning: bool) -> None:
    rows = drawn(np.random.default_rng(6), (40, 50), 5, spanning=spanning)
    _, found = measured(rows)
    moves = {(g, h): sum(jackknifed(rows, g, h)) for g in (0, 1) for h in (0, 1)}
    for correlations, first, second in ((found.own, (0, 0), (1, 1)), (found.crossed, (0, 1), (1, 0))):
        scale = np.sqrt(found.areas.variance[first] * found.areas.variance[second])
        expected = float(moves[first] @ moves[second]) / scale  # type: ignore[operator]
        assert correlations[0, 1] == pytest.approx(expected, abs=1e-10)
        assert correlations[1, 0] == pytest.approx(expected, abs=1e-10)
    assert (found.own[0, 1] != 0) == spanning


def test_one_row_in_each_cluster_is_delong() -> None:
    rows = drawn(np.random.default_rng(7), (60, 80), 1)
    counts, found = measured(rows)
    plain = score_metrics.areas(counts)
    np.testing.assert_allclose(found.areas.variance, plain.variance, rtol=1e-10)
    np.testing.assert_allclose(found.areas.freedom, plain.freedom, rtol=1e-10)
    np.testing.assert_array_equal(found.sizes, counts.sizes)
    assert found.own[0, 1] == found.crossed[0, 1] == 0


def test_classes_from_few_clusters_are_not_enough() -> None:
    rows = drawn(np.random.default_rng(8), (7, 80), 5)
    assert measured(rows)[1].enough.tolist() == [[False, False], [True, True]]
    # One of 20 clusters has nearly all rows of the first group.
    whole = drawn(np.random.default_rng(8), (20, 80), 40)
    kept = (whole.group == 1) | (whole.cluster == 0) | (np.arange(len(whole.label)) % 40 == 0)
    assert not measured(ScoredRows(*(one[kept] for one in whole)))[1].enough[0].any()


@pytest.mark.slow
@pytest.mark.parametrize("spanning", [False, True])
@pytest.mark.long
def test_intervals_hold_the_area_and_the_difference(spanning: bool) -> None:
    rng, true = np.random.default_rng(9), float(stats.norm.cdf(0.5**0.5))
    held: list[list[bool]] = []
    for _ in range(1000):
        _, found = measured(drawn(rng, (70, 100), 5, spanning=spanning))
        value, _, freedom = found.areas

        def ends(g: int, h: int, found: ClusteredAreas = found) -> tuple[Floats, Floats]:
            area = found.areas
            sizes = found.sizes[g, 1], found.sizes[h, 0]
            return score_metrics.area_interval(area.value[g, h], area.variance[g, h], area.freedom[g, h], *sizes, 0.95)

        own = ends(0, 0)
        one = [bool(own[0] <= true <= own[1])]
        for first, second, together in (((0, 0), (1, 1), found.own), ((0, 1), (1, 0), found.crossed)):
            correlation = relied(together[0, 1], freedom[first], freedom[second])
            low, high = mover(value[first], ends(*first), value[second], ends(*second), correlation)
            one.append(bool(low <= 0 <= high))
        held.append(one)
    shares = np.mean(held, 0)
    assert (shares >= 0.93).all()
    assert (shares <= 0.97).all()
