"""What every test file shares."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# A search for garbage goes over all that torch and transformers have loaded, and finds none while they are imported.
gc.disable()
# Two test processes on two cores: more threads would only fight. Set before NumPy is imported; child processes get it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Waiting for the disk is for power cuts, which no test makes; what a killed process wrote stays without it.
os.fsync = lambda descriptor: None

import pytest  # noqa: E402
import torch  # noqa: E402
import typer.main  # noqa: E402

SAFE_PATH = os.environ.get("PYTHONSAFEPATH")
torch.set_num_threads(1)
# Typer builds all commands anew at each call, which costs more than most commands that a test runs in its process.
typer.main.get_command = functools.cache(typer.main.get_command)


SLOW = {
    line.split()[1]: float(line.split()[0])
    for line in (Path(__file__).parent / "slow.txt").read_text(encoding="utf-8").splitlines()
}
"""Seconds of a processor of all cases of a test function, from 0.25 s on: ``python tools/slow_tests.py``."""
LONG, NEVER_LONG = 7.0, ("test_blindness", "_refusals.py")
"""Seconds from which on a function is left to continuous integration, but for these."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what was measured as slow; leave out what is marked ``long``, unless LEVELHEAD_LONG=1, as in CI."""
    for item in items:
        seconds = SLOW.get(name := item.nodeid.partition("[")[0])
        if seconds is not None:
            item.add_marker("slow")
            if seconds >= LONG and not any(part in name for part in NEVER_LONG):
                item.add_marker("long")
    if os.environ.get("LEVELHEAD_LONG") != "1":
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Write what each test costs of a processor, its processes included, to the file $LEVELHEAD_SECONDS."""
    before = sum(os.times()[:4])
    result = yield
    if file := os.environ.get("LEVELHEAD_SECONDS"):
        with Path(file).open("a", encoding="utf-8") as log:
            log.write(f"{sum(os.times()[:4]) - before:.3f} {item.nodeid}\n")
    return result


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
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an empty folder the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library ``datasets``, where it is installed, keep what it reads in the folder of a test."""
    with suppress(ImportError):
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "library")


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the modules of a test, and the folder in which they were looked for."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Hugging Face's libraries give up at once, as they do without a network after half a minute."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def restore_safe_path() -> None:
    if SAFE_PATH is None:
        os.environ.pop("PYTHONSAFEPATH", None)
    else:
        os.environ["PYTHONSAFEPATH"] = SAFE_PATH


@pytest.fixture(autouse=True)
def a_command_leaves_no_environment_behind() -> Iterator[None]:
    """``main`` asks for a safe path in all that a command starts; a test that runs a script starts it without."""
    restore_safe_path()  # before, too: a fixture of a module may have run a command
    yield
    restore_safe_path()


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


@pytest.fixture
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give figures of language models an interval from two items on, so that it can be checked by hand."""
    from levelhead.lm import intervals

    monkeypatch.setattr(intervals, "FEW_CLUSTERS", 2)
