"""The parts that a page is built of, as plain dicts: tables, panels, planes, lists. ``page`` draws them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelhead.report.text import LONGEST_SENTENCE, Record, number, short
from levelhead.report.text import digits as of_any_unit
from levelhead.types import Estimate

SHARES: Record = {"low": 0.0, "high": 100.0, "ticks": [{"at": at, "text": str(at)} for at in (0, 50, 100)]}
"""The axis of shares in percent, the same in all panels of a chart."""
_STEPS = (1, 2, 2.5, 5, 10)
_PLANE = (300, 300)
"""Width and height, in pixels, of the narrowest plane: labels that do not meet there do not meet anywhere."""


def cell(text: object = "", *sub: object, mark: str = "", quiet: bool = False) -> Record:
    """Return a table's cell: a text, smaller lines below, and a mark beside it."""
    return {
        "text": short(text, LONGEST_SENTENCE),
        "sub": [short(line, LONGEST_SENTENCE) for line in sub if line],
        "mark": mark,
        "quiet": quiet,
    }


def undefined_cell(reason: str | None) -> Record:
    """Return the cell of a figure that is not determined: the reason stands beside it."""
    return cell("undefined", reason or "no reason was recorded", quiet=True) | {"undefined": True}


def no_cell() -> Record:
    """Return the cell of what there is not."""
    return cell("–", quiet=True)


def figure_cell(
    found: Estimate,
    *,
    fraction: bool = True,
    ratio: bool = False,
    digits: int = 1,
    signed: bool = False,
    brackets: bool = False,
    mark: str = "",
) -> Record:
    """Return a figure with its interval or bounds below, or why it is undefined.

    A ``fraction`` is shown in percent, with this many ``digits``, a ``ratio`` with two, and any other number with three
    significant ones. ``brackets``: around an interval, as changes have them. ``mark`` stands beside the figure.
    """
    if not found.defined and math.isnan(found.low):
        return undefined_cell(found.reason)

    def text(value: float) -> str:
        if fraction or ratio:
            return number(100 * value, digits, signed=signed) if fraction else number(value, 2)
        return of_any_unit(value)

    ends = [text(end) if math.isfinite(end) else "" for end in (found.low, found.high)]
    between = (" to " if signed or any(end.startswith("−") for end in ends) else "–").join(ends)
    if brackets:
        between = f"[{', '.join(ends)}]"
    between = between if any(ends) else "no interval" * brackets
    return cell(text(found.value), between, mark=mark) if found.defined else cell(between)


def panels(caption: str, drawn: Sequence[Record], about: str) -> Record:
    """Return panels beside each other, of the same rows: a mark with its interval for each (``report.charts``)."""
    return {"type": "panels", "caption": caption, "about": about, "panels": list(drawn)}


def maps(caption: str, drawn: Sequence[tuple[str, NDArray[Any], float]], about: str, *, columns: int) -> Record:
    """Return grids of fractions in shades, this many ``columns`` beside each other.

    Each has a title, its values (down, across), and the value that is darkest; one that holds NaN is undefined.
    """
    found = []
    for title, values, darkest in drawn:
        cells = [
            {"x": x, "y": y, "shade": abs(value) / (darkest or 1), "less": bool(value < 0), "text": number(100 * value)}
            for (y, x), value in np.ndenumerate(values)
            if np.isfinite(values).all()
        ]
        found.append({"title": title, "down": len(values), "across": values.shape[1], "cells": cells})
    return {"type": "maps", "caption": caption, "about": about, "columns": columns, "maps": found}


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[tuple[object, Sequence[Record]] | tuple[object, Sequence[Record], str]],
    *,
    notes: Sequence[str] = (),
    text_columns: Sequence[int] = (),
) -> Record:
    """Return a table; a row is its head and cells, and maybe a note on it.

    ``text_columns`` counts columns from 0, the head among them, whose cells are words.
    """
    return {
        "type": "table",
        "caption": short(caption, LONGEST_SENTENCE),
        "columns": [{"title": short(title, 160)} for title in columns],
        "rows": [{"head": short(head), "cells": list(cells), "note": "".join(note)} for head, cells, *note in rows],
        "notes": [short(note, LONGEST_SENTENCE) for note in notes if note],
        "text_columns": list(text_columns),
    }


def axis(values: Sequence[float], ticks: int = 5) -> Record:
    """Return the ends of an axis that holds ``values`` with room to spare, and round numbers along it."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    room = 0.06 * (high - low) or max(abs(high), 1.0) * 0.1
    low, high = low - room, high + room
    rough = (high - low) / ticks
    power = 10 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in _STEPS if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) + (step / power == 2.5 and step < 10)
    marks = [round(step * position, 10) for position in range(first, math.floor(high / step + 1e-9) + 1)]
    return {"low": low, "high": high, "ticks": [{"at": mark, "text": number(mark, int(digits))} for mark in marks]}


def plane(
    caption: str,
    points: Sequence[Record],
    *,
    titles: tuple[str, str],
    steps: Sequence[tuple[float, float]] = (),
    line: Sequence[tuple[float, float]] = (),
    line_label: str = "",
    notes: Sequence[str] = (),
) -> Record:
    """Return a picture of points in a plane, with a numbered list of them.

    A point has ``label``, ``x``, ``y`` (each value, low, high), ``kept`` and ``oracle``; ``steps`` are the corners of
    the Pareto set's stairs from left to right; ``line``, from left to right and rising, is drawn
    dashed where it lies within the picture.
    """
    across = axis([end for point in points for end in point["x"]])
    # The better end of the line belongs into the picture; its worse end may be far away, and hide the points.
    up = axis([end for point in points for end in point["y"]] + [place[1] for place in line[-1:]])
    numbered = [point | {"number": position} for position, point in enumerate(points, start=1)]
    for point, (right, down) in zip(numbered, _label_places(numbered, across, up), strict=True):
        point["label_right"], point["label_down"] = right, down
    return {
        "type": "plane",
        "caption": short(caption, LONGEST_SENTENCE),
        "titles": list(titles),
        "points": numbered,
        "x_axis": across,
        "y_axis": up,
        "steps": [list(place) for place in _stairs(steps, across, up)],
        "line": [list(place) for place in line if _inside(place[0], across) and _inside(place[1], up)],
        "line_label": line_label,
        "notes": [short(note, LONGEST_SENTENCE) for note in notes if note],
    }


def curves(
    caption: str,
    lines: Sequence[tuple[object, Sequence[tuple[float, float]]]],
    *,
    titles: tuple[str, str],
    band: Sequence[tuple[float, float, float]] = (),
    marks: Sequence[float] = (),
    points: Sequence[tuple[float, float, float, float, bool]] = (),
    ticks: Sequence[tuple[float, str]] = (),
    notes: Sequence[str] = (),
) -> Record:
    """Return a picture of lines, distinguished by their dashes, with a legend below.

    ``lines`` are names with places (x, y) from left to right, ``band`` is (x, low, high) around the first, ``marks``
    are upright lines. ``points`` are (x, y, low, high) and whether the point stands out; ``ticks`` name places below
    the picture.
    """
    places = [place for _, line in lines for place in line] + [(x, y) for x, *ends in band for y in ends]
    places += [(x, y) for x, *ends, _ in points for y in ends]
    across, up = axis([x for x, _ in places]), axis([y for _, y in places] + [0.0])

    def drawn(line: Sequence[tuple[float, float]]) -> str:
        wide, tall = across["high"] - across["low"], up["high"] - up["low"]
        return " ".join(
            f"{1000 * (x - across['low']) / wide:.1f},{1000 * (up['high'] - y) / tall:.1f}"
            for x, y in line
            if math.isfinite(x) and math.isfinite(y)
        )

    edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
    return {
        "type": "curves",
        "caption": short(caption, LONGEST_SENTENCE),
        "titles": list(titles),
        "x_axis": across | {"ticks": [{"at": at, "text": text} for at, text in ticks]} if ticks else across,
        "points": [
            {"line": drawn([(x, low), (x, high)]), "x": x, "y": y, "out": out} for x, y, low, high, out in points
        ],
        "y_axis": up,
        "lines": [
            {"label": short(label), "points": drawn(line), "dash": at % 6} for at, (label, line) in enumerate(lines)
        ],
        "band": drawn(edge),
        "marks": [drawn([(x, up["low"]), (x, up["high"])]) for x in marks if _inside(x, across)],
        "notes": [short(note, LONGEST_SENTENCE) for note in notes if note],
    }


def _inside(value: float, ends: Record) -> bool:
    return bool(ends["low"] <= value <= ends["high"])


def _stairs(corners: Sequence[tuple[float, float]], across: Record, up: Record) -> list[tuple[float, float]]:
    """Join the Pareto set's corners by steps: at each x the best y of those at least as good in x (smaller)."""
    if not corners:
        return []
    places = [(corners[0][0], up["low"])]
    for (x, y), after in zip(corners, [*corners[1:], (across["high"], 0.0)], strict=True):
        places += [(x, y), (after[0], y)]
    return places


def _label_places(points: Sequence[Record], across: Record, up: Record) -> list[tuple[int, int]]:
    """Return where each point's number stands, in pixels right of and below the point: where least is in the way."""
    width, height = _PLANE
    centres = [
        (
            width * (point["x"][0] - across["low"]) / (across["high"] - across["low"]),
            height * (up["high"] - point["y"][0]) / (up["high"] - up["low"]),
        )
        for point in points
    ]
    turns = [position * math.pi / 4 for position in range(8)]
    around = [(round(far * math.cos(turn)), round(far * math.sin(turn))) for far in (14, 22, 31, 41) for turn in turns]
    taken, chosen = list(centres), []
    for x, y in centres:
        rooms = [_room((x + right, y + down), [one for one in taken if one != (x, y)]) for right, down in around]
        right, down = around[rooms.index(max(rooms))]
        taken.append((x + right, y + down))
        chosen.append((right, down))
    return chosen


def _room(place: tuple[float, float], others: Sequence[tuple[float, float]]) -> float:
    """Return how far the others are from a label's place, in pixels, up to what it needs; less outside the picture."""
    inside = all(8 < at < end - 8 for at, end in zip(place, _PLANE, strict=True))
    return min([16.0, *(math.dist(place, other) for other in others)]) - 50 * (not inside)


def bullets(items: Sequence[str]) -> Record:
    """Return a list of sentences."""
    return {"type": "list", "items": [short(item, LONGEST_SENTENCE) for item in items]}


def terms(items: Iterable[tuple[object, object]]) -> Record:
    """Return a list of names with their descriptions, which a page alone shows."""
    shown = [{"term": short(term, 160), "text": short(text, LONGEST_SENTENCE)} for term, text in items]
    return {"type": "terms", "items": shown}


def part(title: str, blocks: Sequence[Record]) -> Record:
    """Return a fold of the page: its title and blocks."""
    return {"title": short(title, 200), "blocks": list(blocks)}


def page(kind: str, finding: str, parts: Sequence[Record], *, title: str, **more: Any) -> Record:
    """Return a whole page.

    Args:
        kind: what it is about, in a word or two.
        finding: the first line.
        parts: of :func:`part`.
        title: of the browser's window.
        more: what :data:`EMPTY` names.
    """
    filled = [part for part in parts if part["blocks"]]
    whole = EMPTY | {"kind": kind, "finding": finding, "parts": filled, "title": short(title, 120)} | more
    cut = {name: [short(one, LONGEST_SENTENCE) for one in whole[name]] for name in ("lines", "cautions")}
    return whole | cut | {"about": short(whole["about"], LONGEST_SENTENCE)}


EMPTY: Record = {
    "about": "",  # what was measured, in one line
    "lines": [],  # more sentences below the finding, in a terminal
    "cautions": [],  # what a reader must know before any figure
    "reading": [],  # how the input was read, for a terminal
    "brief": None,  # what a terminal shows unless everything is wanted; None: everything
    "headline": [],  # the finding in pieces, each a text with the mark of its group in the chart
    "deck": "",  # the size of what was found, with its uncertainty
    "chart": [],  # blocks that answer the question, before anything is folded
    "sure": [],  # questions with an answer on the limits of the finding
    "command": "",
}
"""What a page may have beside its finding and its parts."""
