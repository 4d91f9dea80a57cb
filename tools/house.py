"""Draw the rooms of levelhead and what each imports: python tools/house.py docs/images/house.svg.

A room is a box, and an arrow runs from it to a room that it imports. An arrow is left out where a longer way says the
same: what is reached through another room may be imported directly, too.
"""

from __future__ import annotations

import ast
import itertools
import sys
from html import escape
from pathlib import Path

from imports import ORDER, Imports

SOURCE = Path(__file__).parents[1] / "src" / "levelhead"
WIDTH, BOX, HEIGHT, STEP, SLOT = 390, 108, 40, 66, 8
ROOMS = {
    "cli": "the command line",
    "lh.*": "the public names",
    "paper": "tables of the paper",
    "lm": "language models",
    "bench": "many runs compared",
    "inspecting": "attention of a run",
    "pretraining": "masked patches",
    "runs": "one run, from recipe",
    "own": "models of your own",
    "methods": "stages in order",
    "training": "stage, loop, selection",
    "auditing": "questions of an audit",
    "tables": "rows in, counts out",
    "models": "networks, features",
    "objectives": "losses of a stage",
    "report": "pages and their text",
    "attention": "debiased attention",
    "metrics": "figures, intervals",
    "data": "data sets, splits",
}
"""What each room has, in words that fit its box."""


def rooms_of(source: Path) -> dict[str, set[str]]:
    """Return which rooms each room imports; ``lh.*`` is the package itself, which loads its public names late."""
    found = Imports.read(source)
    rooms = {part for part in found.parts if (source / part).is_dir()}
    others = {room: {other for own, other in found.arrows if own == room} & rooms for room in rooms}
    tree = ast.walk(ast.parse((source / "__init__.py").read_text(encoding="utf-8")))
    words = {word for node in tree if isinstance(node, ast.Constant) for word in str(node.value).split(".")[:1]}
    return others | {"lh.*": words & rooms}


def reduced(arrows: dict[str, set[str]]) -> dict[str, list[str]]:
    """Leave out each arrow whose end is also reached through another room."""

    def reached(room: str) -> set[str]:
        return arrows[room].union(*(reached(other) for other in arrows[room]))

    return {
        room: sorted(other for other in others if not any(other in reached(between) for between in others))
        for room, others in arrows.items()
    }


def layers_of(arrows: dict[str, list[str]]) -> tuple[list[list[str]], list[list[str]]]:
    """Return rows of rooms from the top, and each arrow as the places that it passes, one a row.

    A place is a room, or ``room>other`` and a number where the arrow passes a row.
    """

    def depth(room: str) -> int:
        return max((depth(other) + 1 for other in arrows[room]), default=0)

    rows: list[list[str]] = [[] for _ in range(max(map(depth, arrows)) + 1)]
    ways = []
    for room in sorted(arrows):
        rows[depth(room)].append(room)
        for other in arrows[room]:
            way = [f"{room}>{other} {row}" for row in range(depth(room) - 1, depth(other), -1)]
            for place in way:
                rows[int(place.split()[-1])].append(place)
            ways.append([room, *way, other])
    return untangled(rows[::-1], ways), ways


def untangled(rows: list[list[str]], ways: list[list[str]]) -> list[list[str]]:
    """Order each row so that few arrows cross: sweeps over all orders of a row, beside its neighbours as they stand."""
    steps = [step for way in ways for step in itertools.pairwise(way)]

    def cost(above: list[str], below: list[str]) -> tuple[int, float]:
        at, under = ({place: n for n, place in enumerate(row)} for row in (above, below))
        lines = [(at[a] / len(above), under[b] / len(below)) for a, b in steps if a in at and b in under]
        crossed = sum((a - c) * (b - d) < 0 for (a, b), (c, d) in itertools.combinations(lines, 2))
        return crossed, sum(abs(a - b) for a, b in lines)

    for _ in range(6):
        for n in [*range(len(rows)), *reversed(range(len(rows)))]:
            beside = [row for at in (n - 1, n + 1) if 0 <= at < len(rows) for row in [(at, rows[at])]]

            def total(order: tuple[str, ...], n: int = n, beside: list = beside) -> tuple[float, ...]:
                costs = [cost(row, list(order)) if at < n else cost(list(order), row) for at, row in beside]
                return tuple(map(sum, zip(*costs, strict=True)))

            rows[n] = list(min(itertools.permutations(rows[n]), key=total))
    return rows


def drawn(source: Path = SOURCE) -> str:
    """Return the picture, an SVG of 390 pixels width: as wide as a phone, and never smaller than its text allows."""
    rows, ways = layers_of(reduced(rooms_of(source)))
    middle: dict[str, tuple[float, int]] = {}
    for n, row in enumerate(rows):
        widths = [SLOT if ">" in place else BOX for place in row]
        gap = (WIDTH - sum(widths)) / (len(row) + 1)
        for at, place in enumerate(row):
            left = gap * (at + 1) + sum(widths[:at])
            middle[place] = (left + widths[at] / 2, 6 + n * STEP)
    lines, boxes = [], []
    for way in ways:
        x, y = middle[way[0]]
        path = f"M{x:.0f} {y + HEIGHT}"
        for place in way[1:]:
            start, half = x, (y + HEIGHT + middle[place][1]) / 2
            x, y = middle[place]
            path += f"C{start:.0f} {half:.0f} {x:.0f} {half:.0f} {x:.0f} {y - 6 * (place == way[-1])}"
            path += f"V{y + HEIGHT}" * (place != way[-1])
        lines.append(f'<path d="{path}"/><path class="tip" d="M{x - 4:.0f} {y - 7}h8l-4 7z"/>')
    for room, (x, y) in middle.items():
        if ">" not in room:
            boxes.append(box(x - BOX / 2, y, BOX, HEIGHT, room, ROOMS.get(room, "")))
    bottom = 6 + len(rows) * STEP
    ground = [name for floor in ORDER[:3] for name in floor if not name.startswith("_")]
    boxes.append(
        box(6, bottom - 8, WIDTH - 12, HEIGHT, "files that every room may import", f"{', '.join(ground[:8])}, ...")
    )
    title = "Rooms of levelhead; arrows show imports and run downwards"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" viewBox="0 0 {WIDTH} {bottom + HEIGHT}" role="img">'
        f"<title>{title}</title><style>text{{font:11px sans-serif;text-anchor:middle;fill:#222}}"
        ".name{font-size:14px;font-weight:bold}path{fill:none;stroke:#667;stroke-width:1.3}"
        ".tip{fill:#667;stroke:none}rect{fill:#eef3fa;stroke:#456}.page{fill:#fff;stroke:none}</style>\n"
        '<rect class="page" width="100%" height="100%"/>\n' + "\n".join([*lines, *boxes]) + "\n</svg>\n"
    )


def box(x: float, y: float, width: float, height: float, name: str, words: str) -> str:
    """Return a box with a name and a line of words."""
    texts = f'<text class="name" x="{x + width / 2:.0f}" y="{y + 17:.0f}">{escape(name)}</text>'
    texts += f'<text x="{x + width / 2:.0f}" y="{y + 33:.0f}">{escape(words)}</text>'
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width}" height="{height}" rx="4"/>{texts}'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(drawn(), encoding="utf-8")
