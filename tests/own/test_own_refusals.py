"""What is refused, before anything is predicted, and in which words: refusals.txt beside this file."""

import pytest
from test_two_models import Answers

from refusals import Row, check, rows


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(
    row: Row, folder_of_its_own: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "three_classes" not in row.asked:
        monkeypatch.setattr(Answers, "forward", lambda *_, answers=None: pytest.fail("predicted"))
    check(row, globals(), capsys)
