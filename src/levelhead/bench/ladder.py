"""What is left of a gap by what a variant knew: labels, a declared view, the groups of a few rows, those of all."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from levelhead.bench.comparison import Comparison
from levelhead.report import marks
from levelhead.report.sentences import not_learned
from levelhead.storage import write_picture
from levelhead.types import DataError, Estimate, printable

RUNGS = (
    "class labels only",
    "a declared part of the input",
    "ids of people",
    "group labels of a few rows",
    "group labels of many rows",
    "the group, also in prediction",
)
"""What a variant knew, from least to most."""

BUDGET = 0.005
"""Largest loss of accuracy, a fraction, for a full mark."""

SYMBOLS = "osD^vP*Xh<>dp8H"
WIDTH, LINE, TEXT, FOOT = 7.2, 0.24, 0.17, 0.6  # inches


@dataclass(frozen=True)
class Step:
    """One variant on one task: what is ``left`` of the baseline's gap in equalized odds, as a share of it.

    ``rung`` is the position in :data:`RUNGS`, ``accuracy`` the difference to the baseline's.
    """

    task: str
    name: str
    rung: int
    left: Estimate
    accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict."""
        left = {"value": self.left.value, "low": self.left.low, "high": self.left.high} if self.left.defined else None
        return {"task": self.task, "variant": self.name, "knew": RUNGS[self.rung], "left": left} | {
            "accuracy_change": self.accuracy
        }


def steps_of(comparison: Comparison, task: str) -> list[Step]:
    """Return a step for each row of a comparison but the baseline, from least to most knowledge.

    The interval is that of the difference, divided by the baseline's gap, whose own noise is not in it.

    Raises:
        DataError: the baseline is not above chance, or has no gap, or an undefined one.
    """
    rows, baseline = comparison.table.rows, comparison.table.baseline
    if not comparison.learned:
        raise DataError(f"{printable(task)}: {not_learned(baseline)}")
    whole = rows[baseline]["equalized_odds"].estimate
    if not whole.defined or whole.value <= 0:
        raise DataError(
            f"{printable(task)}: {printable(baseline)} has no gap in equalized odds to reduce: "
            f"{whole.reason or 'it is 0'}."
        )
    found = []
    for name, row in rows.items():
        difference, accuracy = row["equalized_odds"].difference, row["accuracy"].difference
        if difference is None or accuracy is None:
            continue
        left = replace(
            difference,
            **{end: 1 + getattr(difference, end) / whole.value for end in ("value", "low", "high")},
        )
        found.append(Step(task, comparison.label(name), _rung(comparison, name), left, accuracy.value))
    return sorted(found, key=lambda step: step.rung)


def _rung(comparison: Comparison, name: str) -> int:
    rows_marks = comparison.marks(name)
    order = (marks.DECLARES, marks.IDENTITIES, marks.FEW_GROUPS, marks.ORACLE)
    return max((rung for rung, mark in enumerate(order, start=1) if mark in rows_marks), default=0)


def draw_ladder(steps: Sequence[Step], path: Path, *, title: str, notes: Sequence[str] = ()) -> None:
    """Draw one line a variant, from least to most knowledge, and on it one mark a task: what is left of the gap.

    Full marks cost at most half a point of accuracy, hollow ones more. With several tasks a bar shows their median.
    Equal steps give equal bytes.

    Args:
        steps: in the order of the lines; a variant may stand there once a task.
        path: ends in .png or .svg.
        title: above the picture.
        notes: sentences below it.

    Raises:
        DataError: no step is defined.
    """
    import matplotlib
    import numpy as np
    from matplotlib.figure import Figure
    from matplotlib.transforms import blended_transform_factory

    defined = [step for step in steps if step.left.defined]
    if not defined:
        raise DataError("No variant's gap in equalized odds can be compared with the baseline's.")
    tasks = list(dict.fromkeys(step.task for step in defined))
    lines: list[tuple[int, str]] = sorted(dict.fromkeys((step.rung, step.name) for step in defined), key=lambda x: x[0])
    rungs = list(dict.fromkeys(rung for rung, _ in lines))
    places, top = {}, 0.0
    headings = {}
    for rung in rungs:
        headings[rung] = top
        top += 1
        for each in (line for line in lines if line[0] == rung):
            places[each], top = top, top + 1
    foot = FOOT + TEXT * (sum(len(textwrap.wrap(note, 100)) for note in notes) + (len(tasks) > 1) * -(-len(tasks) // 3))
    heading = textwrap.wrap(title, 86)
    height = 0.3 + TEXT * len(heading) + LINE * top + foot
    with matplotlib.rc_context({"svg.hashsalt": "levelhead", "font.size": 9}):
        figure = Figure(figsize=(WIDTH, height))
        longest = max(len(name) for _, name in lines)
        left = min(0.5, (0.3 + 0.075 * longest) / WIDTH)
        panel = figure.add_axes((left, foot / height, 0.97 - left, LINE * top / height))
        for step in defined:
            place, symbol = places[step.rung, step.name], SYMBOLS[tasks.index(step.task) % len(SYMBOLS)]
            full = step.accuracy >= -BUDGET - 1e-12
            if len(tasks) == 1:
                panel.plot([100 * step.left.low, 100 * step.left.high], [place, place], color="0.6", linewidth=1.2)
            panel.plot(
                100 * step.left.value,
                place,
                symbol,
                color="0.15",
                markerfacecolor="0.35" if full else "white",
                markersize=5.5,
                alpha=0.9,
                clip_on=False,
            )
        if len(tasks) > 1:
            for line, place in places.items():
                middle = 100 * np.median([step.left.value for step in defined if (step.rung, step.name) == line])
                panel.plot([middle, middle], [place - 0.38, place + 0.38], color="#b3541e", linewidth=2.6)
        panel.axvline(100, color="0.4", linewidth=1, linestyle="--")
        panel.set_ylim(top, -0.2)
        panel.set_yticks(list(places.values()), [name for _, name in places])
        panel.set_xlim(left=min(0, *(100 * step.left.value for step in defined)))
        across = blended_transform_factory(figure.transFigure, panel.transData)
        for rung, place in headings.items():
            panel.text(0.01, place, RUNGS[rung], transform=across, va="center", weight="bold")
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color="0.92")
        panel.set_axisbelow(True)
        panel.set_xlabel("Remaining EOd gap, % of the baseline's (dashed: the baseline)")
        figure.text(0.01, 1 - 0.1 / height, "\n".join(heading), va="top", weight="bold", fontsize=10)
        if len(tasks) > 1:
            marks_of_tasks = [
                panel.plot([], [], SYMBOLS[number % len(SYMBOLS)], color="0.15", markerfacecolor="0.35", label=task)[0]
                for number, task in enumerate(tasks)
            ]
            figure.legend(
                handles=marks_of_tasks,
                loc="lower left",
                ncols=3,
                frameon=False,
                fontsize=8,
                bbox_to_anchor=(0, (TEXT * sum(len(textwrap.wrap(note, 100)) for note in notes) + 0.1) / height),
            )
        text = "\n".join(line for note in notes for line in textwrap.wrap(note, 100))
        figure.text(0.01, 0.08 / height, text, va="bottom", fontsize=8, color="0.25")
        for side in ("top", "right", "left"):
            panel.spines[side].set_visible(False)
        write_picture(path, figure)
