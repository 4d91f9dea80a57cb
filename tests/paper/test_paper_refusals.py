"""What is refused, and in which words: refusals.txt beside this file."""

from pathlib import Path

import pytest
from test_reproduce import two_depths

from levelhead.bench import timing
from levelhead.paper.items import ITEMS, find_item
from levelhead.paper.reproduce import Options, distinct, make_plan
from levelhead.terminal import Terminal
from refusals import Row, check, rows

__all__ = ["find_item", "two_depths"]


def times(text: str) -> None:
    """Time a plan whose folder holds this file of times."""
    options = Options(Path(), quick=True)
    kept = options.folder / "dry-run.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(text)
    try:
        timing.predicted(distinct([make_plan(ITEMS["table7"], options)]), options.folder, Terminal())
    finally:
        assert kept.read_text() == text


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(
    row: Row, folder_of_its_own: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LEVELHEAD_DATA", raising=False)
    monkeypatch.setattr(timing, "_time", lambda cell: pytest.fail("timed"))
    check(row, globals(), capsys)
