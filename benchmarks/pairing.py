"""Measure what training all variants of a seed from the same weights, in the same order of rows, saves.

python benchmarks/pairing.py runs/decide_utkface64 --method DAM --baseline ERM --json results/pairing.json

The networks of a seed begin equal and see the rows in one order, so that their answers differ in fewer rows than
those of two seeds, and a difference of theirs is less uncertain. This compares the noise over rows of the difference
in equalized odds: pairs of one seed, against pairs of different seeds out of the very same runs. The ratio of the
variances says how many more test rows unpaired runs would need.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray

from levelhead.bench.tables import RunSet, collect
from levelhead.metrics.paired import Paired
from levelhead.storage import write_json

Answers = dict[str, NDArray[np.int64]]


def read(folder: Path, names: Sequence[str]) -> tuple[RunSet, Answers]:
    """Return the runs of a comparison, and the classes (seeds, rows) that its methods ``names`` predict."""
    (runs,) = collect([folder], "test")
    rows = runs.rows()
    classes = np.array(runs.classes)
    return runs, {name: classes[runs.probabilities(rows[name]).argmax(-1)] for name in names}


def resample(runs: RunSet, answers: Answers) -> Paired:
    """Resample the rows of these answers, together for all methods and seeds."""
    frame = runs.runs[0].predictions
    clusters = frame.get("cluster")
    return Paired.build(
        frame["label"].to_numpy(),
        frame[runs.attribute].to_numpy(),
        answers,
        runs.positive,
        0.95,
        2000,
        0,
        None if clusters is None else clusters.to_numpy(),
    )


def main(runs: Path, method: str = "DAM", baseline: str = "ERM", json: Path | None = None) -> None:
    """Measure, and print and write the result, of the folder of a comparison with several seeds."""
    compared, answers = read(runs, (method, baseline))
    seeds = len(answers[baseline])
    found: dict[str, list[tuple[float, float]]] = {"same seed": [], "different seeds": []}
    for shift in range(seeds):
        predictions = {**answers, method: np.roll(answers[method], shift, axis=0)}
        paired = resample(compared, predictions)
        variance = np.var(paired.moves("equalized_odds", method, baseline), axis=1)
        other = (predictions[method] != predictions[baseline]).mean(axis=1)
        found["different seeds" if shift else "same seed"] += list(zip(variance.tolist(), other.tolist(), strict=True))
    summary = {
        name: {
            "pairs": len(pairs),
            "rows_answered_differently": float(np.mean([other for _, other in pairs])),
            "half_width_points": 196 * float(np.sqrt(np.mean([variance for variance, _ in pairs]))),
            "variance": float(np.mean([variance for variance, _ in pairs])),
        }
        for name, pairs in found.items()
    }
    ratio = summary["different seeds"]["variance"] / summary["same seed"]["variance"]
    for name, part in summary.items():
        print(
            f"{name}: {part['pairs']} pairs, {100 * part['rows_answered_differently']:.1f}% of the rows answered "
            f"differently, difference of one pair known to {part['half_width_points']:.2f} points over rows"
        )
    print(f"Variance over rows of different seeds / same seed: {ratio:.2f}")
    if json is not None:
        about = {"method": method, "baseline": baseline, "seeds": seeds, "rows": paired.counts.n}
        write_json(json, {**about, **summary, "ratio_of_variances": ratio})


if __name__ == "__main__":
    typer.run(main)
