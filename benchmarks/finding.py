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
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from levelhead.bench.comparison import LEAKING, Comparison
from levelhead.bench.grid import find_grid
from levelhead.bench.tables import RunSet, collect
from levelhead.metrics import estimate_to_dict
from levelhead.runs.recipe import read_recipe
from levelhead.storage import write_atomically, write_json

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
    effect = selection_effect(group)
    if arguments.json:
        ways = {way: comparison.to_dict() for way, comparison in comparisons.items()}
        write_json(arguments.json, {"comparisons": ways, "selection_effect": effect})
    if arguments.picture:
        draw(comparisons, effect, arguments.picture)


if __name__ == "__main__":
    main()
