"""Answers that are randomised before they are stored: how, how much that protects, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from levelhead.auditing.unknown import privacy


def test_randomize_keeps_as_often_as_epsilon_says() -> None:
    values = np.array(["a", "b", "c"] * 20_000)
    reports = privacy.randomize(values, 1.0, seed=0)
    assert (reports == values).mean() == pytest.approx(math.e / (math.e + 2), abs=0.01)
    others = reports[(values == "a") & (reports != "a")]
    assert (others == "b").mean() == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(reports, privacy.randomize(values, 1.0, seed=0))
    assert set(privacy.randomize(["a"] * 500, 0.5, seed=0, categories=["a", "longer"]).tolist()) == {"a", "longer"}
