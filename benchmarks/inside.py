"""The chain from attention to the gap for several methods, and how often the nulls and intervals of ``inspect`` hold.

    python benchmarks/inside.py chain results/inside_portraits.json "ERM=runs/erm-0,runs/erm-1" "DAM=runs/dam-0"
    python benchmarks/inside.py table results/inside_hatexplain.json    # one column a method; part of the docs
    python benchmarks/inside.py hold results/inside_hold.json --trials 600    # about two minutes on one core

``chain`` pools the runs of each name. ``hold`` draws rows whose group is or is not in the vectors: of trials without a
group, 3 to 7% must have a p-value of at most 0.05; intervals of areas must hold the fitted probes' true area in 93 to
97%.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy import stats

from levelhead.inspecting import probes
from levelhead.inspecting.inspect import inspect_runs
from levelhead.inspecting.inspection import Inspection
from levelhead.inspecting.maps import between_groups, gap_of_means, iou_with_masks, total_variation
from levelhead.report.text import estimate_from_dict, interval, percent
from levelhead.storage import read_json, write_json

app = typer.Typer(help=__doc__)

AREAS = {
    "scores": "attention logits",
    "query": "queries",
    "key": "keys",
    "selected": "selected values",
    "other": "other values",
    "output": "output of the layer",
    "logits": "logits",
}
REMOVED = ("query", "selected", "other", "output")


@app.command()
def chain(
    out: Path, named: list[str], data_root: Path | None = None, permutations: int = 200, max_rows: int = 10**6
) -> None:
    """Inspect the runs of each name, at most ``max_rows`` rows of a run, and write all figures."""
    found: Inspection | None = None
    for one in named:
        name, _, folders = one.partition("=")
        runs = [Path(folder) for folder in folders.split(",")]
        inspected = inspect_runs(runs, data_root=data_root, permutations=permutations, max_rows=max_rows)
        ((_, inside),) = inspected.models.items()
        first = found or replace(inspected, models={}, runs={}, warnings=())
        found = replace(first, models=first.models | {name: inside}, runs=first.runs | {name: len(runs)})
        write_json(out, found.to_dict())
        print(name, inside.gap, flush=True)


def table(file: Path, methods: list[str]) -> list[str]:
    """Return the chain as Markdown, one column a method (all of the file if none is named)."""
    models: dict[str, Any] = read_json(file)["models"]
    names = methods or list(models)
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]

    def row(title: str, figures: list[dict[str, Any] | None], signed: bool = False) -> None:
        lines.append(f"| {title} | " + " | ".join(_cell(figure, signed) for figure in figures) + " |")

    row("gap in equalized odds, points", [models[name]["gap"] for name in names])
    row("accuracy, %", [models[name]["accuracy"] for name in names])
    row("attention: total variation, %", [models[name]["attention"]["variation"]["figure"] for name in names])
    places = [models[name]["places"] for name in names]
    for place, title in AREAS.items():
        if any(place in one for one in places):
            row(f"{title}: AUC, %", [one[place]["linear_given"]["area"] if place in one else None for one in places])
    for place in REMOVED:
        row(
            f"gap without the group in the {AREAS[place]}: change",
            [one[place]["gap_change"] for one in places],
            signed=True,
        )
    return lines


@app.command("table")
def show(file: Path, methods: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Print the chain as Markdown."""
    print("\n".join(table(file, methods or [])))


def _cell(record: dict[str, Any] | None, signed: bool) -> str:
    if record is None or record["value"] is None:
        return "–"
    figure = estimate_from_dict(record)
    return f"{percent(figure, signed=signed)} {interval(100 * figure.low, 100 * figure.high)}".strip()


@app.command()
def hold(out: Path, trials: int = 600) -> None:
    """Simulate nulls and intervals, and write the shares."""
    rng, cells = np.random.default_rng(0), {}
    for hidden in (False, True):
        for given in (False, True):
            p, rows = [], 120
            for seed in range(trials):
                label = rng.integers(0, 2, rows)
                member = rng.random(rows) < 0.5 + 0.3 * given * (2 * label - 1)
                vectors = rng.normal(size=(rows, 8)) + 2 * label[:, None] * np.eye(8)[0]
                known = label if given else None
                p.append(probes.Probe(vectors, member, deals=39, seed=seed).read(known, [hidden])[0].p)
            kind = f"{'hidden' if hidden else 'linear'} probe{', given the label' if given else ''}"
            cells[f"null of the {kind}, {rows} rows"] = float(np.mean(np.array(p) <= 0.05))
    looked, varied, means = [], [], []
    for seed in range(trials):
        masks = (rng.random((60, 16)) < 0.3) * 1.0
        looked.append(iou_with_masks(rng.exponential(size=(60, 16)), masks, deals=39, seed=seed).p)
        label = rng.integers(0, 2, 100)
        member = rng.random(100) < 0.2 + 0.6 * label
        attention = 0.9 * rng.dirichlet(np.ones(8), 100) + 0.1 * np.eye(8)[label]
        varied.append(between_groups(attention, member, label, total_variation, deals=39, seed=seed).p)
        gap = gap_of_means(rng.normal(0.1 * member, 1 + member), member, label, bound=9)
        means.append(gap.low <= 0.1 <= gap.high)
    cells["null of Attention-IoU"] = float(np.mean(np.array(looked) <= 0.05))
    cells["null of total variation, given the label"] = float(np.mean(np.array(varied) <= 0.05))
    cells["coverage of gaps of means in equal cells"] = float(np.mean(means))
    for rows, gap in ((100, 0.0), (300, 0.0), (100, 1.0), (300, 1.0), (300, 2.5)):
        held = 0
        for seed in range(trials):
            member = rng.random(rows) < 0.4
            vectors = rng.normal(size=(rows, 6)) + gap * member[:, None] * np.eye(6)[0]
            area = probes.Probe(vectors, member, deals=99, seed=seed).read(None, [False])[0].area
            held += area.low <= _truth(vectors, member, gap, seed) <= area.high
        cells[f"coverage of areas, {rows} rows, gap {gap:g}"] = held / trials
    write_json(out, {"trials": trials, "cells": cells})
    for name, share in cells.items():
        low, high = (0.93, 0.99) if name.startswith("coverage") else (0.03, 0.07)
        print(f"{'' if low <= share <= high else 'OUTSIDE '}{name}: {share:.3f}")


def _truth(vectors: Any, member: Any, gap: float, seed: int) -> float:
    """The mean over folds of the true area of the fitted probes: normal, with the gap along the first feature."""
    fold = probes.folds(len(vectors), None, np.random.default_rng(seed))
    scaled, target, found = probes.varying(vectors), member[:, None] * 1.0, []
    products = probes._products(scaled, scaled, fold), probes._products(scaled, target, fold)
    for direction in probes._directions(scaled, target, fold, np.zeros(len(fold), int), *products)[:, :, 0]:
        direction = direction / vectors.std(0)
        found.append(stats.norm.cdf(gap * direction[0] / np.sqrt(2 * direction @ direction)))
    return float(np.mean(found))


if __name__ == "__main__":
    app()
