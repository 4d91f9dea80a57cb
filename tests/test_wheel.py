"""What `pip install levelhead` brings: the built wheel, run from an empty folder, without this repository."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import levelhead
from levelhead._version import commit

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel. Without hatchling here, pip fetches it into an environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    alone = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        *alone,
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (file,) = folder.glob("levelhead-*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone into a folder; what it depends on is that of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def run(installed: Path, folder: Path, *command: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEVELHEAD_")}
    environment |= {"PYTHONPATH": str(installed), "COLUMNS": "200", "LEVELHEAD_CACHE": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_package_and_every_recipe_is_inside(wheel: Path) -> None:
    source = ROOT / "src"
    files = {str(file.relative_to(source)) for file in (source / "levelhead").rglob("*") if file.is_file()}
    files = {file for file in files if "__pycache__" not in file}
    recipes = {f"levelhead/recipes/{file.relative_to(ROOT / 'recipes')}" for file in (ROOT / "recipes").rglob("*.yaml")}
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert len(recipes) > 40
    assert sorted((files | recipes) - inside) == []
    assert "levelhead/py.typed" in inside
    assert not [name for name in inside if name.startswith(("tests/", "docs/", "recipes/"))]


def test_it_runs_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    levelhead_command = (sys.executable, str(installed / "bin" / "levelhead"))
    known = commit()
    shown = levelhead.__version__ + (f" (commit {known})" if known else "")
    assert run(installed, tmp_path, *levelhead_command, "--version").strip() == shown
    assert "utkface64_dam_small" in run(installed, tmp_path, *levelhead_command, "list", "recipes")
    # The rest in one process, because each takes seconds to load torch.
    code = (
        "import levelhead, levelhead.bench.grid, levelhead.runs.recipe as config\n"
        "from levelhead.cli.app import app\n"
        "print(levelhead.__file__, config.recipe_folder())\n"
        "for file in config.recipe_folder().glob('*.yaml'):\n"
        "    config.load_experiment(file.stem)\n"
        "levelhead.bench.grid.read_grid('finding_utkface64')\n"
        "app(['list', 'datasets'], standalone_mode=False)\n"
        "app(['list', 'grids'], standalone_mode=False)\n"
    )
    places, listed = run(installed, tmp_path, sys.executable, "-c", code).split("\n", 1)
    assert all(Path(place).is_relative_to(installed) for place in places.split())
    assert "celeba64" in listed
    assert "finding_utkface64" in listed
    assert not list(tmp_path.iterdir())
