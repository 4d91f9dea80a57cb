"""The figures that the paper published, from ``published.csv`` beside this file, in percent."""

from __future__ import annotations

import csv
import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path

from scipy import stats

SEEDS = 3
"""Trainings behind each published mean, where a deviation is given (section 5 of the paper)."""


@dataclass(frozen=True)
class Published:
    """One published figure: the mean over three seeds and their standard deviation, None where there is one seed."""

    mean: float
    deviation: float | None = None

    @property
    def half_width(self) -> float:
        """Half the width of the 95% interval of the mean over seeds (Student's t); NaN without a deviation.

        The paper gives nothing from which the noise of the test rows could be inferred, so it is not in it.
        """
        if self.deviation is None:
            return math.nan
        return float(stats.t.ppf(0.975, SEEDS - 1)) * self.deviation / math.sqrt(SEEDS)

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def present_row(row: str) -> str:
    """Return a row of the paper's grids under its present name: results of earlier versions call levelhead's DAM so.

    Examples:
        >>> present_row("DAM-FT"), present_row("DAM (paper)"), present_row("ERM")
        ('DAM (levelhead)-FT', 'DAM (paper)', 'ERM')
    """
    return re.sub(r"^DAM(?! \()", "DAM (levelhead)", row)


def published_row(row: str) -> str:
    """Return the published row that a row here stands beside: its name without the source of its options.

    Examples:
        >>> published_row("DAM (paper)-FT"), published_row("ERM")
        ('DAM-FT', 'ERM')
    """
    return re.sub(r" \([^)]*\)", "", row)


@functools.cache
def published(item: str, backbone: str = "") -> dict[str, dict[str, Published]]:
    """Return ``{method: {figure: Published}}`` of a table such as ``table3`` and, where it has two, a backbone.

    Figures are named as in :data:`levelhead.metrics.names.METRICS` and in ``cost.json``. A figure of the paper, such as
    ``figure2``, has none.
    """
    found: dict[str, dict[str, Published]] = {}
    with (Path(__file__).parent / "published.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (row["item"], row["backbone"]) == (item, backbone):
                deviation = float(row["deviation"]) if row["deviation"] else None
                found.setdefault(row["method"], {})[row["figure"]] = Published(float(row["mean"]), deviation)
    return found
