"""Proxies that agree: populations whose truth is known, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from levelhead.metrics.proxies import by_proxies

Array = NDArray[np.float64]
CLOSE = 1e-6
SAYS = np.array([[[0.8, 0.2], [0.3, 0.7]], [[0.75, 0.25], [0.1, 0.9]], [[0.65, 0.35], [0.4, 0.6]]])
"""P(proxy says | group) of three proxies."""


def world(n: float = 1.0) -> Array:
    """P(three proxies, label, prediction) where proxies err independently."""
    share = np.array([0.6, 0.4])
    positive = np.array([0.3, 0.5])
    selected = np.array([[0.2, 0.7], [0.35, 0.9]])  # (group, label)
    label = np.stack([1 - positive, positive], -1)
    cells = share[:, None, None] * label[..., None] * np.stack([1 - selected, selected], -1)
    return n * np.einsum("gi,gj,gk,gyh->ijkyh", *SAYS, cells)


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


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (np.einsum("i,j,k,yh->ijkyh", *np.full((3, 2), 500.0), np.full((2, 2), 1e-6)), "may not agree more often"),
        (np.pad(np.full((1, 2, 2, 2, 2), 50.0), ((0, 1), *((0, 0),) * 4)), "proxy 1 never names one of the groups"),
        (np.einsum("ij,ikyh->ijkyh", np.eye(2), np.full((2, 2, 2, 2), 50.0)), "proxies 1 and 2 are identical"),
    ],
)  # fmt: skip
def test_proxies_that_cannot_answer_are_refused(counts: Array, reason: str) -> None:
    answer = by_proxies(counts, mode="global", replicates=100)
    assert reason in answer.refused
    for by_pair in answer.gaps.values():
        assert by_pair[1, 0].refused
        assert np.isnan(by_pair[1, 0].value)
        assert reason in (by_pair[1, 0].reason or "")


def sampled(rows: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).multinomial(rows, world().ravel()).reshape(world().shape).astype(float)


@pytest.mark.parametrize("mode", ["global", "local"])
def test_the_interval_is_that_of_resampled_rows_and_as_wide_on_both_sides(mode: str) -> None:
    rows, replicates = {"global": 60_000, "local": 600_000}[mode], 100
    counts = sampled(rows)
    answer = by_proxies(counts, mode=mode, level=0.9, replicates=replicates, seed=4)
    filled = np.flatnonzero(counts)
    cells = counts.ravel()[filled]
    drawn = np.zeros((replicates, counts.size))
    drawn[:, filled] = np.random.default_rng(4).multinomial(rows, cells / cells.sum(), size=replicates)
    again = [by_proxies(one.reshape(counts.shape), mode=mode, replicates=100) for one in drawn]
    assert not answer.refused
    for gap, by_pair in answer.gaps.items():
        figure, values = by_pair[1, 0], [one.gaps[gap][1, 0].value for one in again]
        assert np.isfinite(values).all()
        low, high = np.quantile(values, [0.05, 0.95])
        arm = 1.02 * (high - low) / 2
        expected = min(low, figure.value - arm), max(high, figure.value + arm)
        assert (figure.low, figure.high) == pytest.approx(expected, abs=1e-12)
    assert answer.gaps["equal_opportunity"][1, 0].n == counts[..., 1, :].sum()


def test_shares_and_accuracies_are_those_of_the_population() -> None:
    answer = by_proxies(world(2e6), replicates=100)
    np.testing.assert_allclose(answer.shares, [0.6, 0.4], atol=1e-9)
    np.testing.assert_allclose(answer.accuracy, SAYS, atol=1e-9)
    assert answer.p_value == pytest.approx(1)
    local = by_proxies(world(2e6), mode="local", replicates=100)
    np.testing.assert_allclose(local.shares, [0.6, 0.4], atol=1e-9)
    assert np.isnan(local.accuracy).all()
    assert local.accuracy.shape == (3, 2, 2)


def test_the_test_of_the_stronger_assumption_is_a_likelihood_ratio() -> None:
    counts = sampled(30_000, seed=2)
    answer = by_proxies(counts, mode="global", replicates=100)
    # P(group, label, prediction): each proxy's marginals, inverted and weighted by the square of what it tells.
    gain = answer.accuracy[:, 1, 1] - answer.accuracy[:, 0, 1]
    table = counts / counts.sum()
    said = np.stack([table.sum(tuple({0, 1, 2} - {j}))[1] for j in range(3)])
    cell = table.sum((0, 1, 2))
    each = (said - cell * answer.accuracy[:, 0, 1, None, None]) / gain[:, None, None]
    one = np.einsum("j,jyh->yh", gain**2 / (gain**2).sum(), each)
    fitted = np.einsum("gi,gj,gk,gyh->ijkyh", *answer.accuracy, np.stack([cell - one, one]))
    statistic = 2 * (counts * np.log(table / fitted)).sum()
    assert answer.p_value == pytest.approx(stats.chi2.sf(statistic, 31 - 7 - 6))  # 32 cells, 8 of them in groups


def test_errors_that_depend_on_the_prediction_switch_to_the_weaker_assumption() -> None:
    counts = np.zeros((2, 2, 2, 2, 2))
    cells = np.array([[[0.2, 0.1], [0.1, 0.2]], [[0.05, 0.1], [0.1, 0.15]]])
    for yhat in (0, 1):
        own = SAYS.copy()
        own[0] += 0.15 * yhat * np.array([1, -1])
        counts[..., yhat] = 1e5 * np.einsum("gi,gj,gk,gy->ijky", *own, cells[..., yhat])
    answer = by_proxies(counts, replicates=100)
    assert (answer.mode, answer.p_value < 1e-6) == ("local", True)
    rate = cells[..., 1].sum(1) / cells.sum((1, 2))
    assert answer.gaps["demographic_parity"][1, 0].value == pytest.approx(rate[1] - rate[0], abs=1e-9)


@pytest.mark.parametrize("mode", ["global", "local"])
def test_proxies_of_impossible_errors_are_refused(mode: str) -> None:
    # The first proxy repeats one of the two others, which hardly agree: none is right so often that it explains both.
    weak = np.array([[0.27, 0.23], [0.23, 0.27]])
    joint = 0.5 * np.einsum("jk,ij->ijk", weak, np.eye(2)) + 0.5 * np.einsum("jk,ik->ijk", weak, np.eye(2))
    answer = by_proxies(np.einsum("ijk,yh->ijkyh", joint, np.full((2, 2), 5000.0)), mode=mode, replicates=100)
    where = " among rows of one label and prediction" if mode == "local" else ""
    assert answer.refused.startswith(f"the fit gives a probability below 0 or above 1{where}: ")
    assert answer.mode == mode
    assert np.isnan(answer.shares).all()
    assert math.isnan(answer.p_value) == (mode == "local")


def test_a_gap_of_a_label_without_rows_is_refused_alone() -> None:
    counts = np.round(world(50_000))
    counts[..., 0, :] = 0
    answer = by_proxies(counts, replicates=100, mode="global")
    none = answer.gaps["false_positive_rate"][1, 0]
    assert (none.reason, none.n) == ("too few rows have this label", 0)
    assert answer.gaps["equal_opportunity"][1, 0].defined
