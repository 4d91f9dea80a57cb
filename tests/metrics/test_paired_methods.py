"""How resampling the rows moves the figures of methods, and their differences."""

from __future__ import annotations

import numpy as np
import pytest

from levelhead.metrics.paired import Paired


def test_moves_of_a_difference_are_differences_of_moves() -> None:
    rng = np.random.default_rng(0)
    rows = 400
    label, group = rng.integers(2, size=rows), rng.integers(2, size=rows)
    answers = {
        "a": np.where(rng.random((3, rows)) < 0.2, 1 - label, label),
        "b": np.where(rng.random((2, rows)) < 0.3, 1 - label, label),
    }
    paired = Paired.build(label, group, answers, None, 0.95, 1000, 0)
    for name in ("accuracy", "equalized_odds"):
        a, b = paired.moves(name, "a"), paired.moves(name, "b")
        assert (a.shape, b.shape) == ((3, 1000), (2, 1000))
        np.testing.assert_allclose(paired.moves(name, "a", "b"), a[:2] - b)
        np.testing.assert_allclose(paired.moves(name, "b", "a"), b - a[:2])
    for at, one in enumerate(paired.moves("accuracy", "a")):
        right = (answers["a"][at] == label).mean()
        assert np.mean(one) == pytest.approx(0, abs=0.003)
        assert np.std(one) == pytest.approx(np.sqrt(right * (1 - right) / rows), rel=0.1)
