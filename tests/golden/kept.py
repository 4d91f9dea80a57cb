"""How a case of :mod:`cases` is kept as a text: one line a figure, then what a screen, a terminal and a page say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from levelhead.report.terminal import drawn
from levelhead.terminal import plain_text

FOLDER = Path(__file__).parent / "expected"
NOT_COMPARED = ("kind", "schema", "tool", "version", "seconds", "figures")
"""Keys of JSON that may be added, that are another time's, or whose figures stand under other keys, too."""
OF_PAGE = ("about", "headline", "deck", "chart", "sure")
"""What a page alone shows; its tables and sentences are those of the terminal."""
DIGITS = 9
"""Of figures: enough to notice another formula, and few enough for another processor."""
LINE = 150


def written(found: Any) -> str:
    """Return the text of a result, or of a page alone."""
    page = found if isinstance(found, dict) else found.page()
    parts = {} if found is page else {"figures": dumped(plain(found.to_dict()))}
    for what, everything in (("screen", False), ("terminal", True)):
        lines = [line.rstrip() for line in plain_text(drawn(page, everything=everything)).splitlines()]
        parts[what] = "\n".join(line for line in lines if line)
    parts["page"] = "\n".join(words([*(page[name] for name in OF_PAGE), [part["title"] for part in page["parts"]]]))
    return "".join(f"=== {what}\n{text}\n" for what, text in parts.items())


def words(value: Any) -> Iterator[str]:
    """Yield what parts of a page say, a line for each part."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if line := " | ".join(one for one in inside if isinstance(one, str) and one):
        yield line
    for one in inside:
        yield from words(one) if isinstance(one, dict | list) else ()


def figures_of(text: str) -> str:
    """Return the part of a text that holds figures."""
    return re.split("^=== screen$", text, flags=re.MULTILINE)[0]


def path_of(name: str) -> Path:
    """Return the file of a case."""
    return FOLDER / f"{name}.txt"


def plain(value: Any) -> Any:
    """Return JSON without the keys that are not compared, its figures to :data:`DIGITS`."""
    if isinstance(value, dict):
        found = {str(key): plain(one) for key, one in value.items() if key not in NOT_COMPARED}
        if list(found)[:4] != ["value", "low", "high", "n"]:
            return dict(sorted(found.items()))
        value, low, high, n, *more = (json.dumps(one, ensure_ascii=False) for one in found.values())
        rest = [f", {key} {one}" for key, one in zip(list(found)[4:], more, strict=True)]
        return f"{value} [{low}, {high}], n {n}{''.join(rest)}"  # an estimate: most of a JSON are these
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def dumped(value: Any, indent: str = "") -> str:
    """Return JSON with a short list or dict on one line, so that a changed figure is a changed line."""
    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(indent) + len(line) <= LINE or not isinstance(value, dict | list) or not value:
        return line
    more = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(more + dumped(one, more) for one in value) + "\n" + indent + "]"
    lines = [f"{more}{json.dumps(key, ensure_ascii=False)}: {dumped(one, more)}" for key, one in value.items()]
    return "{\n" + ",\n".join(lines) + "\n" + indent + "}"
