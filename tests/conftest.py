"""What every test file shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

# Two test processes on two cores: more threads would only fight.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data sets, or a skip with the reason."""
    for candidate in (os.environ.get("LEVELHEAD_DATA"), Path(__file__).parents[2] / "shared" / "data"):
        if candidate and Path(candidate).is_dir():
            return Path(candidate)
    pytest.skip("no real data: set LEVELHEAD_DATA to the folder that holds celeba64 and utkface64")
