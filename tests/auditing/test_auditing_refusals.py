"""What is refused, and in which words: refusals.txt beside this file."""

from __future__ import annotations

import pandas as pd
import pytest

from refusals import Row, check, rows


@pytest.fixture
def files(folder_of_its_own: None) -> None:
    """Write decisions of three groups, rows of which some have no label, and labels of the other sign, and people."""
    decision = ["yes"] * 80 + ["no"] * 20 + ["yes"] * 40 + ["no"] * 60 + ["yes"] * 75 + ["no"] * 25
    table = {"decision": decision, "y": ["yes", "no"] * 150, "race": ["a"] * 100 + ["b"] * 100 + ["c"] * 100}
    table |= {"month": ["spring", "summer", "fall"] * 100}
    pd.DataFrame(table).to_csv("rows.csv", index=False)
    hired = pd.DataFrame({"y": [0, 1, -1, 1] * 50, "q": [0, 1, 1, 0] * 50, "g": ["f", "f", "m", "m"] * 50})
    hired = hired.assign(p=hired["q"] * 0.4 + 0.2 + hired.index % 7 / 100)
    hired.to_csv("some.csv", index=False)
    hired.assign(y=-1).to_csv("none.csv", index=False)
    hired.assign(y=1 - hired["y"].abs()).to_csv("turned.csv", index=False)
    people = pd.DataFrame({"y": [0, 1] * 200, "decision": [0, 1, 1, 0] * 100, "sex": ["f", "m", "m", "f"] * 100})
    people = people.assign(id=[f"person-{row // 2:03}" for row in range(400)], score=people.index * 37 % 400 / 401)
    people.to_csv("people.csv", index=False)


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, files: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
