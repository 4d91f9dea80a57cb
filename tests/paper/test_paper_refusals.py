"""What is refused, and in which words: refusals.txt beside this file."""

from pathlib import Path

import pytest
from test_reproduce import two_depths

from levelhead.paper.items import find_item
from levelhead.paper.reproduce import Options, make_plan
from refusals import Row, check, rows

__all__ = ["Options", "Path", "find_item", "make_plan", "two_depths"]


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(
    row: Row, folder_of_its_own: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LEVELHEAD_DATA", raising=False)
    check(row, globals(), capsys)
