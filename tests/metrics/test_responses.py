"""Inverted answers against populations and samples whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from levelhead.metrics.responses import UNSURE, by_responses

Array = NDArray[np.float64]


def noise(flip: float, groups: int = 2) -> Array:
    """P(report j | group i), where another group is reported with probability ``flip``."""
    return np.full((groups, groups), flip / (groups - 1)) + np.eye(groups) * (1 - flip - flip / (groups - 1))


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


def test_refusals_are_of_a_pair_or_of_a_gap_without_rows() -> None:
    counts = np.zeros((3, 2, 2))
    counts[:, 1] = [[400, 300], [5, 6], [300, 500]]  # the second group's reports are what the noise alone gives
    found = by_responses(counts, noise(0.02, 3))
    for pair, one in found["false_positive_rate"].items():
        assert (one.estimate.reason, one.estimate.n, one.estimate.refused) == ("no rows with this label", 0, True), pair
    of_all = {pair: one.estimate for pair, one in found["demographic_parity"].items()}
    assert {pair: one.refused for pair, one in of_all.items()} == {(1, 0): True, (2, 0): False, (2, 1): True}
    assert of_all[1, 0].reason == of_all[2, 1].reason == UNSURE
    assert of_all[1, 0].n == 1511
    two = np.zeros((2, 2, 2))
    two[:, 1, 1] = 1.0
    assert by_responses(two, noise(0.0))["equal_opportunity"][1, 0].estimate.reason != "no rows with this label"


def test_the_rows_for_five_points_are_those_of_the_file() -> None:
    counts = np.array([[[300, 200], [150, 250]], [[100, 200], [100, 100]]])
    for gap, rows in (("demographic_parity", 1400), ("equal_opportunity", 600), ("false_positive_rate", 800)):
        one = by_responses(counts, noise(0.1), level=0.9)[gap][1, 0]
        assert one.estimate.n == rows
        z = stats.norm.ppf(0.95)
        assert one.estimate.high - one.estimate.value == pytest.approx(z * one.error)
        exact = rows * ((z + stats.norm.ppf(0.8)) * one.error / 0.05) ** 2 * 1400 / rows
        assert exact <= one.rows_for_5_points <= exact + 1400 / rows + 1


def test_the_rows_for_five_points_detect_them_in_four_of_five_samples() -> None:
    true = np.array([[[0.15, 0.1], [0.15, 0.1]], [[0.1375, 0.1125], [0.1375, 0.1125]]])  # selected: 40% and 45%
    matrix = noise(0.1)
    seen = np.einsum("ij,iyh->jyh", matrix, true)
    rows = by_responses(4000 * seen, matrix)["demographic_parity"][1, 0].rows_for_5_points
    rng = np.random.default_rng(0)
    drawn = (by_responses(rng.multinomial(rows, seen.ravel()).reshape(2, 2, 2), matrix) for _ in range(300))
    shown = [one["demographic_parity"][1, 0].estimate.excludes_zero for one in drawn]
    assert 0.75 <= np.mean(shown) <= 0.86


def test_answers_without_noise_are_groups() -> None:
    counts = np.array([[[300, 200], [150, 250]], [[100, 200], [0, 200]]])
    found = by_responses(counts, noise(0.0))
    one = found["demographic_parity"][1, 0]
    assert one.estimate.value == pytest.approx(one.naive)
    assert one.error == pytest.approx(np.sqrt(0.5 * 0.5 / 900 + 0.8 * 0.2 / 500), rel=1e-3)
    sure = by_responses(np.array([[[0, 9]] * 2, [[7, 0]] * 2]) * 10, noise(0.0))["equal_opportunity"][1, 0]
    assert (sure.estimate.value, sure.error) == (-1, 0)
