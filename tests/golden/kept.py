"""How a case of :mod:`cases` is kept as a text: one line a figure, and what stands there twice only once."""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from cases import AS_ARRAYS, CASES, Shown

FOLDER = Path(__file__).parent / "expected"
NOT_COMPARED = ("kind", "schema", "tool", "version", "seconds", "figures")
"""Keys of JSON that may be added, that are another time's, or whose figures stand under other keys, too."""
DIGITS = 9
"""Of figures: enough to notice another formula, and few enough for another processor."""
LINE, REPEATED = 150, 140
USUAL = "classes"
HIDDEN = {("role", "tooltip"), ("aria-hidden", "true")}
SILENT = {"style", "svg", "title", "nav", "footer"}
ROW = {"tr", "p", "li", "h1", "h2", "h3", "h4", "caption", "summary", "figcaption", "pre", "div", "header", "section"}
FRAME = str.maketrans("│┃", "||", "┏┓┗┛┳┻╇┡┩├┤┼└┘┴┬┌┐━─═")


def made(name: str) -> Shown:
    """Run a case in an empty folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return CASES[name]()
        finally:
            os.chdir(before)


def written(name: str, found: Shown | None = None) -> dict[str, str]:
    """Return the texts of a case by what they are; a file's case has only the figures of its arrays."""
    found = found or made(name)
    seen: dict[str, str] = {}
    if name != USUAL and AS_ARRAYS.get(name) != USUAL:
        once(plain(usual_case().figures), USUAL, seen)
    parts = {} if found.figures is None else {"figures": dumped(once(plain(found.figures), "$", seen)) + "\n"}
    if name in AS_ARRAYS:
        return parts
    for what, text in (("screen", found.screen), ("terminal", found.text)):
        if text is not None:
            lines = [line.translate(FRAME).rstrip() for line in text.splitlines()]
            parts[what] = "\n".join(line for line in lines if line) + "\n"
    if found.html is not None:
        own = page_sections(found.html)
        usual = {} if name == USUAL else page_sections(str(usual_case().html))
        parts["page"] = "".join(
            title + (f"as {USUAL}\n" if len(text) > REPEATED and usual.get(title) == text else text)
            for title, text in own.items()
        )
    return parts


@functools.cache
def usual_case() -> Shown:
    """Return the case that others say less than all beside."""
    return made(USUAL)


def expected(name: str) -> dict[str, str]:
    """Return the texts that are kept of a case."""
    path = FOLDER / f"{AS_ARRAYS.get(name, name)}.txt"
    parts = re.split(r"^=== (\w+)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:] if path.exists() else []
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    return {"figures": found["figures"]} if name in AS_ARRAYS and "figures" in found else found


def joined(parts: dict[str, str]) -> str:
    return "".join(f"=== {what}\n{text}" for what, text in parts.items())


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


def once(value: Any, path: str, seen: dict[str, str]) -> Any:
    """Replace a long part of a JSON that stood there before by its path."""
    if not isinstance(value, dict | list):
        return value
    text = json.dumps(value)
    if len(text) > REPEATED and seen.setdefault(text, path) != path:
        return f"as {seen[text]}"
    if isinstance(value, list):
        return [once(one, f"{path}[{at}]", seen) for at, one in enumerate(value)]
    return {key: once(one, f"{path}.{key}", seen) for key, one in value.items()}


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


class _Text(HTMLParser):
    """What a page says, a line for each row of a table, paragraph or heading; pictures and help are left out."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.parts: list[str] = []
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.silent:
            self.silent += [tag] if tag == self.silent[0] else []
        elif tag in SILENT or HIDDEN & set(dict(attrs).items()):
            self.silent.append(tag)
        elif tag in ROW:
            self.end_line()
            self.parts += [f"{'#' * int(tag[1])} "] if tag[0] == "h" and tag[1:].isdigit() else []
        elif tag in ("td", "th") and self.parts:
            self.parts.append(" | ")
        elif tag in ("small", "dd"):
            self.parts.append(" / ")

    def handle_endtag(self, tag: str) -> None:
        if self.silent:
            self.silent = self.silent[: -1 if tag == self.silent[0] else None]
        elif tag in ROW:
            self.end_line()

    def handle_data(self, data: str) -> None:
        self.parts += [] if self.silent else [data]

    def end_line(self) -> None:
        line = " ".join("".join(self.parts).split())
        self.lines += [line] if line else []
        self.parts = []


def page_sections(html: str) -> dict[str, str]:
    """Return a page's words by the titles of its sections, without date, version and glossary."""
    reader = _Text()
    reader.feed(html)
    reader.end_line()
    lines = [re.sub(r"^Tool / levelhead .*", "Tool / levelhead", line) for line in reader.lines]
    parts = re.split(r"^(#+ .*\n)", "".join(f"{line}\n" for line in lines), flags=re.MULTILINE)
    found: dict[str, str] = {"": parts[0]}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        while title in found:  # pages of several columns have a section of each name for each
            title = f"{title[:-1]}.\n"
        found[title] = "" if title.endswith(" Definitions\n") else text
    return found
