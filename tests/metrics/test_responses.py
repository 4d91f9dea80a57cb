"""Inverted answers against populations and samples whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from levelhead.metrics.responses import by_responses, shares_of

Array = NDArray[np.float64]
CLOSE = 1e-6


def noise(flip: float, groups: int = 2) -> Array:
    """P(report j | group i), where another group is reported with probability ``flip``."""
    return np.full((groups, groups), flip / (groups - 1)) + np.eye(groups) * (1 - flip - flip / (groups - 1))


def test_randomised_responses_are_inverted() -> None:
    # All rows have label 1, so that both gaps are the same figures.
    counts = np.zeros((2, 2, 2))
    counts[0, 1], counts[1, 1] = (300, 330), (180, 190)
    matrix = noise(0.2)
    shares, errors = shares_of(counts.sum((1, 2)), matrix)
    assert shares[1] == pytest.approx(0.283333, abs=CLOSE)
    assert errors[1] == pytest.approx(0.025446, abs=CLOSE)
    inverted = counts[:, 1].T @ np.linalg.inv(matrix)
    np.testing.assert_allclose(inverted, [[340, 140], [376.666667, 143.333333]], atol=CLOSE)
    for gap in ("demographic_parity", "equal_opportunity"):
        found = by_responses(counts, matrix)[gap][1, 0]
        assert found.estimate.value == pytest.approx(-0.019699, abs=CLOSE)
        assert found.error == pytest.approx(0.062653, abs=CLOSE)
        assert (found.estimate.low, found.estimate.high) == pytest.approx((-0.142496, 0.103098), abs=CLOSE)
        assert found.naive == pytest.approx(-0.010296, abs=CLOSE)
        assert found.inflation == pytest.approx(3.66, abs=0.005)


def test_randomised_responses_of_a_population() -> None:
    true = np.zeros((2, 2, 2))
    true[0, 1], true[1, 1] = 0.7 * np.array([0.4, 0.6]), 0.3 * np.array([0.6, 0.4])
    matrix = noise(0.2)
    seen = np.einsum("ij,iyh->jyh", matrix, true) * 1e5
    found = by_responses(seen, matrix)["demographic_parity"][1, 0]
    assert found.naive == pytest.approx(-0.106961, abs=CLOSE)
    assert found.estimate.value == pytest.approx(-0.2, abs=CLOSE)


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_inverted_answers_give_the_population_back(groups: int) -> None:
    rng = np.random.default_rng(groups)
    true = rng.dirichlet(np.full(groups * 4, 3.0)).reshape(groups, 2, 2)
    matrix = noise(0.3, groups)
    np.testing.assert_allclose(matrix.sum(1), 1)
    found = by_responses(1e6 * np.einsum("ij,iyh->jyh", matrix, true), matrix)
    rate = true[:, 1, 1] / true[:, 1].sum(1)
    for (a, b), one in found["equal_opportunity"].items():
        assert one.estimate.value == pytest.approx(rate[a] - rate[b], abs=1e-9)


def test_the_error_of_inverted_answers_is_that_of_many_samples() -> None:
    true = np.array([[[0.2, 0.1], [0.1, 0.2]], [[0.1, 0.1], [0.05, 0.15]]])
    matrix = noise(0.2)
    seen = np.einsum("ij,iyh->jyh", matrix, true)
    rng = np.random.default_rng(0)
    found = [by_responses(rng.multinomial(3000, seen.ravel()).reshape(2, 2, 2), matrix) for _ in range(400)]
    values = [one["demographic_parity"][1, 0].estimate.value for one in found]
    errors = [one["demographic_parity"][1, 0].error for one in found]
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.1)
