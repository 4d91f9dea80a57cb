"""Counts of a country, and of more: the laws of small tables in their limit, and in a second."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats

import levelhead as lh
from levelhead.metrics.between import LARGE, fisher_p
from levelhead.metrics.intervals import _deal_many


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5, 4.0])
def test_fishers_test_of_many_rows_is_that_of_its_sums(shift: float) -> None:
    rows = np.array([3 * 10**7, 2 * 10**7])
    hits = (0.3 * rows).astype(np.int64)
    hits[1] += int(shift * np.sqrt(rows[1] * 0.21 * (1 + rows[1] / rows[0])))
    every, both = int(rows.sum()), int(hits.sum())
    law = stats.hypergeom(every, both, int(rows[0]))
    assert law.std() > LARGE
    expected = min(1.0, 2 * min(law.cdf(hits[0]), law.sf(hits[0] - 1)))
    assert fisher_p(hits, rows, np.array([0]), np.array([1])) == pytest.approx([expected], rel=1e-3)


def test_predictions_of_many_rows_are_dealt_with_the_covariance_of_the_exact_law() -> None:
    sizes, totals = np.array([500, 300, 200]), np.array([600, 300, 100])
    dealt = _deal_many(sizes, totals, 20_000, np.random.default_rng(0))
    assert (dealt.sum(-1) == sizes).all()
    exact = stats.random_table(sizes, totals).rvs(20_000, random_state=np.random.default_rng(1))
    assert dealt.mean(0) == pytest.approx(exact.mean(0), rel=0.02)
    own, other = (np.cov(one.reshape(len(one), -1).T) for one in (dealt, exact))
    assert own == pytest.approx(other, abs=0.05 * np.abs(other).max())


@pytest.mark.parametrize("people", [10**8, 2 * 10**9, 10**12])
def test_a_table_of_counts_of_any_size_is_audited(people: int) -> None:
    group, label = np.tile(["a", "b"], 20), np.tile([0, 0, 1, 1], 10)
    predicted = np.array([0, 1, 1, 1] * 5 + [0, 1, 0, 1] * 5)
    began = time.process_time()
    found = lh.audit(label, predicted, sensitive_features=group, counts=np.full(40, people))
    assert time.process_time() - began < 30  # sums over all people would take minutes
    assert found.to_dict()["by_attribute"]
