"""What is refused, and in which words: refusals.txt beside this file."""

from pathlib import Path  # noqa: F401  (rows of the table use it)

import pytest
from test_choice import people

from refusals import Row, check, rows


@pytest.fixture
def files(folder_of_its_own: None) -> None:
    """Write rows with a group, three proxies of it and strata."""
    people(500).to_csv("people.csv", index=False)


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, files: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
