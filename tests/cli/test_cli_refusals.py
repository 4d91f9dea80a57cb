"""What is refused, and in which words: refusals.txt beside this file."""

from pathlib import Path

import pytest

from command_line import evaluated_run
from refusals import Row, check, rows

CONTENT = {"list.json": "[]", "empty.json": "{}", "none.json": '{"comparisons": []}', "lm/scores-bbq.json": "{}"}


@pytest.fixture
def results(folder_of_its_own: None) -> None:
    """A run, and files of results that are none."""
    evaluated_run(Path("run"))
    Path("lm").mkdir()
    for name, content in CONTENT.items():
        Path(name).write_text(content)
    Path("rows.csv").write_text("a\n")


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, results: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
