"""Labelled rows and a proxy: sums against rows, and worked figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, stats

from levelhead.metrics.labelled import _more_labels, by_labelled_pairs, by_labelled_rows, cross_fitted

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
    a, y = (rng.integers(0, 2, n) for _ in range(2))
    hit = (rng.random(n) < 0.45 + 0.12 * a).astype(int)
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
    half = found.classical.high - found.classical.value
    assert half == pytest.approx(stats.t.ppf(0.975, min(np.bincount(a)) - 1) * true.std(ddof=1) / np.sqrt(n))
    correlation = np.corrcoef(true, mine)[0, 1]
    assert 0 < found.more_labels < more - 500  # neither decided nor beyond the other rows, so that the proxy counts
    z = stats.t.ppf(0.975, min(np.bincount(a)) - 1)
    assert found.more_labels == _more_labels(abs(found.estimate.value), z, half / z, n, more, correlation)
    assert found.narrower == pytest.approx(error / (true.std(ddof=1) / np.sqrt(n)))


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


def rows_of_weights(seed: int) -> tuple[Array, ...]:
    """Group, label, prediction, probability and weight of rows, and which of them are labelled."""
    rng = np.random.default_rng(seed)
    n = 3000
    a, y = (rng.random(n) < 0.4).astype(int), rng.integers(0, 2, n)
    hit = (rng.random(n) < 0.3 + 0.2 * a + 0.1 * y).astype(int)
    h = np.clip(0.3 + 0.4 * a + rng.normal(0, 0.6, n), 0, 1)
    chance = np.where(hit == 1, 0.25, 0.1)
    return a, y, hit, h, 1 / chance, rng.random(n) < chance


def test_weighted_moments_give_what_weighted_rows_give() -> None:
    a, y, hit, h, weight, known = rows_of_weights(0)
    rest = np.zeros((2, 2, 3))
    for j in range(3):
        np.add.at(rest[..., j], (y[~known], hit[~known]), h[~known] ** j)
    moments = rows_as_moments(*(one[known] for one in (a, y, hit, h, weight)))
    for gap, found in by_labelled_rows(moments, rest, weighted=True).items():
        inside = {"demographic_parity": y >= 0, "equal_opportunity": y == 1, "false_positive_rate": y == 0}[gap]
        w, group, yes, proxy, n = (weight * known)[inside], a[inside], hit[inside], h[inside], inside.sum()
        share = (w * group).sum() / w.sum()
        rate = [(w * yes)[group == k].sum() / w[group == k].sum() for k in (0, 1)]

        def psi(b: Array, yhat: Array, rate: list[float] = rate, share: float = share) -> Array:
            return b * (yhat - rate[1]) / share - (1 - b) * (yhat - rate[0]) / (1 - share)

        scaled = w * n / w.sum()
        own, away = scaled * psi(group, yes), (scaled - 1) * (psi(proxy, yes) - psi(proxy, yes).mean())
        lam = np.clip((own * away).mean() / (away**2).mean(), 0, 1)
        assert 0.05 < lam < 0.95
        assert found.lam == pytest.approx(lam)
        assert found.error == pytest.approx(np.sqrt(((own - lam * away) ** 2).mean() / n))
        assert found.classical_error == pytest.approx(np.sqrt((own**2).mean() / n))
        move = -(w * (psi(proxy, yes) - psi(proxy, yes).mean())).sum() / w.sum()
        assert found.classical.value == pytest.approx(rate[1] - rate[0])
        assert found.estimate.value == pytest.approx(rate[1] - rate[0] + lam * move)
        assert (found.estimate.n, found.classical.n) == (n, (inside & known).sum())
        z = stats.t.ppf(0.975, min((inside & known & (a == k)).sum() for k in (0, 1)) - 1)
        assert found.estimate.high - found.estimate.value == pytest.approx(z * found.error)
        assert found.classical.value - found.classical.low == pytest.approx(z * found.classical_error)
        correlation = (own * away).mean() / np.sqrt((own**2).mean() * (away**2).mean())
        n, unseen = (inside & known).sum(), (inside & ~known).sum()
        alone = found.classical_error
        assert found.more_labels == _more_labels(abs(found.estimate.value), z, alone, n, unseen, correlation)


@pytest.mark.parametrize("cells", [1, 3])
def test_pairs_of_several_groups_are_compared_as_their_rows_say(cells: int) -> None:
    rng = np.random.default_rng(cells)
    n, more = 1200, 6000
    group, fold = rng.choice(3, n + more, p=[0.5, 0.3, 0.2]), np.arange(n) % 5
    hit = (rng.random(n + more) < np.array([0.2, 0.45, 0.6])[group]).astype(int)
    cell = np.where(rng.random(n + more) < 0.7, group, rng.integers(0, 3, n + more)) % cells
    labelled, unlabelled = np.zeros((5, 3, cells, 2, 2, 3)), np.zeros((cells, 2, 2))
    np.add.at(labelled, (fold, group[:n], cell[:n], 1, hit[:n]), 1.0)
    np.add.at(unlabelled, (cell[n:], 1, hit[n:]), 1.0)
    found = by_labelled_pairs(labelled, unlabelled, level=0.94)["demographic_parity"]
    g, yes = group[:n], hit[:n]
    rate, share = [yes[g == k].mean() for k in range(3)], [(g == k).mean() for k in range(3)]
    proxies = np.zeros((5, 3, cells))  # of each fold, the share of each group in each cell of the other folds
    for f in range(5):
        others = fold != f
        prior = [((g[others] == k).sum() + 1 / 3) / (others.sum() + 1) for k in range(3)]
        for c in range(cells):
            here = others & (cell[:n] == c)
            proxies[f, :, c] = [((g[here] == k).sum() + 2 * prior[k]) / (here.sum() + 2) for k in range(3)]
    assert set(found) == {(1, 0), (2, 0), (2, 1)}
    for (a, b), one in found.items():
        psi = np.zeros((3, 2))
        for k, sign in ((a, 1), (b, -1)):
            psi[k] = sign * (np.array([0, 1]) - rate[k]) / share[k]
        if cells == 1:
            varied = max((a, b), key=lambda k: rate[k] * (1 - rate[k]))
            mine, theirs = psi[varied][yes], psi[varied][hit[n:]]
        else:
            mine = np.einsum("ng,ng->n", proxies[fold, :, cell[:n]], psi[:, yes].T)
            theirs = np.einsum("ng,ng->n", proxies.mean(0)[:, cell[n:]].T, psi[:, hit[n:]].T)
        true = psi[g, yes]
        lam = np.clip(np.cov(true, mine)[0, 1] / ((1 + n / more) * np.concatenate([mine, theirs]).var()), 0, 1)
        value = rate[a] - rate[b] + lam * (theirs.mean() - mine.mean())
        assert lam > 0.001
        assert (one.lam, one.estimate.value) == pytest.approx((lam, value))
        # The sums of squares over the other rows are those of the mean proxy.
        error = np.sqrt(np.var(true - lam * mine, ddof=1) / n + lam**2 * theirs.var(ddof=1) / more)
        assert one.error == pytest.approx(error)
        z = stats.t.ppf(1 - 0.06 / 3 / 2, min((g == k).sum() for k in (a, b)) - 1)  # three pairs
        assert one.estimate.high - one.estimate.low == pytest.approx(2 * z * error)


def test_weights_count_in_a_fitted_proxy() -> None:
    a, y, hit, _, weight, known = rows_of_weights(1)
    cell, fold = (a + hit) % 2, np.arange(len(a)) % 5
    labelled, unlabelled = np.zeros((5, 2, 2, 2, 2, 3)), np.zeros((2, 2, 2))
    for i in range(3):
        np.add.at(labelled[..., i], tuple(one[known] for one in (fold, a, cell, y, hit)), weight[known] ** i)
    np.add.at(unlabelled, tuple(one[~known] for one in (cell, y, hit)), 1.0)
    _, rest = cross_fitted(labelled, unlabelled)
    shares = np.zeros((5, 2))
    for f in range(5):
        here = known & (fold != f)
        prior = ((weight * a)[here].sum() + 1 / 2) / (weight[here].sum() + 1)
        for c in range(2):
            inside = here & (cell == c)
            shares[f, c] = ((weight * a)[inside].sum() + 2 * prior) / (weight[inside].sum() + 2)
    for j in range(3):
        np.testing.assert_allclose(rest[..., j], np.einsum("cyh,c->yh", unlabelled, shares.mean(0) ** j))


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
    moments = np.repeat(np.repeat(size[..., None, None], 3, -1), 3, -2)
    found = by_labelled_rows(moments, np.zeros((2, 2, 3)))["equal_opportunity"]
    assert found.estimate.n == n
    assert (found.estimate.reason or "").startswith(reason or "")
    assert found.estimate.defined == (reason is None)
    if reason is None:  # without other rows, those that are labelled say all
        assert (found.lam, found.estimate.value, found.narrower) == (0, found.classical.value, 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_proxy_that_says_the_share_of_the_group_says_nothing(weighted: bool) -> None:
    a, y = np.repeat([0, 1], 200), np.ones(400, int)
    hit = np.tile(np.repeat([0, 1], 100), 2)
    hit[:10] = 1  # a gap of 5 points that is not decided
    half = np.full(400, 0.5)
    moments = rows_as_moments(a, y, hit, half, np.full(400, 3.0 if weighted else 1.0))
    rest = 4 * moments[..., 0, :].sum(0)
    found = by_labelled_rows(moments, rest, weighted=weighted)["equal_opportunity"]
    assert (found.lam, found.narrower) == (0, 1)
    assert found.estimate.value == found.classical.value == pytest.approx(-0.05)
    z = stats.t.ppf(0.975, 199)
    assert found.classical.high - found.classical.value == pytest.approx(z * found.classical_error)
    assert found.more_labels == _more_labels(abs(found.classical.value), z, found.classical_error, 400, 1600, 0)
    assert found.more_labels
