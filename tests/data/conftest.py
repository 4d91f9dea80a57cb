"""What the tests of data sets share: nothing is kept between them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

with contextlib.suppress(ImportError):
    import datasets.config


@pytest.fixture(autouse=True)
def in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVELHEAD_CACHE", "off")
    with contextlib.suppress(NameError):
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
