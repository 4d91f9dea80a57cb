"""The panels that answer a result's question: a dot and an interval for each group, or for each pair of groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from levelhead.metrics.names import METRICS
from levelhead.report import blocks
from levelhead.report.rows import Row
from levelhead.report.sentences import Words
from levelhead.report.text import Record, digits, level_text, number, short
from levelhead.report.titles import question, title_of
from levelhead.report.wide import Pair
from levelhead.types import Estimate

MOST_SUBJECTS = 30
"""Most groups or pairs that are drawn."""
NEUTRAL_ONE = ("ratio", "representation", "exposure", "rates")
"""Ends of the names of figures for which 1 is the neutral value; of differences it is 0."""
BESIDE = ("_by_", "_labelled_rows_alone", "_weighted")
"""What the names of figures go on with that are drawn beside the answer, as open marks."""
BASES = {"share_of_top": "share_of_rows"}
"""What a figure is drawn beside; others have an ideal, if any."""


class Subject(NamedTuple):
    """A group of a column, or two of them, and what is known of it by the name of the figure."""

    column: str
    name: str
    found: Mapping[str, Row]

    @property
    def rows(self) -> int:
        """How many rows it has: those that its first figure is based on."""
        return next(iter(self.found.values())).found.n


def subjects_of(rows: Sequence[Row], *, pairs: bool) -> list[Subject]:
    """Return the groups of all columns, or the pairs of groups, each with its figures."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row.group is not None and isinstance(row.group, Pair) == pairs:
            found.setdefault((row.column, row.group), {}).setdefault(row.figure, row)
    return [Subject(column, name, figures) for (column, name), figures in found.items()]


def in_order(subjects: Sequence[Subject], figure: str, first: str, order: int = -1) -> list[Subject]:
    """Return subjects by column, beginning with ``first``; in each those without the figure last.

    ``order``: -1 for the highest figure first, 1 for the lowest, 0 as they are.
    """
    columns = list(dict.fromkeys([first, *(one.column for one in subjects)]))

    def place(one: Subject) -> tuple[int, float]:
        value = _new(one, figure).value
        return columns.index(one.column), math.inf if math.isnan(value) else order * value

    return sorted(subjects, key=place)


def chart(
    subjects: Sequence[Subject], figures: Sequence[str], record: Record, marks: Mapping[int, str], each: str
) -> Record:
    """Return a panel for each figure of the same subjects.

    Args:
        subjects: in the order in which they are drawn.
        figures: names, that of the headline first.
        record: the JSON of the result.
        marks: by place, the class of each subject that the headline names.
        each: what a subject is.
    """
    half = (MOST_SUBJECTS - len(marks)) // 2
    kept = {*marks, *range(len(subjects))[:half], *range(len(subjects))[-half:]}
    idle = {at for at, one in enumerate(subjects) if "ideal" in one.found and not one.found["ideal"].found.defined}
    shown = [(one, marks.get(at, "")) for at, one in enumerate(subjects) if at in kept - idle]
    panels = [_panel(figure, shown, record, each) for figure in figures]
    lines = [line for one in panels for line in one["rows"]]
    told = [f"Lines are {level_text(record.get('level') or 0.95)} intervals."]
    told = told * any(line.get("low") is not None for line in lines)
    told += ["Sorted by the first panel."] * (each in ("group", "variant") and len(subjects) > 1)
    told += [record["drawn"]] if "drawn" in record else []
    told += ["Hollow marks are inconclusive, which does not mean equal."] * any(line.get("hollow") for line in lines)
    told += ["Broken lines are bounds."] * any(line.get("wide") for line in lines)
    told += ["Arrows run from the old to the new figure."] * any(line.get("old") is not None for line in lines)
    beside = "ideals" if each == "score" else "to compare with; they are not the answer"
    told += [f"Open marks are {beside}."] * any(line.get("beside") for line in lines)
    pairs = any(isinstance(one.name, Pair) for one in subjects)
    if pairs:  # differences in points, which are read against each other
        ends = [0.0, *(end for line in lines if "head" not in line for end in _ends(line))]
        panels = [one | {"axis": blocks.axis(ends, 4)} for one in panels]
    if each == "group" and not pairs:
        told.append("The number beside a name counts its rows.")
    if len(kept) < len(subjects):
        told.append(f"{len(kept)} of {len(subjects):,} are drawn: the first, the last, and those named above.")
    caption = f"Each {'pair' if pairs else each}" + ", by each question" * (pairs or each == "group")
    return blocks.panels(caption, panels, " ".join(told))


def _panel(figure: str, shown: Sequence[tuple[Subject, str]], record: Record, each: str) -> Record:
    lines, several = [_line(figure, *one, each) for one in shown], len({one.column for one, _ in shown}) > 1
    ends = [end for line in lines for end in _ends(line)]
    fraction = all(one.found[figure].fraction for one, _ in shown if figure in one.found)
    pairs = any(isinstance(one.name, Pair) for one, _ in shown)
    gap = pairs or "change" in figure.lower() or (figure in METRICS and METRICS[figure].kind == "gap")
    share = fraction and not gap and all(0 <= end <= 100 for end in ends)
    ratio = not fraction and figure.endswith(NEUTRAL_ONE)
    none = share or figure == "mean_prediction" or each == "score"
    neutral = None if none else 1.0 if ratio else 0.0
    rows: list[Record] = []
    for at, ((subject, _), line) in enumerate(zip(shown, lines, strict=True)):
        if several and (not at or shown[at - 1][0].column != subject.column):
            rows.append({"head": short(subject.column, 60)})
        rows.append(line)
    own = record.get("titles") or {}
    title, about = (title_of(figure, own), "") if pairs or own else question(figure, Words(record))
    axis = blocks.SHARES if share else blocks.axis([*ends, *([] if neutral is None else [neutral])], 4)
    longest = max((len(word) for line in lines for word in line["text"].split()), default=0)
    return {"title": title, "about": about, "axis": axis, "neutral": neutral, "rows": rows, "longest": longest}


def _line(figure: str, subject: Subject, mark: str, each: str) -> Record:
    """Return what a panel draws of one subject, in the unit of the axis; None where there is nothing."""
    found, row = _new(subject, figure), subject.found.get(figure)
    scale = 100 if row is None or row.fraction else 1
    bounds, old = subject.found.get(f"{figure}_bounds"), subject.found.get(f"{figure}_old")
    low, high = (_scaled(end, scale) for end in (found.low, found.high))
    wide = [] if bounds is None else [scale * bounds.found.low, scale * bounds.found.high]
    text = " to ".join(_text(end, figure, scale) for end in wide) or "–"
    text = _text(scale * found.value, figure, scale) if found.defined else text
    said = f"{text}, interval {_text(low, figure, scale)} to {_text(high, figure, scale)}" if low is not None else text
    if not found.defined:
        said = f"bounds {text}" if wide else str(found.reason or "not compared")
    return {
        "name": short(subject.name, 60),
        "n": f"{subject.rows:,}" if each == "group" and not isinstance(subject.name, Pair) else "",
        "mark": mark,
        "hollow": row is not None and row.decided is False,
        "value": _scaled(found.value, scale),
        "low": low,
        "high": high,
        "text": text,
        "said": said,
        "old": None if old is None else _scaled(old.found.value, scale),
        "beside": [at for at in (_scaled(one.value, scale) for one in _beside(subject, figure)) if at is not None],
        "wide": wide,
    }


def _new(subject: Subject, figure: str) -> Estimate:
    """Return a figure of a subject: of two models the new one's."""
    row = subject.found.get(figure) or subject.found.get(f"{figure}_new")
    return Estimate.undefined("not compared") if row is None else row.found


def _beside(subject: Subject, figure: str) -> Iterator[Estimate]:
    """Yield what is drawn beside a figure: naive answers, and of a share of the top that of all rows."""
    for name, row in subject.found.items():
        if name.startswith(tuple(figure + one for one in BESIDE)) or name == BASES.get(figure, "ideal"):
            yield row.found


def _ends(line: Record) -> list[float]:
    ends = [*(line[key] for key in ("value", "low", "high", "old")), *line["beside"], *line["wide"]]
    return [end for end in ends if end is not None]


def _scaled(value: float, scale: float) -> float | None:
    return scale * value if math.isfinite(value) else None


def _text(value: float | None, figure: str, scale: float) -> str:
    """Return a number as its panel shows it: percent with one digit, a ratio with two, any other unit with three."""
    if value is None:
        return ""
    ratio, signed = scale == 1 and figure.endswith(NEUTRAL_ONE), figure.endswith("_change")
    return number(value, 2 if ratio else 1, signed=signed) if ratio or scale > 1 else digits(value)
