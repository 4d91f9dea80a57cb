"""Designs of coverage.py about rankings, periods and scores of two models."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from coverage_designs import Once, Row, titled
from scipy import stats

from levelhead.auditing.score_changes import area_changes
from levelhead.metrics.between import differences, mover
from levelhead.metrics.scores import ScoreCounts
from levelhead.metrics.separation import brier, cost, kolmogorov_smirnov
from levelhead.metrics.top import Places, TopLaw, exposure_ends, ratio_ends
from levelhead.metrics.trend import trend

NO_HEADLINE = "no false headline"


@titled("top of {3}, {0} rows, shifts {1}, spreads {2}")
def _top(sizes: tuple[int, ...], shifts: tuple[float, ...], spreads: tuple[float, ...], top: int) -> tuple[Any, Once]:
    group, rows = np.repeat(np.arange(len(sizes)), sizes), sum(sizes)
    shift, spread = np.array(shifts)[group], np.array(spreads)[group]
    compared = len(sizes) if len(sizes) > 2 else 1

    def draw(rng: np.random.Generator) -> Places:
        return Places.of(rng.normal(shift, spread), group)

    @functools.cache
    def truths() -> tuple[Any, Any]:
        many = np.random.default_rng(12345)
        drawn = [draw(many) for _ in range(4000)]
        exposed = np.mean([one.exposure(len(sizes), top) for one in drawn], 0)
        return np.mean([one.counts(len(sizes), top) for one in drawn], 0), exposed / exposed.sum()

    def once(rng: np.random.Generator) -> list[bool | None]:
        truth, exposed = truths()
        places = draw(rng)
        hits, worth = places.counts(len(sizes), top), places.exposure(len(sizes), top)
        held = [TopLaw(n, rows, top).expected(own, 0.05) for n, own in zip(sizes, hits, strict=True)]
        low, high = exposure_ends(worth / worth.sum(), rows, top, 0.05)
        ratio: bool | None = None
        if hits[0]:
            ends = ratio_ends((hits[-1], hits[0]), (sizes[-1], sizes[0]), 0.05)
            ratio = bool(ends[0] <= truth[-1] / sizes[-1] / (truth[0] / sizes[0]) <= ends[1])
        named = [compared * TopLaw(n, rows, top).p_value(own) < 0.05 for n, own in zip(sizes, hits, strict=True)]
        alike = len({*zip(shifts, spreads, strict=True)}) == 1
        return [
            bool(held[0][0] <= truth[0] <= held[0][1]),
            bool(held[-1][0] <= truth[-1] <= held[-1][1]),
            ratio,
            bool(low[-1] <= exposed[-1] <= high[-1]),
            *([not any(named)] if alike else []),
        ]

    alike = [NO_HEADLINE] if len({*zip(shifts, spreads, strict=True)}) == 1 else []
    return ("share of the first group", "share of the last group", "impact ratio", "exposure", *alike), once


@titled("{0} periods, {1} rows each, rates {2}, slope {3:g}, drift {4:g}")
def _periods(
    periods: int, sizes: tuple[int, int], rates: tuple[float, float], slope: float, drift: float
) -> tuple[Any, Once]:
    # Both groups' rates drift together; the first one's changes by ``slope`` a period beside the second's.
    at = np.arange(periods)
    rate = np.stack([rates[0] + (slope + drift) * at, rates[1] + drift * at], 1)

    def once(rng: np.random.Generator) -> list[bool | None]:
        rows = rng.poisson(sizes, (periods, 2)) + 1
        found = trend(rng.binomial(rows, rate), rows)
        one, true = int(rng.integers(periods)), rate[:, 0] - rate[:, 1]
        return [
            found.slope.low <= slope <= found.slope.high,
            bool(found.gaps[1][one] - 1e-12 <= true[one] <= found.gaps[2][one] + 1e-12),
            *([not found.slope.excludes_zero, not found.outside.any()] if not slope else []),
        ]

    alike = [f"{NO_HEADLINE}, trend", f"{NO_HEADLINE}, period outside"] if not slope else []
    return ("slope of a difference", "difference in a period", *alike), once


@titled("classes {1:g} apart, {0} rows, {2:.0%} positive")
def _separation(rows: int, distance: float, base: float) -> tuple[Any, Once]:
    truth = float(2 * stats.norm.cdf(distance / 2) - 1)

    def once(rng: np.random.Generator) -> list[bool | None]:
        label = rng.random(rows) < base
        found = kolmogorov_smirnov(ScoreCounts.from_rows(label, rng.normal(label * distance), np.zeros(rows, int), 1))
        return [None if np.isnan(found.low[0]) else bool(found.low[0] <= truth <= found.high[0])]

    return ("Kolmogorov-Smirnov",), once


@titled("two scores, {0} rows, {1:g} apart, gain {2:g}")
def _area_changes(sizes: tuple[int, int], distance: float, gain: float) -> tuple[Any, Once]:
    # The second model adds a signal of its own: both scores are normal, with a correlation.
    group, base, noise = np.repeat([0, 1], sizes), 0.3, 0.7
    areas = [stats.norm.cdf(d / 2**0.5) for d in (distance, (distance + gain) / (1 + noise**2) ** 0.5)]
    truth = float(areas[1] - areas[0])

    def once(rng: np.random.Generator) -> list[bool | None]:
        label = rng.random(len(group)) < base
        old = rng.normal(label * distance)
        new = old + rng.normal(label * gain, noise)
        found = area_changes(label, (old, new), group, ["a", "b"], np.ones(2, bool), min_count=10, level=0.95)
        if len(found) < 2:
            return [None]
        return [all(one.change.low <= truth <= one.change.high for one in found.values())]

    return ("both changes of area",), once


@titled("other rows, {0}, rates {1}")
def _other_rows(sizes: tuple[int, ...], rates: tuple[float, ...]) -> tuple[Any, Once]:
    # Two groups in a new and an old table: rates are those of (new a, new b, old a, old b).
    rate, rows, at = np.array(rates), np.array(sizes), np.arange(2)
    truth = rate[:2] - rate[2:]

    def once(rng: np.random.Generator) -> list[bool | None]:
        value, low, high = differences(rng.binomial(rows, rate), rows, at, at + 2)
        ends = mover(value[0], (low[0], high[0]), value[1], (low[1], high[1]))
        return [bool(low[0] <= truth[0] <= high[0]), bool(ends[0] <= truth[0] - truth[1] <= ends[1])]

    return ("change of a rate", "change of a gap"), once


@titled("Brier, {0} rows, beta {1}")
def _brier(rows: int, shape: tuple[float, float]) -> tuple[Any, Once]:
    one, whole = shape[0] * shape[1], sum(shape)
    truth = one / (whole * (whole + 1))  # of a calibrated score: mean of score * (1 - score)

    def once(rng: np.random.Generator) -> list[bool | None]:
        score = rng.beta(*shape, rows)
        counts = ScoreCounts.from_rows(rng.random(rows) < score, score, np.zeros(rows, int), 1)
        found = brier(counts).means(0, 0.95, skewed=True).at(0, len(score))
        return [bool(found.low <= truth <= found.high)]

    return ("Brier score",), once


@titled("cost {2}, errors {1}, {0} rows")
def _cost(sizes: tuple[int, int], rates: tuple[float, float], costs: tuple[float, float]) -> tuple[Any, Once]:
    truth = float(np.dot(rates, costs))

    def once(rng: np.random.Generator) -> list[bool | None]:
        errors = rng.multinomial(sizes, [*rates, 1 - sum(rates)])[:, :2]
        value, low, high = cost(errors, np.array(sizes), costs, 0.95)
        ends = mover(value[0], (low[0], high[0]), value[1], (low[1], high[1]))
        named = bool(ends[0] > 0 or ends[1] < 0)
        return [bool(low[0] - 1e-12 <= truth <= high[0] + 1e-12), not named]

    return ("cost a row", f"{NO_HEADLINE}, cost"), once


DESIGNS: list[Row] = [
    (_top, (500, 500), (0.0, 0.0), (1.0, 1.0), 100),
    (_top, (500, 500), (0.0, -0.5), (1.0, 1.0), 100),
    (_top, (500, 500), (0.0, 0.0), (1.0, 1.5), 100),
    (_top, (500, 100), (0.0, -0.5), (1.0, 1.0), 50),
    (_top, (900, 100), (0.0, 0.0), (1.0, 1.0), 20),
    (_top, (60, 60), (0.0, -0.5), (1.0, 1.0), 60),
    (_top, (300, 200, 100, 50), (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0), 100),
    (_top, (300, 200, 100, 50), (0.0, 0.3, -0.3, 0.5), (1.0, 1.0, 1.0, 1.0), 100),
    (_top, (5000, 500), (0.0, -0.2), (1.0, 0.8), 1000),
    (_periods, 12, (200, 200), (0.3, 0.3), 0.0, 0.0),
    (_periods, 12, (200, 200), (0.3, 0.3), 0.02, 0.0),
    (_periods, 12, (30, 300), (0.1, 0.1), 0.0, 0.0),
    (_periods, 12, (100, 100), (0.3, 0.2), 0.0, 0.03),
    (_periods, 4, (50, 50), (0.5, 0.3), 0.0, 0.0),
    (_periods, 3, (500, 100), (0.6, 0.3), -0.05, 0.0),
    (_periods, 24, (100, 40), (0.05, 0.08), 0.0, 0.0),
    (_periods, 36, (20, 20), (0.2, 0.2), 0.0, 0.0),
    (_separation, 60, 0.0, 0.5),
    (_separation, 60, 1.0, 0.3),
    (_separation, 500, 0.3, 0.5),
    (_separation, 500, 1.0, 0.1),
    (_separation, 2000, 2.0, 0.3),
    (_area_changes, (300, 100), 1.0, 0.5),
    (_area_changes, (100, 60), 0.5, 0.5),
    (_area_changes, (2000, 300), 2.0, 0.0),
    (_other_rows, (200, 60, 300, 80), (0.3, 0.3, 0.3, 0.3)),
    (_other_rows, (1000, 100, 1000, 100), (0.1, 0.3, 0.15, 0.2)),
    (_other_rows, (40, 40, 40, 40), (0.02, 0.02, 0.02, 0.02)),
    (_brier, 60, (2.0, 3.0)),
    (_brier, 60, (0.5, 4.0)),
    (_brier, 200, (0.5, 4.0)),
    (_brier, 1000, (0.3, 8.0)),
    (_cost, (60, 300), (0.02, 0.01), (1.0, 5.0)),
    (_cost, (200, 200), (0.4, 0.4), (1.0, 1.0)),
    (_cost, (100, 100), (0.2, 0.05), (0.0, 3.0)),
    (_cost, (300, 3000), (0.1, 0.003), (1.0, 100.0)),
    (_cost, (500, 1000), (0.3, 0.1), (1.0, 1.0)),
]
