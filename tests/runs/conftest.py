"""Runs that several files of tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from own_csv import RECIPE, write_own

from levelhead.runs.evaluate import evaluate_run
from levelhead.runs.recipe import build_experiment
from levelhead.runs.train import train_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on portraits, trained and evaluated."""
    folder = tmp_path_factory.mktemp("erm") / "run"
    train_run(build_experiment(RECIPE), folder)
    evaluate_run(folder)
    return folder


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_own(tmp_path_factory.mktemp("own") / "mine").parent


@pytest.fixture
def own(written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a csv of 160 short texts: an id, a text, a label, and no group."""
    monkeypatch.setenv("LEVELHEAD_CACHE", str(tmp_path / "cache"))
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path / "mine"
