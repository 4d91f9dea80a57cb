"""One record makes a metric: nothing else has to be written for a gap of known rates."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.metrics import METRICS, Counts, Metric, estimate, estimate_all
from levelhead.metrics.intervals import undefined_reason

PREDICTIVE_EQUALITY = Metric(
    "predictive_equality",
    title="Predictive equality gap",
    short="FPR gap",
    subject="predictive equality",
    definition="The largest difference between two groups in the false positive rate.",
    kind="gap",
    rates=(("false_positive_rate",),),
)


def counts(table: np.ndarray) -> Counts:
    return Counts(table, tuple(f"g{group}" for group in range(len(table))), ("no", "yes"))


def test_a_new_gap_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "predictive_equality", PREDICTIVE_EQUALITY)
    # 100 rows with label no and 50 with label yes a group; 20, 50 and 30 of the former are predicted yes.
    seen = counts(np.array([[[80, 20], [10, 40]], [[50, 50], [10, 40]], [[70, 30], [25, 25]]]))
    found = estimate_all(seen)["predictive_equality"]
    assert found.value == pytest.approx(0.3)
    assert 0.1 < found.low < 0.3 < found.high < 0.5
    assert found.n == 450
    # With the labels turned round and class 0 for the positive one it is equal opportunity.
    turned = counts(np.flip(seen.table, (1, 2)))
    other = estimate(turned, "equal_opportunity", positive=0)
    assert found.value == pytest.approx(1 - (1 - other.value))
    empty = counts(np.array([[[0, 0], [10, 40]], [[50, 50], [10, 40]]]))
    reason = undefined_reason(empty, "predictive_equality")
    assert reason is not None
    assert "label other than" in reason
    assert "'g0'" in reason
