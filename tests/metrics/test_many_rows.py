"""Counts of a country, and of more: the laws of small tables in their limit, and in a second."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats

import levelhead as lh
from levelhead.metrics.between import LARGE, fisher_p


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


def test_a_table_of_counts_of_a_country_is_audited() -> None:
    group, label = np.tile(["a", "b"], 20), np.tile([0, 0, 1, 1], 10)
    predicted = np.array([0, 1, 1, 1] * 5 + [0, 1, 0, 1] * 5)
    began = time.process_time()
    found = lh.audit(label, predicted, sensitive_features=group, counts=np.full(40, 2 * 10**7))
    assert time.process_time() - began < 30  # sums over all people would take minutes
    assert found.to_dict()["by_attribute"]
