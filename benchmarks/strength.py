"""Which rule says how far a direction is taken out of a last layer: compared on heads that no verdict rests on.

    python benchmarks/strength.py --network attractive=runs/attractive/erm-X/seed-0 \
        --network attractive=runs/attractive/erm-X/seed-1 --data-root DATA --json results/strength.json

The heads are CelebA attributes on another task's features, as in benchmarks/ladder.py, without those that the ladder
refits. The validation rows are split into halves by person, 20 times. Each rule chooses a strength on one half, for the
direction of a probe that is told 200 groups and for a random direction; the fall of accuracy, at unchanged shares of
answers, is measured on the other half. Nothing is decided by a gap.

Written down before it was run: the rule is taken whose strength varies least from half to half (standard deviation
divided by mean, median over heads and directions), among those whose mean fall is at most the budget.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ladder import BUDGET, Task, tasks_of
from scipy import special

from levelhead.methods.directions import STRENGTHS, answers_in_shares, calibration, regression_within, standardized
from levelhead.methods.few_label import group_directions
from levelhead.methods.last_layer import FloatArray, HeldOut
from levelhead.storage import write_json

HALVES, TOLD = 20, 200
Rule = Callable[[float, FloatArray], bool]


def either(expected: float, lost: FloatArray) -> bool:
    """Stop where the expected or the measured fall is above the budget."""
    return max(expected, lost.mean()) > BUDGET


def expected_alone(expected: float, lost: FloatArray) -> bool:
    """Stop where the expected fall is above the budget."""
    return expected > BUDGET


def expected_unless_decided(expected: float, lost: FloatArray) -> bool:
    """Stop where the expected fall is above the budget, or the measured one by a one-sided test at 5%."""
    return expected > BUDGET or lost.mean() - 1.645 * lost.std(ddof=1) / np.sqrt(len(lost)) > BUDGET


RULES: dict[str, Rule] = {
    "expected or measured": either,
    "expected": expected_alone,
    "expected, or measured by a test": expected_unless_decided,
}


def strengths(held: HeldOut, change: FloatArray) -> dict[str, float]:
    """Return the strength that each rule chooses on these rows."""
    slope, offset = calibration(held.logits, held.labels)
    probability = special.softmax(slope * held.logits + offset, axis=1)
    before, rows = held.logits.argmax(1), np.arange(len(held.labels))
    shares = np.bincount(before, minlength=len(held.bias))
    best, going = dict.fromkeys(RULES, 0.0), set(RULES)
    for strength in STRENGTHS:
        after = answers_in_shares(held.logits - strength * change, shares)
        expected = float((probability[rows, before] - probability[rows, after]).mean())
        lost = (before == held.labels).astype(float) - (after == held.labels)
        going -= {name for name in going if RULES[name](expected, lost)}
        for name in going:
            best[name] = float(strength)
    return best


def fall(held: HeldOut, change: FloatArray, strength: float) -> float:
    """Return how much accuracy these rows lose."""
    before = held.logits.argmax(1)
    after = answers_in_shares(held.logits - strength * change, np.bincount(before, minlength=len(held.bias)))
    return float((before == held.labels).mean() - (after == held.labels).mean())


def part(held: HeldOut, rows: FloatArray) -> HeldOut:
    """Return some rows."""
    assert held.groups is not None
    return replace(held, features=held.features[rows], labels=held.labels[rows], groups=held.groups[rows])


def trials(task: Task) -> Iterator[tuple[str, str, float, float]]:
    """Yield direction, rule, strength, and the fall on the other half."""
    people = task.validation.people
    for draw in range(HALVES):
        generator = np.random.default_rng((task.seed, draw))
        first = generator.permutation(people.max() + 1)[people] % 2 == 0
        fitted, other = part(task.held, first), part(task.held, ~first)
        mean, scale = standardized(fitted)
        standard = (fitted.features - mean) / scale
        told = generator.choice(len(standard), TOLD, replace=False)
        assert fitted.groups is not None
        groups = np.where(np.isin(np.arange(len(standard)), told), fitted.groups, -1)
        directions = {
            "few-label": group_directions(standard, fitted.labels, groups, len(fitted.bias)),
            "random": generator.normal(size=(standard.shape[1], 1)),
        }
        for name, direction in directions.items():
            signal = standard @ direction
            centred = fitted.logits - fitted.logits.mean(1, keepdims=True)
            share = regression_within(signal, centred, fitted.labels)
            there = (other.features - mean) / scale @ direction @ share
            for rule, strength in strengths(fitted, signal @ share).items():
                yield name, rule, strength, fall(other, there, strength)


def main() -> None:
    """Compare the rules, print a table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", action="append", default=[], metavar="NAME=RUN", required=True)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    found: dict[str, dict[str, dict[str, list[tuple[float, float]]]]] = {rule: {} for rule in RULES}
    for text in given.network:
        name, _, run = text.partition("=")
        for number, (task, in_ladder) in enumerate(tasks_of(name, Path(run), given.data_root, others=True)):
            if in_ladder or number == 0:  # the first is the network's own task
                continue
            for direction, rule, strength, lost in trials(task):
                key = f"{task.name}, seed {task.seed}"
                found[rule].setdefault(key, {}).setdefault(direction, []).append((strength, lost))
            print(f"{task.name}, seed {task.seed}", flush=True)
    table: dict[str, Any] = {"budget": BUDGET, "halves": HALVES, "heads": list(found["expected"]), "rules": {}}
    for rule, heads in found.items():
        table["rules"][rule] = {}
        for direction in ("few-label", "random"):
            values = np.array([head[direction] for head in heads.values()])  # (heads, halves, 2)
            means = values[..., 0].mean(1)
            table["rules"][rule][direction] = {
                "strength": float(means.mean()),
                "spread": float(np.median(values[..., 0].std(1, ddof=1) / np.maximum(means, STRENGTHS[0]))),
                "fall": float(values[..., 1].mean()),
                "largest_mean_fall": float(values[..., 1].mean(1).max()),
            }
        print(rule, table["rules"][rule])
    write_json(given.json, table)


if __name__ == "__main__":
    main()
