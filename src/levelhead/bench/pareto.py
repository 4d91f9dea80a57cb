"""Accuracy against gaps as a picture: one mark a row, the rows that none beats, and the FACT line of the baseline.

After figure 2 of Lu, Wang, Wang, ICLR 2024, which has two lines: the empirical Pareto set of the runs, and the
model-specific frontier of Kim, Chen, Talwalkar (FACT, ICML 2020). Added: intervals in both directions, because most
corners of an empirical Pareto set are within the noise of rows and seeds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelhead.bench.frontier import GroupRates, fact_frontier, pareto_set
from levelhead.metrics import METRICS, Counts, estimate_to_dict
from levelhead.metrics.names import COMPARED
from levelhead.report import marks
from levelhead.report.text import level_text
from levelhead.storage import write_picture
from levelhead.types import ConfigError, DataError, Estimate, nearest, quoted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from levelhead.bench.comparison import Comparison
    from levelhead.bench.tables import RunSet

FloatArray = NDArray[np.float64]

LABEL_WIDTH = 34  # characters of a line in the legend: longer row names are broken
_MARKERS = "os^DvP<X>ph*dH"
_SHADES = ("black", "0.6")
_FACT_COLUMNS = {"accuracy", "equalized_odds"}


@dataclass(frozen=True)
class Frontier:
    """The FACT line of a row: what post-processing of its runs' predictions could reach on these rows.

    ``gaps`` (points,) are EOd gaps allowed, ``by_seed`` (seeds, points) the highest accuracy within each, as
    fractions. The line is the mean over seeds at equal gaps. It sees groups: ORACLE.
    """

    row: str
    gaps: FloatArray
    by_seed: FloatArray

    @property
    def accuracy(self) -> FloatArray:
        """Mean over the seeds, shape (points,)."""
        return self.by_seed.mean(0)

    @property
    def label(self) -> str:
        """How a legend names the line."""
        return f"ORACLE: best post-processing of {self.row} (FACT)"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict, in fractions."""
        return {
            "what": self.label,
            "row": self.row,
            "oracle": True,
            "equalized_odds": self.gaps.tolist(),
            "accuracy": self.accuracy.tolist(),
            "accuracy_by_seed": self.by_seed.tolist(),
        }


def baseline_rates(group: RunSet, baseline: str) -> list[tuple[GroupRates, int, int]]:
    """Return (FPR, TPR) by group of each run of a row, from its own predictions on the split.

    Beside the rates stand the rows of no such group, and how many of them are answered rightly.

    Args:
        group: runs on the same rows.
        baseline: the row's name as :meth:`RunSet.rows` gives it (a comparison has it in ``table.baseline``).

    Returns:
        one record a seed.

    Raises:
        ConfigError: there is no such row, or the classes are not two.
        DataError: fewer than two groups have this many rows of each class.
    """
    rows, classes, least = group.rows(), group.classes, max(1, group.min_count)
    if baseline not in rows:
        raise ConfigError(f"There is no variant {baseline!r}. {nearest(baseline, rows)}")
    if len(classes) != 2:
        raise ConfigError(f"The FACT line is defined for two classes; there are {len(classes)}.")
    found = []
    for run in rows[baseline]:
        frame, (named, left_out) = run.predictions, group.members(run)
        labels, predicted = frame["label"].to_numpy(), frame["prediction"].to_numpy()
        counts = Counts.from_rows(labels, predicted, named)
        if len(counts.classes) != 2:
            raise DataError(
                f"Every row of the {group.split} split is {quoted(counts.classes[0])}: no rate can be compared."
            )
        kept = [
            name
            for name, rows_of in zip(counts.groups, counts.cell_sizes, strict=True)
            if rows_of.min() >= least and name not in left_out
        ]
        if len(kept) < 2:
            raise DataError(f"fewer than two groups of {quoted(group.attribute)} have {least} rows of each class.")
        # Counts order classes by name; the positive one is the data set's second.
        rates = GroupRates.from_counts(counts.keep(kept), counts.classes.index(classes[1]))
        others = ~np.isin(named.astype(str), list(map(str, kept)))
        found.append((rates, int(others.sum()), int((labels == predicted)[others].sum())))
    return found


def baseline_frontier(group: RunSet, comparison: Comparison, points: int = 61) -> Frontier:
    """Compute the FACT line of the comparison's baseline, from a gap of 0 to the largest end of a row's interval.

    Each run's programme is solved with its own counts on the split; the line is the mean over the runs.
    Accuracy is that of all rows: those that no gap compares keep their predictions.

    Raises:
        DataError: as :func:`baseline_rates`.
        ConfigError: the comparison chose epochs or thresholds again: its rows are not the runs' own predictions.
    """
    if comparison.selection is not None or comparison.positive_rate is not None:
        raise ConfigError("The FACT line is of the runs' own predictions: compare without selection and threshold.")
    name = comparison.table.baseline
    rates = baseline_rates(group, name)
    ends = [row["equalized_odds"].estimate.high for row in comparison.table.rows.values()]
    gaps = np.linspace(0, np.nanmax(ends), points)
    lines = [(one.rows * fact_frontier(one, gaps) + right) / (one.rows + others) for one, others, right in rates]
    return Frontier(name, gaps, np.stack(lines))


@dataclass(frozen=True)
class Point:
    """A row of the comparison, in the plane; ``kept`` in the empirical Pareto set."""

    row: str
    label: str
    marks: list[str]
    oracle: str | None
    x: Estimate
    y: Estimate
    kept: bool
    far: bool = False  # from the others, and at chance: to show it would make them hard to distinguish

    @property
    def missing(self) -> str | None:
        """Why it cannot be drawn, or None."""
        for estimate in (self.x, self.y):
            if not estimate.defined:
                return estimate.reason or "undefined"
        return None

    @property
    def not_drawn(self) -> str:
        """A sentence on a row that a picture leaves out; empty for one that is drawn."""
        if self.missing is not None:
            return f"Not drawn: {self.label} ({self.missing})."
        place = f"{100 * self.x.value:.1f}, {100 * self.y.value:.1f}"
        return f"Outside the picture: {self.label}, at {place}." if self.far else ""


def points_of(comparison: Comparison, x: str, y: str) -> list[Point]:
    """Return every row, in the table's order.

    No marked row is part of the Pareto set, and none keeps another out. Beside rows that see groups no method without
    demographics might be in it, though they answer to another question; rows at chance, or not yet distinguished from
    it,
    may have small gaps for a bad reason.
    """
    rows = comparison.table.rows
    plain = [name for name in rows if not comparison.marks(name)]
    pairs = np.array([[rows[name][x].estimate.value, rows[name][y].estimate.value] for name in plain]).reshape(-1, 2)
    kept = dict(zip(plain, pareto_set(pairs, (METRICS[x].larger_is_better, METRICS[y].larger_is_better)), strict=True))
    points = [
        Point(
            name,
            comparison.label(name),
            comparison.marks(name),
            comparison.oracle[name],
            figures[x].estimate,
            figures[y].estimate,
            bool(kept.get(name, False)),
        )
        for name, figures in rows.items()
    ]
    near = [point for point in points if point.missing is None and marks.AT_CHANCE not in point.marks]
    return [replace(point, far=_doubles(point, near)) for point in points]


def _doubles(point: Point, near: Sequence[Point]) -> bool:
    """Return whether a row at chance would double what is shown of those ``near``."""
    if not near or marks.AT_CHANCE not in point.marks or point.missing is not None:
        return False

    def doubles(value: Estimate, others: Sequence[Estimate]) -> bool:
        low, high = min(each.low for each in others), max(each.high for each in others)
        return max(high, value.value) - min(low, value.value) > 2 * (high - low)

    return doubles(point.x, [each.x for each in near]) or doubles(point.y, [each.y for each in near])


def check_picture(path: Path | None, x: str, y: str, frontier: Frontier | None = None) -> None:
    """Raise :class:`ConfigError` for a path, columns or a frontier of which no picture can be made."""
    for option, column in (("--x", x), ("--y", y)):
        if column not in COMPARED:
            raise ConfigError(f"{option}: there is no column {column!r}. {nearest(column, COMPARED)}")
    if x == y:
        raise ConfigError(f"--x and --y are both {x!r}: choose two columns out of {', '.join(COMPARED)}.")
    if frontier is not None and not has_frontier(x, y):
        raise ConfigError("The FACT line is of accuracy and equalized_odds; these columns have none.")
    if path is not None and path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(f"--out {path}: the picture's path must end in .png or .svg.")


def has_frontier(x: str, y: str) -> bool:
    """Say whether the FACT line belongs into a picture of these two columns."""
    return {x, y} == _FACT_COLUMNS


def pareto_to_dict(
    comparison: Comparison, *, x: str = "equalized_odds", y: str = "accuracy", frontier: Frontier | None = None
) -> dict[str, Any]:
    """Return what :func:`draw_pareto` draws as a JSON-able dict of aggregates, in fractions."""
    check_picture(None, x, y, frontier)
    return {
        "title": comparison.title,
        "data": comparison.data,
        "split": comparison.split,
        "attribute": comparison.attribute,
        "rows": comparison.rows,
        "level": comparison.table.level,
        "intervals": f"{comparison.sources}; per column",
        "x": x,
        "y": y,
        "points": [
            {
                "row": point.row,
                "label": point.label,
                "marks": point.marks,
                "oracle": point.oracle,
                "seeds": comparison.seeds[point.row],
                x: estimate_to_dict(point.x),
                y: estimate_to_dict(point.y),
                "in_pareto_set": point.kept,
                "outside_the_picture": point.far,
            }
            for point in points_of(comparison, x, y)
        ],
        "frontier": None if frontier is None else frontier.to_dict(),
    }


def draw_pareto(
    comparison: Comparison,
    path: Path,
    *,
    x: str = "equalized_odds",
    y: str = "accuracy",
    frontier: Frontier | None = None,
) -> None:
    """Draw the rows of a comparison in the plane of two columns, in percent, readable in greyscale.

    One symbol a row, the mean over its seeds, with its interval over rows and seeds in each direction; a step line
    through the rows without a mark (see :mod:`levelhead.report.marks`) that no other such row beats in both columns;
    rows that see groups, marked ORACLE, as open symbols; and the FACT line where one is given. A row at chance that
    lies far from the others is named below the picture. Equal comparisons give equal bytes.

    Args:
        comparison: the rows.
        path: ends in .png or .svg.
        x: a column of :data:`levelhead.metrics.names.COMPARED`.
        y: another one.
        frontier: of :func:`baseline_frontier`; for accuracy and equalized_odds alone.

    Raises:
        ConfigError: an ending or column that there is not, or a frontier with other columns.
        DataError: no row has both figures.
    """
    import matplotlib

    check_picture(path, x, y, frontier)
    with matplotlib.rc_context({"svg.hashsalt": "levelhead", "font.size": 9}):
        write_picture(path, _draw(comparison, x, y, frontier))


def _draw(comparison: Comparison, x: str, y: str, frontier: Frontier | None) -> Figure:
    from matplotlib.figure import Figure

    points = points_of(comparison, x, y)
    drawn = [point for point in points if not point.not_drawn]
    if not drawn:
        raise DataError(f"No variant has both {COMPARED[x]} and {COMPARED[y]}: {points[0].missing}.")
    # A tall legend needs a tall figure: its lines would otherwise run off the paper.
    lines = sum(len(_wrapped(point.label)) for point in drawn) + 8
    figure = Figure(figsize=(9, max(5.4, 1.6 + 0.19 * lines)), layout="constrained")
    panel = figure.subplots()
    for position, point in enumerate(drawn):
        _mark(panel, position, point)
    # The marks and their intervals decide what is seen; the lines run on to the edges.
    limits = panel.get_xlim(), panel.get_ylim()
    _staircase(panel, [point for point in drawn if point.kept], x, y, limits)
    if frontier is not None:
        across, up = frontier.gaps, frontier.accuracy
        if x == "accuracy":
            across, up = up, across
        panel.plot(100 * across, 100 * up, "--", color="0.35", linewidth=1.4, zorder=2.5, label=_lines(frontier.label))
        limits = _widened(limits, 100 * across, 100 * up, x, y)
    panel.set_xlim(limits[0])
    panel.set_ylim(limits[1])
    panel.set_xlabel(_axis(x))
    panel.set_ylabel(_axis(y))
    panel.grid(color="0.93", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.set_title("\n".join(textwrap.wrap(comparison.title, 75)), fontsize=10, loc="left")
    figure.legend(loc="outside right upper", frameon=False, fontsize=8.5, handlelength=2.4, labelspacing=0.6)
    figure.supxlabel(_caption(comparison, points, frontier), fontsize=8, color="0.25", x=0.01, ha="left")
    return figure


def _mark(panel: Axes, position: int, point: Point) -> None:
    """Draw one row: thin bars for the intervals, and the mark over them."""
    column, height = 100 * point.x.value, 100 * point.y.value
    panel.hlines(height, 100 * point.x.low, 100 * point.x.high, color="0.78", linewidth=0.8, zorder=1)
    panel.vlines(column, 100 * point.y.low, 100 * point.y.high, color="0.78", linewidth=0.8, zorder=1)
    shade = "white" if point.oracle else _SHADES[position % len(_SHADES)]
    panel.plot(
        column,
        height,
        _MARKERS[position % len(_MARKERS)],
        markersize=8,
        markerfacecolor=shade,
        markeredgecolor="black",
        markeredgewidth=1.4 if point.oracle else 0.7,
        zorder=4,
        label=_lines(point.label),
    )


def _staircase(
    panel: Axes, kept: Sequence[Point], x: str, y: str, limits: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    """Join the Pareto set: at each x, the best y of the rows at least as good in x, out to the panel's edges."""
    if not kept:
        return
    places = sorted((100 * point.x.value, 100 * point.y.value) for point in kept)
    across, up = [place[0] for place in places], [place[1] for place in places]
    (left, right), (bottom, top) = limits
    worst = bottom if METRICS[y].larger_is_better else top  # where no row is that good in x
    if not METRICS[x].larger_is_better:
        across, up = [across[0], *across, right], [worst, *up, up[-1]]
    else:
        across, up = [left, *across, across[-1]], [up[0], *up, worst]
    panel.plot(
        across,
        up,
        drawstyle="steps-pre" if METRICS[x].larger_is_better else "steps-post",
        color="black",
        linewidth=1.1,
        zorder=2,
        label=_lines("Pareto set of the measured means, of variants without a mark"),
    )


def _widened(
    limits: tuple[tuple[float, float], tuple[float, float]], across: ArrayLike, up: ArrayLike, x: str, y: str
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Let the better ends of the FACT line into the panel; its worse end may be far away, and hide the rows."""
    result = []
    for (low, high), values, column in zip(limits, (across, up), (x, y), strict=True):
        margin = 0.03 * (high - low)
        if not METRICS[column].larger_is_better:
            result.append((min(low, float(np.min(values)) - margin), high))
        else:
            result.append((low, max(high, float(np.max(values)) + margin)))
    return result[0], result[1]


def _axis(column: str) -> str:
    return f"{COMPARED[column]}, percent ({'larger' if METRICS[column].larger_is_better else 'smaller'} is better)"


def _caption(comparison: Comparison, points: Sequence[Point], frontier: Frontier | None) -> str:
    """Say what marks, bars and lines are."""
    sentences = [
        f"Marks: mean over {comparison.number_of_seeds}.",
        f"Bars: {level_text(comparison.table.level)} interval over {comparison.sources}, per axis.",
        "Variants with overlapping bars may swap places in the Pareto set.",
    ]
    used = [mark for mark in marks.MEANINGS if any(mark in point.marks for point in points)]
    if used:
        drawn = " ORACLE variants are drawn as open marks." if marks.ORACLE in used else ""
        sentences.append(f"Marked variants are not in the Pareto set.{drawn}")
        sentences += [marks.meaning(mark) for mark in used]
    if frontier is not None:
        how = "" if len(frontier.by_seed) == 1 else f", mean over its {len(frontier.by_seed)} seeds"
        sentences.append(
            f"FACT: highest accuracy within an EOd gap that group-wise post-processing of {frontier.row} can reach, "
            f"computed on these {comparison.whose_rows} for each seed{how}; no interval."
        )
    sentences += [point.not_drawn for point in points if point.not_drawn]
    return "\n".join(textwrap.wrap(_plain(" ".join(sentences)), 150))


def _wrapped(label: str) -> list[str]:
    return textwrap.wrap(label, LABEL_WIDTH)


def _lines(label: str) -> str:
    text = _plain("\n".join(_wrapped(label)))
    # Matplotlib leaves labels that begin with an underscore out of legends.
    return f" {text}" if text.startswith("_") else text


def _plain(text: str) -> str:
    """Keep matplotlib from reading what lies between dollar signs as mathematics."""
    return text.replace("$", r"\$")
