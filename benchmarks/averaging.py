"""Measure what ``train.average`` does to the noise of a difference in equalized odds, and what it costs.

levelhead compare --recipe portraits_erm_shortcut --methods erm,dam --seeds 0-39 --set data.test_size=6000 \
    --workers 2 --out runs/last
levelhead compare --recipe portraits_erm_shortcut --methods erm,dam --seeds 0-39 --set data.test_size=6000 \
    --set train.average=0.99 --workers 2 --out runs/averaged
python benchmarks/averaging.py runs/last runs/averaged --method dam --baseline erm --json FILE

Both comparisons have the same seeds and test rows; the second keeps a moving average of the weights. The variance
over seeds of the difference between two methods is what more seeds would have to bring down, and the variance over
rows is what more test rows would. The ratio of the first, times that of the seconds, is the price of a decision with
averages, beside one without. Intervals of ratios resample seeds (20,000 times, percentiles). With one seed there is
only the variance over rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pairing import read, resample

from levelhead.storage import write_json
from levelhead.types import ConfigError

FloatArray = NDArray[np.float64]


def measure(folder: Path, method: str, baseline: str) -> dict[str, Any]:
    """Return for each seed the difference in equalized odds, its variance over rows, accuracies, and all seconds."""
    runs, answers = read(folder, (method, baseline))
    rows, paired = runs.rows(), resample(runs, answers)
    trained = [part for name in (baseline, method) for run in rows[name] for part in run.trained]
    return {
        "seeds": [run.experiment.seed for run in rows[baseline]],
        "difference": paired.values("equalized_odds", method) - paired.values("equalized_odds", baseline),
        "variance_over_rows": paired.moves("equalized_odds", method, baseline).var(axis=1),
        "accuracy": {name: paired.values("accuracy", name) for name in (baseline, method)},
        "gap": {name: paired.values("equalized_odds", name) for name in (baseline, method)},
        "seconds": sum(run.cost["seconds"] for run in trained),
    }


def ratio(last: FloatArray, averaged: FloatArray, rng: np.random.Generator) -> dict[str, float]:
    """Return the ratio of two variances over seeds with its 95% interval; seeds are resampled together."""
    seeds = rng.integers(0, len(last), (20_000, len(last)))
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = averaged[seeds].var(axis=1, ddof=1) / last[seeds].var(axis=1, ddof=1)
        value = averaged.var(ddof=1) / last.var(ddof=1)
    low, high = np.quantile(drawn[np.isfinite(drawn)], [0.025, 0.975])
    return {"value": float(value), "low": float(low), "high": float(high)}


def main() -> None:
    """Measure, and print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("last", type=Path, help="folder of a comparison that keeps the last weights")
    parser.add_argument("averaged", type=Path, help="folder of the same with train.average")
    parser.add_argument("--method", default="DAM")
    parser.add_argument("--baseline", default="ERM")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    last, averaged = (measure(folder, options.method, options.baseline) for folder in (options.last, options.averaged))
    if last["seeds"] != averaged["seeds"]:
        raise ConfigError(f"the comparisons have different seeds: {last['seeds']} and {averaged['seeds']}.")
    many = len(last["seeds"]) > 1
    rng = np.random.default_rng(0)
    over_seeds = ratio(last["difference"], averaged["difference"], rng) if many else None
    over_rows = float(np.mean(averaged["variance_over_rows"]) / np.mean(last["variance_over_rows"]))
    seconds = averaged["seconds"] / last["seconds"]
    summary: dict[str, Any] = {
        "method": options.method,
        "baseline": options.baseline,
        "seeds": len(last["seeds"]),
        "variance_over_seeds": over_seeds,
        "variance_over_rows": over_rows,
        "seconds": seconds,
    }
    for name, part in (("last", last), ("averaged", averaged)):
        spread = part["difference"].std(ddof=1) if many else float("nan")
        summary[name] = {
            "difference_points": 100 * float(part["difference"].mean()),
            "deviation_over_seeds_points": 100 * float(spread) if many else None,
            "accuracy_percent": {one: 100 * float(values.mean()) for one, values in part["accuracy"].items()},
            "equalized_odds_percent": {one: 100 * float(values.mean()) for one, values in part["gap"].items()},
            "seconds": part["seconds"],
        }
        print(
            f"{name}: {options.method} minus {options.baseline} {100 * part['difference'].mean():+.2f} points of EOd"
            + (f", deviation over seeds {100 * spread:.2f}" if many else "")
            + f"; accuracy {', '.join(f'{one} {100 * values.mean():.1f}%' for one, values in part['accuracy'].items())}"
        )
    if over_seeds is not None:
        print("Variance over seeds, averaged / last: {value:.2f} [{low:.2f}, {high:.2f}]".format(**over_seeds))
    print(f"Variance over rows, averaged / last: {over_rows:.2f}; seconds {seconds:.2f}")
    if options.json:
        write_json(options.json, summary)


if __name__ == "__main__":
    main()
