"""How small a difference a comparison will show, said before it is run.

The difference of two methods' gaps in equalized odds is half a sum of differences of hit rates, one in each (group,
label). Where two methods answer a share d of a cell's n rows differently, such a difference has the variance d / n
(what they gain on some of these rows and lose on others). A share of this noise is the same for every seed; the rest,
and what training adds, is divided by the number of seeds, as in :mod:`levelhead.metrics.seeds`.

The three numbers come from runs that are done (a pilot), or are assumed, which is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import special

from levelhead.auditing.options import MIN_COUNT
from levelhead.bench.comparison import MAIN
from levelhead.bench.grid import Cell
from levelhead.bench.tables import RunSet, by_data, collect
from levelhead.bench.timing import predicted
from levelhead.data import SPLITS, DataSet
from levelhead.data.folds import Fold
from levelhead.metrics.paired import Paired
from levelhead.metrics.power import POWER, errors_of_detected
from levelhead.metrics.seeds import OverSeeds, seed_by_row
from levelhead.storage import read_record
from levelhead.terminal import spent
from levelhead.types import DataError, LevelheadError, listed

DISAGREEMENT, SHARED, OVER_SEEDS = 0.1, 0.2, 0.008
"""Assumed without a pilot, near what the runs of results/results.md did: the share of rows that two variants answer
differently, the part of that noise that all seeds share, and the standard deviation that seeds add to a difference."""


@dataclass(frozen=True)
class Noise:
    """What makes a difference of two methods uncertain: variances for one seed on ``rows`` rows.

    ``row`` is that over rows, ``shared`` the part of it that all seeds have in common, ``seed`` that over seeds beyond
    the noise of rows. ``basis`` says where the numbers are from.
    """

    row: float
    shared: float
    seed: float
    rows: int
    basis: str

    def half_width(self, seeds: int) -> float:
        """Return half the width of the 95% interval to expect with this many seeds.

        With few seeds that is wide, as :class:`levelhead.metrics.seeds.RowsAndSeeds` has it. One seed says nothing
        about what seeds add: its interval is of the rows alone.
        """
        own = self.row - self.shared
        parts = tuple(((self.seed + own) / 2 / seeds, seeds - 1.0) for _ in range(2)) if seeds > 1 else ()
        over_seeds = OverSeeds(parts, self.seed / seeds if seeds > 1 else 0.0)
        return over_seeds.join(self.shared + own / seeds).arm(0.95)

    def smallest_shown(self, seeds: int) -> float:
        """Return the difference that is found with a probability of 80%."""
        z = float(special.ndtri(0.975))
        return self.half_width(seeds) * errors_of_detected(z) / z


def assumed(cells: NDArray[np.int64], min_count: int = 1) -> Noise:
    """Return the noise to expect of a difference of gaps in equalized odds, from sizes of cells alone.

    Args:
        cells: (groups, labels) rows; of more than two groups or labels, those four that say least decide.
        min_count: what groups had to have of each label to be among them, for the reason where there are not two.
    """
    if len(cells) < 2:
        basis = f"fewer than two groups have {max(1, min_count)} rows of each label"
        return Noise(math.nan, math.nan, math.nan, int(np.sum(cells)), basis)
    sizes = np.sort(np.asarray(cells).ravel())[: 4 if cells.size > 4 else cells.size]
    if len(sizes) < 2 or sizes.min() < 1:
        return Noise(math.nan, math.nan, math.nan, int(np.sum(cells)), "a group has no row of a label")
    row = DISAGREEMENT * float((1 / sizes).sum()) / 4
    basis = (
        f"assumed: two variants answer {DISAGREEMENT:.0%} of the rows differently, {SHARED:.0%} of that noise is "
        f"common to all seeds, and seeds add {100 * OVER_SEEDS:g} points"
    )
    return Noise(row, SHARED * row, OVER_SEEDS**2, int(np.sum(cells)), basis)


def from_pilot(runs: RunSet, baseline: str, method: str) -> Noise:
    """Return the noise of a difference that finished runs show; with one seed what seeds add is assumed."""
    rows = runs.rows()
    predictions = {
        name: np.array(runs.classes)[runs.probabilities(rows[name]).argmax(-1)] for name in (method, baseline)
    }
    frame = runs.runs[0].predictions
    clusters, (group, left_out) = frame.get("cluster"), runs.members(runs.runs[0])
    analysis = Paired.build(
        frame["label"].to_numpy(),
        group,
        predictions,
        runs.positive,
        0.95,
        1000,
        0,
        None if clusters is None else clusters.to_numpy(),
        runs.classes,
        runs.min_count,
        left_out,
    )
    moves = analysis.moves(MAIN, method, baseline)
    row, common = float(np.var(moves, axis=1).mean()), seed_by_row(list(moves))
    if row == 0:
        basis = f"{method} and {baseline} answer alike in the pilot, in the groups that make the gaps"
        return Noise(math.nan, math.nan, math.nan, len(frame), basis)
    a, b = analysis.values(MAIN, method), analysis.values(MAIN, baseline)
    seeds = min(len(a), len(b))
    basis = f"from a pilot of {seeds} seed{'s' * (seeds != 1)} of {method} and {baseline}"
    if seeds < 2:
        return Noise(row, SHARED * row, OVER_SEEDS**2, len(frame), f"{basis}; the variance over seeds is assumed")
    alone = [analysis.moves(MAIN, name) for name in (method, baseline)]
    between = OverSeeds.of([a, b], [seed_by_row(list(one)) for one in alone])
    return Noise(row, max(0.0, row - common), between.beyond_rows * seeds, len(frame), basis)


def show_plan(cells: Sequence[Cell], *, workers: int, console: Console, min_count: int = MIN_COUNT) -> None:
    """Print how long the runs that are missing will take, and how small a difference they will show.

    Times a few steps of each variant that has no finished run. Opens the groups of the rows to be answered, which no
    training sees, to count them.
    """
    left = [cell for cell in cells if not cell.done]
    costs = {cell.folder: read_record(cell.folder / "cost.json") for cell in cells if cell.done}
    # The record of a refit has the seconds of the run that it refits as well.
    took = {folder: float(cost.get("refit_seconds", cost["seconds"])) for folder, cost in costs.items()}
    by_row = {cell.row: [took[one.folder] for one in cells if one.row == cell.row and one.done] for cell in cells}
    refits = [cell for cell in left if not by_row[cell.row] and cell.refitted is not None]
    by_row |= {cell.row: [0.0] for cell in refits}
    unknown = [cell for cell in left if not by_row[cell.row]]
    timed = predicted(unknown, console) if unknown else {}
    failing = dict.fromkeys(cell.row for cell in unknown if cell.folder not in timed)
    if failing:
        raise LevelheadError(f"Cannot plan until these runs work (reasons above): {listed(list(failing))}.")
    seconds = sum(float(np.mean(by_row[cell.row])) if by_row[cell.row] else timed[cell.folder] for cell in left)
    source = "; ".join(["measured on runs that are done"] * bool(took) + ["from a few steps of each"] * bool(unknown))
    time = f"about {spent(seconds)} of one core"
    time += f", {spent(seconds / workers)} with {workers} at a time" * (workers > 1)
    aside = f"; {len(refits)} refits, of seconds each, not counted" * bool(refits)
    console.print(f"{len(left)} of {len(cells)} runs are missing: {time} ({source or 'nothing to time'}{aside}).")
    tables = by_data(cells)
    for each in tables:
        _show_widths(each, len(tables) > 1, console, min_count)


def _show_widths(cells: Sequence[Cell], several: bool, console: Console, min_count: int) -> None:
    """Print how small a difference the runs on one data set will show; ``several`` if there are others."""
    rows = list(dict.fromkeys(cell.row for cell in cells))
    counts, which = _cells_of(cells[0].experiment.data)
    sizes = ", ".join(
        f"{group} / {label} {size:,}" for group, own in counts.items() for label, size in sorted(own.items())
    )
    rows_of = np.array([list(own.values()) for own in counts.values()])
    enough = rows_of[(rows_of >= max(1, min_count)).all(1)]
    whose = f" of {'; '.join(rows)}" * several
    console.print(f"{which}{whose}: {rows_of.sum():,} rows ({sizes}).", markup=False)
    if several and len(rows) == 1:
        console.print(f"{rows[0]}: no plan, no other variant has the same data.", markup=False)
        return
    done = sorted({len({one.experiment.seed for one in cells if one.row == row}) for row in rows})
    shown = sorted({1, 2, 3, 5, 10, *done})
    pilot = _pilot(cells, min_count)
    for method in rows[1:]:
        piloted = pilot is not None and {rows[0], method} <= pilot.rows().keys()
        noise = from_pilot(pilot, rows[0], method) if pilot and piloted else assumed(enough, min_count)
        if math.isnan(noise.row):
            console.print(f"{method}: no plan, {noise.basis}.", markup=False)
            continue
        table = Table(title=f"EOd difference of {method} to {rows[0]}", caption=noise.basis)
        for title in ("seeds", "known to, points", f"shown with {POWER:.0%} power, points"):
            table.add_column(title, justify="right")
        for seeds, half, smallest in columns(noise, shown):
            mark = " (planned)" if seeds in done else ""
            table.add_row(f"{seeds}{mark}", f"{half:.1f}" + " (rows alone)" * (seeds == 1), f"{smallest:.1f}")
        console.print(table)


def _cells_of(data: DataSet) -> tuple[dict[str, dict[str, int]], str]:
    """Return the rows of each group and label that will be answered, and which rows these are."""
    whole, splits = (data.data, SPLITS) if isinstance(data, Fold) and data.data else (data, ("test",))
    found: dict[str, dict[str, int]] = {}
    for split in splits:
        examples, group = whole.examples(split), whole.require_groups(split, partly=True)[0]
        for name in group.names:  # 0 rows of a label are what matters most
            found.setdefault(name, dict.fromkeys(examples.class_names, 0))
        for value, label in zip(group.values.tolist(), examples.labels.tolist(), strict=True):
            if value >= 0:
                found[group.names[value]][examples.class_names[label]] += 1
    which = f"All rows, in {data.folds} folds" if isinstance(data, Fold) else "Test split"
    return dict(sorted(found.items())), which


def _pilot(cells: Sequence[Cell], min_count: int) -> RunSet | None:
    """Return what is done; None if that is nothing, or no seed has all its folds yet."""
    done = [cell.folder for cell in cells if cell.done]
    try:
        (runs,) = collect(done, "test", min_count=min_count) if done else (None,)
    except DataError:
        return None
    return runs


def columns(noise: Noise, seeds: Sequence[int]) -> list[tuple[int, float, float]]:
    """Return for each number of seeds the half-width and the smallest difference that is shown, in points."""
    return [(one, 100 * noise.half_width(one), 100 * noise.smallest_shown(one)) for one in seeds]
