"""Kolmogorov-Smirnov, Brier and cost beside SciPy, scikit-learn and sums written out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import brier_score_loss, confusion_matrix

from levelhead.metrics.scores import ScoreCounts
from levelhead.metrics.separation import brier, cost, kolmogorov_smirnov


def drawn(seed: int, rows: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = np.round(rng.beta(2, 3, rows), int(rng.integers(1, 6)))
    return rng.random(rows) < score, score, rng.integers(0, 3, rows)


@pytest.mark.parametrize("seed", range(30))
def test_figures_are_those_of_scipy_and_scikit_learn(seed: int) -> None:
    label, score, group = drawn(seed)
    counts = ScoreCounts.from_rows(label, score, group, 3)
    apart, squared = kolmogorov_smirnov(counts), brier(counts)
    for at in range(3):
        y, s = label[group == at], score[group == at]
        if apart.value[at] == apart.value[at]:
            theirs = stats.ks_2samp(s[y], s[~y])
            assert apart.value[at] == pytest.approx(theirs.statistic, abs=1e-12)
            assert apart.low[at] <= apart.value[at] <= apart.high[at]
        one = squared.means(0, 0.95, skewed=True).at(at, 1)
        assert one.value == pytest.approx(brier_score_loss(y, s), abs=1e-12)
        off = (s - y) ** 2
        assert squared.squares[0, at] == pytest.approx(((off - off.mean()) ** 2).sum(), abs=1e-9)
    decided = score >= 0.5
    (_, wrong), (missed, _) = confusion_matrix(label, decided)
    value, low, high = cost(np.array([[wrong, missed]]), np.array([len(label)]), (2, 7), 0.95)
    assert value[0] == pytest.approx((2 * wrong + 7 * missed) / len(label), abs=1e-12)
    assert low[0] < value[0] < high[0]


def test_few_rows_of_a_class_have_no_kolmogorov_smirnov() -> None:
    counts = ScoreCounts.from_rows(np.arange(20) < 4, np.arange(20.0), np.zeros(20, int), 1)
    assert np.isnan(kolmogorov_smirnov(counts).value).all()


def test_a_perfect_order_and_no_error_have_intervals() -> None:
    counts = ScoreCounts.from_rows(np.arange(40) >= 20, np.arange(40.0), np.zeros(40, int), 1)
    found = kolmogorov_smirnov(counts)
    assert (found.value[0], found.high[0]) == (1, 1)
    assert 0.4 < found.low[0] < 1
    value, low, high = cost(np.zeros((1, 2), int), np.array([40]), (1, 5), 0.95)
    assert (value[0], low[0]) == (0, 0)
    assert high[0] > 0.1
