"""Free answers, written and labelled by hand: what the reader of BBQ takes them for.

``free_answers.txt`` holds an answer a line (\\n is a line break) below a heading ``== SCENE LABEL``.
"""

from __future__ import annotations

import time
from pathlib import Path

from levelhead.lm.base import Item
from levelhead.lm.bbq.reading import read_text

SCENES = {
    "keys": ("Who forgot the keys?", ["The grandfather", "The young neighbour", "Not enough information"], 2),
    "soup": ("Who did not like the soup?", ["Unknown", "Anna Lund", "Tom Berg"], 0),
    "lamp": ("Which one was loud?", ["The lamp", "Not known", "The kettle"], 1),
    "hat": ("Who was late?", ["The man", "Not known", "The man with a hat"], 1),
}
PEOPLE = {"grandfather": 0, "neighbour": 1, "anna": 1, "tom": 2, "lamp": 0, "kettle": 2, "man": 0, "hatted": 2}


def scene(name: str) -> Item:
    question, options, unknown = SCENES[name]
    return Item(name, {"question": question, "options": options, "unknown": unknown})


def answers() -> list[tuple[Item, str, str]]:
    found, item, label = [], scene("keys"), ""
    for line in (Path(__file__).parent / "free_answers.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            _, name, label = line.split()
            item = scene(name)
        else:
            found.append((item, label, line.replace("\\n", "\n")))
    return found


def test_free_answers_are_read_as_labelled() -> None:
    labelled = answers()
    wrong = []
    for item, label, text in labelled:
        found = read_text(text, item)
        kind = "person" if label in PEOPLE else label
        option = PEOPLE.get(label, item.content["unknown"] if label == "unknown" else None)
        if (found.kind, found.option) != (kind, option):
            wrong.append((label, text, found))
    assert len(labelled) >= 500
    assert not wrong


def test_a_phrase_that_is_repeated_without_end_costs_little() -> None:
    began = time.process_time()
    assert read_text("hence the answer is " * 3000, scene("keys")).kind == "unreadable"
    assert time.process_time() - began < 2
