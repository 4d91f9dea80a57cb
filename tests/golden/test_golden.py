"""Small audits and pages of every kind say what they said before, to the last figure.

``python tests/golden/update.py`` writes the files again and prints what changed.
"""

from __future__ import annotations

import difflib

import pytest
from cases import AS_ARRAYS, CASES
from kept import FOLDER, expected, joined, written


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_is_kept(name: str) -> None:
    found, kept = written(name), expected(name)
    assert kept, f"nothing is kept of {name}: run tests/golden/update.py"
    old, new = (joined(texts).splitlines(keepends=True) for texts in (kept, found))
    assert old == new, "".join(difflib.unified_diff(old, new, "kept", "now", n=2))


def test_every_file_is_of_a_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(CASES) - set(AS_ARRAYS)
