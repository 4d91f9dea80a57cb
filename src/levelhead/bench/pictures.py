"""Pictures of comparisons, readable in greyscale and on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from levelhead.bench.comparison import Comparison
from levelhead.metrics import JointRow
from levelhead.metrics.names import COMPARED
from levelhead.report import marks
from levelhead.report.text import level_text
from levelhead.storage import write_picture

WIDTH, MARGIN, BETWEEN, LETTER = 5.8, 0.08, 0.25, 0.08  # inches: LETTER is the mean width of one
HEAD, TEXTS, LINE, FOOT = 0.42, 0.6, 0.235, 0.8  # inches: above all, above a block, a method, below all
SIZE = 10  # points: at 390 pixels for the whole width still 9 pixels high
WORDS = {
    marks.ORACLE: "sees groups",
    marks.FEW_GROUPS: "sees few groups",
    marks.IDENTITIES: "sees ids of people",
    marks.AT_CHANCE: "at chance",
    marks.FEW_SEEDS: "too few seeds",
}


def draw_comparisons(
    comparisons: Sequence[Comparison],
    titles: Sequence[str],
    sentences: Sequence[str],
    path: Path,
    metrics: Sequence[str] = ("accuracy", "equalized_odds"),
) -> None:
    """Draw a block of dots for each comparison: one line a method, one panel a metric, in percent.

    Above a block stand its title and a sentence. A dot is the mean over seeds, its bar the interval over rows and
    seeds, the dashed line the baseline's mean; methods that see groups have hollow dots.
    """
    from matplotlib.figure import Figure

    heights = [TEXTS + LINE * len(comparison.table.rows) for comparison in comparisons]
    height = HEAD + sum(heights) + FOOT
    names = [_name(comparison, method) for comparison in comparisons for method in comparison.table.rows]
    leftmost = 2 * MARGIN + LETTER * max(map(len, names))
    wide = (WIDTH - leftmost - MARGIN - BETWEEN * (len(metrics) - 1)) / len(metrics)
    figure = Figure(figsize=(WIDTH, height))

    def write(left: float, top: float, words: str, **style: Any) -> None:
        figure.text(left / WIDTH, 1 - top / height, words, va="top", **{"fontsize": SIZE, **style})

    lefts = [leftmost + column * (wide + BETWEEN) for column in range(len(metrics))]
    for left, metric in zip(lefts, metrics, strict=True):
        meaning = "0 is no gap" if COMPARED[metric].endswith("gap") else "more is better"
        write(left + wide / 2, 0.06, f"{COMPARED[metric]}, %\n{meaning}", ha="center")
    first: list[Any] = [None] * len(metrics)
    top = HEAD
    for comparison, title, sentence, tall in zip(comparisons, titles, sentences, heights, strict=True):
        write(MARGIN, top + 0.12, title, weight="bold", fontsize=SIZE + 1)
        write(MARGIN, top + 0.33, sentence)
        bottom = top + tall
        for column, (left, metric) in enumerate(zip(lefts, metrics, strict=True)):
            place = (left / WIDTH, 1 - bottom / height, wide / WIDTH, (tall - TEXTS) / height)
            panel = figure.add_axes(place, sharex=first[column])
            first[column] = first[column] or panel
            _draw_panel(panel, comparison, metric)
            panel.tick_params(labelleft=column == 0, labelbottom=comparison is comparisons[-1], labelsize=SIZE)
        top = bottom
    seeds = " or ".join(map(str, sorted({len(each) for one in comparisons for each in one.seeds.values()})))
    write(
        MARGIN,
        top + 0.32,
        f"Dots: mean of {seeds} seeds. Bars: {level_text(comparisons[0].table.level)} intervals over test pictures\n"
        f"and seeds. Dashed: {comparisons[0].table.baseline}. Hollow: the method saw the groups.",
    )
    write_picture(path, figure, 200)


def _draw_panel(panel: Any, comparison: Comparison, metric: str) -> None:
    """Draw one metric of one comparison, a line a method, the first at the top."""
    rows = comparison.table.rows
    baseline = rows[comparison.table.baseline][metric].estimate
    if baseline.defined:
        panel.axvline(100 * baseline.value, color="0.55", linestyle=(0, (4, 3)), linewidth=1)
    for height, (method, row) in enumerate(rows.items()):
        if row[metric].estimate.defined:
            _draw_dot(panel, row[metric], height, hollow=comparison.oracle[method] is not None)
    panel.set_yticks(range(len(rows)), [_name(comparison, method) for method in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.tick_params(length=0)
    panel.grid(axis="x", color="0.88")
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "bottom", "left"]].set_visible(False)
    panel.set_facecolor("0.97")


def _name(comparison: Comparison, method: str) -> str:
    return ", ".join([method, *(WORDS.get(mark, mark) for mark in comparison.marks(method))])


def _draw_dot(panel: Any, row: JointRow, height: int, *, hollow: bool) -> None:
    figure = row.estimate
    panel.plot([100 * figure.low, 100 * figure.high], [height, height], color="0.15", linewidth=1.6)
    panel.plot(
        [100 * figure.value],
        [height],
        marker="o",
        markersize=7,
        markeredgewidth=1.6,
        markeredgecolor="0.1",
        markerfacecolor="white" if hollow else "0.1",
    )
