from __future__ import annotations

import math
import re
import time
from typing import Any

import pytest

from levelhead.plain_yaml import DEEPEST, LONGEST_DOCUMENT, MOST_NODES, read_yaml
from levelhead.types import ConfigError


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


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    return "\n".join(lines + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "train: {epochs: 1}\nseed: 1\ntrain: {epochs: 2}",
            "here, line 3: the key 'train' stands twice, first in line 1.",
        ),
        ("data:\n  name: a\n  x:\n    y: 1\n    y: 2", "here, line 5: the key 'y' stands twice, first in line 4."),
        ("a: 1\n'a': 2", "line 2: the key 'a' stands twice"),
        (bomb(9), "more than 20,000 values, aliases written out"),
        ("[" + "1, " * MOST_NODES + "1]", "more than 20,000 values"),
        ("a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 99)), "nested more than 32 deep"),
        ("[" * 5000, "nested more than 32 deep"),
        ("- " * 5000, "nested more than 32 deep"),
        ("a: &a [*a]", "an alias inside the value that it repeats"),
        ("x" * (LONGEST_DOCUMENT + 1), "here is longer than 1,000,000 characters: it is not a recipe."),
        ("seed: " + "9" * 5000, "here, line 1: a whole number beyond 64 bits."),
        ("18446744073709551616", "a whole number beyond 64 bits"),
        ("!!int '1:30'", "the tag '!!int': recipes hold plain values"),
        ("!!python/object/apply:os.system [ls]", "the tag '!!python/object/apply:os.system'"),
        ("? [a]\n: b", "a key that is a list or a mapping"),
        ('"\\ud83d"', "half of a character"),
        ('"a\\0b"', "a text with the character NUL"),
        ("a\x00b", "character 2 is a control character. Is it a text file?"),
        ('"\\UFFFFFFFF"', "not valid YAML: an escape or a version has a number out of range."),
        ("a: b: secret", "here is not valid YAML: line 1, column 5: mapping values are not allowed here."),
    ],
)
def test_what_no_recipe_needs_is_refused_in_one_line(text: str, message: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        read_yaml(text, "here")
    assert time.process_time() - began < 10
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250
    assert "secret" not in str(raised.value)


def test_what_is_just_allowed_is_read() -> None:
    deepest: Any = read_yaml("[" * (DEEPEST - 1) + "x" + "]" * (DEEPEST - 1), "here")
    for _ in range(DEEPEST - 1):
        (deepest,) = deepest
    assert deepest == "x"
    assert len(read_yaml("[" + "1, " * (MOST_NODES - 1) + "]", "here")) == MOST_NODES - 1
    assert len(read_yaml("x" * LONGEST_DOCUMENT, "here")) == LONGEST_DOCUMENT
