"""How often does a comparison over training seeds find a difference, where there is none and where there is one?

Simulates methods on the same test rows with 2, 3, 5 and 10 seeds, compares them with ``levelhead.metrics``, writes
figures (with --record results/seeds.json), and fails unless, within two Monte Carlo standard errors,

- with five seeds or more, a true null is rejected at 5% in 3 to 6% of the comparisons, and the 95% interval holds a
  true difference in 94 to 97% of them;
- with fewer, a true null is rejected in at most 6.5%, and a true difference is held in at least 93.5%.

``own_covered`` in the JSON is how often the interval of a method's own accuracy holds the accuracy that its training
has on average.

    python benchmarks/seeds.py                # about fifteen minutes on one core
    python benchmarks/seeds.py --trials 100   # a look

A row is predicted rightly if its noise, a normal deviate, lies below a threshold that its (group, label) sets.
*Rows alike*: a row is as hard for every seed; of the variance of its noise, 35% is shared by all methods and seeds and
35% by the seeds of one method. *Rows unlike*: every seed errs on rows of its own.
*Seeds*: training moves the threshold of every (group, label) by a normal deviate of standard deviation 0 (none), 0.1
(small: a rate then varies over seeds as much as over 150 rows) or 0.3 (large).
*Paired*: seed by seed, the methods have the same moves, and are compared seed by seed. Otherwise moves are independent.

The null is one method against another of the same rates, with an equalized odds gap of 20 points. The true difference
is one of 3.5 points of accuracy and of about 7 points of that gap. ``no_gap`` has no gap in either method: there a mean
of absolute values cannot be below what noise alone makes, its interval is wider than need be, and nothing is required.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np
import typer
from measure import ROOT, destination
from numpy.typing import NDArray
from scipy import special

from levelhead.metrics.paired import Paired
from levelhead.storage import write_json

FloatArray = NDArray[np.float64]

METRICS = ("accuracy", "equalized_odds")
SEEDS = (2, 3, 5, 10)
MOVES = {"none": 0.0, "small": 0.1, "large": 0.3}
SHARED = {"alike": (0.35, 0.35), "unlike": (0.0, 0.0)}
ROWS = 600
# Share of right predictions of each (group, label), groups by labels.
GAP = np.array([[0.85, 0.85], [0.65, 0.65]])
SMALLER_GAP = np.array([[0.85, 0.85], [0.72, 0.72]])
NO_GAP = np.array([[0.8, 0.8], [0.8, 0.8]])
REJECTED, COVERED = (0.03, 0.06), (0.94, 0.97)
REJECTED_FEW = 0.065


def figures(right: FloatArray) -> dict[str, FloatArray]:
    """Metrics of shares of right predictions (..., groups, labels), of which every cell has as many rows."""
    return {
        "accuracy": right.mean((-2, -1)),
        "equalized_odds": np.abs(right[..., 0, :] - right[..., 1, :]).mean(-1),
    }


def true_figures(right: FloatArray, move: float) -> dict[str, float]:
    """Means over seeds of the figures that a seed would have on endlessly many rows."""
    moves = move * np.random.default_rng(0).standard_normal((400_000, 2, 2)) if move else np.zeros((1, 2, 2))
    found = figures(special.ndtr(special.ndtri(right) + moves))
    return {name: float(values.mean()) for name, values in found.items()}


def predict(
    cell: NDArray[np.int64],
    right: FloatArray,
    moves: FloatArray,
    shared: tuple[float, float],
    hardness: FloatArray,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Say which rows (seeds, rows) are predicted rightly, at ``moves`` (seeds, cells)."""
    everywhere, by_method = shared
    noise = math.sqrt(everywhere) * hardness + math.sqrt(by_method) * rng.standard_normal(len(cell))
    noise = noise + math.sqrt(1 - everywhere - by_method) * rng.standard_normal((len(moves), len(cell)))
    return noise < (special.ndtri(right.ravel()) + moves)[:, cell]


def simulate(
    seeds: int,
    rows: str,
    move: str,
    paired: bool,
    rates: tuple[FloatArray, FloatArray],
    trials: int,
    replicates: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Compare one cell's methods in many trials, one record a metric.

    ``rates`` are those of two methods that do not differ, and of one that does.
    """
    rng = np.random.default_rng(seed)
    cell = np.repeat(np.arange(4), ROWS // 4)
    group, label = cell // 2, cell % 2
    same, other = (true_figures(right, MOVES[move]) for right in rates)
    # rejected; held the true difference; width of the interval of the null
    found = np.full((trials, len(METRICS), 3), np.nan)
    own_covered = 0
    for trial in range(trials):
        hardness = rng.standard_normal(ROWS)
        moves = MOVES[move] * rng.standard_normal((3, seeds, 4))
        if paired:
            moves[:] = moves[0]
        right = [
            predict(cell, one, moves[position], SHARED[rows], hardness, rng)
            for position, one in enumerate((rates[0], rates[0], rates[1]))
        ]
        predictions = {
            name: np.where(one, label, 1 - label) for name, one in zip(("base", "same", "other"), right, strict=True)
        }
        table = Paired.build(label, group, predictions, None, 0.95, replicates, trial)
        for position, name in enumerate(METRICS):
            null = table.difference(name, "same", "base", paired)
            held = table.difference(name, "other", "base", paired).estimate
            found[trial, position] = (
                null.p_value <= 0.05,
                held.low <= other[name] - same[name] <= held.high,
                null.estimate.high - null.estimate.low,
            )
        own = table.level_of("accuracy", "base").estimate
        own_covered += own.low <= same["accuracy"] <= own.high
    keys = ("rejected", "covered", "mean_width")
    return [
        {
            "seeds": seeds,
            "rows": rows,
            "seed_variance": move,
            "paired": paired,
            "metric": name,
            "true_difference": other[name] - same[name],
            **dict(zip(keys, map(float, found[:, position].mean(0)), strict=True)),
            **({"own_covered": own_covered / trials} if name == "accuracy" else {}),
        }
        for position, name in enumerate(METRICS)
    ]


def failures(records: list[dict[str, Any]], trials: int) -> list[str]:
    """Say which records miss the requirement by more than two Monte Carlo standard errors."""

    def outside(share: float, low: float, high: float) -> bool:
        below, above = (2 * math.sqrt(bound * (1 - bound) / trials) for bound in (low, high))
        return share < low - below or share > high + above

    lines = []
    for record in records:
        few = record["seeds"] < 5
        rejected, covered = (0.0, REJECTED_FEW) if few else REJECTED, (1 - REJECTED_FEW, 1.0) if few else COVERED
        for key, (low, high) in (("rejected", rejected), ("covered", covered)):
            if outside(record[key], low, high):
                lines.append(
                    f"{describe(record)}: {key} {100 * record[key]:.1f}%, not {100 * low:g} to {100 * high:g}%"
                )
    return lines


def describe(record: dict[str, Any]) -> str:
    """Name a cell in words."""
    paired = "paired" if record["paired"] else "independent"
    return (
        f"{record['metric']}, {record['seeds']} {paired} seeds, rows {record['rows']}, "
        f"seed variance {record['seed_variance']}"
    )


def main(trials: int = 1000, replicates: int = 200, seed: int = 0, record: bool = False) -> None:
    """Simulate comparisons in each cell, write figures, and fail where they miss the requirement."""
    start = time.perf_counter()
    records: list[dict[str, Any]] = []
    cells = [
        (seeds, rows, move, paired)
        for paired in (False, True)
        for rows in SHARED
        for seeds in SEEDS
        for move in MOVES
        if not paired or (rows == "alike" and seeds in (2, 5) and move != "small")
    ]
    for number, cell in enumerate(cells):
        found = simulate(*cell, (GAP, SMALLER_GAP), trials, replicates, seed + number)
        records += found
        shares = (f"{r['metric']}: rejected {r['rejected']:.1%}, covered {r['covered']:.1%}" for r in found)
        print(describe(found[0]).partition(", ")[2], *shares, sep="  ", flush=True)
    no_gap = []
    for number, rows in enumerate(SHARED, len(cells)):
        no_gap += simulate(5, rows, "none", False, (NO_GAP, NO_GAP), trials, replicates, seed + number)
        print(f"no gap, rows {rows}: equalized odds rejected {no_gap[-1]['rejected']:.1%}", flush=True)
    missed = failures(records, trials)
    result = {
        "command": f"python benchmarks/seeds.py --trials {trials} --replicates {replicates}",
        "trials": trials,
        "replicates": replicates,
        "test_rows": ROWS,
        "level": 0.95,
        "required": {"rejected": REJECTED, "covered": COVERED, "rejected_with_fewer_than_five": REJECTED_FEW},
        "missed": missed,
        "seconds": round(time.perf_counter() - start),
        "cells": records,
        "no_gap": no_gap,
    }
    write_json(destination(ROOT / "results/seeds.json", record), result)
    if missed:
        sys.exit("\n".join(missed))


if __name__ == "__main__":
    typer.run(main)
