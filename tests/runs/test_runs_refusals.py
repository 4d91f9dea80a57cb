"""What is refused, and in which words: refusals.txt beside this file."""

import os
import shutil
from pathlib import Path

import pytest
from own_csv import recipe, write_own

from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run
from refusals import Row, check, rows


def own_recipe(method: str = "erm", **data: object) -> dict[str, object]:
    """A recipe on mine/letters.csv in the current folder."""
    return recipe(Path("mine"), method, root=".", **data) | {"model": {"backbone": "./backbone"}}


@pytest.fixture(scope="session")
def runs(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs: run, of mine/letters.csv, and portraits, which is evaluated."""
    place, before = tmp_path_factory.mktemp("refused"), Path.cwd()
    write_own(place / "mine")
    shutil.copytree(finished, place / "portraits")
    os.chdir(place)
    try:
        train_run(build_experiment(own_recipe()), Path("run"))
    finally:
        os.chdir(before)
    return place


@pytest.mark.parametrize("row", rows(__file__))
def test_it_is_refused(
    row: Row, folder_of_its_own: None, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if any(word in row.asked for word in ("Path('run", "Path('portraits", "own_recipe")):
        shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    check(row, globals(), capsys)
