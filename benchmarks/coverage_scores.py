"""Cells of benchmarks/coverage_more.py about rankings, periods and scores of two models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from levelhead.metrics.top import Places, TopLaw, exposure_ends, ratio_ends

Once = Callable[[np.random.Generator], list[bool | None]]
NO_HEADLINE = "no false headline"


def _top(sizes: tuple[int, ...], shifts: tuple[float, ...], spreads: tuple[float, ...], top: int) -> tuple[Any, Once]:
    group, rows = np.repeat(np.arange(len(sizes)), sizes), sum(sizes)
    shift, spread = np.array(shifts)[group], np.array(spreads)[group]
    compared = len(sizes) if len(sizes) > 2 else 1

    def draw(rng: np.random.Generator) -> Places:
        return Places.of(rng.normal(shift, spread), group)

    many = np.random.default_rng(12345)
    drawn = [draw(many) for _ in range(4000)]
    truth = np.mean([one.counts(len(sizes), [top])[0] for one in drawn], 0)
    exposed = np.mean([one.exposure(len(sizes), top) for one in drawn], 0)
    exposed /= exposed.sum()

    def once(rng: np.random.Generator) -> list[bool | None]:
        places = draw(rng)
        hits, worth = places.counts(len(sizes), [top])[0], places.exposure(len(sizes), top)
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


def cells() -> Iterator[tuple[str, tuple[str, ...], Once]]:
    """Yield the name of every cell, the figures in it, and one simulated audit of it."""
    for sizes, shifts, spreads, top in (
        ((500, 500), (0.0, 0.0), (1.0, 1.0), 100),
        ((500, 500), (0.0, -0.5), (1.0, 1.0), 100),
        ((500, 500), (0.0, 0.0), (1.0, 1.5), 100),
        ((500, 100), (0.0, -0.5), (1.0, 1.0), 50),
        ((900, 100), (0.0, 0.0), (1.0, 1.0), 20),
        ((60, 60), (0.0, -0.5), (1.0, 1.0), 60),
        ((300, 200, 100, 50), (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0), 100),
        ((300, 200, 100, 50), (0.0, 0.3, -0.3, 0.5), (1.0, 1.0, 1.0, 1.0), 100),
        ((5000, 500), (0.0, -0.2), (1.0, 0.8), 1000),
    ):
        yield f"top of {top}, {sizes} rows, shifts {shifts}, spreads {spreads}", *_top(sizes, shifts, spreads, top)
