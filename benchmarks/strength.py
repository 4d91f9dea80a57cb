"""Which rule says how far a direction is taken out of a last layer: compared on heads that no verdict rests on.

    python benchmarks/strength.py --network attractive=runs/attractive/erm-X/seed-0 \
        --network attractive=runs/attractive/erm-X/seed-1 --data-root DATA --json results/strength.json

The heads are CelebA attributes on another task's features, as in benchmarks/ladder.py, without those that the ladder
refits. The validation rows are split into halves by person, 20 times. Each rule chooses a strength on one half, for the
direction of a probe that is told 200 groups and for a random direction; the fall of accuracy, at unchanged shares of
answers, is measured on the other half. Nothing is decided by a gap.

Written down before it was run: the rule is taken whose strength varies least from half to half (standard deviation
divided by mean, median over heads and directions), among those whose mean fall is at most the budget.

    python benchmarks/strength.py --closing --network attractive=runs/attractive-0 --data-root DATA --json FILE

What do new people lose, whose threshold cannot be matched? ``--closing`` refits on all validation rows, and counts the
fall on the test rows, which are of other people, for ten draws of 200 told groups and ten random directions. Written
down before it was run, with the same heads, each calibrated first as a trained network is: the refit ends by the
calibration that ships ("calibration"), by none ("none"), or by the offset that leaves the share of positive validation
rows as it was ("share"); a fourth stops where the expected fall plus 1.645 of its standard errors is above the budget,
and then calibrates ("limit"). Beside these stands the fall at an unchanged share of the test rows ("unchanged"): the
part that no closing can take away. A rule is kept if the mean fall over heads is within the budget for both
directions; of several, the one above the budget on the fewest pairs of head and direction; of equals, the one that
ships. If none is kept, the budget is told as what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from ladder import BUDGET, JsonFile, Networks, Task, at_rate, highest, score, tasks_of, told_groups
from scipy import special

from levelhead.machine import cpu_name
from levelhead.methods.directions import (
    STRENGTHS,
    answers_in_shares,
    calibration,
    largest_strength,
    regression_within,
    standardized,
)
from levelhead.methods.few_label import group_directions
from levelhead.methods.last_layer import FloatArray, HeldOut
from levelhead.storage import write_json

DRAWS, HALVES, TOLD = 10, 20, 200
Rule = Callable[[float, FloatArray], bool]


RULES: dict[str, Rule] = {
    "expected or measured": lambda expected, lost: max(expected, lost.mean()) > BUDGET,
    "expected": lambda expected, lost: expected > BUDGET,
    "expected, or measured by a test": lambda expected, lost: expected > BUDGET or lower_limit(lost) > BUDGET,
}
"""Whether to stop, by the expected fall or by what the rows measure."""


def lower_limit(lost: FloatArray) -> float:
    """Return the one-sided 95% limit of the measured fall."""
    return float(lost.mean() - 1.645 * lost.std(ddof=1) / np.sqrt(len(lost)))


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


def cautious(held: HeldOut, change: FloatArray) -> float:
    """Return the largest strength whose expected fall is within the budget by a one-sided limit."""
    slope, offset = calibration(held.logits, held.labels)
    probability = special.softmax(slope * held.logits + offset, axis=1)
    before, rows, best = held.logits.argmax(1), np.arange(len(held.labels)), 0.0
    for strength in STRENGTHS:
        after = answers_in_shares(held.logits - strength * change, np.bincount(before, minlength=len(held.bias)))
        expected = probability[rows, before] - probability[rows, after]
        if expected.mean() + 1.645 * expected.std(ddof=1) / np.sqrt(len(rows)) > BUDGET:
            break
        best = float(strength)
    return best


def closings(task: Task) -> Iterator[tuple[str, str, float]]:
    """Yield direction, closing, and the fall of accuracy on the test rows."""
    first, test = calibrated(task.held, task.layer), task.test
    held, plain = replace(task.held, weight=first[0], bias=first[1]), score(first, test.features)
    mean, scale = standardized(held)
    standard, centred = (held.features - mean) / scale, held.logits - held.logits.mean(1, keepdims=True)
    for draw in range(DRAWS):
        generator = np.random.default_rng((task.seed, draw))
        told = told_groups(held, generator.choice(len(standard), TOLD, replace=False))
        for name, direction in {
            "few-label": group_directions(standard, held.labels, told.groups, len(held.bias)),
            "random": generator.normal(size=(standard.shape[1], 1)),
        }.items():
            share = regression_within(standard @ direction, centred, held.labels)
            change = standard @ direction @ share

            def less(strength: float, removed: FloatArray = direction @ share) -> tuple[FloatArray, FloatArray]:
                step = strength * removed.T / scale
                return held.weight - step, held.bias + step @ mean

            open_end = less(largest_strength(held.logits, change, held.labels, BUDGET))
            ends = {
                "calibration": calibrated(held, open_end),
                "none": open_end,
                "share": at_rate(open_end, held.features, float(held.logits.argmax(1).mean())),
                "limit": calibrated(held, less(cautious(held, change))),
            }
            answers = {end: score(layer, test.features) > 0 for end, layer in ends.items()}
            answers["unchanged"] = highest(score(open_end, test.features), int((plain > 0).sum()))
            for end, positive in answers.items():
                yield name, end, float(((plain > 0) == test.labels).mean() - (positive == test.labels).mean())


def calibrated(held: HeldOut, layer: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Return the layer with the slope and offsets that fit the rows best."""
    slope, offset = calibration(held.features @ layer[0].T + layer[1], held.labels)
    return slope * layer[0], slope * layer[1] + offset


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


def heads(networks: list[str], data_root: Path | None) -> Iterator[Task]:
    """Yield the heads that no verdict rests on."""
    for text in networks:
        name, _, run = text.partition("=")
        for task, in_ladder in tasks_of(name, Path(run), data_root, others=True, ladder=False):
            if not in_ladder:  # the network's own task is
                print(f"{task.name}, seed {task.seed}", flush=True)
                yield task


def closing_table(tasks: Iterator[Task]) -> dict[str, Any]:
    """Return by closing and direction the mean and largest fall of heads, and how many are above the budget."""
    found: dict[str, dict[str, list[float]]] = {}
    names = []
    for task in tasks:
        names.append(f"{task.name}, seed {task.seed}")
        falls: dict[tuple[str, str], list[float]] = {}
        for direction, end, lost in closings(task):
            falls.setdefault((end, direction), []).append(lost)
        for (end, direction), each in falls.items():
            found.setdefault(end, {}).setdefault(direction, []).append(float(np.mean(each)))
    ends = {
        end: {
            direction: {
                "fall": float(np.mean(each)),
                "largest_mean_fall": float(np.max(each)),
                "above_budget": int((np.array(each) > BUDGET).sum()),
            }
            for direction, each in directions.items()
        }
        for end, directions in found.items()
    }
    return {"budget": BUDGET, "draws": DRAWS, "heads": names, "closings": ends, "hardware": cpu_name()}


def main(network: Networks, json: JsonFile, data_root: Path | None = None, closing: bool = False) -> None:
    """Compare the rules on halves, print a table and write it; with ``closing``, the closings on test rows."""
    tasks = heads(network, data_root)
    if closing:
        write_json(json, closing_table(tasks))
        return
    found: dict[str, dict[str, dict[str, list[tuple[float, float]]]]] = {rule: {} for rule in RULES}
    for task in tasks:
        for direction, rule, strength, lost in trials(task):
            key = f"{task.name}, seed {task.seed}"
            found[rule].setdefault(key, {}).setdefault(direction, []).append((strength, lost))
    table: dict[str, Any] = {"budget": BUDGET, "halves": HALVES, "heads": list(found["expected"]), "rules": {}}
    for rule, of_rule in found.items():
        table["rules"][rule] = {}
        for direction in ("few-label", "random"):
            values = np.array([head[direction] for head in of_rule.values()])  # (heads, halves, 2)
            means = values[..., 0].mean(1)
            table["rules"][rule][direction] = {
                "strength": float(means.mean()),
                "spread": float(np.median(values[..., 0].std(1, ddof=1) / np.maximum(means, STRENGTHS[0]))),
                "fall": float(values[..., 1].mean()),
                "largest_mean_fall": float(values[..., 1].mean(1).max()),
            }
        print(rule, table["rules"][rule])
    write_json(json, table)


if __name__ == "__main__":
    typer.run(main)
