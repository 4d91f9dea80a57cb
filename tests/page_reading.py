"""Read a page as a browser or a screen reader would: elements, ids, headings; and made-up pages to read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from levelhead.bench.comparison import Comparison
from levelhead.metrics import JointRow, JointTable
from levelhead.types import Estimate

VOID = {"meta", "br", "img", "link", "input", "hr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    parents: tuple[str, ...]
    text: str = ""


@dataclass
class Reader(HTMLParser):
    """Every element with its own and its children's text; raises on an end tag that closes nothing."""

    elements: list[Element] = field(default_factory=list)
    stack: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice: {attrs}"
        element = Element(tag, dict(attrs), tuple(one.tag for one in self.stack))
        self.elements.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack, f"</{tag}> closes nothing"
        assert self.stack[-1].tag == tag, f"</{tag}> closes <{self.stack[-1].tag}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        for element in self.stack:
            element.text += data

    def all(self, *tags: str) -> list[Element]:
        return [element for element in self.elements if element.tag in tags]


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.stack, f"not closed: {[one.tag for one in reader.stack]}"
    return reader


def figure(value: float, low: float, high: float, n: int = 100, reason: str | None = None) -> Estimate:
    return Estimate(value, low, high, n, reason)


def difference(value: float, half: float, p: float = 1.0) -> JointRow:
    own = figure(0.1, 0.05, 0.15)
    return JointRow(own, own, (0.1, 0.1), math.inf, figure(value, value - half, value + half), p, p, p)


def made_up(others: dict[str, dict[str, JointRow]], **options: Any) -> Comparison:
    """A comparison with ERM as its baseline."""
    own = figure(0.1, 0.05, 0.15)
    baseline = JointRow(own, own, (0.1, 0.1), math.inf)
    rows = {"erm": dict.fromkeys(("accuracy", "equalized_odds"), baseline), **others}
    fields: dict[str, Any] = {
        "data": {"name": "portraits"},
        "split": "test",
        "attribute": "style",
        "rows": 100,
        "seeds": {name: [0, 1] for name in rows},
        "settings": {name: {"train.select": "val_loss", "method.name": name} for name in rows},
        "oracle": dict.fromkeys(rows),
        "told": {},
        "cost": {
            name: {"seconds": 3.0, "energy_wh": None, "energy_reason": "no GPU", "hardware": ["a"]} for name in rows
        },
        "environments": [{"python": "3", "packages": {"torch": "2"}, "device": "cpu", "cpu": "x"}],
        "table": JointTable(rows, "erm", 0.95),
    }
    return Comparison(**fields | options)
