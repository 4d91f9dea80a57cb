"""What is refused, and in which words: refusals.txt beside this file."""

from pathlib import Path
from typing import Any

import pytest

from levelhead.pretraining import load_pretraining, pretrain
from refusals import Row, check, rows


def refused(*recipe: Any, **options: Any) -> None:
    """Pretrain by a recipe; a refusal may leave the lock of the folder and no model."""
    data, config = load_pretraining(*recipe, **options)
    pretrain(data, Path("m"), config)


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, folder_of_its_own: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
    assert not Path("m", "config.json").exists()
