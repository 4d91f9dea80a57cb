"""What is refused, and in which words: refusals.txt beside this file."""

import pytest

from refusals import Row, check, rows


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, folder_of_its_own: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
