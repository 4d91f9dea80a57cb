"""Which gap this many rows can show: the formula of Fleiss, Tytun and Ury written out; what no plan is made for."""

from __future__ import annotations

import math

import pytest
from scipy import optimize, stats

from levelhead.metrics.power import _reach, detectable_gap, rows_needed


def apart(first: float, second: float, sizes: tuple[float, float], error: float, power: float) -> tuple[float, float]:
    """Quantile times the standard error of equal rates, that of the two rates, and half a hit on either side."""
    n, m = sizes
    pooled = (first * n + second * m) / (n + m)
    alike = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    own = math.sqrt(first * (1 - first) / n + second * (1 - second) / m)
    return stats.norm.isf(error / 2) * alike + stats.norm.ppf(power) * own, (1 / n + 1 / m) / 2


@pytest.mark.parametrize("rates", [(0.3, 0.5), (0.02, 0.9), (0.0, 1.0)])
@pytest.mark.parametrize(("sizes", "error", "power"), [((100, 40), 0.05, 0.8), ((7, 900), 0.003, 0.95)])
def test_how_far_rates_must_lie_apart(
    rates: tuple[float, float], sizes: tuple[float, float], error: float, power: float
) -> None:
    assert _reach(rates, sizes, error, power) == pytest.approx(apart(*rates, sizes, error, power), rel=1e-9)


def test_a_detectable_gap_is_where_the_formula_meets_it() -> None:
    gaps = []
    for sign in (1, -1):
        for sizes in ((300.0, 80.0), (80.0, 300.0)):

            def lacking(gap: float, sign: int = sign, sizes: tuple[float, float] = sizes) -> float:
                return sum(apart(0.35, 0.35 + sign * gap, sizes, 0.1 / 4, 0.9)) - gap

            gaps.append(optimize.brentq(lacking, 1e-12, 0.35))
    assert detectable_gap(0.35, 300, 80, level=0.9, comparisons=4, power=0.9) == pytest.approx(max(gaps), abs=1e-9)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("rows", [100, 200, 400])
def test_a_detectable_gap_needs_no_more_rows_than_there_are(rate: float, rows: int) -> None:
    """Of 2 and 198 rows no gap is shown where the 2 have the rate of 30%: 69.2 points in the other direction do not."""
    gap = detectable_gap(rate, rows / 100, rows - rows / 100)
    assert math.isnan(gap) or rows_needed(gap, rate, [0.01, 0.99]) <= rows + 1  # type: ignore[arg-type]


def test_rows_needed_solve_the_formula() -> None:
    rows = []
    for other in (0.3, 0.1):
        for sizes in ((0.1, 0.25), (0.25, 0.1)):
            reach, step = apart(0.2, other, sizes, 0.05 / 3, 0.8)
            rows.append(optimize.brentq(lambda n, r=reach, s=step: r / math.sqrt(n) + s / n - 0.1, 1, 1e6))
    assert rows_needed(0.1, 0.2, [0.25, 0.65, 0.1], comparisons=3) == math.ceil(max(rows))  # type: ignore[arg-type]
