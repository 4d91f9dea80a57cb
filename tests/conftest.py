"""What every test file shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# Two test processes on two cores: more threads would only fight.
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def cache_outside_the_home_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep decoded pictures in a temporary folder; for the whole test run, so that wider fixtures find it too."""
    before = os.environ.get("LEVELHEAD_CACHE")
    os.environ["LEVELHEAD_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["LEVELHEAD_CACHE"]
    else:
        os.environ["LEVELHEAD_CACHE"] = before


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets, found as the package finds it, or a skip with the reason."""
    folder = Path(os.environ.get("LEVELHEAD_DATA") or Path(__file__).parents[1] / "data")
    if not folder.is_dir():
        pytest.skip("no real data: set LEVELHEAD_DATA to the folder that holds celeba64 and utkface64")
    return folder


@pytest.fixture(scope="session")
def real_models() -> Path:
    """The folder of small pretrained models, or a skip with the reason."""
    folder = os.environ.get("LEVELHEAD_MODELS")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no pretrained models: set LEVELHEAD_MODELS to the folder that holds stories260k")
    return Path(folder)
