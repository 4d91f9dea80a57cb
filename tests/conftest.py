"""What every test file shares."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

# A search for garbage goes over all that torch and transformers have loaded, and finds none while they are imported.
gc.disable()

import pytest  # noqa: E402
import torch  # noqa: E402

# Two test processes on two cores: more threads would only fight.
torch.set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``long``, unless LEVELHEAD_FUZZ=full, as in continuous integration."""
    if os.environ.get("LEVELHEAD_FUZZ") != "full":
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish() -> None:
    """Collect garbage again, now that every test file is imported, and never search what has been imported."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Spare pytest and the interpreter their last searches; the operating system takes all memory back."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def what_earlier_tests_imported_is_not_searched_for_garbage() -> None:
    """Collecting it costs half a second, as often as the code under test or torch asks for it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Hugging Face's libraries give up at once, as they do without a network after half a minute."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(autouse=True)
def a_command_leaves_no_environment_behind() -> Iterator[None]:
    """``main`` asks for a safe path in all that a command starts; a test that runs a script starts it without."""
    before = os.environ.get("PYTHONSAFEPATH")
    yield
    if before is None:
        os.environ.pop("PYTHONSAFEPATH", None)
    else:
        os.environ["PYTHONSAFEPATH"] = before


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
