from __future__ import annotations

import math
from typing import Any

import pytest

from levelhead.plain_yaml import DEEPEST, LONGEST_DOCUMENT, MOST_NODES, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("epochs: 1:30", {"epochs": "1:30"}),  # YAML 1.1 reads 90
        ("1:30.5", "1:30.5"),
        ("010", "010"),  # YAML 1.1 reads 8
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("2001-01-01", "2001-01-01"),
        ("[no, yes, on, off]", ["no", "yes", "on", "off"]),
        ("[true, False, null, ~, ]", [True, False, None, None]),
        ("[0, -1, +2, 1.5, .5, 1.5e+3, 1e-3]", [0, -1, 2, 1.5, 0.5, 1500.0, "1e-3"]),
        ("[.inf, -.inf]", [math.inf, -math.inf]),
        ("{1: a, null: b, true: c}", {"1": "a", "null": "b", "true": "c"}),  # keys are texts, as they are written
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ('"\\ud83d\\ude00"', "😀"),  # as JSON writes it
        ("a: &here [1]\nb: *here", {"a": [1], "b": [1]}),
        ("18446744073709551615", 2**64 - 1),
        ("", None),
    ],
)
def test_values_are_what_they_look_like(text: str, value: object) -> None:
    assert read_yaml(text, "here") == value


def test_what_is_just_allowed_is_read() -> None:
    deepest: Any = read_yaml("[" * (DEEPEST - 1) + "x" + "]" * (DEEPEST - 1), "here")
    for _ in range(DEEPEST - 1):
        (deepest,) = deepest
    assert deepest == "x"
    assert len(read_yaml("[" + "1, " * (MOST_NODES - 1) + "]", "here")) == MOST_NODES - 1
    assert len(read_yaml("x" * LONGEST_DOCUMENT, "here")) == LONGEST_DOCUMENT
