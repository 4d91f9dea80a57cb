"""Labelled rows and a proxy: sums against rows, and worked figures."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from levelhead.metrics.labelled import _more_labels, by_labelled_pairs, by_labelled_rows

Array = NDArray[np.float64]
CLOSE = 1e-6


def labelled_example() -> tuple[Array, Array]:
    labelled, rest = np.zeros((2, 2, 2, 3)), np.zeros((2, 2, 3))
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


def rows_as_moments(a: Array, y: Array, hit: Array, h: Array) -> Array:
    out = np.zeros((2, 2, 2, 3))
    for j in range(3):
        np.add.at(out[..., j], (a, y, hit), h**j)
    return out


class Rows(NamedTuple):
    """Group, label, prediction and probability of group 1 of rows, and which of them are labelled."""

    a: Array
    y: Array
    hit: Array
    h: Array
    known: Array


def drawn(seed: int, *, groups: int = 2) -> Rows:
    rng = np.random.default_rng(seed)
    n = 3000
    a, y = rng.choice(groups, n, p=[0.6, 0.4] if groups == 2 else [0.5, 0.3, 0.2]), rng.integers(0, 2, n)
    hit = (rng.random(n) < 0.25 + 0.12 * a + 0.1 * y).astype(int)
    h = np.clip(0.3 + 0.4 * a + rng.normal(0, 0.6, n), 0, 1)
    return Rows(a, y, hit, h, rng.random(n) < 0.15)


class Corrected(NamedTuple):
    """What rows say of a gap, one by one: the proxy's weight, what it moves, and errors."""

    lam: float
    move: float
    error: float
    alone: float
    correlation: float


def corrected(true: Array, mine: Array, theirs: Array) -> Corrected:
    """Correct by psi of labelled rows by their groups (``true``) and by the proxy, and of the others by the proxy."""
    n, more = len(mine), len(theirs)
    pooled = np.concatenate([mine, theirs]).var()
    lam = float(np.clip(np.cov(true, mine)[0, 1] / ((1 + n / more) * pooled), 0, 1))
    error = np.sqrt(np.var(true - lam * mine, ddof=1) / n + lam**2 * theirs.var(ddof=1) / more)
    alone = true.std(ddof=1) / np.sqrt(n)
    return Corrected(lam, lam * (theirs.mean() - mine.mean()), error, alone, np.corrcoef(true, mine)[0, 1])


def test_moments_give_what_rows_give() -> None:
    rows = drawn(0)
    rest = np.zeros((2, 2, 3))
    for j in range(3):
        np.add.at(rest[..., j], (rows.y[~rows.known], rows.hit[~rows.known]), rows.h[~rows.known] ** j)
    moments = rows_as_moments(*(one[rows.known] for one in rows[:4]))
    for gap, found in by_labelled_rows(moments, rest).items():
        inside = {
            "demographic_parity": rows.y >= 0,
            "equal_opportunity": rows.y == 1,
            "false_positive_rate": rows.y == 0,
        }
        known, other = (inside[gap] & one for one in (rows.known, ~rows.known))
        group, yes = rows.a[known], rows.hit[known]
        share, rate = group.mean(), [yes[group == k].mean() for k in (0, 1)]

        def psi(b: Array, yhat: Array, rate: list[float] = rate, share: float = share) -> Array:
            return b * (yhat - rate[1]) / share - (1 - b) * (yhat - rate[0]) / (1 - share)

        expected = corrected(psi(group, yes), psi(rows.h[known], yes), psi(rows.h[other], rows.hit[other]))
        n, unseen = known.sum(), other.sum()
        assert 0.05 < expected.lam < 0.95
        assert (found.lam, found.error, found.classical_error) == pytest.approx(
            (expected.lam, expected.error, expected.alone)
        )
        assert found.classical.value == pytest.approx(rate[1] - rate[0])
        assert found.estimate.value == pytest.approx(rate[1] - rate[0] + expected.move)
        assert (found.estimate.n, found.classical.n) == (n + unseen, n)
        z = stats.t.ppf(0.975, min(np.bincount(group)) - 1)
        assert found.estimate.high - found.estimate.value == pytest.approx(z * found.error)
        assert found.classical.value - found.classical.low == pytest.approx(z * found.classical_error)
        more = _more_labels(abs(found.estimate.value), z, expected.alone, n, unseen, expected.correlation)
        assert found.more_labels == more


def test_a_useless_proxy_costs_nothing_and_a_cross_fitted_one_is_not_too_good() -> None:
    rng = np.random.default_rng(4)
    # 200 cells for 500 labelled rows: fitted on themselves they would look like the truth.
    labelled = rng.multinomial(500, np.full(5 * 2 * 200 * 4, 1 / 8000)).reshape(5, 2, 200, 2, 2).astype(float)
    rest = rng.multinomial(5000, np.full(200 * 4, 1 / 800)).reshape(200, 2, 2).astype(float)
    found = by_labelled_pairs(labelled, rest)["demographic_parity"][1, 0]
    assert 0.97 < found.error / found.classical_error <= 1.0


@pytest.mark.parametrize("cells", [1, 3])
def test_pairs_of_several_groups_are_compared_as_their_rows_say(cells: int) -> None:
    rows = drawn(cells, groups=3)
    known, n = rows.known, rows.known.sum()
    cell = np.where(np.random.default_rng(1).random(len(known)) < 0.7, rows.a, rows.y) % cells
    fold, g, yes, here = np.arange(n) % 5, rows.a[known], rows.hit[known], cell[known]
    labelled, unlabelled = np.zeros((5, 3, cells, 2, 2)), np.zeros((cells, 2, 2))
    np.add.at(labelled, (fold, g, here, rows.y[known], yes), 1.0)
    np.add.at(unlabelled, (cell[~known], rows.y[~known], rows.hit[~known]), 1.0)
    found = by_labelled_pairs(labelled, unlabelled, level=0.94)["demographic_parity"]
    rate = [yes[g == k].mean() for k in range(3)]
    share = [(g == k).mean() for k in range(3)]
    proxies = np.zeros((5, 3, cells))  # of each fold, the share of each group in each cell of the other folds
    for f, c, k in np.ndindex(5, cells, 3):
        others, own = fold != f, (fold != f) & (g == k)
        prior = (own.sum() + 1 / 3) / (others.sum() + 1)
        proxies[f, k, c] = (own[here == c].sum() + 2 * prior) / (others[here == c].sum() + 2)
    assert set(found) == {(1, 0), (2, 0), (2, 1)}
    for (a, b), one in found.items():
        psi = np.zeros((3, 2))
        for k, sign in ((a, 1), (b, -1)):
            psi[k] = sign * (np.array([0, 1]) - rate[k]) / share[k]
        if cells == 1:
            varied = max((a, b), key=lambda k: rate[k] * (1 - rate[k]))
            mine, theirs = psi[varied][yes], psi[varied][rows.hit[~known]]
        else:
            mine = np.einsum("ng,ng->n", proxies[fold, :, here], psi[:, yes].T)
            theirs = np.einsum("ng,ng->n", proxies.mean(0)[:, cell[~known]].T, psi[:, rows.hit[~known]].T)
        # The sums of squares over the other rows are those of the mean proxy.
        expected = corrected(psi[g, yes], mine, theirs)
        value = rate[a] - rate[b] + expected.move
        assert expected.lam > 0.001
        assert (one.lam, one.estimate.value, one.error) == pytest.approx((expected.lam, value, expected.error))
        z = stats.t.ppf(1 - 0.06 / 3 / 2, min((g == k).sum() for k in (a, b)) - 1)  # three pairs
        assert one.estimate.high - one.estimate.low == pytest.approx(2 * z * expected.error)


@pytest.mark.parametrize(("unseen", "correlation"), [(0, 0.0), (900, 0.6), (50_000, 0.9)])
def test_more_labels_detect_the_gap_in_four_of_five_audits(unseen: float, correlation: float) -> None:
    gap, z, error, n = 0.02, 2.0, 0.04, 400.0

    def too_wide(rows: float) -> float:
        rest = max(0.0, unseen - (rows - n))
        away = (z + stats.norm.ppf(0.8)) * error
        return away * math.sqrt(n / rows * (1 - correlation**2 * rest / (rest + rows))) - gap

    least = optimize.brentq(too_wide, n, 1e6) - n
    assert least <= _more_labels(gap, z, error, n, unseen, correlation) <= 1.02 * (least + n) - n + 1
    assert _more_labels(0.09, z, error, n, unseen, correlation) == 0  # decided, by luck or not
    assert _more_labels(1e-6, z, error, n, unseen, correlation) is None


@pytest.mark.parametrize(
    ("rows", "n", "reason"), [(5, 20, None), (4, 18, "fewer than 5 labelled rows"), (1, 0, "fewer")]
)
def test_five_labelled_rows_of_a_group_and_a_prediction_are_enough(rows: int, n: int, reason: str | None) -> None:
    others = 5 if rows > 1 else 2
    size = np.array([[[[rows, others]] * 2], [[[others, rows if rows == 4 else others]] * 2]])[:, 0].astype(float)
    moments = np.repeat(size[..., None], 3, -1)
    found = by_labelled_rows(moments, np.zeros((2, 2, 3)))["equal_opportunity"]
    assert found.estimate.n == n
    assert (found.estimate.reason or "").startswith(reason or "")
    assert found.estimate.defined == (reason is None)
    if reason is None:  # without other rows, those that are labelled say all
        assert (found.lam, found.estimate.value, found.error) == (0, found.classical.value, found.classical_error)


def test_a_proxy_that_says_the_share_of_the_group_says_nothing() -> None:
    a, y = np.repeat([0, 1], 200), np.ones(400, int)
    hit = np.tile(np.repeat([0, 1], 100), 2)
    hit[:10] = 1  # a gap of 5 points that is not decided
    half = np.full(400, 0.5)
    moments = rows_as_moments(a, y, hit, half)
    rest = 4 * moments.sum(0)
    found = by_labelled_rows(moments, rest)["equal_opportunity"]
    assert (found.lam, found.error) == (0, found.classical_error)
    assert found.estimate.value == found.classical.value == pytest.approx(-0.05)
    z = stats.t.ppf(0.975, 199)
    assert found.classical.high - found.classical.value == pytest.approx(z * found.classical_error)
    assert found.more_labels == _more_labels(abs(found.classical.value), z, found.classical_error, 400, 1600, 0)
    assert found.more_labels
