"""Stop training seeds once a difference is known well enough, without being fooled by having looked often.

After every seed, from the second on, the figures are looked at. Stopping at the first look that pleases is wrong
more often than the interval says. Here the looks share the error probability: with the share t of the seeds done,
2 - 2 Phi(z / sqrt(t)) is spent of it (Lan and DeMets, Biometrika 1983; for t = 1 all 5%), and each look's critical
value is the one at which it spends what came since the look before, as if every seed were a new sample (Armitage,
McPherson and Rowe, JRSS A 1969). Seeds answer the same test rows, so that their looks have more in common than that,
and err less often together: ``benchmarks/deciding.py`` simulates it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special, stats

from levelhead.bench.comparison import Comparison
from levelhead.bench.grid import GRID, PLACE, Grid, read_grid
from levelhead.metrics.names import COMPARED
from levelhead.report.text import level_text
from levelhead.runs.folder import CONFIG
from levelhead.storage import read_record, write_json
from levelhead.types import ConfigError, listed, quoted

if TYPE_CHECKING:
    from levelhead.bench.tables import RunSet

LOOKS = "looks.json"
ERROR = 0.05
FIRST = 2  # seeds before the first look: one alone says nothing about the variance over seeds
METRICS = {title.removesuffix(" gap"): name for name, title in COMPARED.items()}


@dataclass(frozen=True)
class Target:
    """What is to be known: the difference of ``method`` in ``metric``, to this many ``points`` or (None) decided."""

    text: str
    metric: str
    method: str
    points: float | None

    @property
    def metric_title(self) -> str:
        """The metric's name in tables."""
        return COMPARED[self.metric].removesuffix(" gap")

    def reached(self, comparison: Comparison) -> bool:
        """Return whether a comparison says it."""
        row = comparison.table.rows[self.method][self.metric]
        if row.difference is None or not row.difference.defined or row.difference.reason is not None:
            return False
        if self.points is None:
            return row.verdict(1 - comparison.table.level) != "undecided"
        return 100 * (row.difference.high - row.difference.low) / 2 <= self.points


def parse_target(text: str, *tables: Sequence[str]) -> Target:
    """Read ``EOd difference of dam known to 1.5`` or ``EOd difference of dam decided``.

    Args:
        text: the target.
        tables: the variants on each data set; the first of each is the baseline of the others.

    Raises:
        ConfigError: the text is anything else, or names an unknown metric, an unknown variant or a baseline.
    """
    end = r"(?:known to ([0-9]+(?:\.[0-9]+)?)(?: points)?|decided)"
    found = re.fullmatch(rf"(.+?) difference of (.+?) {end}", " ".join(text.split()))
    if found is None:
        raise ConfigError(
            f"--until {quoted(text)} is not understood. Write for instance --until 'EOd difference of dam known to "
            "1.5' (points to either side), or --until 'EOd difference of dam decided'."
        )
    by_name = {title.lower(): name for title, name in METRICS.items()}
    metric, method, points = by_name.get(found[1].lower()), found[2], None if found[3] is None else float(found[3])
    if metric is None:
        raise ConfigError(f"--until names the metric {quoted(found[1])}. Known: {', '.join(METRICS)}.")
    others = [row for rows in tables for row in rows[1:]]
    if method not in others:
        what = "is no variant here"
        if any(method in rows[:1] for rows in tables):
            what = "is the baseline itself" if len(tables) == 1 else "is the first variant on its data, the baseline"
        raise ConfigError(f"--until: {quoted(method)} {what}. Name one of: {', '.join(others) or 'none'}.")
    if points is not None and not 0 < points < 100:
        raise ConfigError(f"--until: {points:g} points is out of range; give a number between 0 and 100.")
    return Target(" ".join(text.split()), metric, method, points)


def spent(share: float, error: float = ERROR) -> float:
    """Return the error probability that is spent when ``share`` of the seeds, above 0 and up to 1, is done."""
    return float(2 - 2 * special.ndtr(special.ndtri(1 - error / 2) / math.sqrt(share)))


@functools.cache
def levels(seeds: int) -> tuple[float, ...]:
    """Return the confidence levels of the looks after 2, 3, ... of ``seeds`` seeds.

    The density of a Brownian motion that no look has stopped yet is carried from look to look, on a grid.
    """
    from scipy import signal  # tables import this module, and need no density

    shares = [done / seeds for done in range(FIRST, seeds + 1)]
    reach = 8.0
    grid = np.linspace(-reach, reach, 2001)
    step, found, before = grid[1] - grid[0], [], 0.0
    density = stats.norm.pdf(grid, scale=math.sqrt(shares[0]))
    for position, share in enumerate(shares):
        if position:
            moved = stats.norm.pdf(grid, scale=math.sqrt(share - shares[position - 1])) * step
            density = signal.fftconvolve(density, moved, mode="same")
        wanted, before = spent(share) - before, spent(share)
        # How much lies beyond each distance from 0: on both sides, as it is symmetric.
        half = len(grid) // 2
        beyond = 2 * step * (np.cumsum(density[half:][::-1])[::-1] - density[half:] / 2)
        end = float(np.interp(-wanted, -beyond, grid[half:]))
        level = float(2 * special.ndtr(end / math.sqrt(share)) - 1)
        # An early look at many seeds spends almost nothing; no interval has a level of 1.
        found.append(round(level, 4) if level < 0.9999 else min(round(level, 6), 0.999999))
        density = np.where(np.abs(grid) <= end, density, 0.0)
    return tuple(found)


def look(
    target: Target,
    runs: RunSet,
    out: Path,
    seeds: Sequence[int],
    done: int,
) -> tuple[bool, str]:
    """Compare what is done, write the look down in ``out``, and return whether the target is reached, and a sentence.

    Args:
        target: what is to be known.
        runs: those of the seeds that are done, of the variants on the target's data.
        out: the folder of the comparison.
        seeds: all that may be trained.
        done: how many of them are.
    """
    level = levels(len(seeds))[done - FIRST]
    comparison = dataclasses.replace(runs, level=level).compare(next(iter(runs.rows())))
    difference = comparison.table.rows[target.method][target.metric].difference
    assert difference is not None
    kept = begin(target, out, seeds)
    entry = {"seeds": list(seeds[:done]), "level": level, "reached": target.reached(comparison)}
    entry |= {name: None if math.isnan(x := getattr(difference, name)) else x for name in ("value", "low", "high")}
    kept["looks"] = [one for one in kept["looks"] if one["seeds"] != entry["seeds"]] + [entry]
    write_json(out / LOOKS, kept)
    reached = bool(entry["reached"])
    what = f"Look after {done} of {len(seeds)} seeds: {target.metric_title} difference of {target.method}"
    if not difference.defined:
        return reached, f"{what}: undefined, {difference.reason}."
    value, low, high = (100 * one for one in (difference.value, difference.low, difference.high))
    if difference.reason is not None:
        return reached, f"{what} {value:+.1f}, {difference.reason}."
    outcome = "reached, no further seed is trained" if reached else "not yet" if done < len(seeds) else "not reached"
    return reached, f"{what} {value:+.1f} [{low:+.1f}, {high:+.1f}] at {level_text(level)}: {outcome}."


def begin(target: Target, out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return what ``out`` says of earlier looks.

    Raises :class:`~levelhead.types.ConfigError` if they had another target or other seeds: to change the plan after
    looking would spend the error probability twice.
    """
    plan = {"target": target.text, "error": ERROR, "seeds": list(seeds)}
    if not (out / LOOKS).exists():
        return plan | {"looks": []}
    kept = read_record(out / LOOKS, looks=list)
    if {key: kept.get(key) for key in plan} != plan:
        raise ConfigError(
            f"{out / LOOKS}: the looks so far were for {quoted(str(kept.get('target')))} with seeds "
            f"{kept.get('seeds')}. A stopping rule must not change after a look: use the same --until and --seeds, or "
            "another --out."
        )
    return kept


def comparisons_of(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of the comparisons that runs in ``folders`` belong to.

    These are the folders themselves, those of comparisons below them, and of a run in a comparison that comparison's.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        alone = (folder / CONFIG).exists()
        runs = [folder] if alone else [path.parent for path in sorted(folder.rglob(CONFIG))]
        made = [run.resolve() for run in runs]
        places = [run.parents[1] for run in made if PLACE.fullmatch(run.name)]
        for place in places if alone else [folder, *places]:
            if (place / GRID).exists() or (place / LOOKS).exists():
                found.setdefault(place.resolve(), place)
    return list(found.values())


def looks_of(places: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the plan and the looks of each comparison (:func:`comparisons_of`) that was looked at before its end."""
    return [read_record(place / LOOKS, looks=list) for place in places if (place / LOOKS).exists()]


def level_of(places: Sequence[Path]) -> float:
    """Return the level of the last look at comparisons; 0.95 if all looked at their end alone."""
    return max([1 - ERROR, *(float(one["looks"][-1]["level"]) for one in looks_of(places) if one["looks"])])


def margin_of(places: Sequence[Path]) -> float:
    """Return the equivalence margin, a share, of comparisons; without any, the default.

    Raises:
        ConfigError: the comparisons have different ones.
    """
    found = {read_grid(place / GRID).margin for place in places if (place / GRID).exists()}
    if len(found) > 1:
        raise ConfigError(
            f"The grids have different margins, {listed(sorted(found))} points: name one with `levelhead table "
            "--margin`, or give them apart."
        )
    return next(iter(found), Grid.margin) / 100
