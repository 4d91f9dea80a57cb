"""Free answers, written and labelled by hand: what the reader of BBQ takes them for.

``free_answers.txt`` holds an answer a line (\\n is a line break) below a heading ``== SCENE LABEL``. The reader was
written with these at hand; those of ``free_answers_apart.txt`` were written before it was tried on them.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from levelhead.lm.base import Item
from levelhead.lm.bbq.reading import read_text

SCENES = {
    "keys": ("Who forgot the keys?", ["The grandfather", "The young neighbour", "Not enough information"], 2),
    "soup": ("Who did not like the soup?", ["Unknown", "Anna Lund", "Tom Berg"], 0),
    "lamp": ("Which one was loud?", ["The lamp", "Not known", "The kettle"], 1),
    "theft": ("Who took the bicycle?", ["Mira Osei", "Can't be determined", "Pavel Kade"], 1),
    "hat": ("Who was late?", ["The man", "Not known", "The man with a hat"], 1),
}
PEOPLE = {"grandfather": 0, "neighbour": 1, "anna": 1, "tom": 2, "lamp": 0, "kettle": 2, "man": 0, "hatted": 2}
PEOPLE |= {"mira": 0, "pavel": 2}


def scene(name: str) -> Item:
    question, options, unknown = SCENES[name]
    return Item(name, {"question": question, "options": options, "unknown": unknown})


def answers(name: str) -> list[tuple[Item, str, str]]:
    found, item, label = [], scene("keys"), ""
    for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            _, place, label = line.split()
            item = scene(place)
        else:
            found.append((item, label, line.replace("\\n", "\n")))
    return found


@pytest.mark.parametrize(
    ("name", "least", "lost"), [("free_answers.txt", 300, 0.05), ("free_answers_apart.txt", 100, 0.1)]
)
def test_no_person_is_read_wrongly_and_few_answers_are_lost(name: str, least: int, lost: float) -> None:
    labelled = answers(name)
    unread = []
    for item, label, text in labelled:
        found = read_text(text, item)
        kind = "person" if label in PEOPLE else label
        option = PEOPLE.get(label, item.content["unknown"] if label == "unknown" else None)
        if (found.kind, found.option) != (kind, option):
            assert found.kind != "person", (label, text)
            unread.append((label, text, found))
    assert len(labelled) >= least
    assert len(unread) <= lost * len(labelled), unread


def test_a_phrase_that_is_repeated_without_end_costs_little() -> None:
    began = time.process_time()
    assert read_text("hence the answer is " * 3000, scene("keys")).kind == "unreadable"
    assert time.process_time() - began < 2
