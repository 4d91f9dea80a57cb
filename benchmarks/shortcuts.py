"""Where does debiased attention use a shortcut less? A map of drawn pictures whose shortcut is known.

    python benchmarks/shortcuts.py run runs/shortcuts
    python benchmarks/shortcuts.py table runs/shortcuts --json results/shortcuts.json

Written down before any of these networks was trained:

*Pictures.* Portraits of :class:`Marked`: two marks, which are the groups, tell the hair colour of most training rows,
and of no test row. 1,000 training, 200 validation and 1,000 test rows.

*Cells.* Three entries (texture, position, colour), each with a strong mark that 10% of the training rows contradict,
one that 30% contradict, and a weak mark (half as visible) that 10% contradict: nine cells, so that all of them take
less than an hour of one core. They run in this order; cells that are not finished when time is up are left out, and
named. Only plain training was run before, with seed 9, to choose how visible a strong mark is.

*Methods.* Plain training (ERM), JTT as in ``portraits_demo``, debiased attention without alignment and absolute value
("normalise only"), with levelhead's options ("DAM") and with the paper's ("DAM (paper)"). The tiny vision transformer
of ``portraits_erm_shortcut``, patches of 16 pixels, 10 epochs, seeds 0 to 2.

*Figure.* Change of the gap in equalized odds against ERM, at ERM's positive rate; 95% intervals over rows and seeds,
Holm over cells and the three debiased variants (against ERM, and again against JTT). Accuracy stands beside it.

*Answers.* "Use it when ..." names a third of the cells (an entry, or a column of the map) in each of which the same
variant, DAM or DAM (paper), has a decidedly smaller gap than ERM and no decidedly lower accuracy, and in one of which
it has a decidedly smaller gap than JTT. If no cell has a variant with a decidedly smaller gap than JTT, the answer is
"no cell where it beats JTT". Anything between is told as what it is.

*Does the map predict?* The share of training rows that contradict a real task's shortcut is the smaller one of the
shares of the two pairings of class and group. The prediction is the direction that DAM (paper) decidedly has in most
cells of the nearest share, else "no change". It is compared with the results on CelebA, UTKFace, MultiNLI and
HateXplain. MultiNLI has opposite signs on two networks, so no rule of the data alone can meet both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import typer
from torch import Tensor

from levelhead.bench.grid import Grid, complete, make_cells
from levelhead.bench.tables import collect
from levelhead.data import SPLITS, Examples, Groups, Split
from levelhead.data.images import ImageInputs
from levelhead.data.portraits import CLASS_NAMES, SIDE, Portraits
from levelhead.metrics import estimate_to_dict
from levelhead.metrics.between import holm
from levelhead.runs.recipe import find_recipe, read_recipe
from levelhead.storage import write_json

app = typer.Typer(help=__doc__)

VISIBLE = {"texture": 6, "position": 60, "colour": 48}
COLUMNS = {"strong, 10%": (1, 0.1), "strong, 30%": (1, 0.3), "weak, 10%": (2, 0.1)}
METHODS: dict[str, dict[str, Any]] = {
    "ERM": {"method.name": "erm"},
    "JTT": {
        "method.name": "jtt",
        "method.identification_epochs": 2,
        "method.upweight": 5,
        "method.repeat": "weights",
    },
    "normalise only": {"method.name": "dam", "method.debias.absolute": False, "method.debias.alpha": 0.0},
    "DAM": {"method.name": "dam"},
    "DAM (paper)": {"method.name": "dam", "method.debias.preset": "paper"},
}
DEBIASED = tuple(METHODS)[2:]


@dataclass(frozen=True)
class Marked(Portraits):
    """Portraits with one of two marks, the group, that tells the hair colour of most training rows and of no test row.

    ``entry`` is what the marks, in an upper corner, differ in: stripes that rise or fall (texture), a lighter square on
    the left or on the right (position), a red or a blue tint (colour); ``visible`` is by how many of 255 levels. The
    share ``contradicting`` of training and validation rows has the mark of the other hair colour.
    """

    correlation: float = 0.0
    angular_rate: float = 0.5
    light_given_round: float = 0.5
    light_given_angular: float = 0.5
    entry: str = "texture"
    visible: int = 6
    contradicting: float = 0.1

    shares: ClassVar[tuple[str, ...]] = (*Portraits.shares, "contradicting")

    def examples(self, split: Split) -> Examples:
        """Return the pictures of ``split`` with their marks, and their hair colours."""
        drawn = self._draw(split)
        marked = drawn.pixels + self.visible * marks(self.entry)[self._mark(split)]
        return ImageInputs(marked.clamp(0, 255).to(torch.uint8)).with_labels(drawn.labels.clone(), CLASS_NAMES)

    def groups(self, split: Split) -> tuple[Groups, ...]:
        """Return which mark each picture of ``split`` has."""
        return (Groups("mark", self._mark(split), ("first", "second")),)

    def _mark(self, split: Split) -> Tensor:
        labels, share = self._draw(split).labels, 0.5 if split == "test" else self.contradicting
        other = np.random.default_rng((self.seed, SPLITS.index(split))).random(len(labels)) < share
        return labels ^ torch.from_numpy(other)


@lru_cache
def marks(entry: str) -> Tensor:
    """Return the two marks, (2, 3, 64, 64) int64 between -1 and 1, each in a corner of 28 by 28 pixels."""
    side = 28
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    rising = 2 * ((row + column) % 4 < 2) - 1
    both = torch.zeros(2, 3, SIDE, SIDE, dtype=torch.int64)
    left, right = both[:, :, 2 : 2 + side, 2 : 2 + side], both[:, :, 2 : 2 + side, -2 - side : -2]
    if entry == "texture":
        left[:] = torch.stack([rising, rising.flip(1)])[:, None]
    elif entry == "position":
        left[0], right[1] = 1, 1
    else:
        left[0, 0], left[1, 2] = 1, 1
    return both


def map_of() -> Grid:
    """Return the grid of all cells: rows are named ``ENTRY, STRENGTH, SHARE: METHOD``."""
    base = read_recipe(find_recipe("portraits_erm_shortcut"))
    base["data"] = {"name": "shortcuts:Marked", "difficulty": 0.6, "train_size": 1000, "validation_size": 200}
    base["data"]["test_size"] = 1000
    rows: dict[str, dict[str, Any]] = {}
    for column, (less, share) in COLUMNS.items():
        for entry, visible in VISIBLE.items():
            data = {"data.entry": entry, "data.visible": visible // less, "data.contradicting": share}
            rows |= {f"{entry}, {column}: {name}": data | method for name, method in METHODS.items()}
    return Grid(base, rows, (0, 1, 2), {"model.patch_size": 16, "train.epochs": 10})


@app.command()
def run(out: Path) -> None:
    """Train and evaluate what is left, cell after cell; the pictures are drawn once."""
    grid = map_of()
    for cell in dict.fromkeys(row.split(":")[0] for row in grid.rows):
        for each in make_cells(grid, out, rows=[f"{cell}: {method}" for method in METHODS]):
            if not each.done:
                complete(each.experiment, each.folder)
        print(cell, flush=True)


def summary(out: Path) -> dict[str, Any]:
    """Return each finished cell's figures of ERM, and the changes of each method against ERM and against JTT."""
    cells: dict[str, Any] = {}
    for found in collect([out], "test"):
        cell = next(iter(found.rows())).split(":")[0]
        if min((len(runs) for runs in found.rows().values()), default=0) < 3 or len(found.rows()) < len(METHODS):
            continue
        tables = {base: found.compare(f"{cell}: {base}", threshold="matched") for base in ("ERM", "JTT")}
        plain = tables["ERM"].table.rows[f"{cell}: ERM"]
        cells[cell] = {name: estimate_to_dict(plain[name].estimate) for name in ("accuracy", "equalized_odds")}
        cells[cell]["hardware"] = tables["ERM"].environments
        for base, compared in tables.items():
            cells[cell][f"minus {base}"] = {
                name: {
                    metric: estimate_to_dict(one.difference) | {"p": one.p_value}
                    for metric in ("accuracy", "equalized_odds")
                    if (one := compared.table.rows[f"{cell}: {name}"][metric]).difference is not None
                }
                for name in METHODS
                if name != base
            }
    for base in ("minus ERM", "minus JTT"):
        every = [cell[base][name]["equalized_odds"] for cell in cells.values() for name in DEBIASED]
        for one, adjusted in zip(every, holm([one["p"] for one in every]), strict=True):
            one["p_holm"] = float(adjusted)
    return cells


def table(cells: dict[str, Any]) -> str:
    """Return the map as Markdown: changes of the gap in points, in brackets those of accuracy; * is decided."""
    lines = ["| cell | ERM's gap | JTT | normalise only | DAM | DAM (paper) | DAM minus JTT |", f"|---|{'---:|' * 6}"]

    def shown(change: dict[str, Any]) -> str:
        gap = change["equalized_odds"]
        low, high = (f"{100 * gap[end]:+.1f}" for end in ("low", "high"))
        star = "*" if gap.get("p_holm", 1) < 0.05 else ""
        return f"{100 * gap['value']:+.1f}{star} [{low}, {high}] ({100 * change['accuracy']['value']:+.1f})"

    for name, cell in cells.items():
        changes = [*(cell["minus ERM"][each] for each in ("JTT", *DEBIASED)), cell["minus JTT"]["DAM"]]
        lines.append(f"| {name} | {100 * cell['equalized_odds']['value']:.1f} | {' | '.join(map(shown, changes))} |")
    return "\n".join(lines)


@app.command("table")
def show(runs: Path, json: Annotated[Path, typer.Option()]) -> None:
    """Write the map's figures, and print it."""
    write_json(json, {"cells": (cells := summary(runs))})
    print(table(cells))


if __name__ == "__main__":
    app()
