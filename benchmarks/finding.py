"""The finding: which part of a smaller gap comes from the method, and which from depth, rate, selection, threshold.

Reads the runs of one grid (``levelhead compare finding_utkface64 --data-root DATA --workers 2``) and writes the
aggregates::

    python benchmarks/finding.py finding_utkface64 runs/finding_utkface64 --json results/finding_utkface64.json

Three comparisons of the same runs: as they are (epochs by validation loss, which sees labels alone); at thresholds
that call as many rows positive as ERM does; and with epochs by LEAKING_equalized_odds, the rule of the authors' CelebA
notebook, which looks at the groups of the very rows that are reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from levelhead.bench.comparison import LEAKING
from levelhead.bench.grid import find_grid
from levelhead.bench.tables import RunSet, collect
from levelhead.metrics import estimate_to_dict
from levelhead.runs.recipe import read_recipe
from levelhead.storage import write_json

BASELINE = "ERM"
METRIC = "equalized_odds"


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


def main(grid: str, runs: Path, json: Annotated[Path, typer.Option()]) -> None:
    """Compare the runs of a grid file or name, in the order of its rows."""
    (group,) = collect([runs], "test")
    order = list(read_recipe(find_grid(grid))["rows"])
    group.runs.sort(key=lambda run: order.index(run.experiment.name))
    comparisons = {
        "own": group.compare(BASELINE, selection="val_loss"),
        "matched": group.compare(BASELINE, selection="val_loss", threshold="matched"),
        "leaking": group.compare(BASELINE, selection=LEAKING),
    }
    ways = {way: comparison.to_dict() for way, comparison in comparisons.items()}
    write_json(json, {"comparisons": ways, "selection_effect": selection_effect(group)})


if __name__ == "__main__":
    typer.run(main)
