"""What is refused, and in which words: refusals.txt beside this file."""

import shutil
from pathlib import Path

import pytest
import yaml
from test_grid import BASE

from levelhead.bench.grid import compare_methods, remember
from refusals import Row, check, rows

STORED = Path(__file__).parents[2] / "results" / "decide_utkface64_paper.json"


@pytest.fixture
def compared(folder_of_its_own: None) -> None:
    """A recipe, a folder in which a comparison with it has begun, and files that might be stored tables."""
    Path("mine.yaml").write_text(yaml.safe_dump(BASE))
    remember(compare_methods(BASE, ["erm", "jtt"], [0], {}), Path("compared"))
    shutil.copyfile(STORED, "stored.json")
    Path("empty.json").write_text("{}")


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(row: Row, compared: None, capsys: pytest.CaptureFixture[str]) -> None:
    check(row, globals(), capsys)
