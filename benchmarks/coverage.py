"""How often do the intervals of ``levelhead.metrics`` hold the true value?

Simulates audits whose true gaps are known, writes figures and a picture (with --record results/coverage.json and
docs/images/coverage.png), and fails unless coverage is at least 94% everywhere, and in the plain
cells at most 98.5% where the true gap exceeds three standard errors (between the two groups that truly differ most).

    python benchmarks/coverage.py --workers 2    # about ten minutes on two cores
    python benchmarks/coverage.py --trials 200   # a look
    python benchmarks/coverage.py --pairs        # pairs of groups alone, a minute; the rest of the file stays
    python benchmarks/coverage.py --headlines    # headlines of tiny groups beside big ones alone, an hour on one core
    python benchmarks/coverage.py --more         # scores, paired changes, ratios, numbers alone: coverage_more.py

*Plain cells*: every group has the same number of positives and negatives in expectation, TPR 65% and FPR 20% before the
gap is added to both of them, so that demographic parity, equal opportunity and equalized odds all have the same true
gap. With eight groups there are two designs: "one" group differs from seven equal ones, or all are "spread" evenly.

*Small cells*: few rows under some rates, very unequal groups, rates at 0 and 1, a rare class, many groups; without a
gap, and with one group that differs. Tables in which a figure is undefined are counted apart.

*Without the attribute* (docs/missing-attributes.md): the methods of ``levelhead.auditing.unknown``, in worlds in which
their assumption holds, and in worlds in which it does not: there the share refused and the bias are the figures, and no
coverage is required. Elsewhere it must be 94 to 97.5% (bounds, and answers after refusals: at least 94%).
``--missing-attributes`` simulates these alone.

*Differences*: of two predictors on the same rows of small cells, whose errors have a correlation of 0.9.

*Pairs*: the differences of all pairs of groups, whose intervals are to hold together (Bonferroni).

*Headlines*: audits of big groups beside tiny ones at low rates, with both adjustments. Where all groups are alike, the
headline must name a pair in at most 5.5% of 1,000 audits; where rates are spread, all intervals must hold together.

With 1,000 trials the standard error of a coverage of 95% is 0.7 points, and many of the tests are exact: of so many
cells some would fall below 94% by chance. A cell that does is simulated four times as often, and all its trials count.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from coverage_more import simulate_more
from measure import ROOT, destinations
from numpy.typing import NDArray
from scipy import special

from levelhead.auditing.finding import _rates as error_rates
from levelhead.auditing.unknown.privacy import Response
from levelhead.metrics import Counts, estimate_all, measured
from levelhead.metrics.between import differences
from levelhead.metrics.contrasts import pair_indices
from levelhead.metrics.labelled import by_labelled_pairs, by_labelled_rows
from levelhead.metrics.paired import Paired
from levelhead.metrics.proxies import by_proxies
from levelhead.metrics.responses import by_responses
from levelhead.metrics.signed import GAPS as MISSING_GAPS
from levelhead.metrics.signed import rate_gap, rows_of
from levelhead.metrics.worst_case import by_probabilities, by_shares

FloatArray = NDArray[np.float64]

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
LOWEST, HIGHEST = 0.94, 0.985
CORRELATION = 0.9


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


def audit_once(cell: Cell, rng: np.random.Generator, replicates: int, seed: int) -> list[tuple[float, float, float]]:
    """Audit one drawn table: value and interval of each of :data:`METRICS`."""
    table = cell.draw(rng)
    counts = Counts(table, tuple(range(len(table))), tuple(range(table.shape[-1])))
    found = estimate_all(counts, replicates=replicates, seed=seed)
    return [(found[name].value, found[name].low, found[name].high) for name in METRICS]


def compare_once(
    cell: Cell, other: Cell, rng: np.random.Generator, replicates: int, seed: int
) -> list[tuple[float, float, float]]:
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
    table = Paired.build(label, group, predictions, None, 0.95, replicates, seed)
    found = [table.difference(name, "a", "b").estimate for name in METRICS]
    return [(one.value, one.low, one.high) for one in found]


def simulate(
    once: Callable[[np.random.Generator, int], list[tuple[float, float, float]]],
    truth: dict[str, float],
    about: dict[str, Any],
    trials: int,
    seed: tuple[int, int],
) -> list[dict[str, Any]]:
    """Coverage of one cell, one record a metric."""
    rng = np.random.default_rng(seed)
    found = np.array([once(rng, trial) for trial in range(trials)])
    records = summarise(found, truth, about)
    if any(record["coverage"] < LOWEST for record in records):
        more = np.array([once(rng, trial) for trial in range(trials, 4 * trials)])
        records = summarise(np.concatenate([found, more]), truth, about)
    return records


def summarise(found: FloatArray, truth: dict[str, float], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Turn values and ends (trials, metrics, 3) into a record a metric; undefined figures are counted apart."""
    records = []
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
        )
    return records


def time_audit(repeats: int = 20) -> dict[str, Any]:
    """Milliseconds for 1,000 replicates of the counts of 200,000 rows in 8 groups; the best of some repeats."""
    rng = np.random.default_rng(0)
    rows = 200_000
    label = rng.integers(0, 2, rows)
    prediction = np.where(rng.random(rows) < 0.8, label, 1 - label)
    group, many = rng.integers(0, 8, rows), rng.integers(0, 300, rows)
    counts, wide = Counts.from_rows(label, prediction, group), Counts.from_rows(label, prediction, many)

    def best(call: Callable[[], Any], repeats: int) -> float:
        times = []
        for _ in range(repeats):
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        return round(1000 * min(times), 2)

    return {
        "rows": rows,
        "groups": 8,
        "replicates": 1000,
        "counting_rows_ms": best(lambda: Counts.from_rows(label, prediction, group), repeats),
        "all_metrics_ms": best(lambda: estimate_all(counts), repeats),
        "all_metrics_of_300_groups_ms": best(lambda: estimate_all(wide), 3),
    }


def failures(records: list[dict[str, Any]]) -> list[str]:
    """Say which records miss the requirement."""
    lines = []
    for record in records:
        far = record.get("standard_errors", 0) > 3
        if record["coverage"] < LOWEST or (far and record["coverage"] > HIGHEST):
            lines.append(f"{describe(record)}, {record['metric']}: {100 * record['coverage']:.1f}%")
    return lines


def describe(record: dict[str, Any]) -> str:
    """Name a cell in words."""
    gap = f"gap {record['gap']:g}" + (f" less {record['other_gap']:g}" if "other_gap" in record else "")
    if record["design"] in ("one", "spread"):
        return f"{record['groups']} groups ({record['design']}), {record['rows']:,} rows, {gap}"
    return f"{record['design']}, {gap}"


STYLES = {
    "accuracy": ("x", "none", "0.4"),
    "worst_group_accuracy": ("+", "none", "0.4"),
    "demographic_parity": ("o", "black", "black"),
    "equal_opportunity": ("s", "white", "black"),
    "equalized_odds": ("^", "0.6", "black"),
    "equalized_odds_worst": ("v", "white", "black"),
}


def plot(panel: Any, records: list[dict[str, Any]], place: Callable[[dict[str, Any]], float], across: bool) -> None:
    """Draw coverages beside each other, told apart by markers and not by colour; ``across``: places go down."""
    for offset, (name, (marker, face, edge)) in enumerate(STYLES.items()):
        own = [record for record in records if record["metric"] == name]
        places = [place(record) + 0.11 * (offset - 2.5) for record in own]
        coverages = [100 * record["coverage"] for record in own]
        panel.plot(
            *((coverages, places) if across else (places, coverages)),
            linestyle="none",
            marker=marker,
            markersize=5,
            markerfacecolor=face,
            markeredgecolor=edge,
            label=name.replace("_", " "),
        )


def draw(plain: list[dict[str, Any]], small: list[dict[str, Any]], path: Path) -> None:
    """Draw one panel a plain design and size, and one of all small cells."""
    figure = plt.figure(figsize=(10, 12), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    axes = upper.subplots(2, 3, sharex=True, sharey=True)
    for (row, rows), (column, (design, groups)) in itertools.product(enumerate(SIZES), enumerate(DESIGNS)):
        panel = axes[row, column]
        panel.axhspan(100 * LOWEST, 100 * HIGHEST, color="0.92")
        panel.axhline(95, color="black", linewidth=0.8, linestyle="--")
        cells = [r for r in plain if (r["design"], r["groups"], r["rows"]) == (design, groups, rows)]
        plot(panel, cells, lambda record: GAPS.index(record["gap"]), False)
        title = "2 groups" if groups == 2 else f"8 groups, {'one differs' if design == 'one' else 'evenly spread'}"
        panel.set_title(f"{title}, {rows:,} rows", fontsize=10)
        panel.set_xticks(range(len(GAPS)), [f"{100 * gap:g}" for gap in GAPS])
        panel.set_ylim(92, 100.4)
    axes[1, 1].set_xlabel("true gap (points)")
    upper.supylabel("audits whose 95% interval holds the truth (%)", fontsize=10)
    names = list(dict.fromkeys(describe(record) for record in small))
    panel = lower.subplots()
    panel.axvspan(100 * LOWEST, 100.4, color="0.92")
    panel.axvline(95, color="black", linewidth=0.8, linestyle="--")
    plot(panel, small, lambda record: names.index(describe(record)), True)
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.set_ylim(len(names) - 0.4, -0.6)
    panel.set_xlim(92, 100.4)
    panel.set_xlabel("small cells: intervals that hold the truth (%)")
    handles, labels = panel.get_legend_handles_labels()
    lower.legend(handles, labels, fontsize=8, loc="outside lower center", ncols=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


class Missing(NamedTuple):
    """A world in which groups are not recorded: ``once`` gives by gap (value, low, high), NaN where refused."""

    method: str
    design: str
    holds: bool  # whether the method's assumption does
    truth: dict[str, tuple[float, float]]  # both ends of what an interval must hold
    once: Callable[[np.random.Generator], dict[str, tuple[float, float, float]]]


def population(share: float, positive: tuple[float, float], selected: tuple[tuple[float, float], ...]) -> FloatArray:
    """P(group 2, label 2, prediction 2) from P(group 1), P(label 1 | group), P(prediction 1 | group, label)."""
    label = np.stack([1 - np.array(positive), np.array(positive)], -1)
    hit = np.array(selected)
    return np.array([1 - share, share])[:, None, None] * label[..., None] * np.stack([1 - hit, hit], -1)


UNEQUAL = ((0.2, 0.7), (0.35, 0.9))
EQUAL = ((0.3, 0.7), (0.3, 0.7))


def gaps_of(joint: FloatArray) -> dict[str, tuple[float, float]]:
    """The true gaps of (group, label, prediction), each as both ends."""
    return {gap: (rate_gap(rows_of(joint, gap)),) * 2 for gap in MISSING_GAPS}


def labelled_world(
    design: str, n: int, share: float, proxy: tuple[float, float], selected: Any = UNEQUAL, shift: float = 0.0,
    positive: tuple[float, float] = (0.3, 0.5), weighted: bool = False,
) -> Missing:  # fmt: skip
    """Labelled rows among 5,000 others, with a binary proxy of this TPR and FPR, which may depend on the prediction."""
    joint = population(share, positive, selected)
    says = np.clip(np.array([proxy[1], proxy[0]])[:, None] + shift * np.array([0.0, 1.0])[None], 0, 1)  # (group, yhat)
    full = joint[..., None] * np.stack([1 - says, says], -1)[:, None]  # (group, label, prediction, h)
    power = np.arange(2)[:, None] ** np.arange(3)  # (h, j)

    def once(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
        if weighted:  # rows with label 1 are three times as likely to be labelled
            rows = rng.multinomial(n + 5000, full.ravel()).reshape(full.shape)
            chance = np.array([1.0, 3.0]) * n / (n + 5000) / float(joint.sum((0, 2)) @ [1, 3])
            known = rng.binomial(rows, chance[None, :, None, None])
            weight = (1 / chance)[:, None] ** np.arange(3)  # (label, i)
            own = np.einsum("gyhk,yi,kj->gyhij", known.astype(float), weight, power)
            rest = np.einsum("yhk,kj->yhj", (rows - known).sum(0).astype(float), power)
        else:
            known, rows = (rng.multinomial(size, full.ravel()).reshape(full.shape) for size in (n, 5000))
            own = np.repeat(np.einsum("gyhk,kj->gyhj", known.astype(float), power)[:, :, :, None], 3, 3)
            rest = np.einsum("yhk,kj->yhj", rows.sum(0).astype(float), power)
        found = by_labelled_rows(own, rest, weighted=weighted)
        return {gap: (one.estimate.value, one.estimate.low, one.estimate.high) for gap, one in found.items()}

    return Missing("labelled subset", design, True, gaps_of(joint), once)


def cross_fitted_world(design: str, n: int) -> Missing:
    """A proxy of six categories, fitted on the labelled rows themselves."""
    joint = population(0.4, (0.3, 0.5), UNEQUAL)
    says = np.array([[0.3, 0.25, 0.2, 0.15, 0.07, 0.03], [0.03, 0.07, 0.1, 0.2, 0.3, 0.3]])
    full = joint[:, None] * says[:, :, None, None]  # (group, cell, label, prediction)

    def once(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
        folds = rng.multinomial([n // 5] * 5, full.ravel()).reshape(5, *full.shape).astype(float)
        rows = rng.multinomial(5000, full.ravel()).reshape(full.shape).sum(0).astype(float)
        found = by_labelled_pairs(np.repeat(folds[..., None], 3, -1), rows)
        pairs = {gap: by_pair[1, 0].estimate for gap, by_pair in found.items()}
        return {gap: (one.value, one.low, one.high) for gap, one in pairs.items()}

    return Missing("labelled subset", design, True, gaps_of(joint), once)


def three_groups_world(design: str, n: int) -> Missing:
    """Three groups against each other, with a proxy of six categories: the third minus the first, at 95%."""
    label = np.array([0.3, 0.4, 0.5])
    hit = np.array([[0.2, 0.7], [0.3, 0.8], [0.35, 0.9]])
    share = np.array([0.4, 0.35, 0.25])[:, None, None]
    joint = share * np.stack([1 - label, label], -1)[..., None] * np.stack([1 - hit, hit], -1)
    says = np.array(
        [[0.5, 0.25, 0.1, 0.08, 0.05, 0.02], [0.1, 0.1, 0.5, 0.2, 0.05, 0.05], [0.02, 0.03, 0.05, 0.2, 0.3, 0.4]]
    )
    full = joint[:, None] * says[:, :, None, None]  # (group, cell, label, prediction)

    def once(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
        folds = rng.multinomial([n // 5] * 5, full.ravel()).reshape(5, *full.shape).astype(float)
        rows = rng.multinomial(5000, full.ravel()).reshape(full.shape).sum(0).astype(float)
        # Three pairs share the error probability: 15% for all leave 5% for each.
        found = by_labelled_pairs(np.repeat(folds[..., None], 3, -1), rows, level=0.85)
        pairs = {gap: by_pair[2, 0].estimate for gap, by_pair in found.items()}
        return {gap: (one.value, one.low, one.high) for gap, one in pairs.items()}

    return Missing("labelled subset", design, True, gaps_of(joint[[0, 2]]), once)


PROXIES = np.array([[0.2, 0.7], [0.25, 0.9], [0.35, 0.6]])  # P(says 1 | group), a proxy a line


def proxy_world(
    design: str, n: int, *, says: Any = PROXIES, mode: str = "auto", selected: Any = UNEQUAL,
    positive: tuple[float, float] = (0.3, 0.5), shift: float = 0.0, shared: float = 0.0,
) -> Missing:  # fmt: skip
    """Three proxies; ``shift``: they say 1 more often where the prediction is 1; ``shared``: errors of two
    correlate."""
    joint = population(0.4, positive, selected)
    chance = np.clip(
        np.array(says)[:, :, None] + shift * np.array([0.0, 1.0])[None, None], 0, 1
    )  # (proxy, group, yhat)
    one, two, three = (np.stack([1 - own, own], -1) for own in chance)
    pair = one[..., :, None] * two[..., None, :]
    spread = shared * np.sqrt(one.prod(-1) * two.prod(-1))[..., None, None]
    pair = pair + spread * np.array([[1.0, -1.0], [-1.0, 1.0]])
    full = np.einsum("gyh,ghij,ghk->ijkyh", joint, pair, three)

    def once(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
        counts = rng.multinomial(n, full.ravel()).reshape(full.shape)
        found = by_proxies(counts, mode=mode, replicates=500, seed=int(rng.integers(1 << 30)))
        figures = {gap: by_pair[1, 0] for gap, by_pair in found.gaps.items()}
        return {gap: (figure.value, figure.low, figure.high) for gap, figure in figures.items()}

    return Missing("three proxies", design, not (shift and mode == "global") and not shared, gaps_of(joint), once)


def response_world(design: str, n: int, share: float, flip: float, selected: Any) -> Missing:
    """Randomised answers of two groups."""
    joint = population(share, (0.4, 0.4), selected)
    matrix = Response(flip=flip).matrix(2)
    seen = np.einsum("ij,iyh->jyh", matrix, joint)

    def once(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
        found = by_responses(rng.multinomial(n, seen.ravel()).reshape(seen.shape), matrix)
        figures = {gap: by_pair[1, 0].estimate for gap, by_pair in found.items()}
        return {gap: (figure.value, figure.low, figure.high) for gap, figure in figures.items()}

    return Missing("randomised responses", design, True, gaps_of(joint), once)


def bounds_world(design: str, n: int, weight: Any, rate: Any, share: Any, *, drawn: bool = False) -> Missing:
    """Shares by stratum; what must be held are both bounds of the population. ``drawn``: so are the strata's sizes."""
    w, r, p = (np.array(one, float) for one in (weight, rate, share))
    # In each stratum a fifth of those selected, and two fifths of the others, have label 0.
    cells = np.stack([np.stack([0.4 * (1 - r), 0.2 * r], -1), np.stack([0.6 * (1 - r), 0.8 * r], -1)], 1)
    shares = np.stack([1 - p, p], -1)
    bounds = by_shares(1e12 * w[:, None, None] * cells, shares)
    truth = {gap: (one[1, 0].low, one[1, 0].high) for gap, one in bounds.items()}

    def once(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
        sizes = rng.multinomial(n, w) if drawn else np.round(n * w).astype(int)
        counts = np.stack([rng.multinomial(k, q.ravel()).reshape(2, 2) for k, q in zip(sizes, cells, strict=True)])
        found = {gap: by_pair[1, 0] for gap, by_pair in by_shares(counts, shares).items()}
        return {gap: ((one.low + one.high) / 2, one.reach_low, one.reach_high) for gap, one in found.items()}

    return Missing("bounds", design, True, truth, once)


def probabilities_world(design: str, n: int) -> Missing:
    """Three groups by their probabilities, of which there are 60 kinds: the weighted third minus first, at 95%."""
    kinds = np.random.default_rng(0).dirichlet((2.0, 0.7, 0.4), 60)
    label, hit = 0.2 + 0.4 * kinds[:, 0], np.stack([0.1 + 0.3 * kinds[:, 1], 0.5 + 0.4 * kinds[:, 0]], -1)
    cells = np.stack([1 - label, label], -1)[..., None] * np.stack([1 - hit, hit], -1)  # (kind, label, prediction)
    vectors = np.concatenate([np.ones((60, 1)), kinds], 1)
    outer = (vectors[:, :, None] * vectors[:, None, :])[:, None, None]
    joint = np.einsum("kg,kyh->gyh", kinds, cells) / 60

    def once(rng: np.random.Generator) -> dict[str, tuple[float, float, float]]:
        counts = rng.multinomial(n, cells.ravel() / 60).reshape(cells.shape)
        # Three pairs share the error probability: 15% for all leave 5% for each.
        _, weighted = by_probabilities(counts[..., None, None] * outer, level=0.85)
        figures = {gap: by_pair[2, 0] for gap, by_pair in weighted.items()}
        return {gap: (one.value, one.low, one.high) for gap, one in figures.items()}

    return Missing("weighted by probabilities", design, True, gaps_of(joint[[0, 2]]), once)


def missing_cells() -> list[Missing]:
    """Return the worlds in which groups are not recorded."""
    weak, middling = [[0.425, 0.575]] * 3, [[0.35, 0.65]] * 3
    strong = [[0.125, 0.875], [0.125, 0.875], [0.2, 0.75]]
    none = {"selected": EQUAL, "positive": (0.4, 0.4)}
    strata = ((0.5, 0.3, 0.2), (0.2, 0.5, 0.8))
    many = np.linspace(0.05, 0.95, 100)
    hundred = np.full(100, 0.01)
    four, decided = (0.25,) * 4, ((0.98, 0.02, 0.98, 0.02), (0.97, 0.97, 0.03, 0.03))
    return [
        labelled_world("200 labelled, 30% in the group, proxy 90/10", 200, 0.3, (0.9, 0.1)),
        labelled_world("200 labelled, proxy 98/2", 200, 0.3, (0.98, 0.02)),
        labelled_world("200 labelled, proxy 70/30, no gap", 200, 0.3, (0.7, 0.3), EQUAL, positive=(0.4, 0.4)),
        labelled_world("400 labelled, 10% in the group", 400, 0.1, (0.9, 0.1)),
        labelled_world("100 labelled", 100, 0.4, (0.9, 0.1)),
        labelled_world("200 labelled, proxy errs with the prediction", 200, 0.3, (0.7, 0.2), shift=0.2),
        labelled_world("400 labelled, three times as often with label 1", 400, 0.4, (0.9, 0.1), weighted=True),
        cross_fitted_world("400 labelled, proxy cross-fitted on them", 400),
        proxy_world("global, 2,000 rows", 2_000, says=strong, mode="global"),
        proxy_world("global, 10,000 rows", 10_000, mode="global"),
        proxy_world("global, 50,000 rows", 50_000, mode="global"),
        proxy_world("global, 10,000 rows, no gap", 10_000, mode="global", **none),
        proxy_world("local, 50,000 rows", 50_000, mode="local"),
        proxy_world("chosen by the test, 10,000 rows", 10_000),
        proxy_world("local, 2,000 rows: must refuse", 2_000, mode="local"),
        proxy_world("proxies that tell little, 1,000 rows", 1_000, says=middling),
        proxy_world("proxies that tell almost nothing, 5,000 rows", 5_000, says=weak),
        proxy_world("errors go with the prediction, global forced", 10_000, mode="global", shift=0.1),
        proxy_world("errors go with the prediction, chosen by the test", 50_000, shift=0.1),
        proxy_world("shared errors, correlation 0.1", 10_000, shared=0.1),
        proxy_world("shared errors, correlation 0.3", 10_000, shared=0.3),
        response_world("30% in the group, flip 0.2, 1,000 rows", 1_000, 0.3, 0.2, UNEQUAL),
        response_world("30% in the group, flip 0.4, 5,000 rows", 5_000, 0.3, 0.4, UNEQUAL),
        response_world("10% in the group, flip 0.2, 2,000 rows, no gap", 2_000, 0.1, 0.2, EQUAL),
        response_world("halves, flip 0.3, 500 rows", 500, 0.5, 0.3, UNEQUAL),
        response_world("10% in the group, flip 0.25, 1,000 rows", 1_000, 0.1, 0.25, UNEQUAL),
        bounds_world("three strata at their kinks, 500 rows", 500, *strata, strata[1]),
        bounds_world("three strata at their kinks, 5,000 rows", 5_000, *strata, strata[1]),
        bounds_world("three strata off their kinks, 5,000 rows", 5_000, *strata, (0.1, 0.4, 0.9)),
        bounds_world("one stratum at its kink, 1,000 rows", 1_000, (1.0,), (0.3,), (0.3,)),
        bounds_world("one stratum off its kink, 1,000 rows", 1_000, (1.0,), (0.3,), (0.2,)),
        # The place of a world decides its draws: new ones come last.
        three_groups_world("600 labelled of three groups, proxy cross-fitted on them", 600),
        proxy_world("global, 700 rows, 10 to 15% positive", 700, says=strong, mode="global", positive=(0.1, 0.15)),
        proxy_world("global, 3,000 rows, 5 to 8% positive", 3_000, says=strong, mode="global", positive=(0.05, 0.08)),
        bounds_world("100 strata at their kinks, 5,000 rows", 5_000, hundred, many, many),
        bounds_world("100 strata off their kinks, 16,000 rows", 16_000, hundred, 0.2 + 0.3 * many, many),
        probabilities_world("three groups, 60 kinds of probabilities, 1,000 rows", 1_000),
        probabilities_world("three groups, 60 kinds of probabilities, 10,000 rows", 10_000),
        bounds_world("four strata of random sizes decide, 1,000 rows", 1_000, four, *decided, drawn=True),
        bounds_world("four strata of random sizes decide, 10,000 rows", 10_000, four, *decided, drawn=True),
        bounds_world("three strata of random sizes at their kinks, 5,000 rows", 5_000, *strata, strata[1], drawn=True),
    ]


def run_missing(place: int, trials: int, seed: int) -> list[dict[str, Any]]:
    """Simulate one world without recorded groups, one record a gap."""
    cell, rng = missing_cells()[place], np.random.default_rng([seed, 9, place])

    def draw(times: int) -> FloatArray:
        found = (cell.once(rng) for _ in range(times))
        return np.array([[one[gap] for gap in MISSING_GAPS] for one in found])

    found = draw(trials)
    records = missing_records(cell, found)
    if any(missed_missing(record) for record in records):
        records = missing_records(cell, np.concatenate([found, draw(3 * trials)]))
    return records


def missing_records(cell: Missing, found: FloatArray) -> list[dict[str, Any]]:
    """Turn values and ends (trials, gaps, 3) into a record a gap."""
    records = []
    for position, gap in enumerate(MISSING_GAPS):
        answered = ~np.isnan(found[:, position, 0])
        value, low, high = found[answered, position].T
        least, most = cell.truth[gap]
        held = (low <= least + 1e-12) & (high >= most - 1e-12)
        some = bool(answered.any())
        records.append(
            {
                "method": cell.method,
                "design": cell.design,
                "assumption_holds": cell.holds,
                "gap": gap,
                "true_value": least if least == most else [least, most],
                "trials": len(found),
                "refused": float(1 - answered.mean()),
                "coverage": float(held.mean()) if some else None,
                "bias": float(value.mean() - least) if some and least == most else None,
                "mean_width": float((high - low).mean()) if some else None,
            }
        )
    return records


def missed_missing(record: dict[str, Any]) -> bool:
    """Whether a record misses the requirement: few answers after refusals decide nothing."""
    if not record["assumption_holds"] or record["coverage"] is None or record["refused"] > 0.5:
        return False
    wide = record["method"] == "bounds" or record["refused"] > 0.01
    return bool(record["coverage"] < LOWEST or (not wide and record["coverage"] > 0.975))


def simulate_missing(trials: int, seed: int, workers: int, cells: str) -> list[dict[str, Any]]:
    """Simulate the worlds without recorded groups whose names hold ``cells``, and print them."""
    records = []
    places = [place for place, one in enumerate(missing_cells()) if cells in one.design]
    with ProcessPoolExecutor(workers) as pool:
        for own in pool.map(partial(run_missing, trials=trials, seed=seed), places):
            records += own
            said = "  ".join("   -" if one["coverage"] is None else f"{100 * one['coverage']:5.1f}" for one in own)
            about = f"{own[0]['method']}: {own[0]['design']}"
            refused = "/".join(f"{100 * one['refused']:.0f}" for one in own)
            bias = "/".join("-" if one["bias"] is None else f"{100 * one['bias']:+.1f}" for one in own)
            print(f"{about:76} {said}   refused {refused}%, bias {bias}", flush=True)
    return records


PAIR_SIZES = {
    "8 groups of 100": (100,) * 8,
    "16 groups of 60": (60,) * 16,
    "8 unequal groups": (20, 30, 40, 60, 100, 200, 400, 800),
    "4 groups of 400": (400,) * 4,
    "2 groups of 500": (500,) * 2,
    "groups of 2,000 and 12": (2000, 12),
    "40 groups of 15": (15,) * 40,
}


def simulate_pairs(trials: int, seed: int) -> list[dict[str, Any]]:
    """How often the intervals of all pairs hold together, with one rate for all groups or one group that differs."""
    records = []
    for place, (design, sizes) in enumerate(PAIR_SIZES.items()):
        rows, (first, second) = np.array(sizes), pair_indices(len(sizes))
        for rate, gap in itertools.product((0.3, 0.02), (0.0, 0.2)):
            truth = np.full(len(sizes), rate)
            truth[-1] += gap
            rng = np.random.default_rng((seed, place, round(1000 * rate), round(1000 * gap)))
            held, alone = [], []
            for _ in range(trials):
                hits = rng.binomial(rows, truth)
                for comparisons, kept in ((len(first), held), (1, alone)):
                    found = differences(hits, rows, first, second, comparisons=comparisons)
                    true = truth[first] - truth[second]
                    kept.append(bool(((found.low <= true + 1e-12) & (found.high >= true - 1e-12)).all()))
            records.append(
                {
                    "design": design, "groups": len(sizes), "rate": rate, "gap": gap, "trials": trials,
                    "coverage": float(np.mean(held)), "coverage_unadjusted": float(np.mean(alone)),
                }
            )  # fmt: skip
            shown = f"{100 * records[-1]['coverage']:.1f}, unadjusted {100 * records[-1]['coverage_unadjusted']:.1f}"
            print(f"{design}, rate {rate:g}, gap {gap:g}: {shown}", flush=True)
    return records


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


def run_headlines(design: str, spread: float, trials: int, seed: int) -> dict[str, Any]:
    """How often the headline of an audit names a pair, and how often the intervals of all pairs hold together.

    The rates of groups lie up to ``spread`` times the rate off it, to both sides.
    """
    sizes, positives, tpr, fpr = HEADLINES[design]
    rng = np.random.default_rng((seed, 11, list(HEADLINES).index(design), round(100 * spread)))
    off = 1 + spread * rng.permutation(np.linspace(-1, 1, len(sizes)))
    truth = {"true_positive_rate": tpr * off, "false_positive_rate": fpr * off}
    cell = Cell({}, binary(positives, *truth.values()), sizes)
    names = tuple(f"group {place}" for place in range(len(sizes)))
    found = []
    for _ in range(trials):
        rates = error_rates("group", Counts(cell.draw(rng), names, (0, 1)), 1, 10, None, None)
        comparisons = max(1, sum(len(rate.first) for rate in rates))
        named, held = False, True
        for rate in rates:
            of_groups = truth[rate.rate][[names.index(group) for group in rate.groups]]
            true = of_groups[rate.first] - of_groups[rate.second]
            one = differences(rate.hits, rate.rows, rate.first, rate.second, comparisons=comparisons)
            named |= bool(((one.low > 0) | (one.high < 0)).any())
            held &= bool(((one.low <= true + 1e-12) & (one.high >= true - 1e-12)).all())
        found.append((named, held))
    return {
        "design": design, "groups": len(sizes), "spread": spread, "trials": trials,
        "named": float(np.mean([named for named, _ in found])),
        "coverage": float(np.mean([held for _, held in found])),
    }  # fmt: skip


def simulate_headlines(trials: int, seed: int, workers: int, wanted: str = "") -> list[dict[str, Any]]:
    """Simulate the headlines of the designs whose names hold ``wanted``, alike and spread, and print them."""
    cells = [(design, spread) for design in HEADLINES if wanted in design for spread in (0.0, SPREAD)]
    records = []
    with ProcessPoolExecutor(workers) as pool:
        for one in pool.map(partial(run_headlines, trials=trials, seed=seed), *zip(*cells, strict=True)):
            records.append(one)
            print(
                f"{one['design']}, spread {one['spread']:g}: a pair named in {100 * one['named']:.1f}%, all held in "
                f"{100 * one['coverage']:.1f}%",
                flush=True,
            )
    return records


def missed_headline(record: dict[str, Any]) -> bool:
    """Whether headlines were false too often, or intervals missed."""
    return bool(record["coverage"] < LOWEST or (record["spread"] == 0 and record["named"] > MOST_FALSE))


class Job(NamedTuple):
    """One cell: an audit, or the difference of two predictors where there is ``other``; ``seed`` of its own stream."""

    cell: Cell
    other: Cell | None
    seed: tuple[int, int]


def run(job: Job, trials: int, replicates: int) -> list[dict[str, Any]]:
    """Simulate one cell, one record a metric."""
    cell, other = job.cell, job.other
    if other is None:

        def audited(rng: np.random.Generator, trial: int) -> list[tuple[float, float, float]]:
            return audit_once(cell, rng, replicates, trial)

        return simulate(audited, cell.truth, cell.about, trials, job.seed)

    def compared(rng: np.random.Generator, trial: int) -> list[tuple[float, float, float]]:
        return compare_once(cell, other, rng, replicates, trial)

    truth = {name: cell.truth[name] - other.truth[name] for name in METRICS}
    return simulate(compared, truth, cell.about | {"other_gap": 0.0}, trials, job.seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000, help="simulated audits in each cell (default 1000)")
    parser.add_argument("--replicates", type=int, default=500, help="bootstrap replicates (default 500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes; the result does not depend on them")
    destinations(parser, json=ROOT / "results/coverage.json", figure=ROOT / "docs/images/coverage.png")
    parser.add_argument("--pairs", action="store_true", help="simulate pairs of groups alone")
    parser.add_argument("--headlines", action="store_true", help="simulate headlines alone")
    parser.add_argument("--more", action="store_true", help="simulate scores, changes, ratios and numbers alone")
    parser.add_argument("--cells", default="", help="with one of these: only cells whose names hold this")
    parser.add_argument("--missing-attributes", action="store_true", help="simulate audits without the attribute alone")
    options = parser.parse_args()

    start = time.perf_counter()
    by_pairs, without, by_more, headlines = [], [], [], []
    alone = options.pairs or options.headlines or options.more or options.missing_attributes
    if options.pairs or not alone:
        by_pairs = simulate_pairs(options.trials, options.seed)
    if options.headlines or not alone:
        headlines = simulate_headlines(options.trials, options.seed, options.workers, options.cells)
    if options.more or not alone:
        by_more = simulate_more(options.trials, options.seed, options.cells)
    if options.missing_attributes or not alone:
        without = simulate_missing(options.trials, options.seed, options.workers, options.cells)
    missed_others = [
        f"pairs of {one['design']}, rate {one['rate']:g}, gap {one['gap']:g}: {100 * one['coverage']:.1f}%"
        for one in by_pairs
        if one["coverage"] < LOWEST
    ]
    missed_others += [
        f"headlines of {one['design']}, spread {one['spread']:g}: {100 * one['named']:.1f}% named, "
        f"{100 * one['coverage']:.1f}% held"
        for one in headlines
        if missed_headline(one)
    ]
    missed_others += [
        f"{one['figure']}, {one['design']}: {100 * one['coverage']:.1f}%"
        for one in by_more
        if one["coverage"] < LOWEST and not one["figure"].endswith("*")
    ]
    missed_others += [
        f"{one['method']}, {one['design']}, {one['gap']}: {100 * one['coverage']:.1f}%"
        for one in without
        if missed_missing(one)
    ]
    if alone:
        known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
        known |= {"pairs": by_pairs} if options.pairs else {}
        for key, asked, records in (
            ("more", options.more, by_more),
            ("headlines", options.headlines, headlines),
            ("missing_attributes", options.missing_attributes, without),
        ):
            simulated_now = {one["design"] for one in records}
            kept = [one for one in known.get(key, []) if options.cells and one["design"] not in simulated_now]
            known |= {key: [*kept, *records]} if asked else {}
        options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(*(f"missed: {line}" for line in missed_others), sep="\n")
        return 1 if missed_others else 0
    small = small_cells()
    pairs = [
        (cell, other)
        for other, cell in itertools.pairwise(small)
        if not (cell.about["gap"] == 0 or cell.about["groups"] > 6 or cell.shares.shape[-1] > 2)
    ]
    plain = [
        (plain_cell(design, groups, rows, gap), gap)
        for (design, groups), rows, gap in itertools.product(DESIGNS, SIZES, GAPS)
    ]
    cells: list[tuple[Cell, Cell | None]] = [
        *((cell, None) for cell in small),
        *pairs,
        *((cell, None) for cell, _ in plain),
    ]
    jobs = [Job(*pair, (options.seed, place)) for place, pair in enumerate(cells)]
    print(f"{'':72}" + "".join(f"{name:>21}" for name in METRICS))
    found = []
    with ProcessPoolExecutor(options.workers) as pool:
        simulated = partial(run, trials=options.trials, replicates=options.replicates)
        for records in pool.map(simulated, jobs):
            coverages = "".join(f"{100 * record['coverage']:>21.1f}" for record in records)
            print(f"{describe(records[0]):72}{coverages}", flush=True)
            found.append(records)
    by_kind = [
        list(itertools.chain.from_iterable(found[begin:end]))
        for begin, end in itertools.pairwise([0, len(small), len(small) + len(pairs), len(jobs)])
    ]
    for (cell, gap), records in zip(plain, found[len(small) + len(pairs) :], strict=True):
        for record in records:
            record["standard_errors"] = gap / standard_error(cell, record["metric"])
    missed = failures(list(itertools.chain.from_iterable(by_kind))) + missed_others
    result = {
        "command": f"python benchmarks/coverage.py --trials {options.trials} --replicates {options.replicates}",
        "trials": options.trials,
        "replicates": options.replicates,
        "level": 0.95,
        "required": {"at_least": LOWEST, "at_most_beyond_three_standard_errors": HIGHEST},
        "missed": missed,
        "seconds": round(time.perf_counter() - start),
        "time": time_audit(),
        "cells": by_kind[2],
        "small_cells": by_kind[0],
        "differences": by_kind[1],
        "pairs": by_pairs,
        "headlines": headlines,
        "more": by_more,
        "missing_attributes": without,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(by_kind[2], [*by_kind[0], *by_kind[1]], options.figure)
    print(f"time: {result['time']}")
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
