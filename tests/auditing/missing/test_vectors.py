"""Worked figures: every estimator against numbers that were computed elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from levelhead.auditing.missing.bounds import (
    bracket,
    by_shares,
    largest_gap,
    naive_gap,
    opportunity_bounds,
    parity_bounds,
)
from levelhead.auditing.missing.labelled import by_labelled_rows
from levelhead.auditing.missing.responses import Response, by_responses, shares_of
from levelhead.auditing.missing.three_proxies import by_proxies, closed_form

CLOSE = 1e-6


def world(n: float = 1.0) -> NDArray[np.float64]:
    """P(three proxies, label, prediction) where proxies err independently."""
    accuracy = np.array([[[0.8, 0.2], [0.3, 0.7]], [[0.75, 0.25], [0.1, 0.9]], [[0.65, 0.35], [0.4, 0.6]]])
    share = np.array([0.6, 0.4])
    positive = np.array([0.3, 0.5])
    selected = np.array([[0.2, 0.7], [0.35, 0.9]])  # (group, label)
    label = np.stack([1 - positive, positive], -1)
    cells = share[:, None, None] * label[..., None] * np.stack([1 - selected, selected], -1)
    return n * np.einsum("gi,gj,gk,gyh->ijkyh", *accuracy, cells)


def test_closed_form_finds_shares_and_errors_of_three_proxies() -> None:
    solved = closed_form(world().sum((-1, -2)))
    np.testing.assert_allclose(solved.covariance, [0.078, 0.03, 0.039], atol=CLOSE)
    third = 0.4 * 0.6 * (1 - 0.8) * 0.5 * 0.65 * 0.25
    assert third / np.sqrt(0.078 * 0.03 * 0.039) == pytest.approx(0.408248, abs=CLOSE)
    assert solved.share == pytest.approx(0.4, abs=1e-12)
    np.testing.assert_allclose(solved.low, [0.2, 0.25, 0.35], atol=1e-12)
    np.testing.assert_allclose(solved.low + solved.gain, [0.7, 0.9, 0.6], atol=1e-12)


@pytest.mark.parametrize("mode", ["global", "local", "auto"])
def test_both_modes_return_the_truth_and_proxies_alone_do_not(mode: str) -> None:
    answer = by_proxies(world(2e6), mode=mode, replicates=200)
    truth = {"demographic_parity": 0.275, "equal_opportunity": 0.2, "false_positive_rate": 0.15}
    for gap, value in truth.items():
        assert answer.gaps[gap][1, 0].value == pytest.approx(value, abs=1e-9)
    naive = [answer.naive[gap][1, 0] for gap in truth]
    np.testing.assert_allclose([one[0] for one in naive], [0.1375, 0.100267, 0.071023], atol=CLOSE)
    assert naive[0][1:] == pytest.approx([0.171669, 0.066667], abs=CLOSE)
    assert answer.mode == ("local" if mode == "local" else "global")


@pytest.mark.parametrize("proxies", [3, 4])
def test_em_recovers_four_groups_or_four_proxies(proxies: int) -> None:
    groups = 4 if proxies == 3 else 2
    rng = np.random.default_rng(3)
    accuracy = np.eye(groups) * 0.7 + 0.3 * rng.dirichlet(np.ones(groups) * 3, (proxies, groups))
    cells = rng.dirichlet(np.full(groups * 4, 5.0)).reshape(groups, 4)
    letters = "ijkl"[:proxies]
    spec = ",".join(f"g{x}" for x in letters) + f",gc->{letters}c"
    joint = 1e6 * np.einsum(spec, *accuracy, cells)
    answer = by_proxies(joint.reshape(*joint.shape[:-1], 2, 2), replicates=5)
    rate = cells[:, [1, 3]].sum(1) / cells.sum(1)
    for (a, b), figure in answer.gaps["demographic_parity"].items():
        assert figure.value == pytest.approx(rate[a] - rate[b], abs=CLOSE)


def test_randomised_responses_are_inverted() -> None:
    # All rows have label 1, so that both gaps are the same figures.
    counts = np.zeros((2, 2, 2))
    counts[0, 1], counts[1, 1] = (300, 330), (180, 190)
    matrix = Response(flip=0.2).matrix(2)
    shares = shares_of(counts.sum((1, 2)), matrix)
    assert shares.shares[1] == pytest.approx(0.283333, abs=CLOSE)
    assert shares.errors[1] == pytest.approx(0.025446, abs=CLOSE)
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
    matrix = Response(flip=0.2).matrix(2)
    seen = np.einsum("ij,iyh->jyh", matrix, true) * 1e5
    found = by_responses(seen, matrix)["demographic_parity"][1, 0]
    assert found.naive == pytest.approx(-0.106961, abs=CLOSE)
    assert found.estimate.value == pytest.approx(-0.2, abs=CLOSE)


def test_the_two_meanings_of_keep_spend_differently() -> None:
    assert Response(flip=0.2).spent(2) == pytest.approx(1.386, abs=1e-3)
    assert Response(flip=0.1).spent(2) == pytest.approx(2.197, abs=1e-3)


@pytest.mark.parametrize(
    ("rate", "shares", "expected"),
    [
        (0.3, (0.2, 0.8), 0.875),
        (0.3, (0.5, 0.5), 0.6),
        (0.05, (0.2, 0.8), 0.25),
        (0.12, (0.3, 0.3, 0.4), 0.4),
        (0.5, (0.1, 0.6, 0.3), 1),
    ],
)
def test_bounds_from_shares(rate: float, shares: tuple[float, ...], expected: float) -> None:
    assert parity_bounds(rate, shares)[..., 1].max(where=~np.eye(len(shares), dtype=bool), initial=-1) == pytest.approx(
        expected, abs=CLOSE
    )


def test_bounds_from_shares_have_two_ends() -> None:
    np.testing.assert_allclose(parity_bounds(0.3, (0.2, 0.8))[0, 1], [-0.375, 0.875], atol=CLOSE)


def strata() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    return np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.8]), np.array([0.1, 0.4, 0.9])


def test_bounds_from_strata_and_the_bracket() -> None:
    weight, rate, one = strata()
    shares = np.stack([1 - one, one], -1)
    np.testing.assert_allclose(parity_bounds(rate, shares, weight)[1, 0], [-0.015385, 0.819780], atol=CLOSE)
    np.testing.assert_allclose(parity_bounds(weight @ rate, weight @ shares)[1, 0], [-0.630769, 0.907692], atol=CLOSE)
    bins = 1e6 * weight[:, None, None] * np.stack([1 - rate, rate], -1)[..., None] * one[:, None, None] ** np.arange(3)
    found = bracket(bins.sum(0), bins, replicates=20)
    assert found.weighted.value == pytest.approx(0.309890, abs=CLOSE)
    assert found.linear.value == pytest.approx(0.762162, abs=CLOSE)
    counts = np.zeros((2, 2, 2))
    for share, selected, probability in zip(weight, rate, one, strict=True):
        counts[int(probability >= 0.5), 1] += share * np.array([1 - selected, selected])
    assert naive_gap(counts, "demographic_parity") == pytest.approx(0.4875, abs=CLOSE)


@pytest.mark.parametrize(("share", "expected"), [(0.2, (-1, 0.5)), (0.5, (-1, 1))])
def test_bounds_of_equal_opportunity(share: float, expected: tuple[float, float]) -> None:
    assert opportunity_bounds([[0.5, 0.1], [0.1, 0.3]], share) == pytest.approx(expected, abs=CLOSE)


def test_bounds_of_equal_opportunity_over_strata_and_within_positives() -> None:
    cells = [[[0.5, 0.1], [0.1, 0.3]], [[0.2, 0.1], [0.3, 0.4]]]
    found = opportunity_bounds(cells, [0.3, 0.8], [0.6, 0.4])
    assert found == pytest.approx((-0.692308, 0.894737), abs=CLOSE)
    np.testing.assert_allclose(parity_bounds(0.75, (0.8, 0.2))[1, 0], [-0.9375, 0.3125], atol=CLOSE)


def test_how_large_it_could_be_with_a_least_share() -> None:
    found = [[largest_gap(rate, share) for share in (0.05, 0.2, 0.4)] for rate in (0.1, 0.02)]
    np.testing.assert_allclose(found, [[1, 0.5, 0.25], [0.4, 0.1, 0.05]], atol=CLOSE)
    assert largest_gap(0.3, 0) == 1


def test_bounds_of_rows_hold_those_of_probabilities() -> None:
    found = by_shares([[400, 100], [100, 200]], (0.8, 0.2))
    assert found["demographic_parity"][1, 0].high == pytest.approx(parity_bounds(0.375, (0.8, 0.2))[1, 0, 1])
    for by_pair in found.values():
        figure = by_pair[1, 0]
        assert figure.reach_low <= figure.low <= figure.high <= figure.reach_high


def labelled_example() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    labelled, rest = np.zeros((2, 2, 2, 3, 3)), np.zeros((2, 2, 3))
    power = np.arange(3)
    for a, hit, h in zip("1111000000", "1001110110", "1101000100", strict=True):
        labelled[int(a), 1, int(hit)] += float(h) ** power
    for h, hit, rows in ((0, 1, 27), (1, 1, 9), (0, 0, 15), (1, 0, 9)):
        rest[1, hit] += rows * float(h) ** power
    return labelled, rest


def test_labelled_rows_and_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    labelled, rest = labelled_example()
    # Ten rows are far too few to be answered; the arithmetic is the same.
    monkeypatch.setattr("levelhead.auditing.missing.labelled.FEWEST_IN_CELL", 0)
    for gap in ("demographic_parity", "equal_opportunity"):
        found = by_labelled_rows(labelled, rest)[gap]
        assert found.classical.value == pytest.approx(-0.166667, abs=CLOSE)
        assert found.classical_error == pytest.approx(0.332561, abs=CLOSE)
        assert found.lam == pytest.approx(0.611819, abs=CLOSE)
        assert found.estimate.value == pytest.approx(-0.404596, abs=CLOSE)
        assert found.error == pytest.approx(0.269942, abs=CLOSE)


def test_ten_labelled_rows_are_refused() -> None:
    for found in by_labelled_rows(*labelled_example()).values():
        assert found.estimate.refused
        assert found.estimate.reason == "fewer than 5 labelled rows in a (group, prediction) cell"
