"""Labelled rows and a proxy: sums against rows, and worked figures."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from levelhead.metrics.labelled import by_labelled_pairs, by_labelled_rows, cross_fitted

Array = NDArray[np.float64]
CLOSE = 1e-6


def labelled_example() -> tuple[Array, Array]:
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
    monkeypatch.setattr("levelhead.metrics.labelled.FEWEST_IN_CELL", 1)
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


def rows_as_moments(a: Array, y: Array, hit: Array, h: Array, weight: Array) -> Array:
    out = np.zeros((2, 2, 2, 3, 3))
    for i in range(3):
        for j in range(3):
            np.add.at(out[..., i, j], (a, y, hit), weight**i * h**j)
    return out


def test_moments_give_what_rows_give() -> None:
    rng = np.random.default_rng(2)
    n, more = 400, 3000
    a, y, hit = (rng.integers(0, 2, n) for _ in range(3))
    h, other_hit, other_h = rng.random(n), rng.integers(0, 2, more), rng.random(more)
    h = 0.5 * h + 0.5 * a
    rest = np.zeros((2, 2, 3))
    for j in range(3):
        np.add.at(rest[..., j], (np.zeros(more, int), other_hit), other_h**j)
    found = by_labelled_rows(rows_as_moments(a, y, hit, h, np.ones(n)), rest)["demographic_parity"]
    rate, share = [hit[a == k].mean() for k in (0, 1)], a.mean()

    def psi(b: Array, yhat: Array) -> Array:
        return b * (yhat - rate[1]) / share - (1 - b) * (yhat - rate[0]) / (1 - share)

    true, mine, theirs = psi(a, hit), psi(h, hit), psi(other_h, other_hit)
    pooled = np.concatenate([mine, theirs]).var()
    lam = float(np.clip(np.cov(true, mine)[0, 1] / ((1 + n / more) * pooled), 0, 1))
    error = np.sqrt(np.var(true - lam * mine, ddof=1) / n + lam**2 * theirs.var(ddof=1) / more)
    assert found.lam == pytest.approx(lam)
    assert found.error == pytest.approx(error)
    assert found.estimate.value == pytest.approx(rate[1] - rate[0] + lam * (theirs.mean() - mine.mean()))


def test_equal_weights_change_next_to_nothing() -> None:
    rng = np.random.default_rng(3)
    n = 1000
    a, y, hit = (rng.integers(0, 2, n) for _ in range(3))
    h = np.where(rng.random(n) < 0.8, a, 1 - a).astype(float)
    rest = rows_as_moments(a, y, hit, h, np.ones(n)).sum(0)[..., 0, :] * 9
    weighted = by_labelled_rows(rows_as_moments(a, y, hit, h, np.full(n, 10.0)), rest, weighted=True)
    plain = by_labelled_rows(rows_as_moments(a, y, hit, h, np.ones(n)), rest)
    for gap, one in weighted.items():
        assert one.estimate.value == pytest.approx(plain[gap].estimate.value, abs=1e-6)
        assert one.error == pytest.approx(plain[gap].error, rel=0.02)


def test_a_useless_proxy_costs_nothing_and_a_cross_fitted_one_is_not_too_good() -> None:
    rng = np.random.default_rng(4)
    # 200 cells for 500 labelled rows: fitted on themselves they would look like the truth.
    labelled = rng.multinomial(500, np.full(5 * 2 * 200 * 4, 1 / 8000)).reshape(5, 2, 200, 2, 2).astype(float)
    rest = rng.multinomial(5000, np.full(200 * 4, 1 / 800)).reshape(200, 2, 2).astype(float)
    found = by_labelled_rows(*cross_fitted(np.repeat(labelled[..., None], 3, -1), rest))
    assert 0.97 < found["demographic_parity"].narrower <= 1.0


def test_two_of_several_groups_are_compared_as_two_groups_are() -> None:
    rng = np.random.default_rng(2)
    labelled = np.repeat(rng.integers(5, 40, (5, 2, 4, 2, 2, 1)).astype(float), 3, -1)
    unlabelled = rng.integers(50, 400, (4, 2, 2)).astype(float)
    plain = by_labelled_rows(*cross_fitted(labelled, unlabelled))
    pairs = by_labelled_pairs(labelled, unlabelled)
    for gap, one in plain.items():
        other = pairs[gap][1, 0]
        for field in ("value", "low", "high", "n"):
            assert getattr(other.estimate, field) == pytest.approx(getattr(one.estimate, field), abs=1e-12)
