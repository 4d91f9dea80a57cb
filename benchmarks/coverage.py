"""How often do the intervals of ``levelhead.metrics`` hold the true value?

Simulates audits whose true gaps are known, writes figures (with --record results/coverage.json), and fails unless
coverage is at least 94% everywhere, and in the plain cells at most 98.5% where the true gap exceeds three standard
errors (between the two groups that truly differ most).

    python benchmarks/coverage.py --workers 2            # about ten minutes on two cores
    python benchmarks/coverage.py --trials 200           # a look
    python benchmarks/coverage.py --only pairs           # one series; the others stay in the file
    python benchmarks/coverage.py --only more --cells regression  # of it, the designs whose names hold a word

cells: every group has the same number of positives and negatives in expectation, TPR 65% and FPR 20% before the
gap is added to both of them, so that demographic parity, equal opportunity and equalized odds all have the same true
gap. With eight groups there are two designs: "one" group differs from seven equal ones, or all are "spread" evenly.

small_cells: few rows under some rates, very unequal groups, rates at 0 and 1, a rare class, many groups; without a
gap, and with one group that differs. Tables in which a figure is undefined are counted apart.

differences: of two predictors on the same rows of small cells, whose errors have a correlation of 0.9.

missing_attributes (docs/missing-attributes.md): the methods of ``levelhead.auditing.unknown``, in worlds in which
their assumption holds, and in worlds in which it does not: there the share refused and the bias are the figures, and no
coverage is required. Elsewhere it must be 94 to 97.5% (bounds, and answers after refusals: at least 94%).

pairs: the differences of all pairs of groups, whose intervals are to hold together (Bonferroni).

headlines: audits of big groups beside tiny ones at low rates. Where all groups are alike, the headline must name a pair
in at most 5.5% of 1,000 audits; where rates are spread, all intervals must hold together. An hour on one core.

more: scores, paired changes, ratios, numbers, weights, clusters, levels, decisions and own metrics.

With 1,000 trials the standard error of a coverage of 95% is 0.7 points, and many of the tests are exact: of so many
cells some would fall below 94% by chance. A cell that does is simulated four times as often, and all its trials count.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import coverage_decided
import coverage_more
import coverage_scores
import coverage_unknown
import numpy as np
import typer
from coverage_designs import HIGHEST, LOWEST, Design, Record, of_figures, simulated, too_low
from measure import ROOT, destination
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.finding import error_rates
from levelhead.metrics import Counts, estimate_all
from levelhead.metrics.between import differences
from levelhead.metrics.contrasts import measured, pair_indices
from levelhead.metrics.paired import Paired
from levelhead.storage import read_json, write_json

FloatArray = NDArray[np.float64]
Figures = list[tuple[float, float, float]]
"""Value and interval of each of :data:`METRICS`."""

METRICS = (
    "accuracy",
    "worst_group_accuracy",
    "demographic_parity",
    "equal_opportunity",
    "equalized_odds",
    "equalized_odds_worst",
)
DESIGNS = (("one", 2), ("one", 8), ("spread", 8))
SIZES = (500, 5000)
GAPS = (0.0, 0.02, 0.05, 0.2)
CORRELATION = 0.9
REPLICATES = 500


@dataclass(frozen=True)
class Cell:
    """A design: ``shares`` (groups, labels, predictions) of the rows within each group, and ``sizes`` of the groups.

    ``sizes`` None: ``rows`` are drawn from all groups, equally likely. ``about`` goes into the record.
    """

    about: dict[str, Any]
    shares: FloatArray
    sizes: tuple[int, ...] | None = None
    rows: int = 0
    truth: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        weights = np.ones(len(self.shares)) if self.sizes is None else np.array(self.sizes, float)
        table = self.shares * (weights / weights.sum())[:, None, None]
        truth = {name: float(measured(table, name)) for name in METRICS}
        object.__setattr__(self, "truth", truth)

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw one count table."""
        if self.sizes is None:
            return rng.multinomial(self.rows, self.shares.ravel() / len(self.shares)).reshape(self.shares.shape)
        flat = self.shares.reshape(len(self.shares), -1)
        return rng.multinomial(self.sizes, flat).reshape(self.shares.shape)


def binary(positives: float, tpr: FloatArray, fpr: FloatArray) -> FloatArray:
    """Shares (groups, 2, 2) for a share of positives, true positive rates (groups,) and false positive rates."""
    shares = np.empty((len(tpr), 2, 2))
    shares[:, 1, 1], shares[:, 0, 1] = positives * tpr, (1 - positives) * fpr
    shares[:, 1, 0], shares[:, 0, 0] = positives * (1 - tpr), (1 - positives) * (1 - fpr)
    return shares


def plain_cell(design: str, groups: int, rows: int, gap: float) -> Cell:
    """Return one cell of the plain designs."""
    shift = np.linspace(0, gap, groups) if design == "spread" else gap * (np.arange(groups) == groups - 1)
    about = {"design": design, "groups": groups, "rows": rows, "gap": gap}
    return Cell(about, binary(0.5, 0.65 + shift, 0.2 + shift), rows=rows)


def small_cells() -> list[Cell]:
    """Return the cells in which plain bootstrap intervals cover too little."""
    cells = []

    def add(design: str, sizes: tuple[int, ...], positives: float, tpr: float, fpr: float, gap: float) -> None:
        for one in (0.0, gap):
            last = one * (np.arange(len(sizes)) == len(sizes) - 1)
            # Rates near their ends can only differ inwards.
            shares = binary(positives, tpr + last if tpr < 0.7 else tpr - last, fpr + last)
            cells.append(Cell({"design": design, "groups": len(sizes), "rows": sum(sizes), "gap": one}, shares, sizes))

    add("six groups of 30, 10% positive", (30,) * 6, 0.1, 0.65, 0.2, 0.3)
    add("groups of 2,000 and 12", (2000, 12), 0.5, 0.65, 0.2, 0.3)
    add("groups of 3,000 and 60, 5% positive", (3000, 60), 0.05, 0.65, 0.2, 0.3)
    add("20 groups of 25", (25,) * 20, 0.5, 0.65, 0.2, 0.3)
    add("40 groups of 30", (30,) * 40, 0.5, 0.65, 0.2, 0.3)
    add("three groups of 40, all right", (40,) * 3, 0.3, 1.0, 0.0, 0.15)
    for gap in (0.0, 0.3):
        # Three classes, of which the last has 5% of the rows; errors fall on the other two alike.
        right = np.full((3, 3), 0.75)
        right[-1] -= gap
        shares = np.array([0.65, 0.3, 0.05])[:, None] * (
            right[..., None] * np.eye(3) + (1 - right[..., None]) / 2 * (1 - np.eye(3))
        )
        about = {"design": "three classes, one of 5%; groups of 150, 100, 60", "groups": 3, "rows": 310, "gap": gap}
        cells.append(Cell(about, shares, (150, 100, 60)))
    return cells


def standard_error(cell: Cell, metric: str) -> float:
    """Standard error of the gap between the two groups that truly differ most (the first and the last).

    Not that of the largest gap seen: the maximum over many pairs varies less than any one of them, because it is
    biased, and so would count gaps as large that nobody can see.
    """
    ends = cell.rows * cell.shares[[0, -1]] / len(cell.shares)

    def variance(counts: FloatArray) -> float:
        share = counts[..., 1] / counts.sum(-1)
        return float((share * (1 - share) / counts.sum(-1)).sum())

    if metric == "demographic_parity":
        return math.sqrt(variance(ends.sum(1)))
    if metric == "equal_opportunity":
        return math.sqrt(variance(ends[:, 1]))
    if metric == "equalized_odds":
        return math.sqrt(variance(ends[:, 1]) + variance(ends[:, 0])) / 2
    return math.inf


def audit_once(cell: Cell, rng: np.random.Generator, trial: int) -> Figures:
    """Audit one drawn table."""
    table = cell.draw(rng)
    counts = Counts(table, tuple(range(len(table))), tuple(range(table.shape[-1])))
    found = estimate_all(counts, replicates=REPLICATES, seed=trial)
    return [(found[name].value, found[name].low, found[name].high) for name in METRICS]


def compare_once(cell: Cell, other: Cell, rng: np.random.Generator, trial: int) -> Figures:
    """Compare a predictor that is as in ``cell`` with one that is as in ``other``, on the same rows."""
    labels = cell.shares.sum(-1)
    group = np.repeat(np.arange(len(labels)), cell.sizes)
    label = (rng.random(len(group)) >= labels[group, 0]).astype(int)
    common = rng.standard_normal(len(group))
    predictions = {}
    for name, one in (("a", cell), ("b", other)):
        positive = (one.shares[..., 1] / labels)[group, label]
        noise = math.sqrt(CORRELATION) * common + math.sqrt(1 - CORRELATION) * rng.standard_normal(len(group))
        predictions[name] = (special.ndtr(noise) < positive).astype(int)[None]
    table = Paired.build(label, group, predictions, None, 0.95, REPLICATES, trial)
    found = [table.difference(name, "a", "b").estimate for name in METRICS]
    return [(one.value, one.low, one.high) for one in found]


def summarise(truth: dict[str, float], about: dict[str, Any], cell: Cell | None, drawn: list[Figures]) -> list[Record]:
    """Turn values and ends (trials, metrics, 3) into a record a metric; undefined figures are counted apart."""
    found, records = np.array(drawn), []
    for position, name in enumerate(METRICS):
        defined = ~np.isnan(found[:, position, 0])
        _, low, high = found[defined, position].T
        # Rounding can put the end of an exact interval a hair beside the truth.
        below, above = high < truth[name] - 1e-12, low > truth[name] + 1e-12
        records.append(
            about
            | {
                "metric": name,
                "true_value": truth[name],
                "trials": len(found),
                "coverage": float(1 - (below | above).mean()),
                "missed_below": float(below.mean()),
                "missed_above": float(above.mean()),
                "mean_width": float((high - low).mean()),
                "undefined": float(1 - defined.mean()),
            }
            | ({} if cell is None else {"standard_errors": about["gap"] / standard_error(cell, name)})
        )
    return records


def describe(record: Record) -> str:
    """Name a cell in words."""
    gap = f"gap {record['gap']:g}" + (f" less {record['other_gap']:g}" if "other_gap" in record else "")
    if record["design"] in ("one", "spread"):
        return f"{record['groups']} groups ({record['design']}), {record['rows']:,} rows, {gap}"
    return f"{record['design']}, {gap}"


def far_or_low(record: Record) -> bool:
    """Whether intervals of a plain cell hold too little, or far more than they need where the gap is large."""
    return too_low(record) or (record["standard_errors"] > 3 and record["coverage"] > HIGHEST)


def audited(cell: Cell, place: int, plain: bool) -> Design:
    """Return the audits of a cell; ``place`` decides its draws."""
    records = partial(summarise, cell.truth, cell.about, cell if plain else None)
    missed = far_or_low if plain else too_low
    return Design(describe(cell.about), (place,), lambda rng: partial(audit_once, cell, rng), records, missed)


def compared(cell: Cell, other: Cell, place: int) -> Design:
    """Return the comparisons of a predictor as in ``cell`` with one as in ``other``."""
    truth, about = {name: cell.truth[name] - other.truth[name] for name in METRICS}, cell.about | {"other_gap": 0.0}
    records = partial(summarise, truth, about, None)
    return Design(describe(about), (place,), lambda rng: partial(compare_once, cell, other, rng), records)


def small_designs() -> Iterator[Design]:
    return (audited(cell, place, False) for place, cell in enumerate(small_cells()))


def pairs_of_predictors() -> Iterator[Design]:
    small = small_cells()
    found = [
        (cell, other)
        for other, cell in itertools.pairwise(small)
        if not (cell.about["gap"] == 0 or cell.about["groups"] > 6 or cell.shares.shape[-1] > 2)
    ]
    return (compared(*pair, place) for place, pair in enumerate(found, len(small)))


def plain_designs() -> Iterator[Design]:
    cells = [
        plain_cell(design, groups, rows, gap) for (design, groups), rows, gap in itertools.product(DESIGNS, SIZES, GAPS)
    ]
    first = len([*small_designs(), *pairs_of_predictors()])
    return (audited(cell, place, True) for place, cell in enumerate(cells, first))


PAIR_SIZES = {
    "8 groups of 100": (100,) * 8,
    "16 groups of 60": (60,) * 16,
    "8 unequal groups": (20, 30, 40, 60, 100, 200, 400, 800),
    "4 groups of 400": (400,) * 4,
    "2 groups of 500": (500,) * 2,
    "groups of 2,000 and 12": (2000, 12),
    "40 groups of 15": (15,) * 40,
}


def pair_designs() -> Iterator[Design]:
    """All pairs together, with one rate for all groups or one group that differs."""
    for place, (design, sizes) in enumerate(PAIR_SIZES.items()):
        for rate, gap in itertools.product((0.3, 0.02), (0.0, 0.2)):
            about = {"design": design, "groups": len(sizes), "rate": rate, "gap": gap}
            truth = np.full(len(sizes), rate)
            truth[-1] += gap
            yield Design(
                f"{design}, rate {rate:g}, gap {gap:g}", (place, round(1000 * rate), round(1000 * gap)),
                partial(_all_pairs, np.array(sizes), truth), partial(_share_held, about),
            )  # fmt: skip


def _all_pairs(rows: NDArray[np.int64], truth: FloatArray, rng: np.random.Generator) -> Callable[[int], Any]:
    first, second = pair_indices(len(rows))
    true = truth[first] - truth[second]

    def once(_: int) -> list[bool]:
        hits, held = rng.binomial(rows, truth), []
        for comparisons in (len(first), 1):
            found = differences(hits, rows, first, second, comparisons=comparisons)
            held.append(bool(((found.low <= true + 1e-12) & (found.high >= true - 1e-12)).all()))
        return held

    return once


def _share_held(about: dict[str, Any], found: list[list[bool]]) -> list[Record]:
    together, alone = np.mean(found, 0)
    return [about | {"trials": len(found), "coverage": float(together), "coverage_unadjusted": float(alone)}]


HEADLINES = {
    "14,000 rows and 5 groups of 60": ((14_000, *(60,) * 5), 0.05, 0.7, 0.02),
    "10 groups of 12 to 12,000": (tuple(np.geomspace(12, 12_000, 10).astype(int)), 0.5, 0.02, 0.02),
    "20,000 rows and 19 groups of 30": ((20_000, *(30,) * 19), 0.5, 0.02, 0.005),
    "24 groups of 15 to 15,000": (tuple(np.geomspace(15, 15_000, 24).astype(int)), 0.5, 0.05, 0.01),
    "60 groups of 20 to 20,000": (tuple(np.geomspace(20, 20_000, 60).astype(int)), 0.5, 0.005, 0.05),
}
"""Sizes of the groups, share of positives, true and false positive rate."""
SPREAD = 0.4
MOST_FALSE = 0.055


def headline_design(design: str, spread: float) -> Design:
    """How often the headline of an audit names a pair, and how often the intervals of all pairs hold together.

    The rates of groups lie up to ``spread`` times the rate off it, to both sides.
    """
    about = {"design": design, "groups": len(HEADLINES[design][0]), "spread": spread}
    seed = (11, list(HEADLINES).index(design), round(100 * spread))
    start, records = partial(_headlines, design, spread), partial(_share_named, about)
    return Design(f"{design}, spread {spread:g}", seed, start, records, missed_headline)


def _headlines(design: str, spread: float, rng: np.random.Generator) -> Callable[[int], Any]:
    sizes, positives, tpr, fpr = HEADLINES[design]
    off = 1 + spread * rng.permutation(np.linspace(-1, 1, len(sizes)))
    truth = {"true_positive_rate": tpr * off, "false_positive_rate": fpr * off}
    cell = Cell({}, binary(positives, *truth.values()), sizes)
    names = tuple(f"group {place}" for place in range(len(sizes)))

    def once(_: int) -> tuple[bool, bool]:
        rates = [one for one, _ in error_rates("group", Counts(cell.draw(rng), names, (0, 1)), 1, 10)]
        comparisons = max(1, sum(len(rate.pairs[0]) for rate in rates))
        named, held = False, True
        for rate in rates:
            of_groups = truth[rate.name][[names.index(group) for group in rate.groups]]
            first, second = rate.pairs
            true = of_groups[first] - of_groups[second]
            one = rate.apart(first, second, level=0.95, comparisons=comparisons)
            named |= bool(one.decided.any())
            held &= bool(((one.low <= true + 1e-12) & (one.high >= true - 1e-12)).all())
        return named, held

    return once


def _share_named(about: dict[str, Any], found: list[tuple[bool, bool]]) -> list[Record]:
    named, held = np.mean(found, 0)
    return [about | {"trials": len(found), "named": float(named), "coverage": float(held)}]


def missed_headline(record: Record) -> bool:
    """Whether headlines were false too often, or intervals missed."""
    return bool(record["coverage"] < LOWEST or (record["spread"] == 0 and record["named"] > MOST_FALSE))


def figure_designs() -> Iterator[Design]:
    return of_figures([*coverage_more.DESIGNS, *coverage_scores.DESIGNS, *coverage_decided.DESIGNS])


SERIES: dict[str, Callable[[], Iterator[Design]]] = {
    "cells": plain_designs,
    "small_cells": small_designs,
    "differences": pairs_of_predictors,
    "pairs": pair_designs,
    "headlines": lambda: (headline_design(design, spread) for design in HEADLINES for spread in (0.0, SPREAD)),
    "more": figure_designs,
    "missing_attributes": coverage_unknown.designs,
}
"""The designs of each key of the file."""


def run(job: tuple[str, int], trials: int, seed: int) -> tuple[str, list[Record], list[str]]:
    """Simulate the design at a place of a series; return its name, its records, and those that miss in words."""
    key, place = job
    design = next(itertools.islice(SERIES[key](), place, None))
    records = simulated(design, trials, seed)
    return f"{key}, {design.name}", records, [f"{key}, {design.name}: {one}" for one in records if design.missed(one)]


def main(
    trials: int = 1000, seed: int = 0, workers: int = 1, only: str = "", cells: str = "", record: bool = False
) -> None:
    """Simulate all designs, or those of ``only`` one series whose names hold ``cells``; the others stay in the file."""
    start = time.perf_counter()
    keys = [only] if only else list(SERIES)
    jobs = [(key, place) for key in keys for place, design in enumerate(SERIES[key]()) if cells in design.name]
    found: dict[str, list[Record]] = {key: [] for key in keys}
    missed: list[str] = []
    with ProcessPoolExecutor(workers) as pool:
        simulate = partial(run, trials=trials, seed=seed)
        for (key, _), (name, records, misses) in zip(jobs, pool.map(simulate, jobs), strict=True):
            print(name, [one["coverage"] for one in records], flush=True)
            found[key] += records
            missed += misses
    file = destination(ROOT / "results/coverage.json", record)
    if only:
        result = read_json(file) if file.exists() else {}
        now = {one["design"] for one in found[only]}
        kept = [one for one in result.get(only, []) if cells and one["design"] not in now]
        result |= {only: [*kept, *found[only]]}
    else:
        result = {
            "command": f"python benchmarks/coverage.py --trials {trials}",
            "trials": trials,
            "replicates": REPLICATES,
            "level": 0.95,
            "required": {"at_least": LOWEST, "at_most_beyond_three_standard_errors": HIGHEST},
            "missed": missed,
            "seconds": round(time.perf_counter() - start),
            **found,
        }
    write_json(file, result)
    if missed:
        sys.exit("\n".join(f"missed: {line}" for line in missed))


if __name__ == "__main__":
    typer.run(main)
