"""The finding: which part of a smaller gap comes from the method, and which from depth, rate, selection, threshold.

Reads the runs of one grid (``levelhead compare finding_utkface64 --data-root DATA --workers 2``) and writes the
aggregates and a picture::

    python benchmarks/finding.py finding_utkface64 runs/finding_utkface64 \
        --json results/finding_utkface64.json --picture docs/images/finding_utkface64.png

Three comparisons of the same runs: as they are (epochs by validation loss, which sees labels alone); at thresholds
that call as many rows positive as ERM does; and with epochs by LEAKING_equalized_odds, the rule of the authors' CelebA
notebook, which looks at the groups of the very rows that are reported.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from levelhead.bench.comparison import LEAKING, Comparison
from levelhead.bench.grid import find_grid
from levelhead.bench.tables import RunSet, choose_epoch, collect
from levelhead.metrics import estimate_to_dict
from levelhead.runs.recipe import read_recipe
from levelhead.storage import read_json, write_atomically, write_json
from levelhead.types import Estimate

BASELINE = "ERM"
METRIC = "equalized_odds"
WAYS = {"own": ("own threshold", "o", "0.0"), "matched": ("ERM's positive rate", "s", "0.5")}


def selection_effect(group: RunSet) -> dict[str, dict[str, Any]]:
    """What the leaking choice of epochs does to each row's gap and accuracy, against the label-only choice."""
    ways = {"label-only": "first", "leaking": "second"}
    return {
        name: {
            metric: {
                **{way: estimate_to_dict(table.rows[row][metric].estimate) for way, row in ways.items()},
                "difference": estimate_to_dict(table.rows["second"][metric].difference),
            }
            for metric in (METRIC, "accuracy")
        }
        for name, table in group.between_selections("val_loss", LEAKING).items()
    }


def epochs_picked(group: RunSet) -> dict[str, dict[str, Any]]:
    """The epochs (from 0) and accuracies that the leaking rule picked, by row."""
    result: dict[str, dict[str, Any]] = {}
    for name, runs in group.rows().items():
        picks = [choose_epoch(group, run, LEAKING) for run in runs]
        labels = runs[0].predictions["label"].to_numpy()
        right = [float((np.array(group.classes)[values.argmax(-1)] == labels).mean()) for _, values in picks]
        result[name] = {"epochs": [epoch for epoch, _ in picks], "accuracy": right}
    return result


def alignment_losses(group: RunSet) -> dict[str, dict[str, float]]:
    """The alignment term over the last epoch of training, mean over seeds, and two marks to read it by.

    ``chance`` is log(B - 1), what projections that are all equal give; ``collapse`` is what is left when the classes,
    in the proportions of the training rows, are apart and each is one point: sum_c n_c log(n_c - 1) / B.
    """
    result = {}
    for name, runs in group.rows().items():
        ends = []
        for run in runs:
            rows = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
            logged = [row for row in rows if "align" in row]
            ends += [row["align"] for row in logged if row["epoch"] == logged[-1]["epoch"]]
        if ends:
            size = runs[0].experiment.train.batch_size
            shares = np.array(list(read_json(runs[0].folder / "data.json")["train"]["classes"].values()), float)
            counts = size * shares / shares.sum()
            result[name] = {
                "last_epoch": float(np.mean(ends)),
                "chance": float(np.log(size - 1)),
                "collapse": float((counts * np.log(counts - 1)).sum() / size),
            }
    return result


def points(figure: Estimate | dict[str, Any], sign: str = "") -> str:
    """A figure and its interval in percent or points."""
    value, low, high = (
        (figure.value, figure.low, figure.high)
        if isinstance(figure, Estimate)
        else (figure["value"], figure["low"], figure["high"])
    )
    return f"{100 * value:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def markdown(
    comparisons: dict[str, Comparison],
    effect: dict[str, dict[str, Any]],
    picks: dict[str, dict[str, Any]],
    alignment: dict[str, dict[str, float]],
) -> str:
    """The page's tables."""
    own = comparisons["own"]
    lines = [
        f"**{own.title}**; percent, {own.table.level:.0%} interval over test rows and seeds",
        "",
        "| variant | seeds | accuracy | DP gap | EOp gap | EOd gap | EOd minus ERM, points | p (Holm) | "
        "EOd minus ERM at ERM's positive rate | p (Holm) |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in own.table.rows.items():
        cells = [name, str(len(own.seeds[name]))]
        cells += [
            points(row[metric].estimate) for metric in ("accuracy", "demographic_parity", "equal_opportunity", METRIC)
        ]
        for way in ("own", "matched"):
            other = comparisons[way].table.rows[name][METRIC]
            cells += ["", ""] if other.difference is None else [points(other.difference, "+"), f"{other.p_holm:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    assert own.areas is not None
    groups = list(next(iter(own.areas.values())))
    lines += ["", "Area under the ROC curve, percent; difference to ERM in points", ""]
    lines.append("| variant | " + " | ".join(groups) + " |")
    lines.append("|---|" + "---:|" * len(groups))
    for name, areas in own.areas.items():
        cells = [
            points(area) + ("" if difference is None else f"; {points(difference, '+')}")
            for area, difference in (areas[one] for one in groups)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "What choosing the epoch by the test gap does to each variant (LEAKING minus label-only)", ""]
    lines += [
        "| variant | EOd, label-only | EOd, LEAKING | difference, points | accuracy, points |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, one in effect.items():
        cells = [points(one[METRIC]["label-only"]), points(one[METRIC]["leaking"])]
        cells += [points(one[metric]["difference"], "+") for metric in (METRIC, "accuracy")]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    epochs = [epoch for one in picks.values() for epoch in one["epochs"]]
    right = [value for one in picks.values() for value in one["accuracy"]]
    usual = np.mean([np.mean(row["accuracy"].by_seed) for row in own.table.rows.values()])
    lines += [
        "",
        f"The LEAKING rule picked the first epoch in {sum(epoch == 0 for epoch in epochs)} of {len(epochs)} runs; "
        f"{sum(value < 0.7 for value in right)} of its picks have an accuracy below 70% (label-only: {usual:.1%} on "
        "average).",
        "",
        "The alignment term over the last epoch (lower is more aligned; chance: all projections equal; collapse: "
        "each class one point)",
        "",
        "| variant | alignment term | chance | collapse |",
        "|---|---:|---:|---:|",
    ]
    for name, loss in alignment.items():
        lines.append(f"| {name} | {loss['last_epoch']:.2f} | {loss['chance']:.2f} | {loss['collapse']:.2f} |")
    return "\n".join(lines) + "\n"


def draw(comparisons: dict[str, Comparison], effect: dict[str, dict[str, Any]], path: Path) -> None:
    """Left: what a row does to EOd, against ERM. Right: what the choice of the epoch does to EOd, within the row."""
    names = list(comparisons["own"].table.rows)
    figure = Figure(figsize=(9.5, 1.5 + 0.42 * len(names)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)

    def mark(axes: Any, figures: dict[str, Any], height: float, style: tuple[str, str, str], labelled: bool) -> None:
        value, low, high = (100 * figures[end] for end in ("value", "low", "high"))
        label, marker, shade = style
        axes.errorbar(
            value,
            height,
            xerr=[[value - low], [high - value]],
            fmt=marker,
            color=shade,
            capsize=3,
            label=label if labelled else None,
        )

    for line, name in enumerate(names):
        for position, (way, style) in enumerate(WAYS.items()):
            difference = comparisons[way].table.rows[name][METRIC].difference
            if difference is not None:
                mark(left, estimate_to_dict(difference), line + 0.26 * (position - 0.5), style, line == 1)
        mark(right, effect[name][METRIC]["difference"], line, ("", "^", "0.25"), False)
    left.set_title("row minus ERM, epochs by validation loss", fontsize="medium")
    right.set_title("LEAKING choice of the epoch minus label-only", fontsize="medium")
    # Two seeds leave so much open on the right that a common scale would hide what is on the left.
    for axes in (left, right):
        axes.set_xlim(-(most := max(abs(end) for end in axes.get_xlim())), most)
        axes.axvline(0, color="0.2", linewidth=0.8)
        axes.grid(axis="x", color="0.9")
        axes.set_axisbelow(True)
        axes.set_xlabel("EOd gap, points (left of 0: smaller)")
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.legend(frameon=False, fontsize="small", loc="best")
    title = comparisons["own"].title.partition(";")[0]
    figure.suptitle(f"{title}\n95% intervals over test rows and seeds", fontsize="medium")
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130, format="png"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", help="the grid file, or its name: rows are listed in its order")
    parser.add_argument("runs", type=Path, help="folder of the grid's runs")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    (group,) = collect([arguments.runs], "test")
    order = list(read_recipe(find_grid(arguments.grid))["rows"])
    group.runs.sort(key=lambda run: order.index(run.experiment.name))
    comparisons = {
        "own": group.compare(BASELINE, selection="val_loss"),
        "matched": group.compare(BASELINE, selection="val_loss", threshold="matched"),
        "leaking": group.compare(BASELINE, selection=LEAKING),
    }
    effect, picks, alignment = selection_effect(group), epochs_picked(group), alignment_losses(group)
    sys.stdout.write(markdown(comparisons, effect, picks, alignment))
    if arguments.json:
        ways = {way: comparison.to_dict() for way, comparison in comparisons.items()}
        more = {"selection_effect": effect, "epochs_picked": picks, "alignment": alignment}
        write_json(arguments.json, {"comparisons": ways, **more})
    if arguments.picture:
        draw(comparisons, effect, arguments.picture)


if __name__ == "__main__":
    main()
