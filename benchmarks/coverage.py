"""How often do the intervals of ``levelhead.metrics`` hold the true value?

Simulates audits whose true gaps are known, writes results/coverage.json and docs/images/coverage.png, and fails
unless coverage is at least 94% everywhere and at most 98.5% where the true gap exceeds three standard errors (of the
gap between the two groups that truly differ most).

    python benchmarks/coverage.py                # about six minutes on one core
    python benchmarks/coverage.py --trials 200   # a look

Every group has the same number of positives and negatives in expectation, TPR 65% and FPR 20% before the gap is added
to both of them, so that demographic parity, equal opportunity and equalized odds all have the same true gap. With
eight groups there are two designs: "one" group differs from seven equal ones, or all are "spread" evenly.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from levelhead.metrics import Counts, estimate, estimate_all

METRICS = ("accuracy", "demographic_parity", "equal_opportunity", "equalized_odds")
DESIGNS = (("one", 2), ("one", 8), ("spread", 8))
SIZES = (500, 5000)
GAPS = (0.0, 0.02, 0.05, 0.2)
LOWEST, HIGHEST = 0.94, 0.985


def cell_probabilities(groups: int, gap: float, design: str) -> NDArray[np.float64]:
    """Probabilities of (group, label, prediction), shape (groups, 2, 2)."""
    shift = np.linspace(0, gap, groups) if design == "spread" else gap * (np.arange(groups) == groups - 1)
    probabilities = np.empty((groups, 2, 2))
    probabilities[:, 1, 1], probabilities[:, 0, 1] = 0.65 + shift, 0.2 + shift
    probabilities[:, :, 0] = 1 - probabilities[:, :, 1]
    return probabilities / (2 * groups)


def standard_error(probabilities: NDArray[np.float64], metric: str, rows: int) -> float:
    """Standard error of the gap between the two groups that truly differ most (the first and the last).

    Not that of the largest gap seen: the maximum over many pairs varies less than any one of them, because it is
    biased, and so would count gaps as large that nobody can see.
    """
    ends = rows * probabilities[[0, -1]]

    def variance(counts: NDArray[np.float64]) -> float:
        share = counts[..., 1] / counts.sum(-1)
        return float((share * (1 - share) / counts.sum(-1)).sum())

    if metric == "demographic_parity":
        return variance(ends.sum(1)) ** 0.5
    if metric == "equal_opportunity":
        return variance(ends[:, 1]) ** 0.5
    if metric == "equalized_odds":
        return (variance(ends[:, 1]) + variance(ends[:, 0])) ** 0.5 / 2
    share = float(np.trace(probabilities, axis1=1, axis2=2).sum())
    return (share * (1 - share) / rows) ** 0.5


def simulate(
    design: str, groups: int, rows: int, gap: float, trials: int, replicates: int, seed: int
) -> list[dict[str, Any]]:
    """Coverage of one cell, one record a metric."""
    probabilities = cell_probabilities(groups, gap, design)
    truth = dict.fromkeys(METRICS, gap) | {"accuracy": float(np.trace(probabilities, axis1=1, axis2=2).sum())}
    rng = np.random.default_rng(seed)
    tables = rng.multinomial(rows, probabilities.ravel(), size=trials).reshape(trials, groups, 2, 2)
    found = np.full((trials, len(METRICS), 3), np.nan)
    for trial, table in enumerate(tables):
        counts = Counts(table, tuple(range(groups)), (0, 1))
        for position, name in enumerate(METRICS):
            figure = estimate(counts, name, replicates=replicates, seed=trial)
            found[trial, position] = figure.value, figure.low, figure.high
    records = []
    for position, name in enumerate(METRICS):
        value, low, high = found[:, position].T
        # Rounding can put the end of an exact interval a hair beside the truth.
        held = (low <= truth[name] + 1e-12) & (truth[name] - 1e-12 <= high)
        records.append(
            {
                "design": design,
                "groups": groups,
                "rows": rows,
                "gap": gap,
                "metric": name,
                "coverage": float(held.mean()),
                "missed_below": float((high < truth[name] - 1e-12).mean()),
                "missed_above": float((low > truth[name] + 1e-12).mean()),
                "mean_width": float((high - low).mean()),
                "standard_errors": gap / standard_error(probabilities, name, rows),
                "undefined": float(np.isnan(value).mean()),
            }
        )
    return records


def time_audit(repeats: int = 20) -> dict[str, Any]:
    """Milliseconds for 1,000 replicates of the counts of 200,000 rows in 8 groups; the best of some repeats."""
    rng = np.random.default_rng(0)
    rows = 200_000
    group, label = rng.integers(0, 8, rows), rng.integers(0, 2, rows)
    prediction = np.where(rng.random(rows) < 0.8, label, 1 - label)
    counts = Counts.from_rows(label, prediction, group)

    def best(call: Any) -> float:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return round(1000 * min(times), 2)

    return {
        "rows": rows,
        "groups": 8,
        "replicates": 1000,
        "counting_rows_ms": best(lambda: Counts.from_rows(label, prediction, group)),
        "equalized_odds_ms": best(lambda: estimate(counts, "equalized_odds")),
        "all_metrics_ms": best(lambda: estimate_all(counts)),
    }


def failures(records: list[dict[str, Any]]) -> list[str]:
    """Say which records miss the requirement."""
    lines = []
    for record in records:
        far = record["metric"] != "accuracy" and record["standard_errors"] > 3
        if record["coverage"] < LOWEST or (far and record["coverage"] > HIGHEST):
            lines.append(
                f"{record['metric']}, {record['groups']} groups ({record['design']}), {record['rows']} rows, "
                f"gap {record['gap']}: {100 * record['coverage']:.1f}%"
            )
    return lines


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw one panel a design and size: coverage over the true gap, told apart by markers and not by colour."""
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), sharex=True, sharey=True, layout="constrained")
    styles = {
        "accuracy": ("x", "none", "0.4"),
        "demographic_parity": ("o", "black", "black"),
        "equal_opportunity": ("s", "white", "black"),
        "equalized_odds": ("^", "0.6", "black"),
    }
    places = {gap: position for position, gap in enumerate(GAPS)}
    for (row, rows), (column, (design, groups)) in itertools.product(enumerate(SIZES), enumerate(DESIGNS)):
        panel = axes[row, column]
        panel.axhspan(100 * LOWEST, 100 * HIGHEST, color="0.92")
        panel.axhline(95, color="black", linewidth=0.8, linestyle="--")
        for offset, (name, (marker, face, edge)) in enumerate(styles.items()):
            cells = [
                r for r in records if (r["design"], r["groups"], r["rows"], r["metric"]) == (design, groups, rows, name)
            ]
            panel.plot(
                [places[r["gap"]] + 0.13 * (offset - 1.5) for r in cells],
                [100 * r["coverage"] for r in cells],
                linestyle="none",
                marker=marker,
                markerfacecolor=face,
                markeredgecolor=edge,
                label=name.replace("_", " "),
            )
        title = "2 groups" if groups == 2 else f"8 groups, {'one differs' if design == 'one' else 'evenly spread'}"
        panel.set_title(f"{title}, {rows:,} rows", fontsize=10)
        panel.set_xticks(range(len(GAPS)), [f"{100 * gap:g}" for gap in GAPS])
        panel.set_ylim(92, 100.4)
    axes[1, 1].set_xlabel("true gap (points)")
    figure.supylabel("audits whose 95% interval holds the truth (%)", fontsize=10)
    axes[0, 0].legend(fontsize=8, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="simulated audits in each cell (default 2000)")
    parser.add_argument("--replicates", type=int, default=500, help="bootstrap replicates (default 500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path("results/coverage.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/coverage.png"))
    options = parser.parse_args()

    start = time.perf_counter()
    records = []
    print(f"{'design':8}{'groups':>7}{'rows':>6}{'gap':>6}  " + "".join(f"{name:>22}" for name in METRICS))
    cells = itertools.product(DESIGNS, SIZES, GAPS)
    for number, ((design, groups), rows, gap) in enumerate(cells):
        found = simulate(design, groups, rows, gap, options.trials, options.replicates, options.seed + number)
        records += found
        coverages = "".join(f"{100 * record['coverage']:>22.1f}" for record in found)
        print(f"{design:8}{groups:>7}{rows:>6}{gap:>6}  {coverages}", flush=True)
    missed = failures(records)
    result = {
        "command": f"python benchmarks/coverage.py --trials {options.trials} --replicates {options.replicates}",
        "trials": options.trials,
        "replicates": options.replicates,
        "level": 0.95,
        "required": {"at_least": LOWEST, "at_most_beyond_three_standard_errors": HIGHEST},
        "missed": missed,
        "seconds": round(time.perf_counter() - start),
        "time": time_audit(),
        "cells": records,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(records, options.figure)
    print(f"time: {result['time']}")
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
