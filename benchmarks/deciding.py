"""Do verdicts and rows of one person keep to the error probability that they promise?

Simulates comparisons of two methods over training seeds, writes figures (with --record results/deciding.json), and
fails where, within two Monte Carlo standard errors,

- *equal*: a difference that is exactly as large as the margin is called smaller than it in more than 5%;
- *people*: with several rows a person, a true null is rejected outside 3 to 6%, or a true difference is held outside
  94 to 97% (above is allowed where rows add nothing to the seeds' variance).

    python benchmarks/deciding.py                # about twenty minutes on one core
    python benchmarks/deciding.py --trials 100   # a look

Rows, seeds and moves are those of benchmarks/seeds.py. *People*: four rows each, equal in group and label; of a row's
noise 70% is its person's, the same for all methods and seeds in part (35%) and for one method (35%).
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import typer
from measure import ROOT, destination
from rich.progress import track
from scipy import special
from seeds import GAP, METRICS, MOVES, ROWS, SHARED, SMALLER_GAP, FloatArray, predict, true_figures

from levelhead.metrics.paired import Paired
from levelhead.storage import write_json
from levelhead.terminal import Terminal

EACH = 4  # rows of a person


def methods(
    rates: tuple[FloatArray, ...], seeds: int, rows: str, move: str, people: bool, rng: np.random.Generator
) -> dict[str, Any]:
    """Draw labels, groups, people and the predictions (seeds, rows) of one method for each of ``rates``."""
    number = ROWS // EACH if people else ROWS
    cell = np.repeat(np.arange(4), number // 4)
    hardness = rng.standard_normal(len(cell))
    moves = MOVES[move] * rng.standard_normal((len(rates), seeds, 4))
    if people:
        person, cell = np.arange(len(cell)).repeat(EACH), cell.repeat(EACH)
        every, own = SHARED["alike"]
        found = []
        for position, one in enumerate(rates):
            noise = math.sqrt(every) * hardness[person] + math.sqrt(own) * rng.standard_normal(number)[person]
            noise = noise + math.sqrt(1 - every - own) * rng.standard_normal((seeds, len(cell)))
            thresholds = special.ndtri(one.ravel()) + moves[position]
            found.append(noise < thresholds[:, cell])
    else:
        person = np.arange(len(cell))
        found = [predict(cell, one, moves[at], SHARED[rows], hardness, rng) for at, one in enumerate(rates)]
    label = cell % 2
    answers = {str(at): np.where(right, label, 1 - label) for at, right in enumerate(found)}
    return {"label": label, "group": cell // 2, "people": person, "answers": answers}


def equal(seeds: int, rows: str, move: str, trials: int, replicates: int, seed: int) -> list[dict[str, Any]]:
    """How often a difference as large as the margin is called smaller, and how often none is called equal."""
    rng = np.random.default_rng(seed)
    base, other = (true_figures(one, MOVES[move]) for one in (GAP, SMALLER_GAP))
    margins = {name: abs(other[name] - base[name]) for name in METRICS}
    wrong, right = (np.zeros((trials, len(METRICS)), bool) for _ in range(2))
    for trial in track(range(trials), f"equal: {seeds} seeds, {rows}, {move}", console=Terminal(stderr=True)):
        drawn = methods((GAP, GAP, SMALLER_GAP), seeds, rows, move, False, rng)
        table = Paired.build(drawn["label"], drawn["group"], drawn["answers"], None, 0.95, replicates, trial)
        for at, name in enumerate(METRICS):
            wrong[trial, at] = table.difference(name, "2", "0").p_within(margins[name]) < 0.05
            right[trial, at] = table.difference(name, "1", "0").p_within(margins[name]) < 0.05
    return [
        {
            "what": "equal",
            "seeds": seeds,
            "rows": rows,
            "moves": move,
            "metric": name,
            "trials": trials,
            "margin": margins[name],
            "margin_called_smaller": float(wrong[:, at].mean()),
            "none_called_equal": float(right[:, at].mean()),
        }
        for at, name in enumerate(METRICS)
    ]


def people(seeds: int, move: str, trials: int, replicates: int, seed: int) -> list[dict[str, Any]]:
    """How often nulls are rejected and true differences held, with people's rows drawn together and each by itself."""
    rng = np.random.default_rng(seed)
    base, other = (true_figures(one, MOVES[move]) for one in (GAP, SMALLER_GAP))
    found = np.zeros((trials, len(METRICS), 4), bool)
    for trial in track(range(trials), f"people: {seeds} seeds, {move}", console=Terminal(stderr=True)):
        drawn = methods((GAP, GAP, SMALLER_GAP), seeds, "alike", move, True, rng)
        for at, clusters in enumerate((drawn["people"], None)):
            table = Paired.build(
                drawn["label"], drawn["group"], drawn["answers"], None, 0.95, replicates, trial, clusters
            )
            for which, name in enumerate(METRICS):
                held = table.difference(name, "2", "0").estimate
                found[trial, which, 2 * at] = table.difference(name, "1", "0").p_value <= 0.05
                found[trial, which, 2 * at + 1] = held.low <= other[name] - base[name] <= held.high
    keys = ("rejected", "held", "rejected_rows_alone", "held_rows_alone")
    return [
        {"what": "people", "seeds": seeds, "moves": move, "metric": name, "trials": trials}
        | dict(zip(keys, found[:, at].mean(0).tolist(), strict=True))
        for at, name in enumerate(METRICS)
    ]


def failures(records: list[dict[str, Any]]) -> list[str]:
    """Return what is not as promised, within two Monte Carlo standard errors."""
    said = []
    for one in records:
        slack = 2 * math.sqrt(0.05 * 0.95 / one["trials"])
        where = ", ".join(f"{key} {one[key]}" for key in ("what", "seeds", "rows", "moves", "metric") if key in one)
        high = {"equal": "margin_called_smaller", "people": "rejected"}[one["what"]]
        limit = 0.06 if one["what"] == "people" else 0.05
        if one[high] > limit + slack:
            said.append(f"{where}: {high} {one[high]:.1%}")
        if one["what"] == "people" and one["held"] < 0.94 - slack:
            said.append(f"{where}: held {one['held']:.1%}")
    return said


def main(trials: int = 1000, replicates: int = 200, record: bool = False) -> None:
    """Simulate, write down, and fail where a promise is broken."""
    records: list[dict[str, Any]] = []
    for cell in ((5, "alike", "none"), (5, "unlike", "small"), (5, "alike", "large"), (3, "alike", "small")):
        records += equal(*cell, trials, replicates, seed=2 * len(records) + 2)
    for place, move in enumerate(("none", "small", "large")):
        records += people(5, move, trials, replicates, seed=16 + 2 * place)
    write_json(destination(ROOT / "results/deciding.json", record), {"replicates": replicates, "cells": records})
    console = Terminal()
    for one in records:
        console.print({key: round(x, 4) if isinstance(x, float) else x for key, x in one.items()})
    if said := failures(records):
        sys.exit("\n".join(said))


if __name__ == "__main__":
    typer.run(main)
